//! Reads the golden values of `tests/golden`.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// Files of single layers.
pub const LAYERS: &[&str] = &[
    "layers",
    "activations",
    "attention",
    "convolution",
    "language",
    "merging",
    "normalization",
    "reshaping",
    "scaling",
    "sequences",
];

/// A golden tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its axes, outermost first; none for a scalar.
    pub shape: Vec<usize>,
    /// Its values, row-major.
    pub values: Vec<f32>,
}

/// One case of a file: its facts, and tensors by role.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name, the same in `scripts/golden.py`.
    pub name: String,
    /// Everything else that the manifest says of it: `layer`, `config`, `training`, …
    pub facts: Value,
    /// Its tensors by role: `input.0`, `output`, `gradient.kernel`, …
    pub tensors: BTreeMap<String, Tensor>,
}

/// A file of golden values.
#[derive(Clone, Debug)]
pub struct Golden {
    /// What the file says of itself.
    pub manifest: Value,
    /// Every tensor by its full name, `case/role`.
    pub tensors: BTreeMap<String, Tensor>,
}

/// The folder of the golden files. The package of the tests is that of the repository's root, or lies in a folder of it.
pub fn folder() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = package.ancestors().map(|folder| folder.join("tests/golden"));
    folders.find(|golden| golden.is_dir()).unwrap_or_default()
}

impl Golden {
    /// Reads `tests/golden/{stem}.safetensors`.
    pub fn open(stem: &str) -> Self {
        let path = folder().join(format!("{stem}.safetensors"));
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("`{}`: {error}", path.display()));
        Self::parse(&bytes).unwrap_or_else(|error| panic!("`{}`: {error}", path.display()))
    }

    fn parse(bytes: &[u8]) -> Result<Self, Box<dyn std::error::Error>> {
        let (_, metadata) = SafeTensors::read_metadata(bytes)?;
        let manifest = metadata.metadata().as_ref().and_then(|known| known.get("manifest")).ok_or("no manifest")?;
        let mut tensors = BTreeMap::new();
        for (name, view) in SafeTensors::deserialize(bytes)?.iter() {
            assert_eq!(view.dtype(), Dtype::F32, "`{name}`");
            let (words, _) = view.data().as_chunks();
            let values = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
            tensors.insert(name.to_owned(), Tensor { shape: view.shape().to_vec(), values });
        }
        Ok(Self { manifest: serde_json::from_str(manifest)?, tensors })
    }

    /// Every case, in the order of the manifest.
    pub fn cases(&self) -> Vec<Case> {
        let list = self.manifest["cases"].as_array().unwrap_or_else(|| panic!("the manifest has no `cases`"));
        list.iter().map(|facts| self.read_case(facts)).collect()
    }

    /// The case of a name.
    pub fn case(&self, name: &str) -> Case {
        let found = self.cases().into_iter().find(|case| case.name == name);
        found.unwrap_or_else(|| panic!("there is no golden case `{name}`"))
    }

    fn read_case(&self, facts: &Value) -> Case {
        let name = facts["name"].as_str().unwrap_or_else(|| panic!("a case has no name: {facts}")).to_owned();
        let roles = facts["tensors"].as_object().unwrap_or_else(|| panic!("`{name}` has no `tensors`"));
        let tensors = roles.keys().map(|role| {
            let tensor = self.tensors.get(&format!("{name}/{role}"));
            (role.clone(), tensor.unwrap_or_else(|| panic!("`{name}` lacks its tensor `{role}`")).clone())
        });
        Case { tensors: tensors.collect(), name, facts: facts.clone() }
    }
}

impl Case {
    /// The tensor of a role.
    pub fn tensor(&self, role: &str) -> &Tensor {
        self.tensors.get(role).unwrap_or_else(|| panic!("golden case `{}` has no tensor `{role}`", self.name))
    }

    /// The values of a role.
    pub fn values(&self, role: &str) -> &[f32] {
        &self.tensor(role).values
    }

    /// The tensors whose role is `{prefix}.{key}`, by key: `with_prefix("gradient")` has `kernel` and `bias`.
    pub fn with_prefix(&self, prefix: &str) -> BTreeMap<&str, &Tensor> {
        let key = |role: &'_ str| role.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'));
        let tensors = self.tensors.iter().filter(|(role, _)| key(role));
        tensors.map(|(role, tensor)| (&role[prefix.len() + 1..], tensor)).collect()
    }

    /// A setting of its `config`; null where there is none.
    pub fn config(&self, key: &str) -> &Value {
        &self.facts["config"][key]
    }
}

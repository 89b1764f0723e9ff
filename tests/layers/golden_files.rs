//! Are the golden files whole: do manifest and tensors say the same, and do the values obey what any truth must?

use std::collections::BTreeSet;

use crate::golden::{Case, Golden, LAYERS, folder};

/// The files beside those of single layers.
const OTHERS: [&str; 18] = [
    "adapting",
    "arrays",
    "augmentation",
    "class_weight",
    "counted_metrics",
    "frozen",
    "losses",
    "masked",
    "metrics",
    "mixed_float16",
    "optimizers",
    "pictures",
    "recurrent",
    "regularizers",
    "schedules",
    "sync_batch_norm",
    "training",
    "transformer",
];

fn stems() -> impl Iterator<Item = &'static str> {
    LAYERS.iter().copied().chain(OTHERS)
}

/// Kept small enough for a clone, whatever is added.
const MAX_BYTES: u64 = 2 << 20;

#[test]
fn the_folder_holds_these_files() -> std::io::Result<()> {
    let (mut found, mut bytes) = (BTreeSet::new(), 0);
    for entry in std::fs::read_dir(folder())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            bytes += path.metadata()?.len();
            found.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    assert_eq!(found, stems().map(String::from).collect());
    assert!(bytes < MAX_BYTES, "{bytes} bytes");
    Ok(())
}

#[test]
fn manifests_and_tensors_agree() {
    for stem in stems() {
        let file = Golden::open(stem);
        let needed = match stem {
            "arrays" => "stored",
            "pictures" => "uint8",
            _ => "float64",
        };
        assert_eq!(file.manifest["computed_in"], needed, "{stem}");
        let mut listed = BTreeSet::new();
        for case in file.cases() {
            for (role, tensor) in &case.tensors {
                let name = format!("{}/{role}", case.name);
                assert_eq!(case.facts["tensors"][role], serde_json::json!(tensor.shape), "{stem}: {name}");
                assert_eq!(tensor.values.len(), tensor.shape.iter().product::<usize>(), "{stem}: {name}");
                assert!(tensor.values.iter().all(|value| value.is_finite()), "{stem}: {name}");
                assert!(listed.insert(name.clone()), "{stem}: {name} is listed twice");
            }
        }
        assert_eq!(listed, file.tensors.keys().cloned().collect(), "{stem}");
    }
}

#[test]
fn gradients_have_the_shape_of_what_they_are_for() {
    let same = |case: &Case, of: &str, gradient: &str, needed: bool| {
        let gradients = case.with_prefix(gradient);
        for (key, tensor) in case.with_prefix(of) {
            match gradients.get(key) {
                Some(found) => assert_eq!(found.shape, tensor.shape, "{} {gradient}.{key}", case.name),
                None => assert!(!needed, "{} has no {gradient}.{key}", case.name),
            }
        }
    };
    for stem in LAYERS.iter().copied().chain(["sync_batch_norm"]) {
        for case in Golden::open(stem).cases() {
            same(&case, "input", "input_gradient", true);
            same(&case, "parameter", "gradient", true);
            same(&case, "statistic", "updated", case.facts["training"] == true);
            assert_eq!(case.tensor("output").shape, case.tensor("output_gradient").shape, "{}", case.name);
        }
    }
    for case in Golden::open("losses").cases() {
        assert_eq!(case.tensor("logits").shape, case.tensor("logits_gradient").shape, "{}", case.name);
        assert!(case.tensor("loss").shape.is_empty(), "{}", case.name);
    }
}

/// What Keras divides a loss by, said once in `tests/golden/README.md` and checked here.
#[test]
fn losses_are_the_means_that_the_readme_tells() {
    for case in Golden::open("losses").cases() {
        let values = case.values("values");
        let weights = case.tensors.get("sample_weight").map_or(vec![1.0], |tensor| tensor.values.clone());
        let positions = values.len() / weights.len();
        let sum: f64 =
            values.iter().enumerate().map(|(i, value)| f64::from(*value) * f64::from(weights[i / positions])).sum();
        let divisor = match case.config("reduction").as_str() {
            Some("mean_with_sample_weight") => weights.iter().map(|weight| f64::from(*weight)).sum(),
            _ => f64::from(u32::try_from(values.len()).unwrap()),
        };
        let (loss, needed) = (f64::from(case.values("loss")[0]), sum / divisor);
        assert!((loss - needed).abs() < 1e-6 * needed.abs().max(1.0), "{}: {loss}, needs {needed}", case.name);
    }
}

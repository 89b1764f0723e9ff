//! Settings that every layer can have beside its own: whether training may change it, in which format it is kept, and penalties.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Built, Layer, Problem, Regularizer};
use crate::packed::PackedFormat;

/// End of the keys of penalties.
const KEY: &str = "_regularizer";
/// The key of the penalty of outputs.
const ACTIVITY: &str = "activity_regularizer";

/// A layer with what every layer can have: what [`Configure`]'s methods make of a layer.
#[derive(Clone, Debug)]
pub struct Configured {
    pub(crate) layer: Arc<dyn Layer>,
    pub(crate) is_trainable: bool,
    pub(crate) regularizers: Regularizers,
    pub(crate) packed: BTreeMap<String, PackedFormat>,
}

impl<L: Layer + 'static> From<L> for Configured {
    fn from(layer: L) -> Self {
        Self::new(Arc::new(layer))
    }
}

impl Configured {
    /// A layer that has none of it.
    pub(crate) fn new(layer: Arc<dyn Layer>) -> Self {
        Self { layer, is_trainable: true, regularizers: Regularizers::default(), packed: BTreeMap::new() }
    }
}

/// Settings that every layer can have beside its own, under the names of Keras.
///
/// ```
/// use manyhands::Sequential;
/// use manyhands::layers::{Configure, Dense, Regularizer};
/// # fn main() -> manyhands::Result<()> {
/// let trunk = Dense::new(16).frozen();
/// let head = Dense::new(2).kernel_regularizer(Regularizer::l2(0.01)).bias_regularizer(Regularizer::l1(0.01));
/// let model = Sequential::new([4]).add(trunk).add(head).build(0)?;
/// assert_eq!(model.n_trainable(), 16 * 2 + 2);
/// # Ok(())
/// # }
/// ```
pub trait Configure: Into<Configured> {
    /// Training leaves it as it is: see [`Model::freeze`](crate::Model::freeze).
    #[must_use]
    fn frozen(self) -> Configured {
        Configured { is_trainable: false, ..self.into() }
    }

    /// Keeps a parameter that training leaves as it is in packed blocks: see [`Model::pack`](crate::Model::pack).
    #[must_use]
    fn packed(self, parameter: &str, format: PackedFormat) -> Configured {
        let mut configured = self.into();
        configured.packed.insert(parameter.to_owned(), format);
        configured
    }

    /// A penalty of `kernel`.
    #[must_use]
    fn kernel_regularizer(self, regularizer: Regularizer) -> Configured {
        self.regularizer("kernel", regularizer)
    }

    /// A penalty of `bias`.
    #[must_use]
    fn bias_regularizer(self, regularizer: Regularizer) -> Configured {
        self.regularizer("bias", regularizer)
    }

    /// A penalty of the outputs, divided by the rows of the batch.
    #[must_use]
    fn activity_regularizer(self, regularizer: Regularizer) -> Configured {
        self.regularizer("activity", regularizer)
    }

    /// A penalty of another parameter: `gamma` for Keras' `gamma_regularizer`.
    #[must_use]
    fn regularizer(self, what: &str, regularizer: Regularizer) -> Configured {
        let mut configured = self.into();
        configured.regularizers.set(format!("{what}{KEY}"), regularizer);
        configured
    }
}

impl<T: Into<Configured>> Configure for T {}

/// Penalties of a layer by their keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Regularizers(Vec<(String, Regularizer)>);

impl Regularizers {
    /// Whether a key of a layer in a file is that of a penalty.
    pub(crate) fn has_key(key: &str) -> bool {
        key.ends_with(KEY)
    }

    /// Sets the penalty of a key.
    pub(crate) fn set(&mut self, key: String, regularizer: Regularizer) {
        self.0.retain(|(known, _)| *known != key);
        self.0.push((key, regularizer));
    }

    /// All of them by their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, Regularizer)> {
        self.0.iter().map(|(key, regularizer)| (key.as_str(), *regularizer))
    }

    /// That of the outputs.
    pub(crate) fn activity(&self) -> Option<Regularizer> {
        self.iter().find(|(key, _)| *key == ACTIVITY).map(|(_, regularizer)| regularizer)
    }

    /// Penalties of parameters by possible names: `depthwise_regularizer` is that of `depthwise_kernel`,
    /// or of `kernel` if a layer has only one.
    pub(crate) fn of_parameters(&self) -> impl Iterator<Item = ([String; 3], Regularizer)> {
        self.iter().filter(|(key, _)| *key != ACTIVITY).map(|(key, regularizer)| {
            let stem = key.strip_suffix(KEY).unwrap_or(key);
            let only = if stem == "depthwise" { "kernel" } else { stem };
            ([stem.to_owned(), format!("{stem}_kernel"), only.to_owned()], regularizer)
        })
    }

    /// Checks that a layer has what is penalized.
    pub(crate) fn check(&self, built: &Built) -> Result<(), Problem> {
        if let Some((key, problem)) = self.iter().find_map(|(key, it)| Some((key, it.problem()?))) {
            return Err(Problem::new(format!("has a `{key}` that {problem}"), "Keras' default is 0.01"));
        }
        let known: Vec<&str> = built.parameters.iter().map(|parameter| parameter.name).collect();
        let is_known = |names: &[String; 3]| names.iter().any(|name| known.contains(&name.as_str()));
        match self.of_parameters().find(|(names, _)| !is_known(names)) {
            None => Ok(()),
            Some(([stem, ..], _)) => {
                let known = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                let has = if known.is_empty() { "none".to_owned() } else { known };
                Err(Problem::new(
                    format!("has a `{stem}{KEY}`, but its parameters are: {has}"),
                    format!("leave it out; `{ACTIVITY}` is for outputs"),
                ))
            }
        }
    }
}

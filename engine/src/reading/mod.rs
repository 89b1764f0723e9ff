//! Reading of settings: values of TOML and JSON, and errors that keep as data what serde tells, and the place.

// Files: `error.rs`: the error; `tree.rs`: values of either format; `deserializer.rs`: serde's reader of them; `culprit.rs`: the place of
// an error that serde has lost.

mod culprit;
mod deserializer;
mod error;
mod tree;

use serde::de::DeserializeOwned;

pub use error::{Found, KnownNames, PathStep, ReadError, ReadReason};
pub use tree::Tree;

/// Reads settings of a type from a value.
///
/// ```
/// use manyhands_engine::reading::{Found, ReadReason, Tree, read};
/// let tree = Tree::from(serde_json::json!({"rates": [1.5, "x"]}));
/// let error = read::<std::collections::BTreeMap<String, Vec<f32>>>(&tree).unwrap_err();
/// assert_eq!(error.reason, ReadReason::Type { found: Found::Text("x".into()), needed: "f32".into() });
/// assert_eq!(error.path, ["rates".into(), 1.into()]);
/// ```
///
/// # Errors
/// If the value is not of the type. The error's path leads to the value within it that is wrong.
pub fn read<T: DeserializeOwned>(tree: &Tree) -> Result<T, ReadError> {
    T::deserialize(tree).map_err(|error| culprit::located(tree, error, &|tree| T::deserialize(tree).err()))
}

//! The first layers of a model with other layers behind them, for a new task.

use std::collections::HashSet;

use super::config::names_help;
use super::{LayerConfig, Model, ModelConfig};
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::shown;

impl Model {
    /// This model up to a tensor, with its weights, and new layers behind it: a network that was trained for one task,
    /// as the start of another.
    ///
    /// `until` is the name of the last layer that is used, or all are; the first of `layers` that names no inputs reads it. What
    /// [`schema`](Self::schema) and [`evaluation`](Self::evaluation) told of the old task is left out. The new layers are filled
    /// from the seed. [`freeze_all_but`](Self::freeze_all_but) leaves the old ones as they are.
    ///
    /// ```
    /// use manyhands::model::LayerConfig;
    /// use manyhands::{Sequential, layers::Dense};
    /// # fn main() -> manyhands::Result<()> {
    /// let old = Sequential::new([4]).add_named("trunk", Dense::new(8)).add_named("head", Dense::new(10)).build(1)?;
    /// let settings = serde_json::from_str(r#"{"units": 3}"#).map_err(|_| manyhands::Error::model("it", "", ""))?;
    /// let head = LayerConfig { name: Some("new".into()), kind: Some("Dense".into()), settings, ..LayerConfig::default() };
    /// let mut new = old.with_head(Some("trunk"), &[head], &[], 2)?;
    /// assert_eq!(new.outputs()[0].1.axes(), [3]);
    /// assert_eq!(new.tensor("trunk/kernel"), old.tensor("trunk/kernel"));
    /// new.freeze_all_but(["new"])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If there is no such layer, or the new layers can't be built behind it.
    pub fn with_head(
        &self,
        until: Option<&str>,
        layers: &[LayerConfig],
        outputs: &[String],
        seed: u64,
    ) -> Result<Self> {
        let trunk = match until {
            Some(name) => self.up_to(self.find_tensor(name)?),
            None => self.clone(),
        };
        let mut config = ModelConfig { outputs: outputs.to_vec(), ..trunk.config() };
        config.layers.extend_from_slice(layers);
        let mut model = config.build(seed)?;
        // A layer that no output needs any more is left out.
        model.take_over(&trunk, &HashSet::new())?;
        (model.schema, model.evaluation) = (Schema::default(), None);
        Ok(model)
    }

    /// Number of a tensor: an input's, or a node's.
    fn find_tensor(&self, name: &str) -> Result<usize> {
        let n_tensors = self.inputs.len() + self.nodes.len();
        (0..n_tensors).find(|tensor| self.tensor_name(*tensor) == name).ok_or_else(|| {
            let names: Vec<&str> = (0..n_tensors).map(|tensor| self.tensor_name(tensor)).collect();
            Error::model(
                format!("layer `{}`", shown(name)),
                "needs to be a layer of the model, but none has that name",
                names_help(name, &names),
            )
        })
    }
}

//! A model as a table.

use super::Model;
use crate::plan::Placed;
use crate::table::{Table, wrap};

impl Model {
    /// A table of the model: layer, output shape, parameters, memory per row; and the totals.
    ///
    /// Memory is that of the layer's output, in bytes for each row of a batch.
    pub fn summary(&self) -> String {
        format!("{}\n{}\n", self.table(), self.totals())
    }

    /// The [`summary`](Self::summary) in lines of at most so many columns.
    pub fn summary_within(&self, columns: usize) -> String {
        format!("{:.columns$}\n{}\n", self.table(), wrap(&self.totals(), columns))
    }

    fn table(&self) -> Table {
        let header = ["layer (type)", "output shape", "parameters", "reads", "bytes/row"];
        let mut table = Table::new(header).numbers([2, 4]);
        for input in &self.inputs {
            table.row([
                format!("{} (input)", input.name),
                input.shape.to_string(),
                "0".into(),
                String::new(),
                bytes(input.shape.len()),
            ]);
        }
        for (idx, node) in self.nodes.iter().enumerate() {
            let named = &self.layers[node.layer_idx];
            let first_use = !self.nodes[..idx].iter().any(|before| before.layer_idx == node.layer_idx);
            let parameters = if first_use { self.layer_len(&named.name).to_string() } else { "shared".into() };
            let reads = node.inputs.iter().map(|tensor| self.tensor_name(*tensor)).collect::<Vec<_>>().join(", ");
            let shape = &self.shapes[self.inputs.len() + idx];
            table.row([
                format!("{} ({})", node.name, named.layer.kind()),
                shape.to_string(),
                parameters,
                reads,
                bytes(shape.len()),
            ]);
        }
        table
    }

    fn totals(&self) -> String {
        let (trainable, statistics) = (self.layout.n_parameters(), self.layout.n_statistics());
        let kilobytes = kilobytes(trainable);
        format!("{trainable} trainable parameters ({kilobytes:.1} kB), {statistics} moving statistics")
    }

    fn layer_len(&self, layer: &str) -> usize {
        let prefix = format!("{layer}/");
        let all = self.layout.parameters.iter().chain(&self.layout.statistics);
        all.filter(|placed| placed.name.starts_with(&prefix)).map(Placed::len).sum()
    }
}

fn bytes(elements: usize) -> String {
    (elements * size_of::<f32>()).to_string()
}

#[allow(clippy::cast_precision_loss, reason = "shown with one digit")]
fn kilobytes(elements: usize) -> f64 {
    (elements * size_of::<f32>()) as f64 / 1e3
}

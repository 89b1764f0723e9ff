//! A model as a table.

use super::Model;
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
        let mut lens = self.layer_lens();
        for (idx, node) in self.nodes.iter().enumerate() {
            let named = &self.layers[node.layer_idx];
            let first_use = lens[node.layer_idx].take();
            let parameters = first_use.map_or_else(|| "shared".into(), |len| len.to_string());
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
        let (trainable, statistics) = (self.layout.n_trainable(), self.layout.n_statistics());
        let (kilobytes, left_out) = (kilobytes(trainable), self.left_out_text());
        let frozen = match self.layout.n_parameters() - trainable {
            0 => String::new(),
            frozen => format!("{frozen} frozen, "),
        };
        format!(
            "{trainable} trainable parameters ({kilobytes:.1} kB), {frozen}{statistics} moving statistics{left_out}"
        )
    }

    /// Numbers that each layer holds.
    fn layer_lens(&self) -> Vec<Option<usize>> {
        let mut lens = vec![Some(0); self.layers.len()];
        let layout = &self.layout;
        for (layer_idx, placed) in self.owners(&layout.parameters).chain(self.owners(&layout.statistics)) {
            if let Some(len) = &mut lens[layer_idx] {
                *len += placed.len();
            }
        }
        lens
    }

    fn left_out_text(&self) -> String {
        let layers: Vec<String> =
            self.left_out().map(|layer| format!("`{}` ({})", layer.name, layer.layer.kind())).collect();
        match layers.len() {
            0 => String::new(),
            n => format!("\n{n} left out, since no output needs them: {}", layers.join(", ")),
        }
    }
}

fn bytes(elements: usize) -> String {
    elements.saturating_mul(size_of::<f32>()).to_string()
}

#[allow(clippy::cast_precision_loss, reason = "shown with one digit")]
fn kilobytes(elements: usize) -> f64 {
    (elements * size_of::<f32>()) as f64 / 1e3
}

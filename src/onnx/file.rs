//! A graph as the bytes of an ONNX file, tensor by tensor: only what is not a weight is in memory twice.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use super::graph::{Graph, GraphValue, StoredTensor, TensorValues, value};
use crate::protobuf::Message;

/// Version of the format, that of ONNX 1.12.
const IR_VERSION: u64 = 8;
/// Version of the format for the operators of ONNX 1.15.
const NEWER_IR_VERSION: u64 = 9;
/// Name of the program in files that it writes.
pub(crate) const PRODUCER: &str = "manyhands";
/// Values that are turned into bytes at once.
const CHUNK: usize = 1 << 16;
/// Longest message of Protocol Buffers, and so the largest file.
const MOST_BYTES: u64 = (1 << 31) - 1;

/// The graph's frame: inputs, outputs, and texts about it.
pub(crate) struct GraphFrame {
    pub inputs: Vec<GraphValue>,
    pub outputs: Vec<GraphValue>,
    pub texts: BTreeMap<String, String>,
}

/// Writes the values of a tensor; `find` gives those of the model's tensors.
fn write_values<'m>(
    values: &TensorValues,
    out: &mut impl Write,
    find: &impl Fn(&str) -> Option<&'m [f32]>,
) -> io::Result<()> {
    let stored = |name: &str| {
        find(name).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("the model has no `{name}`")))
    };
    match values {
        TensorValues::Same(name) => write_floats(out, stored(name)?),
        TensorValues::Arranged(name, arrange) => write_floats(out, &arrange(stored(name)?)),
        TensorValues::Floats(values) => write_floats(out, values),
        TensorValues::Doubles(values) => values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes())),
        // The head holds them.
        TensorValues::Names(_) => Ok(()),
        TensorValues::Ints(values) => values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes())),
    }
}

fn write_floats(out: &mut impl Write, values: &[f32]) -> io::Result<()> {
    if cfg!(target_endian = "little") {
        return out.write_all(bytemuck::cast_slice(values));
    }
    values
        .chunks(CHUNK)
        .try_for_each(|values| out.write_all(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()))
}

/// Messages before the tensors, the head of each tensor, and messages behind them.
struct Parts {
    before: Message,
    graph: Message,
    heads: Vec<Message>,
    after: Message,
}

impl Parts {
    fn new(graph: &Graph, name: &str, about: &GraphFrame) -> Self {
        let mut before = Message::default();
        before.integer(1, if graph.splits_strings { NEWER_IR_VERSION } else { IR_VERSION });
        before.bytes(2, PRODUCER);
        before.bytes(3, env!("CARGO_PKG_VERSION"));
        let mut own = Message::default();
        graph.operators.iter().for_each(|operator| own.message(1, &operator.message()));
        own.bytes(2, name);
        about.inputs.iter().for_each(|it| own.message(11, &value(&it.name, it.kind, Some(&it.row))));
        about.outputs.iter().for_each(|it| own.message(12, &value(&it.name, it.kind, Some(&it.row))));
        let heads: Vec<Message> = graph.initializers.iter().map(framed_head).collect();
        let mut after = Message::default();
        for (domain, version) in graph.opsets() {
            let mut opset = Message::default();
            opset.bytes(1, domain);
            opset.integer(2, version);
            after.message(8, &opset);
        }
        for (key, text) in &about.texts {
            let mut entry = Message::default();
            entry.bytes(1, key);
            entry.bytes(2, text);
            after.message(14, &entry);
        }
        let length = |message: &Message| message.as_bytes().len() as u64;
        let stored = graph.initializers.iter().zip(&heads);
        let stored = stored.map(|(it, head)| length(head).saturating_add(it.n_bytes()));
        before.begin_bytes(7, stored.fold(length(&own), u64::saturating_add));
        Self { before, graph: own, heads, after }
    }

    /// Length of the file.
    fn n_bytes(&self, graph: &Graph) -> u64 {
        let messages = [&self.before, &self.graph, &self.after].into_iter().chain(&self.heads);
        let own: u64 = messages.map(|message| message.as_bytes().len() as u64).sum();
        graph.initializers.iter().map(StoredTensor::n_bytes).fold(own, u64::saturating_add)
    }
}

/// A tensor's head as a field of the graph.
fn framed_head(initializer: &StoredTensor) -> Message {
    let (head, mut framed) = (initializer.head(), Message::default());
    framed.begin_bytes(5, (head.as_bytes().len() as u64).saturating_add(initializer.n_bytes()));
    framed.append(&head);
    framed
}

/// A file that is ready to be written.
pub(crate) struct ReadyFile<'a> {
    graph: &'a Graph,
    parts: Parts,
}

/// Prepares a file.
///
/// # Errors
/// If it would be larger than an ONNX file can be: the bytes that it would have, and the most.
pub(crate) fn prepare<'a>(graph: &'a Graph, name: &str, about: &GraphFrame) -> Result<ReadyFile<'a>, [u64; 2]> {
    let parts = Parts::new(graph, name, about);
    let n_bytes = parts.n_bytes(graph);
    if n_bytes > MOST_BYTES { Err([n_bytes, MOST_BYTES]) } else { Ok(ReadyFile { graph, parts }) }
}

impl ReadyFile<'_> {
    /// Writes it; `find` gives the values of the model's tensors.
    ///
    /// # Errors
    /// If `out` does not take it.
    pub(crate) fn write<'m>(&self, out: impl Write, find: impl Fn(&str) -> Option<&'m [f32]>) -> io::Result<()> {
        let (mut out, Parts { before, graph, heads, after }) = (BufWriter::new(out), &self.parts);
        out.write_all(before.as_bytes())?;
        out.write_all(graph.as_bytes())?;
        for (initializer, head) in self.graph.initializers.iter().zip(heads) {
            out.write_all(head.as_bytes())?;
            write_values(&initializer.values, &mut out, &find)?;
        }
        out.write_all(after.as_bytes())?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph::FLOAT;
    use super::*;

    fn graph(rows: usize) -> Graph {
        let mut graph = Graph::new(&["x"], std::iter::empty());
        let values = TensorValues::Arranged("a/kernel".into(), Box::new(<[f32]>::to_vec));
        graph.store("a/kernel", "", vec![rows, 2], values);
        graph
    }

    fn about() -> GraphFrame {
        let value = |name: &str| GraphValue { name: name.into(), kind: FLOAT, row: vec![2] };
        GraphFrame { inputs: vec![value("x")], outputs: vec![value("y")], texts: BTreeMap::new() }
    }

    #[test]
    fn the_length_is_that_of_the_bytes() {
        let (graph, mut bytes) = (graph(3), Vec::new());
        let ready = prepare(&graph, "it", &about()).unwrap_or_else(|found| panic!("{found:?}"));
        ready.write(&mut bytes, |name| (name == "a/kernel").then_some(&[1.0; 6])).unwrap();
        assert_eq!(bytes.len() as u64, ready.parts.n_bytes(&graph));
        assert!(ready.write(&mut bytes, |_| None).unwrap_err().to_string().contains("the model has no `a/kernel`"));
    }

    #[test]
    fn what_a_file_can_not_hold_is_refused_before_it_is_written() {
        let found = prepare(&graph(1 << 28), "it", &about()).map(drop).unwrap_err();
        assert!(found[0] > 1 << 31 && found[1] == (1 << 31) - 1, "{found:?}");
    }
}

//! ONNX: a graph of its operators, to which layers write themselves.
//!
//! `form.rs`: what a layer writes to; `graph.rs`: the graph; `file.rs`: its bytes. [`Model::export`](crate::Model::export)
//! brings them together. Source of operators and messages: <https://github.com/onnx/onnx>, `docs/Operators.md` and
//! `onnx/onnx.proto`, of opset 17, and of 20 where strings are split.

mod file;
mod form;
mod graph;

pub(crate) use file::{GraphFrame, PRODUCER, ReadyFile, prepare};
pub(crate) use form::transposed;
pub use form::{Direction, Form, Value};
pub use graph::{Attribute, Order};
pub(crate) use graph::{BOOL, DOUBLE, FLOAT, Graph, GraphValue, INT64, STRING, UINT8};

//! Types for authors of layers, losses, metrics and optimizers: recording a plan, and kernels with their twins.
//!
//! A layer, a loss or an optimizer of your own is a struct of settings with a trait: [`Layer`], [`LossFunction`] or
//! [`UpdateRule`]. It does not compute: it *records* kernels into a plan, which every adapter then runs.
//!
//! 1. Write a shader in WGSL: `Params` at binding 0, then the inputs, then the outputs.
//! 2. Declare its [`params!`](crate::params), which makes the struct `Params` that a twin reads, and `Record`, the same with
//!    [`Word`]s, that a layer records.
//! 3. Write a `static` [`Kernel`] for each entry point, with its **twin**: the same sums in plain Rust, which the CPU adapter
//!    runs, and against which the shader is tested.
//! 4. Implement the trait. [`Recorder`] gives views of inputs, parameters and gradients, and takes the kernels.
//! 5. Make an entry with [`layers::entry`](crate::layers::entry), [`losses::entry`](crate::losses::entry) or
//!    [`optimizers::entry`](crate::optimizers::entry), and give it to [`Model::load_with`](crate::Model::load_with) or
//!    [`ModelConfig::build_with`](crate::ModelConfig::build_with), so that files can name it.
//!
//! `examples/04_custom_layer.rs` and `examples/05_custom_loss_and_optimizer.rs` are whole ones, with gradients checked.
//! A layer of your own that is to be [exported](crate::Model::export) writes its ONNX form, too, in
//! [`Layer::onnx`].
//! A metric of your own needs no kernel: [`MetricFunction`] counts on the host.
//! Splitting a batch over adapters needs nothing of you: gradients are sums over rows, and the engine adds them.

pub use crate::error::Problem;
pub use crate::kernels::{Call, Field, FieldType, Kernel, Library, Twin, rows_grid, whole};
pub use crate::kind::{Entry, Named, Settings};
#[doc(no_inline)]
pub use crate::layers::{Built, Initializer, Layer, Parameter, Statistic, to_config};
#[doc(no_inline)]
pub use crate::losses::{Domain, Head, LossFunction, Recording, Score, Target};
#[doc(no_inline)]
pub use crate::metrics::{MetricFunction, Position};
#[doc(no_inline)]
pub use crate::model::Own;
#[doc(no_inline)]
pub use crate::optimizers::{LEARNING_RATE, Range, UpdateRule, WholeTensor};
pub use crate::params;
pub use crate::plan::{Dispatch, Recorder, View};
pub use crate::reading::ReadError;
pub use crate::size::{Grid, Length, Word, length_word, vectors_word};

/// Types for [`Layer::onnx`]: the ONNX form of a layer, to which it writes operators.
pub mod onnx {
    pub use crate::onnx::{Attribute, Direction, Form, Order, Value};
}

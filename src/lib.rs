//! Train one network on every GPU in the machine, whatever its vendor, without CUDA.
//!
//! manyhands trains a neural network over several *adapters* at once: NVIDIA, AMD and Intel GPUs through Vulkan, Metal or
//! DX12, and the CPU. Each adapter computes as many rows of a batch as it can in the same time, the host adds the
//! gradients and updates the weights once. The result is that of one adapter with the whole batch, up to rounding; only
//! batch normalization differs, unless it takes the whole batch. Names, defaults and formulas are those of Keras 3.
//!
//! # A first run
//!
//! ```
//! use manyhands::data::digits;
//! use manyhands::layers::{Activation, BatchNormalization, Conv2D, Dense, Flatten, MaxPooling2D, Relu};
//! use manyhands::{Compile, Fit, Loss, Model, Optimizer, Predictor, Sequential, Trainer};
//!
//! # fn main() -> manyhands::Result<()> {
//! let model = Sequential::new([8, 8, 1])
//!     .add(Conv2D::new(8, [3, 3]).same().no_bias())
//!     .add(BatchNormalization::new().momentum(0.9))
//!     .add(Relu::default())
//!     .add(MaxPooling2D::new([2, 2]))
//!     .add(Flatten::default())
//!     .add(Dense::new(32).activation(Activation::Relu))
//!     .add(Dense::new(10))
//!     .build(42)?;
//!
//! let compile = Compile::new(Optimizer::adam(3e-3), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
//! let mut trainer = Trainer::new(model, compile)?.adapters("cpu,cpu")?; // without `.adapters`: all GPUs
//! trainer.fit(digits::train()?, &Fit::new(3).batch_size(64))?;
//! let values = trainer.evaluate(digits::test()?, 64)?;
//! assert!(values.get("accuracy") > Some(0.9), "{values}");
//!
//! # let folder = tempfile::tempdir().map_err(|error| manyhands::Error::writing("a temporary folder", error))?;
//! # let file = folder.path().join("digits.safetensors");
//! trainer.model().save(&file)?;
//! let outputs = Predictor::new(Model::load(&file)?).adapters("cpu")?.predict(digits::test()?, 64)?;
//! assert_eq!(outputs[0].shape(), [360, 10]);
//! # Ok(())
//! # }
//! ```
//!
//! [`Sequential`] chains layers; [`ModelBuilder`] builds graphs with several inputs and outputs and shared layers;
//! [`presets`] has networks by name. [`Compile`] says what training is for, [`Fit`] how a run goes. Losses take logits:
//! the last layer has no activation.
//!
//! # A table
//!
//! ```
//! use manyhands::{
//!     Compile, Fit, Loss, Optimizer, Sequential, Trainer,
//!     data::{self, Dataset, csv},
//!     layers::{Activation, Dense},
//! };
//!
//! # fn main() -> manyhands::Result<()> {
//! # let path = "examples/settings/data/penguins.csv"; // your table
//! let settings = csv::CsvSettings::new("species", csv::TargetKind::Classes); // all other columns are inputs
//! let (train, test) = data::split(csv::open(path, &settings)?.dataset, 0.2, 1)?;
//! let model = Sequential::new([train.input_shapes()[0].len()])
//!     .add(Dense::new(32).activation(Activation::Relu))
//!     .add(Dense::new(3))
//!     .build(42)?;
//! let compile = Compile::new(Optimizer::adam(0.01), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
//! let mut trainer = Trainer::new(model, compile)?.adapters("cpu")?;
//! trainer.fit(train, &Fit::new(10).batch_size(32))?;
//! let values = trainer.evaluate(test, 256)?; // loss and accuracy of the fifth that was set aside
//! # assert!(values.get("accuracy") > Some(0.95), "{values}");
//! # Ok(())
//! # }
//! ```
//!
//! # Choose adapters
//!
//! Without [`Trainer::adapters`], every GPU is used, or the CPU where there is none; the environment variable
//! `MANYHANDS_ADAPTERS` says otherwise. The text names adapters by index, kind or part of a name, with commas: `"all"`,
//! `"0,1"`, `"nvidia,cpu"`. That line is all that differs between one adapter and many. [`adapters`] lists what there is.
//!
//! Rows are split by measured speed; [`SplitMode`] has the other ways. Batch normalization is the one layer whose result
//! depends on the split, unless [`BatchStatistics::Batch`] says otherwise. An adapter that is lost costs no step: its rows
//! run on another.
//!
//! # Bring data
//!
//! [`data::InMemory`] takes arrays of [`ndarray`], which is exported here: its version is the one that fits. [`data`] also reads CSV tables, folders of images, IDX and CIFAR-10
//! files, and a [`data::Dataset`] of your own gives rows from anywhere. Images are `[height, width, channels]`; class labels
//! are whole numbers.
//!
//! # Save, load, continue
//!
//! [`Model::save`] and [`Model::load`] keep architecture, weights, and the names of classes and columns in one safetensors
//! file, which [`Predictor`] needs alone. [`Fit::save`] writes a [`Checkpoint`] of the run after each epoch, and
//! [`Trainer::resume`] continues from it: to the same bits on one adapter or with fixed shares, else up to rounding.
//!
//! # Where to go next
//!
//! | module | for |
//! | --- | --- |
//! | [`layers`] | the layers of a model |
//! | [`losses`], [`optimizers`] | what training minimizes, and by which rule; learning-rate schedules |
//! | [`metrics`] | what training reports beside the loss |
//! | [`model`] | graphs of layers, as code, TOML and files |
//! | [`presets`] | networks by name |
//! | [`data`] | data sets and formats |
//! | [`adapters`] | which adapters there are, and the choice among them |
//! | [`callbacks`] | early stopping, and callbacks of your own |
//! | [`logs`] | what steps and epochs report, as values, CSV and JSON |
//! | [`simulator`] | what 1 to N adapters would do together, before you own them |
//! | [`extend`] | layers, losses and optimizers of your own, with shaders of your own |
//!
//! Modules that are not listed here are **unstable**: they are for the packages of this repository.
//!
//! [`Session`] drives a run step by step and changes it on the way. Each blocking function has an async version,
//! for programs with an executor and for pages: in [`Trainer::asynchronous`], or under a name that ends in `_async`.
//! The command `manyhands` (package `manyhands-cli`) does most of this without a program: `manyhands train`, `evaluate`, `predict`, `simulate`, `bench`.
//!
//! Errors are one type, [`Error`]: who, what was needed, what came, and how to mend it. [`Error::kind`] is for programs.
//!
//! # Features
//!
//! `gpu` (default): adapters other than the CPU. `files` (default): tables, folders of images, CSV logs. `onnx` (default):
//! [`Model::export`]. `placer` (default): [`Placement::Auto`]. `processes` (default): several [processes] that train one
//! network. `static-dxc`: Microsoft's shader compiler within the program, on Windows.

#![cfg_attr(
    not(all(feature = "files", feature = "onnx", feature = "placer", feature = "processes")),
    allow(dead_code, unused_imports, reason = "what only a feature needs that is left out")
)]

pub mod adapters;
pub mod data;
pub mod extend;
pub mod layers;
pub mod losses;
pub mod metrics;
pub mod misread;
pub mod model;
mod onnx;
pub mod optimizers;
pub mod placer;
pub mod presets;
pub mod processes;
mod protobuf;
#[cfg(all(feature = "files", feature = "onnx"))]
mod raw;
pub mod scheduler;
pub mod schema;
pub mod simulator;
pub mod trainer;
mod vocabulary;

pub use manyhands_engine::{
    error, files, kernels, kind, names, packed, plan, reading, runtime, shape, shown, size, table, thousands, timing,
};

/// Actions after each step and each epoch: early stopping, the best model, logs, and callbacks of your own.
pub mod callbacks {
    pub use crate::metrics::{Mode, Reported};
    pub use crate::trainer::{Callback, EarlyStopping, EpochEnd, Flow, ModelCheckpoint, Monitor};
}

/// Reports of training: numbers of steps and epochs, totals of the time, log files and events for TensorBoard.
pub mod logs {
    pub use crate::scheduler::timeline::{AdapterTime, HostTime, TimeSummary};
    #[cfg(all(feature = "files", not(target_arch = "wasm32")))]
    pub use crate::trainer::TensorBoard;
    pub use crate::trainer::{AdapterLog, EpochLog, LoneStep, ProcessLog, SharedAdapterLog, StepLog, Values};
    #[cfg(feature = "files")]
    pub use crate::trainer::{CsvLog, JsonLog};
}

pub use losses::{Loss, Reduction};
pub use manyhands_engine::adapters::memory::MemoryNeed;
pub use manyhands_engine::params;
pub use manyhands_engine::plan::{BatchStatistics, GradientCompression, Precision};
pub use manyhands_engine::{Error, ErrorKind, Result, Shape};
pub use metrics::Metric;
pub use model::{Model, ModelBuilder, ModelConfig, Sequential};
pub use ndarray;
pub use optimizers::{Optimizer, Schedule};
pub use placer::{ChosenPlacement, ChosenStage};
pub use scheduler::split::SplitMode;
pub use scheduler::{AdapterStatus, CpuFallback, Placement, StageSpec};
pub use trainer::{
    AsyncTrainer, Checkpoint, Compile, Existing, Fit, History, LossScale, NonFinite, OpenAdapter, Predictor, Progress,
    SaveSettings, Session, Trainer,
};

/// The code of the README runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! Language models as others publish them: GGUF files, Hugging Face folders, tokenizers, chat templates, and texts to train on.
//!
//! **Unstable.** The command and the Python package share these parts. Users of the library `manyhands` don't build them.
//!
//! Every file may come from a stranger. Counts, lengths and offsets are compared with the file before memory is taken for them, and
//! what this package can't honour is refused by its name.

// Files: `encoding.rs`: numbers and packed blocks; `place.rs`: places of tensors in files; `gguf/`: GGUF files; `folder.rs`: Hugging Face
// folders; `architecture/`: the network, from either; `tensor.rs`: a tensor; `layout.rs`: names and shapes of a network's tensors;
// `model.rs`: a model's files; `network/`: its network as a model of `manyhands`; `tokenizer/`: tokenizers; `chat.rs`: chat templates;
// `rows.rs`: texts to train on; `packing.rs`: documents in rows of one length; `examples.rs`: rows with their targets; `generate/`: texts
// that a model writes; `training.rs`: settings of training; `adapter/`: PEFT folders; `write/`: Hugging Face folders, GGUF files.

pub mod adapter;
pub mod architecture;
pub mod chat;
pub mod encoding;
pub mod examples;
pub mod folder;
pub mod generate;
pub mod gguf;
mod layout;
mod model;
pub mod network;
mod packed;
pub mod packing;
mod place;
pub mod rows;
mod tensor;
pub mod tokenizer;
pub mod training;
pub mod write;

pub use architecture::Architecture;
pub use chat::ChatTemplate;
pub use encoding::Encoding;
pub use examples::Examples;
pub use manyhands_engine::{Error, ErrorKind, Result};
pub use model::ModelFiles;
pub use packed::Packed;
pub use place::TensorPlace;
pub use tensor::Tensor;
pub use tokenizer::Tokenizer;

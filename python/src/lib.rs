//! The native half of `manyhands_ml`: the crate's trainer, with `NumPy` arrays in and out. What users see stands in Python.

mod adapters;
mod batch;
mod command;
mod digits;
mod epoch;
mod errors;
mod given;
mod language;
mod log;
mod model;
mod simulate;
mod trainer;

use pyo3::prelude::*;

/// The crate's version.
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", VERSION)?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<batch::Check>()?;
    module.add_class::<batch::Rows>()?;
    module.add_class::<language::LanguageModel>()?;
    module.add_class::<model::Model>()?;
    module.add_class::<trainer::Trainer>()?;
    module.add_function(wrap_pyfunction!(adapters::adapters, module)?)?;
    module.add_function(wrap_pyfunction!(digits::digits, module)?)?;
    module.add_function(wrap_pyfunction!(command::command, module)?)?;
    module.add_function(wrap_pyfunction!(simulate::simulate, module)?)?;
    module.add_function(wrap_pyfunction!(model::has_activation, module)?)?;
    module.add_function(wrap_pyfunction!(model::layer_kinds, module)?)?;
    module.add_function(wrap_pyfunction!(model::check_model, module)?)
}

//! Do averages of weights end in the model, and training go on with the weights?

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::path::Path;

use manyhands::data::digits;
use manyhands::layers::{Dense, Flatten};
use manyhands::optimizers::Ema;
use manyhands::{Checkpoint, Compile, Fit, Loss, Model, Optimizer, Sequential, SplitMode, Trainer};

use crate::keras::{on, rigs};

const EMA: Ema = Ema { momentum: 0.9, overwrite_frequency: None };

fn trainer(rig: &str, optimizer: Optimizer) -> Trainer {
    let graph = Sequential::new([8, 8, 1]).add(Flatten::default()).add_named("hidden", Dense::new(12));
    let mut model = graph.add(Dense::new(10)).build(3).unwrap();
    model.freeze(["hidden"]).unwrap();
    Trainer::new(model, compile(optimizer)).unwrap().on(on(rig)).split(SplitMode::Even)
}

fn compile(optimizer: Optimizer) -> Compile {
    Compile::new(optimizer, Loss::SPARSE_CATEGORICAL_CROSSENTROPY)
}

fn fit(epochs: u64, file: &Path) -> Fit {
    Fit::new(epochs).batch_size(300).save(file)
}

/// The model of a file, and the run in it.
fn left(file: &Path) -> (Vec<Vec<f32>>, Checkpoint) {
    (Model::load(file).unwrap().weights.parameters, Checkpoint::load(file).unwrap())
}

#[test]
fn a_run_ends_with_the_averages_and_is_resumed_with_the_weights() {
    for rig in rigs() {
        let folder = tempfile::tempdir().unwrap();
        let [whole, halves] = ["whole", "halves"].map(|name| folder.path().join(name).with_extension("safetensors"));
        let optimizer = || Optimizer::adam(1e-2).use_ema(EMA);
        let data = || digits::train().unwrap();
        let mut trained = trainer(&rig, optimizer());
        trained.fit(data(), &fit(4, &whole)).unwrap();
        let (model, checkpoint) = left(&whole);
        // Frozen weights stand behind the trainable ones, and have no average.
        let averages = checkpoint.state.averages(&optimizer()).unwrap();
        assert_eq!(averages.len() + 1, model.len());
        assert_eq!(averages, &model[..averages.len()], "the model's weights are the averages: {rig}");
        assert_eq!(trained.model().weights.parameters, model);
        assert_ne!(checkpoint.state.weights.parameters, model, "training goes on with the weights: {rig}");

        trainer(&rig, optimizer()).fit(data(), &fit(2, &halves)).unwrap();
        let mut resumed = trainer(&rig, optimizer());
        resumed.resume(Checkpoint::load(&halves).unwrap()).unwrap();
        resumed.fit(data(), &fit(4, &halves)).unwrap();
        let (again, resumed) = left(&halves);
        assert_eq!(again, model, "the averages of a resumed run: {rig}");
        assert_eq!(resumed.state, checkpoint.state, "{rig}");
        let mut with_averages = Trainer::new(Model::load(&whole).unwrap(), compile(optimizer())).unwrap().on(on(&rig));
        let loss = |trainer: &mut Trainer| trainer.evaluate(data(), 300).unwrap().get("loss");
        assert_eq!(loss(&mut trained), loss(&mut with_averages), "evaluation after `fit` has the averages: {rig}");
    }
}

#[test]
fn a_checkpoint_without_averages_does_not_fit_an_optimizer_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.safetensors");
    trainer("cpu", Optimizer::adam(1e-2)).fit(digits::train().unwrap(), &fit(1, &file)).unwrap();
    let mut other = trainer("cpu", Optimizer::adam(1e-2).use_ema(EMA));
    let error = other.resume(Checkpoint::load(&file).unwrap()).unwrap_err().to_string();
    let needed = r#"the checkpoint holds ["momentum", "velocity"] of each parameter, but the optimizer keeps ["momentum", "velocity", "average"]"#;
    assert!(error.starts_with(needed), "{error}");
}

//! Are layers with `trainable = false` left as they are, at no cost?

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use manyhands::callbacks::{Callback, EpochEnd, Flow};
use manyhands::layers::{BatchNormalization, Conv2D, Dense, Flatten, Relu};
use manyhands::model::Objective;
use manyhands::scheduler::TrainingState;
use manyhands::{
    Checkpoint, Compile, Fit, Loss, Model, ModelBuilder, Optimizer, Result, Sequential, SplitMode, Trainer,
};
use manyhands_engine::plan::{Command, Exchange, Pass, Plan, Role, When};

use crate::close::assert_relative;
use crate::keras::{on, rigs, rows};

fn objective() -> Objective {
    Objective::new(vec![Loss::SPARSE_CATEGORICAL_CROSSENTROPY], Optimizer::adam(1e-2))
}

/// A trunk of two convolutions, each with batch normalization, and a head.
fn trunk_and_head() -> Model {
    let trunk = |graph: Sequential, name: &str, filters: usize| {
        let graph = graph.add_named(&format!("conv{name}"), Conv2D::new(filters, [3, 3]).same());
        graph.add_named(&format!("norm{name}"), BatchNormalization::new()).add(Relu::default())
    };
    let graph = trunk(trunk(Sequential::new([8, 8, 1]), "1", 4), "2", 6).add(Flatten::default());
    graph.add_named("head", Dense::new(10)).build(3).unwrap()
}

const TRUNK: [&str; 4] = ["conv1", "norm1", "conv2", "norm2"];

/// Bytes that an adapter sends in a step, and bytes of gradients on it.
fn bytes(plan: &Plan) -> [u64; 2] {
    let sent = plan.commands(Pass::Train).iter().map(|command| match command {
        Command::Exchange(exchange) => exchange.sent().len.fixed,
        Command::Dispatch(_) => 0,
    });
    let gradients = plan.buffers.iter().filter(|buffer| matches!(buffer.role, Role::Gradients(_)));
    [4 * sent.sum::<u64>(), 4 * gradients.map(|buffer| buffer.len.fixed).sum::<u64>()]
}

fn state_bytes(model: &Model) -> usize {
    let state = TrainingState::new(model.weights.clone(), model.layout(), &objective().optimizer);
    state.optimizer.iter().flatten().map(|values| size_of_val(values.as_slice())).sum()
}

#[test]
fn what_is_frozen_has_no_gradient_no_optimizer_state_and_travels_no_more() {
    let whole = trunk_and_head();
    let mut frozen = whole.clone();
    frozen.freeze(TRUNK).unwrap();
    let [all, part] = [&whole, &frozen].map(|model| model.plan(&objective()).unwrap());
    // Kernel 384 × 10 and bias 10, each padded to 64 values; Adam keeps two values for each.
    let head = 4 * (3840 + 64);
    assert_eq!(bytes(&part), [head, head]);
    assert_eq!(state_bytes(&frozen), 2 * usize::try_from(head).unwrap());
    // Kernels 3·3·1·4 and 3·3·4·6 take 64 and 256 values, two biases, scales and centers 64 each; mean and M2 of 4 and 6
    // channels travel, too.
    let trunk = 4 * (64 + 256 + 6 * 64);
    assert_eq!(bytes(&all), [head + trunk + 4 * 20, head + trunk]);
    assert_eq!(state_bytes(&whole), 2 * usize::try_from(head + trunk).unwrap());
    assert_eq!((frozen.n_trainable(), frozen.n_parameters()), (3850, whole.n_parameters()));
    assert!(frozen.summary().contains("3850 trainable parameters (15.4 kB), 282 frozen, 20 moving statistics"));
}

/// Kernels of the training pass by node.
fn kernels(model: &Model, node: &str) -> Vec<String> {
    let plan = model.plan(&objective()).unwrap();
    let dispatches = plan.commands(Pass::Train).iter().filter_map(|command| match command {
        Command::Dispatch(dispatch) if dispatch.node == node => Some(dispatch.kernel.name()),
        _ => None,
    });
    dispatches.map(|name| name.to_string()).collect()
}

#[test]
fn nothing_below_the_first_trainable_layer_runs_backward() {
    let mut model = trunk_and_head();
    model.freeze(TRUNK).unwrap();
    for node in TRUNK {
        let kernels = kernels(&model, node);
        assert!(!kernels.iter().any(|name| name.contains("backward") || name.contains("sums")), "{node}: {kernels:?}");
    }
    assert_eq!(kernels(&model, "norm1"), ["batch_norm.inference"]);
    let plan = model.plan(&objective()).unwrap();
    assert!(plan.moving.is_empty() && !plan.is_coupled(Pass::Train) && !model.has_batch_statistics());
}

#[test]
fn a_frozen_layer_between_layers_that_train_passes_the_gradient_on_and_computes_no_more() {
    let mut model = trunk_and_head();
    model.freeze(["norm1", "conv2", "head"]).unwrap();
    assert_eq!(kernels(&model, "norm1"), ["batch_norm.inference", "batch_norm.backward_inference"]);
    let [conv, head] = ["conv2", "head"].map(|node| kernels(&model, node));
    for (node, kernels) in [("conv2", &conv), ("head", &head)] {
        let is_of_parameters =
            |name: &String| ["weights", "kernel", "column_sums", "combine"].iter().any(|it| name.contains(it));
        assert!(!kernels.iter().any(is_of_parameters) && kernels.len() >= 2, "{node}: {kernels:?}");
    }
    // Gradients of what is trained are all sent, once.
    let plan = model.plan(&objective()).unwrap();
    let sent = plan.commands(Pass::Train).iter().filter_map(|command| match command {
        Command::Exchange(Exchange { view, when: When::Update, .. }) => {
            matches!(plan.get(view.buffer).role, Role::Gradients(_)).then_some(view.len.fixed)
        }
        _ => None,
    });
    assert_eq!(sent.sum::<u64>(), model.layout().trainable_segments().iter().sum::<u64>());
}

/// A layer that is used twice, and frozen: no sum of its gradients is computed either.
#[test]
fn a_shared_layer_is_frozen_in_all_its_uses() {
    let mut graph = ModelBuilder::new();
    let x = graph.input("x", [6]);
    let first = graph.add_named("first", Dense::new(6), &[x]);
    let shared = graph.layer("shared", Dense::new(6));
    graph.freeze(shared);
    let once = graph.call(shared, &[first]);
    let twice = graph.call(shared, &[once]);
    let model = graph.build(&[twice], 0).unwrap();
    assert_eq!(model.is_trainable("shared"), Some(false));
    let objective = Objective::new(vec![Loss::MEAN_SQUARED_ERROR], Optimizer::sgd(0.1, 0.0));
    let text = model.plan(&objective).unwrap().to_string();
    assert!(!text.contains("accumulate"), "{text}");
    assert_eq!((model.n_trainable(), model.n_parameters()), (42, 84));
}

#[test]
fn freezing_moves_no_weight_and_initial_weights_do_not_depend_on_it() {
    let whole = trunk_and_head();
    let values = |model: &Model| -> Vec<(String, Vec<f32>)> {
        let mut all: Vec<_> = model.tensors().map(|(name, _, values)| (name.to_owned(), values.to_vec())).collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    };
    let mut model = whole.clone();
    model.freeze(["norm1", "head"]).unwrap();
    assert_eq!(values(&model), values(&whole));
    // Built anew from what a file says, and read from one.
    assert_eq!(values(&model.config().build(3).unwrap()), values(&whole));
    let read = Model::from_bytes(&model.to_bytes().unwrap(), "file", &[]).unwrap();
    assert_eq!((read.config(), values(&read)), (model.config(), values(&whole)));
    assert_eq!(read.layout(), model.layout());
    let frozen: Vec<Option<bool>> = ["conv1", "norm1", "head"].map(|layer| read.is_trainable(layer)).into();
    assert_eq!(frozen, [Some(true), Some(false), Some(false)]);
    model.unfreeze_all().unwrap();
    assert_eq!((model.layout(), model.config()), (whole.layout(), whole.config()));
    let error = model.freeze(["conv1", "haed"]).unwrap_err().to_string();
    assert!(error.contains("layer `haed` needs to be a layer of the model, but none has that name"), "{error}");
    assert!(error.contains("did you mean `head`?"), "{error}");
    assert_eq!(model.is_trainable("conv1"), Some(true));
}

fn compile() -> Compile {
    Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY)
}

/// First the head, then all of it, as one does with a trained trunk.
#[test]
fn layers_are_trained_again_once_they_are_free() {
    let mut model = trunk_and_head();
    model.freeze(TRUNK).unwrap();
    let before = model.clone();
    let fit = Fit::new(2).batch_size(32);
    let mut trainer = Trainer::new(model, compile()).unwrap().on(on("cpu,cpu"));
    let first = trainer.fit(rows(), &fit).unwrap();
    let mut model = trainer.into_model();
    assert_eq!(model.tensor("conv1/kernel"), before.tensor("conv1/kernel"));
    assert_eq!(model.tensor("norm2/moving_mean"), before.tensor("norm2/moving_mean"));
    assert_ne!(model.tensor("head/kernel"), before.tensor("head/kernel"));
    model.unfreeze(TRUNK).unwrap();
    let mut trainer = Trainer::new(model, compile()).unwrap().on(on("cpu"));
    let second = trainer.fit(rows(), &fit).unwrap();
    for name in ["conv1/kernel", "norm1/gamma", "norm2/moving_mean"] {
        assert_ne!(trainer.model().tensor(name), before.tensor(name), "{name}");
    }
    let loss = |history: &manyhands::History| history.epochs.last().unwrap().values.get("loss").unwrap();
    assert!(loss(&second) < loss(&first), "{} {}", loss(&second), loss(&first));
}

#[test]
fn a_checkpoint_goes_on_with_the_same_layers_frozen_and_no_others() {
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("run.safetensors");
    let mut model = trunk_and_head();
    model.freeze(TRUNK).unwrap();
    let whole = {
        let mut trainer = Trainer::new(model.clone(), compile()).unwrap().on(on("cpu"));
        trainer.fit(rows(), &Fit::new(2).batch_size(32)).unwrap();
        trainer.into_model()
    };
    let mut trainer = Trainer::new(model, compile()).unwrap().on(on("cpu"));
    trainer.fit(rows(), &Fit::new(1).batch_size(32).save(&path)).unwrap();
    let checkpoint = Checkpoint::load(&path).unwrap();
    let names: Vec<usize> = checkpoint.state.optimizer.iter().map(Vec::len).collect();
    assert_eq!(names, [1, 1], "segments of each of Adam's states");
    let mut resumed = Trainer::new(checkpoint.model.clone(), compile()).unwrap().on(on("cpu"));
    resumed.resume(checkpoint.clone()).unwrap();
    resumed.fit(rows(), &Fit::new(2).batch_size(32)).unwrap();
    assert!(resumed.model().weights == whole.weights, "a run that was resumed is another");

    let mut free = checkpoint.model.clone();
    free.unfreeze_all().unwrap();
    let error = Trainer::new(free, compile()).unwrap().resume(checkpoint).unwrap_err().to_string();
    let needed = "the checkpoint holds the optimizer's state of other trainable layers than those of the model";
    assert!(error.starts_with(needed), "{error}");
}

#[test]
fn a_model_of_which_all_is_frozen_runs_and_stays_as_it_is() {
    let mut model = trunk_and_head();
    model.freeze_all_but([]).unwrap();
    let before = model.clone();
    let mut losses = Vec::new();
    for rig in rigs() {
        let mut trainer = Trainer::new(model.clone(), compile()).unwrap().on(on(&rig)).split(SplitMode::Even);
        let history = trainer.fit(rows(), &Fit::new(2).batch_size(32).in_order()).unwrap();
        assert_eq!(trainer.model().weights, before.weights, "adapters {rig}");
        losses.extend(history.epochs.iter().map(|epoch| epoch.values.get("loss").unwrap()));
    }
    assert_relative("losses", &losses, &vec![losses[0]; losses.len()], 1e-5);
}

struct Thaw;

impl Callback for Thaw {
    fn on_epoch(&mut self, end: &mut EpochEnd<'_>) -> Result<Flow> {
        end.model.unfreeze_all()?;
        Ok(Flow::Continue)
    }
}

#[test]
fn a_callback_that_unfreezes_layers_of_a_run_is_told_how() {
    let mut model = trunk_and_head();
    model.freeze(TRUNK).unwrap();
    let mut trainer = Trainer::new(model, compile()).unwrap().on(on("cpu"));
    let fit = Fit::new(2).batch_size(32);
    let error = trainer.fit_with(std::sync::Arc::new(rows()), &fit, &mut [&mut Thaw]).unwrap_err().to_string();
    assert!(error.contains("needs the trainable layers that the run began with"), "{error}");
}

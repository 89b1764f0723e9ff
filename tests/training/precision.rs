//! Under `precision = "mixed_float16"`: are steps those of an independent implementation, is the loss scale that of Keras, and does
//! nothing but rounding tell that gradients are scaled?

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use manyhands::adapters::{Info, Kind};
use manyhands::data::{InMemory, digits};
use manyhands::layers::{BatchNormalization, Conv2D, Dense, Flatten, MultiHeadAttention, Reshape};
use manyhands::logs::StepLog;
use manyhands::{
    Checkpoint, Compile, Existing, Fit, Loss, Model, NonFinite, Optimizer, Placement, Precision, SaveSettings,
    Sequential, SplitMode, StageSpec, Trainer,
};
use manyhands_engine::adapters;
use manyhands_engine::plan::{Command, Pass, Plan};
use serde_json::Value;

use crate::close::{assert_close, assert_relative};
use crate::golden::{Case, Golden};
use crate::keras::{network, on, penalized, rigs, rows, rows_of};
use crate::watch::{Steps, StopAt};

fn losses(steps: &Steps) -> Vec<f64> {
    steps.0.iter().map(|log| log.values.get("loss").unwrap()).collect()
}

fn scales(steps: &Steps) -> Vec<f32> {
    steps.0.iter().map(|log| log.loss_scale.unwrap()).collect()
}

#[allow(clippy::cast_possible_truncation, reason = "a weight of a test")]
fn of_case(case: &Case) -> Compile {
    let mut optimizer = case.facts["config"].as_object().unwrap().clone();
    optimizer.insert("type".into(), case.facts["optimizer"].clone());
    let optimizer: Optimizer = serde_json::from_value(Value::Object(optimizer)).unwrap();
    let compile = Compile::new(optimizer, Loss::SPARSE_CATEGORICAL_CROSSENTROPY).precision(Precision::MixedFloat16);
    compile.loss_weights([case.facts["loss_weight"].as_f64().unwrap() as f32])
}

/// Trains by the golden case, and compares.
fn check_case(file: &Golden, case: &Case, trainer: Trainer, parts: u32, what: &str) {
    let mut trainer = trainer.split(SplitMode::Even);
    let fit = Fit::new(1).batch_size(32).in_order().micro_batches(parts);
    let mut steps = Steps::default();
    trainer.fit_with(rows_of(file), &fit, &mut [&mut steps]).unwrap();
    let what = |role: &str| format!("{}, {what}: {role}", case.name);
    assert_eq!(scales(&steps), case.values("loss_scales"), "{}", what("loss scales"));
    let needed: Vec<f64> = case.values("losses").iter().map(|loss| f64::from(*loss)).collect();
    // Where a factor lies in the middle between two halves, a rounding of 2^-24 becomes one of 2^-11.
    assert_relative(&what("losses"), &losses(&steps), &needed, 2e-3);
    let applied: Vec<bool> = steps.0.iter().map(|log| log.is_applied).collect();
    let scales: Vec<f32> = scales(&steps);
    let halved = scales.windows(2).map(|pair| pair[1] >= pair[0]);
    assert_eq!(applied, halved.chain([true]).collect::<Vec<_>>(), "{}", what("applied"));
    for (name, needed) in case.with_prefix("final") {
        let (layer, name) = name.split_once('.').unwrap();
        let got = trainer.model().tensor(&format!("{layer}/{name}")).unwrap();
        assert_close(&what(&format!("{layer}/{name}")), got, &needed.values, 4e-3);
    }
}

fn golden_cases(file: &Golden) -> Vec<Case> {
    file.cases().into_iter().filter(|case| case.facts["optimizer"].is_string()).collect()
}

#[test]
fn ten_steps_are_those_of_an_independent_implementation() {
    let file = Golden::open("mixed_float16");
    for case in golden_cases(&file) {
        for rig in rigs() {
            let trainer = || Trainer::new(network(&file), of_case(&case)).unwrap().on(on(&rig));
            check_case(&file, &case, trainer(), 1, &format!("adapters {rig}"));
            check_case(&file, &case, trainer(), 2, &format!("adapters {rig}, 2 parts"));
        }
    }
}

#[test]
fn ten_steps_in_stages_are_those_of_an_independent_implementation() {
    let file = Golden::open("mixed_float16");
    let stage = |layers: &str, adapters: Vec<usize>| StageSpec { layers: vec![layers.into()], adapters };
    for case in golden_cases(&file) {
        let stages = vec![stage("..conv1", vec![0]), stage("conv2..", vec![1, 2])];
        let trainer = Trainer::new(network(&file), of_case(&case)).unwrap().on(on("cpu,cpu,cpu"));
        check_case(&file, &case, trainer.placement(Placement::Stages(stages)), 2, "stages");
    }
}

/// What is not linear in the gradient: clipping and penalties. The factor 2^15 left in anywhere would be seen.
#[test]
fn penalties_clipping_and_norms_are_those_of_unscaled_gradients() {
    let sgd = |settings: Value| {
        let mut all = serde_json::json!({ "type": "SGD", "learning_rate": 0.1, "momentum": 0.9 });
        all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        serde_json::from_value::<Optimizer>(all).unwrap()
    };
    let compile = |settings: Value| Compile::new(sgd(settings), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let plain = || serde_json::json!({});
    for (what, compile) in [
        ("penalties", compile(plain())),
        ("global norm", compile(plain()).clip_norm(0.2)),
        ("norm", compile(serde_json::json!({ "clipnorm": 0.05 }))),
        ("value", compile(serde_json::json!({ "clipvalue": 0.01 }))),
        ("averages", compile(serde_json::json!({ "use_ema": true, "ema_overwrite_frequency": 3 }))),
    ] {
        let run = |rig: &str, precision: Precision| {
            let mut trainer = Trainer::new(penalized(), compile.clone().precision(precision)).unwrap().on(on(rig));
            let mut steps = Steps::default();
            let fit = Fit::new(1).batch_size(40).in_order();
            trainer.fit_with(rows(), &fit, &mut [&mut steps]).unwrap();
            assert!(steps.0.iter().all(|log| log.is_applied), "{what}");
            let norms = steps.0.iter().map(|log| f64::from(log.gradient_norm)).collect::<Vec<_>>();
            (losses(&steps), norms, trainer.model().weights.parameters[0].clone())
        };
        let (losses, norms, weights) = run("cpu", Precision::Float32);
        for rig in ["cpu", "cpu,cpu,cpu"] {
            let mixed = run(rig, Precision::MixedFloat16);
            assert_ne!(mixed.2, weights, "{what}, {rig}: nothing was rounded");
            assert_relative(&format!("{what}, {rig}: losses"), &mixed.0, &losses, 2e-3);
            assert_relative(&format!("{what}, {rig}: norms"), &mixed.1, &norms, 1e-2);
            assert_close(&format!("{what}, {rig}: weights"), &mixed.2, &weights, 2e-3);
        }
    }
}

/// A network whose loss is so large that the scale falls for some steps.
fn overflowing(info: &Info) -> Trainer {
    let model = Sequential::new([8, 8, 1])
        .add(Conv2D::new(4, [3, 3]))
        .add(BatchNormalization::new().momentum(0.9))
        .add(Flatten::default())
        .add(Dense::new(10));
    let compile = Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let compile = compile.precision(Precision::MixedFloat16).loss_weights([1e4]);
    Trainer::new(model.build(3).unwrap(), compile).unwrap().on(vec![info.clone()])
}

/// The CPU adapter, and the first other one of the machine.
fn alone() -> Vec<Info> {
    let list = adapters::list();
    let other = list.into_iter().find(|info| info.kind != Kind::Cpu);
    std::iter::once(adapters::cpu::info()).chain(other).collect()
}

fn bits(trainer: &Trainer) -> Vec<u32> {
    let weights = &trainer.model().weights;
    weights.parameters.iter().flatten().chain(&weights.statistics).map(|value| value.to_bits()).collect()
}

/// Number, batch, whether it was applied, loss scale, loss and learning rate.
type Told = (u64, usize, bool, Option<f32>, Option<f64>, f32);

/// Numbers of steps, without their times.
fn told(steps: &[StepLog]) -> Vec<Told> {
    let numbers = |log: &StepLog| {
        let loss = log.values.get("loss");
        (log.step, log.batch, log.is_applied, log.loss_scale, loss, log.learning_rate)
    };
    steps.iter().map(numbers).collect()
}

#[test]
fn a_step_that_began_before_the_scale_fell_is_begun_again() {
    for info in alone() {
        let mut one_by_one = overflowing(&info);
        let mut session = one_by_one.session(digits::train().unwrap(), Fit::new(1).batch_size(64)).unwrap();
        let mut expected = Vec::new();
        while let Some(log) = session.step(&mut one_by_one).unwrap() {
            expected.push(log);
        }
        session.end_epoch(&mut one_by_one).unwrap();
        let mut ahead = overflowing(&info);
        let mut steps = Steps::default();
        ahead.fit_with(digits::train().unwrap(), &Fit::new(1).batch_size(64), &mut [&mut steps]).unwrap();
        let skipped = expected.iter().filter(|log| !log.is_applied).count();
        assert!((2..12).contains(&skipped), "{skipped} steps skipped");
        assert_eq!(ahead.progress().loss_scale.unwrap().skipped_steps(), skipped as u64);
        assert_eq!(told(&steps.0), told(&expected), "{}", info.name);
        assert_eq!(bits(&ahead), bits(&one_by_one), "{}", info.name);
    }
}

#[test]
fn a_resumed_run_has_the_bits_of_one_without_interruption() {
    let folder = tempfile::tempdir().unwrap();
    for info in alone() {
        let fit = Fit::new(1).batch_size(64);
        let (mut whole, mut steps) = (overflowing(&info), Steps::default());
        whole.fit_with(digits::train().unwrap(), &fit, &mut [&mut steps]).unwrap();
        for at in [1, 3, 9] {
            let path = folder.path().join("run.safetensors");
            let save = SaveSettings::new(&path).every_steps(at).existing(Existing::Overwrite);
            let mut stopped = overflowing(&info);
            let mut until = StopAt::step(at);
            let saving = fit.clone().save_with(save).stop(until.stop.clone());
            stopped.fit_with(digits::train().unwrap(), &saving, &mut [&mut until]).unwrap();
            let loaded = Checkpoint::load(&path).unwrap();
            assert_eq!(loaded.progress.loss_scale, stopped.progress().loss_scale);
            let (mut resumed, mut rest) = (overflowing(&info), Steps::default());
            resumed.resume(loaded).unwrap();
            resumed.fit_with(digits::train().unwrap(), &fit, &mut [&mut rest]).unwrap();
            let all = [told(&until.steps.0), told(&rest.0)].concat();
            assert_eq!(all, told(&steps.0), "{} at {at}", info.name);
            assert_eq!(bits(&resumed), bits(&whole), "{} at {at}", info.name);
        }
    }
}

/// Digits whose first row is nothing to compute with.
fn spoilt() -> InMemory {
    let mut images = ndarray::Array4::<f32>::ones((64, 8, 8, 1));
    images.fill(1e30);
    InMemory::new(images, ndarray::Array1::<f32>::zeros(64)).unwrap()
}

#[test]
fn what_no_scale_helps_is_an_error() {
    for info in alone() {
        let run = |non_finite: NonFinite| {
            let mut trainer = overflowing(&info);
            let weights = bits(&trainer);
            let mut steps = Steps::default();
            let compile = Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
            let compile = compile.precision(Precision::MixedFloat16).non_finite(non_finite);
            let model = trainer.model().clone();
            trainer = Trainer::new(model, compile).unwrap().on(vec![info.clone()]);
            let result = trainer.fit_with(spoilt(), &Fit::new(40).batch_size(64), &mut [&mut steps]);
            assert_eq!(bits(&trainer), weights);
            (result.map(|_| ()), steps.0.len(), steps.0.last().unwrap().loss_scale)
        };
        let (result, steps, _) = run(NonFinite::Stop);
        let error = result.unwrap_err().to_string();
        assert!(error.contains("needs finite values") && steps == 29, "{steps} steps: {error}");
        let (result, steps, scale) = run(NonFinite::Skip);
        result.unwrap();
        assert_eq!((steps, scale), (40, Some(2.0_f32.powi(-14))));
    }
}

/// Names of the kernels of a pass that round their factors.
fn rounding(plan: &Plan, pass: Pass) -> Vec<String> {
    let dispatches = plan.commands(pass).iter().filter_map(|command| match command {
        Command::Dispatch(dispatch) => Some(dispatch),
        Command::Exchange(_) => None,
    });
    let rounds = dispatches.filter(|dispatch| dispatch.constants.contains(&("HALF_FACTORS", 1.0)));
    rounds.map(|dispatch| dispatch.kernel.name()).collect()
}

#[test]
fn products_of_training_round_and_nothing_else_does() {
    let model: Model = Sequential::new([8, 8, 1])
        .add(Conv2D::new(4, [3, 3]).same())
        .add(Reshape::new([64, 4]))
        .add(MultiHeadAttention::new(2, 2))
        .add(Flatten::default())
        .add(Dense::new(10))
        .build(1)
        .unwrap();
    let objective = |precision| {
        let losses = vec![Loss::SPARSE_CATEGORICAL_CROSSENTROPY];
        let objective = manyhands::model::Objective::new(losses, Optimizer::adam(0.1));
        manyhands::model::Objective { precision, ..objective }
    };
    let plan = model.plan(&objective(Precision::MixedFloat16)).unwrap();
    let names = rounding(&plan, Pass::Train);
    let count = |name: &str| names.iter().filter(|known| *known == name).count();
    // Of the attention: query, key, value and output.
    assert_eq!([count("conv2d.forward"), count("dense.forward")], [1, 5]);
    assert_eq!(
        [count("conv2d_backward_weights.backward_weights"), count("conv2d_backward_input.backward_input")],
        [1, 0]
    );
    assert_eq!(
        [count("dense_backward_weights.backward_weights"), count("dense_backward_input.backward_input")],
        [5, 5]
    );
    assert_eq!(names.len(), 17);
    for pass in [Pass::Evaluate, Pass::Predict, Pass::Update] {
        assert_eq!(rounding(&plan, pass), Vec::<String>::new());
    }
    let plain = model.plan(&objective(Precision::Float32)).unwrap();
    assert_eq!(rounding(&plain, Pass::Train), Vec::<String>::new());
    let n_updates = |plan: &Plan| plan.commands(Pass::Update).len();
    assert_eq!(n_updates(&plan), n_updates(&plain) + 1);
}

#[test]
fn a_run_may_change_its_precision_when_it_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.safetensors");
    let trainer = |precision: Precision| {
        let model = Sequential::new([8, 8, 1]).add(Flatten::default()).add(Dense::new(10)).build(3).unwrap();
        let compile = Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
        Trainer::new(model, compile.precision(precision)).unwrap().on(on("cpu"))
    };
    let [mixed, plain] = [Precision::MixedFloat16, Precision::Float32];
    for (before, after) in [(mixed, plain), (plain, mixed)] {
        let save = SaveSettings::new(&path).existing(Existing::Overwrite);
        let fit = Fit::new(1).batch_size(256).save_with(save);
        trainer(before).fit(digits::train().unwrap(), &fit).unwrap();
        let mut second = trainer(after);
        second.resume(Checkpoint::load(&path).unwrap()).unwrap();
        assert_eq!(second.progress().loss_scale.is_some(), after == mixed);
        second.fit(digits::train().unwrap(), &Fit::new(2).batch_size(256)).unwrap();
    }
}

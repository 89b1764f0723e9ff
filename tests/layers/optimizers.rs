//! Do optimizers and schedules give the golden values, where the update runs on the device and where it runs on the
//! host? Needs the CPU alone.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stands outside the engine: it panics")]

use std::collections::BTreeSet;
use std::sync::Arc;

use manyhands::data::Batch;
use manyhands::layers::Dense;
use manyhands::model::Objective;
use manyhands::optimizers::OPTIMIZERS;
use manyhands::optimizers::{Adadelta, Adagrad, Adamax, Ema, Ftrl, Nadam};
use manyhands::scheduler::{Step, TrainingState};
use manyhands::{Loss, Model, ModelBuilder, Optimizer, Schedule, Sequential, SplitMode};
use manyhands_engine::adapters::cpu::Interpreter;
use manyhands_engine::plan::{Command, Pass, Role};
use serde_json::{Map, Value, json};

use crate::bench::{Bench, normal};
use crate::close::assert_close;
use crate::golden::{Case, Golden};

const STEPS: u32 = 5;
/// Inputs, which are as many as the rows less one, and units of the golden problem.
const INPUTS: usize = 3;
const UNITS: usize = 4;

/// Ours for a golden case: the optimizer, the norm that clips (0 for none), and the rate of each step.
fn ours(case: &Case) -> (Optimizer, f32, Vec<f32>) {
    let config = case.facts["config"].as_object().unwrap();
    let number = |key: &str| config.get(key).and_then(Value::as_f64);
    let name = match case.facts["optimizer"].as_str().unwrap() {
        // Adam with decay is AdamW: in Keras, too, the one is the other with another default.
        "Adam" if number("weight_decay").is_some() => "AdamW",
        name => name,
    };
    let known = [
        "momentum",
        "nesterov",
        "weight_decay",
        "beta_1",
        "beta_2",
        "epsilon",
        "rho",
        "centered",
        "clipnorm",
        "clipvalue",
        "initial_accumulator_value",
        "learning_rate_power",
        "l1_regularization_strength",
        "l2_regularization_strength",
        "l2_shrinkage_regularization_strength",
        "beta",
        "use_ema",
        "ema_momentum",
        "ema_overwrite_frequency",
        "gradient_accumulation_steps",
        "amsgrad",
        "beta_2_decay",
        "epsilon_1",
        "epsilon_2",
        "clip_threshold",
        "adam_beta_1",
        "adam_beta_2",
        "adam_weight_decay",
        "exclude_layers",
        "exclude_embeddings",
        "muon_a",
        "muon_b",
        "muon_c",
        "adam_lr_ratio",
        "ns_steps",
        "rms_rate",
    ];
    let mut settings: Map<String, Value> = config
        .iter()
        .filter(|(key, value)| known.contains(&key.as_str()) && !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    settings.insert("type".into(), name.into());
    if config.get("rms_rate").is_some_and(Value::is_null) {
        settings.insert("rms_rate".into(), 0.0.into());
    }
    let optimizer: Optimizer = serde_json::from_value(Value::Object(settings)).unwrap();
    let rates = (0..STEPS).map(|step| rate(&config["learning_rate"], step)).collect();
    #[allow(clippy::cast_possible_truncation, reason = "rounded to f32 on purpose")]
    let clip = number("global_clipnorm").unwrap_or(0.0) as f32;
    (optimizer, clip, rates)
}

/// The rate of a step: a number, or Keras' `CosineDecay` with a warm-up from a rate that is not 0.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are rounded, steps are small")]
fn rate(setting: &Value, step: u32) -> f32 {
    if let Some(rate) = setting.as_f64() {
        return rate as f32;
    }
    let of = |key: &str| setting["config"][key].as_f64().unwrap();
    let (step, warmup) = (f64::from(step), of("warmup_steps"));
    if step < warmup {
        let [from, to] = [of("initial_learning_rate"), of("warmup_target")];
        return (from + (to - from) * step / warmup) as f32;
    }
    let schedule =
        Schedule::CosineDecay { decay_steps: of("decay_steps") as u64, alpha: of("alpha") as f32, warmup_steps: 0 };
    schedule.rate(of("warmup_target") as f32, (step - warmup) as u64)
}

/// A `Dense` layer of the golden problem's initial values.
fn model(problem: &Case) -> Model {
    let mut model = Sequential::new([INPUTS]).add_named("it", Dense::new(UNITS)).build(0).unwrap();
    for (name, tensor) in problem.with_prefix("initial") {
        model.tensor_mut(&format!("it/{name}")).unwrap().copy_from_slice(&tensor.values);
    }
    model
}

fn gradient<'c>(problem: &'c Case, step: u32, name: &str) -> &'c [f32] {
    problem.values(&format!("gradient.{step}.{name}"))
}

/// A few roundings of each step; the third gradient is large, and RMSprop's root is steep near 0.
const TOLERANCE: f32 = 5e-6;

/// Compares parameters, and their averages if the optimizer keeps them.
fn check(case: &Case, place: &str, step: u32, model: &Model, [parameters, averages]: [&[f32]; 2]) {
    for placed in &model.layout().parameters {
        let name = placed.name.strip_prefix("it/").unwrap();
        let values = [("parameter", parameters), ("average", averages)];
        for (role, got) in values.into_iter().filter(|(_, got)| !got.is_empty()) {
            let what = format!("golden case `{}` {place}, step {step}: {role} `{name}`", case.name);
            assert_close(&what, &got[placed.range()], case.values(&format!("{role}.{step}.{name}")), TOLERANCE);
        }
    }
}

fn each_case(run: impl Fn(&Case, &Case)) {
    let golden = Golden::open("optimizers");
    let problem = golden.case("problem");
    let cases: Vec<Case> = golden.cases().into_iter().filter(|case| case.name != "problem").collect();
    let seen: BTreeSet<&str> = cases.iter().map(|case| ours(case).0.name()).collect();
    assert_eq!(seen, OPTIMIZERS.iter().map(|entry| entry.kind).collect());
    assert!(cases.iter().any(|case| ours(case).0.ema().is_some()));
    cases.iter().for_each(|case| run(case, &problem));
}

/// The update pass alone, on the device's memory, with the golden gradients written into it.
#[test]
fn updates_on_the_device_are_golden() {
    each_case(|case, problem| {
        let (optimizer, clip_norm, rates) = ours(case);
        let model = model(problem);
        let objective = Objective { clip_norm, ..Objective::new(vec![Loss::MEAN_SQUARED_ERROR], optimizer.clone()) };
        let plan = Arc::new(model.plan(&objective).unwrap());
        if plan.commands(Pass::Update).is_empty() {
            // The host alone updates.
            assert!(optimizer.rule().kernel().is_none() || case.name.contains("accumulated"), "{}", case.name);
            return;
        }
        let mut machine = Interpreter::new(plan.clone(), 1);
        machine.write(Role::Parameters(0), 0, &model.weights.parameters[0]);
        let state = TrainingState::new(model.weights.clone(), model.layout(), &optimizer).optimizer;
        for (kind, segments) in (0..).zip(&state) {
            machine.write(Role::State(kind, 0), 0, &segments[0]);
        }
        let average = optimizer.ema().and((0..).zip(&state).last()).map(|(kind, _)| Role::State(kind, 0));
        for (step, rate) in (0..STEPS).zip(rates) {
            for placed in &model.layout().parameters {
                let name = placed.name.strip_prefix("it/").unwrap();
                machine.write(Role::Gradients(0), placed.offset, gradient(problem, step, name));
            }
            let hyper = optimizer.hyper(rate, u64::from(step) + 1);
            let scalars = manyhands_engine::plan::Scalars { rows: 1, batch_rows: 1, hyper, ..Default::default() };
            for command in plan.commands(Pass::Update) {
                let Command::Dispatch(dispatch) = command else { panic!("an update exchanges nothing") };
                machine.dispatch(dispatch, &scalars);
            }
            let averages = average.map_or(&[][..], |role| machine.read(role));
            check(case, "on the device", step, &model, [machine.read(Role::Parameters(0)), averages]);
        }
    });
}

/// A step of PyTorch's optimizers for one parameter, as their documentation writes it.
struct PyTorch {
    w: f64,
    state: [f64; 3],
}

impl PyTorch {
    fn sgd(&mut self, step: u32, g: f64) {
        let g = g + 0.1 * self.w;
        self.state[0] = if step == 0 { g } else { 0.9 * self.state[0] + g };
        self.w -= 0.05 * (g + 0.9 * self.state[0]);
    }

    fn adam(&mut self, step: u32, g: f64, l2_decay: f64, weight_decay: f64) {
        self.w -= 0.05 * weight_decay * self.w;
        let (g, t) = (g + l2_decay * self.w, i32::try_from(step).unwrap() + 1);
        self.state[0] = 0.9 * self.state[0] + 0.1 * g;
        self.state[1] = 0.99 * self.state[1] + 0.01 * g * g;
        let (mean, square) = (self.state[0] / (1.0 - 0.9f64.powi(t)), self.state[1] / (1.0 - 0.99f64.powi(t)));
        self.w -= 0.05 * mean / (square.sqrt() + 0.1);
    }

    fn rmsprop(&mut self, g: f64) {
        let g = g + 0.1 * self.w;
        self.state[0] = 0.9 * self.state[0] + 0.1 * g * g;
        self.state[1] = 0.9 * self.state[1] + 0.1 * g;
        let root = (self.state[0] - self.state[1] * self.state[1]).sqrt() + 0.1;
        self.state[2] = 0.5 * self.state[2] + g / root;
        self.w -= 0.05 * self.state[2];
    }
}

/// A step of a parameter: its number, and the gradient.
type Form = fn(&mut PyTorch, u32, f64);

/// With other settings than Keras has, optimizers compute what those of PyTorch compute.
#[test]
fn updates_in_the_form_of_pytorch_are_its_formulas() {
    let forms: [(&str, Form); 4] = [
        (r#"{"type": "SGD", "momentum": 0.9, "nesterov": true, "l2_decay": 0.1}"#, PyTorch::sgd),
        (
            r#"{"type": "Adam", "beta_2": 0.99, "epsilon": 0.1, "outer_epsilon": true, "l2_decay": 0.1}"#,
            |it, step, g| {
                it.adam(step, g, 0.1, 0.0);
            },
        ),
        (
            r#"{"type": "AdamW", "beta_2": 0.99, "epsilon": 0.1, "outer_epsilon": true, "weight_decay": 0.1}"#,
            |it, step, g| it.adam(step, g, 0.0, 0.1),
        ),
        (
            r#"{"type": "RMSprop", "momentum": 0.5, "centered": true, "epsilon": 0.1, "outer_epsilon": true,
                "l2_decay": 0.1}"#,
            |it, _, g| it.rmsprop(g),
        ),
    ];
    for (settings, form) in forms {
        let optimizer: Optimizer = serde_json::from_str(settings).unwrap();
        let model = Sequential::new([2]).add(Dense::new(1).no_bias()).build(0).unwrap();
        let objective = Objective::new(vec![Loss::MEAN_SQUARED_ERROR], optimizer.clone());
        let plan = Arc::new(model.plan(&objective).unwrap());
        let mut machine = Interpreter::new(plan.clone(), 1);
        let initial = [0.5_f32, -2.0];
        machine.write(Role::Parameters(0), 0, &initial);
        let mut needed = initial.map(|w| PyTorch { w: w.into(), state: [0.0; 3] });
        for step in 0..STEPS {
            // A small gradient, for which the place of epsilon matters, and one that changes its sign.
            let gradient = [1e-2, 0.5 - f32::from(u8::try_from(step).unwrap()) / 3.0];
            machine.write(Role::Gradients(0), 0, &gradient);
            let hyper = optimizer.hyper(0.05, u64::from(step) + 1);
            let scalars = manyhands_engine::plan::Scalars { rows: 1, batch_rows: 1, hyper, ..Default::default() };
            for command in plan.commands(Pass::Update) {
                let Command::Dispatch(dispatch) = command else { panic!("an update exchanges nothing") };
                machine.dispatch(dispatch, &scalars);
            }
            for (at, (it, gradient)) in needed.iter_mut().zip(gradient).enumerate() {
                form(it, step, gradient.into());
                let got = f64::from(machine.read(Role::Parameters(0))[at]);
                assert!((got - it.w).abs() < 2e-6, "{settings}, step {step}: {got}, but PyTorch has {}", it.w);
            }
        }
    }
}

/// Targets that give the golden gradients: row `i` has a 1 at input `i`, the last row has none and gives the rest of the
/// bias's gradient. The loss counts so that its gradient is output - target.
fn batch(problem: &Case, step: u32, model: &Model, parameters: &[f32]) -> Batch {
    let rows = INPUTS + 1;
    let inputs: Arc<[f32]> = (0..rows * INPUTS).map(|at| if at / INPUTS == at % INPUTS { 1.0 } else { 0.0 }).collect();
    let of = |name: &str| {
        let layout = model.layout();
        &parameters[layout.parameters[layout.parameter(&format!("it/{name}")).unwrap()].range()]
    };
    let (kernel, bias) = (of("kernel"), of("bias"));
    let (kernel_gradient, bias_gradient) = (gradient(problem, step, "kernel"), gradient(problem, step, "bias"));
    let target = |at: usize| {
        let (row, unit) = (at / UNITS, at % UNITS);
        if row < INPUTS {
            return kernel[at] + bias[unit] - kernel_gradient[at];
        }
        let above: f32 = (0..INPUTS).map(|row| kernel_gradient[row * UNITS + unit]).sum();
        bias[unit] - (bias_gradient[unit] - above)
    };
    let targets = vec![(0..rows * UNITS).map(target).collect()];
    Batch { rows, inputs: vec![inputs], targets, sample_weights: None }
}

/// The scheduler's own steps: with one adapter the update runs on the device, with two on the host.
#[test]
fn updates_of_the_scheduler_are_golden() {
    each_case(|case, problem| {
        let (optimizer, clip_norm, rates) = ours(case);
        let model = model(problem);
        let first = batch(problem, 0, &model, &model.weights.parameters[0]);
        let mut bench = Bench::new(model, vec![Loss::MEAN_SQUARED_ERROR], first);
        bench.objective = Objective { optimizer: optimizer.clone(), clip_norm, ..bench.objective };
        bench.plan = Arc::new(bench.model.plan(&bench.objective).unwrap());
        for n_adapters in [1, 2, 3] {
            pollster::block_on(async {
                let mut scheduler = bench.open(n_adapters, SplitMode::Even).await;
                let mut state = TrainingState::new(bench.model.weights.clone(), bench.model.layout(), &optimizer);
                for (step, rate) in (0..STEPS).zip(&rates) {
                    let batch = batch(problem, step, &bench.model, &state.weights.parameters[0]);
                    let settings = Step {
                        step: step.into(),
                        seed: 0,
                        learning_rate: *rate,
                        loss_scales: vec![2.0],
                        ..Step::default()
                    };
                    assert!(scheduler.train(&batch, &settings).await.unwrap().is_applied);
                    state = scheduler.sync().await.unwrap().clone();
                    let place = format!("on {n_adapters} adapters");
                    let averages = state.averages(&optimizer).map_or(&[][..], |averages| &averages[0]);
                    check(case, &place, step, &bench.model, [&state.weights.parameters[0], averages]);
                }
            });
        }
    });
}

/// Parameters of several chunks, whose lengths are no round numbers: host and device agree on them and on the state.
#[test]
fn host_and_device_agree_on_long_parameters() {
    let optimizers = [
        Optimizer::sgd(0.1, 0.9),
        Optimizer::adam(0.01),
        serde_json::from_str(r#"{"type": "RMSprop", "momentum": 0.5, "centered": true, "weight_decay": 0.1}"#).unwrap(),
        serde_json::from_str(r#"{"type": "SGD", "momentum": 0.5, "nesterov": true, "l2_decay": 0.1}"#).unwrap(),
        serde_json::from_str(r#"{"type": "Adam", "outer_epsilon": true, "epsilon": 0.01, "l2_decay": 0.1}"#).unwrap(),
        serde_json::from_str(r#"{"type": "RMSprop", "outer_epsilon": true, "epsilon": 0.01, "l2_decay": 0.1}"#)
            .unwrap(),
        Nadam::default().into(),
        Adamax::default().into(),
        Adagrad::default().into(),
        Ftrl { learning_rate: 0.1, l1_regularization_strength: 1e-3, ..Ftrl::default() }.into(),
        Optimizer::from(Adadelta { learning_rate: 1.0, ..Adadelta::default() })
            .use_ema(Ema { momentum: 0.5, overwrite_frequency: Some(1) }),
    ];
    for optimizer in optimizers {
        let model = Sequential::new([211]).add(Dense::new(307)).add(Dense::new(1)).build(3).unwrap();
        let mut bench = Bench::of_normals(model, 6);
        bench.objective = Objective { optimizer: optimizer.clone(), clip_norm: 0.5, ..bench.objective };
        bench.plan = Arc::new(bench.model.plan(&bench.objective).unwrap());
        let (device, needed) = bench.step(1, SplitMode::Even);
        let (host, state) = bench.step(2, SplitMode::Even);
        assert_close("norm", &[host.gradient_norm], &[device.gradient_norm], 1e-5);
        assert!(device.gradient_norm > 0.5, "the gradients are clipped");
        assert_close(optimizer.name(), &state.weights.parameters[0], &needed.weights.parameters[0], 1e-5);
        for (host, device) in state.optimizer.iter().zip(&needed.optimizer) {
            assert_close(&format!("{}: state", optimizer.name()), &host[0], &device[0], 1e-5);
        }
    }
}

/// A gradient that is not finite changes nothing, on host and device: no parameter, no state.
#[test]
fn a_step_that_is_not_finite_changes_nothing() {
    for bad in [f32::NAN, f32::INFINITY] {
        let model = Sequential::new([3]).add(Dense::new(2)).build(3).unwrap();
        let mut bench = Bench::of_normals(model, 4);
        bench.objective = Objective { optimizer: Optimizer::adam(0.1), ..bench.objective };
        bench.plan = Arc::new(bench.model.plan(&bench.objective).unwrap());
        let mut targets = normal(8, 1);
        targets[5] = bad;
        bench.batch.targets[0] = targets.into();
        for n_adapters in [1, 2, 3] {
            let (report, state) = bench.step(n_adapters, SplitMode::Even);
            assert!(!report.is_applied, "{bad} on {n_adapters} adapters");
            let (weights, layout) = (bench.model.weights.clone(), bench.model.layout());
            assert_eq!(state, TrainingState::new(weights, layout, &bench.objective.optimizer));
        }
    }
}

#[test]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "steps are small whole numbers")]
fn schedules_are_golden() {
    for case in Golden::open("schedules").cases() {
        let number = |key: &str| case.config(key).as_f64().unwrap_or(0.0) as f32;
        let (schedule, base): (Schedule, f32) = match case.facts["schedule"].as_str().unwrap() {
            "Constant" => (Schedule::Constant, number("learning_rate")),
            "PiecewiseConstantDecay" => {
                let list = |key: &str| case.config(key).clone();
                let boundaries = serde_json::from_value(list("boundaries")).unwrap();
                let values = serde_json::from_value(list("values")).unwrap();
                (Schedule::PiecewiseConstantDecay { boundaries, values }, 0.0)
            }
            "CosineDecay" => {
                let warmup_steps = number("warmup_steps") as u64;
                let base = if warmup_steps > 0 { number("warmup_target") } else { number("initial_learning_rate") };
                let decay_steps = number("decay_steps") as u64;
                (Schedule::CosineDecay { decay_steps, alpha: number("alpha"), warmup_steps }, base)
            }
            other => panic!("unknown schedule `{other}`"),
        };
        schedule.check().unwrap();
        // Ours warms up from 0. Keras can start higher: then only what follows the warm-up is to be compared.
        let starts_at_0 = number("initial_learning_rate") == 0.0 || number("warmup_steps") == 0.0;
        let first = if starts_at_0 { 0.0 } else { number("warmup_steps") };
        let mut compared = 0;
        for (step, needed) in case.values("steps").iter().zip(case.values("rates")).filter(|(step, _)| **step >= first)
        {
            let got = schedule.rate(base, *step as u64);
            assert!(
                (got - needed).abs() < 1e-7,
                "golden case `{}`: the rate of step {step} is {got}, needs {needed}",
                case.name
            );
            compared += 1;
        }
        assert!(compared >= 3, "golden case `{}`: {compared} rates compared", case.name);
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let told = [
        (
            r#"{"type": "SGD", "learning_rate": -1.0}"#,
            "optimizer `SGD` needs `learning_rate` of at least 0, but got -1",
        ),
        (
            r#"{"type": "SGD", "momentum": 1.0}"#,
            "optimizer `SGD` needs `momentum` of at least 0 and below 1, but got 1",
        ),
        (
            r#"{"type": "Adam", "beta_2": 1.5}"#,
            "optimizer `Adam` needs `beta_2` of at least 0 and below 1, but got 1.5",
        ),
        (
            r#"{"type": "RMSprop", "rho": -0.1}"#,
            "optimizer `RMSprop` needs `rho` of at least 0 and below 1, but got -0.1",
        ),
        (r#"{"type": "Adam", "epsilon": 0.0}"#, "optimizer `Adam` needs `epsilon` above 0, but got 0"),
        (
            r#"{"type": "AdamW", "weight_decay": -1.0}"#,
            "optimizer `AdamW` needs `weight_decay` of at least 0, but got -1",
        ),
        (r#"{"type": "SGD", "l2_decay": -1.0}"#, "optimizer `SGD` needs `l2_decay` of at least 0, but got -1"),
        (r#"{"type": "Adam", "l2_decay": -1.0}"#, "optimizer `Adam` needs `l2_decay` of at least 0, but got -1"),
        (r#"{"type": "RMSprop", "l2_decay": -1.0}"#, "optimizer `RMSprop` needs `l2_decay` of at least 0, but got -1"),
        (
            r#"{"type": "Ftrl", "learning_rate_power": 0.5}"#,
            "optimizer `Ftrl` needs `learning_rate_power` of at most 0, but got 0.5",
        ),
        (
            r#"{"type": "Lion", "use_ema": true, "ema_momentum": 1.5}"#,
            "optimizer `Lion` needs `ema_momentum` of at least 0 and at most 1, but got 1.5",
        ),
    ];
    for (settings, needed) in told {
        let optimizer: Optimizer = serde_json::from_str(settings).unwrap();
        let error = optimizer.check().unwrap_err().to_string();
        assert_eq!(error, format!("{needed}\n  help: leave it out to take the default of Keras"));
    }
    let schedule = Schedule::PiecewiseConstantDecay { boundaries: vec![10], values: vec![0.1] };
    assert_eq!(
        schedule.check().unwrap_err().to_string(),
        "learning-rate schedule needs one value more than boundaries, but got 1 and 1\n  help: the last value holds after \
         the last boundary"
    );
}

/// Whoever adds an optimizer can forget no setting: each number in a file has a range, and what is outside is refused.
#[test]
fn no_setting_of_any_optimizer_goes_unchecked() {
    let mut checked = BTreeSet::new();
    for entry in OPTIMIZERS {
        let optimizer: Optimizer = serde_json::from_value(json!({ "type": entry.kind })).unwrap();
        assert_eq!(optimizer.name(), entry.kind);
        optimizer.check().unwrap();
        let numbers = optimizer.rule().config();
        for (name, _) in numbers.iter().filter(|(_, value)| value.is_number()) {
            // Any number is one of these, but for those that no JSON has.
            if ["muon_a", "muon_b", "muon_c"].contains(&name) {
                continue;
            }
            if name == "ns_steps" {
                let read = serde_json::from_value::<Optimizer>(json!({ "type": entry.kind, name: -1 }));
                assert!(read.unwrap_err().to_string().contains("expected u32"));
                continue;
            }
            let bad = if ["learning_rate_power", "beta_2_decay"].contains(&name) { 1.0 } else { -1.0 };
            let spoiled: Optimizer = serde_json::from_value(json!({ "type": entry.kind, name: bad })).unwrap();
            let error = spoiled.check().unwrap_err().to_string();
            assert!(error.starts_with(&format!("optimizer `{}` needs `{name}` ", entry.kind)), "{error}");
            assert!(error.contains(&format!("but got {bad}")), "{error}");
            checked.insert((entry.kind, name.to_owned()));
        }
    }
    assert!(checked.contains(&("RMSprop", "weight_decay".into())), "{checked:?}");
    assert_eq!(checked.len(), 3 + 4 + 5 + 5 + 5 + 4 + 5 + 4 + 4 + 8 + 6 + 9);
}

/// Checkpoints are compared as text, and read by older versions: kind first, then the settings in their order.
#[test]
fn optimizers_stand_in_files_as_ever() {
    let text = |settings: &str| {
        let optimizer: Optimizer = serde_json::from_str(settings).unwrap();
        let text = serde_json::to_string(&optimizer).unwrap();
        assert_eq!(serde_json::from_str::<Optimizer>(&text).unwrap(), optimizer);
        text
    };
    assert_eq!(
        text(r#"{"type": "SGD", "momentum": 0.9}"#),
        r#"{"type":"SGD","learning_rate":0.01,"momentum":0.9,"nesterov":false,"weight_decay":0.0}"#
    );
    assert_eq!(
        text(r#"{"learning_rate": 0.003, "type": "Adam"}"#),
        r#"{"type":"Adam","learning_rate":0.003,"beta_1":0.9,"beta_2":0.999,"epsilon":1e-7}"#
    );
    assert_eq!(
        text(r#"{"type": "AdamW"}"#),
        r#"{"type":"AdamW","learning_rate":0.001,"beta_1":0.9,"beta_2":0.999,"epsilon":1e-7,"weight_decay":0.004}"#
    );
    assert_eq!(
        text(r#"{"type": "RMSprop", "centered": true}"#),
        r#"{"type":"RMSprop","learning_rate":0.001,"rho":0.9,"momentum":0.0,"epsilon":1e-7,"centered":true,"weight_decay":0.0}"#
    );
    let refused = |text: &str| serde_json::from_str::<Optimizer>(text).unwrap_err().to_string();
    let unknown =
        "unknown variant `Adamm`, expected one of `SGD`, `Adam`, `AdamW`, `Nadam`, `Adamax`, `Lion`, `RMSprop`, ";
    assert!(refused(r#"{"type": "Adamm"}"#).starts_with(unknown));
    assert!(refused(r#"{"type": "SGD", "lr": 1}"#).starts_with("unknown field `lr`, expected one of `learning_rate`"));
}

#[test]
fn defaults_are_those_of_keras() {
    let golden = Golden::open("optimizers");
    let plain = |case: &&Case| case.name.replace('_', "") == case.facts["optimizer"].as_str().unwrap().to_lowercase();
    let cases = golden.cases();
    let cases: Vec<&Case> = cases.iter().filter(|case| case.name != "problem").filter(plain).collect();
    assert_eq!(cases.len(), OPTIMIZERS.len());
    for case in cases {
        let (told, ..) = ours(case);
        let name = case.facts["optimizer"].as_str().unwrap();
        let plain: Optimizer = serde_json::from_value(json!({ "type": name })).unwrap();
        assert_eq!(plain.with_learning_rate(0.05), told.with_learning_rate(0.05), "{name}");
    }
}

#[test]
fn averages_of_weights_are_read_and_refused() {
    let read = |text: &str| serde_json::from_str::<Optimizer>(text);
    let text = r#"{"type":"SGD","learning_rate":0.01,"momentum":0.0,"nesterov":false,"weight_decay":0.0,"use_ema":true,"ema_momentum":0.5,"ema_overwrite_frequency":3}"#;
    let optimizer = read(text).unwrap();
    assert_eq!(optimizer.ema(), Some(Ema { momentum: 0.5, overwrite_frequency: Some(3) }));
    assert_eq!(serde_json::to_string(&optimizer).unwrap(), text);
    assert_eq!(optimizer.with_learning_rate(1.0).ema(), optimizer.ema());
    assert_eq!(read(r#"{"type": "SGD", "use_ema": false, "ema_momentum": 0.5}"#).unwrap().ema(), None);
    assert_eq!(read(r#"{"type": "SGD", "use_ema": true}"#).unwrap().ema(), Some(Ema::default()));
    let refused = |text: &str| read(text).unwrap_err().to_string();
    let alone = refused(r#"{"type": "SGD", "ema_momentum": 0.5}"#);
    assert!(alone.contains("needs `use_ema = true` beside other settings of the average, but lacks it"), "{alone}");
    let wrong = refused(r#"{"type": "SGD", "use_ema": true, "ema_overwrite_frequency": 2.5}"#);
    assert!(wrong.contains("needs a number of steps as `ema_overwrite_frequency`, but got 2.5"), "{wrong}");
    let never = read(r#"{"type": "SGD", "use_ema": true, "ema_overwrite_frequency": 0}"#).unwrap();
    assert_eq!(
        never.check().unwrap_err().to_string(),
        "optimizer `SGD` needs `ema_overwrite_frequency` of at least 1, but got 0\n  help: leave it out for none"
    );
}

/// Keras gives no update to a variable whose gradient is `None`: weight decay does not shrink it.
#[test]
fn parameters_that_no_loss_reaches_stay_as_they_are() {
    let mut graph = ModelBuilder::new();
    let input = graph.input("x", [3]);
    let hidden = graph.add_named("first", Dense::new(70), &[input]);
    graph.add_named("dead", Dense::new(5), &[hidden]);
    let output = graph.add_named("last", Dense::new(2), &[hidden]);
    let model = graph.build(&[output], 3).unwrap();
    for settings in [r#"{"type": "AdamW", "weight_decay": 0.5}"#, r#"{"type": "SGD", "weight_decay": 0.5}"#] {
        let optimizer: Optimizer = serde_json::from_str(settings).unwrap();
        let mut bench = Bench::of_normals(model.clone(), 6);
        bench.objective = Objective { optimizer: optimizer.clone(), ..bench.objective };
        bench.plan = Arc::new(bench.model.plan(&bench.objective).unwrap());
        for n_adapters in [1, 2, 3] {
            let (report, state) = bench.step(n_adapters, SplitMode::Even);
            assert!(report.is_applied);
            for placed in &model.layout().parameters {
                let of = |flat: &[Vec<f32>]| flat[placed.segment as usize][placed.range()].to_vec();
                let (old, new) = (of(&model.weights.parameters), of(&state.weights.parameters));
                let is_dead = placed.name.starts_with("dead/");
                assert_eq!(old == new, is_dead, "`{}` with {} on {n_adapters} adapters", placed.name, optimizer.name());
                let has_state = state.optimizer.iter().any(|kind| of(kind).iter().any(|value| *value != 0.0));
                assert_eq!(has_state, !is_dead, "state of `{}`", placed.name);
            }
        }
    }
}

/// The parameters that are named keep their values, and the others decay, whether the host or the one adapter updates.
#[test]
fn weight_decay_leaves_named_parameters_out() {
    use manyhands::{Compile, Trainer};
    use manyhands_engine::adapters::cpu;
    let config = json!({
        "inputs": [{ "name": "x", "shape": [3] }],
        "layers": [
            { "name": "first", "type": "Dense", "units": 4, "inputs": ["x"] },
            { "name": "second", "type": "Dense", "units": 2, "inputs": ["first"] },
        ],
        "outputs": ["second"],
    });
    let names = ["first/kernel", "first/bias", "second/kernel", "second/bias"];
    for (excluded, decays, decay) in [
        (json!(["bias"]), [true, false, true, false], ("SGD", Some("weight_decay"), 0.25)),
        (json!(["second/kernel", "first/bias"]), [true, false, false, true], ("SGD", Some("weight_decay"), 0.25)),
        (json!(["bias"]), [true, false, true, false], ("SGD", Some("l2_decay"), 0.25)),
        // Its default.
        (json!(["bias"]), [true, false, true, false], ("AdamW", None, 0.004)),
    ] {
        for n_adapters in [1, 2] {
            let (kind, setting, decay) = decay;
            let mut settings = json!({ "type": kind, "learning_rate": 0.5, "exclude_from_weight_decay": excluded });
            if let Some(setting) = setting {
                settings[setting] = json!(decay);
            }
            let optimizer: Optimizer = serde_json::from_value(settings).unwrap();
            let model: manyhands::ModelConfig = serde_json::from_value(config.clone()).unwrap();
            let mut model = model.build(3).unwrap();
            // A bias of 0 would not show a decay.
            for name in ["first/bias", "second/bias"] {
                model.tensor_mut(name).unwrap().fill(1.0);
            }
            let before = names.map(|name| model.tensor(name).unwrap().to_vec());
            let compile = Compile::new(optimizer, Loss::MEAN_SQUARED_ERROR).loss_weights(vec![0.0]);
            let mut trainer = Trainer::new(model, compile).unwrap().on(vec![cpu::info(); n_adapters]);
            let zeros = |len: usize| Arc::<[f32]>::from(vec![0.0; len]);
            let batch = Batch { rows: 4, inputs: vec![zeros(12)], targets: vec![zeros(8)], sample_weights: None };
            trainer.train_on_batch(batch).unwrap();
            trainer.current_model().unwrap();
            for ((name, before), decays) in names.into_iter().zip(before).zip(decays) {
                let needed: Vec<f32> =
                    before.iter().map(|value| if decays { value - value * (decay * 0.5) } else { *value }).collect();
                assert_eq!(trainer.model().tensor(name).unwrap(), needed, "{name} of {n_adapters}, {excluded}");
            }
        }
    }
    let own = serde_json::from_str::<Optimizer>(r#"{"type": "SGD", "exclude_from_weight_decay": "bias"}"#).unwrap_err();
    assert!(
        own.to_string().contains("needs a list of names as `exclude_from_weight_decay`, but got \"bias\""),
        "{own}"
    );
}

//! Tries an adapter: a training step of a small network beside the CPU's, and the speed of transfers.

use std::sync::Arc;

use futures_lite::FutureExt;
use manyhands::adapters::{Info, MemoryLimits};
use manyhands::data::{Batch, Synthetic};
use manyhands::layers::{Dense, Flatten};
use manyhands::model::Objective;
use manyhands::{
    Compile, CpuFallback, Error, ErrorKind, Loss, Model, ModelConfig, Optimizer, Result, Sequential, Trainer,
};
use manyhands_bench::kernels;
use manyhands_engine::adapters::{self, ActorId, Event, Handle, Message, Opener, Request};
use manyhands_engine::plan::{Plan, Role};
use manyhands_engine::runtime::{self, Runtime};
use manyhands_engine::timing::median;

use super::facts::{ComparedStep, Difference, Examined, Failed, KernelVerdicts, LinkSpeed, StepOutcome};
use super::system;

/// A network with a layer of each family that networks commonly have.
const NETWORK: &str = r#"
input = [8, 8, 3]
layers = [
  { name = "conv", type = "Conv2D", filters = 8, kernel_size = [3, 3], padding = "same", use_bias = false },
  { name = "norm", type = "BatchNormalization" },
  { type = "ReLU" },
  { type = "MaxPooling2D" },
  { type = "Reshape", target_shape = [16, 8] },
  { name = "attention", type = "MultiHeadAttention", num_heads = 2, key_dim = 4 },
  { name = "layer_norm", type = "LayerNormalization" },
  { name = "lstm", type = "LSTM", units = 12 },
  { name = "dense", type = "Dense", units = 5 },
]
"#;

/// Rows of the step, and their classes.
const ROWS: usize = 16;
const CLASSES: usize = 5;
/// Differences that rounding explains, in parts of the largest value.
const TOLERANCE: f64 = 2e-3;
/// Changes of weights below this part of the largest weight are rounding alone, and below this part of the largest change: the
/// gradient of a key's bias is 0, for example, since softmax does not depend on it.
const ROUNDING: f64 = 1e-6;
const NO_CHANGE: f64 = 1e-5;
/// Values that are sent to measure transfers: 8 MB.
const SENT: usize = 1 << 21;
/// Measurements of transfers, of short ones, and the longest wait for each.
const ROUNDS: usize = 5;
const SHORT_ROUNDS: usize = 15;
const LIMIT_MS: f64 = 20_000.0;

/// Weights before and after a step, and the outputs after it.
struct TriedStep {
    open_ms: f64,
    step_ms: f64,
    loss: f64,
    /// The initial weights, and those after the step, by name.
    tensors: Vec<(String, Vec<f32>, Vec<f32>)>,
    outputs: Vec<f32>,
}

/// Tries adapters beside the CPU.
pub struct AdapterProbe {
    opener: Opener,
    limits: MemoryLimits,
    in_use: Vec<Info>,
    expected: TriedStep,
}

impl AdapterProbe {
    /// Adapters in use that an opener opens, within limits. Computes what is expected of them.
    pub fn new(opener: Opener, limits: MemoryLimits, in_use: Vec<Info>) -> Result<Self> {
        let own: Opener = Arc::new(adapters::open);
        let expected = train(&Info::cpu(), &own, &MemoryLimits::default())?;
        Ok(Self { opener, limits, in_use, expected })
    }

    /// Tries the adapter at a position among those in use.
    pub fn examine(&self, adapter_idx: usize) -> Examined {
        let info = &self.in_use[adapter_idx];
        let limits = self.limits.alone(adapter_idx, &self.in_use);
        let outcome = match train(info, &self.opener, &limits) {
            Ok(trained) => StepOutcome::Trained(self.compare(info, &trained)),
            Err(error) => StepOutcome::Failed(Failed { kind: error.kind(), text: error.to_string() }),
        };
        // A device that fails a step may hang in a transfer, too.
        let link = matches!(outcome, StepOutcome::Trained(_)).then(|| link(info, &self.opener).ok()).flatten();
        Examined { info: info.clone(), memory: system::memory_of(info), link, kernels: kernel_verdicts(info), outcome }
    }

    fn compare(&self, info: &Info, trained: &TriedStep) -> ComparedStep {
        let mut differences = Vec::new();
        let all = self.expected.tensors.iter().flat_map(|(_, before, after)| changes(before, after));
        let no_change = NO_CHANGE * largest(all);
        for ((name, _, got), (_, before, expected)) in trained.tensors.iter().zip(&self.expected.tensors) {
            let least = no_change.max(ROUNDING * largest(before.iter().map(|value| f64::from(*value))));
            differences.extend(difference(name, &changes(before, got), &changes(before, expected), least));
        }
        let numbers = |values: &[f32]| -> Vec<f64> { values.iter().map(|value| f64::from(*value)).collect() };
        differences.extend(difference("outputs", &numbers(&trained.outputs), &numbers(&self.expected.outputs), 0.0));
        differences.extend(difference("loss", &[trained.loss], &[self.expected.loss], 0.0));
        let wrong_kernels = if differences.is_empty() { Vec::new() } else { wrong_kernels(info) };
        ComparedStep {
            open_ms: trained.open_ms,
            step_ms: trained.step_ms,
            loss: trained.loss,
            expected_loss: self.expected.loss,
            has_changed: trained.tensors.iter().any(|(_, before, after)| before != after),
            differences,
            wrong_kernels,
        }
    }
}

/// Verdicts on the kernels that this process has used on an adapter.
#[cfg(feature = "gpu")]
fn kernel_verdicts(info: &Info) -> KernelVerdicts {
    use adapters::gpu::Verdict;
    let mut kernels = KernelVerdicts::default();
    for (name, verdict) in adapters::gpu::verdicts(info) {
        match verdict {
            Verdict::Right => kernels.right += 1,
            Verdict::Untried => kernels.untried.push(name),
            Verdict::Wrong(_) => kernels.wrong.push(name),
        }
    }
    kernels
}

/// Without GPUs every kernel is a definition.
#[cfg(not(feature = "gpu"))]
fn kernel_verdicts(_info: &Info) -> KernelVerdicts {
    KernelVerdicts::default()
}

fn changes(before: &[f32], after: &[f32]) -> Vec<f64> {
    after.iter().zip(before).map(|(after, before)| f64::from(*after) - f64::from(*before)).collect()
}

fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |most, value| most.max(value.abs()))
}

/// The difference of values, if rounding does not explain it.
fn difference(name: &str, got: &[f64], expected: &[f64], least: f64) -> Option<Difference> {
    let size = largest(expected.iter().copied());
    // NaN is no small difference.
    let is_close = |(got, expected): (&f64, &f64)| (got - expected).abs() <= TOLERANCE * size + least;
    if got.len() == expected.len() && got.iter().zip(expected).all(is_close) {
        return None;
    }
    let off = largest(got.iter().zip(expected).map(|(got, expected)| got - expected));
    let part = if got.iter().all(|value| value.is_finite()) { off / size.max(f64::MIN_POSITIVE) } else { f64::MAX };
    Some(Difference { name: name.to_owned(), part })
}

fn network() -> Result<Model> {
    let bug = |error: toml::de::Error| Error::model("the network of `doctor`", error.to_string(), "please report this");
    toml::from_str::<ModelConfig>(NETWORK).map_err(bug)?.build(1)
}

/// A training step with a rate of 1, so that weights change by their gradients.
fn train(info: &Info, opener: &Opener, limits: &MemoryLimits) -> Result<TriedStep> {
    let clock = runtime::system();
    let model = network()?;
    let before: Vec<Vec<f32>> = model.tensors().map(|(_, _, values)| values.to_vec()).collect();
    let batch = Batch::fetch(&Synthetic::new([8, 8, 3], CLASSES, 0..ROWS, 3)?, &(0..ROWS).collect::<Vec<_>>())?;
    let compile = Compile::new(Optimizer::sgd(1.0, 0.0), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let trainer = Trainer::new(model, compile)?.on(vec![info.clone()]).memory(limits.clone());
    let mut trainer = trainer.opener(opener.clone()).cpu_fallback(CpuFallback::Refused);
    let begin_ms = clock.now_ms();
    let outputs = trainer.predict_on_batch(&batch)?.concat();
    let open_ms = clock.now_ms() - begin_ms;
    let tensors = |model: &Model| {
        let pairs = model.tensors().zip(&before);
        pairs.map(|((name, _, after), before)| (name.to_owned(), before.clone(), after.to_vec())).collect()
    };
    // A network with random weights gives no zeros: this driver computes nothing, and a step would end in an error.
    if outputs.iter().all(|output| *output == 0.0) {
        return Ok(TriedStep { open_ms, step_ms: 0.0, loss: 0.0, tensors: tensors(trainer.model()), outputs });
    }
    let begin_ms = clock.now_ms();
    let log = trainer.train_on_batch(batch.clone())?;
    let loss = log.values.get("loss").unwrap_or(f64::NAN);
    let step_ms = clock.now_ms() - begin_ms;
    let outputs = trainer.predict_on_batch(&batch)?.concat();
    let tensors = tensors(trainer.current_model()?);
    Ok(TriedStep { open_ms, step_ms, loss, tensors, outputs })
}

/// The plan of the network's training.
fn plan(model: &Model) -> Result<Plan> {
    model.plan(&Objective::new(vec![Loss::SPARSE_CATEGORICAL_CROSSENTROPY], Optimizer::sgd(1.0, 0.0)))
}

/// Kernels of the network that a device does not compute as their definitions say.
fn wrong_kernels(info: &Info) -> Vec<String> {
    let checked = network().and_then(|model| {
        let of_plan = kernels::of_plan(&plan(&model)?);
        pollster::block_on(kernels::check(info, of_plan, f64::INFINITY))
    });
    // What is wrong is told without them, too.
    checked.map(|checked| checked.wrong).unwrap_or_default()
}

/// Speed of transfers of parameters, and the time of a short one.
#[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
fn link(info: &Info, opener: &Opener) -> Result<LinkSpeed> {
    let mut sent = ProbedAdapter::open(info, opener, SENT)?;
    let (mut both, mut back) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        both.push(sent.time(true)?);
        back.push(sent.time(false)?);
    }
    sent.close();
    let (both, back) = (median(both), median(back));
    let mut short = ProbedAdapter::open(info, opener, SENT / 4096)?;
    let trips = (0..SHORT_ROUNDS).map(|_| short.time(false)).collect::<Result<Vec<_>>>()?;
    short.close();
    // Where writing is hidden behind reading, it takes no longer.
    let upload_ms = (both - back).max(back / 10.0);
    let rate = |ms: f64| (SENT * size_of::<f32>()) as f64 / ms.max(1e-3) / 1e6;
    Ok(LinkSpeed { upload_gb_s: rate(upload_ms), readback_gb_s: rate(back), round_trip_ms: median(trips) })
}

/// An adapter that holds parameters, to send some and read them back.
struct ProbedAdapter {
    handle: Handle,
    events: async_channel::Receiver<Message>,
    clock: Arc<dyn Runtime>,
    values: Arc<[f32]>,
}

impl ProbedAdapter {
    /// An adapter with `count` parameters, a multiple of 64.
    fn open(info: &Info, opener: &Opener, count: usize) -> Result<Self> {
        let model = Sequential::new([count / 64]).add(Flatten::default()).add(Dense::new(64)).build(0)?;
        let plan = Arc::new(plan(&model)?);
        let clock = runtime::system();
        let (sender, events) = async_channel::unbounded::<Message>();
        let handle = opener(info, ActorId::default(), clock.clone(), sender)?;
        let sent = Self { handle, events, clock, values: vec![0.5; count].into() };
        sent.ask(Request::Load { plan, capacity: 1 })?;
        sent.answer()?;
        Ok(sent)
    }

    /// Milliseconds of reading all parameters back, with or without writing them before.
    fn time(&mut self, writes: bool) -> Result<f64> {
        let begin_ms = self.clock.now_ms();
        if writes {
            self.ask(Request::Write { role: Role::Parameters(0), offset: 0, data: self.values.clone() })?;
        }
        self.ask(Request::Read(Role::Parameters(0)))?;
        self.answer()?;
        Ok(self.clock.now_ms() - begin_ms)
    }

    /// Waits until the device is closed: a process that ends while NVIDIA's driver still works crashes at its end.
    fn close(self) {
        self.handle.requests.close();
        let closed = async { while self.events.recv().await.is_ok() {} };
        pollster::block_on(closed.or(self.clock.sleep(LIMIT_MS)));
    }

    fn lost(&self, text: String) -> Error {
        Error::new(ErrorKind::AdapterLost, format!("`{}`", self.handle.info.name), text, "see the driver's log")
    }

    fn ask(&self, request: Request) -> Result<()> {
        self.handle.requests.try_send(request).map_err(|error| self.lost(error.to_string()))
    }

    fn answer(&self) -> Result<()> {
        let answered = async { self.events.recv().await.map_err(|error| self.lost(error.to_string())) };
        let late = async {
            self.clock.sleep(LIMIT_MS).await;
            Err(self.lost("does not answer".into()))
        };
        match pollster::block_on(answered.or(late))?.event {
            Event::Failed { fault, .. } => Err(self.lost(format!("{fault:?}"))),
            Event::Working => self.answer(),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::MachineFacts;
    use crate::doctor::judge::{FindingLevel, judge, tests::healthy};
    use manyhands_engine::plan::Command;

    /// An adapter that gets other requests than those that are sent.
    fn planted(change: fn(Request) -> Request) -> Opener {
        Arc::new(move |info, actor, runtime, events| {
            let inner = adapters::open(info, actor, runtime.clone(), events)?;
            let (requests, received) = async_channel::unbounded();
            runtime.spawn("planted", Box::new(move || Box::pin(forward(received, inner, change))));
            Ok(Handle { info: info.clone(), requests })
        })
    }

    async fn forward(received: async_channel::Receiver<Request>, inner: Handle, change: fn(Request) -> Request) {
        while let Ok(request) = received.recv().await {
            // A lost adapter takes no requests.
            drop(inner.requests.send(change(request)).await);
        }
    }

    fn on_plan(request: Request, change: impl Fn(&mut Plan)) -> Request {
        match request {
            Request::Load { plan, capacity } => {
                let mut plan = (*plan).clone();
                change(&mut plan);
                Request::Load { plan: Arc::new(plan), capacity }
            }
            other => other,
        }
    }

    /// Facts and findings about a CPU adapter with this fault.
    fn examined(opener: Opener, limits: &str) -> (Examined, Vec<(FindingLevel, String, String)>) {
        let limits = if limits.is_empty() { MemoryLimits::default() } else { limits.parse().unwrap() };
        let probe = AdapterProbe::new(opener, limits, vec![Info::cpu()]).unwrap();
        let examined = probe.examine(0);
        let facts = MachineFacts { adapters: vec![examined.clone()], ..healthy() };
        let told = judge(&facts).into_iter().map(|it| (it.level, it.problem, it.advice)).collect();
        (examined, told)
    }

    #[test]
    fn a_good_adapter_has_no_findings() {
        let (examined, told) = examined(Arc::new(adapters::open), "");
        assert_eq!(told, []);
        let StepOutcome::Trained(step) = &examined.outcome else { panic!("{examined:?}") };
        assert!(step.has_changed && (step.loss - step.expected_loss).abs() < 1e-6, "{step:?}");
        assert!(examined.link.is_some_and(|link| link.upload_gb_s > 0.01 && link.readback_gb_s > 0.01), "{examined:?}");
    }

    #[test]
    fn a_wrong_kernel_is_found_by_its_layer() {
        /// The kernel of a gradient, which leaves its result unwritten.
        fn is_skipped(command: &Command) -> bool {
            match command {
                Command::Dispatch(dispatch) => dispatch.kernel.name().starts_with("conv2d_backward_weights."),
                Command::Exchange(_) => false,
            }
        }
        let skip = |request| {
            on_plan(request, |plan| {
                plan.passes.iter_mut().for_each(|(_, commands)| commands.retain(|command| !is_skipped(command)));
            })
        };
        let (examined, told) = examined(planted(skip), "");
        let StepOutcome::Trained(step) = &examined.outcome else { panic!("{examined:?}") };
        assert!(step.differences.iter().any(|it| it.name == "conv/kernel"), "{step:?}");
        assert!(step.differences.iter().all(|it| !it.name.starts_with("lstm")), "{step:?}");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].0 == FindingLevel::Wrong && told[0].1.contains("`conv/kernel`"), "{told:?}");
        assert!(told[0].2.contains("don't train on it"), "{told:?}");
    }

    #[test]
    fn a_driver_that_computes_nothing_is_found() {
        let idle = |request| {
            on_plan(request, |plan| {
                for (_, commands) in plan.passes.iter_mut() {
                    commands.retain(|command| !matches!(command, Command::Dispatch(_)));
                }
            })
        };
        let (_, told) = examined(planted(idle), "");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].0 == FindingLevel::Wrong && told[0].1.contains("the driver computes nothing"), "{told:?}");
        assert!(told[0].2.contains("Wine"), "{told:?}");
    }

    #[test]
    fn too_little_memory_is_found() {
        let (examined, told) = examined(Arc::new(adapters::open), "cpu=2kB");
        assert!(matches!(examined.outcome, StepOutcome::Failed(_)) && examined.link.is_none());
        assert!(told[0].0 == FindingLevel::Wrong && told[0].1.contains("too little memory"), "{told:?}");
        assert!(told[0].2.contains("--memory"), "{told:?}");
    }

    #[test]
    fn values_that_are_not_finite_are_no_small_difference() {
        assert_eq!(difference("a", &[1.0, 2.0], &[1.001, 2.0], 0.0), None);
        assert_eq!(difference("a", &[0.0, 1e-9], &[0.0, 0.0], 1e-8), None);
        assert!(difference("a", &[f64::NAN], &[1.0], 0.0).is_some_and(|it| it.part > 1e9));
        assert!(difference("a", &[1.5], &[1.0], 0.0).is_some_and(|it| it.part == 0.5));
    }
}

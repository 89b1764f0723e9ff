//! The worker's loop: requests between training steps, steps between requests.

use std::cell::{Cell, RefCell};

use async_channel::{Receiver, Sender};
use js_sys::Function;
use manyhands::adapters::{self, Info, Kind};
use manyhands::{Error, ErrorKind, Result};
use manyhands_engine::adapters::gpu;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::host::{self, Notices, tell};
use crate::messages::{EngineState, Event, Learnable, PageRequest};
use crate::rig::{self, PageRig};
use crate::settings::{MOST_ADAPTERS, RunSettings, check_adapters};
use crate::simulation;
use crate::tasks::{LearnedData, LearningTask};
use crate::training::{PageRun, StepResult, check_batch};

thread_local! {
    /// Requests, with their names.
    static INBOX: RefCell<Option<Sender<(String, PageRequest)>>> = const { RefCell::new(None) };
    static IS_CANCELLED: Cell<bool> = const { Cell::new(false) };
}

static NOTICES: Notices = Notices;

/// Starts the engine in this worker: `post(text, arrays)` sends to the page, `open_cpu(heard, ended)` starts a worker
/// for a CPU adapter.
#[wasm_bindgen]
pub fn start(post: Function, open_cpu: Function) {
    host::meet(post, Some(open_cpu));
    std::panic::set_hook(Box::new(|panic| tell(&Event::Failed { message: panic.to_string() })));
    if log::set_logger(&NOTICES).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
    let (inbox, requests) = async_channel::unbounded();
    INBOX.with(|place| *place.borrow_mut() = Some(inbox));
    wasm_bindgen_futures::spawn_local(async move {
        match hello().await {
            Ok((list, digits)) => {
                let rig = PageRig::of(&list);
                Worker { list, requests, rig, tasks: vec![digits], run: None, state: EngineState::Idle }.work().await;
            }
            Err(error) => tell(&Event::Failed { message: error.to_string() }),
        }
    });
}

/// Handles a request of the page by its name, as JSON, with the pixels of a drawing or the bytes of a file.
#[wasm_bindgen]
pub fn request(name: String, text: &str, pixels: Vec<f32>, bytes: Vec<u8>) {
    let request = match serde_json::from_str(text) {
        Ok(PageRequest::Classify { id, .. }) => PageRequest::Classify { id, pixels },
        Ok(PageRequest::Load { data, .. }) => PageRequest::Load { data, bytes },
        Ok(request) => request,
        Err(error) => {
            return tell(&Event::Error { request: None, message: format!("a request can't be read: {error}") });
        }
    };
    // Some take effect while a step runs, or a measurement.
    match &request {
        PageRequest::Unplug { member } => rig::unplug(*member),
        PageRequest::Cancel => IS_CANCELLED.set(true),
        PageRequest::Measure { .. } => IS_CANCELLED.set(false),
        _ => {}
    }
    INBOX.with(|inbox| {
        if let Some(inbox) = &*inbox.borrow() {
            // The worker receives as long as it lives.
            drop(inbox.try_send((name, request)));
        }
    });
}

async fn hello() -> Result<(Vec<Info>, LearningTask)> {
    let list = adapters::list_async().await;
    let missing = serde_json::to_value(gpu::missing().await).unwrap_or_default();
    let digits = LearningTask::digits()?;
    let (version, task) = (env!("CARGO_PKG_VERSION"), Learnable::of(&digits)?);
    let listed = list.iter().map(rig::listed).collect();
    let (test_pixels, test_labels) = digits.test_bytes()?;
    let most_adapters = MOST_ADAPTERS;
    tell(&Event::Hello { version, adapters: listed, missing, task, most_adapters, test_pixels, test_labels });
    Ok((list, digits))
}

struct Worker {
    list: Vec<Info>,
    requests: Receiver<(String, PageRequest)>,
    rig: PageRig,
    /// Data to learn from: the digits, and those that the page has loaded.
    tasks: Vec<LearningTask>,
    run: Option<PageRun>,
    state: EngineState,
}

impl Worker {
    async fn work(&mut self) {
        loop {
            let request = match self.state {
                EngineState::Running => self.requests.try_recv().ok(),
                _ => match self.requests.recv().await {
                    Ok(request) => Some(request),
                    Err(_) => return,
                },
            };
            match request {
                Some((name, request)) => {
                    let served = self.serve(request).await;
                    if let Some(run) = &mut self.run {
                        // In any case the engine may have lost an adapter and continued with another.
                        self.rig.update(&run.trainer);
                    }
                    if let Err(error) = served {
                        refuse(Some(name), &error);
                    }
                }
                None => {
                    self.step().await;
                }
            }
        }
    }

    fn enter(&mut self, state: EngineState) {
        self.state = state;
        let (step, epoch) = self.run.as_ref().map_or((0, 0), PageRun::progress);
        tell(&Event::State { state, step, epoch });
    }

    /// One training step. A failed step pauses training. Returns whether another may follow.
    async fn step(&mut self) -> bool {
        let Some(run) = &mut self.run else { return false };
        match run.step(&mut self.rig).await {
            Ok(StepResult::Stepped) => return true,
            Ok(StepResult::Finished) => self.enter(EngineState::Finished),
            Err(error) => {
                run.rest();
                self.enter(EngineState::Paused);
                refuse(None, &error);
            }
        }
        false
    }

    /// Pauses, after sending all pending messages. A line of text takes longer than people wait for a pause: it comes behind.
    async fn rest(&mut self) -> Result<()> {
        let run = self.run.as_mut().ok_or_else(no_run)?;
        run.rest();
        let state = if run.is_finished() { EngineState::Finished } else { EngineState::Paused };
        let shown = if run.writes() { Ok(()) } else { run.show().await };
        self.enter(state);
        match &mut self.run {
            Some(run) if run.writes() => run.show().await,
            _ => shown,
        }
    }

    async fn serve(&mut self, request: PageRequest) -> Result<()> {
        match request {
            PageRequest::Load { data, bytes } => {
                let task = LearningTask::read(data, &bytes)?;
                let (test_pixels, test_labels) = task.test_bytes()?;
                tell(&Event::Loaded { task: Learnable::of(&task)?, test_pixels, test_labels });
                self.tasks.retain(|other| other.data != data);
                self.tasks.push(task);
                Ok(())
            }
            PageRequest::Start { settings, paused } => self.start(settings, paused).await,
            PageRequest::Pause if self.state == EngineState::Running => self.rest().await,
            PageRequest::Pause => Ok(()),
            PageRequest::Resume => {
                let run = self.run.as_mut().ok_or_else(no_run)?;
                if run.is_finished() {
                    run.last_epoch = run.last_epoch.saturating_add(run.settings.epochs);
                }
                self.enter(EngineState::Running);
                Ok(())
            }
            PageRequest::Step => {
                let run = self.run.as_ref().ok_or_else(no_run)?;
                if run.is_finished() {
                    return Ok(self.enter(EngineState::Finished));
                }
                let (before, _) = run.progress();
                if let Some(run) = &mut self.run {
                    run.compare();
                }
                let mut is_open = self.step().await;
                // The end of an epoch is no step.
                if is_open && self.run.as_ref().is_some_and(|run| run.progress().0 == before) {
                    is_open = self.step().await;
                }
                if is_open { self.rest().await } else { Ok(()) }
            }
            PageRequest::Reset => {
                let settings = self.run.take().ok_or_else(no_run)?.settings;
                let kept = self.rig.keep();
                let missing = self.open(settings, &kept).await?;
                let rested = self.rest().await;
                missing.iter().for_each(|error| refuse(None, error));
                rested
            }
            PageRequest::Cancel => Ok(()),
            request @ (PageRequest::Simulate { .. } | PageRequest::Stages { .. }) => {
                tell(&simulation::answer(request)?);
                Ok(())
            }
            PageRequest::Measure { batch_size } => self.measure(batch_size).await,
            other => self.change(other).await,
        }
    }

    /// Handles a request that changes a run or reads from it.
    async fn change(&mut self, request: PageRequest) -> Result<()> {
        let run = self.run.as_mut().ok_or_else(no_run)?;
        match request {
            PageRequest::Remove { member } | PageRequest::Throttle { member, .. } if self.rig.has_left(member) => {}
            PageRequest::Add { index } => {
                check_adapters(self.rig.len() + 1)?;
                let info = self.list.get(index).ok_or_else(|| unknown(&self.list, index))?;
                run.tell_steps();
                run.trainer.asynchronous().join(info).await?;
            }
            PageRequest::Remove { member } => {
                run.tell_steps();
                run.trainer.leave(self.rig.position(member).ok_or_else(|| no_member(member))?)?;
            }
            PageRequest::Throttle { member, factor } => {
                run.compare();
                let position = self.rig.position(member).ok_or_else(|| no_member(member))?;
                run.trainer.set_throttle(position, factor);
            }
            PageRequest::Unplug { member } => {
                run.compare();
                // An adapter that left the rig was replaced in the step that lost it.
                if self.rig.position(member).is_some() && self.state != EngineState::Running {
                    // No step finds out; this does.
                    let shown = run.show().await;
                    self.enter(self.state);
                    shown?;
                }
            }
            PageRequest::Change(change) => {
                run.change(change).await?;
                self.enter(self.state);
            }
            PageRequest::Classify { id, pixels } => run.classify(id, &pixels).await?,
            PageRequest::Export => run.export().await?,
            _ => {}
        }
        Ok(())
    }

    async fn start(&mut self, settings: RunSettings, paused: bool) -> Result<()> {
        check_batch(settings.batch_size)?;
        self.task(settings.data)?;
        let wanted = settings.adapters.iter();
        let infos = wanted.map(|index| self.list.get(*index).cloned().ok_or_else(|| unknown(&self.list, *index)));
        let infos: Vec<Info> = infos.collect::<Result<_>>()?;
        check_adapters(infos.len())?;
        self.run = None;
        self.rig.begin(&infos);
        let factors = settings.throttles.iter().copied().chain(std::iter::repeat(1.0));
        let adapters: Vec<(Info, f64)> = infos.into_iter().zip(factors).collect();
        let missing = self.open(settings, &adapters).await?;
        self.enter(if paused { EngineState::Paused } else { EngineState::Running });
        missing.iter().for_each(|error| refuse(None, error));
        Ok(())
    }

    /// Opens the adapters of a run. If one can't be opened the run begins on CPU adapters only; returns the reason then.
    async fn open(&mut self, settings: RunSettings, adapters: &[(Info, f64)]) -> Result<Option<Error>> {
        let task = self.task(settings.data)?;
        self.enter(EngineState::Opening);
        let (opened, missing) = match PageRun::open(task.clone(), settings.clone(), adapters, &mut self.rig).await {
            Err(error) if is_of_adapter(&error) && adapters.iter().any(|(info, _)| info.kind != Kind::Cpu) => {
                let cpus = self.cpus_of(adapters);
                let infos: Vec<Info> = cpus.iter().map(|(info, _)| info.clone()).collect();
                self.rig.begin(&infos);
                (PageRun::open(task, settings, &cpus, &mut self.rig).await, Some(error))
            }
            opened => (opened, None),
        };
        match opened {
            Ok(run) => {
                self.run = Some(run);
                Ok(missing)
            }
            Err(error) => {
                self.enter(EngineState::Idle);
                Err(error)
            }
        }
    }

    fn task(&self, data: LearnedData) -> Result<LearningTask> {
        let found = self.tasks.iter().find(|task| task.data == data).cloned();
        found.ok_or_else(|| Error::data("the data", "need to be loaded before a run", "choose them again"))
    }

    /// The CPU adapters among these, or the one of the list.
    fn cpus_of(&self, adapters: &[(Info, f64)]) -> Vec<(Info, f64)> {
        let is_cpu = |info: &Info| info.kind == Kind::Cpu;
        let cpus: Vec<(Info, f64)> = adapters.iter().filter(|(info, _)| is_cpu(info)).cloned().collect();
        if !cpus.is_empty() {
            return cpus;
        }
        self.list.iter().filter(|info| is_cpu(info)).map(|info| (info.clone(), 1.0)).collect()
    }

    async fn measure(&mut self, batch_size: u32) -> Result<()> {
        check_batch(usize::try_from(batch_size).unwrap_or(usize::MAX))?;
        let before = self.state;
        let adapters = self.rig.active();
        self.run.as_ref().ok_or_else(no_run)?;
        self.enter(EngineState::Measuring);
        let run = self.run.as_mut().ok_or_else(no_run)?;
        run.rest();
        let measured = run.measure(adapters, batch_size, &|| IS_CANCELLED.get()).await;
        self.enter(before);
        match measured? {
            Some(measured) => tell(&measured),
            None => {
                return Err(Error::setting("the measurement", "was cancelled", "measure again when there is time"));
            }
        }
        Ok(())
    }
}

fn refuse(request: Option<String>, error: &Error) {
    tell(&Event::Error { request, message: error.to_string() });
}

/// Whether an error is that of an adapter, so that other adapters may do.
fn is_of_adapter(error: &Error) -> bool {
    use ErrorKind::{Adapter, AdapterLost, OutOfMemory, Unsupported};
    matches!(error.kind(), Adapter | AdapterLost | OutOfMemory | Unsupported)
}

fn no_run() -> Error {
    Error::setting("the run", "needs to be started first", "start training")
}

fn no_member(id: u32) -> Error {
    Error::adapter(format!("member {id}"), "is not in the rig", "choose one that is")
}

fn unknown(list: &[Info], index: usize) -> Error {
    let problem = format!("names no adapter of this browser, which has {}", list.len());
    Error::adapter(format!("index {index}"), problem, "choose one of the list")
}

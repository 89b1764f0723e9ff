//! A device with its queue: opening, error scopes, and waits that always end.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_channel::Receiver;

use super::super::heartbeat::Heartbeat;
use super::super::memory::padded;
use super::super::{Fault, Info, Kind, list};
use super::checks::Checks;
use super::enumerate;
use super::matrices;
use super::patience::Patience;
use super::profile::Profile;
use crate::kernels::Tile;
use crate::runtime::Runtime;

static DEVICES: AtomicUsize = AtomicUsize::new(0);
static OBJECTS: AtomicUsize = AtomicUsize::new(0);

/// Devices opened by this process so far.
pub fn devices_opened() -> usize {
    DEVICES.load(Ordering::Relaxed)
}

/// Buffers, bind groups, shader modules and pipelines created by this process so far.
///
/// A training step creates none: this number stays constant between steps.
pub fn objects_created() -> usize {
    OBJECTS.load(Ordering::Relaxed)
}

static SUBMISSIONS: AtomicUsize = AtomicUsize::new(0);
static ROUND_TRIPS: AtomicUsize = AtomicUsize::new(0);

/// Submissions to devices by this process so far.
pub fn submissions_made() -> usize {
    SUBMISSIONS.load(Ordering::Relaxed)
}

/// Times that this process waited for a device so far.
pub fn round_trips_made() -> usize {
    ROUND_TRIPS.load(Ordering::Relaxed)
}

pub(super) fn count_object() {
    OBJECTS.fetch_add(1, Ordering::Relaxed);
}

/// Longest time that a device may need for one submission, which is kept near a tenth of a second.
const SILENCE: Duration = Duration::from_secs(30);
/// Longest time for a submission to a driver that computes on the CPU, which other programs may use as well.
const SILENCE_SOFTWARE: Duration = Duration::from_secs(120);

/// Longest time in which a wait for the device sees no request.
#[cfg(not(target_arch = "wasm32"))]
const SLICE: Duration = Duration::from_millis(1);

/// Bindings of all bind groups together. wgpu sets memory aside for each on DX12, a million by default.
const MAX_BINDINGS: u32 = 1 << 17;

/// Errors that a device reported outside of a request.
#[derive(Default)]
struct DeviceReports {
    lost: Mutex<Option<String>>,
    error: Mutex<Option<Fault>>,
}

fn put<T>(place: &Mutex<Option<T>>, value: T) {
    place.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(value);
}

/// Number of a submission, counted by [`Gpu::submit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Submission(u64);

/// Submissions without a wait yet.
#[derive(Default)]
struct Submitted {
    count: u64,
    open: VecDeque<(Submission, wgpu::SubmissionIndex)>,
}

/// Turns after which Mesa's llvmpipe ends all loops of a shader, whatever they still had to do: `LP_MAX_TGSI_LOOP_ITERATIONS`, less those
/// behind a sum.
const MOST_TURNS_OF_LLVMPIPE: u64 = 65_500;

/// Whether the adapter has 16-bit floats, as [`Tile::Halves64`] needs them. No tile is chosen in a browser, so none is asked there.
fn has_halves(adapter: &wgpu::Adapter) -> bool {
    cfg!(not(target_arch = "wasm32")) && adapter.features().contains(wgpu::Features::SHADER_F16)
}

/// An open device.
pub(super) struct Gpu {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) limits: wgpu::Limits,
    pub(super) tile: Tile,
    has_halves: bool,
    /// The tiles whose cooperative matrices it multiplies.
    matrices: &'static [Tile],
    /// PCI vendor id, 0 if unknown.
    pub(super) vendor: u32,
    /// Turns of loops that its driver grants a shader.
    pub(super) most_turns: u64,
    pub(super) patience: Patience,
    pub(super) checks: Checks,
    /// Number of a submission to leave out.
    left_out: Option<u64>,
    pub(super) profile: Option<Profile>,
    silence: Duration,
    runtime: Arc<dyn Runtime>,
    /// Beats with each submission that is done.
    pub(super) heartbeat: Option<Heartbeat>,
    submitted: Mutex<Submitted>,
    /// Bytes of all buffers that were created so far.
    allocated: AtomicU64,
    reports: Arc<DeviceReports>,
}

impl Gpu {
    /// Opens a device of a listed adapter, with all of the adapter's limits and no feature, except 16-bit floats and cooperative
    /// matrices, which tiles use, and pipelines that can be kept. It leaves out a submission of that number, and writes
    /// the times of its kernels to a folder.
    pub(super) async fn open(
        info: &Info,
        checks: Checks,
        (patience, left_out, profile): (Patience, Option<u64>, Option<&Path>),
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self, Fault> {
        let adapter =
            enumerate::find(info).await.ok_or_else(|| Fault::Lost("the adapter is not there any more".into()))?;
        if list::is_fxc(info) {
            log::warn!("{}", fxc(info));
        }
        let mut limits = adapter.limits();
        limits.max_non_sampler_bindings = limits.max_non_sampler_bindings.min(MAX_BINDINGS);
        let has_halves = has_halves(&adapter);
        let mut features = wgpu::Features::empty();
        features.set(wgpu::Features::SHADER_F16, has_halves);
        features |= adapter.features() & wgpu::Features::PIPELINE_CACHE;
        if profile.is_some() {
            features |= adapter.features() & Profile::FEATURE;
        }
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("manyhands"),
            required_features: features,
            required_limits: limits.clone(),
            // A plan has few large buffers: large blocks to cut small ones from would lie idle.
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let opened = matrices::request_device(&adapter, &descriptor).await;
        let ((device, queue), matrices) =
            opened.map_err(|error| Fault::Lost(format!("the adapter gives no device: {error}")))?;
        DEVICES.fetch_add(1, Ordering::Relaxed);
        let profile = profile.and_then(|folder| Profile::new(info, &device, &queue, folder));
        let reports = collect_reports(&device);
        let (tile, silence) = match info.kind {
            Kind::Software => (Tile::Registers, SILENCE_SOFTWARE),
            _ => (Tile::OF_CARDS, SILENCE),
        };
        Ok(Self {
            device,
            queue,
            limits,
            tile,
            has_halves,
            matrices,
            vendor: info.vendor,
            most_turns: if info.name.contains("llvmpipe") { MOST_TURNS_OF_LLVMPIPE } else { u64::MAX },
            patience,
            checks,
            left_out,
            profile,
            silence,
            runtime,
            heartbeat: None,
            submitted: Mutex::default(),
            allocated: AtomicU64::new(0),
            reports,
        })
    }

    /// Whether the device can compile a tile's text.
    pub(super) fn is_able(&self, tile: Tile) -> bool {
        match tile {
            Tile::Halves64 => self.has_halves,
            _ if tile.is_of_matrices() => self.matrices.contains(&tile),
            _ => true,
        }
    }

    /// Time now, by the runtime's clock.
    pub(super) fn now_ms(&self) -> f64 {
        self.runtime.now_ms()
    }

    /// Whether what it compiles can be kept.
    pub(super) fn keeps_compiled(&self) -> bool {
        self.device.features().contains(wgpu::Features::PIPELINE_CACHE)
    }

    /// Fails if the device is lost, or reported an error that no scope caught.
    pub(super) fn check(&self) -> Result<(), Fault> {
        if let Some(lost) = self.reports.lost.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            return Err(Fault::Lost(lost));
        }
        match self.reports.error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    /// Runs callbacks that are due, without waiting.
    pub(super) fn poll(&self) -> Result<(), Fault> {
        let polled = self.device.poll(wgpu::PollType::Poll);
        self.check()?;
        polled.map(|_| ()).map_err(|error| Fault::Lost(error.to_string()))
    }

    /// Submits what an encoder holds.
    pub(super) fn submit(&self, encoder: wgpu::CommandEncoder) -> Submission {
        SUBMISSIONS.fetch_add(1, Ordering::Relaxed);
        let mut submitted = self.submitted.lock().unwrap_or_else(PoisonError::into_inner);
        submitted.count += 1;
        let commands = (self.left_out != Some(submitted.count)).then(|| encoder.finish());
        let index = self.queue.submit(commands);
        let submission = Submission(submitted.count);
        submitted.open.push_back((submission, index));
        submission
    }

    /// Waits until a submission is done and its callbacks have run.
    ///
    /// Those before it are waited for one by one: a device that is silent over a single one is lost, while a
    /// long queue may take its time.
    pub(super) async fn wait(&self, submission: Submission) -> Result<(), Fault> {
        loop {
            let first = self.submitted.lock().unwrap_or_else(PoisonError::into_inner).open.front().cloned();
            match first {
                Some((first, index)) if first <= submission => self.wait_for(index).await?,
                _ => return self.check(),
            }
            self.submitted.lock().unwrap_or_else(PoisonError::into_inner).open.pop_front();
            if let Some(heartbeat) = &self.heartbeat {
                heartbeat.beat();
            }
        }
    }

    /// Waits in short slices, between which whatever waits beside has its turn.
    #[cfg(not(target_arch = "wasm32"))]
    async fn wait_for(&self, index: wgpu::SubmissionIndex) -> Result<(), Fault> {
        ROUND_TRIPS.fetch_add(1, Ordering::Relaxed);
        let until_ms = self.runtime.now_ms() + self.silence.as_secs_f64() * 1e3;
        loop {
            let wait = wgpu::PollType::Wait { submission_index: Some(index.clone()), timeout: Some(SLICE) };
            let polled = self.device.poll(wait);
            self.check()?;
            match polled {
                Ok(_) => return Ok(()),
                Err(wgpu::PollError::Timeout) if self.runtime.now_ms() < until_ms => {
                    futures_lite::future::yield_now().await;
                }
                Err(wgpu::PollError::Timeout) => return Err(self.silent()),
                Err(error @ wgpu::PollError::WrongSubmissionIndex(..)) => return Err(Fault::Lost(error.to_string())),
            }
        }
    }

    /// Waits for the event loop, which runs the callbacks in the order of the submissions.
    #[cfg(target_arch = "wasm32")]
    async fn wait_for(&self, _index: wgpu::SubmissionIndex) -> Result<(), Fault> {
        let (sender, done) = async_channel::bounded(1);
        self.queue.on_submitted_work_done(move || sender.try_send(true).unwrap_or_default());
        self.called(&done).await.map(|_| ())
    }

    /// Result of a mapping's callback: whether the buffer is mapped.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) async fn mapped(&self, submission: Submission, done: &Receiver<bool>) -> Result<bool, Fault> {
        if done.is_empty() {
            self.wait(submission).await?;
        }
        done.try_recv().map_err(|_| Fault::Lost("a submission ended without its mapping".into()))
    }

    /// Result of a mapping's callback: whether the buffer is mapped. The callback comes when the submission is
    /// done, and asking the queue, too, would be another round trip to the browser's GPU process.
    #[cfg(target_arch = "wasm32")]
    pub(super) async fn mapped(&self, submission: Submission, done: &Receiver<bool>) -> Result<bool, Fault> {
        let is_mapped = self.called(done).await?;
        let mut submitted = self.submitted.lock().unwrap_or_else(PoisonError::into_inner);
        submitted.open.retain(|(open, _)| *open > submission);
        Ok(is_mapped)
    }

    /// Waits for a callback.
    #[cfg(target_arch = "wasm32")]
    async fn called(&self, done: &Receiver<bool>) -> Result<bool, Fault> {
        ROUND_TRIPS.fetch_add(1, Ordering::Relaxed);
        let silence = self.runtime.sleep(self.silence.as_secs_f64() * 1e3);
        let answer = futures_lite::future::or(async { done.recv().await.ok() }, async {
            silence.await;
            None
        });
        let answer = answer.await;
        self.check()?;
        answer.ok_or_else(|| self.silent())
    }

    fn silent(&self) -> Fault {
        Fault::Lost(format!("no answer in {} s", self.silence.as_secs()))
    }

    /// Makes objects, and collects their errors.
    pub(super) async fn scoped<T>(&self, make: impl FnOnce() -> T) -> Result<T, Fault> {
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let internal = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let validation = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let made = make();
        // All are popped before the first wait: in a browser each is a round trip to another process.
        let (validation, internal, memory) = (validation.pop(), internal.pop(), memory.pop());
        let errors = [validation.await, internal.await, memory.await];
        self.check()?;
        errors.into_iter().flatten().next().map_or(Ok(made), |error| Err(fault(&error)))
    }

    /// Creates a buffer, with a size that suits bindings: a multiple of 256 bytes, and at least that.
    pub(super) fn buffer(&self, label: &str, bytes: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
        count_object();
        let size = padded(bytes);
        self.allocated.fetch_add(size, Ordering::Relaxed);
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size,
            usage,
            mapped_at_creation: false,
        })
    }

    /// Bytes of all buffers that were created so far.
    pub(super) fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    /// An encoder.
    pub(super) fn encoder(&self) -> wgpu::CommandEncoder {
        self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    /// Destroys the device; the loss is then detected like that of a driver reset.
    pub(super) fn destroy(&self) -> Fault {
        self.device.destroy();
        // The callback comes from a poll that finds the queue empty, which the wait makes sure of.
        drop(self.device.poll(wgpu::PollType::Wait { submission_index: None, timeout: Some(self.silence) }));
        let polled = self.poll();
        polled.err().unwrap_or_else(|| Fault::Lost("the device was destroyed".into()))
    }

    /// Releases the device. A browser would keep it until garbage collection; elsewhere dropping it is enough.
    #[allow(clippy::unused_self, reason = "there is something to do in a browser")]
    pub(super) fn close(&self) {
        #[cfg(target_arch = "wasm32")]
        self.device.destroy();
    }
}

/// Warning that FXC is slow, with the way to get DXC.
fn fxc(info: &Info) -> String {
    format!(
        "adapter {} `{}` runs through DX12 with FXC, the old shader compiler: shaders take about three times as long to build\n  \
         help: {}",
        info.index,
        info.name,
        list::Dxc::of_program().advice()
    )
}

/// The fault that an error of wgpu means.
fn fault(error: &wgpu::Error) -> Fault {
    match error {
        wgpu::Error::OutOfMemory { .. } => Fault::OutOfMemory("the device has no memory left".into()),
        error => Fault::Unsupported(error.to_string()),
    }
}

fn collect_reports(device: &wgpu::Device) -> Arc<DeviceReports> {
    let reports = Arc::new(DeviceReports::default());
    let listener = reports.clone();
    device.set_device_lost_callback(move |reason, text| {
        put(&listener.lost, format!("{reason:?}: {text}"));
    });
    let listener = reports.clone();
    // Without a handler wgpu panics.
    device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| put(&listener.error, fault(&error))));
    reports
}

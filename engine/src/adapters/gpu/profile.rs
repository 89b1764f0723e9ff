//! Times of each kernel of a device's runs, by its own clock, as a table in a file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use litemap::LiteMap;

use super::super::Info;
use crate::kernels::Tile;
use crate::plan::{Dispatch, Pass, Scalars, product_flops};
use crate::size::F32_BYTES;

/// Name of the environment variable that asks for a profile: a folder, which gets `kernels-0.csv` of adapter 0.
///
/// Each dispatch is then a pass of its own, so that steps take somewhat longer. An adapter whose driver has no timestamps writes none.
pub const PROFILE_VARIABLE: &str = "MANYHANDS_PROFILE";

/// The value of [`PROFILE_VARIABLE`]; none in a browser.
pub(super) fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os(PROFILE_VARIABLE).filter(|folder| !folder.is_empty())?;
    cfg!(not(target_arch = "wasm32")).then(|| folder.into())
}

/// Dispatches that one submission can time; wgpu allows twice as many marks. Later ones of it are not timed.
const MOST: u32 = 2048;
/// Bytes of a mark of the device's clock.
const MARK_BYTES: u64 = 8;

/// Dispatches that are measured together: those of a kernel of a layer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    pass: String,
    node: String,
    kernel: String,
    tile: String,
    workgroups: [u32; 3],
    /// Multiplications and additions, where they are known.
    flop: u64,
    /// Bytes of what it reads and writes, each once.
    bytes: u64,
}

/// Times of a row.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    count: u32,
    ms: f64,
    least_ms: f64,
}

/// Marks of a submission that is not sent yet.
struct Marks {
    set: wgpu::QuerySet,
    rows: Vec<Row>,
}

/// Marks on their way back.
struct Sent {
    rows: Vec<Row>,
    marks: wgpu::Buffer,
}

#[derive(Default)]
struct State {
    open: Option<Marks>,
    resolved: Vec<Sent>,
    times: LiteMap<Row, Times>,
}

/// A profile of a device, which it writes when it is dropped.
pub(super) struct Profile {
    device: wgpu::Device,
    /// Nanoseconds of a tick.
    tick_ns: f64,
    file: PathBuf,
    state: Mutex<State>,
    arrived: (Sender<Sent>, Mutex<Receiver<Sent>>),
}

impl Profile {
    /// The feature that it needs.
    pub(super) const FEATURE: wgpu::Features = wgpu::Features::TIMESTAMP_QUERY;

    /// For a device that has the feature.
    pub(super) fn new(info: &Info, device: &wgpu::Device, queue: &wgpu::Queue, folder: &Path) -> Option<Self> {
        if !device.features().contains(Self::FEATURE) {
            log::warn!("adapter {} `{}` has no timestamps: it writes no profile", info.index, info.name);
            return None;
        }
        let (sender, receiver) = channel();
        Some(Self {
            device: device.clone(),
            tick_ns: f64::from(queue.get_timestamp_period()),
            file: folder.join(format!("kernels-{}.csv", info.index)),
            state: Mutex::default(),
            arrived: (sender, Mutex::new(receiver)),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encodes one dispatch between two marks.
    pub(super) fn time(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        (pass, dispatch, scalars): (Pass, &Dispatch, &Scalars),
        (tile, workgroups): (Tile, [u32; 3]),
        launch: impl FnOnce(&mut wgpu::ComputePass<'_>),
    ) {
        let mut state = self.state();
        let marks = state.open.get_or_insert_with(|| Marks { set: self.set(), rows: Vec::new() });
        let at = u32::try_from(marks.rows.len()).unwrap_or(MOST);
        let timestamp_writes = (at < MOST).then(|| wgpu::ComputePassTimestampWrites {
            query_set: &marks.set,
            beginning_of_pass_write_index: Some(2 * at),
            end_of_pass_write_index: Some(2 * at + 1),
        });
        let is_timed = timestamp_writes.is_some();
        launch(&mut encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes }));
        if is_timed {
            marks.rows.push(Row::new(pass, dispatch, scalars, tile, workgroups));
        }
    }

    fn set(&self) -> wgpu::QuerySet {
        self.device.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("profile"),
            ty: wgpu::QueryType::Timestamp,
            count: 2 * MOST,
        })
    }

    /// Encodes the copy of all marks behind the dispatches of a submission.
    pub(super) fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        let mut state = self.state();
        let Some(Marks { set, rows }) = state.open.take() else { return };
        let size = 2 * MARK_BYTES * rows.len() as u64;
        let buffer = |usage| {
            let descriptor = wgpu::BufferDescriptor { label: Some("profile"), size, usage, mapped_at_creation: false };
            self.device.create_buffer(&descriptor)
        };
        let resolved = buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC);
        let marks = buffer(wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ);
        encoder.resolve_query_set(&set, 0..2 * u32::try_from(rows.len()).unwrap_or(MOST), &resolved, 0);
        encoder.copy_buffer_to_buffer(&resolved, 0, &marks, 0, size);
        state.resolved.push(Sent { rows, marks });
    }

    /// Asks for the marks of what was just submitted, and adds those that have come.
    pub(super) fn submitted(&self) {
        let mut state = self.state();
        for sent in state.resolved.drain(..) {
            let (sender, marks) = (self.arrived.0.clone(), sent.marks.clone());
            marks.slice(..).map_async(wgpu::MapMode::Read, move |mapped| {
                if mapped.is_ok() {
                    sender.send(sent).unwrap_or_default();
                }
            });
        }
        self.add_arrived(&mut state);
    }

    fn add_arrived(&self, state: &mut State) {
        let arrived = self.arrived.1.lock().unwrap_or_else(PoisonError::into_inner);
        for Sent { rows, marks } in arrived.try_iter() {
            let Ok(mapped) = marks.slice(..).get_mapped_range() else { continue };
            let ticks = bytemuck::pod_collect_to_vec::<u8, u64>(&mapped);
            for (row, mark) in rows.into_iter().zip(ticks.chunks_exact(2)) {
                #[allow(clippy::cast_precision_loss, reason = "a dispatch takes fewer ticks than 2 to the power of 52")]
                let ms = mark[1].saturating_sub(mark[0]) as f64 * self.tick_ns / 1e6;
                state.times.entry(row).or_default().add(ms);
            }
        }
    }

    fn table(&self) -> String {
        let state = self.state();
        let mut rows: Vec<(&Row, &Times)> = state.times.iter().collect();
        rows.sort_by(|a, b| b.1.ms.total_cmp(&a.1.ms));
        let mut table = String::from("pass,layer,kernel,tile,workgroups,times,ms,least_ms,gflop_per_s,gb_per_s\n");
        for (row, times) in rows {
            #[allow(clippy::cast_precision_loss, reason = "a rate has three digits")]
            let rate = |amount: u64| {
                if amount == 0 {
                    String::new()
                } else {
                    format!("{:.1}", amount as f64 * f64::from(times.count) / times.ms.max(1e-9) / 1e6)
                }
            };
            let [x, y, z] = row.workgroups;
            let (flop, bytes) = (rate(row.flop), rate(row.bytes));
            let Row { pass, node, kernel, tile, .. } = row;
            let Times { count, ms, least_ms } = times;
            // Writing to a text never fails.
            writeln!(
                table,
                "{pass},\"{}\",{kernel},{tile},{x} x {y} x {z},{count},{ms:.6},{least_ms:.6},{flop},{bytes}",
                node.replace('"', "\"\"")
            )
            .unwrap_or_default();
        }
        table
    }
}

impl Times {
    fn add(&mut self, ms: f64) {
        self.least_ms = if self.count == 0 { ms } else { self.least_ms.min(ms) };
        self.count += 1;
        self.ms += ms;
    }
}

impl Row {
    fn new(pass: Pass, dispatch: &Dispatch, scalars: &Scalars, tile: Tile, workgroups: [u32; 3]) -> Self {
        let params: Vec<u32> = dispatch.params.iter().map(|word| word.bits(scalars)).collect();
        let flops = product_flops(dispatch.kernel, &params, &dispatch.constants).unwrap_or_default();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of operations")]
        let flop = flops as u64;
        let views = dispatch.inputs.iter().chain(&dispatch.outputs);
        Self {
            pass: format!("{pass:?}").to_lowercase(),
            node: dispatch.node.clone(),
            kernel: dispatch.kernel.name(),
            tile: if dispatch.kernel.is_tiled() { format!("{tile:?}").to_lowercase() } else { String::new() },
            workgroups,
            flop,
            bytes: views.map(|view| view.len.at(scalars.rows) * F32_BYTES).sum(),
        }
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        // The marks of a lost device do not come.
        drop(self.device.poll(wgpu::PollType::Wait { submission_index: None, timeout: None }));
        let mut state = self.state();
        self.add_arrived(&mut state);
        let is_empty = state.times.is_empty();
        drop(state);
        if is_empty {
            return;
        }
        let written = self.file.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(|error| error.to_string());
        let written =
            written.and_then(|()| std::fs::write(&self.file, self.table()).map_err(|error| error.to_string()));
        if let Err(why) = written {
            log::warn!("no profile in `{}`: {why}", crate::shown(&self.file));
        }
    }
}

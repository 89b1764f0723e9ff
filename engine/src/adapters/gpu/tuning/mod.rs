//! The tile of each matrix product by measurement: which one is fastest differs by GPU, product and driver.
//!
//! Nothing is run for its time alone. When steps have settled, a training run takes another tile than usual for a few
//! of its products, each in a submission of its own that is waited for. All tiles compute the same product, so the
//! step is a step like any other; the last bits of sums may differ. What is decided stays, in memory and in a
//! [`Table`] on disk, and a product that is in the table is never tried.
//!
//! Products are distinguished by [`class`]: kernel and sizes, rounded up to powers of two. What has no decision runs with
//! the tile that suits the kind of adapter.

mod contest;

use litemap::LiteMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::{Fault, Info, Kind, Run};
use super::bindings::KernelPipeline;
use super::cache::{self, Identity, Table};
use super::device::Gpu;
use super::pipelines::{Pipelines, wanted};
use crate::kernels::Tile;
use crate::kernels::product::is_of_halves;
use crate::plan::{Command, Dispatch, Grid, Pass, Plan, Word};
use contest::{Contest, Heat};

/// Environment variable: `off`, `on`, or a folder for the tables; see [`Tuning`].
pub const TUNING_VARIABLE: &str = "MANYHANDS_TUNING";

/// Adapters that choose the tiles of matrix products by measurement, and the folder of their choices.
///
/// In a browser none do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tuning {
    /// No adapter: each uses a fixed tile for its kind. In [`TUNING_VARIABLE`]: `off`.
    Off,
    /// GPUs; tables are in the user's cache folder. Drivers that compute on the CPU take the tile that was measured for
    /// them: another program's use of the cores would decide more than the tile.
    #[default]
    Gpus,
    /// Drivers that compute on the CPU, too. In [`TUNING_VARIABLE`]: `on`.
    On,
    /// All, with tables in this folder. In [`TUNING_VARIABLE`]: its path.
    In(PathBuf),
}

impl Tuning {
    /// The value of [`TUNING_VARIABLE`].
    pub fn from_environment() -> Self {
        let value = std::env::var_os(TUNING_VARIABLE).unwrap_or_default();
        match value.to_str() {
            Some("") => Self::Gpus,
            Some("off") => Self::Off,
            Some("on") => Self::On,
            _ => Self::In(value.into()),
        }
    }

    /// The folder of tables.
    fn folder(&self) -> Option<PathBuf> {
        match self {
            Self::In(folder) => Some(folder.clone()),
            Self::Off | Self::Gpus | Self::On => cache::user_folder("tiles"),
        }
    }

    fn is_for(&self, kind: Kind) -> bool {
        match self {
            Self::Off => false,
            Self::Gpus => kind != Kind::Software,
            Self::On | Self::In(_) => true,
        }
    }
}

static TIMINGS: AtomicUsize = AtomicUsize::new(0);

/// Products that ran with a tile on trial in this process so far.
///
/// Tuning of a run's products has ended where this number stays constant.
pub fn tiles_tried() -> usize {
    TIMINGS.load(Ordering::Relaxed)
}

/// Whether this system can tune. A page does not load the code.
const CAN_TUNE: bool = !cfg!(target_arch = "wasm32");
/// Runs with about as many rows, one after the other, before the next may try tiles: calibration is over by then, and
/// what is compiled late is compiled.
const STEADY: u32 = 3;
/// Tiles that one run tries at most.
const AT_ONCE: usize = 4;
/// Milliseconds of a run for what is compiled for it. One pipeline may take longer, but then it is the only one.
const COMPILING_MS: f64 = 50.0;

/// A tile for a dispatch, and the pipeline with it.
#[derive(Clone)]
pub(in crate::adapters::gpu) struct TileChoice {
    pub(in crate::adapters::gpu) tile: Tile,
    pub(in crate::adapters::gpu) pipeline: wgpu::ComputePipeline,
}

/// A product that runs with another tile than usual, and what that took.
struct TileTrial {
    class: String,
    choice: TileChoice,
    heat: Heat,
    made_ms: f64,
    ms: Option<f64>,
}

/// The trials of a run, by command.
#[derive(Default)]
pub(in crate::adapters::gpu) struct Trials(LiteMap<usize, TileTrial>);

impl Trials {
    pub(in crate::adapters::gpu) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tile that a command shall try.
    pub(in crate::adapters::gpu) fn choice(&self, command: usize) -> Option<&TileChoice> {
        if !CAN_TUNE {
            return None;
        }
        self.0.get(&command).map(|trial| &trial.choice)
    }

    /// Records how long a command took.
    pub(in crate::adapters::gpu) fn note(&mut self, command: usize, ms: f64) {
        if let Some(trial) = self.0.get_mut(&command) {
            trial.ms = Some(ms);
            TIMINGS.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// An adapter's tiles, chosen and on trial.
pub(in crate::adapters::gpu) struct Tuner {
    /// `None` where nothing is to be found out.
    table: Option<Table<Tile>>,
    contests: LiteMap<String, Contest>,
    /// Size of the last training runs, and how many of them there were in a row.
    steady: (u32, u32),
    /// Sizes of runs for which all is decided.
    settled: LiteMap<u32, ()>,
    /// Time of the last new tile: compilation and first use.
    cold_ms: f64,
    /// Whether a choice is not yet saved.
    is_changed: bool,
}

impl Tuner {
    /// With what was found out before, if this adapter is to be tuned.
    pub(in crate::adapters::gpu) fn open(info: &Info, gpu: &Gpu, tuning: &Tuning) -> Self {
        let is_on = CAN_TUNE && tuning.is_for(info.kind);
        let table = is_on.then(|| Table::open(Identity::new(info, gpu.checks), tuning.folder()));
        Self {
            table,
            contests: LiteMap::new(),
            steady: (0, 0),
            settled: LiteMap::new(),
            cold_ms: f64::INFINITY,
            is_changed: false,
        }
    }

    /// Forgets the plan before, but not what was learned of its products.
    pub(in crate::adapters::gpu) fn forget_plan(&mut self) {
        self.steady = (0, 0);
        self.settled.clear();
    }

    /// The tile that was found best for a dispatch in runs of a size.
    pub(in crate::adapters::gpu) fn decided(&self, gpu: &Gpu, dispatch: &Dispatch, size: u32) -> Option<Tile> {
        let decided = self.table.as_ref()?.get(&class(dispatch, size)?).copied();
        decided.filter(|tile| is_able(gpu, *tile, dispatch))
    }

    /// Whether tiles are chosen by measurement.
    pub(in crate::adapters::gpu) fn is_on(&self) -> bool {
        CAN_TUNE && self.table.is_some()
    }

    /// Trials of a run, with missing pipelines made.
    pub(in crate::adapters::gpu) async fn plan(
        &mut self,
        gpu: &Gpu,
        pipelines: &mut Pipelines,
        (plan, capacity): (&Plan, u32),
        run: &Run,
        now_ms: impl Fn() -> f64,
    ) -> Result<Trials, Fault> {
        let mut trials = Trials::default();
        let size = size(run.scalars.rows);
        if !self.is_on() || !self.may_try(run, size) {
            return Ok(trials);
        }
        let (mut classes, mut n_cold) = (LiteMap::<_, ()>::new(), 0);
        for (idx, command) in plan.commands(run.pass).iter().enumerate() {
            let Command::Dispatch(dispatch) = command else { continue };
            let Some(class) =
                self.undecided(dispatch, size).filter(|class| classes.insert(class.clone(), ()).is_none())
            else {
                continue;
            };
            let Some((tile, heat)) = self.next(gpu, dispatch, &class) else { continue };
            if trials.0.len() >= AT_ONCE || (heat == Heat::Cold && !self.may_warm_up(n_cold)) {
                continue;
            }
            n_cold += u32::from(heat == Heat::Cold);
            let begin_ms = now_ms();
            if let Some(choice) = self.make(gpu, pipelines, dispatch, &class, (tile, capacity)).await? {
                let made_ms = now_ms() - begin_ms;
                trials.0.insert(idx, TileTrial { class, choice, heat, made_ms, ms: None });
            }
        }
        if classes.is_empty() {
            self.settled.insert(size, ());
        }
        Ok(trials)
    }

    /// Records the times of a run; returns whether they decided a choice.
    pub(in crate::adapters::gpu) fn learn(&mut self, trials: Trials, rows: u32) -> bool {
        if !self.is_on() {
            return false;
        }
        for (_, trial) in trials.0 {
            let (Some(contest), Some(ms)) = (self.contests.get_mut(&trial.class), trial.ms) else { continue };
            contest.learn(trial.choice.tile, ms * f64::from(size(rows)) / f64::from(rows.max(1)));
            if trial.heat == Heat::Cold {
                let TileChoice { tile, .. } = trial.choice;
                log::debug!("{}: {tile:?} made in {:.1} ms, first used in {ms:.1} ms", trial.class, trial.made_ms);
                self.cold_ms = trial.made_ms + ms;
            }
            self.decide(&trial.class);
        }
        let is_changed = std::mem::take(&mut self.is_changed);
        if let (true, Some(table)) = (is_changed, &mut self.table) {
            table.save();
        }
        is_changed
    }

    /// Training alone is tried, when runs of one size follow each other.
    fn may_try(&mut self, run: &Run, size: u32) -> bool {
        if run.pass != Pass::Train || run.scalars.rows == 0 {
            return false;
        }
        let (known, times) = self.steady;
        self.steady = if known == size { (size, times.saturating_add(1)) } else { (size, 1) };
        self.steady.1 > STEADY && !self.settled.contains_key(&size)
    }

    fn undecided(&self, dispatch: &Dispatch, size: u32) -> Option<String> {
        let table = self.table.as_ref()?;
        class(dispatch, size).filter(|class| table.get(class).is_none())
    }

    /// The next tile to try for a product.
    fn next(&mut self, gpu: &Gpu, dispatch: &Dispatch, class: &str) -> Option<(Tile, Heat)> {
        let new = || Contest::new(gpu.tile.chosen_for(dispatch.grid), |tile| is_able(gpu, tile, dispatch));
        self.contests.entry(class.to_owned()).or_insert_with(new).next()
    }

    /// Whether a run that warms up this many tiles may warm up another.
    fn may_warm_up(&self, n_cold: u32) -> bool {
        n_cold == 0 || f64::from(n_cold + 1) * self.cold_ms <= COMPILING_MS
    }

    /// The pipeline for a tile. A tile that the device can't build is out of the contest.
    async fn make(
        &mut self,
        gpu: &Gpu,
        pipelines: &mut Pipelines,
        dispatch: &Dispatch,
        class: &str,
        (tile, capacity): (Tile, u32),
    ) -> Result<Option<TileChoice>, Fault> {
        match pipelines.right(gpu, wanted(gpu, dispatch, tile, capacity)).await {
            Ok(KernelPipeline { pipeline, .. }) => Ok(Some(TileChoice { tile, pipeline })),
            Err(Fault::Unsupported(text)) => {
                log::debug!("{tile:?} is left out: {text}");
                if let Some(contest) = self.contests.get_mut(class) {
                    contest.drop_out(tile);
                }
                self.decide(class);
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Ends a contest that has a winner.
    fn decide(&mut self, class: &str) {
        let winner = self.contests.get(class).and_then(Contest::winner);
        let (Some(winner), Some(table)) = (winner, &mut self.table) else { return };
        if let Some(contest) = self.contests.remove(class) {
            log::debug!("{class}: {winner:?} of {contest}");
        }
        table.insert(class, winner);
        self.is_changed = true;
    }
}

/// Whether a device can compute a dispatch with a tile, and its compiler keeps the tile's sums in registers.
pub(in crate::adapters::gpu) fn is_able(gpu: &Gpu, tile: Tile, dispatch: &Dispatch) -> bool {
    gpu.is_able(tile) && tile.fits(gpu.vendor) && tile.is_able(dispatch.grid, &dispatch.constants)
}

/// Runs of up to so many rows have the same tiles: a power of two.
pub(in crate::adapters::gpu) fn size(rows: u32) -> u32 {
    rows.checked_next_power_of_two().unwrap_or(u32::MAX)
}

/// The sizes of runs of up to `capacity` rows.
pub(in crate::adapters::gpu) fn sizes(capacity: u32) -> impl Iterator<Item = u32> {
    (0..=size(capacity).ilog2()).map(|power| 1 << power)
}

/// A class of products with one tile: kernel, sizes and form of a product, in runs of a size.
///
/// Of the kernel's constants only the one that rounds factors counts: the others concern what happens to a sum that is complete.
fn class(dispatch: &Dispatch, size: u32) -> Option<String> {
    let Grid::Tiles { m, n, k, depth } = dispatch.grid else { return None };
    let [m, n, k] = [m, n, k].map(|word| length(word, size));
    let is_tiled = dispatch.kernel.is_tiled();
    let halves = if is_of_halves(&dispatch.constants) { " halves" } else { "" };
    is_tiled.then(|| format!("{:?} {m}x{n}x{k} depth {depth}{halves}", dispatch.kernel))
}

fn length(word: Word, size: u32) -> u32 {
    let exact = match word {
        Word::U32(value) => value,
        Word::Rows(factor) | Word::BatchRows(factor) => size.saturating_mul(factor),
        _ => 1,
    };
    exact.checked_next_power_of_two().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::dense;
    use crate::kernels::product::HALF_FACTORS;

    fn product(m: Word, n: u32, k: u32) -> Dispatch {
        Dispatch {
            kernel: &dense::FORWARD,
            node: String::new(),
            constants: Vec::new(),
            params: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            grid: Grid::Tiles { m, n: n.into(), k: k.into(), depth: 1 },
        }
    }

    #[test]
    fn products_of_about_the_same_sizes_are_one_class() {
        let found = class(&product(Word::Rows(3), 1000, 65), 64).unwrap();
        assert_eq!(found, "dense.forward 256x1024x128 depth 1");
        assert_eq!(class(&product(Word::U32(129), 513, 128), 1).unwrap(), found);
        assert_ne!(class(&product(Word::U32(257), 513, 128), 1).unwrap(), found);
        assert!(class(&product(Word::Rows(u32::MAX), 1, 1), u32::MAX).is_some());
    }

    #[test]
    fn products_of_rounded_factors_are_a_class_of_their_own() {
        let single = product(Word::Rows(3), 1000, 65);
        let halves = Dispatch { constants: vec![(HALF_FACTORS, 1.0)], ..product(Word::Rows(3), 1000, 65) };
        assert_ne!(class(&single, 64), class(&halves, 64));
        let able = |dispatch: &Dispatch| Tile::Halves64.is_able(dispatch.grid, &dispatch.constants);
        assert_eq!((able(&single), able(&halves)), (false, true));
    }

    #[test]
    fn what_is_no_product_has_no_class() {
        assert_eq!(class(&Dispatch { grid: Grid::Items(1.into()), ..product(1.into(), 1, 1) }, 1), None);
    }

    #[test]
    fn sizes_are_powers_of_two_up_to_the_capacity() {
        assert_eq!([0, 1, 2, 3, 64, 65].map(size), [1, 1, 2, 4, 64, 128]);
        assert_eq!(sizes(5).collect::<Vec<_>>(), [1, 2, 4, 8]);
    }

    #[test]
    fn software_adapters_are_tuned_only_when_asked_for() {
        let kinds = |tuning: &Tuning| [Kind::DiscreteGpu, Kind::Software].map(|kind| tuning.is_for(kind));
        assert_eq!(kinds(&Tuning::Off), [false, false]);
        assert_eq!(kinds(&Tuning::default()), [true, false]);
        assert_eq!(kinds(&Tuning::On), [true, true]);
        assert_eq!(kinds(&Tuning::In("here".into())), [true, true]);
    }
}

//! Products with few results for a GPU: their sums are split, so that more workgroups have a part of the work.

use litemap::LiteMap;

use super::{Command, Dispatch, Grid, Length, Pass, Plan, Role, Word};
use crate::kernels::{Kernel, conv2d, dense, split_sum};

/// Side of the tile by which workgroups are counted.
const TILE: u32 = 64;
/// Terms of a part at least: the parts have to be written, read and added, too.
const TERMS: u32 = 128;
/// Parts of a sum at most.
const MOST: u32 = 64;

/// Constants of what follows a sum that is complete.
const AFTERWARDS: [&str; 5] = ["ACTIVATION", "SLOPE", "OFFSET", "LIMIT", "USE_BIAS"];

/// Products whose sums may be split, and whether they add a bias unless `USE_BIAS` says otherwise.
static PRODUCTS: [(&Kernel, bool); 4] = [
    (&dense::FORWARD, true),
    (&dense::BACKWARD_INPUT, false),
    (&conv2d::FORWARD, true),
    (&conv2d::BACKWARD_INPUT, false),
];

/// A plan in which sums are split.
pub struct SplitSums {
    /// The plan.
    pub plan: Plan,
    /// The place that each command of a pass had before; that of a product is also that of what adds its parts.
    pub places: LiteMap<Pass, Vec<usize>>,
}

impl Plan {
    /// This work for runs of up to `rows` rows: products of training with fewer workgroups than `wanted` get as many, as far as their
    /// sums are long enough. The last bits of those sums differ.
    pub fn with_split_sums(&self, rows: u32, wanted: u32) -> SplitSums {
        let mut split = SplitSums { plan: self.clone(), places: LiteMap::new() };
        for (pass, commands) in &self.passes {
            let mut places = Vec::with_capacity(commands.len());
            let mut new = Vec::with_capacity(commands.len());
            for (place, command) in commands.iter().enumerate() {
                match command {
                    // A stage's forward is computed again in training, to the same bits.
                    Command::Dispatch(dispatch) if matches!(pass, Pass::Train | Pass::Forward) => {
                        new.extend(split.plan.with_split_sum(dispatch, rows, wanted).map(Command::Dispatch));
                    }
                    _ => new.push(command.clone()),
                }
                places.resize(new.len(), place);
            }
            split.plan.passes.insert(*pass, new);
            split.places.insert(*pass, places);
        }
        split
    }

    /// A dispatch, or the two that do its work.
    fn with_split_sum(
        &mut self,
        dispatch: &Dispatch,
        rows: u32,
        wanted: u32,
    ) -> impl Iterator<Item = Dispatch> + use<> {
        let split = parts(dispatch, rows, wanted).and_then(|parts| self.split_sum(dispatch, parts));
        let (first, second) = match split {
            Some([first, second]) => (first, Some(second)),
            None => (dispatch.clone(), None),
        };
        std::iter::once(first).chain(second)
    }

    fn split_sum(&mut self, dispatch: &Dispatch, parts: u32) -> Option<[Dispatch; 2]> {
        let (_, adds_bias) = PRODUCTS.iter().find(|(kernel, _)| std::ptr::eq(*kernel, dispatch.kernel))?;
        let Grid::Tiles { m, n, k, depth } = dispatch.grid else { return None };
        let ResultPlace { rows, cols, y_offset, y_stride } = ResultPlace::of(dispatch)?;
        let Word::U32(width) = cols else { return None };
        let len = times(rows, width)?;
        let of_parts = match len {
            Word::Rows(factor) => Length { per_row: u64::from(factor) * u64::from(parts), fixed: 0 },
            Word::U32(len) => Length { per_row: 0, fixed: u64::from(len) * u64::from(parts) },
            _ => return None,
        };
        let sums = self.buffer(format!("{}.parts", dispatch.node), Role::Activation, of_parts);

        let is_later = |(name, _): &(&'static str, f64)| AFTERWARDS.contains(name);
        let (later, now): (Vec<_>, Vec<_>) = dispatch.constants.iter().copied().partition(is_later);
        let mut first = Dispatch { constants: now, outputs: vec![sums], ..dispatch.clone() };
        if *adds_bias {
            first.constants.push(("USE_BIAS", 0.0));
        }
        first.grid = Grid::Tiles { m, n, k, depth: depth * parts };
        for (name, word) in [("splits", parts.into()), ("y_offset", 0.into()), ("y_stride", cols)] {
            if let Some(place) = field(dispatch, name) {
                first.params[place] = word;
            }
        }

        let bias = dispatch.inputs.get(2).copied().unwrap_or(sums);
        let mut second = Dispatch {
            kernel: &split_sum::FINISH,
            node: dispatch.node.clone(),
            constants: later,
            params: split_sum::Record { len, cols, splits: parts.into(), y_offset, y_stride }.into(),
            inputs: vec![sums, bias],
            outputs: dispatch.outputs.clone(),
            grid: Grid::Elements(len),
        };
        let says_bias = second.constants.iter().any(|(name, _)| *name == "USE_BIAS");
        if !*adds_bias && !says_bias {
            second.constants.push(("USE_BIAS", 0.0));
        }
        Some([first, second])
    }
}

/// Parts into which the sums of a dispatch are split: a power of two; `None` for one.
fn parts(dispatch: &Dispatch, rows: u32, wanted: u32) -> Option<u32> {
    let Grid::Tiles { m, n: Word::U32(n), k: Word::U32(k), depth } = dispatch.grid else { return None };
    let m = match m {
        Word::U32(m) => m,
        Word::Rows(factor) => factor.saturating_mul(rows),
        _ => return None,
    };
    let tiles = m.div_ceil(TILE).saturating_mul(n.div_ceil(TILE)).saturating_mul(depth).max(1);
    let most = (wanted / tiles).min(k / TERMS).min(MOST);
    (most >= 2).then(|| 1 << most.ilog2())
}

/// The result of a product as it lies in memory.
struct ResultPlace {
    rows: Word,
    cols: Word,
    y_offset: Word,
    y_stride: Word,
}

impl ResultPlace {
    fn of(dispatch: &Dispatch) -> Option<Self> {
        let word = |name: &str| Some(dispatch.params[field(dispatch, name)?]);
        if let (Some(y_offset), Some(y_stride)) = (word("y_offset"), word("y_stride")) {
            return Some(Self { rows: word("m")?, cols: word("n")?, y_offset, y_stride });
        }
        let is_forward = std::ptr::eq(dispatch.kernel, &raw const conv2d::FORWARD);
        let [height, width, channels] = if is_forward { ["out_h", "out_w", "out_c"] } else { ["in_h", "in_w", "in_c"] };
        let (Word::U32(height), Word::U32(width)) = (word(height)?, word(width)?) else { return None };
        let cols = word(channels)?;
        Some(Self { rows: times(word("rows")?, height * width)?, cols, y_offset: 0.into(), y_stride: cols })
    }
}

fn field(dispatch: &Dispatch, name: &str) -> Option<usize> {
    dispatch.kernel.params.iter().position(|field| field.name == name)
}

fn times(word: Word, by: u32) -> Option<Word> {
    match word {
        Word::U32(value) => value.checked_mul(by).map(Word::U32),
        Word::Rows(factor) => factor.checked_mul(by).map(Word::Rows),
        _ => None,
    }
}

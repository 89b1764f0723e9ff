//! The adapters of each stage, and which of them computes each piece of a batch.

use super::rig::Rig;
use super::shards::pieces;

/// Part of the newest time in the average of an adapter's times.
const NEWEST: f64 = 0.3;

/// The teams of all stages: the adapters that compute each, and how fast they are.
pub(super) struct Teams {
    /// Pieces into which a batch is cut at least.
    micro_batches: u32,
    /// Fewest rows of a piece.
    min_rows: u32,
    /// Milliseconds of a row in a training step, by adapter, once measured.
    row_ms: Vec<Option<f64>>,
}

/// Rows of a piece of a batch: the first, and how many.
pub(super) type Piece = (u32, u32);

impl Teams {
    pub fn new(micro_batches: u32, min_rows: u32) -> Self {
        Self { micro_batches: micro_batches.max(1), min_rows: min_rows.max(1), row_ms: Vec::new() }
    }

    /// The pieces of a batch: as many as were asked for, fewer if they were too small, or more if an adapter takes fewer
    /// rows at once.
    pub fn pieces(&self, rig: &Rig, rows: u32) -> Vec<Piece> {
        let active = rig.members.iter().filter(|member| member.is_active());
        let capacity = active.map(|member| member.capacity).min().unwrap_or(1);
        let starts = pieces(rows, capacity, self.micro_batches.min(rows / self.min_rows).max(1)).into_iter().scan(
            0,
            |first, rows| {
                let piece = (*first, rows);
                *first += rows;
                Some(piece)
            },
        );
        starts.collect()
    }

    /// The adapter that computes each piece of a stage: the one that would end it first. Without an active adapter, none.
    pub fn routes(&self, rig: &Rig, stage: usize, pieces: &[Piece]) -> Option<Vec<usize>> {
        let team = team(rig, stage);
        let known: Vec<f64> = team.iter().filter_map(|idx| self.of(*idx)).collect();
        // An adapter that is not measured yet is taken for one of middle speed.
        let usual = known.iter().sum::<f64>() / f64::max(1.0, known.iter().fold(0.0, |count, _| count + 1.0));
        let row_ms = |idx: usize| self.of(idx).unwrap_or(if known.is_empty() { 1.0 } else { usual });
        let mut load: Vec<(f64, usize)> = team.iter().map(|idx| (0.0, *idx)).collect();
        let route = |(_, rows): &Piece| {
            let ends = |(ms, idx): &(f64, usize)| ms + f64::from(*rows) * row_ms(*idx);
            let next = load.iter_mut().min_by(|a, b| ends(a).total_cmp(&ends(b)))?;
            next.0 = ends(next);
            Some(next.1)
        };
        pieces.iter().map(route).collect()
    }

    fn of(&self, adapter_idx: usize) -> Option<f64> {
        self.row_ms.get(adapter_idx).copied().flatten()
    }

    /// Expected milliseconds of an adapter for so many rows, once measured.
    pub fn predicted_ms(&self, adapter_idx: usize, rows: u32) -> Option<f64> {
        Some(self.of(adapter_idx)? * f64::from(rows))
    }

    /// Records how long an adapter was busy with the rows of a training step.
    pub fn learn(&mut self, adapter_idx: usize, rows: u32, ms: f64) {
        if rows == 0 {
            return;
        }
        if self.row_ms.len() <= adapter_idx {
            self.row_ms.resize(adapter_idx + 1, None);
        }
        let newest = ms / f64::from(rows);
        let average = self.row_ms[adapter_idx].map_or(newest, |old| old + NEWEST * (newest - old));
        self.row_ms[adapter_idx] = Some(average);
    }

    /// Milliseconds of a row in a training step on each adapter, once measured.
    pub fn row_ms(&self) -> &[Option<f64>] {
        &self.row_ms
    }

    /// Forgets all speeds, since the stages are others from now on.
    pub fn forget_all(&mut self) {
        self.row_ms.clear();
    }

    /// Forgets what is known of an adapter, since it computes another stage from now on.
    pub fn forget(&mut self, adapter_idx: usize) {
        if let Some(row_ms) = self.row_ms.get_mut(adapter_idx) {
            *row_ms = None;
        }
    }
}

/// The active adapters of a stage.
pub(super) fn team(rig: &Rig, stage: usize) -> Vec<usize> {
    let serves = |idx: &usize| rig.members[*idx].is_active() && rig.members[*idx].stage == stage;
    (0..rig.members.len()).filter(serves).collect()
}

//! Assigns rows to adapters: the splitter's shares, cut into shards, over the active adapters.

use super::ShardReport;
use super::rig::Rig;
use super::selection::{Change, RETRY_STEPS, Selection, Verdict};
use super::shards::{Shard, groups, most_rows, pieces, shards_of};
use super::split::{SplitMode, Splitter};
use crate::error::Result;
use crate::plan::{Combine, Command, Pass, Plan, When};

/// Splits batches over a rig, and learns from the times of steps.
pub(super) struct Partition {
    splitter: Splitter,
    /// Adapters that are excluded because training is faster without them.
    selection: Selection,
    exclusion: Exclusion,
    /// The splitter as it was before a trial with fewer adapters, or more.
    splitter_before: Option<Splitter>,
    /// Adapters whose exclusion was reported.
    reported: Vec<usize>,
    /// Micro-batches in which each adapter computes its rows.
    micro_batches: u32,
    is_calibrated: bool,
    /// The split of the next step, where its outputs were computed before.
    kept: Option<KeptSplit>,
}

/// The split of a step: its number, the rows of its batch, and what `step_shards` gave.
struct KeptSplit {
    step: u64,
    rows: u32,
    shares: Vec<u32>,
    shards: Vec<Shard>,
}

/// Whether adapters may be excluded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exclusion {
    Allowed,
    Refused,
}

impl Partition {
    /// A partition for `n_adapters` adapters that run a plan.
    ///
    /// # Errors
    /// If fixed proportions or recorded rows do not go with the adapters.
    pub fn new(mode: SplitMode, n_adapters: usize, plan: &Plan, micro_batches: u32) -> Result<Self> {
        Ok(Self {
            splitter: Splitter::new(mode, n_adapters, min_rows(plan))?,
            selection: Selection::new(n_adapters),
            exclusion: Exclusion::Allowed,
            splitter_before: None,
            reported: Vec::new(),
            micro_batches: micro_batches.max(1),
            is_calibrated: false,
            kept: None,
        })
    }

    /// The splitter, with its model of each adapter.
    pub fn splitter(&self) -> &Splitter {
        &self.splitter
    }

    /// The splitter, to teach it.
    pub fn splitter_mut(&mut self) -> &mut Splitter {
        &mut self.splitter
    }

    /// Records that adapters have joined.
    pub fn grow_to(&mut self, n_adapters: usize) {
        while self.splitter.n_adapters() < n_adapters {
            self.splitter.add();
        }
    }

    /// Records that a position has another adapter, of which nothing is known.
    pub fn forget(&mut self, adapter_idx: usize) {
        self.splitter.forget(adapter_idx);
    }

    /// Resets for another plan.
    pub fn set_plan(&mut self, plan: &Plan) {
        self.splitter.set_min_rows(min_rows(plan));
    }

    /// Whether calibration is still to be done; true once.
    pub fn wants_calibration(&mut self) -> bool {
        !std::mem::replace(&mut self.is_calibrated, true) && self.splitter.is_learned()
    }

    /// Whether an adapter is excluded from training steps.
    pub fn is_excluded(&self, adapter_idx: usize) -> bool {
        self.selection.is_excluded(adapter_idx)
    }

    /// Keeps all adapters active, even if training is faster with fewer.
    pub fn keep_all(&mut self, n_adapters: usize) {
        self.exclusion = Exclusion::Refused;
        self.selection = Selection::new(n_adapters);
    }

    /// Adapters that get rows: active ones that are not excluded; the excluded ones, too, if there is no other.
    fn selected(&self, rig: &Rig) -> Vec<bool> {
        let active = rig.active();
        let works = |idx: usize| active[idx] && rig.members[idx].is_enabled && !self.selection.is_excluded(idx);
        let selected: Vec<bool> = (0..active.len()).map(works).collect();
        if selected.contains(&true) { selected } else { active }
    }

    /// Splits a number of rows over the adapters. A share above an adapter's capacity runs in pieces.
    pub fn shards(&self, rig: &Rig, pass: Pass, rows: u32) -> Vec<Shard> {
        self.cut(rig, pass, &self.splitter.shares(rows, &self.selected(rig)))
    }

    /// The rows of the only adapter in a training step, in pieces if their gradients are added there.
    pub fn pieces_of_only(&self, rig: &Rig, rows: u32) -> Vec<Shard> {
        if !rig.plan().updates_after_pieces() {
            return vec![Shard::whole(rig.only(), 0, rows)];
        }
        let mut shares = vec![0; rig.members.len()];
        shares[rig.only()] = rows;
        self.cut(rig, Pass::Train, &shares)
    }

    /// Whether the host has to add gradients or merge statistics, even of the only adapter.
    pub fn needs_host(&self, rig: &Rig) -> bool {
        (self.micro_batches > 1 || rig.has_reduced()) && !rig.plan().updates_after_pieces()
    }

    /// Shares and shards of a training step.
    ///
    /// A split that is not learned keeps its slots for the whole run: the rows of a lost adapter run in the same slot on
    /// another adapter, so that the sums, and on adapters of one arithmetic the bits, stay those of an undisturbed run.
    /// This does not hold if shards wait for each other, since then each must have an adapter of its own.
    pub fn step_shards(&mut self, rig: &Rig, step: u64, rows: u32) -> (Vec<u32>, Vec<Shard>) {
        let active = rig.active();
        let runs = |kept: &KeptSplit| kept.shards.iter().all(|shard| active[shard.adapter_idx]);
        match self.kept.take().filter(|kept| (kept.step, kept.rows) == (step, rows) && runs(kept)) {
            Some(KeptSplit { shares, shards, .. }) => (shares, shards),
            None => self.next_shards(rig, step, rows),
        }
    }

    /// The shards of a training step before it begins: it will have the same.
    pub fn kept_shards(&mut self, rig: &Rig, step: u64, rows: u32) -> Vec<Shard> {
        let (shares, shards) = self.step_shards(rig, step, rows);
        self.kept = Some(KeptSplit { step, rows, shares, shards: shards.clone() });
        shards
    }

    fn next_shards(&mut self, rig: &Rig, step: u64, rows: u32) -> (Vec<u32>, Vec<Shard>) {
        if !self.splitter.is_learned() && !rig.plan().is_coupled(Pass::Train) {
            let slots: Vec<bool> = rig.members.iter().map(|member| member.has_slot && member.is_enabled).collect();
            let shares = self.splitter.step_shares(step, rows, &slots);
            if let Some(shards) = reassigned(rig, self.cut(rig, Pass::Train, &shares)) {
                return (shares, shards);
            }
        }
        let shares = self.splitter.step_shares(step, rows, &self.selected(rig));
        let shards = self.cut(rig, Pass::Train, &shares);
        (shares, shards)
    }

    fn cut(&self, rig: &Rig, pass: Pass, shares: &[u32]) -> Vec<Shard> {
        // No part gets fewer rows than a shard may have.
        let parts = |share: u32| self.micro_batches.min(share / self.splitter.min_rows().max(1)).max(1);
        let accumulation = rig.plan().accumulation(pass);
        shards_of(shares, accumulation, |idx, share| pieces(share, rig.members[idx].capacity, parts(share)))
    }

    /// Records how long each adapter was busy with a training step.
    pub fn learn(&mut self, reports: &[ShardReport]) {
        for report in reports {
            self.splitter.learn(report.adapter_idx, report.rows, report.timing.busy_ms());
            self.splitter.learn_weights(report.adapter_idx, report.timing.weights.ms);
        }
    }

    /// Records how long a step took; adapters without which training is faster are excluded from then on.
    pub fn reconsider(&mut self, rig: &Rig, ms: f64, rows: u32, shares: &[u32]) {
        // Shards that wait for each other must all fit at once, and with fewer adapters they are larger.
        let may_not_fit = rig.plan().is_coupled(Pass::Train) && rig.members.iter().any(|member| member.capacity < rows);
        if !self.splitter.is_learned() || self.exclusion == Exclusion::Refused || may_not_fit {
            return;
        }
        match self.selection.note(ms, rows, shares, &rig.active()) {
            Verdict::Same => {}
            Verdict::Tried => self.splitter_before = Some(self.splitter.clone()),
            // The speeds learned in the trial hold only for the trial.
            Verdict::Undone => {
                if let Some(before) = self.splitter_before.take() {
                    self.splitter = before;
                }
            }
            Verdict::Kept { change, before_ms, after_ms } => self.report_change(rig, change, rows, before_ms, after_ms),
        }
    }

    fn report_change(&mut self, rig: &Rig, change: Change, rows: u32, before_ms: f64, after_ms: f64) {
        let rows_per_s = |ms: f64| f64::from(rows) * 1e3 / ms;
        let (before, after) = (rows_per_s(before_ms), rows_per_s(after_ms));
        match change {
            Change::Without(idx) if !self.reported.contains(&idx) => {
                self.reported.push(idx);
                log::warn!(
                    "training is faster without {}: {before:.0} rows/s with it, {after:.0} without; it is excluded, and \
                     retried after {RETRY_STEPS} steps",
                    rig.name(idx)
                );
            }
            Change::Without(idx) => log::debug!("{} excluded again: {before:.0} and {after:.0} rows/s", rig.name(idx)),
            Change::With(idx) => {
                log::info!("{} is active again: {before:.0} rows/s without it, {after:.0} with it", rig.name(idx));
            }
        }
    }
}

/// Gives the shards of a lost adapter to the adapter with the fewest rows, those whose gradients are added to one;
/// `None` if a shard fits nowhere.
fn reassigned(rig: &Rig, mut shards: Vec<Shard>) -> Option<Vec<Shard>> {
    let active = rig.active();
    let mut load = vec![0; active.len()];
    shards.iter().for_each(|shard| load[shard.adapter_idx] += shard.rows);
    for group in groups(shards.iter().copied()) {
        let group = &mut shards[group];
        if group.iter().all(|shard| active[shard.adapter_idx]) {
            continue;
        }
        let (most, rows) = (most_rows(group.iter().copied()), group.iter().map(|shard| shard.rows).sum::<u32>());
        let fits = |idx: &usize| active[*idx] && rig.members[*idx].capacity >= most;
        let replacement = (0..active.len()).filter(fits).min_by_key(|idx| load[*idx])?;
        load[replacement] += rows;
        group.iter_mut().for_each(|shard| shard.adapter_idx = replacement);
    }
    Some(shards)
}

/// Fewest rows of a shard: 8 if batch statistics are those of the shard.
pub(crate) fn min_rows(plan: &Plan) -> u32 {
    let of_shard = plan.commands(Pass::Train).iter().any(|command| {
        matches!(command, Command::Exchange(exchange)
            if exchange.when == When::Update && matches!(exchange.combine, Combine::Moments { .. }))
    });
    if of_shard { 8 } else { 1 }
}

//! Finds the fastest of several tiles for one class of products.

use std::fmt;

use crate::kernels::Tile;

/// Times that count, of each tile that stays in the contest.
const TIMINGS: u32 = 3;
/// A tile that takes so many times as long as the best is out.
const ABORT_SLOWDOWN: f64 = 2.0;
/// Part of the usual tile's time that another must stay under: less is noise.
const CLEARLY: f64 = 0.95;
/// Milliseconds of a product in which nothing is tried. A tile may be ten times slower than the best, and a Windows
/// driver resets a GPU that is busy for two seconds.
const LONG_MS: f64 = 200.0;

/// The tiles that compute a class of products, with their times.
pub(super) struct Contest {
    /// The tile that is used otherwise comes first.
    candidates: Vec<TileCandidate>,
}

/// Whether a tile was used before. A first use may compile, and does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heat {
    Cold,
    Warm,
}

struct TileCandidate {
    tile: Tile,
    heat: Heat,
    timings: u32,
    best_ms: f64,
}

impl Contest {
    pub(super) fn new(usual: Tile, is_able: impl Fn(Tile) -> bool) -> Self {
        let others = Tile::ALL.into_iter().filter(|tile| *tile != usual && is_able(*tile));
        let all = std::iter::once(usual).chain(others);
        let new = |tile| TileCandidate { tile, heat: Heat::Cold, timings: 0, best_ms: f64::INFINITY };
        let mut candidates: Vec<TileCandidate> = all.map(new).collect();
        candidates[0].heat = Heat::Warm;
        Self { candidates }
    }

    /// The tile to try next, `None` when it is over. In turn, but what is warm is timed at once: the usual tile is so
    /// from the start, and what is hopeless is out early.
    pub(super) fn next(&self) -> Option<(Tile, Heat)> {
        if self.winner().is_some() {
            return None;
        }
        let waiting = self.candidates.iter().filter(|candidate| candidate.timings < TIMINGS);
        let turn = |candidate: &&TileCandidate| match (candidate.heat, candidate.timings) {
            (Heat::Warm, 0) => 0,
            (_, timings) => 1 + timings,
        };
        waiting.min_by_key(turn).map(|candidate| (candidate.tile, candidate.heat))
    }

    /// Records the time of a tile.
    pub(super) fn learn(&mut self, tile: Tile, ms: f64) {
        let Some(candidate) = self.candidates.iter_mut().find(|candidate| candidate.tile == tile) else { return };
        if std::mem::replace(&mut candidate.heat, Heat::Warm) == Heat::Warm {
            candidate.timings += 1;
            candidate.best_ms = candidate.best_ms.min(ms);
        }
        let limit_ms = self.best_ms() * ABORT_SLOWDOWN;
        self.candidates.retain(|candidate| candidate.timings == 0 || candidate.best_ms <= limit_ms);
    }

    /// Removes a tile.
    pub(super) fn drop_out(&mut self, tile: Tile) {
        self.candidates.retain(|candidate| candidate.tile != tile);
    }

    /// The best tile, once that is known.
    pub(super) fn winner(&self) -> Option<Tile> {
        let usual = self.candidates.first()?;
        let is_long = usual.timings > 0 && self.best_ms() > LONG_MS;
        if is_long {
            return Some(usual.tile);
        }
        if self.candidates.iter().any(|candidate| candidate.timings < TIMINGS) {
            return None;
        }
        let best = self.candidates.iter().min_by(|a, b| a.best_ms.total_cmp(&b.best_ms))?;
        Some(if best.best_ms < CLEARLY * usual.best_ms { best.tile } else { usual.tile })
    }

    fn best_ms(&self) -> f64 {
        self.candidates.iter().map(|candidate| candidate.best_ms).fold(f64::INFINITY, f64::min)
    }
}

impl fmt::Display for Contest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = self.candidates.iter().map(|candidate| format!("{:?} {:.3} ms", candidate.tile, candidate.best_ms));
        f.write_str(&times.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a contest to its end; gives the winner and what was tried.
    fn run(times_ms: impl Fn(Tile) -> f64) -> (Option<Tile>, Vec<Tile>) {
        let mut contest = Contest::new(Tile::Workgroup64, |_| true);
        let mut tried = Vec::new();
        while let Some((tile, _)) = contest.next() {
            tried.push(tile);
            contest.learn(tile, times_ms(tile));
            assert!(tried.len() < 100, "it never ends");
        }
        (contest.winner(), tried)
    }

    #[test]
    fn the_fastest_wins() {
        let (winner, tried) = run(|tile| if tile == Tile::Workgroup128 { 1.0 } else { 1.5 });
        assert_eq!(winner, Some(Tile::Workgroup128));
        // Three times each, and once more where the first use is not counted.
        assert_eq!(tried.len(), 3 + 4 * (Tile::ALL.len() - 1));
        assert_eq!(tried[0], Tile::Workgroup64);
    }

    #[test]
    fn what_is_hopeless_is_not_tried_again() {
        let (winner, tried) = run(|tile| if tile == Tile::Workgroup64 { 1.0 } else { 2.5 });
        assert_eq!(winner, Some(Tile::Workgroup64));
        assert_eq!(tried.len(), 3 + 2 * (Tile::ALL.len() - 1));
    }

    #[test]
    fn a_small_lead_is_noise() {
        let (winner, _) = run(|tile| if tile == Tile::Registers { 0.97 } else { 1.0 });
        assert_eq!(winner, Some(Tile::Workgroup64));
    }

    #[test]
    fn a_slow_usual_tile_may_drop_out() {
        let (winner, _) = run(|tile| if tile == Tile::Workgroup64 { 9.0 } else { 1.0 });
        assert_eq!(winner, Some(Tile::Registers));
    }

    #[test]
    fn a_long_product_is_left_alone() {
        assert_eq!(run(|_| 300.0), (Some(Tile::Workgroup64), vec![Tile::Workgroup64]));
    }

    #[test]
    fn a_first_use_does_not_count() {
        let mut contest = Contest::new(Tile::Workgroup64, |tile| tile == Tile::Workgroup32);
        let times =
            [(Tile::Workgroup64, 4.0), (Tile::Workgroup32, 900.0), (Tile::Workgroup32, 2.0), (Tile::Workgroup32, 3.0)];
        times.into_iter().for_each(|(tile, ms)| contest.learn(tile, ms));
        assert_eq!(contest.winner(), None);
        contest.learn(Tile::Workgroup64, 5.0);
        contest.learn(Tile::Workgroup64, 5.0);
        contest.learn(Tile::Workgroup32, 3.0);
        assert_eq!(contest.winner(), Some(Tile::Workgroup32));
        assert_eq!(contest.to_string(), "Workgroup64 4.000 ms, Workgroup32 2.000 ms");
    }

    #[test]
    fn a_tile_that_can_not_be_built_is_out() {
        let mut contest = Contest::new(Tile::Workgroup64, |tile| tile == Tile::Workgroup32);
        contest.drop_out(Tile::Workgroup32);
        (0..3).for_each(|_| contest.learn(Tile::Workgroup64, 1.0));
        assert_eq!((contest.next(), contest.winner()), (None, Some(Tile::Workgroup64)));
    }
}

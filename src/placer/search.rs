//! Divisions of a model over adapters, the slowest stage of each as fast as can be.

use std::ops::Range;

/// Adapters up to which several may share a stage; with more, each stage has one.
const MOST_SHARING: usize = 6;
/// Adapters of a search at most: its time doubles with each. Later ones of `adapters` are left out.
const MOST_ADAPTERS: usize = 10;

/// Stages: the blocks and the adapters of each.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    pub stages: Vec<(Range<usize>, Vec<usize>)>,
    pub slowest_ms: f64,
}

/// The way to the best division of the first blocks over some adapters.
#[derive(Clone, Copy, Debug)]
struct Way {
    cost: f64,
    /// Blocks before the last stage.
    from: usize,
    /// The adapters of the last stage.
    team: u32,
}

/// For each number of stages from `fewest` up, the division of the blocks whose largest cost is least: a dynamic programme over
/// (first block of a stage, adapters used). `cost` gives that of a stage on adapters, `None` where it can't be.
pub(super) fn divisions(
    n_blocks: usize,
    adapters: &[usize],
    fewest: usize,
    cost: impl Fn(&Range<usize>, &[usize]) -> Option<f64>,
) -> Vec<Candidate> {
    let adapters = &adapters[..adapters.len().min(MOST_ADAPTERS)];
    let masks = 1_u32 << adapters.len();
    let members = |team: u32| -> Vec<usize> {
        (0..adapters.len()).filter(|bit| team & (1 << bit) != 0).map(|bit| adapters[bit]).collect()
    };
    let may_serve = |team: u32| team != 0 && (adapters.len() <= MOST_SHARING || team.count_ones() == 1);
    let teams: Vec<(u32, Vec<usize>)> =
        (0..masks).filter(|team| may_serve(*team)).map(|team| (team, members(team))).collect();
    // Of each range and team, once: first block, end, adapters, cost.
    let mut stages: Vec<(usize, usize, u32, f64)> = Vec::new();
    for from in 0..n_blocks {
        for end in from + 1..=n_blocks {
            let costs = teams.iter().filter_map(|(team, members)| Some((*team, cost(&(from..end), members)?)));
            stages.extend(costs.map(|(team, cost)| (from, end, team, cost)));
        }
    }
    let size = (n_blocks + 1) * masks as usize;
    let at = |blocks: usize, used: u32| blocks * masks as usize + used as usize;
    let mut layers: Vec<Vec<Option<Way>>> = vec![vec![None; size]];
    layers[0][at(0, 0)] = Some(Way { cost: 0.0, from: 0, team: 0 });
    let mut found = Vec::new();
    for n_stages in 1..=adapters.len().min(n_blocks) {
        let before = &layers[n_stages - 1];
        let mut layer: Vec<Option<Way>> = vec![None; size];
        for (from, end, team, stage) in stages.iter().copied() {
            for used in (0..masks).filter(|used| used & team == 0) {
                let Some(way) = before[at(from, used)] else { continue };
                let (place, cost) = (at(end, used | team), way.cost.max(stage));
                if layer[place].is_none_or(|known| cost < known.cost) {
                    layer[place] = Some(Way { cost, from, team });
                }
            }
        }
        layers.push(layer);
        if n_stages < fewest {
            continue;
        }
        let best = (0..masks).filter_map(|used| Some((used, layers[n_stages][at(n_blocks, used)]?)));
        if let Some((mut used, way)) = best.min_by(|a, b| a.1.cost.total_cmp(&b.1.cost)) {
            let (mut end, mut stages) = (n_blocks, Vec::new());
            for layer in (1..=n_stages).rev() {
                let Some(Way { from, team, .. }) = layers[layer][at(end, used)] else { break };
                stages.push((from..end, members(team)));
                (end, used) = (from, used & !team);
            }
            stages.reverse();
            found.push(Candidate { stages, slowest_ms: way.cost });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of 4, 1, 1 and 2 over adapters of which the second is twice as fast.
    fn ms(range: &Range<usize>, team: &[usize]) -> f64 {
        let speed: f64 = team.iter().map(|idx| [1.0, 2.0, 1.0][*idx]).sum();
        [4.0, 1.0, 1.0, 2.0][range.clone()].iter().sum::<f64>() / speed
    }

    #[test]
    fn the_slowest_stage_is_as_fast_as_can_be() {
        let found = divisions(4, &[0, 1], 2, |range, team| Some(ms(range, team)));
        assert_eq!(found.len(), 1);
        // 4 and 1 on the fast one, 1 and 2 on the other; or 4, 1 and 1, and 2.
        assert!((found[0].slowest_ms - 3.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn what_does_not_fit_is_not_chosen() {
        let fits = |range: &Range<usize>, team: &[usize]| range.len() <= 2 || team == [2];
        let found = divisions(4, &[0, 1, 2], 2, |range, team| fits(range, team).then(|| ms(range, team)));
        assert!(found.iter().all(|it| it.stages.iter().all(|(range, team)| fits(range, team))), "{found:?}");
        assert!(divisions(4, &[0, 1], 2, |range, _| (range.len() < 2).then_some(1.0)).is_empty());
    }

    #[test]
    fn every_division_is_as_slow_or_slower() {
        let found = divisions(4, &[0, 1, 2], 1, |range, team| Some(ms(range, team)));
        for cut in 1..4 {
            for (first, second) in
                [([0].as_slice(), [1, 2].as_slice()), (&[1], &[0, 2]), (&[0, 1], &[2]), (&[0, 2], &[1])]
            {
                let (first_ms, second_ms) = (ms(&(0..cut), first), ms(&(cut..4), second));
                assert!(found[1].slowest_ms <= first_ms.max(second_ms) + 1e-9);
            }
        }
        assert!((found[0].slowest_ms - 2.0).abs() < 1e-9, "all together");
    }
}

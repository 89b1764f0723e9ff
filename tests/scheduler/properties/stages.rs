//! Do stages on adapters of their own train as one adapter, whatever befalls them?

use super::*;

fn n_nodes(model: &Model) -> usize {
    (1..64).find(|n_nodes| model.stages(None, &vec![0; *n_nodes]).is_ok()).unwrap()
}

/// Any run over two or three stages, each with one adapter or several. With `faults`, each adapter may meet up to two.
fn staged(faults: usize) -> impl Strategy<Value = Case> {
    let uncoupled = case(faults).prop_filter("no stage waits for others", |case| case.family != Family::NormOfBatch);
    uncoupled.prop_flat_map(|case| {
        let n_nodes = n_nodes(&case.model());
        let cuts = prop::sample::subsequence((1..n_nodes).collect::<Vec<_>>(), 1..=2);
        let stages = prop::collection::vec(0..3_usize, case.adapters.len());
        (Just(case), cuts, stages).prop_map(move |(mut case, cuts, stages)| {
            let n_stages = cuts.len() + 1;
            let nodes = (0..n_nodes).map(|node| cuts.iter().filter(|cut| **cut <= node).count()).collect();
            while case.adapters.len() < n_stages {
                case.adapters.push(case.adapters[0].clone());
            }
            let stages = stages.into_iter().chain(0..).map(|stage| stage % n_stages);
            let adapters = (0..case.adapters.len()).zip(stages);
            let adapters = adapters.map(|(idx, stage)| if idx < n_stages { idx } else { stage }).collect();
            (case.division, case.split) = (Some((nodes, adapters)), SplitMode::Learned);
            case
        })
    })
}

#[test]
fn stages_give_the_weights_of_one_adapter() {
    check(1_500, staged(0), is_as_one_adapter);
}

#[test]
fn any_troubles_of_stages_give_the_weights_of_one_adapter() {
    check(3_000, staged(2), is_as_one_adapter);
}

#[test]
#[ignore = "minutes: ten times the cases of the tests above"]
fn many_more_stages() {
    check(15_000, staged(0), is_as_one_adapter);
    check(30_000, staged(3), is_as_one_adapter);
}

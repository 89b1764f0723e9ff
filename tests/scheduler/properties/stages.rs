//! Do stages on adapters of their own train as one adapter, whatever befalls them?

use super::*;

/// Any run over two or three stages, each with one adapter or several. With `faults`, each adapter may meet up to two.
fn staged(faults: usize) -> impl Strategy<Value = Case> {
    let uncoupled = case(faults).prop_filter("no stage waits for others", |case| case.family != Family::NormOfBatch);
    uncoupled.prop_flat_map(|case| {
        let n_nodes = case.model().n_nodes();
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

/// Milliseconds of a step of two stages with adapters of one speed, in pieces of six rows; and those in which both work.
fn step_ms(pieces: u32) -> (f64, [f64; 2]) {
    let model = model(Family::Dropout, 4);
    let rows = 6 * pieces;
    let case = Case {
        family: Family::Dropout,
        width: 4,
        rows: rows as usize,
        steps: 1,
        adapters: vec![AdapterSpec::new("sim", 0.0, 1.0); 2],
        split: SplitMode::Learned,
        accumulation_steps: pieces,
        capacity: 6,
        is_weighted: false,
        optimizer: Optimizer::sgd(LEARNING_RATE, 0.0),
        clip_norm: 0.0,
        seed: 1,
        division: Some(((0..model.n_nodes()).map(|node| usize::from(node > 1)).collect(), vec![0, 1])),
    };
    let mut world = World::new(case.adapters.clone());
    let (opener, runtime, adapters) = (world.opener(), world.runtime(), world.adapters());
    let step = async {
        let objective = case.objective();
        let rig = case.rig(&model, &objective).adapters(adapters).opener(opener).runtime(runtime.clone());
        let mut scheduler = rig.open().await?;
        let start_ms = runtime.now_ms();
        let numbers =
            Step { step: 0, seed: 0, learning_rate: LEARNING_RATE, loss_scales: case.loss_scales(), ..Step::default() };
        let report = scheduler.train(&case.batch(0), &numbers).await?;
        let busy_ms = |idx: usize| report.shards[idx].timing.busy_ms();
        Ok((runtime.now_ms() - start_ms, [busy_ms(0), busy_ms(1)]))
    };
    let timed: Result<Result<(f64, [f64; 2])>> = world.run(LIMIT_MS, step);
    timed.unwrap().unwrap()
}

/// A piece takes 6 ms to train and a third of that to go forward. The first stage does both, and first of all goes forward
/// with the first piece; the last stage trains each piece when it comes; then the first stage ends the last one.
#[test]
fn pieces_fill_and_drain_the_stages_as_the_closed_form_says() {
    for pieces in 1..=4 {
        let (took_ms, [first_ms, last_ms]) = step_ms(pieces);
        let pieces = f64::from(pieces);
        assert!((took_ms - (2.0 + 6.0 * pieces + 6.0)).abs() < 1e-9, "{pieces} pieces take {took_ms} ms");
        assert!((first_ms - 8.0 * pieces).abs() < 1e-9 && (last_ms - 6.0 * pieces).abs() < 1e-9);
    }
    // With many, the first stage, which has most to do, waits for the last piece alone.
    for pieces in [8, 16, 32] {
        let (took_ms, [first_ms, _]) = step_ms(pieces);
        assert!(took_ms - first_ms < 6.0 + 1e-9, "{pieces} pieces: idle for {} of {took_ms} ms", took_ms - first_ms);
    }
}

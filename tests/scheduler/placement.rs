//! Is the placement that is chosen as fast as the best of all, and does it fit the memory?

#![allow(clippy::unwrap_used, reason = "a test stands outside the engine: it panics")]

use manyhands::adapters::Kind;
use manyhands::layers::{Activation, Conv2D, Dense, Flatten, MaxPooling2D};
use manyhands::placer::rig::{choose, simulate};
use manyhands::simulator::{self, AdapterSpec, HostSpec, RigConfig};
use manyhands::{ChosenPlacement, Compile, ErrorKind, Loss, Model, Optimizer, Placement, Sequential, Trainer};
use manyhands_engine::shown::bytes as shown_bytes;

/// Four layers of unequal cost: 128 rows of 4 times 512 values.
fn model() -> Model {
    let dense = |width| Dense::new(width).activation(Activation::Relu);
    let model = Sequential::new([256]).add_named("a", dense(512)).add_named("b", dense(512));
    model.add_named("c", dense(256)).add_named("d", Dense::new(10)).build(0).unwrap()
}

fn adapter(name: &str, per_row_ms: f64, link_gb_s: f64) -> AdapterSpec {
    let link = Some(link_gb_s);
    AdapterSpec { upload_gb_s: link, download_gb_s: link, latency_ms: 0.02, ..AdapterSpec::new(name, 0.1, per_row_ms) }
}

fn rig(batch_size: u32, micro_batches: Option<u32>, adapters: Vec<AdapterSpec>) -> RigConfig {
    RigConfig {
        batch_size,
        micro_batches,
        placement: Placement::Auto,
        host: HostSpec { copy_gb_s: 20.0 },
        adapters,
        model: Some(model().config()),
        ..RigConfig::default()
    }
}

/// Every division of the layers over stages of one adapter each, in any order, all adapters in use.
fn divisions(n_adapters: usize) -> Vec<Placement> {
    let names = ["a", "b", "c", "d"];
    let orders: Vec<Vec<usize>> = match n_adapters {
        2 => vec![vec![0, 1], vec![1, 0]],
        _ => [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]].map(Vec::from).into(),
    };
    let mut cuts: Vec<Vec<usize>> = (1..4).map(|cut| vec![cut]).collect();
    if n_adapters == 3 {
        cuts = vec![vec![1, 2], vec![1, 3], vec![2, 3]];
    }
    let of = |cuts: &Vec<usize>, order: &Vec<usize>| {
        let ends = cuts.iter().copied().chain([4]);
        let starts = std::iter::once(0).chain(cuts.iter().copied());
        let stages = starts.zip(ends).zip(order);
        Placement::stages(stages.map(|((start, end), adapter)| {
            (names[start..end].iter().map(ToString::to_string).collect::<Vec<_>>(), [*adapter])
        }))
    };
    cuts.iter().flat_map(|cuts| orders.iter().map(move |order| of(cuts, order))).collect()
}

/// Milliseconds of a step of a rig's placement, and of copies on all adapters.
fn step_ms(rig: &RigConfig) -> (Option<f64>, Option<f64>) {
    let report = simulator::simulate(rig).unwrap();
    let copies = report.strong.iter().map(|point| point.step_ms).reduce(f64::min);
    (report.staged.map(|staged| staged.step_ms), copies)
}

#[test]
fn the_choice_is_as_fast_as_every_other() {
    let fast_links = vec![adapter("x", 0.02, 10.0), adapter("y", 0.03, 10.0)];
    let slow_links = vec![adapter("x", 0.02, 0.2), adapter("y", 0.03, 0.2)];
    let three = vec![adapter("x", 0.02, 0.3), adapter("y", 0.05, 0.3), adapter("z", 0.01, 0.3)];
    for (batch_size, adapters) in [(128, fast_links), (128, slow_links.clone()), (16, slow_links), (64, three)] {
        for micro_batches in [None, Some(4)] {
            let rig = rig(batch_size, micro_batches, adapters.clone());
            let (report, chosen) = simulate(&rig).unwrap();
            let chosen = chosen.unwrap();
            let copies_ms = report.strong.iter().map(|point| point.step_ms).fold(f64::INFINITY, f64::min);
            let chosen_ms = report.staged.as_ref().map_or(copies_ms, |staged| staged.step_ms);
            let tried = micro_batches.map_or(vec![2, 4, 8, 16], |pieces| vec![pieces]);
            for placement in divisions(adapters.len()) {
                for pieces in &tried {
                    let other = RigConfig { placement: placement.clone(), micro_batches: Some(*pieces), ..rig.clone() };
                    let other_ms = step_ms(&other).0.unwrap();
                    assert!(
                        chosen_ms <= 1.06 * other_ms,
                        "{batch_size} rows on {}: chosen {chosen}\n{chosen_ms} ms, but {placement:?} in {pieces} pieces takes \
                         {other_ms} ms",
                        adapters.len()
                    );
                }
            }
            // Copies in one piece, as here, are what `micro_batches` of them would at best take.
            if micro_batches.is_none() {
                assert!(chosen_ms <= 1.05 * copies_ms, "chosen {chosen}, copies {copies_ms} ms");
                assert!(chosen.is_staged() || chosen.step_ms <= 1.06 * copies_ms, "{chosen}, copies {copies_ms} ms");
            }
        }
    }
}

/// Eight equal layers, of which a row hands 256 values over.
fn even(batch_size: u32, adapters: Vec<AdapterSpec>) -> RigConfig {
    let layers = (0..8).fold(Sequential::new([256]), |model, _| model.add(Dense::new(256)));
    RigConfig { model: Some(layers.build(0).unwrap().config()), ..rig(batch_size, None, adapters) }
}

fn choice(rig: &RigConfig) -> ChosenPlacement {
    let model = rig.model.as_ref().unwrap().build(0).unwrap();
    choose(rig, &model).unwrap()
}

/// Convolutions with few weights before layers with many.
fn convolutions(batch_size: u32, adapters: Vec<AdapterSpec>) -> RigConfig {
    let conv = || Conv2D::new(16, [3, 3]).same().activation(Activation::Relu);
    let model = Sequential::new([16, 16, 1]).add(conv()).add(conv()).add(conv()).add(conv()).add(conv());
    let model = model.add(MaxPooling2D::new([4, 4])).add(Flatten::default()).add(Dense::new(2048)).add(Dense::new(512));
    RigConfig { model: Some(model.build(0).unwrap().config()), ..rig(batch_size, None, adapters) }
}

/// Gradients and weights of 1.3 million parameters take 42 ms on the slow link: a copy behind it is of no use. Rows between
/// the convolutions and the layers behind them are small.
#[test]
fn stages_use_an_adapter_behind_a_slow_link() {
    let chosen = choice(&convolutions(64, vec![adapter("near", 0.6, 10.0), adapter("far", 0.6, 0.25)]));
    assert!(chosen.is_staged(), "{chosen}");
    let copies = chosen.copies_ms.unwrap();
    assert!(chosen.step_ms < 0.95 * copies, "{chosen}");
    assert_eq!(chosen.stages[0].adapters, ["far"], "{chosen}");
    let text = chosen.to_string();
    assert!(text.starts_with("placement: 2 stages, ") && text.contains("replicas would take"), "{text}");
    // On fast links nothing is as fast as copies.
    let chosen = choice(&convolutions(512, vec![adapter("x", 0.2, 50.0), adapter("y", 0.2, 50.0)]));
    assert!(!chosen.is_staged() && chosen.staged_ms.is_some(), "{chosen}");
}

#[test]
fn memory_forces_stages_and_every_stage_fits() {
    let limited = |name: &str, per_row_ms: f64, mb: f64| AdapterSpec {
        memory_gb: Some(mb / 1e3),
        ..adapter(name, per_row_ms, 50.0)
    };
    let limits = [("x", 20.0), ("y", 20.0), ("z", 2.0)];
    let rig = even(256, limits.map(|(name, mb)| limited(name, 0.01, mb)).into());
    let (report, chosen) = simulate(&rig).unwrap();
    let chosen = chosen.unwrap();
    assert!(chosen.is_staged() && chosen.copies_ms.is_none() && chosen.lacking.len() == 3, "{chosen}");
    assert!(report.strong.is_empty() && report.notes.len() == 3, "{report}");
    for stage in &chosen.stages {
        for (name, bytes) in stage.adapters.iter().zip(&stage.bytes) {
            let (_, mb) = limits.iter().find(|(limited, _)| limited == name).unwrap();
            assert!(*bytes as f64 <= mb * 1e6, "{chosen}");
        }
    }
    assert!(chosen.to_string().contains("replicas do not fit\na replica does not fit on x: it lacks "), "{chosen}");
}

/// Gradients and weights of 0.5 million parameters take 11 ms on the slow links, and go nowhere if one adapter updates by itself.
#[test]
fn adapters_without_which_a_step_is_faster_are_left_out() {
    let slow = || adapter("slow", 0.2, 0.2);
    let three = rig(64, None, vec![slow(), adapter("fast", 0.05, 0.2), slow()]);
    let (report, chosen) = simulate(&three).unwrap();
    let chosen = chosen.unwrap();
    assert!(!chosen.is_staged(), "{chosen}");
    assert_eq!(chosen.stages[0].adapters, ["fast"], "{chosen}");
    assert_eq!(chosen.left_out, ["slow", "slow"], "{chosen}");
    // The first line of the report is the fastest adapter alone, the last all of them.
    let [alone, .., all] = report.strong.as_slice() else { panic!("{report}") };
    assert!((chosen.step_ms / alone.step_ms - 1.0).abs() < 0.02, "{chosen}\n{report}");
    let all_ms = chosen.all_copies_ms.unwrap();
    assert!((all_ms / all.step_ms - 1.0).abs() < 0.02 && chosen.step_ms < 0.95 * all_ms, "{chosen}\n{report}");
    assert!(chosen.to_string().contains("\nleft out: slow, slow; with all adapters, replicas would take "), "{chosen}");
    // One that gets no rows costs nothing: it is kept, since it may be faster later.
    let fast = |name: &str| adapter(name, 1.0, 2.0);
    let kept =
        choice(&rig(256, None, vec![fast("x"), AdapterSpec { upload_gb_s: Some(0.005), ..fast("far") }, fast("y")]));
    assert!(kept.left_out.is_empty() && kept.stages[0].adapters.len() == 3, "{kept}");
}

/// Whether a copy fits, by what it lacks: for the placement, for the prediction, and for the trainer it is one sum.
#[test]
fn all_say_the_same_of_a_copy_that_fits_in_pieces_or_not_at_all() {
    let (rows, model) = (256, model());
    let compile = Compile::new(Optimizer::adam(1e-3), Loss::MEAN_SQUARED_ERROR);
    let trainer = Trainer::new(model.clone(), compile).unwrap();
    let need = |limit| trainer.memory_need(Kind::DiscreteGpu, rows as usize, 1, limit).unwrap();
    let whole = need(None).unwrap().bytes;
    // One row by the plan for one piece, which is not enough: pieces add their gradients, which takes more.
    let one_row = trainer.memory_need(Kind::DiscreteGpu, 1, 1, None).unwrap().unwrap().bytes;
    let mut seen = [0; 3];
    for limit in [one_row - 1, one_row, one_row + (one_row >> 8), (one_row + whole) / 2, whole - 1, whole] {
        // Half a byte more, which no rounding loses.
        let memory_gb = Some((limit as f64 + 0.5) / 1e9);
        let limited = AdapterSpec { memory_gb, ..adapter("limited", 0.01, 50.0) };
        let rig = rig(rows, None, vec![limited, adapter("x", 0.01, 50.0)]);
        let (report, chosen) = simulate(&rig).unwrap();
        let (chosen, need) = (chosen.unwrap(), need(Some(limit)));
        let lacking: Vec<&str> = chosen.lacking.iter().map(|(name, _)| name.as_str()).collect();
        let expected: &[&str] = if need.is_none() { &["limited"] } else { &[] };
        assert_eq!(lacking, expected, "{limit} bytes: {chosen}");
        assert_eq!(report.adapters.contains(&"limited".to_owned()), need.is_some(), "{limit} bytes: {report}");
        if let Some((_, missing)) = chosen.lacking.first() {
            let told = format!("it has too little memory for one row: it needs {} more", shown_bytes(*missing));
            assert!(*missing > 0 && report.to_string().contains(&told), "{told}\n{report}");
        }
        seen[need.map_or(0, |need| if need.rows < rows { 1 } else { 2 })] += 1;
    }
    assert!(seen.iter().all(|count| *count > 0), "not at all, in pieces, at once: {seen:?}");
}

#[test]
fn copies_go_where_they_fit() {
    let small = AdapterSpec { memory_gb: Some(0.003), ..adapter("small", 0.5, 0.1) };
    let chosen = choose(&rig(256, None, vec![small, adapter("x", 0.01, 50.0)]), &model()).unwrap();
    assert!(!chosen.is_staged(), "{chosen}");
    assert_eq!(chosen.stages[0].adapters, ["x"], "{chosen}");
}

/// One row is one piece: the stages compute one after the other, and each holds its own weights alone.
#[test]
fn a_batch_of_one_row_is_divided_where_no_copy_fits() {
    let half = || AdapterSpec { memory_gb: Some(0.025), ..adapter("half", 0.01, 10.0) };
    let chosen = choose(&rig(1, None, vec![half(), half()]), &model()).unwrap();
    assert!(chosen.is_staged(), "{chosen}");
    assert_eq!(chosen.micro_batches, 1, "{chosen}");
    for stage in &chosen.stages {
        assert!(stage.bytes.iter().all(|bytes| *bytes <= 25_000_000), "{chosen}");
    }
}

#[test]
fn what_fits_nowhere_is_told_with_the_missing_bytes() {
    let tiny = || AdapterSpec { memory_gb: Some(0.002), ..adapter("tiny", 0.01, 10.0) };
    let error = choose(&rig(64, None, vec![tiny(), tiny()]), &model()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let text = error.to_string();
    assert!(text.contains("even in the best division, with one row, an adapter lacks 14.8 MB"), "{text}");
    assert!(text.contains("`memory`") && text.contains("`micro_batches`") && text.contains("`cpu`"), "{text}");
}

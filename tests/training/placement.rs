//! Is a placement that is chosen by measurement trained as one adapter, and does it follow what is measured later?

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use manyhands::adapters::{Info, Kind, MemoryLimits};
use manyhands::data::{Batch, InMemory, digits};
use manyhands::layers::{Activation, BatchNormalization, Dense, Dropout, Flatten};
use manyhands::losses::SparseCategoricalCrossentropy;
use manyhands::simulator::World;
use manyhands::simulator::{AdapterSpec, Slowdown};
use manyhands::{
    AdapterStatus, Compile, CpuFallback, ErrorKind, Fit, Loss, Model, Optimizer, Placement, Sequential, SplitMode,
    Trainer,
};
use manyhands_engine::adapters::Request;
use ndarray::{Array, IxDyn};

use crate::close::assert_close;
use crate::keras::on;
use crate::needed;

const ROWS: usize = 32;

fn model() -> Model {
    let dense = |width| Dense::new(width).activation(Activation::Tanh);
    let model = Sequential::new([8, 8, 1]).add(Flatten::default()).add(dense(40)).add(dense(40));
    model.add(dense(40)).add(Dropout::new(0.2)).add(dense(40)).add(Dense::new(10)).build(2).unwrap()
}

fn trainer() -> Trainer {
    let compile = Compile::new(Optimizer::adam(0.01), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    Trainer::new(model(), compile).unwrap().cpu_fallback(CpuFallback::Refused)
}

/// Weights after an epoch of whole batches.
fn run(mut trainer: Trainer, micro_batches: u32) -> (Vec<f32>, Trainer) {
    let mut fit = Fit::new(1).batch_size(ROWS).in_order().micro_batches(micro_batches);
    fit.drop_remainder = true;
    trainer.fit(digits::train().unwrap(), &fit).unwrap();
    (trainer.model().weights.parameters.concat(), trainer)
}

/// Limits of two thirds of what a copy takes for one row at once.
fn limits(adapters: &[Info]) -> MemoryLimits {
    let free = trainer();
    adapters.iter().fold(MemoryLimits::default(), |limits, info| {
        let one_row = free.memory_need(info.kind, 1, 1, None).unwrap().unwrap().bytes;
        limits.limit(info.name.clone(), one_row / 3 * 2)
    })
}

#[test]
fn the_chosen_placement_trains_to_the_weights_of_one_adapter() {
    let (alone, _) = run(trainer().on(vec![Info::cpu()]), 1);
    let gpus = needed::gpu_indices();
    let mixed = gpus.iter().take(2).cloned().chain(["cpu".to_owned()]).collect::<Vec<_>>().join(",");
    for rig in ["cpu,cpu", &mixed] {
        for is_limited in [false, true] {
            let auto = trainer().on(on(rig)).placement(Placement::Auto);
            let auto = if is_limited { auto.memory(limits(&on(rig))) } else { auto };
            let (weights, auto) = run(auto, 1);
            let chosen = auto.chosen_placement().unwrap();
            println!("{rig}: {chosen}");
            assert_close(rig, &weights, &alone, if rig == "cpu,cpu" { 1e-5 } else { 1e-4 });
            if is_limited {
                assert!(chosen.is_staged() && chosen.copies_ms.is_none(), "{chosen}");
                let limits = limits(&on(rig));
                for (idx, adapter) in auto.open_adapters().iter().enumerate() {
                    let limit = limits.of(idx, &adapter.info, &on(rig)).unwrap();
                    assert!(adapter.bytes <= limit, "{}: {} of {limit}", adapter.info.name, adapter.bytes);
                }
            }
        }
    }
}

/// Weights of positions follow from the labels, which only the last stage reads.
#[test]
fn positions_that_do_not_count_are_left_out_in_a_chosen_placement() {
    let of = |adapters: &str, placement| {
        let block = |model: Sequential| model.add(Dense::new(60).activation(Activation::Tanh)).add(Dense::new(8));
        let model = (0..4).fold(Sequential::new([8, 8]), |model, _| block(model)).add(Dense::new(3)).build(2).unwrap();
        let loss =
            SparseCategoricalCrossentropy { ignore_class: Some(-100), ..SparseCategoricalCrossentropy::default() };
        let compile = Compile::new(Optimizer::adam(0.01), loss);
        let trainer = Trainer::new(model, compile).unwrap().cpu_fallback(CpuFallback::Refused).on(on(adapters));
        let need = trainer.memory_need(Kind::Cpu, 1, 1, None).unwrap().unwrap().bytes;
        let mut trainer = match placement {
            Placement::Auto => trainer.memory(MemoryLimits::default().limit("cpu", need / 3 * 2)),
            _ => trainer,
        }
        .placement(placement);
        let number = |at: usize| f32::from(u16::try_from(at * 7919 % 101).unwrap());
        let inputs =
            Array::from_shape_fn(IxDyn(&[ROWS, 8, 8]), |at| number(at[0] * 64 + at[1] * 8 + at[2]) / 50.0 - 1.0);
        let label = |at: usize| if at % 3 == 1 { -100.0 } else { number(at) % 3.0 };
        let labels = Array::from_shape_fn(IxDyn(&[ROWS, 8]), |at| label(at[0] * 8 + at[1]));
        trainer.fit(InMemory::new(inputs, labels).unwrap(), &Fit::new(2).batch_size(ROWS / 2).in_order()).unwrap();
        (trainer.model().weights.parameters.concat(), trainer.chosen_placement().map(|chosen| chosen.is_staged()))
    };
    let (alone, _) = of("cpu", Placement::Replicas);
    let (placed, is_staged) = of("cpu,cpu", Placement::Auto);
    assert_eq!(is_staged, Some(true));
    assert_close("placed", &placed, &alone, 1e-5);
}

/// Runs that wait for combined values in their midst are measured, too.
#[test]
fn statistics_of_the_whole_batch_are_placed_by_measurement() {
    let of = |adapters: Vec<Info>, placement| {
        let norm = BatchNormalization::new().synchronized();
        let model =
            Sequential::new([8, 8, 1]).add(Flatten::default()).add(Dense::new(20)).add(norm).add(Dense::new(10));
        let compile = Compile::new(Optimizer::sgd(0.01, 0.0), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
        let trainer = Trainer::new(model.build(1).unwrap(), compile).unwrap().cpu_fallback(CpuFallback::Refused);
        run(trainer.on(adapters).placement(placement), 1)
    };
    let (alone, _) = of(vec![Info::cpu()], Placement::Replicas);
    let (weights, auto) = of(vec![Info::cpu(); 2], Placement::Auto);
    let chosen = auto.chosen_placement().unwrap();
    assert!(!chosen.is_staged(), "{chosen}");
    assert_close("cpu,cpu", &weights, &alone, 1e-5);
}

/// Trains on two simulated adapters in virtual time; gives the weights, and the layers of the stages before and after.
fn simulated(slowdowns: Vec<Slowdown>, placement: Placement, steps: usize) -> (Vec<f32>, [Vec<String>; 2]) {
    let adapter = |name: &str, slowdowns| AdapterSpec {
        gflops: Some(0.01),
        memory_gb_s: Some(0.01),
        slowdowns,
        ..AdapterSpec { name: name.into(), fixed_ms: 0.01, ..AdapterSpec::default() }
    };
    let mut world = World::new(vec![adapter("first", slowdowns), adapter("second", Vec::new())]);
    let mut limits = MemoryLimits::default();
    for name in ["first", "second"] {
        let one_row = trainer().memory_need(Kind::DiscreteGpu, 1, 1, None).unwrap().unwrap().bytes;
        limits = limits.limit(name, one_row / 6 * 5);
    }
    let mut trainer = trainer().on(world.adapters()).opener(world.opener()).runtime(world.runtime());
    trainer = trainer.memory(limits).placement(placement);
    let digits = digits::train().unwrap();
    let all = async {
        let layers = |trainer: &Trainer| -> Vec<String> {
            let chosen = trainer.chosen_placement();
            chosen.into_iter().flat_map(|it| it.stages).map(|stage| stage.layers).collect()
        };
        let mut before = Vec::new();
        for step in 0..steps {
            let rows: Vec<usize> = (step * ROWS..(step + 1) * ROWS).map(|row| row % 1000).collect();
            trainer.asynchronous().begin_on_batch(Batch::fetch(&digits, &rows).unwrap()).await.unwrap();
            if step == 0 {
                before = layers(&trainer);
            }
            trainer.asynchronous().end_on_batch().await.unwrap();
        }
        let weights = trainer.asynchronous().current_model().await.unwrap().weights.parameters.concat();
        (weights, [before, layers(&trainer)])
    };
    world.run(1e12, all).unwrap()
}

#[test]
fn layers_move_away_from_an_adapter_that_grows_slow_and_no_bit_is_lost() {
    let slow = Slowdown { from_ms: 2_000.0, to_ms: 1e12, factor: 6.0 };
    let (steady, [before, after]) = simulated(Vec::new(), Placement::Auto, 40);
    assert_eq!(before, after, "nothing moves while speeds are as they were measured");
    assert_eq!(before.len(), 2);
    let (weights, [before, after]) = simulated(vec![slow], Placement::Auto, 40);
    assert_ne!(before, after, "layers move");
    assert_eq!(weights, steady, "the same pieces, so the same bits");
}

/// An epoch on two slow adapters and a fast one, which trains by itself; it is lost after the step of that number. Gives the weights.
fn beside_slow_ones(lost: Option<u64>) -> (Vec<f32>, Trainer) {
    let adapter = |name: &str, gflops| AdapterSpec {
        gflops: Some(gflops),
        upload_gb_s: Some(0.001),
        download_gb_s: Some(0.001),
        ..AdapterSpec { name: name.into(), fixed_ms: 0.01, ..AdapterSpec::default() }
    };
    let mut world = World::new(vec![adapter("slow", 0.01), adapter("fast", 1.0), adapter("slow too", 0.01)]);
    let mut trainer = trainer().on(world.adapters()).opener(world.opener()).runtime(world.runtime());
    trainer = trainer.placement(Placement::Auto);
    let fit = Fit::new(1).batch_size(ROWS).in_order().workers(0);
    let all = async {
        let mut session = trainer.asynchronous().session(digits::train().unwrap(), fit).await.unwrap();
        let mut lost = lost;
        while let Some(log) = session.step_async(&mut trainer).await.unwrap() {
            if lost == Some(log.step) {
                drop(trainer.scheduler().unwrap().handle(1).requests.try_send(Request::Lose));
                lost = None;
            }
        }
        session.end_epoch_async(&mut trainer).await.unwrap();
        let weights = trainer.asynchronous().current_model().await.unwrap().weights.parameters.concat();
        (weights, trainer)
    };
    world.run(1e12, all).unwrap()
}

#[test]
fn adapters_that_are_left_out_take_over_when_the_others_are_lost() {
    let statuses = |trainer: &Trainer| trainer.open_adapters().into_iter().map(|it| it.status).collect::<Vec<_>>();
    let (expected, alone) = beside_slow_ones(None);
    let chosen = alone.chosen_placement().unwrap();
    assert_eq!(
        (chosen.stages[0].adapters.as_slice(), chosen.left_out.len()),
        (&["fast".to_owned()][..], 2),
        "{chosen}"
    );
    let is_excluded = [true, false, true].map(|is_excluded| AdapterStatus::Active { is_excluded });
    assert_eq!(statuses(&alone), is_excluded);
    for lost in [1, 7] {
        let (weights, trainer) = beside_slow_ones(Some(lost));
        assert!(
            matches!(statuses(&trainer)[0], AdapterStatus::Active { is_excluded: false }),
            "{:?}",
            statuses(&trainer)
        );
        assert_close(&format!("lost after step {lost}"), &weights, &expected, 1e-5);
    }
}

#[test]
fn a_stage_that_loses_its_only_adapter_is_placed_anew() {
    let (expected, _) = run(trainer().on(vec![Info::cpu()]), 4);
    for lost in [0, 1, 2] {
        let adapters = vec![Info::cpu(); 3];
        let limits =
            MemoryLimits::default().limit("cpu", limits(&adapters).of(0, &Info::cpu(), &adapters).unwrap() / 10 * 13);
        let mut trainer = trainer().on(adapters).memory(limits).placement(Placement::Auto);
        let fit = Fit::new(1).batch_size(ROWS).in_order().micro_batches(4);
        let mut fit = fit;
        fit.drop_remainder = true;
        let mut session = trainer.session(digits::train().unwrap(), fit).unwrap();
        let first = trainer.chosen_placement().unwrap();
        assert!(first.is_staged(), "{first}");
        let mut steps = 0;
        while session.step(&mut trainer).unwrap().is_some() {
            steps += 1;
            if steps == 3 {
                let handle = trainer.scheduler().unwrap().handle(lost);
                drop(handle.requests.try_send(Request::Lose));
            }
        }
        session.end_epoch(&mut trainer).unwrap();
        // No CPU adapter took over: the fallback is refused.
        assert_eq!(trainer.open_adapters().len(), 3);
        let weights = trainer.model().weights.parameters.concat();
        assert_close(&format!("adapter {lost} lost"), &weights, &expected, 1e-5);
    }
}

#[test]
fn one_adapter_or_a_given_split_leaves_nothing_to_choose() {
    let (_, lone) = run(trainer().on(vec![Info::cpu()]).placement(Placement::Auto), 1);
    assert!(lone.chosen_placement().is_none());
    let split = SplitMode::Fixed(vec![1.0, 3.0]);
    let (_, split) = run(trainer().on(vec![Info::cpu(); 2]).split(split).placement(Placement::Auto), 1);
    assert!(split.chosen_placement().is_none());
}

#[test]
fn nothing_fits_is_an_error_before_the_first_step() {
    let limits = MemoryLimits::default().limit("cpu", 20_000);
    let mut trainer = trainer().on(vec![Info::cpu(); 2]).memory(limits).placement(Placement::Auto);
    let error = trainer.fit(digits::train().unwrap(), &Fit::new(1).batch_size(ROWS)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("an adapter lacks "), "{error}");
}

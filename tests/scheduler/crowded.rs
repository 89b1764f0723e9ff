//! Simulated adapters that share cores: does each take as long as those beside it make it?

#![allow(clippy::unwrap_used, reason = "a test stands outside the engine: it panics")]

use manyhands::data::{Batch, digits};
use manyhands::layers::{Activation, Dense, Flatten};
use manyhands::simulator::{AdapterSpec, HostSpec, Point, RigConfig, simulate};
use manyhands::simulator::{Crowding, World};
use manyhands::{Compile, CpuFallback, Loss, Optimizer, Placement, Sequential, Trainer};
use manyhands_engine::timing::median;

use crate::close::assert_relative;

fn adapter(name: &str, fixed_ms: f64, per_row_ms: f64, crowding: Option<Crowding>) -> AdapterSpec {
    AdapterSpec { crowding, ..AdapterSpec::new(name, fixed_ms, per_row_ms) }
}

fn beside(own: usize, n_others: usize, factor: f64) -> Option<Crowding> {
    Some(Crowding::even(own, n_others + 1, factor))
}

fn rig(adapters: Vec<AdapterSpec>) -> RigConfig {
    let host = HostSpec { copy_gb_s: 1e6 };
    RigConfig { batch_size: 256, preset: Some("mlp".into()), host, adapters, ..RigConfig::default() }
}

fn all(rig: &RigConfig) -> Point {
    simulate(rig).unwrap().strong.last().unwrap().clone()
}

#[test]
fn adapters_on_the_same_cores_are_no_faster_than_one() {
    for n_others in 1..4 {
        let factor = (n_others + 1) as f64;
        let adapter = |idx: usize| adapter(&idx.to_string(), 0.0, 0.1, beside(idx, n_others, factor));
        let point = all(&rig((0..=n_others).map(adapter).collect()));
        assert_relative("ms of a step", &[point.step_ms], &[25.6], 0.03);
    }
}

/// The time of one that is slow beside another is that of its parts beside it and without it.
#[test]
fn an_adapter_is_as_fast_as_it_was_from_when_the_others_end() {
    // The second has 20 ms of work whatever its rows, and ends then; the first one is at half its speed until then.
    let point = all(&rig(vec![adapter("crowded", 0.0, 0.1, beside(0, 1, 2.0)), adapter("other", 20.0, 0.2, None)]));
    let [crowded, other] = point.shares[..] else { panic!("{point:?}") };
    let other_ms = 20.0 + 0.2 * f64::from(other);
    let work_ms = 0.1 * f64::from(crowded);
    let expected = if other == 0 { work_ms } else { (other_ms + (work_ms - other_ms / 2.0)).max(other_ms) };
    assert_relative("ms of a step", &[point.step_ms], &[expected], 0.03);
}

/// A CPU and two cards of software that compute on its cores: each is faster while the others are idle.
fn crowded(slow: f64) -> World {
    let adapter = |own: usize, name: &str, gflops, factor| AdapterSpec {
        gflops: Some(gflops),
        memory_gb_s: Some(gflops),
        upload_gb_s: Some(1.0),
        download_gb_s: Some(1.0),
        crowding: beside(own, 2, factor),
        ..AdapterSpec { name: name.into(), fixed_ms: 0.1, ..AdapterSpec::default() }
    };
    let cards = [adapter(0, "card", slow, 1.3), adapter(1, "slow card", slow / 8.0, 1.1)];
    World::new(cards.into_iter().chain([adapter(2, "fast", 0.1, 2.5)]).collect())
}

const ROWS: usize = 32;

fn trainer(world: &World, on: &[usize]) -> Trainer {
    let dense = || Dense::new(40).activation(Activation::Tanh);
    let model = Sequential::new([8, 8, 1]).add(Flatten::default()).add(dense()).add(dense()).add(Dense::new(10));
    let compile = Compile::new(Optimizer::adam(0.01), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let adapters = on.iter().map(|idx| world.adapters()[*idx].clone()).collect();
    let trainer = Trainer::new(model.build(2).unwrap(), compile).unwrap().cpu_fallback(CpuFallback::Refused);
    trainer.on(adapters).opener(world.opener()).runtime(world.runtime())
}

/// Runs steps in virtual time; gives the milliseconds of each.
fn steps_ms(world: &mut World, trainer: &mut Trainer, steps: usize) -> Vec<f64> {
    let (digits, runtime) = (digits::train().unwrap(), world.runtime());
    let all = async {
        let mut times = Vec::new();
        for step in 0..steps {
            let rows: Vec<usize> = (step * ROWS..(step + 1) * ROWS).map(|row| row % 1000).collect();
            let start_ms = runtime.now_ms();
            trainer.asynchronous().begin_on_batch(Batch::fetch(&digits, &rows).unwrap()).await.unwrap();
            trainer.asynchronous().end_on_batch().await.unwrap();
            times.push(runtime.now_ms() - start_ms);
        }
        times
    };
    world.run(1e12, all).unwrap()
}

/// Adapters are measured by themselves, in pairs and all at once. Then replicas are predicted, and measured in a world of their own
/// after the scheduler has excluded those that slow a step down.
#[test]
fn the_prediction_of_replicas_is_of_the_settled_state() {
    for slow in [0.003, 0.02, 0.06] {
        let all = [0, 1, 2];
        let mut world = crowded(slow);
        let mut chooser = trainer(&world, &all).placement(Placement::Auto);
        steps_ms(&mut world, &mut chooser, 1);
        for on in [&all[..], &[0, 2], &[2]] {
            let predicted = chooser.predicted_ms(&Placement::Replicas, on, 1).unwrap().unwrap();
            let mut world = crowded(slow);
            let mut trainer = trainer(&world, on);
            let times = steps_ms(&mut world, &mut trainer, 120);
            let measured = median(times[100..].iter().copied());
            let error = predicted / measured - 1.0;
            assert!(error.abs() < 0.15, "{slow}, {on:?}: {predicted:.2} ms predicted, {measured:.2} ms measured");
        }
    }
}

/// Two stages with a single piece compute one after the other.
#[test]
fn stages_that_wait_for_each_other_do_not_slow_each_other_down() {
    let of = |micro_batches, factor| {
        let placement = Placement::stages([(["..dense"], [0]), (["dense_1.."], [1])]);
        let adapters = [0, 1].map(|own| adapter(&own.to_string(), 0.0, 0.1, beside(own, 1, factor))).into();
        let rig = RigConfig { placement, micro_batches: Some(micro_batches), ..rig(adapters) };
        simulate(&rig).unwrap().staged.unwrap().step_ms
    };
    assert_relative("ms of a step", &[of(1, 2.0)], &[of(1, 1.0)], 1e-9);
    let (free, crowded) = (of(8, 1.0), of(8, 2.0));
    assert!(crowded > 1.3 * free && crowded < 2.0 * free, "{crowded} ms, {free} ms");
    // No more at once than one after the other.
    assert!(crowded < 1.05 * of(1, 1.0), "{crowded} ms");
}

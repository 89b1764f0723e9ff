//! Does the timeline tell what ran where, does its trace hold what Perfetto needs, and does the summary name the cause
//! of a slow run?

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stands outside the engine: it panics")]

use std::collections::BTreeMap;
use std::sync::Arc;

use manyhands::data::{BatchMut, Dataset, digits};
use manyhands::layers::{Activation, BatchNormalization, Conv2D, Dense, Flatten};
use manyhands::logs::TimeSummary;
use manyhands::simulator::{AdapterSpec, World};
use manyhands::{Compile, Fit, Loss, Model, Optimizer, Result, Sequential, Shape, SplitMode, Trainer};
use manyhands_engine::runtime::Runtime;
use serde_json::Value;

use crate::needed;

/// The middle exchange of the batch normalization lets adapters wait for each other within a run.
fn model() -> Model {
    Sequential::new([8, 8, 1])
        .add(Conv2D::new(4, [3, 3]).same().no_bias())
        .add(BatchNormalization::new().synchronized())
        .add(Flatten::default())
        .add(Dense::new(32).activation(Activation::Relu))
        .add(Dense::new(10))
        .build(1)
        .unwrap()
}

fn trainer(adapters: &str, split: SplitMode) -> Trainer {
    let compile = Compile::new(Optimizer::adam(1e-3), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    Trainer::new(model(), compile).unwrap().adapters(adapters).unwrap().split(split)
}

/// The host's thread in a trace; the adapters' follow.
const HOST: u64 = 1;

/// One span of a trace, in nanoseconds.
struct Event {
    name: String,
    thread: u64,
    start: u64,
    end: u64,
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked, and a run takes seconds")]
fn nanoseconds(value: &Value) -> u64 {
    let microseconds = value.as_f64().expect("a number");
    assert!(microseconds >= 0.0);
    (microseconds * 1e3).round() as u64
}

/// Reads a trace as Perfetto's importer does: an array `traceEvents`, whose complete events ("X") have a name, process,
/// thread, start and duration, and whose metadata ("M") name process and threads. Gives names of threads, and spans.
fn read_trace(text: &str) -> (BTreeMap<u64, String>, Vec<Event>) {
    let trace: Value = serde_json::from_str(text).unwrap();
    let (mut threads, mut processes, mut events) = (BTreeMap::new(), Vec::new(), Vec::new());
    for event in trace["traceEvents"].as_array().unwrap() {
        let name = event["name"].as_str().unwrap().to_owned();
        assert_eq!(event["pid"].as_u64(), Some(1));
        let thread = event["tid"].as_u64().unwrap();
        assert!(thread >= HOST, "Perfetto takes thread 0 for none, and lays its spans over those of another");
        match (event["ph"].as_str().unwrap(), name.as_str()) {
            ("X", _) => {
                assert!(event["cat"].is_string() && event["args"].is_object());
                let start = nanoseconds(&event["ts"]);
                events.push(Event { name, thread, start, end: start + nanoseconds(&event["dur"]) });
            }
            ("M", "process_name") => processes.push(event["args"]["name"].as_str().unwrap().to_owned()),
            ("M", "thread_name") => {
                threads.insert(thread, event["args"]["name"].as_str().unwrap().to_owned());
            }
            ("M", "thread_sort_index") => assert!(event["args"]["sort_index"].is_u64()),
            other => panic!("{other:?} is no event that a trace should have"),
        }
    }
    assert_eq!(processes, ["manyhands"]);
    (threads, events)
}

/// Spans of a thread stand in the order of their starts, each within or behind each one before it: the importer drops
/// or misplaces what crosses another.
fn check_nesting(events: &[Event]) {
    let mut open: BTreeMap<u64, Vec<&Event>> = BTreeMap::new();
    for event in events {
        let open = open.entry(event.thread).or_default();
        while open.last().is_some_and(|outer| outer.end <= event.start) {
            open.pop();
        }
        if let Some(outer) = open.last() {
            let crosses = event.start < outer.start || event.end > outer.end;
            assert!(!crosses, "`{}` at {} crosses `{}` at {}", event.name, event.start, outer.name, outer.start);
        }
        open.push(event);
    }
}

fn sum_ms<'a>(events: impl Iterator<Item = &'a Event>) -> f64 {
    events.map(|event| (event.end - event.start) as f64 / 1e6).sum()
}

/// Trains two epochs on some adapters, and checks trace and summary against each other.
fn check_rig(rig: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut trainer = trainer(rig, SplitMode::Even);
    let fit = Fit::new(2).batch_size(96).validation(digits::test().unwrap()).trace(file.path());
    let time = trainer.fit(digits::train().unwrap(), &fit).unwrap().time;
    let (threads, events) = read_trace(&std::fs::read_to_string(file.path()).unwrap());
    check_nesting(&events);

    let n_adapters = rig.split(',').count() as u64;
    assert_eq!(threads.keys().copied().collect::<Vec<_>>(), (HOST..=HOST + n_adapters).collect::<Vec<_>>());
    assert_eq!(threads[&HOST], "host");
    let of = |thread: u64, name: &'static str| {
        events.iter().filter(move |event| event.thread == thread && event.name == name)
    };
    for name in ["wait for data", "step", "reduce", "update", "broadcast", "evaluate"] {
        assert!(of(HOST, name).next().is_some(), "{rig}: the host has no `{name}`");
    }
    assert_eq!(of(HOST, "step").count() as u64, time.steps);
    for thread in HOST + 1..=HOST + n_adapters {
        assert!(threads[&thread].starts_with(&format!("adapter {} ", thread - HOST - 1)), "{}", threads[&thread]);
        for name in ["upload weights", "upload", "compute", "readback", "wait for others"] {
            assert!(of(thread, name).next().is_some(), "{rig}: `{}` has no `{name}`", threads[&thread]);
        }
        // Nothing on an adapter is within something else, so their sum is at most the whole.
        let all_ms = sum_ms(events.iter().filter(|event| event.thread == thread));
        assert!(all_ms > 0.0 && all_ms <= time.ms, "{rig}: {all_ms} ms of {} ms on thread {thread}", time.ms);
    }
    let outer = ["wait for data", "step", "evaluate"];
    let data_in_evaluation = |event: &&Event| {
        event.name == "wait for data" && of(HOST, "evaluate").any(|it| it.start <= event.start && event.end <= it.end)
    };
    let host = events.iter().filter(|event| event.thread == HOST && outer.contains(&event.name.as_str()));
    let host_ms = sum_ms(host.filter(|event| !data_in_evaluation(event)));
    assert!(host_ms <= time.ms, "{rig}: {host_ms} ms of {} ms on the host", time.ms);
    let last = events.iter().map(|event| event.end).max().unwrap();
    assert!(last as f64 / 1e6 <= time.ms, "{rig}: a span ends after the run");
    check_summary(&time, digits::train().unwrap().len() as u64 * 2);
}

fn check_summary(time: &TimeSummary, rows: u64) {
    assert_eq!(time.rows, rows);
    assert_eq!(time.adapters.iter().map(|adapter| adapter.rows).sum::<u64>(), rows);
    check_host(time);
    for it in &time.adapters {
        let ms = it.compute_ms + it.transfer_ms + it.others_ms + it.data_ms + it.idle_ms;
        assert!((ms / time.ms - 1.0).abs() < 1e-6, "{}: {ms} ms of {} ms", it.name, time.ms);
        assert!(it.compute_ms > 0.0 && it.transfer_ms > 0.0, "{it:?}");
    }
}

/// The parts of the host's time sum to the whole: none of it counts twice.
fn check_host(time: &TimeSummary) {
    let host = &time.host;
    let host_ms = host.data_ms
        + host.adapters_ms
        + host.reduce_ms
        + host.processes_ms
        + host.update_ms
        + host.broadcast_ms
        + host.evaluate_ms
        + host.save_ms
        + host.other_ms;
    assert!((host_ms / time.ms - 1.0).abs() < 1e-6, "{host_ms} ms of {} ms", time.ms);
    let text = time.to_string();
    assert!(text.contains("for others") && text.contains("steps/s") && text.contains("host: "), "{text}");
}

#[test]
fn three_cpu_adapters_have_a_trace_and_a_summary() {
    check_rig("cpu,cpu,cpu");
}

#[test]
fn gpus_and_cpu_have_a_trace_and_a_summary() {
    let gpus = needed::gpu_indices();
    match gpus.as_slice() {
        [] => {}
        [one] => check_rig(&format!("{one},{one},cpu")),
        [one, two, ..] => check_rig(&format!("{one},{two},cpu")),
    }
}

#[test]
fn a_run_without_a_trace_has_a_summary() {
    let mut trainer = trainer("cpu", SplitMode::Learned);
    let time = trainer.fit(digits::train().unwrap(), &Fit::new(1).batch_size(96)).unwrap().time;
    check_summary(&time, digits::train().unwrap().len() as u64);
    assert_eq!(trainer.scheduler().unwrap().timeline().spans().count(), 0);
}

#[test]
fn a_trace_that_cannot_be_written_is_an_error() {
    let fit = Fit::new(1).batch_size(96).trace("/no/such/folder/trace.json");
    let error = trainer("cpu", SplitMode::Learned).fit(digits::train().unwrap(), &fit).unwrap_err();
    assert!(error.to_string().starts_with("`/no/such/folder/trace.json` can't be written"), "{error}");
}

/// Trains an epoch on simulated adapters with some time a row, in virtual time, on data that this makes of the digits.
fn simulate(per_row_ms: &[f64], data: impl FnOnce(Arc<dyn Runtime>) -> Arc<dyn Dataset>) -> TimeSummary {
    let specs = per_row_ms.iter().map(|ms| AdapterSpec::new("sim", 1.0, *ms)).collect();
    let mut world = World::on_host(specs, HOST_GB_S);
    let compile = Compile::new(Optimizer::adam(1e-3), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let trainer = Trainer::new(model(), compile).unwrap().on(world.adapters()).split(SplitMode::Even);
    let mut trainer = trainer.opener(world.opener()).runtime(world.runtime());
    // Without threads of its own the loader reads between the steps, in the world's one thread.
    let fit = Fit::new(1).batch_size(96).workers(0);
    let data = data(world.runtime());
    world.run(1e6, trainer.asynchronous().fit(data, &fit, &mut [])).unwrap().unwrap().time
}

/// A host that goes over 1 MB a millisecond.
const HOST_GB_S: f64 = 1.0;

/// A dataset of which each fetch takes 100 ms.
struct Slow<D> {
    data: D,
    clock: Arc<dyn Runtime>,
}

impl<D: Dataset> Dataset for Slow<D> {
    fn len(&self) -> usize {
        self.data.len()
    }

    fn input_shapes(&self) -> Vec<Shape> {
        self.data.input_shapes()
    }

    fn target_shapes(&self) -> Vec<Shape> {
        self.data.target_shapes()
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        self.clock.charge(100_000_000);
        self.data.fetch(rows, batch)
    }
}

#[test]
fn a_slow_loader_is_named_as_the_cause() {
    // 15 batches of 100 ms each, and steps of about 6 ms; `trainer/advice.rs` has the help for other numbers of workers.
    let time = simulate(&[0.1; 2], |clock| Arc::new(Slow { data: digits::train().unwrap(), clock }));
    let text = time.to_string();
    assert!(text.contains("data starvation: waiting for data took 9"), "{text}");
    assert!(text.contains("`workers = 2`"), "{text}");
    assert!((time.host.data_ms - 1500.0).abs() < 1e-6, "{} ms", time.host.data_ms);
    assert!(time.adapters.iter().all(|adapter| adapter.data_ms > 0.9 * time.ms), "{text}");
}

#[test]
fn a_wait_for_data_during_a_step_counts_once() {
    // 15 batches of 100 ms each; the only adapter has a step to do while the host waits for the next batch.
    let time = simulate(&[0.1], |clock| Arc::new(Slow { data: digits::train().unwrap(), clock }));
    check_host(&time);
    assert!(time.ms > 1500.0 && time.host.data_ms + time.host.adapters_ms > 0.95 * time.ms, "{time}");
}

#[test]
fn the_adapter_that_others_wait_for_is_named() {
    let time = simulate(&[0.1, 1.0, 0.1], |_| Arc::new(digits::train().unwrap()));
    let text = time.to_string();
    assert!(text.contains("adapter 1 `"), "{text}");
    assert!(text.contains("made the others wait for"), "{text}");
    assert!(text.contains("the learned split gives each adapter rows by its speed"), "{text}");
    let [first, slow, last] = &time.adapters[..] else { panic!("three adapters") };
    assert!(slow.others_ms < first.others_ms && slow.others_ms < last.others_ms, "{text}");
    assert!(slow.held_up_ms > first.held_up_ms + last.held_up_ms, "{text}");
}

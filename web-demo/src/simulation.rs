//! Predictions for the page, in a worker of their own: training never waits for them.

use manyhands::placer::rig::simulate_pipelines;
use manyhands::simulator::{
    AdapterSpec, IncidentKind, Report, RigConfig, SimulatedStep, Slowdown, simulate_incidents, simulate_steps,
};
use manyhands::{Error, Model, Result};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen::prelude::wasm_bindgen;

#[cfg(target_arch = "wasm32")]
use crate::host::{self, tell};
use crate::logs::Simulated;
use crate::messages::{Event, PageRequest};
use crate::settings::Described;
use crate::stages::Pipelined;

/// Milliseconds of a time that has no end.
const NEVER_MS: f64 = 1e15;

/// Makes this worker the page's simulator: `post(text, arrays)` sends to the page.
#[cfg(target_arch = "wasm32")]
#[wasm_bindgen]
pub fn start_simulator(post: js_sys::Function) {
    host::meet(post, None);
    std::panic::set_hook(Box::new(|panic| tell(&Event::Failed { message: panic.to_string() })));
}

/// Answers a request of the page by its name, as JSON.
#[cfg(target_arch = "wasm32")]
#[wasm_bindgen]
pub fn simulate(name: String, text: &str) {
    let unread = |error: serde_json::Error| {
        Error::setting("the request", format!("can't be read: {error}"), "load the page again")
    };
    match serde_json::from_str(text).map_err(unread).and_then(answer) {
        Ok(event) => tell(&event),
        Err(error) => tell(&Event::Error { request: Some(name), message: error.to_string() }),
    }
}

/// The answer to a request for a prediction.
///
/// # Errors
/// If a number makes no sense, or the request is none for the simulator.
pub fn answer(request: PageRequest) -> Result<Event> {
    match request {
        PageRequest::Simulate { rig } => simulated(rig),
        PageRequest::Stages { rig, micro_batches } => {
            let model = rig.preset.build(rig.here.as_ref())?;
            let rig = RigConfig { micro_batches: Some(micro_batches), ..RigConfig::from(rig) };
            let (report, pipelines) = simulate_pipelines(&rig, &model)?;
            Ok(Event::Staged { report, pipelines: pipelines.iter().map(Pipelined::from).collect() })
        }
        _ => Err(Error::setting(
            "the simulator",
            "only predicts, but something else was asked for",
            "ask the engine's worker",
        )),
    }
}

fn simulated(described: Described) -> Result<Event> {
    let model = described.preset.build(described.here.as_ref())?;
    let events = described.events.clone();
    let rig = RigConfig::from(described);
    // Behind all events: who is left, and how fast. The simulator refuses events of adapters that are not there.
    let happened = if events.is_empty() { Vec::new() } else { simulate_incidents(&rig, &model, &events)? };
    let mut left: Vec<(usize, AdapterSpec)> = rig.adapters.iter().cloned().enumerate().collect();
    for event in &events {
        match event.what {
            IncidentKind::Lost => left.retain(|(position, _)| *position != event.adapter),
            IncidentKind::Slowed(factor) => {
                let slowed = left.iter_mut().filter(|(position, _)| *position == event.adapter);
                let slowdown = Slowdown { from_ms: 0.0, to_ms: NEVER_MS, factor };
                slowed.for_each(|(_, spec)| spec.slowdowns = vec![slowdown]);
            }
        }
    }
    let (report, steps) = predicted(&rig, &left, &model)?;
    let order = positions(&left, &report.adapters);
    let best = report.best().map_or(0, |point| point.n_adapters);
    let names: Vec<&str> = rig.adapters.iter().map(|spec| spec.name.as_str()).collect();
    let shown = |steps: &[SimulatedStep], places: &[usize]| -> Vec<Simulated> {
        steps.iter().map(|step| Simulated::of(step, places, &names)).collect()
    };
    let in_rig: Vec<usize> = (0..names.len()).collect();
    let mut best_steps = Vec::new();
    if (1..order.len()).contains(&best) && events.is_empty() {
        let used: Vec<(usize, AdapterSpec)> =
            order[..best].iter().map(|position| (*position, rig.adapters[*position].clone())).collect();
        let (of_used, steps) = predicted(&rig, &used, &model)?;
        best_steps = shown(&steps, &positions(&used, &of_used.adapters));
    }
    let steps = if events.is_empty() { shown(&steps, &order) } else { shown(&happened, &in_rig) };
    Ok(Event::Simulated { report, order, best, steps, best_steps })
}

/// The prediction for some adapters of a rig.
fn predicted(
    rig: &RigConfig,
    adapters: &[(usize, AdapterSpec)],
    model: &Model,
) -> Result<(Report, Vec<SimulatedStep>)> {
    let adapters = adapters.iter().map(|(_, spec)| spec.clone()).collect();
    simulate_steps(&RigConfig { adapters, ..rig.clone() }, model)
}

/// Positions in the rig of the adapters of these names: like names follow the rig's order.
fn positions(adapters: &[(usize, AdapterSpec)], names: &[String]) -> Vec<usize> {
    let mut left: Vec<&(usize, AdapterSpec)> = adapters.iter().collect();
    let take = |name: &String| {
        let at = left.iter().position(|(_, spec)| spec.name == *name)?;
        Some(left.remove(at).0)
    };
    names.iter().filter_map(take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two cards of which the second has a third of the speed, with more in the request.
    fn asked(preset: &str, more: &str) -> Described {
        let card = |name: &str, gflops: u32| {
            format!(
                r#"{{"name":"{name}","fixed_ms":2.0,"gflops":{gflops},"memory_gb_s":{},"upload_gb_s":6.0,"download_gb_s":5.0,"latency_ms":0.1}}"#,
                gflops / 10
            )
        };
        let adapters = [card("slow", 1000), card("fast", 3000)].join(",");
        let text = format!(
            r#"{{"simulate":{{"rig":{{"preset":"{preset}","batch_size":64,"host":{{"copy_gb_s":20.0}},"adapters":[{adapters}]{more}}}}}}}"#
        );
        let PageRequest::Simulate { rig } = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
        rig
    }

    /// An answer.
    struct Told {
        report: Report,
        order: Vec<usize>,
        best: usize,
        /// Rows of both cards in each step.
        rows: Vec<[u32; 2]>,
        /// Milliseconds of each step.
        ms: Vec<f64>,
        /// Number of the steps of the best.
        best_steps: usize,
    }

    fn told(rig: Described) -> Told {
        let Event::Simulated { report, order, best, steps, best_steps } = simulated(rig).unwrap() else { panic!() };
        let steps = serde_json::to_value(steps).unwrap();
        let rows = |step: &serde_json::Value| {
            let mut rows = [0; 2];
            for part in step["adapters"].as_array().unwrap() {
                let at = usize::try_from(part["adapter"].as_u64().unwrap()).unwrap();
                assert_eq!(part["name"], ["slow", "fast"][at]);
                rows[at] = u32::try_from(part["rows"].as_u64().unwrap()).unwrap();
            }
            rows
        };
        let steps = steps.as_array().unwrap();
        let ms = steps.iter().map(|step| step["ms"].as_f64().unwrap()).collect();
        let rows = steps.iter().map(rows).collect();
        Told { report, order, best, rows, ms, best_steps: best_steps.len() }
    }

    #[test]
    fn steps_count_adapters_as_the_rig_does_and_training_leaves_out_what_slows_it_down() {
        let Told { report, order, best, rows, best_steps, .. } = told(asked("cnn6", ""));
        assert_eq!((report.adapters, order, best, best_steps), (vec!["fast".into(), "slow".into()], vec![1, 0], 2, 0));
        assert!(rows.iter().all(|[slow, fast]| slow + fast == 64 && slow < fast), "{rows:?}");
        // Sums and update of 1.9 million parameters take longer than half of a small batch.
        let Told { report, best, rows, best_steps, .. } = told(asked("mlp", ""));
        assert!(report.strong[0].step_ms < report.strong[1].step_ms);
        assert_eq!((best, best_steps, rows.len()), (1, 30, 30));
    }

    #[test]
    fn equal_parts_are_those_of_the_report() {
        let learned = told(asked("cnn6", "")).report;
        let Told { report: even, rows, .. } = told(asked("cnn6", r#","split":"even""#));
        assert!(rows.iter().all(|rows| *rows == [32, 32]), "{rows:?}");
        assert_eq!(even.strong[1], learned.even.unwrap());
    }

    #[test]
    fn a_slowed_adapter_gets_fewer_rows_and_a_lost_one_none() {
        let events =
            r#","events":[{"step":8,"adapter":1,"what":{"slowed":6.0}},{"step":20,"adapter":1,"what":"lost"}]"#;
        let Told { report, order, rows, ms, .. } = told(asked("cnn6", events));
        let undisturbed = told(asked("cnn6", "")).report;
        assert!((ms[7] - undisturbed.strong[1].step_ms).abs() < 0.02 * ms[7], "{ms:?}");
        assert!(ms[8] > 2.0 * ms[7], "it is slow before anybody knows: {ms:?}");
        assert!(rows[19][0] > rows[19][1] && ms[19] < 0.7 * ms[8], "{rows:?} in {ms:?} ms");
        // The step in which it is lost is repeated, not left out: all rows run on the other.
        assert!(rows[20..].iter().all(|rows| *rows == [64, 0]), "{rows:?}");
        let alone_ms = report.strong[0].step_ms;
        assert_eq!((report.adapters, order), (vec!["slow".to_owned()], vec![0]));
        assert!(ms[20] > alone_ms && (ms[25] - alone_ms).abs() < 0.25 * alone_ms, "{ms:?} and {alone_ms} ms alone");
        let refused = |events: &str| simulated(asked("cnn6", events)).unwrap_err().to_string();
        assert!(refused(r#","events":[{"step":1,"adapter":2,"what":"lost"}]"#).contains("from 0 to 1, but names 2"));
        let both = r#","events":[{"step":1,"adapter":0,"what":"lost"},{"step":2,"adapter":1,"what":"lost"}]"#;
        assert!(refused(both).contains("need to leave an adapter"));
        assert!(refused(r#","events":[{"step":1,"adapter":0,"what":{"slowed":0.5}}]"#).contains("factor from 1 up"));
    }

    #[test]
    fn memory_and_names_of_cards_are_heeded() {
        let PageRequest::Simulate { rig } = serde_json::from_str(
            r#"{"simulate":{"rig":{"preset":"vgg","batch_size":64,"host":{"copy_gb_s":20.0},"adapters":[
                {"card":"RTX 4070","memory_gb":0.1},{"card":"gtx1060"}]}}}"#,
        )
        .unwrap() else {
            panic!()
        };
        let Event::Simulated { report, order, best, .. } = simulated(rig).unwrap() else { panic!() };
        assert_eq!((report.adapters, order, best), (vec!["GeForce GTX 1060".to_owned()], vec![1], 1));
        assert_eq!((report.alone[0].has_bytes, report.alone[1].has_bytes), (Some(6_000_000_000), Some(100_000_000)));
        assert!(report.notes[0].contains("does not fit on GeForce RTX 4070"), "{:?}", report.notes);
    }
}

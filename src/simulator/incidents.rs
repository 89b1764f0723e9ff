//! Steps in which something happens to simulated adapters: one becomes slower, or is lost.

use serde::{Deserialize, Serialize};

use super::predict::SimulatedStep;
use super::rig::RigConfig;
use super::spec::{AdapterSpec, FaultKind, InjectedFault, Slowdown, Trigger};
use super::trial::{Steps, TimedStep, Trial};
use crate::error::{Error, Result};
use crate::model::Model;

/// Times at which a lost adapter is opened again, in vain.
const REOPENINGS: u64 = 64;
/// Milliseconds of a time that has no end.
const NEVER_MS: f64 = 1e15;

/// An event in a simulated run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Incident {
    /// Number of the step, counted from 0.
    pub step: u64,
    /// Position of the adapter in the rig.
    pub adapter: usize,
    /// Kind of the event.
    pub what: IncidentKind,
}

/// Kind of an event in a simulated run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IncidentKind {
    /// From the start of the step on, computing takes so many times as long as by the adapter's numbers.
    Slowed(f64),
    /// The adapter is lost in the middle of its work on the step, and does not come back.
    Lost,
}

/// Simulates 30 training steps of all adapters of a rig together, as copies, with events in them. Steps count the adapters in the order
/// of the rig, and all take part from the first step on.
///
/// # Errors
/// If a number makes no sense, a copy does not fit on an adapter, or no adapter is left.
pub fn simulate_incidents(rig: &RigConfig, model: &Model, incidents: &[Incident]) -> Result<Vec<SimulatedStep>> {
    rig.check()?;
    check(rig, incidents)?;
    let copies = Trial::new(model, &rig.objective(model), None, 1, rig.host.copy_gb_s)?.split(rig.split.clone());
    let mut adapters = rig.adapters.clone();
    let mut steps = copies.steps(&adapters, rig.batch_size)?;
    let mut incidents = incidents.to_vec();
    incidents.sort_by_key(|incident| incident.step);
    for incident in incidents {
        // What happened before decides when this step begins.
        if let Some(moment) = Moment::of(&steps, incident) {
            happen(&mut adapters[incident.adapter], incident.what, moment);
            steps = copies.steps(&adapters, rig.batch_size)?;
        }
    }
    let step = |is_counted| move |(ms, report)| SimulatedStep { ms, is_counted, report };
    Ok(steps.warm_up.into_iter().map(step(false)).chain(steps.counted.into_iter().map(step(true))).collect())
}

fn check(rig: &RigConfig, incidents: &[Incident]) -> Result<()> {
    let refuse = |who: &str, problem: String, help: &str| Err(Error::setting(who, problem, help));
    if rig.adapters.is_empty() {
        return refuse("events", "need `adapters`, but the rig has machines".into(), "describe one machine");
    }
    for (idx, Incident { adapter, what, .. }) in incidents.iter().enumerate() {
        let who = format!("event {idx}");
        if *adapter >= rig.adapters.len() {
            let problem = format!("needs an adapter from 0 to {}, but names {adapter}", rig.adapters.len() - 1);
            return refuse(&who, problem, "count the rig's adapters from 0");
        }
        if let IncidentKind::Slowed(factor) = what
            && !(factor.is_finite() && *factor >= 1.0)
        {
            return refuse(&who, format!("needs a factor from 1 up, but it is {factor}"), "4 is four times as slow");
        }
    }
    let is_lost = |idx| incidents.iter().any(|it| it.adapter == idx && it.what == IncidentKind::Lost);
    if (0..rig.adapters.len()).all(is_lost) {
        let problem = "need to leave an adapter, but all are lost".into();
        return refuse("events", problem, "leave one in the rig");
    }
    Ok(())
}

/// Milliseconds of virtual time in a step.
struct Moment {
    start_ms: f64,
    /// In the middle of an adapter's work.
    at_work_ms: f64,
}

impl Moment {
    /// That of an event; `None` behind the last step.
    fn of(steps: &Steps, incident: Incident) -> Option<Self> {
        let all = || steps.warm_up.iter().chain(&steps.counted);
        let number = usize::try_from(incident.step).ok()?;
        let (ms, report) = all().nth(number)?;
        let length = |(ms, _): &TimedStep| *ms;
        let start_ms = steps.start_ms + all().take(number).map(length).sum::<f64>();
        let own = report.shards.iter().find(|shard| shard.adapter_idx == incident.adapter);
        let at_work_ms = own
            .map_or(ms / 2.0, |shard| shard.timing.weights.ms + shard.timing.upload_ms + shard.timing.compute_ms / 2.0);
        Some(Self { start_ms, at_work_ms: start_ms + at_work_ms })
    }
}

fn happen(spec: &mut AdapterSpec, what: IncidentKind, Moment { start_ms, at_work_ms }: Moment) {
    match what {
        IncidentKind::Slowed(factor) => {
            for slow in &mut spec.slowdowns {
                slow.to_ms = slow.to_ms.min(start_ms);
            }
            spec.slowdowns.push(Slowdown { from_ms: start_ms, to_ms: NEVER_MS, factor });
        }
        IncidentKind::Lost => {
            let lost = |at| InjectedFault { at, what: FaultKind::Lost };
            spec.faults.push(lost(Trigger::Time { ms: at_work_ms }));
            spec.faults.extend((1..=REOPENINGS).map(|number| lost(Trigger::Load { number })));
        }
    }
}

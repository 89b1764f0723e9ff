//! Logs of the page: what adapters do in a step that is trained, simulated or measured.

use manyhands::logs::{AdapterLog, LoneStep, StepLog};
use manyhands::scheduler::ShardReport;
use manyhands::simulator::SimulatedStep;
use manyhands_bench::scaling::{ScalingCurve, ScalingPoint};
use manyhands_engine::adapters::Timing;
use serde::Serialize;

/// A member as the page's logs name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberPlace {
    /// Position among the members.
    pub at: usize,
    /// Id of the adapter.
    pub id: u32,
}

/// One adapter's part in a step, waits at its end included.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS), ts(rename = "AdapterLog"))]
pub struct Worked {
    /// Index into the members, or into the adapters of a simulated rig.
    adapter: usize,
    /// Its id, by which metrics name it when members have come and gone.
    member: u32,
    /// Its name.
    name: String,
    /// Its rows.
    rows: u32,
    /// Busy: upload, compute and readback.
    ms: f64,
    /// Milliseconds of `ms` in which it got its inputs. In a simulated step also new weights that come before a run.
    upload_ms: f64,
    /// Milliseconds of `ms` in which it computed.
    compute_ms: f64,
    /// Milliseconds of `ms` in which gradients and results were read back.
    readback_ms: f64,
    /// At exchanges in mid-step, as of batch-norm statistics: messages, and waits for the others.
    exchange_ms: f64,
    /// For the others at the end of the step.
    wait_ms: f64,
    /// Rest of the step without the host's part: messages between host and adapter, and the scheduler's own work. With it the phases fill
    /// the step.
    message_ms: f64,
}

impl Worked {
    /// `places` are the members' places by their positions in the engine; `ms_of_adapters` is the step without the host's part.
    fn of(log: AdapterLog, places: &[Option<MemberPlace>], ms_of_adapters: f64) -> Option<Self> {
        let AdapterLog { adapter, name, rows, ms, upload_ms, compute_ms, readback_ms, wait_ms, end_wait_ms } = log;
        let MemberPlace { at: adapter, id: member } = (*places.get(adapter)?)?;
        Some(Self {
            adapter,
            member,
            name,
            rows,
            ms,
            upload_ms,
            compute_ms,
            readback_ms,
            exchange_ms: wait_ms,
            wait_ms: end_wait_ms,
            message_ms: (ms_of_adapters - ms - wait_ms - end_wait_ms).max(0.0),
        })
    }
}

/// A training step: the engine's own log, with adapters numbered as in the page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stepped {
    #[serde(flatten)]
    log: StepLog,
    clock_ms: f64,
    adapters: Vec<Worked>,
    alone: Option<ComputedAlone>,
}

/// A step that one adapter alone has computed again, from the same weights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComputedAlone {
    adapter: usize,
    loss: f64,
    gradient_norm: f32,
}

impl Stepped {
    /// `places` are the members' places by their positions in the engine; `clock_ms` is the time since the step before; `alone` is the step
    /// by one adapter, if it was computed.
    pub fn of(mut log: StepLog, places: &[Option<MemberPlace>], clock_ms: f64, alone: Option<LoneStep>) -> Self {
        let alone = alone.and_then(|LoneStep { adapter, values, gradient_norm }| {
            let MemberPlace { at: adapter, .. } = (*places.get(adapter)?)?;
            Some(ComputedAlone { adapter, loss: values.get("loss")?, gradient_norm })
        });
        let adapters = std::mem::take(&mut log.adapters);
        let of_adapters = log.ms - log.data_ms - log.reduce_ms - log.update_ms - log.processes_ms;
        let adapters = adapters.into_iter().filter_map(|adapter| Worked::of(adapter, places, of_adapters)).collect();
        Self { log, clock_ms, adapters, alone }
    }
}

/// A simulated step of some adapters together, in milliseconds of virtual time. Adapters are numbered as in the described rig. Their phases and
/// waits, the host's sums and its update fill the step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS), ts(rename = "SimulatedStep"))]
pub struct Simulated {
    /// Rows of the batch.
    rows: u32,
    /// The whole step.
    ms: f64,
    /// Milliseconds of `ms` that the host added gradients.
    reduce_ms: f64,
    /// Milliseconds of `ms` that the host updated weights.
    update_ms: f64,
    /// Whether the report's `strong` is made of it: the steps before, in which the split is learned, are not.
    is_counted: bool,
    /// Parts of the adapters that had rows.
    adapters: Vec<Worked>,
}

impl Simulated {
    /// `places` are the positions in the rig of the adapters that the step counts, `names` those of the rig.
    pub fn of(step: &SimulatedStep, places: &[usize], names: &[&str]) -> Self {
        let SimulatedStep { ms, is_counted, report } = step;
        let all_ms = ms - report.reduce_ms - report.update_ms;
        let place = |shard: &ShardReport| places.get(shard.adapter_idx).copied().unwrap_or_default();
        let worked = |shard: &ShardReport| {
            let Timing { upload_ms, compute_ms, readback_ms, wait_ms: exchange_ms, weights, .. } = shard.timing;
            let busy_ms = weights.ms + upload_ms + compute_ms + readback_ms;
            Worked {
                adapter: place(shard),
                member: 0,
                name: names.get(place(shard)).map(ToString::to_string).unwrap_or_default(),
                rows: shard.rows,
                ms: busy_ms,
                upload_ms: weights.ms + upload_ms,
                compute_ms,
                readback_ms,
                exchange_ms,
                wait_ms: (all_ms - busy_ms - exchange_ms).max(0.0),
                message_ms: 0.0,
            }
        };
        Self {
            rows: report.shards.iter().map(|shard| shard.rows).sum(),
            ms: *ms,
            reduce_ms: report.reduce_ms,
            update_ms: report.update_ms,
            is_counted: *is_counted,
            adapters: report.shards.iter().map(worked).collect(),
        }
    }
}

/// Rows a second between which half of the steps are, of each point of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Spread {
    /// Rows a second at both quartiles, of each point with a constant batch.
    strong: Vec<[f64; 2]>,
    /// Rows a second at both quartiles, of each point with a growing batch.
    weak: Vec<[f64; 2]>,
}

impl From<&ScalingCurve> for Spread {
    fn from(curve: &ScalingCurve) -> Self {
        let rows_per_s = |ScalingPoint { batch_size, quartiles_ms: [fast, slow], .. }: &ScalingPoint| {
            [slow, fast].map(|ms| f64::from(*batch_size) * 1e3 / ms.max(1e-3))
        };
        let all = |points: &[ScalingPoint]| points.iter().map(rows_per_s).collect();
        Self { strong: all(&curve.strong), weak: all(&curve.weak) }
    }
}

#[cfg(test)]
mod tests {
    use manyhands::simulator::RigConfig;
    use manyhands::simulator::simulate_steps;
    use manyhands_engine::timing::median;

    use super::*;
    use crate::messages::PageRequest;

    #[test]
    fn phases_fill_a_simulated_step_and_its_steps_make_the_report() {
        let rig = serde_json::from_str(
            r#"{"simulate":{"rig":{"preset":"cnn6","batch_size":64,"host":{"copy_gb_s":20.0},"adapters":[
                {"name":"slow","fixed_ms":2.0,"gflops":1000.0,"memory_gb_s":100.0,"upload_gb_s":6.0,"download_gb_s":5.0,"latency_ms":0.1},
                {"name":"fast","fixed_ms":2.0,"gflops":3000.0,"memory_gb_s":300.0,"upload_gb_s":6.0,"download_gb_s":5.0,"latency_ms":0.1}]}}}"#,
        )
        .unwrap();
        let PageRequest::Simulate { rig } = rig else { panic!("{rig:?}") };
        let model = rig.preset.build(None).unwrap();
        let (report, steps) = simulate_steps(&RigConfig::from(rig), &model).unwrap();
        assert_eq!(report.adapters, ["fast", "slow"]);
        let steps: Vec<Simulated> = steps.iter().map(|step| Simulated::of(step, &[1, 0], &["slow", "fast"])).collect();
        for step in &steps {
            assert_eq!(step.rows, 64);
            let host_ms = step.reduce_ms + step.update_ms;
            for part in &step.adapters {
                let sum_ms =
                    part.upload_ms + part.compute_ms + part.readback_ms + part.exchange_ms + part.wait_ms + host_ms;
                assert!((sum_ms - step.ms).abs() < 0.01 * step.ms, "{part:?} in {} ms", step.ms);
            }
        }
        let counted: Vec<&Simulated> = steps.iter().filter(|step| step.is_counted).collect();
        let median_ms = median(counted.iter().map(|step| step.ms));
        assert_eq!(median_ms.to_bits(), report.strong[1].step_ms.to_bits());
        let shares: Vec<u32> = counted.last().unwrap().adapters.iter().map(|part| part.rows).collect();
        assert_eq!(shares, report.strong[1].shares);
    }

    #[test]
    fn a_step_counts_adapters_as_the_page_does() {
        let worked = AdapterLog {
            adapter: 2,
            name: "a".into(),
            rows: 5,
            ms: 3.0,
            upload_ms: 1.0,
            compute_ms: 1.5,
            readback_ms: 0.5,
            wait_ms: 2.0,
            end_wait_ms: 4.0,
        };
        let log = StepLog {
            step: 1,
            epoch: 1,
            batch: 1,
            batches: 9,
            rows: 5,
            values: manyhands::logs::Values::default(),
            running: manyhands::logs::Values::default(),
            learning_rate: 0.1,
            gradient_norm: 1.0,
            is_applied: true,
            loss_scale: None,
            ms: 14.0,
            data_ms: 0.5,
            reduce_ms: 1.5,
            update_ms: 2.0,
            processes_ms: 0.0,
            samples_per_s: 1.0,
            adapters: vec![worked],
            processes: Vec::new(),
        };
        let mut values = manyhands::logs::Values::default();
        values.set("loss", 0.25);
        let alone = LoneStep { adapter: 1, values, gradient_norm: 1.5 };
        // The member at position 0 has left.
        let place = |at, id| Some(MemberPlace { at, id });
        let text =
            serde_json::to_value(Stepped::of(log, &[None, place(0, 4), place(1, 7)], 12.5, Some(alone))).unwrap();
        assert_eq!((&text["adapters"][0]["adapter"], &text["adapters"][0]["member"]), (&1.into(), &7.into()));
        assert_eq!((&text["adapters"][0]["exchange_ms"], &text["adapters"][0]["wait_ms"]), (&2.0.into(), &4.0.into()));
        // 14 - 0.5 - 1.5 - 2 are the adapters' part, of which 3 + 6 have names.
        assert_eq!(text["adapters"][0]["message_ms"], 1.0);
        assert_eq!(text["alone"], serde_json::json!({ "adapter": 0, "loss": 0.25, "gradient_norm": 1.5 }));
        assert_eq!((&text["batches"], &text["clock_ms"]), (&9.into(), &12.5.into()));
    }
}

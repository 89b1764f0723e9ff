//! Gradients of several runs that an adapter adds.

use manyhands::layers::{Activation, Dense};
use manyhands::model::Objective;
use manyhands::{Loss, Model, Optimizer, Sequential};
use manyhands_engine::plan::{Accumulation, GradientCompression};

use super::*;

const FEATURES: usize = 7;
const PARTS: [usize; 4] = [5, 1, 8, 3];

fn model() -> Model {
    let hidden = Dense::new(70).activation(Activation::Tanh);
    Sequential::new([FEATURES]).add(hidden).add(Dense::new(2)).build(4).unwrap()
}

fn plan_of(gradient_compression: GradientCompression, accumulation: Accumulation) -> Plan {
    let objective = Objective::new(vec![Loss::MEAN_SQUARED_ERROR], Optimizer::sgd(0.1, 0.0));
    model().plan(&Objective { gradient_compression, accumulation, ..objective }).unwrap()
}

/// Runs the parts of a batch; gives what each run sends.
fn sent(rig: &Rig, plan: Plan) -> Vec<Vec<Vec<f32>>> {
    assert!(matches!(rig.load(plan, 8), Event::Loaded { .. }));
    let data = model().weights.parameters[0].as_slice().into();
    rig.ask(Request::Write { role: Role::Parameters(0), offset: 0, data });
    let values = |count: usize, from: usize| -> Arc<[f32]> {
        (from..from + count).map(|i| (i * 37 % 19) as f32 / 7.0 - 1.3).collect()
    };
    let (mut all, mut first) = (Vec::new(), 0);
    for (idx, rows) in PARTS.into_iter().enumerate() {
        let word = |value: usize| u32::try_from(value).unwrap();
        let scalars = Scalars {
            rows: word(rows),
            batch_rows: word(PARTS.iter().sum()),
            first_row: word(first),
            is_first: u32::from(idx == 0),
            is_last: u32::from(idx + 1 == PARTS.len()),
            loss_scales: vec![0.06],
            ..Scalars::default()
        };
        let feeds = vec![
            (Role::Input(0), values(rows * FEATURES, first * FEATURES)),
            (Role::Target(0), values(rows * 2, first)),
            (Role::SampleWeight(0), vec![1.0; rows].into()),
        ];
        let ticket = Ticket { step: idx as u64, attempt: 1, slot: 0 };
        rig.ask(Request::Run(Run { ticket, pass: Pass::Train, scalars, feeds, combining: Combining::Host }));
        let mut sent = Vec::new();
        loop {
            match rig.event() {
                Event::Exchange { data, .. } => sent.push(data),
                Event::Done { reports, .. } => {
                    assert_eq!(reports[0].len(), 2 * rows);
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        all.push(sent);
        first += rows;
    }
    all
}

#[test]
fn the_gradient_of_several_runs_leaves_once_with_the_bits_of_the_hosts_sum() {
    on_every_adapter(|rig| {
        let mut sums = Vec::new();
        for parts in sent(rig, plan_of(GradientCompression::None, Accumulation::Host)) {
            match &mut sums[..] {
                [] => sums = parts,
                sums => {
                    for (sum, part) in sums.iter_mut().zip(&parts) {
                        sum.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
                    }
                }
            }
        }
        let mut once = sent(rig, plan_of(GradientCompression::None, Accumulation::Adapter));
        let last = once.pop().unwrap();
        assert!(once.iter().all(Vec::is_empty), "{once:?}");
        assert!(last == sums && sums[0].iter().any(|value| *value != 0.0));
        let mut halves = sent(rig, plan_of(GradientCompression::Fp16, Accumulation::Adapter));
        assert_eq!((halves.pop().unwrap().len(), halves.concat().len()), (sums.len(), 0));
    });
}

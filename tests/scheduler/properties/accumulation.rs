//! Are gradients that are added on the adapters those of the host's sums, sent once, never lost nor added twice?

use std::sync::Mutex;

use manyhands_engine::adapters::Event;
use manyhands_engine::kernels::halves;
use manyhands_engine::plan::{Accumulation, Exchange, GradientCompression, Plan, When};
use manyhands_engine::runtime::LocalTask;

use super::*;

const ROWS: usize = 61;
/// Families whose shards don't wait for each other.
const UNCOUPLED: [Family; 4] =
    [Family::Dropout, Family::Convolution, Family::NormOfShard, Family::SharedLayerTwoOutputs];

/// Three steps on adapters of one speed, each of which computes its rows in so many parts.
fn case_of(family: Family, rows: usize, n_adapters: usize, parts: u32) -> Case {
    Case {
        family,
        width: 5,
        rows,
        steps: 3,
        adapters: vec![AdapterSpec::new("sim", 1.0, 0.1); n_adapters],
        split: SplitMode::Even,
        accumulation_steps: parts,
        capacity: u32::try_from(rows).unwrap(),
        is_weighted: true,
        optimizer: Optimizer::sgd(LEARNING_RATE, 0.9),
        clip_norm: 0.2,
        seed: 1,
        division: None,
    }
}

/// Compares pieces that send their gradients one by one, as a share above the capacity does, with pieces that add them.
#[test]
fn sums_on_an_adapter_are_those_of_the_host_bit_by_bit() {
    for family in UNCOUPLED {
        for parts in 1..=7 {
            // The second adapter gets no rows, so that the host updates in both runs.
            let split = SplitMode::Fixed(vec![1.0, 0.0]);
            let capacity = u32::try_from(ROWS).unwrap().div_ceil(parts);
            let each = Case { split, capacity, ..case_of(family, ROWS, 2, 1) };
            let once = Case { accumulation_steps: parts, ..each.clone() };
            assert!(simulated(&each).unwrap() == simulated(&once).unwrap(), "{family:?} in {parts} parts");
        }
    }
}

fn plan(case: &Case, gradient_compression: GradientCompression, accumulation: Accumulation) -> Arc<Plan> {
    let objective = Objective { gradient_compression, accumulation, ..case.objective() };
    Arc::new(case.model().plan(&objective).unwrap())
}

/// Runs the parts of a batch; after each, `look` sees the machine. Gives what exchanges of the last part send.
fn run_parts(case: &Case, plan: &Arc<Plan>, parts: usize, mut look: impl FnMut(&Interpreter)) -> Vec<Vec<f32>> {
    let (batch, rows) = (case.batch(0), u32::try_from(case.rows).unwrap());
    let mut machine = Interpreter::new(plan.clone(), rows);
    machine.write(Role::Parameters(0), 0, &case.model().weights.parameters[0]);
    machine.write(Role::Statistics, 0, &case.model().weights.statistics);
    let (mut sent, mut first) = (Vec::new(), 0);
    for part in 0..parts {
        let count = case.rows / parts + usize::from(part < case.rows % parts);
        feed(&mut machine, &batch.shard(first..first + count));
        let numbers = Scalars {
            rows: u32::try_from(count).unwrap(),
            batch_rows: rows,
            first_row: u32::try_from(first).unwrap(),
            is_first: u32::from(part == 0),
            is_last: u32::from(part + 1 == parts),
            seed: RUN_SEED,
            ..Scalars::default()
        };
        let scalars = Scalars { loss_scales: case.loss_scales(), ..numbers };
        for command in plan.commands(Pass::Train) {
            match command {
                Command::Dispatch(dispatch) => machine.dispatch(dispatch, &scalars),
                Command::Exchange(exchange) if exchange.when == When::LastUpdate && scalars.is_last == 1 => {
                    sent.push(machine.view(exchange.sent(), scalars.rows).to_vec());
                }
                Command::Exchange(_) => {}
            }
        }
        look(&machine);
        first += count;
    }
    sent
}

/// Packs what stands in the flat gradients, as a plan does it.
fn packed(plan: &Arc<Plan>, gradients: &[f32]) -> Vec<Vec<f32>> {
    let mut machine = Interpreter::new(plan.clone(), 1);
    let scalars = Scalars { is_last: 1, ..Scalars::default() };
    let mut packed = Vec::new();
    for command in plan.commands(Pass::Train) {
        match command {
            Command::Dispatch(dispatch) if std::ptr::eq(dispatch.kernel, &raw const halves::PACK) => {
                machine.write(Role::Gradients(0), 0, gradients);
                machine.dispatch(dispatch, &scalars);
            }
            Command::Exchange(Exchange { halves: Some(sent), .. }) => packed.push(machine.view(*sent, 1).to_vec()),
            _ => {}
        }
    }
    packed
}

#[test]
fn a_gradient_of_halves_is_packed_once_from_the_whole_sum() {
    for family in UNCOUPLED {
        let case = case_of(family, ROWS, 1, 1);
        for parts in 1..=7 {
            let each = plan(&case, GradientCompression::None, Accumulation::Host);
            let mut sum: Vec<f32> = Vec::new();
            run_parts(&case, &each, parts, |machine| match &mut sum[..] {
                [] => sum = machine.read(Role::Gradients(0)).to_vec(),
                sum => sum.iter_mut().zip(machine.read(Role::Gradients(0))).for_each(|(sum, part)| *sum += part),
            });
            for compression in [GradientCompression::None, GradientCompression::Fp16] {
                let once = plan(&case, compression, Accumulation::Adapter);
                let mut gathered = Vec::new();
                let sent =
                    run_parts(&case, &once, parts, |machine| gathered = machine.read(Role::Gradients(0)).to_vec());
                assert!(is_same(&gathered, &sum), "{family:?} in {parts} parts");
                let wanted = match compression {
                    GradientCompression::None => vec![sum.clone()],
                    GradientCompression::Fp16 => packed(&once, &sum),
                };
                assert!(!sent.is_empty() && sent == wanted, "{family:?} in {parts} parts: {compression:?}");
            }
        }
    }
}

#[test]
fn a_plan_without_micro_batches_is_as_it_was() {
    for family in FAMILIES {
        let case = case_of(family, ROWS, 1, 1);
        let plain = case.model().plan(&case.objective()).unwrap();
        assert_eq!(plain.accumulation(Pass::Train), Accumulation::Host);
        let text = plain.to_string();
        assert!(!text.contains("if first") && !text.contains("if last"), "{text}");
        let adding = plan(&case, GradientCompression::Fp16, Accumulation::Adapter).to_string();
        for line in ["if first", "if later", "before the update, if last", "if last]"] {
            assert!(adding.contains(line), "{line} is not in\n{adding}");
        }
    }
}

/// Bytes and number of values that adapters send for exchanges.
type Sent = Arc<Mutex<Vec<usize>>>;

/// Counts the values of each exchange.
fn counting(opener: Opener) -> (Opener, Sent) {
    let sent = Sent::default();
    let counts = sent.clone();
    let counting: Opener = Arc::new(move |info, actor, runtime, events| {
        let (inner, messages) = async_channel::unbounded::<adapters::Message>();
        let handle = opener(info, actor, runtime.clone(), inner)?;
        let counts = counts.clone();
        runtime.spawn("counting", Box::new(move || -> LocalTask { Box::pin(forward(messages, events, counts)) }));
        Ok(handle)
    });
    (counting, sent)
}

async fn forward(
    messages: async_channel::Receiver<adapters::Message>,
    events: async_channel::Sender<adapters::Message>,
    counts: Sent,
) {
    while let Ok(message) = messages.recv().await {
        if let Event::Exchange { data, .. } = &message.event {
            counts.lock().unwrap().push(data.len());
        }
        if events.send(message).await.is_err() {
            return;
        }
    }
}

/// Lengths of what a run's adapters send.
fn sent(case: &Case) -> Vec<usize> {
    let mut world = World::seeded(case.adapters.clone(), case.seed);
    let (opener, sent) = counting(world.opener());
    let (runtime, adapters) = (world.runtime(), world.adapters());
    let outcome = world.run(LIMIT_MS, train(case, opener, runtime, adapters)).unwrap().unwrap();
    assert_as_one_adapter(case, &outcome);
    sent.lock().unwrap().clone()
}

#[test]
fn a_gradient_leaves_once_a_step_however_many_micro_batches() {
    let lengths = |family, n_adapters, parts| {
        let mut lengths = sent(&case_of(family, 72, n_adapters, parts));
        lengths.sort_unstable();
        lengths
    };
    for family in [Family::Dropout, Family::Convolution, Family::SharedLayerTwoOutputs] {
        let once = lengths(family, 3, 1);
        assert_eq!(once.len(), 3 * 3, "three steps on three adapters: {once:?}");
        for parts in 2..=6 {
            assert_eq!(lengths(family, 3, parts), once, "{family:?} in {parts} parts");
            // The only adapter updates by itself: nothing is sent.
            assert_eq!(lengths(family, 1, parts), [0; 0], "{family:?} in {parts} parts, alone");
        }
    }
    // Moments of two layers are sent for each part, also of the only adapter: the host merges them.
    for (n_adapters, parts) in [(1, 3), (1, 9), (3, 2), (3, 3)] {
        let lengths = lengths(Family::NormOfShard, n_adapters, parts);
        let of_step = n_adapters * (1 + 2 * usize::try_from(parts).unwrap());
        assert_eq!(lengths.len(), 3 * of_step, "{n_adapters} adapters, {parts} parts: {lengths:?}");
    }
}

fn at(number: u64, progress: f64, what: FaultKind) -> InjectedFault {
    InjectedFault { at: Trigger::Run { number, progress }, what }
}

/// The parts of a lost adapter run again on another, in a sum of their own: so the bits are those of an undisturbed run.
#[test]
fn a_loss_at_any_command_of_any_part_changes_no_bit() {
    for family in UNCOUPLED {
        let case = case_of(family, 75, 3, 3);
        let undisturbed = simulated(&case).unwrap();
        for number in 0..9 {
            for tenth in 0..=5 {
                for what in [FaultKind::Lost, FaultKind::Hang] {
                    let mut case = case.clone();
                    case.adapters[1].faults = vec![at(number, f64::from(tenth) / 5.0, what)];
                    assert!(simulated(&case).unwrap() == undisturbed, "{family:?}: run {number}, {tenth}/5, {what:?}");
                }
            }
        }
    }
}

#[test]
fn two_losses_change_no_bit() {
    let case = case_of(Family::Dropout, 75, 3, 3);
    let undisturbed = simulated(&case).unwrap();
    for (first, second) in (0..12).flat_map(|first| (0..12).map(move |second| (first, second))) {
        for (a, b) in [(0, 1), (1, 2), (2, 0)] {
            let mut case = case.clone();
            case.adapters[a].faults = vec![at(first, 0.5, FaultKind::Lost)];
            case.adapters[b].faults = vec![at(second, 0.9, FaultKind::Lost)];
            assert!(simulated(&case).unwrap() == undisturbed, "runs {first} of {a} and {second} of {b}");
        }
    }
}

#[test]
fn too_little_memory_in_any_part_loses_nothing() {
    // The fourth run of the only adapter is the update.
    let cases = (1..=3).flat_map(|n_adapters| (0..9).map(move |number| (n_adapters, number)));
    for (n_adapters, number) in cases.filter(|(n_adapters, number)| *n_adapters > 1 || number % 4 != 3) {
        for family in [Family::Dropout, Family::Convolution, Family::SharedLayerTwoOutputs] {
            for progress in [0.0, 0.5, 1.0] {
                let mut case = case_of(family, 75, n_adapters, 3);
                case.adapters[0].faults = vec![at(number, progress, FaultKind::OutOfMemory)];
                is_as_one_adapter(&case);
            }
        }
    }
}

/// A share above the capacity that an adapter was left with: more parts, still one gradient.
#[test]
fn an_adapter_with_fewer_rows_still_adds_by_itself() {
    for n_adapters in [1, 2] {
        let mut case = case_of(Family::Dropout, 64, n_adapters, 2);
        case.adapters.iter_mut().for_each(|adapter| adapter.max_rows = Some(5));
        let lengths = sent(&case);
        let wanted = if n_adapters == 1 { 0 } else { 3 * n_adapters };
        assert_eq!(lengths.len(), wanted, "{n_adapters} adapters: {lengths:?}");
    }
}

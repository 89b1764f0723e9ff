//! Runs that begin before those in front of them are answered.

use super::*;

/// Rows of a run that takes its time.
const MANY_ROWS: usize = 50_000;
/// Commands that make a run long.
const LONG: usize = 100;

/// Doubled = 2 x + 1, of which the sums and the values are sent; shifted = doubled + `LONG`, which is sent;
/// report = shifted + the first parameters.
pub(super) fn plan() -> Plan {
    let (doubled, shifted) = (view(DOUBLED, rows()), view(SHIFTED, rows()));
    let per_row = Word::Rows(1);
    let sent = |view| Command::Exchange(Exchange { view, combine: Combine::Sum, when: When::Update, halves: None });
    let mut train = vec![
        step(&SCALE, per_row, 2.0.into(), vec![view(INPUT, rows())], doubled),
        step(&SUM, per_row, 1.0.into(), vec![doubled], view(GRADIENT, row())),
        sent(view(GRADIENT, row())),
        sent(doubled),
    ];
    let (mut from, mut to) = (doubled, shifted);
    for _ in 0..LONG {
        train.push(step(&SCALE, per_row, 1.0.into(), vec![from], to));
        (from, to) = (to, from);
    }
    let parameters = view(PARAMETERS, row());
    train.push(sent(from));
    train.push(step(&ADD, per_row, 1.0.into(), vec![from, parameters], view(REPORT, rows())));
    Plan { passes: LiteMap::from_iter([(Pass::Train, train)]), ..super::plan() }
}

/// A rig with the plan, which has run with as many rows as a run may have: only then runs begin ahead.
fn load(rig: &Rig, rows: usize) {
    assert!(matches!(rig.load(plan(), u32::try_from(rows).unwrap()), Event::Loaded { .. }));
    rig.run(Pass::Train, &input(rows), Combining::Host, 0);
    answered(rig, rows, 0, [0.0; 3]);
}

/// The answer to a run with these parameters, behind all that it sends; gives its times.
fn answered(rig: &Rig, rows: usize, step: u64, parameters: [f32; 3]) -> manyhands_engine::adapters::Timing {
    let doubled = doubled(&input(rows));
    let shifted: Vec<f32> = doubled.iter().map(|d| d + LONG as f32).collect();
    for (command, expected) in [(2, sums(&doubled)), (3, doubled), (LONG + 4, shifted.clone())] {
        match rig.event() {
            Event::Exchange { ticket, command: found, data } => {
                assert_eq!((ticket.step, found), (step, command));
                assert!(data == expected, "command {command} of run {step}");
            }
            other => panic!("{other:?}"),
        }
    }
    match rig.event() {
        Event::Done { ticket, reports, outputs, timing } => {
            assert_eq!((ticket.step, reports.len(), outputs.len()), (step, 1, 0));
            let expected = shifted.iter().enumerate().map(|(i, s)| s + parameters[i % 3]);
            assert!(reports[0].iter().copied().eq(expected), "report of run {step}");
            timing
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn runs_are_answered_in_order_each_behind_what_it_sends() {
    on_every_adapter(|rig| {
        load(rig, 300);
        let sizes = [300, 1, 300, 17, 0, 299, 64, 300];
        for (step, rows) in (1..).zip(sizes) {
            rig.run(Pass::Train, &input(rows), Combining::Host, step);
        }
        for (step, rows) in (1..).zip(sizes) {
            answered(rig, rows, step, [0.0; 3]);
        }
    });
}

/// Weights that are written between two runs are those of the second alone.
#[test]
fn what_is_written_between_runs_is_read_by_those_behind_it() {
    on_every_adapter(|rig| {
        load(rig, 300);
        for step in 1..=6 {
            let data = [step as f32, 0.0, -1.0].as_slice().into();
            rig.ask(Request::Write { role: Role::Parameters(0), offset: 0, data });
            rig.run(Pass::Train, &input(300), Combining::Host, step);
        }
        for step in 1..=6 {
            answered(rig, 300, step, [step as f32, 0.0, -1.0]);
        }
    });
}

#[test]
fn the_next_runs_values_are_uploaded_while_a_run_computes() {
    on_every_gpu(|rig| {
        load(rig, MANY_ROWS);
        let input: Arc<[f32]> = input(MANY_ROWS).into();
        for step in 1..=6 {
            rig.run(Pass::Train, &input, Combining::Host, step);
        }
        let upload_ms: Vec<f64> = (1..=6).map(|step| answered(rig, MANY_ROWS, step, [0.0; 3]).upload_ms).collect();
        assert!(upload_ms[0] > 0.0, "{upload_ms:?}");
        let hidden = upload_ms[1..].iter().filter(|ms| **ms == 0.0).count();
        assert!(hidden >= 3, "{upload_ms:?} ms of uploads are seen");
    });
}

#[test]
fn runs_ahead_create_nothing() {
    on_every_gpu(|rig| {
        load(rig, 300);
        let before = gpu::objects_created();
        for step in 1..=10 {
            rig.run(Pass::Train, &input(300), Combining::Host, step);
        }
        for step in 1..=10 {
            answered(rig, 300, step, [0.0; 3]);
        }
        assert_eq!(gpu::objects_created(), before);
    });
}

/// Begins long runs with the numbers 1 to 4; the first has sent a value.
fn begin_four(rig: &Rig) -> Vec<Ticket> {
    load(rig, MANY_ROWS);
    let input = input(MANY_ROWS);
    let tickets = (1..=4).map(|step| rig.run(Pass::Train, &input, Combining::Host, step)).collect();
    assert_eq!(rig.exchanged().0, 2);
    tickets
}

/// Skips what runs send; gives the number of the run that is answered next.
fn next_answered(rig: &Rig) -> u64 {
    loop {
        match rig.event() {
            Event::Exchange { ticket, .. } => assert_ne!(ticket.step, 3, "the run was given up"),
            Event::Done { ticket, .. } => return ticket.step,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn of_runs_in_flight_the_one_that_is_given_up_says_nothing() {
    on_every_adapter(|rig| {
        let tickets = begin_four(rig);
        rig.ask(Request::Abandon(tickets[2]));
        assert_eq!([(); 3].map(|()| next_answered(rig)), [1, 2, 4]);
        // Nothing of it is left.
        rig.run(Pass::Train, &input(10), Combining::Host, 5);
        answered(rig, 10, 5, [0.0; 3]);
    });
}

#[test]
fn a_device_that_is_lost_with_runs_in_flight_names_the_oldest_and_no_other() {
    on_every_adapter(|rig| {
        begin_four(rig);
        rig.ask(Request::Lose);
        let mut n_answered = 0;
        let failed = loop {
            match rig.event() {
                Event::Done { .. } => n_answered += 1,
                Event::Exchange { .. } => {}
                Event::Failed { ticket: Some(failed), fault: Fault::Lost(_) } => break failed,
                other => panic!("{other:?}"),
            }
        };
        assert!(n_answered < 4 && failed.step == n_answered + 1, "{failed:?} after {n_answered} answers");
        assert!(rig.next().is_none() && rig.handle.requests.is_closed());
    });
}

/// A run that waits for others begins when all before it are answered; those behind it wait for it.
#[test]
fn a_run_that_waits_for_a_combined_value_is_alone() {
    on_every_adapter(|rig| {
        let mut plan = plan();
        plan.passes.insert(Pass::Evaluate, super::plan().commands(Pass::Train).to_vec());
        rig.load(plan, 300);
        for step in [1, 3] {
            rig.run(Pass::Train, &input(300), Combining::Host, step);
            rig.run(Pass::Train, &input(300), Combining::Host, step + 1);
            let waiting = rig.run(Pass::Evaluate, &input(8), Combining::Host, 9);
            rig.run(Pass::Train, &input(300), Combining::Host, 10);
            answered(rig, 300, step, [0.0; 3]);
            answered(rig, 300, step + 1, [0.0; 3]);
            assert_eq!([rig.exchanged().0, rig.exchanged().0], [2, 5]);
            rig.ask(Request::Combined { ticket: waiting, command: 5, data: [0.0; 3].into() });
            rig.done();
            answered(rig, 300, 10, [0.0; 3]);
        }
    });
}

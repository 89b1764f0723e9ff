//! Training that is changed on the way: does a run go on with the same weights whatever changes around it?

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::sync::Arc;

use manyhands::adapters::Info;
use manyhands::data::digits;
use manyhands::layers::{BatchNormalization, Conv2D, Dense, Flatten};
use manyhands::{AdapterStatus, Compile, Fit, Loss, Model, Optimizer, Sequential, Session, SplitMode, Trainer};
use manyhands_engine::adapters::{self, ActorId, Opener, Request, remote};
use manyhands_engine::kernels::{FAMILIES, Families, dense};
use manyhands_engine::runtime::Native;

use crate::close::assert_close;

fn cpu() -> Info {
    adapters::cpu::info()
}

fn model(synchronized: bool) -> Model {
    let norm = BatchNormalization::new().momentum(0.9);
    let norm = if synchronized { norm.synchronized() } else { norm };
    Sequential::new([8, 8, 1])
        .add(Conv2D::new(4, [3, 3]))
        .add(norm)
        .add(Flatten::default())
        .add(Dense::new(10))
        .build(3)
        .unwrap()
}

fn trainer(n_adapters: usize) -> Trainer {
    let compile = Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    Trainer::new(model(true), compile).unwrap().on(vec![cpu(); n_adapters]).split(SplitMode::Even)
}

async fn session(trainer: &mut Trainer) -> Session {
    trainer.asynchronous().session(digits::train().unwrap(), Fit::new(1).batch_size(64)).await.unwrap()
}

/// Losses of some steps, with something done before each.
fn losses(
    mut trainer: Trainer,
    steps: usize,
    mut change: impl AsyncFnMut(usize, &mut Trainer, &mut Session),
) -> Vec<f64> {
    pollster::block_on(async {
        let mut session = session(&mut trainer).await;
        let mut losses = Vec::new();
        for step in 0..steps {
            change(step, &mut trainer, &mut session).await;
            let log = session.step_async(&mut trainer).await.unwrap().unwrap();
            losses.push(log.values.get("loss").unwrap());
        }
        losses
    })
}

#[test]
fn adapters_join_and_leave_and_the_loss_does_not_notice() {
    let undisturbed = losses(trainer(1), 9, async |_, _, _| {});
    let changed = losses(trainer(1), 9, async |step, trainer, _| match step {
        2 => assert_eq!(trainer.asynchronous().join(&cpu()).await.unwrap(), 1),
        4 => assert_eq!(trainer.asynchronous().join(&cpu()).await.unwrap(), 2),
        6 => trainer.leave(0).unwrap(),
        8 => {
            trainer.leave(2).unwrap();
            let error = trainer.leave(1).unwrap_err().to_string();
            assert!(error.contains("needs to stay: no other takes part"), "{error}");
            let standings: Vec<_> = trainer.open_adapters().iter().map(|adapter| adapter.status).collect();
            assert_eq!(
                standings,
                [AdapterStatus::Left, AdapterStatus::Active { is_excluded: false }, AdapterStatus::Left]
            );
        }
        _ => {}
    });
    assert_close("losses", &changed, &undisturbed, 2e-4);
}

#[test]
fn the_cpu_replaces_the_last_adapter_however_many_have_left() {
    let undisturbed = losses(trainer(1), 6, async |_, _, _| {});
    let changed = losses(trainer(8), 6, async |step, trainer, _| match step {
        2 => (0..7).for_each(|idx| trainer.leave(idx).unwrap()),
        4 => trainer.scheduler().unwrap().handle(7).requests.try_send(Request::Lose).unwrap(),
        5 => {
            let cpu = trainer.open_adapters()[8].status;
            assert_eq!(cpu, AdapterStatus::Active { is_excluded: false });
        }
        _ => {}
    });
    assert_close("losses", &changed, &undisturbed, 2e-4);
}

#[test]
fn the_cpu_is_replaced_in_its_place_until_it_was_lost_too_often() {
    pollster::block_on(async {
        let mut trainer = trainer(2);
        let mut session = session(&mut trainer).await;
        session.step_async(&mut trainer).await.unwrap();
        for times in 0..=5 {
            let is_active = |status| matches!(status, AdapterStatus::Active { .. });
            let adapters: Vec<_> = trainer.open_adapters().iter().map(|adapter| is_active(adapter.status)).collect();
            let expected: &[bool] = if times == 0 { &[true; 2] } else { &[false, false, true] };
            assert_eq!(adapters, expected, "after {times} losses of all adapters");
            for (idx, _) in adapters.iter().enumerate().filter(|(_, is_active)| **is_active) {
                trainer.scheduler().unwrap().handle(idx).requests.try_send(Request::Lose).unwrap();
            }
            session.step_async(&mut trainer).await.unwrap();
        }
        trainer.scheduler().unwrap().handle(2).requests.try_send(Request::Lose).unwrap();
        let error = session.step_async(&mut trainer).await.unwrap_err().to_string();
        assert!(error.contains("so was the CPU adapter that replaced them, 6 times"), "{error}");
    });
}

#[test]
fn split_and_throttle_change_on_the_way() {
    let undisturbed = losses(trainer(1), 6, async |_, _, _| {});
    let changed = losses(trainer(2), 6, async |step, trainer, _| match step {
        2 => trainer.set_split(SplitMode::Fixed(vec![3.0, 1.0])).unwrap(),
        3 => {
            let error = trainer.set_split(SplitMode::Fixed(vec![1.0])).unwrap_err().to_string();
            assert!(error.contains("needs 2 parts"), "{error}");
        }
        4 => {
            trainer.set_split(SplitMode::Learned).unwrap();
            trainer.scheduler().unwrap().handle(1).requests.try_send(Request::Throttle(2.0)).unwrap();
        }
        _ => {}
    });
    assert_close("losses", &changed, &undisturbed, 2e-4);
}

#[test]
fn an_adapter_that_is_lost_in_a_step_changes_nothing() {
    let undisturbed = losses(trainer(1), 6, async |_, _, _| {});
    let changed = losses(trainer(2), 6, async |step, trainer, _| {
        if step == 3 {
            trainer.scheduler().unwrap().handle(0).requests.try_send(Request::Lose).unwrap();
        }
    });
    assert_close("losses", &changed, &undisturbed, 2e-4);
}

#[test]
fn a_batch_may_grow_beyond_what_was_opened_and_shrink_below_the_adapters() {
    pollster::block_on(async {
        let mut trainer = trainer(3);
        let mut session = session(&mut trainer).await;
        session.step_async(&mut trainer).await.unwrap();
        for rows in [200, 2, 64] {
            session.set_batch_size(&mut trainer, rows).unwrap();
            let log = session.step_async(&mut trainer).await.unwrap().unwrap();
            assert_eq!(log.rows, rows);
            assert!(log.is_applied && log.values.get("loss").unwrap().is_finite());
        }
        assert_eq!(trainer.progress().step, 4);
        let error = session.set_batch_size(&mut trainer, 0).unwrap_err().to_string();
        assert!(error.contains("needs at least 1"), "{error}");
    });
}

#[test]
fn batch_normalization_changes_its_form_and_keeps_weights_and_state() {
    let by_shard = losses(trainer(1), 8, async |step, trainer, _| {
        if step == 4 {
            // Of one adapter, the shard is the batch.
            trainer.asynchronous().exchange_model(model(false)).await.unwrap();
        }
    });
    assert_close("losses", &by_shard, &losses(trainer(1), 8, async |_, _, _| {}), 2e-4);
    let mut trainer = trainer(1);
    let other = Sequential::new([8, 8, 1]).add(Flatten::default()).add(Dense::new(10)).build(0).unwrap();
    let error = trainer.exchange_model(other).unwrap_err().to_string();
    assert!(error.contains("needs the tensors of the old one"), "{error}");
}

#[test]
fn the_epoch_ends_where_the_data_end() {
    pollster::block_on(async {
        let mut trainer = trainer(2);
        let fit = Fit::new(1).batch_size(500).validation(digits::test().unwrap());
        let mut session = trainer.asynchronous().session(digits::train().unwrap(), fit).await.unwrap();
        assert_eq!(session.batches(), 3);
        let mut rows = 0;
        for epoch in 1..=2 {
            while let Some(log) = session.step_async(&mut trainer).await.unwrap() {
                assert_eq!(log.epoch, epoch);
                rows += log.rows;
            }
            let log = session.end_epoch_async(&mut trainer).await.unwrap();
            assert_eq!((log.epoch, rows), (epoch, 1437 * usize::try_from(epoch).unwrap()));
            assert!(log.values.get("val_accuracy").is_some());
        }
    });
}

/// Opens CPU adapters at the other end of a link, in threads of their own.
fn linked() -> Opener {
    Arc::new(|info, actor, runtime, events| {
        let (there, far_here) = async_channel::unbounded();
        let (far_there, here) = async_channel::unbounded();
        let far = runtime.clone();
        let serve = move || -> manyhands_engine::runtime::LocalTask {
            Box::pin(remote::serve(far, remote::LinkEnd { there: far_there, here: far_here }, FAMILIES))
        };
        runtime.spawn("far end", Box::new(serve));
        Ok(remote::connect(info, actor, &*runtime, events, remote::LinkEnd { there, here }))
    })
}

#[test]
fn an_adapter_behind_a_link_gives_the_same_bits() {
    let here = losses(trainer(2), 5, async |_, _, _| {});
    let there = losses(trainer(2).opener(linked()), 5, async |_, _, _| {});
    assert_eq!(here, there);
}

#[test]
fn an_adapter_behind_a_link_can_be_lost() {
    let undisturbed = losses(trainer(1), 6, async |_, _, _| {});
    let changed = losses(trainer(2).opener(linked()), 6, async |step, trainer, _| {
        if step == 2 {
            trainer.scheduler().unwrap().handle(1).requests.try_send(Request::Lose).unwrap();
        }
    });
    assert_close("losses", &changed, &undisturbed, 2e-4);
}

/// What the worker of the test below knows: no activations, no losses.
static KERNELS: Families = &[dense::KERNELS];

#[test]
fn a_worker_without_a_kernel_of_the_plan_is_a_lost_adapter_and_says_so() {
    pollster::block_on(async {
        let (events, said) = async_channel::unbounded();
        let (there, far_here) = async_channel::unbounded();
        let (far_there, here) = async_channel::unbounded();
        let far = remote::serve(Arc::new(Native), remote::LinkEnd { there: far_there, here: far_here }, KERNELS);
        let near = remote::connect(&cpu(), ActorId::default(), &Native, events, remote::LinkEnd { there, here });
        let plan = Arc::new(trainer(1).model().inference_plan());
        near.requests.send(Request::Load { plan, capacity: 4 }).await.unwrap();
        far.await;
        let message = said.recv().await.unwrap();
        let expected = r#"Lost("its worker has no kernel `conv2d.forward`")"#;
        assert!(format!("{:?}", message.event).contains(expected), "{:?}", message.event);
    });
}

#[test]
fn a_link_that_closes_is_a_lost_adapter() {
    pollster::block_on(async {
        let (events, said) = async_channel::unbounded();
        let (there, _asked) = async_channel::unbounded();
        let (far_there, here) = async_channel::unbounded();
        let _near = remote::connect(
            &cpu(),
            ActorId { adapter_idx: 7, reopened: 1 },
            &Native,
            events,
            remote::LinkEnd { there, here },
        );
        far_there.close();
        let message = said.recv().await.unwrap();
        assert_eq!(message.actor, ActorId { adapter_idx: 7, reopened: 1 });
        assert!(format!("{:?}", message.event).contains("its worker has ended"), "{:?}", message.event);
    });
}

/// Losses of some steps on three adapters, those of the same steps by one of them, and the largest relative difference of gradients.
fn compared(synchronized: bool, steps: usize) -> (Vec<f64>, Vec<f64>, f32) {
    pollster::block_on(async {
        let compile = Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
        let trainer = Trainer::new(model(synchronized), compile).unwrap();
        let mut trainer = trainer.on(vec![cpu(); 3]).split(SplitMode::Even);
        let mut session = session(&mut trainer).await;
        let (mut split, mut alone, mut difference) = (Vec::new(), Vec::new(), 0.0_f32);
        while split.len() < steps {
            if split.len() == 12 {
                trainer.scheduler().unwrap().handle(2).requests.try_send(Request::Lose).unwrap();
            }
            let lone = session.step_alone_async(&mut trainer).await.unwrap();
            let Some(log) = session.step_async(&mut trainer).await.unwrap() else {
                assert_eq!(lone, None, "the epoch has ended");
                session.end_epoch_async(&mut trainer).await.unwrap();
                continue;
            };
            let lone = lone.unwrap();
            split.push(log.values.get("loss").unwrap());
            alone.push(lone.values.get("loss").unwrap());
            difference = difference.max((lone.gradient_norm / log.gradient_norm - 1.0).abs());
        }
        (split, alone, difference)
    })
}

#[test]
fn one_adapter_alone_finds_the_loss_of_a_split_step_and_changes_nothing() {
    let (split, alone, difference) = compared(true, 26);
    assert_close("losses", &alone, &split, 1e-6);
    assert!(difference < 1e-5, "gradients differ by {difference}");
    let undisturbed = losses(trainer(3), 11, async |_, _, _| {});
    assert_eq!(split[..11], undisturbed, "to the bit");
    let (split, alone, difference) = compared(false, 4);
    let largest = split.iter().zip(&alone).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(largest > 1e-3 && difference > 1e-3, "statistics of each shard differ by {largest} and {difference}");
}

#[test]
fn one_adapter_has_nothing_to_compare_its_steps_with() {
    pollster::block_on(async {
        let mut trainer = trainer(1);
        let mut session = session(&mut trainer).await;
        assert_eq!(session.step_alone_async(&mut trainer).await.unwrap(), None);
        session.step_async(&mut trainer).await.unwrap();
    });
}

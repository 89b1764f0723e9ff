//! Does a run keep within the memory that it may take, with the result of one that may take all?

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use manyhands::adapters::{Info, Kind, MemoryLimits};
use manyhands::data::{InMemory, digits};
use manyhands::layers::{Activation, BatchNormalization, Conv2D, Dense, Flatten, Initializer};
use manyhands::{
    Compile, CpuFallback, ErrorKind, Fit, Loss, Model, Optimizer, Placement, Sequential, SplitMode, Trainer,
};

use ndarray::{Array, IxDyn};

use crate::close::assert_close;
use crate::keras::on;
use crate::needed;

const ROWS: usize = 64;

fn model(norm: Option<BatchNormalization>) -> Model {
    let start = Sequential::new([8, 8, 1]).add(Conv2D::new(12, [3, 3]).same());
    let start = match norm {
        Some(norm) => start.add(norm),
        None => start,
    };
    start.add(Flatten::default()).add(Dense::new(20).activation(Activation::Tanh)).add(Dense::new(10)).build(2).unwrap()
}

fn trainer(model: Model, adapters: Vec<Info>) -> Trainer {
    let compile = Compile::new(Optimizer::sgd(0.05, 0.9), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let trainer = Trainer::new(model, compile).unwrap().on(adapters).split(SplitMode::Even);
    trainer.cpu_fallback(CpuFallback::Refused)
}

/// A short run of whole batches; gives the weights.
fn run(trainer: &mut Trainer, micro_batches: u32) -> Vec<f32> {
    let mut fit = Fit::new(1).batch_size(ROWS).in_order().micro_batches(micro_batches);
    fit.drop_remainder = true;
    trainer.fit(digits::train().unwrap(), &fit).unwrap();
    trainer.model().weights.parameters.concat()
}

/// Bytes that training takes with a quarter of the rows at once.
fn quarter(trainer: &Trainer, kind: Kind) -> u64 {
    trainer.memory_need(kind, ROWS, 4, None).unwrap().unwrap().bytes
}

#[test]
fn a_run_within_a_limit_is_one_in_micro_batches_bit_by_bit() {
    for norm in [None, Some(BatchNormalization::new())] {
        let model = model(norm);
        let mut pieces = trainer(model.clone(), vec![Info::cpu()]);
        let limit = quarter(&pieces, Kind::Cpu);
        let mut limited = trainer(model, vec![Info::cpu()]).memory(MemoryLimits::default().limit("cpu", limit));
        let whole = limited.memory_need(Kind::Cpu, ROWS, 1, None).unwrap().unwrap();
        assert!(whole.bytes > limit && whole.rows == 64, "{whole:?}, limit {limit}");
        assert_eq!(limited.memory_need(Kind::Cpu, ROWS, 1, Some(limit)).unwrap().unwrap().rows, 16);
        assert_eq!(run(&mut limited, 1), run(&mut pieces, 4));
        assert_eq!(limited.open_adapters()[0].bytes, pieces.open_adapters()[0].bytes);
    }
}

#[test]
fn every_adapter_keeps_within_its_limit_and_the_result_is_that_of_an_unlimited_run() {
    let gpus = needed::gpu_indices();
    let mut rigs: Vec<String> = gpus.iter().cloned().chain(["cpu".to_owned()]).collect();
    rigs.push(rigs.join(","));
    for rig in rigs {
        let mut free = trainer(model(None), on(&rig));
        let unlimited = run(&mut free, 1);
        let mut limits = MemoryLimits::default();
        for info in on(&rig) {
            limits = limits.limit(info.name.clone(), quarter(&free, info.kind));
        }
        let mut limited = trainer(model(None), on(&rig)).memory(limits.clone());
        assert_close(&rig, &run(&mut limited, 1), &unlimited, 1e-4);
        for (idx, (adapter, all)) in limited.open_adapters().iter().zip(free.open_adapters()).enumerate() {
            let limit = limits.of(idx, &adapter.info, &on(&rig)).unwrap();
            assert!(adapter.bytes <= limit && limit < all.bytes, "{}: {} of {limit}", adapter.info.name, adapter.bytes);
        }
    }
}

#[test]
fn too_little_for_one_row_is_an_error_that_names_the_missing_bytes() {
    let mut trainer = trainer(model(None), vec![Info::cpu()]).memory("cpu=20kB".parse().unwrap());
    let needed = trainer.memory_need(Kind::Cpu, 1, 1, None).unwrap().unwrap().bytes;
    assert_eq!(trainer.memory_need(Kind::Cpu, ROWS, 1, Some(20_000)).unwrap(), None);
    let error = trainer.fit(digits::train().unwrap(), &Fit::new(1).batch_size(ROWS)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let missing = manyhands_engine::shown::bytes(needed - 20_000);
    let wanted = format!("{missing} more than its limit of 20,000 bytes");
    let error = error.to_string();
    assert!(
        error.contains("has too little memory for one row: 1 row at once need") && error.contains(&wanted),
        "{error}"
    );
}

/// Every adapter may take two thirds of what all layers need even for one row at once.
#[test]
fn a_model_that_is_larger_than_each_adapter_trains_in_stages() {
    let dense = || Dense::new(160).activation(Activation::Tanh);
    let model = || {
        let model = Sequential::new([8, 8, 1]).add(Flatten::default()).add(dense()).add(dense()).add(dense());
        model.add(Dense::new(10)).build(2).unwrap()
    };
    let gpus = needed::gpu_indices();
    let rig = gpus.iter().take(2).cloned().chain(vec!["cpu".to_owned(); 3 - gpus.len().min(2)]).collect::<Vec<_>>();
    let rig = rig.join(",");
    let mut free = trainer(model(), on(&rig));
    let unlimited = run(&mut free, 4);
    let mut limits = MemoryLimits::default();
    for info in on(&rig) {
        let one_row = free.memory_need(info.kind, 4, 4, None).unwrap().unwrap().bytes;
        limits = limits.limit(info.name.clone(), one_row / 3 * 2);
    }
    let mut copies = trainer(model(), on(&rig)).memory(limits.clone());
    let error = copies.fit(digits::train().unwrap(), &Fit::new(1).batch_size(ROWS).micro_batches(4)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");

    let placement = Placement::stages([(["..dense"], [0]), (["dense_1"], [1]), (["dense_2.."], [2])]);
    let mut staged = trainer(model(), on(&rig)).memory(limits.clone()).placement(placement);
    assert_close(&rig, &run(&mut staged, 4), &unlimited, 1e-4);
    for (stage, adapter) in staged.open_adapters().iter().enumerate() {
        let limit = limits.of(stage, &adapter.info, &on(&rig)).unwrap();
        assert!(adapter.bytes <= limit, "{}: {} of {limit}", adapter.info.name, adapter.bytes);
        let needed = staged.stage_needs(adapter.info.kind, ROWS, 4, None).unwrap()[stage].unwrap();
        assert_eq!(adapter.bytes, needed.bytes, "counted before it was taken");
    }
}

/// Mesa's llvmpipe ends the loops of a shader after 65,535 turns, whatever is left of a sum.
#[test]
#[allow(clippy::cast_precision_loss, reason = "70,000 is exact")]
fn a_long_sum_is_whole_or_refused_by_name() {
    let inputs = 70_000;
    let mut model = Sequential::new([inputs]).add_named("long", Dense::new(3)).build(0).unwrap();
    model.tensor_mut("long/kernel").unwrap().fill(0.5);
    for rig in ["cpu".to_owned()].into_iter().chain(needed::gpu_indices()) {
        let info = on(&rig);
        let compile = Compile::new(Optimizer::sgd(0.1, 0.0), Loss::MEAN_SQUARED_ERROR);
        let mut trainer = Trainer::new(model.clone(), compile).unwrap().on(info.clone());
        let ones = InMemory::new(Array::ones(IxDyn(&[2, inputs])), Array::zeros(IxDyn(&[2, 3]))).unwrap();
        match trainer.predict(ones, 2) {
            Ok(outputs) => assert!(outputs[0].iter().all(|y| *y == inputs as f32 / 2.0), "{}", outputs[0]),
            Err(error) => {
                assert!(info[0].name.contains("llvmpipe"), "{error}");
                assert!(
                    error.to_string().contains("`long` adds 70000 products, and the driver ends sums after"),
                    "{error}"
                );
            }
        }
    }
}

/// A kernel of more than the 128 MiB that WebGPU promises for a binding: adapters that bind more train it, the others are left out by name.
#[test]
fn a_parameter_above_webgpu_s_binding_trains_where_bindings_are_larger() {
    const INPUTS: u16 = 8_200;
    const OUTPUTS: u16 = 4_100;
    let inputs: Vec<f32> = (0..INPUTS).map(|i| f32::from(i % 7) - 3.0).collect();
    let targets: Vec<f32> = (0..OUTPUTS).map(|j| f32::from(j % 5)).collect();
    let shapes = [[1, usize::from(INPUTS)], [1, usize::from(OUTPUTS)]];
    let arrays = [(&inputs, shapes[0]), (&targets, shapes[1])]
        .map(|(values, shape)| Array::from_shape_vec(IxDyn(&shape), values.clone()).unwrap());
    let mut n_trained = 0;
    for rig in needed::gpu_indices().into_iter().chain(["cpu".to_owned()]) {
        let layer = Dense::new(OUTPUTS.into()).kernel_initializer(Initializer::Zeros);
        let model = Sequential::new([INPUTS.into()]).add(layer).build(0).unwrap();
        let compile = Compile::new(Optimizer::sgd(0.5, 0.0), Loss::MEAN_SQUARED_ERROR);
        let adapters = on(&rig);
        let mut trainer = Trainer::new(model, compile).unwrap().on(adapters).cpu_fallback(CpuFallback::Refused);
        let [x, y] = arrays.clone();
        let fitted = trainer.fit(InMemory::new(x, y).unwrap(), &Fit::new(1).batch_size(1));
        if let Err(error) = fitted {
            let text = error.to_string();
            assert!(text.contains("but a binding of this adapter has at most 134217728"), "{text}");
            continue;
        }
        // One step from 0: the gradient of the mean of (y - t)^2 is -2 / n · x t.
        let kernel = &trainer.model().weights.parameters[0][..usize::from(INPUTS) * usize::from(OUTPUTS)];
        for at in (0..kernel.len()).step_by(9_973).chain([kernel.len() - 1]) {
            let (i, j) = (at / usize::from(OUTPUTS), at % usize::from(OUTPUTS));
            let wanted = 0.5 * 2.0 / f32::from(OUTPUTS) * inputs[i] * targets[j];
            assert!((kernel[at] - wanted).abs() <= 1e-6 * wanted.abs(), "{rig}: {at}: {} {wanted}", kernel[at]);
        }
        n_trained += 1;
    }
    println!("{n_trained} adapters trained it");
    assert!(n_trained > 0);
}

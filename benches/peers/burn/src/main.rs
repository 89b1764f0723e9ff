//! burn's side of the comparison: `benches/peers/README.md` tells the protocol.
//!
//!     burn-steps --model mlp --rows 256 --warm-up 5 --device default

#![allow(clippy::disallowed_methods, clippy::expect_used, reason = "a bench reads the clock, and may panic")]

mod models;
mod operations;
mod product;
mod smollm2;
mod training;
mod turns;

use std::time::Instant;

use burn::optim::{AdamConfig, AdamWConfig, ModuleOptimizer, SgdConfig, momentum::MomentumConfig};
use burn::prelude::{Device, DeviceKind};

use models::{Cnn, Count, DenseStack, GptMini, MobileNetV2, Recurrent, ResNet18, ResNet50};
use smollm2::SmolLm2;
use training::{Batch, Training};
use turns::{Settings, Work};

fn main() {
    let begin = Instant::now();
    let settings = Settings::from_arguments();
    let (device, device_name) = open(&settings.device);
    let (work, parameters) = work(&settings, device);
    turns::serve(&device_name, &settings, parameters, work, begin);
}

/// Opens a device through wgpu, and tells what it is called.
fn open(choice: &str) -> (Device, String) {
    let kind = match choice {
        "default" => DeviceKind::DefaultDevice,
        "cpu" => DeviceKind::Cpu,
        "gpu" => DeviceKind::DiscreteGpu(0),
        other => panic!("`--device` takes default, cpu or gpu, not `{other}`"),
    };
    let (device, setup) = Device::wgpu_options().device_kind(kind).init_with_setup().expect("wgpu gives a device");
    let info = setup.adapter.get_info();
    (device, format!("{}, {}", info.name, info.backend))
}

/// The repeated work, and its number of trained parameters.
fn work(settings: &Settings, device: Device) -> (Box<dyn Work>, usize) {
    let rows = settings.rows;
    if settings.model == "product" {
        return (Box::new(product::Product::new(rows, &device)), 0);
    }
    let device = device.autodiff();
    if ["convolution", "attention", "layer_norm"].contains(&settings.model.as_str()) {
        return (Box::new(operations::Operation::new(&settings.model, rows, device)), 0);
    }
    let training: Box<dyn Work> = match settings.model.as_str() {
        "mlp" => {
            let model = DenseStack::new(&[784, 1024, 1024, 10], &device);
            Box::new(Training::new(model, Batch::classes(rows, [1, 28, 28]), adam(), 1e-3, device))
        }
        "cnn" => {
            Box::new(Training::new(Cnn::new(&device), Batch::classes(rows, [1, 28, 28]), momentum(), 0.01, device))
        }
        "resnet18" => {
            Box::new(Training::new(ResNet18::new(&device), Batch::classes(rows, [3, 32, 32]), momentum(), 0.01, device))
        }
        "resnet50" => {
            Box::new(Training::new(ResNet50::new(&device), Batch::classes(rows, [3, 64, 64]), momentum(), 0.01, device))
        }
        "mobilenet_v2" => {
            let model = MobileNetV2::new(&device);
            Box::new(Training::new(model, Batch::classes(rows, [3, 64, 64]), momentum(), 0.01, device))
        }
        "lstm" => {
            Box::new(Training::new(Recurrent::new(&device), Batch::classes(rows, [1, 140, 256]), adam(), 1e-3, device))
        }
        "gpt_mini" => {
            Box::new(Training::new(GptMini::new(&device), Batch::text(rows, 128, 96), adam(), 1e-3, device))
        }
        "smollm2" | "smollm2_small" => {
            let (blocks, vocabulary) = if settings.model == "smollm2" { (30, 49_152) } else { (4, 4_096) };
            let batch = Batch::text(rows, smollm2::LENGTH, vocabulary);
            Box::new(Training::new(SmolLm2::new(blocks, vocabulary, &device), batch, adam_w(), 2e-4, device))
        }
        "make_parallel" => {
            let model = DenseStack::new(&[8000, 4000, 2000, 500, 300, 1], &device);
            Box::new(Training::new(model, Batch::binary(rows, [8000, 1, 1]), SgdConfig::new().init(), 0.05, device))
        }
        other => panic!("burn has no model `{other}` here"),
    };
    let count = Count::of(&settings.model);
    assert_eq!(training.parameters(), count.trained + count.others, "burn counts what is not trained, too");
    (training, count.trained)
}

/// With Keras' epsilon; burn's own default is 1e-5.
fn adam() -> ModuleOptimizer {
    AdamConfig::new().with_epsilon(1e-7).init()
}

/// Without decay, with PyTorch's epsilon.
fn adam_w() -> ModuleOptimizer {
    AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.0).init()
}

/// Without dampening, as in Keras and PyTorch; burn's own default is 0.1.
fn momentum() -> ModuleOptimizer {
    let momentum = MomentumConfig::new().with_momentum(0.9).with_dampening(0.0);
    SgdConfig::new().with_momentum(Some(momentum)).init()
}

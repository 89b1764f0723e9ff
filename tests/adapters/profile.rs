//! Does a profile tell the time of each kernel of each step, and change none of what is computed?

#![cfg(feature = "gpu")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use manyhands::adapters::Info;
use manyhands::data::digits;
use manyhands::layers::{BatchNormalization, Conv2D, Dense, Flatten};
use manyhands::{Compile, Fit, Loss, Model, Optimizer, Sequential, Trainer};
use manyhands_engine::adapters;
use manyhands_engine::adapters::gpu::Options;

use crate::alone::alone;
use crate::needed;

/// Rows of a batch: three steps, which are all there are.
const ROWS: usize = 479;
const STEPS: u32 = 3;

fn model() -> Model {
    Sequential::new([8, 8, 1])
        .add(Conv2D::new(4, [3, 3]))
        .add(BatchNormalization::new())
        .add(Flatten::default())
        .add(Dense::new(10))
        .build(3)
        .unwrap()
}

/// The weights after some steps on one adapter.
fn trained(adapter: &Info, profile: Option<PathBuf>) -> Vec<f32> {
    let compile = Compile::new(Optimizer::sgd(1e-2, 0.9), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let options = Options { profile, ..Options::from_environment() };
    let trainer = Trainer::new(model(), compile).unwrap().on(vec![adapter.clone()]);
    let mut trainer = trainer.opener(adapters::opener(options));
    trainer.fit(digits::train().unwrap(), &Fit::new(1).batch_size(ROWS)).unwrap();
    trainer.model().tensors().flat_map(|(_, _, values)| values.to_vec()).collect()
}

/// Each kernel's dispatches, and the milliseconds of them all.
fn read(table: &str) -> BTreeMap<String, (u32, f64)> {
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some("pass,layer,kernel,tile,workgroups,times,ms,least_ms,gflop_per_s,gb_per_s"));
    let mut kernels = BTreeMap::new();
    for line in lines {
        let [pass, layer, kernel, _, _, times, ms, least_ms, ..] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("`{line}` has too few columns")
        };
        let (times, ms, least_ms): (u32, f64, f64) =
            (times.parse().unwrap(), ms.parse().unwrap(), least_ms.parse().unwrap());
        assert!(least_ms > 0.0 && least_ms * f64::from(times) <= ms * 1.001, "{line}");
        let (count, sum) = kernels.entry(format!("{pass} {} {kernel}", layer.trim_matches('"'))).or_insert((0, 0.0));
        (*count, *sum) = (*count + times, *sum + ms);
    }
    kernels
}

#[test]
fn each_kernel_of_each_step_has_its_time() {
    let _alone = alone();
    for adapter in needed::gpus() {
        let folder = tempfile::tempdir().unwrap();
        let weights = trained(&adapter, Some(folder.path().join("profile")));
        assert_eq!(weights, trained(&adapter, None), "{}", adapter.name);
        let file = folder.path().join(format!("profile/kernels-{}.csv", adapter.index));
        let kernels = read(&std::fs::read_to_string(file).unwrap());
        for kernel in [
            "train conv2d conv2d.forward",
            "train batch_normalization batch_norm.forward",
            "train dense dense_backward_weights.backward_weights",
            "update update sgd.update",
        ] {
            assert_eq!(kernels.get(kernel).map(|(count, _)| *count), Some(STEPS), "{kernel} of {kernels:?}");
        }
    }
}

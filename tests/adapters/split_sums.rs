//! Does a network train as it did where the sums of its products are split, alone and beside an adapter that splits none?
//!
//! Values of the CPU adapter are compared, which splits no sums.

#![cfg(feature = "gpu")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that fails may panic, and says where it runs")]

use manyhands::adapters::Info;
use manyhands::data::{Batch, Synthetic};
use manyhands::layers::{
    Activation, BatchNormalization, Conv2D, Conv2DTranspose, Dense, Flatten, GlobalAveragePooling2D, Relu, Reshape,
};
use manyhands::model::Objective;
use manyhands::{Compile, Loss, Model, Optimizer, Sequential, SplitMode, Trainer};
use manyhands_engine::adapters;
use manyhands_engine::adapters::gpu::Options;
use manyhands_engine::kernels::{conv2d, dense, split_sum};
use manyhands_engine::plan::{Command, Dispatch, Pass, Plan};

use crate::close::assert_close;
use crate::needed;

const ROWS: usize = 8;
const WORKGROUPS: u32 = 256;

/// Long sums everywhere: strides, groups, a transposed convolution, activations, biases, and statistics that all adapters share.
fn network() -> Model {
    Sequential::new([6, 6, 48])
        .add(Conv2D::new(96, [3, 3]).same().strides([2, 2]).activation(Activation::Silu))
        .add(BatchNormalization::new().synchronized())
        .add(Conv2D::new(64, [3, 3]).same().groups(2))
        .add(Relu::default())
        .add(Conv2DTranspose::new(32, [3, 3]).same().strides([2, 2]).activation(Activation::Tanh))
        .add(Conv2D::new(256, [1, 1]).no_bias())
        .add(Conv2D::new(40, [1, 1]))
        .add(Flatten::default())
        .add(Dense::new(300).activation(Activation::Elu))
        .add(Reshape::new([1, 1, 300]))
        .add(GlobalAveragePooling2D::default())
        .add(Dense::new(7))
        .build(5)
        .unwrap()
}

fn compile() -> Compile {
    Compile::new(Optimizer::sgd(5e-2, 0.9), Loss::SPARSE_CATEGORICAL_CROSSENTROPY)
}

/// Losses of three steps, and the weights after them.
fn trained(adapters: Vec<Info>) -> (Vec<f64>, Vec<f32>) {
    let trainer = Trainer::new(network(), compile()).unwrap().on(adapters).split(SplitMode::Even);
    let options = Options { workgroups: Some(WORKGROUPS), ..Options::from_environment() };
    let mut trainer = trainer.opener(adapters::opener(options));
    let rows = Synthetic::new([6, 6, 48], 7, 0..ROWS, 3).unwrap();
    let batch = Batch::fetch(&rows, &(0..ROWS).collect::<Vec<_>>()).unwrap();
    let losses = (0..3).map(|_| trainer.train_on_batch(batch.clone()).unwrap().values.get("loss").unwrap()).collect();
    let model = trainer.current_model().unwrap();
    (losses, model.tensors().flat_map(|(_, _, values)| values.to_vec()).collect())
}

fn plan() -> Plan {
    network().plan(&Objective::new(vec![Loss::SPARSE_CATEGORICAL_CROSSENTROPY], Optimizer::sgd(5e-2, 0.9))).unwrap()
}

fn dispatches(plan: &Plan) -> impl Iterator<Item = &Dispatch> {
    plan.commands(Pass::Train).iter().filter_map(|command| match command {
        Command::Dispatch(dispatch) => Some(dispatch),
        Command::Exchange(_) => None,
    })
}

#[test]
fn products_with_few_workgroups_are_split() {
    let (plan, split) = (plan(), plan().with_split_sums(8, WORKGROUPS));
    let splits = |dispatch: &Dispatch| {
        let place = dispatch.kernel.params.iter().position(|field| field.name == "splits");
        place.map(|place| dispatch.params[place].bits(&Default::default()))
    };
    let products = [&dense::FORWARD, &dense::BACKWARD_INPUT, &conv2d::FORWARD, &conv2d::BACKWARD_INPUT];
    for kernel in products {
        let of_kernel: Vec<_> = dispatches(&split.plan).filter(|it| std::ptr::eq(it.kernel, kernel)).collect();
        assert!(of_kernel.iter().any(|dispatch| splits(dispatch) > Some(1)), "{kernel:?} is never split");
    }
    let n_split = dispatches(&split.plan)
        .filter(|it| products.iter().any(|kernel| std::ptr::eq(*kernel, it.kernel)) && splits(it) > Some(1))
        .count();
    let n_finished = dispatches(&split.plan).filter(|it| std::ptr::eq(it.kernel, &raw const split_sum::FINISH)).count();
    assert_eq!(n_split, n_finished);
    assert_eq!(split.plan.commands(Pass::Train).len(), plan.commands(Pass::Train).len() + n_split);
    // Each exchange is known by its place in the plan before.
    for (place, command) in split.places[&Pass::Train].iter().zip(split.plan.commands(Pass::Train)) {
        let before = &plan.commands(Pass::Train)[*place];
        assert_eq!(matches!(command, Command::Exchange(_)), matches!(before, Command::Exchange(_)));
    }
    for pass in [Pass::Predict, Pass::Evaluate] {
        assert_eq!(split.plan.commands(pass).len(), plan.commands(pass).len(), "{pass:?} stays as it is");
    }
    assert_eq!(plan.with_split_sums(8, 0).plan.commands(Pass::Train).len(), plan.commands(Pass::Train).len());
    // With many rows there are tiles enough.
    assert_eq!(plan.with_split_sums(100_000, WORKGROUPS).plan.buffers.len(), plan.buffers.len());
}

#[test]
fn a_network_trains_with_split_sums_as_without() {
    let (losses, weights) = trained(vec![Info::cpu()]);
    let gpus = needed::gpus();
    let mut rigs: Vec<Vec<Info>> = gpus.iter().map(|info| vec![info.clone()]).collect();
    // The CPU splits no sums, and the exchanges of the two must still meet.
    rigs.extend(gpus.first().map(|info| vec![info.clone(), Info::cpu()]));
    for rig in rigs {
        let names: Vec<&str> = rig.iter().map(|info| info.name.as_str()).collect();
        println!("on {names:?}");
        let (got_losses, got_weights) = trained(rig.clone());
        assert_close(&format!("losses on {names:?}"), &got_losses, &losses, 1e-4);
        assert_close(&format!("weights on {names:?}"), &got_weights, &weights, 1e-4);
    }
}

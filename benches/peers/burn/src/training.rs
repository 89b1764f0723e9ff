//! Training steps of a model on one batch, which each step takes from the host's memory, as training does.

use burn::module::Module;
use burn::nn::loss::{BinaryCrossEntropyLossConfig, CrossEntropyLossConfig};
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::models::Network;
use crate::turns::Work;

/// Rows that no training would learn from: the same in every program of the comparison.
pub struct Batch {
    images: Vec<f32>,
    shape: [usize; 4],
    targets: Vec<i32>,
    loss: Loss,
}

enum Loss {
    /// Softmax cross-entropy.
    Classes,
    /// Sigmoid cross-entropy of one output.
    Binary,
}

impl Batch {
    /// Images `[channels, height, width]` of ten classes.
    pub fn classes(rows: usize, image: [usize; 3]) -> Self {
        Self::new(rows, image, 10, Loss::Classes)
    }

    /// Images of two classes.
    pub fn binary(rows: usize, image: [usize; 3]) -> Self {
        Self::new(rows, image, 2, Loss::Binary)
    }

    /// Characters, each with the next one as its target.
    #[allow(clippy::cast_precision_loss, reason = "characters are below 251")]
    pub fn text(rows: usize, length: usize, characters: usize) -> Self {
        let character = |place: usize| place * 7919 % 251 % characters;
        let places = 0..rows * length;
        Self {
            images: places.clone().map(|place| character(place) as f32).collect(),
            shape: [rows, 1, 1, length],
            targets: places.map(|place| i32::try_from(character(place + 1)).expect("a character is small")).collect(),
            loss: Loss::Classes,
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "both are below 251")]
    fn new(rows: usize, [channels, height, width]: [usize; 3], classes: usize, loss: Loss) -> Self {
        let images = (0..rows * channels * height * width).map(|i| (i * 7919 % 251) as f32 / 251.0).collect();
        let targets = (0..rows).map(|row| i32::try_from(row % classes).expect("a class is small")).collect();
        Self { images, shape: [rows, channels, height, width], targets, loss }
    }

    fn images(&self, device: &Device) -> Tensor<4> {
        Tensor::from_data(TensorData::new(self.images.clone(), self.shape), device)
    }

    fn loss(&self, logits: Tensor<2>, device: &Device) -> Tensor<1> {
        let rows = self.targets.len();
        let targets = TensorData::new(self.targets.clone(), [rows]);
        match self.loss {
            Loss::Classes => {
                CrossEntropyLossConfig::new().init(device).forward(logits, Tensor::<1, Int>::from_data(targets, device))
            }
            Loss::Binary => {
                let loss = BinaryCrossEntropyLossConfig::new().with_logits(true).init(device);
                loss.forward(logits, Tensor::<1, Int>::from_data(targets, device).reshape([rows, 1]))
            }
        }
    }
}

/// A model in training.
pub struct Training<M> {
    /// Taken out within a step: the optimizer gives a new one.
    model: Option<M>,
    batch: Batch,
    optimizer: ModuleOptimizer,
    rate: f64,
    device: Device,
    loss: Option<Tensor<1>>,
}

impl<M: Network> Training<M> {
    /// On an autodiff device.
    pub fn new(model: M, batch: Batch, optimizer: ModuleOptimizer, rate: f64, device: Device) -> Self {
        Self { model: Some(model), batch, optimizer, rate, device, loss: None }
    }
}

impl<M: Network> Work for Training<M> {
    fn step(&mut self) {
        let model = self.model.take().expect("each step puts the model back");
        let loss = self.batch.loss(model.logits(self.batch.images(&self.device)), &self.device);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        self.model = Some(self.optimizer.step(self.rate, model, gradients));
        self.loss = Some(loss.without_autodiff());
    }

    fn finish(&mut self) -> f64 {
        let loss = self.loss.take().map_or(f64::NAN, |loss| f64::from(loss.into_scalar::<f32>()));
        self.device.sync().expect("the device ends its work");
        loss
    }

    fn parameters(&self) -> usize {
        self.model.as_ref().map_or(0, Module::num_params)
    }
}

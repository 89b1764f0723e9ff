//! Single operations, whose kernels are compared by compilers of GPUs: `benches/peers/README.md`.

use burn::tensor::module::{attention, conv2d, layer_norm};
use burn::tensor::ops::{AttentionModuleOptions, ConvOptions};
use burn::tensor::{Device, Distribution, Tensor};

use crate::turns::Work;

/// Forward and backward of one operation.
pub struct Operation {
    name: String,
    rows: usize,
    device: Device,
    loss: Option<Tensor<1>>,
}

impl Operation {
    /// On an autodiff device.
    pub fn new(name: &str, rows: usize, device: Device) -> Self {
        Self { name: name.to_owned(), rows, device, loss: None }
    }

    fn tensor<const D: usize>(&self, shape: [usize; D]) -> Tensor<D> {
        Tensor::random(shape, Distribution::Default, &self.device).require_grad()
    }

    /// Sum of the operation's output.
    fn forward(&self) -> Tensor<1> {
        match self.name.as_str() {
            "convolution" => {
                let (x, weights) = (self.tensor([self.rows, 64, 56, 56]), self.tensor([64, 64, 3, 3]));
                conv2d(x, weights, None, ConvOptions::new([1, 1], [1, 1], [1, 1], 1)).sum()
            }
            "attention" => {
                let [q, k, v] = [(); 3].map(|()| self.tensor([self.rows, 8, 512, 64]));
                attention(q, k, v, None, None, AttentionModuleOptions::default()).sum()
            }
            _ => layer_norm(self.tensor([self.rows, 512]), self.tensor([512]), Some(self.tensor([512])), 1e-5).sum(),
        }
    }
}

impl Work for Operation {
    fn step(&mut self) {
        let loss = self.forward();
        let _gradients = loss.backward();
        self.loss = Some(loss);
    }

    fn finish(&mut self) -> f64 {
        let loss = self.loss.take().map_or(f64::NAN, |loss| f64::from(loss.into_scalar::<f32>()));
        self.device.sync().expect("the device ends its work");
        loss
    }

    fn parameters(&self) -> usize {
        0
    }
}

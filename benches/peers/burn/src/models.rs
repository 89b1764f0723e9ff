//! The models. burn lays images out as `[batch, channels, height, width]`.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

/// Values of a model.
pub struct Count {
    /// Parameters that training changes.
    pub trained: usize,
    /// Means and variances that batch normalization follows.
    pub moving: usize,
}

impl Count {
    pub fn of(model: &str) -> Self {
        match model {
            "mlp" => Self { trained: 1_863_690, moving: 0 },
            "cnn" => Self { trained: 1_199_978, moving: 192 },
            "resnet18" => Self { trained: 11_173_962, moving: 9_600 },
            "make_parallel" => Self { trained: 41_157_101, moving: 0 },
            other => panic!("the parameters of `{other}` were never counted"),
        }
    }
}

/// A model of images.
pub trait Network: Module {
    /// Logits `[batch, classes]` of images `[batch, channels, height, width]`.
    fn logits(&self, images: Tensor<4>) -> Tensor<2>;
}

/// Dense layers with ReLU between them.
#[derive(Module, Debug)]
pub struct DenseStack {
    layers: Vec<Linear>,
}

impl DenseStack {
    /// Of these widths, the input's first.
    pub fn new(widths: &[usize], device: &Device) -> Self {
        let layers = widths.windows(2).map(|pair| LinearConfig::new(pair[0], pair[1]).init(device)).collect();
        Self { layers }
    }
}

impl Network for DenseStack {
    fn logits(&self, images: Tensor<4>) -> Tensor<2> {
        let (last, hidden) = self.layers.split_last().expect("a stack has layers");
        let inputs: Tensor<2> = images.flatten(1, 3);
        last.forward(hidden.iter().fold(inputs, |x, layer| relu(layer.forward(x))))
    }
}

/// conv32 - BN - ReLU - conv64 - BN - ReLU - pool - dense128 - dense10, over 28 × 28 × 1.
#[derive(Module, Debug)]
pub struct Cnn {
    first: ConvNorm,
    second: ConvNorm,
    pool: MaxPool2d,
    dense: DenseStack,
}

impl Cnn {
    pub fn new(device: &Device) -> Self {
        Self {
            first: ConvNorm::new([1, 32], 3, 1, PaddingConfig2d::Valid, device),
            second: ConvNorm::new([32, 64], 3, 1, PaddingConfig2d::Valid, device),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            dense: DenseStack::new(&[12 * 12 * 64, 128, 10], device),
        }
    }
}

impl Network for Cnn {
    fn logits(&self, images: Tensor<4>) -> Tensor<2> {
        let x = relu(self.first.forward(images));
        let x = relu(self.second.forward(x));
        self.dense.logits(self.pool.forward(x))
    }
}

/// A convolution without bias, and batch normalization with Keras' settings.
#[derive(Module, Debug)]
struct ConvNorm {
    conv: Conv2d,
    norm: BatchNorm,
}

impl ConvNorm {
    fn new(channels: [usize; 2], side: usize, stride: usize, padding: PaddingConfig2d, device: &Device) -> Self {
        let conv = Conv2dConfig::new(channels, [side, side]).with_stride([stride, stride]).with_padding(padding);
        // burn's momentum is the part of the new statistics, Keras' that of the old.
        let norm = BatchNormConfig::new(channels[1]).with_epsilon(1e-3).with_momentum(0.01);
        Self { conv: conv.with_bias(false).init(device), norm: norm.init(device) }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.norm.forward(self.conv.forward(x))
    }
}

/// He et al. 2015, arXiv:1512.03385, in its form for 32 × 32 × 3: a stem of 3 × 3 without pooling, four stages.
#[derive(Module, Debug)]
pub struct ResNet18 {
    stem: ConvNorm,
    blocks: Vec<Block>,
    head: Linear,
}

impl ResNet18 {
    pub fn new(device: &Device) -> Self {
        let mut blocks = Vec::new();
        for (inputs, outputs, stride) in [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)] {
            blocks.push(Block::new([inputs, outputs], stride, device));
            blocks.push(Block::new([outputs, outputs], 1, device));
        }
        Self {
            stem: ConvNorm::new([3, 64], 3, 1, around(), device),
            blocks,
            head: LinearConfig::new(512, 10).init(device),
        }
    }
}

impl Network for ResNet18 {
    fn logits(&self, images: Tensor<4>) -> Tensor<2> {
        let stem = relu(self.stem.forward(images));
        let x = self.blocks.iter().fold(stem, |x, block| block.forward(x));
        let pixels: Tensor<3> = x.flatten(2, 3);
        self.head.forward(pixels.mean_dim(2).squeeze_dim::<2>(2))
    }
}

/// Two convolutions beside a shortcut.
#[derive(Module, Debug)]
struct Block {
    first: ConvNorm,
    second: ConvNorm,
    shortcut: Option<ConvNorm>,
}

impl Block {
    fn new(channels: [usize; 2], stride: usize, device: &Device) -> Self {
        let [inputs, outputs] = channels;
        let shortcut = || ConvNorm::new(channels, 1, stride, PaddingConfig2d::Valid, device);
        Self {
            first: ConvNorm::new(channels, 3, stride, around(), device),
            second: ConvNorm::new([outputs, outputs], 3, 1, around(), device),
            shortcut: (stride > 1 || inputs != outputs).then(shortcut),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let beside = match &self.shortcut {
            Some(shortcut) => shortcut.forward(x.clone()),
            None => x.clone(),
        };
        let y = relu(self.first.forward(x));
        relu(self.second.forward(y) + beside)
    }
}

/// One pixel on each side.
fn around() -> PaddingConfig2d {
    PaddingConfig2d::Explicit(1, 1, 1, 1)
}

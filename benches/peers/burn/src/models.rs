//! The models. burn lays images out as `[batch, channels, height, width]`.

use burn::module::Module;
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig, generate_autoregressive_mask};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{
    BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig,
    Lstm, LstmConfig, PaddingConfig2d,
};
use burn::tensor::activation::{gelu, relu};
use burn::tensor::{Bool, Device, Tensor};

/// Values of a model.
pub struct Count {
    /// Parameters that training changes.
    pub trained: usize,
    /// Means and variances that batch normalization follows, and frozen weights.
    pub others: usize,
}

impl Count {
    pub fn of(model: &str) -> Self {
        match model {
            "mlp" => Self { trained: 1_863_690, others: 0 },
            "cnn" => Self { trained: 1_199_978, others: 192 },
            "resnet18" => Self { trained: 11_173_962, others: 9_600 },
            "resnet50" => Self { trained: 23_555_082, others: 53_120 },
            "mobilenet_v2" => Self { trained: 2_236_682, others: 34_112 },
            // Each gate of burn's has a second bias.
            "lstm" => Self { trained: 82_826 + 4 * 64, others: 0 },
            "gpt_mini" => Self { trained: 834_400, others: 0 },
            "smollm2" => Self { trained: 2_442_240, others: 134_515_008 },
            "smollm2_small" => Self { trained: 325_632, others: 16_520_256 },
            "make_parallel" => Self { trained: 41_157_101, others: 0 },
            other => panic!("the parameters of `{other}` were never counted"),
        }
    }
}

/// A model of images, or of texts as images of one channel and one line.
pub trait Network: Module {
    /// Logits `[batch, classes]` of images `[batch, channels, height, width]`; of texts `[batch * width, classes]`.
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

/// He et al. 2015, arXiv:1512.03385, as `keras.applications` has it: with biases, and the stride in a block's first layer.
#[derive(Module, Debug)]
pub struct ResNet50 {
    stem: Normalized,
    pool: MaxPool2d,
    blocks: Vec<Bottleneck>,
    head: Linear,
}

impl ResNet50 {
    pub fn new(device: &Device) -> Self {
        let (mut blocks, mut inputs) = (Vec::new(), 64);
        for (channels, n_blocks, stride) in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)] {
            for block in 0..n_blocks {
                let stride = if block == 0 { stride } else { 1 };
                blocks.push(Bottleneck::new(inputs, channels, stride, block == 0, device));
                inputs = 4 * channels;
            }
        }
        let pool = MaxPool2dConfig::new([3, 3]).with_strides([2, 2]).with_padding(around());
        Self {
            stem: Normalized::biased([3, 64], 7, 2, PaddingConfig2d::Explicit(3, 3, 3, 3), device),
            pool: pool.init(),
            blocks,
            head: LinearConfig::new(2048, 10).init(device),
        }
    }
}

impl Network for ResNet50 {
    fn logits(&self, images: Tensor<4>) -> Tensor<2> {
        let stem = self.pool.forward(relu(self.stem.forward(images)));
        mean_logits(&self.head, self.blocks.iter().fold(stem, |x, block| block.forward(x)))
    }
}

/// A convolution and batch normalization, with the settings of `keras.applications`.
#[derive(Module, Debug)]
struct Normalized {
    conv: Conv2d,
    norm: BatchNorm,
}

impl Normalized {
    /// With bias.
    fn biased(channels: [usize; 2], side: usize, stride: usize, padding: PaddingConfig2d, device: &Device) -> Self {
        let conv = Conv2dConfig::new(channels, [side, side]).with_stride([stride, stride]).with_padding(padding);
        let norm = BatchNormConfig::new(channels[1]).with_epsilon(1.001e-5).with_momentum(0.01);
        Self { conv: conv.init(device), norm: norm.init(device) }
    }

    /// Without bias, in groups.
    fn grouped(channels: [usize; 2], side: usize, stride: usize, groups: usize, device: &Device) -> Self {
        let padding = if side == 1 { PaddingConfig2d::Valid } else { around() };
        let conv = Conv2dConfig::new(channels, [side, side]).with_stride([stride, stride]).with_padding(padding);
        let norm = BatchNormConfig::new(channels[1]).with_epsilon(1e-3).with_momentum(0.001);
        Self { conv: conv.with_groups(groups).with_bias(false).init(device), norm: norm.init(device) }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.norm.forward(self.conv.forward(x))
    }
}

/// Convolutions of 1 × 1, 3 × 3 and 1 × 1 beside a shortcut.
#[derive(Module, Debug)]
struct Bottleneck {
    first: Normalized,
    second: Normalized,
    third: Normalized,
    shortcut: Option<Normalized>,
}

impl Bottleneck {
    fn new(inputs: usize, channels: usize, stride: usize, narrows: bool, device: &Device) -> Self {
        let (none, wide) = (|| PaddingConfig2d::Valid, 4 * channels);
        Self {
            first: Normalized::biased([inputs, channels], 1, stride, none(), device),
            second: Normalized::biased([channels, channels], 3, 1, around(), device),
            third: Normalized::biased([channels, wide], 1, 1, none(), device),
            shortcut: narrows.then(|| Normalized::biased([inputs, wide], 1, stride, none(), device)),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let beside = match &self.shortcut {
            Some(shortcut) => shortcut.forward(x.clone()),
            None => x.clone(),
        };
        let y = relu(self.second.forward(relu(self.first.forward(x))));
        relu(self.third.forward(y) + beside)
    }
}

/// Sandler et al. 2018, arXiv:1801.04381.
#[derive(Module, Debug)]
pub struct MobileNetV2 {
    stem: Normalized,
    blocks: Vec<Inverted>,
    last: Normalized,
    head: Linear,
}

impl MobileNetV2 {
    pub fn new(device: &Device) -> Self {
        let (mut blocks, mut inputs) = (Vec::new(), 32);
        for (expansion, outputs, n_blocks, stride) in [
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        ] {
            for block in 0..n_blocks {
                let stride = if block == 0 { stride } else { 1 };
                blocks.push(Inverted::new([inputs, outputs], expansion, stride, device));
                inputs = outputs;
            }
        }
        Self {
            stem: Normalized::grouped([3, 32], 3, 2, 1, device),
            blocks,
            last: Normalized::grouped([320, 1280], 1, 1, 1, device),
            head: LinearConfig::new(1280, 10).init(device),
        }
    }
}

impl Network for MobileNetV2 {
    fn logits(&self, images: Tensor<4>) -> Tensor<2> {
        let stem = relu6(self.stem.forward(images));
        let x = self.blocks.iter().fold(stem, |x, block| block.forward(x));
        mean_logits(&self.head, relu6(self.last.forward(x)))
    }
}

/// A wide depthwise convolution between narrow ones of 1 × 1.
#[derive(Module, Debug)]
struct Inverted {
    expand: Option<Normalized>,
    depthwise: Normalized,
    project: Normalized,
    adds: bool,
}

impl Inverted {
    fn new(channels: [usize; 2], expansion: usize, stride: usize, device: &Device) -> Self {
        let [inputs, outputs] = channels;
        let wide = inputs * expansion;
        Self {
            expand: (expansion > 1).then(|| Normalized::grouped([inputs, wide], 1, 1, 1, device)),
            depthwise: Normalized::grouped([wide, wide], 3, stride, wide, device),
            project: Normalized::grouped([wide, outputs], 1, 1, 1, device),
            adds: stride == 1 && inputs == outputs,
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let wide = match &self.expand {
            Some(expand) => relu6(expand.forward(x.clone())),
            None => x.clone(),
        };
        let y = self.project.forward(relu6(self.depthwise.forward(wide)));
        if self.adds { y + x } else { y }
    }
}

fn relu6(x: Tensor<4>) -> Tensor<4> {
    x.clamp(0.0, 6.0)
}

/// A dense layer of the means over height and width.
fn mean_logits(head: &Linear, x: Tensor<4>) -> Tensor<2> {
    let pixels: Tensor<3> = x.flatten(2, 3);
    head.forward(pixels.mean_dim(2).squeeze_dim::<2>(2))
}

/// An LSTM of 64 units over 140 steps of 256 values, and a dense layer.
#[derive(Module, Debug)]
pub struct Recurrent {
    lstm: Lstm,
    head: Linear,
}

impl Recurrent {
    pub fn new(device: &Device) -> Self {
        Self { lstm: LstmConfig::new(256, 64, true).init(device), head: LinearConfig::new(64, 10).init(device) }
    }
}

impl Network for Recurrent {
    fn logits(&self, images: Tensor<4>) -> Tensor<2> {
        let steps: Tensor<3> = images.flatten(1, 2);
        let (_, last) = self.lstm.forward(steps, None);
        self.head.forward(last.hidden)
    }
}

/// A decoder of four blocks over 128 characters of 96 kinds.
#[derive(Module, Debug)]
pub struct GptMini {
    characters: Embedding,
    positions: Embedding,
    blocks: Vec<Decoder>,
    norm: LayerNorm,
    head: Linear,
}

impl GptMini {
    pub fn new(device: &Device) -> Self {
        let table = |count| {
            EmbeddingConfig::new(count, 128).with_initializer(Initializer::Uniform { min: -0.05, max: 0.05 }).init(device)
        };
        Self {
            characters: table(96),
            positions: table(128),
            blocks: (0..4).map(|_| Decoder::new(128, 4, device)).collect(),
            norm: LayerNormConfig::new(128).with_epsilon(1e-3).init(device),
            head: LinearConfig::new(128, 96).init(device),
        }
    }
}

impl Network for GptMini {
    fn logits(&self, images: Tensor<4>) -> Tensor<2> {
        let [rows, _, _, length] = images.dims();
        let characters = images.reshape([rows, length]).int();
        let positions = self.positions.weight.val().unsqueeze::<3>();
        let later = generate_autoregressive_mask(rows, length, &characters.device());
        let embedded = self.characters.forward(characters) + positions;
        let x = self.blocks.iter().fold(embedded, |x, block| block.forward(x, later.clone()));
        self.head.forward(self.norm.forward(x)).flatten(0, 1)
    }
}

/// Attention that sees no later position, and two dense layers, each behind a norm.
#[derive(Module, Debug)]
struct Decoder {
    norms: Vec<LayerNorm>,
    attention: MultiHeadAttention,
    wide: Linear,
    narrow: Linear,
}

impl Decoder {
    fn new(width: usize, heads: usize, device: &Device) -> Self {
        Self {
            norms: (0..2).map(|_| LayerNormConfig::new(width).with_epsilon(1e-3).init(device)).collect(),
            attention: MultiHeadAttentionConfig::new(width, heads).with_dropout(0.0).init(device),
            wide: LinearConfig::new(width, 4 * width).init(device),
            narrow: LinearConfig::new(4 * width, width).init(device),
        }
    }

    fn forward(&self, x: Tensor<3>, later: Tensor<3, Bool>) -> Tensor<3> {
        let input = MhaInput::self_attn(self.norms[0].forward(x.clone())).mask_attn(later);
        let x = x + self.attention.forward(input).context;
        let wide = gelu(self.wide.forward(self.norms[1].forward(x.clone())));
        x + self.narrow.forward(wide)
    }
}

/// One pixel on each side.
fn around() -> PaddingConfig2d {
    PaddingConfig2d::Explicit(1, 1, 1, 1)
}

//! Measured models with data, optimizer and loss; every compared program trains them in this way.

use manyhands::losses::Loss;
use manyhands::model::{Model, Objective};
use manyhands::optimizers::Optimizer;
use manyhands::presets;
use manyhands_engine::error::{Error, Result};
use manyhands_engine::plan::{BatchStatistics, GradientCompression, Pass, Precision, Work};

/// A model of one input and one output, with all settings of its training, without data.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    /// Short description.
    pub about: &'static str,
    /// Layers and initial weights.
    pub model: Model,
    /// Optimizer and its settings.
    pub optimizer: Optimizer,
    /// Loss of its only output.
    pub loss: Loss,
    /// Classes that its labels count.
    pub classes: usize,
    /// Rows of a batch, by default.
    pub batch_size: u32,
    /// Format of gradients sent to the host.
    pub gradient_compression: GradientCompression,
    /// Rows over which batch normalization takes its statistics.
    pub batch_statistics: BatchStatistics,
    /// Micro-batches in which each adapter computes its rows.
    pub micro_batches: u32,
    /// Floats that products multiply.
    pub precision: Precision,
}

/// A preset and how it is trained.
struct Recipe {
    /// Name of the preset, which has the sizes.
    preset: &'static str,
    about: &'static str,
    optimizer: fn() -> Optimizer,
    batch_size: u32,
}

/// All measured models. Images have the size of MNIST or CIFAR-10, or of 64 × 64 pixels.
static RECIPES: &[Recipe] = &[
    recipe("mlp", "MLP 784-1024-1024-10, Adam", 256, adam),
    recipe("cnn", "CNN conv32-BN-conv64-BN-pool-dense128-dense10, SGD momentum", 64, momentum),
    recipe("small_cnn", "small CNN conv8-BN-pool-conv16-BN-pool-dense10, SGD momentum", 128, momentum),
    recipe("resnet18", "ResNet-18 for 32 × 32 × 3, SGD momentum", 64, momentum),
    recipe("vgg11", "VGG-11 for 32 × 32 × 3 with its head of 4096-4096-10, SGD momentum", 64, momentum),
    recipe("resnet50", "ResNet-50 for 64 × 64 × 3, SGD momentum", 32, momentum),
    recipe("mobilenet_v2", "MobileNetV2 for 64 × 64 × 3, SGD momentum", 32, momentum),
    recipe("lstm", "LSTM of 64 units over 140 steps of 256 values, Adam", 128, adam),
    recipe("gpt_mini", "transformer of four blocks over 128 characters, Adam", 16, adam),
    recipe("make_parallel", "MLP 8000-4000-2000-500-300-1 of Keras' make_parallel, SGD", 256, || {
        Optimizer::sgd(0.05, 0.0)
    }),
];

const fn recipe(preset: &'static str, about: &'static str, batch_size: u32, optimizer: fn() -> Optimizer) -> Recipe {
    Recipe { preset, about, optimizer, batch_size }
}

fn adam() -> Optimizer {
    Optimizer::adam(1e-3)
}

fn momentum() -> Optimizer {
    Optimizer::sgd(0.01, 0.9)
}

impl Workload {
    /// Multiplications and additions of a training step's products and convolutions, in 10⁹.
    ///
    /// # Errors
    /// If the model has no plan.
    pub fn gflop(&self) -> Result<f64> {
        let objective = Objective::new(vec![self.loss.clone()], self.optimizer.clone());
        Ok(Work::of(&self.model.plan(&objective)?, Pass::Train, self.batch_size).flops / 1e9)
    }

    /// Whether inputs are texts, each of whose characters has the next one as its label.
    pub fn is_text(&self) -> bool {
        self.model.outputs()[0].1.rank() > 1
    }
}

/// The names of all that is measured.
pub fn names() -> impl Iterator<Item = &'static str> {
    RECIPES.iter().map(|recipe| recipe.preset)
}

/// The measured model of a name.
///
/// ```
/// let mlp = manyhands_bench::workloads::by_name("mlp")?;
/// assert_eq!((mlp.model.n_parameters(), mlp.batch_size), (1_863_690, 256));
/// # Ok::<(), manyhands::Error>(())
/// ```
///
/// # Errors
/// If there is none.
pub fn by_name(name: &str) -> Result<Workload> {
    find(name)?.workload()
}

/// Whether a name is that of a measured model. Builds no model.
///
/// # Errors
/// If there is none.
pub fn check(name: &str) -> Result<()> {
    find(name).map(drop)
}

fn find(name: &str) -> Result<&'static Recipe> {
    RECIPES.iter().find(|recipe| recipe.preset == name).ok_or_else(|| {
        let known: Vec<&str> = names().collect();
        let help = format!("choose from {}", known.join(", "));
        Error::setting(format!("model `{}`", manyhands_engine::shown(name)), "is not measured by this bench", help)
    })
}

impl Recipe {
    /// A single output is the logit of two classes.
    fn workload(&self) -> Result<Workload> {
        let preset = presets::find(self.preset)?;
        let (classes, loss) = match preset.measured.1 {
            1 => (2, Loss::BINARY_CROSSENTROPY),
            outputs => (outputs, Loss::SPARSE_CATEGORICAL_CROSSENTROPY),
        };
        Ok(Workload {
            name: self.preset,
            about: self.about,
            model: preset.build_measured(0)?,
            optimizer: (self.optimizer)(),
            loss,
            classes,
            batch_size: self.batch_size,
            gradient_compression: GradientCompression::None,
            batch_statistics: BatchStatistics::default(),
            micro_batches: 1,
            precision: Precision::Float32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other programs of the comparison have the same number.
    #[test]
    fn parameters_are_those_of_the_other_programs() {
        let expected = [
            ("mlp", 1_863_690),
            ("cnn", 1_199_978),
            ("small_cnn", 9 * 8 + 16 + 9 * 8 * 16 + 32 + 7 * 7 * 16 * 10 + 10),
            ("resnet18", 11_173_962),
            ("vgg11", 28_144_010),
            ("resnet50", 23_555_082),
            ("mobilenet_v2", 2_236_682),
            ("lstm", 4 * 64 * (256 + 64 + 1) + 650),
            ("gpt_mini", 834_400),
            ("make_parallel", 41_157_101),
        ];
        assert!(names().eq(expected.iter().map(|(name, _)| *name)));
        for (name, parameters) in expected {
            let workload = by_name(name).unwrap();
            assert_eq!((workload.name, workload.model.n_parameters()), (name, parameters));
        }
    }

    #[test]
    fn an_unknown_model_is_refused() {
        let error = by_name("resnet34").err().unwrap().to_string();
        assert!(
            error.starts_with("model `resnet34` is not measured by this bench\n  help: choose from mlp, cnn"),
            "{error}"
        );
    }
}

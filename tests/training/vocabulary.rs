//! Are logits of a vocabulary, of which only a piece exists at once, trained as the formula says?

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use manyhands::data::InMemory;
use manyhands::layers::{Configure, Dense, ReversibleEmbedding};
use manyhands::losses::SparseCategoricalCrossentropy;
use manyhands::model::Objective;
use manyhands::{Compile, Fit, Loss, Model, ModelBuilder, Optimizer, SplitMode, Trainer};
use manyhands_engine::plan::Pass;
use ndarray::{Array, IxDyn};

use crate::close::assert_relative;
use crate::keras::{on, rigs};

const ROWS: usize = 5;
const DIM: usize = 4;
/// Class of positions that do not count.
const IGNORED: i32 = -100;

/// A model, and rows for it.
#[derive(Clone, Copy)]
struct Case {
    positions: usize,
    words: usize,
    is_frozen: bool,
    is_masked: bool,
}

impl Case {
    fn loss(self) -> Loss {
        let ignore_class = self.is_masked.then_some(IGNORED);
        SparseCategoricalCrossentropy { ignore_class, ..SparseCategoricalCrossentropy::default() }.into()
    }

    /// A product, and the logits of its outputs.
    fn model(self) -> Model {
        let mut graph = ModelBuilder::new();
        let x = graph.input("x", [self.positions, DIM]);
        let hidden = graph.add_named("hidden", Dense { use_bias: false, ..Dense::new(DIM) }, &[x]);
        let table = ReversibleEmbedding { reverse: true, ..ReversibleEmbedding::new(self.words, DIM) };
        let table = if self.is_frozen { table.frozen() } else { table.into() };
        let logits = graph.add_named("table", table, &[hidden]);
        let mut model = graph.build(&[logits], 1).unwrap();
        model.tensor_mut("table/embeddings").unwrap().iter_mut().for_each(|value| *value *= 10.0);
        model
    }

    /// Inputs, labels and sample weights.
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    fn values(self) -> [Vec<f32>; 3] {
        let number = |at: usize, of: usize| (at * 7919 % of) as f32;
        let inputs = (0..ROWS * self.positions * DIM).map(|at| number(at, 101) / 50.0 - 1.0).collect();
        let labels = (0..ROWS * self.positions)
            .map(|at| if self.is_masked && at % 3 == 1 { IGNORED as f32 } else { number(at + 3, self.words) });
        [inputs, labels.collect(), (0..ROWS).map(|row| number(row + 1, 5) / 4.0).collect()]
    }

    fn rows(self) -> InMemory {
        let [inputs, labels, weights] = self.values();
        let inputs = Array::from_shape_vec(IxDyn(&[ROWS, self.positions, DIM]), inputs).unwrap();
        let labels = Array::from_shape_vec(IxDyn(&[ROWS, self.positions]), labels).unwrap();
        InMemory::new(inputs, labels).unwrap().with_sample_weights(weights.into()).unwrap()
    }

    /// Loss, and the gradients of product and table, in f64.
    fn formula(self, model: &Model) -> (f64, [Vec<f64>; 2]) {
        let [inputs, labels, weights] =
            self.values().map(|values| values.into_iter().map(f64::from).collect::<Vec<_>>());
        let [kernel, table] = ["hidden/kernel", "table/embeddings"]
            .map(|name| model.tensor(name).unwrap().iter().copied().map(f64::from).collect::<Vec<_>>());
        let counted = labels.iter().filter(|label| **label >= 0.0).count();
        let (mut loss, mut d_kernel, mut d_table) = (0.0, vec![0.0; kernel.len()], vec![0.0; table.len()]);
        for (at, label) in labels.iter().enumerate().filter(|(_, label)| **label >= 0.0) {
            let x = &inputs[at * DIM..(at + 1) * DIM];
            let hidden: Vec<f64> = (0..DIM).map(|j| (0..DIM).map(|i| x[i] * kernel[i * DIM + j]).sum()).collect();
            let dot = |word: &[f64]| word.iter().zip(&hidden).map(|(a, b)| a * b).sum::<f64>();
            let logits: Vec<f64> = table.chunks_exact(DIM).map(dot).collect();
            let log_sum = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a label")]
            let label = *label as usize;
            #[allow(clippy::cast_precision_loss, reason = "small numbers")]
            let weight = weights[at / self.positions] / counted as f64;
            loss += weight * (log_sum - logits[label]);
            let mut d_hidden = [0.0; DIM];
            for (word, logit) in logits.iter().enumerate() {
                let slope = weight * ((logit - log_sum).exp() - if word == label { 1.0 } else { 0.0 });
                for j in 0..DIM {
                    d_hidden[j] += slope * table[word * DIM + j];
                    d_table[word * DIM + j] += slope * hidden[j];
                }
            }
            (0..DIM * DIM).for_each(|ij| d_kernel[ij] += x[ij / DIM] * d_hidden[ij % DIM]);
        }
        (loss, [d_kernel, d_table])
    }

    /// Elements of the largest value that lives within a step, for a row.
    fn largest(self) -> u64 {
        let plan = self.model().plan(&Objective::new(vec![self.loss()], Optimizer::sgd(1.0, 0.0))).unwrap();
        assert!(plan.passes.contains_key(&Pass::Train));
        let mut largest = 0;
        for command in plan.commands(Pass::Train) {
            if let manyhands_engine::plan::Command::Dispatch(dispatch) = command {
                let views = dispatch.inputs.iter().chain(&dispatch.outputs);
                largest = views.map(|view| view.len.per_row).fold(largest, u64::max);
            }
        }
        largest
    }

    /// A step of SGD with the rate 1, whose changes are the gradients.
    fn check(self, rig: &str) {
        let start = self.model();
        let (loss, gradients) = self.formula(&start);
        let compile = Compile::new(Optimizer::sgd(1.0, 0.0), self.loss());
        let mut trainer = Trainer::new(start.clone(), compile).unwrap().on(on(rig)).split(SplitMode::Even);
        let evaluated = trainer.evaluate(self.rows(), ROWS).unwrap();
        let log = trainer.fit(self.rows(), &Fit::new(1).batch_size(ROWS).in_order()).unwrap();
        let first = log.epochs[0].values.get("loss").unwrap();
        assert_relative(&format!("loss on {rig}"), &[first, evaluated.get("loss").unwrap()], &[loss, loss], 1e-5);
        let model = trainer.into_model();
        for (name, gradient) in ["hidden/kernel", "table/embeddings"].iter().zip(gradients) {
            let pairs = start.tensor(name).unwrap().iter().zip(model.tensor(name).unwrap());
            let change: Vec<f64> = pairs.map(|(from, to)| f64::from(*from) - f64::from(*to)).collect();
            if *name == "table/embeddings" && self.is_frozen {
                assert!(change.iter().all(|change| *change == 0.0));
                continue;
            }
            let most = gradient.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
            let errors = change.iter().zip(&gradient).map(|(got, wanted)| (got - wanted).abs());
            let worst = errors.fold(0.0, f64::max);
            assert!(worst < 1e-4 * most + 1e-7, "{name} on {rig}: {worst} of {most}");
        }
    }
}

#[test]
fn a_frozen_table_passes_its_gradient_on_piece_by_piece() {
    for is_masked in [false, true] {
        let case = Case { positions: 40, words: 70_001, is_frozen: true, is_masked };
        // 2 pieces of 20 positions.
        assert_eq!(case.largest(), 20 * 70_001);
        let rigs = if is_masked { rigs() } else { vec!["cpu".to_owned()] };
        rigs.iter().for_each(|rig| case.check(rig));
    }
}

#[test]
fn pieces_add_up_to_the_gradient_of_a_table() {
    let case = Case { positions: 250, words: 70_001, is_frozen: false, is_masked: true };
    assert_eq!(case.largest(), 125 * 70_001);
    case.check("cpu,cpu");
}

/// Training has no room for all logits; prediction makes it, and training goes on as if nothing had been.
#[test]
fn a_trainer_that_predicts_between_epochs_trains_to_the_same_bits() {
    let case = Case { positions: 40, words: 70_001, is_frozen: true, is_masked: true };
    for rig in ["cpu", "cpu,cpu"] {
        let [plain, interrupted] = [false, true].map(|predicts| {
            let compile = Compile::new(Optimizer::adam(1e-2), case.loss());
            let mut trainer = Trainer::new(case.model(), compile).unwrap().on(on(rig)).split(SplitMode::Even);
            trainer.fit(case.rows(), &Fit::new(1).batch_size(2)).unwrap();
            if predicts {
                let outputs = trainer.predict(case.rows(), 2).unwrap();
                assert_eq!(outputs[0].shape(), [ROWS, 40, 70_001]);
            }
            trainer.fit(case.rows(), &Fit::new(2).batch_size(2)).unwrap();
            let model = trainer.into_model();
            model.tensor("hidden/kernel").unwrap().iter().map(|value| value.to_bits()).collect::<Vec<_>>()
        });
        assert_eq!(plain, interrupted, "{rig}");
    }
}

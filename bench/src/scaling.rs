//! Speed of 1 to N adapters together, against the ideal: the sum of their speeds alone.

use std::fmt;
use std::ops::ControlFlow;

use serde::Serialize;

use super::BenchSettings;
use super::report::{BenchReport, Conditions, ms, table};
use super::rig::{BenchRig, Data, Opening, RigAdapter, Sample, Source, Turn, distinct, name};
use super::workloads::Workload;
use manyhands::scheduler::split::{SplitMode, Splitter};
use manyhands::simulator;
use manyhands_engine::error::Result;
use manyhands_engine::table::{Table, percent};
use manyhands_engine::timing::{median, per_second, quartiles};

/// Scaling of some models.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredScaling {
    /// Source of the rows.
    pub data: Data,
    /// Each model.
    pub curves: Vec<ScalingCurve>,
}

/// Scaling of a model over the adapters, in their order.
#[derive(Clone, Debug, Serialize)]
pub struct ScalingCurve {
    /// The model's name.
    pub model: &'static str,
    /// The model in words.
    pub about: &'static str,
    /// Parameters of the model.
    pub parameters: usize,
    /// Rows of the batch of one adapter.
    pub batch_size: u32,
    /// Each adapter alone, with that batch.
    pub alone: Vec<Alone>,
    /// A constant batch for any number of adapters.
    pub strong: Vec<ScalingPoint>,
    /// The batch grows with the number of adapters.
    pub weak: Vec<ScalingPoint>,
}

/// An adapter for itself.
#[derive(Clone, Debug, Serialize)]
pub struct Alone {
    /// Its name.
    pub name: String,
    /// Milliseconds of a training step, the median.
    pub step_ms: f64,
    /// Rows a second.
    pub samples_per_s: f64,
}

/// The first adapters together.
#[derive(Clone, Debug, Serialize)]
pub struct ScalingPoint {
    /// Number of adapters.
    pub n_adapters: usize,
    /// Rows of a batch.
    pub batch_size: u32,
    /// Rows of each adapter in the last step.
    pub shares: Vec<u32>,
    /// Milliseconds of a training step, the median.
    pub step_ms: f64,
    /// Milliseconds between which half of the steps are.
    pub quartiles_ms: [f64; 2],
    /// Rows a second.
    pub samples_per_s: f64,
    /// Sum of the speeds of each adapter alone, with the batch of one.
    pub ideal_samples_per_s: f64,
    /// Fraction of the ideal.
    pub efficiency: f64,
}

/// Batch size as a function of the number of adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScalingKind {
    /// Each adapter for itself.
    Alone,
    /// The batch is constant.
    Strong,
    /// The batch grows.
    Weak,
}

/// A part of a measurement that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ScalingPart {
    /// Whether the batch is constant or grows.
    pub scaling: ScalingKind,
    /// Number of adapters; for adapters alone, the index.
    pub n_adapters: usize,
    /// Number of finished parts.
    pub done: usize,
    /// Number of all parts.
    pub total: usize,
}

/// A model that 1 to N adapters train.
pub struct ScalingJob<'a> {
    /// Opener of the adapters.
    pub opening: Opening,
    /// Trained model. Its batch size is that of one adapter if the batch grows.
    pub workload: &'a Workload,
    /// The adapters, in the order in which they join.
    pub members: &'a [RigAdapter],
    /// Source of the rows.
    pub data: Data,
    /// Division of a batch over several adapters.
    pub split: SplitMode,
    /// The turns of each rig, one a round.
    pub turns: Vec<Turn>,
}

/// Measures the models of some settings, with the conditions. `progress` is called at the start of each part.
///
/// # Errors
/// If a model is unknown, a split does not go with the adapters, or an adapter fails.
pub async fn measure(settings: &BenchSettings, mut progress: impl FnMut(&str)) -> Result<BenchReport<MeasuredScaling>> {
    let mut curves = Vec::new();
    for workload in settings.workloads()? {
        let workload = &workload?;
        let job = ScalingJob {
            opening: Opening::default(),
            workload,
            members: &settings.members,
            data: settings.data,
            split: settings.split.clone(),
            turns: settings.turns().collect(),
        };
        let rounds = job.turns.len();
        let tell = |ScalingPart { done, total, .. }: ScalingPart| {
            let per_round = total / rounds;
            if done % per_round == 0 {
                progress(&format!("{}: round {} of {rounds}", workload.name, done / per_round + 1));
            }
            ControlFlow::Continue(())
        };
        curves.extend(job.measure(tell).await?);
    }
    let about = Conditions::new("scaling", &settings.members, settings.rounds);
    Ok(BenchReport { about, measured: MeasuredScaling { data: settings.data, curves } })
}

impl ScalingJob<'_> {
    /// Measures 1 to N adapters, with a constant batch and with a growing one. All alternate; what is in the list
    /// twice is measured alone once.
    ///
    /// A single adapter updates the weights itself, as in training. `begin` is called before each part, and may
    /// end the measurement: then the result is `None`.
    ///
    /// # Errors
    /// If the split does not go with the adapters, or an adapter fails.
    pub async fn measure(&self, mut begin: impl FnMut(ScalingPart) -> ControlFlow<()>) -> Result<Option<ScalingCurve>> {
        Splitter::new(self.split.clone(), self.members.len(), 1)?;
        let (mut alone, mut together) = self.groups()?;
        let (mut rigs, mut rig): (Vec<Option<BenchRig>>, _) = (alone.iter().map(|_| None).collect(), None);
        let (mut done, total) = (0, self.turns.len() * (alone.len() + together.len()));
        let mut is_cancelled = |group: &RigPart| {
            let part = ScalingPart { scaling: group.scaling, n_adapters: group.number, done, total };
            done += 1;
            begin(part).is_break()
        };
        for (round, turn) in self.turns.iter().enumerate() {
            for (group, rig) in alone.iter_mut().zip(&mut rigs) {
                if is_cancelled(group) {
                    return Ok(None);
                }
                let open = self.open(&group.members, SplitMode::Learned, rig);
                group.turn(*turn, open.await?).await?;
                // Free its memory for the next, unless it has another turn.
                rig.take_if(|_| round + 1 == self.turns.len());
            }
            for group in &mut together {
                if is_cancelled(group) {
                    return Ok(None);
                }
                let open = self.open(self.members, self.split.clone(), &mut rig);
                group.turn(*turn, open.await?).await?;
            }
        }
        Ok(Some(self.curve(&alone, &together)))
    }

    /// Each adapter alone; and the first 2 to N together, with the batch of one and with a larger one.
    fn groups(&self) -> Result<(Vec<RigPart>, Vec<RigPart>)> {
        let rows = self.workload.batch_size;
        let group = |scaling, number: usize, members: &[RigAdapter], rows| {
            let source = Source::new(self.workload, self.data, rows)?;
            Ok(RigPart { scaling, number, members: members.to_vec(), rows, source, samples: Vec::new() })
        };
        let alone = (1..)
            .zip(distinct(self.members))
            .map(|(number, member)| group(ScalingKind::Alone, number, &[member], rows));
        let together = (2..=self.members.len()).zip(2..).flat_map(|(number, grown)| {
            let members = &self.members[..number];
            [(ScalingKind::Strong, rows), (ScalingKind::Weak, rows * grown)]
                .map(|(kind, rows)| group(kind, number, members, rows))
        });
        Ok((alone.collect::<Result<_>>()?, together.collect::<Result<_>>()?))
    }

    /// A rig for the largest batch of its adapters, opened when it has its first turn.
    async fn open<'a>(
        &self,
        members: &[RigAdapter],
        split: SplitMode,
        rig: &'a mut Option<BenchRig>,
    ) -> Result<&'a mut BenchRig> {
        let grown = u32::try_from(members.len()).unwrap_or(u32::MAX);
        let opened = match rig.take() {
            Some(rig) => rig,
            None => self.opening.rig(self.workload, members, split, self.workload.batch_size * grown).await?,
        };
        Ok(rig.insert(opened))
    }

    fn curve(&self, alone: &[RigPart], together: &[RigPart]) -> ScalingCurve {
        // An adapter that is listed twice was measured once.
        let speed = |member: &RigAdapter| {
            let group = alone.iter().find(|group| group.members[0] == *member);
            let (step_ms, samples_per_s) = group.map_or((0.0, 0.0), RigPart::speed);
            Alone { name: name(std::slice::from_ref(member)), step_ms, samples_per_s }
        };
        let each: Vec<Alone> = self.members.iter().map(speed).collect();
        let ideal = |n_adapters: usize| each[..n_adapters].iter().map(|alone| alone.samples_per_s).sum();
        let points = |kind: ScalingKind| {
            let groups = alone.first().into_iter().chain(together.iter().filter(|group| group.scaling == kind));
            groups.map(|group| group.point(ideal(group.members.len()))).collect()
        };
        ScalingCurve {
            model: self.workload.name,
            about: self.workload.about,
            parameters: self.workload.model.n_parameters(),
            batch_size: self.workload.batch_size,
            strong: points(ScalingKind::Strong),
            weak: points(ScalingKind::Weak),
            alone: each,
        }
    }
}

/// The first adapters of a rig, with batches of a size of their own.
struct RigPart {
    scaling: ScalingKind,
    number: usize,
    members: Vec<RigAdapter>,
    rows: u32,
    source: Source,
    samples: Vec<Sample>,
}

impl RigPart {
    async fn turn(&mut self, turn: Turn, rig: &mut BenchRig) -> Result<()> {
        rig.scheduler.limit_active(self.members.len());
        rig.turn(&mut self.source, turn).await?;
        self.samples.append(&mut rig.samples);
        Ok(())
    }

    /// Milliseconds of a step, the median, and rows a second.
    fn speed(&self) -> (f64, f64) {
        let step_ms = median(self.samples.iter().map(|sample| sample.step_ms));
        (step_ms, per_second(u64::from(self.rows), step_ms))
    }

    fn point(&self, ideal_samples_per_s: f64) -> ScalingPoint {
        let (step_ms, samples_per_s) = self.speed();
        ScalingPoint {
            n_adapters: self.members.len(),
            batch_size: self.rows,
            shares: self.samples.last().map_or(Vec::new(), Sample::shares),
            step_ms,
            quartiles_ms: quartiles(self.samples.iter().map(|sample| sample.step_ms)),
            samples_per_s,
            ideal_samples_per_s,
            efficiency: samples_per_s / ideal_samples_per_s,
        }
    }
}

impl ScalingCurve {
    /// Prediction of a simulation as a measurement. Adapters that are slowed down have other names here.
    pub fn report(self, adapters: Vec<String>) -> simulator::Report {
        let points = |points: Vec<ScalingPoint>| {
            let point =
                |ScalingPoint { n_adapters, batch_size, mut shares, step_ms, samples_per_s, efficiency, .. }| {
                    let (rows_per_s, limit) = (samples_per_s, String::new());
                    shares.resize(n_adapters, 0);
                    simulator::Point { n_adapters, batch_size, shares, step_ms, rows_per_s, efficiency, limit }
                };
            points.into_iter().map(point).collect()
        };
        let (strong, weak) = (points(self.strong), points(self.weak));
        simulator::Report { batch_size: self.batch_size, adapters, strong, weak, ..simulator::Report::default() }
    }
}

impl fmt::Display for MeasuredScaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for curve in &self.curves {
            writeln!(
                f,
                "\n{}, {} parameters; each adapter alone, {} rows:\n",
                curve.about, curve.parameters, curve.batch_size
            )?;
            let alone = curve
                .alone
                .iter()
                .map(|alone| vec![alone.name.clone(), ms(alone.step_ms), format!("{:.1}", alone.samples_per_s)]);
            table(&["adapter", "step ms", "samples/s"], 1, alone).fmt(f)?;
            writeln!(f, "\n\nThe batch stays:\n")?;
            points(&curve.strong).fmt(f)?;
            writeln!(f, "\n\nThe batch grows with the adapters:\n")?;
            points(&curve.weak).fmt(f)?;
            writeln!(f)?;
        }
        write!(f, "\nIdeal: the sum of what each adapter does alone with the batch of one. Medians of whole steps.")
    }
}

fn points(points: &[ScalingPoint]) -> Table {
    let header = ["adapters", "batch", "step ms", "samples/s", "ideal", "efficiency", "rows of each"];
    let rows = points.iter().map(|point| {
        let shares: Vec<String> = point.shares.iter().map(ToString::to_string).collect();
        vec![
            point.n_adapters.to_string(),
            point.batch_size.to_string(),
            ms(point.step_ms),
            format!("{:.1}", point.samples_per_s),
            format!("{:.1}", point.ideal_samples_per_s),
            percent(point.efficiency),
            shares.join(" "),
        ]
    });
    table(&header, 0, rows)
}

//! What 1 to N adapters do together, beside the ideal: the sum of what each of them does alone.

use std::fmt;

use serde::Serialize;

use super::models::Workload;
use super::report::{About, Report, ms, table};
use super::rig::{Data, Rig, Sample, Source, name};
use super::{Settings, median};
use crate::error::Result;
use crate::scheduler::split::SplitMode;
use crate::table::{Table, percent};

/// Scaling of some models.
#[derive(Clone, Debug, Serialize)]
pub struct Scaling {
    /// Where the rows came from.
    pub data: Data,
    /// Each model.
    pub curves: Vec<Curve>,
}

/// Scaling of a model over the adapters, in their order.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// The model's name.
    pub model: &'static str,
    /// The model in words.
    pub about: &'static str,
    /// Parameters of the model.
    pub parameters: usize,
    /// Rows of the batch of one adapter.
    pub batch_size: u32,
    /// Each adapter for itself, with that batch.
    pub alone: Vec<Alone>,
    /// The batch stays, whatever the number of adapters.
    pub strong: Vec<Point>,
    /// The batch grows with the number of adapters.
    pub weak: Vec<Point>,
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
pub struct Point {
    /// How many.
    pub n_adapters: usize,
    /// Rows of a batch.
    pub batch_size: u32,
    /// Rows of each adapter in the last step.
    pub shares: Vec<u32>,
    /// Milliseconds of a training step, the median.
    pub step_ms: f64,
    /// Rows a second.
    pub samples_per_s: f64,
    /// The sum of what each does alone, with the batch of one.
    pub ideal_samples_per_s: f64,
    /// What is reached of the ideal.
    pub efficiency: f64,
}

/// Measures 1 to N adapters, with a batch that stays and with one that grows. All take turns.
///
/// An adapter alone updates the weights itself, as it does in training. `progress` is told what begins.
///
/// # Errors
/// If a model is unknown, a split does not go with the adapters, or an adapter fails.
pub async fn measure(settings: &Settings, mut progress: impl FnMut(&str)) -> Result<Report<Scaling>> {
    let mut curves = Vec::new();
    for workload in settings.workloads()? {
        curves.push(measure_model(settings, &workload?, &mut progress).await?);
    }
    let about = About::new("scaling", &settings.seats, settings.rounds);
    Ok(Report { about, measured: Scaling { data: settings.data, curves } })
}

/// The first `n_adapters` of a rig, with batches of a size of their own.
struct Group {
    n_adapters: usize,
    rows: u32,
    source: Source,
    samples: Vec<Sample>,
}

impl Group {
    fn new(settings: &Settings, workload: &Workload, n_adapters: usize, rows: u32) -> Result<Self> {
        let source = Source::new(workload, settings.data, rows)?;
        Ok(Self { n_adapters, rows, source, samples: Vec::new() })
    }

    async fn turn(&mut self, settings: &Settings, round: u32, rig: &mut Rig) -> Result<()> {
        rig.scheduler.limit_active(self.n_adapters);
        rig.turn(&mut self.source, settings.turn(round)).await?;
        self.samples.append(&mut rig.samples);
        Ok(())
    }

    fn point(&self, ideal_samples_per_s: f64) -> Point {
        let step_ms = median(self.samples.iter().map(|sample| sample.step_ms));
        let samples_per_s = f64::from(self.rows) * 1e3 / step_ms;
        Point {
            n_adapters: self.n_adapters,
            batch_size: self.rows,
            shares: self.samples.last().map_or(Vec::new(), Sample::shares),
            step_ms,
            samples_per_s,
            ideal_samples_per_s,
            efficiency: samples_per_s / ideal_samples_per_s,
        }
    }
}

async fn measure_model(settings: &Settings, workload: &Workload, progress: &mut impl FnMut(&str)) -> Result<Curve> {
    let (seats, rows) = (&settings.seats, workload.batch_size);
    let mut alone = Vec::new();
    for seat in settings.distinct() {
        let rig = Rig::open(workload, &[seat], SplitMode::Learned, rows).await?;
        alone.push((rig, Group::new(settings, workload, 1, rows)?));
    }
    let mut groups = Vec::new();
    for (n_adapters, grown) in (1..=seats.len()).zip(1..).skip(1) {
        groups.push(Group::new(settings, workload, n_adapters, rows)?);
        groups.push(Group::new(settings, workload, n_adapters, rows * grown)?);
    }
    let mut together = match groups.last() {
        Some(largest) => Some(Rig::open(workload, seats, settings.split.clone(), largest.rows).await?),
        None => None,
    };
    for round in 0..settings.rounds {
        progress(&format!("{}: round {} of {}", workload.name, round + 1, settings.rounds));
        for (rig, group) in &mut alone {
            group.turn(settings, round, rig).await?;
        }
        let Some(rig) = &mut together else { continue };
        for group in &mut groups {
            group.turn(settings, round, rig).await?;
        }
    }
    Ok(curve(settings, workload, &alone, &groups))
}

fn curve(settings: &Settings, workload: &Workload, alone: &[(Rig, Group)], groups: &[Group]) -> Curve {
    // The same adapter in two places was measured once.
    let distinct = settings.distinct();
    let speed = |seat| {
        let place = distinct.iter().position(|known| known == seat).unwrap_or(0);
        let point = alone[place].1.point(1.0);
        Alone { name: name(std::slice::from_ref(seat)), step_ms: point.step_ms, samples_per_s: point.samples_per_s }
    };
    let each: Vec<Alone> = settings.seats.iter().map(speed).collect();
    let ideal = |n_adapters: usize| each[..n_adapters].iter().map(|alone| alone.samples_per_s).sum();
    let first = alone.first().map(|(_, group)| group);
    let points = |offset: usize| {
        let groups = first.into_iter().chain(groups.iter().skip(offset).step_by(2));
        groups.map(|group| group.point(ideal(group.n_adapters))).collect()
    };
    Curve {
        model: workload.name,
        about: workload.about,
        parameters: workload.model.layout().n_parameters(),
        batch_size: workload.batch_size,
        strong: points(0),
        weak: points(1),
        alone: each,
    }
}

impl fmt::Display for Scaling {
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

fn points(points: &[Point]) -> Table {
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

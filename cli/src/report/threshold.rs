//! Two classes at every threshold: which part of the second class is found, and which part of what is found is right.

use serde::{Deserialize, Serialize};

use super::chart::{Chart, Series, Style};
use super::counts::{YesNoCounts, number as count};
use super::markup::table;
use super::text::{escaped, number, write_to};
use manyhands_engine::shown::thousands;

/// Points of a curve.
const POINTS: usize = 100;
/// Thresholds of the table, beside that of the largest F1.
const LISTED: [f32; 5] = [0.1, 0.25, 0.5, 0.75, 0.9];

/// Counts at thresholds of the second class's probability, from high to low.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Thresholds {
    /// Area under the curve of true positives over false positives.
    pub auc: f64,
    /// Mean of the precision at each recall, as `average_precision_score` of scikit-learn.
    pub average_precision: f64,
    /// Points of the curves.
    pub curve: Vec<AtThreshold>,
    /// The threshold of the largest F1.
    pub best: AtThreshold,
    /// Round thresholds.
    pub listed: Vec<AtThreshold>,
}

/// Rows that are called the second class from a probability on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AtThreshold {
    pub threshold: f32,
    pub counts: YesNoCounts,
}

impl AtThreshold {
    fn f1(&self) -> f64 {
        self.counts.scores()[2].unwrap_or(0.0)
    }

    /// Part of the first class that is called the second.
    fn false_alarms(&self) -> f64 {
        let YesNoCounts { false_positives, true_negatives, .. } = self.counts;
        count(false_positives) / count(false_positives.saturating_add(true_negatives)).max(1.0)
    }

    fn recall(&self) -> f64 {
        self.counts.scores()[1].unwrap_or(0.0)
    }
}

impl Thresholds {
    /// The curves of rows by the probability of the second class, and whether it is theirs; `None` without rows of both.
    pub fn of(mut rows: Vec<(f32, bool)>) -> Option<Self> {
        rows.sort_by(|one, other| other.0.total_cmp(&one.0));
        let positives = rows.iter().filter(|row| row.1).count() as u64;
        let negatives = rows.len() as u64 - positives;
        if positives == 0 || negatives == 0 {
            return None;
        }
        let none = YesNoCounts { false_negatives: positives, true_negatives: negatives, ..YesNoCounts::default() };
        let mut all = vec![AtThreshold { threshold: f32::INFINITY, counts: none }];
        let mut counts = none;
        for equal in rows.chunk_by(|one, other| one.0 == other.0) {
            for (_, is_second) in equal {
                let [found, left] = if *is_second {
                    [&mut counts.true_positives, &mut counts.false_negatives]
                } else {
                    [&mut counts.false_positives, &mut counts.true_negatives]
                };
                *found += 1;
                *left -= 1;
            }
            all.push(AtThreshold { threshold: equal[0].0, counts });
        }
        let steps = || all.windows(2).map(|pair| (&pair[0], &pair[1]));
        let auc = steps().map(|(a, b)| (b.false_alarms() - a.false_alarms()) * f64::midpoint(a.recall(), b.recall()));
        let precision = |it: &AtThreshold| it.counts.scores()[0].unwrap_or(0.0);
        let average_precision = steps().map(|(a, b)| (b.recall() - a.recall()) * precision(b));
        // The highest of equal ones.
        let best = all.iter().rev().max_by(|a, b| a.f1().total_cmp(&b.f1())).copied().unwrap_or_default();
        let at = |threshold: f32| {
            let called = all.partition_point(|it| it.threshold >= threshold);
            AtThreshold { threshold, ..all[called.saturating_sub(1)] }
        };
        Some(Self {
            auc: auc.sum(),
            average_precision: average_precision.sum(),
            curve: thinned(&all),
            best,
            listed: LISTED.map(at).to_vec(),
        })
    }

    /// Curves, and a table of thresholds, of a class with this name.
    pub fn html(&self, class: &str) -> String {
        let class = escaped(class);
        let mut html = format!(
            "<h3>Threshold</h3>\n<p class=\"soft\">Rows count as <b>{class}</b> from a probability of 0.5 on. A lower threshold finds more of \
             them, and is wrong more often. F1 is largest at {}, by these rows.</p>\n<div class=\"charts\">\n",
            number(f64::from(self.best.threshold))
        );
        let drawn = |name: &str, colour, style, points| Series { name: name.into(), colour, style, points };
        let roc = self.curve.iter().map(|it| (it.false_alarms(), it.recall())).collect();
        let chance = drawn("chance", 1, Style::Dashed, vec![(0.0, 0.0), (1.0, 1.0)]);
        let series = vec![drawn("model", 0, Style::Solid, roc), chance];
        let (title, x) = (format!("ROC, area {:.3}", self.auc), "part of the others that is called so".into());
        html += &Chart { title, x, y: "part that is found".into(), may_be_log: false, series }.html();
        let precision = self.curve.iter().filter_map(|it| Some((it.recall(), it.counts.scores()[0]?))).collect();
        let series = vec![drawn("model", 0, Style::Solid, precision)];
        let title = format!("Precision and recall, average precision {:.3}", self.average_precision);
        html += &Chart { title, x: "recall".into(), y: "precision".into(), may_be_log: false, series }.html();
        html += "</div>\n";
        let header = [("from probability", true), ("rows", true), ("precision", true), ("recall", true), ("F1", true)];
        let mut listed: Vec<(AtThreshold, bool)> = self.listed.iter().map(|it| (*it, false)).collect();
        listed.push((self.best, true));
        listed.sort_by(|one, other| one.0.threshold.total_cmp(&other.0.threshold));
        let text = |score: Option<f64>| score.map_or_else(|| "–".to_owned(), |score| format!("{score:.3}"));
        let line = |(it, is_best): (AtThreshold, bool)| {
            let called = it.counts.true_positives.saturating_add(it.counts.false_positives);
            let cells = [number(f64::from(it.threshold)), thousands(called)];
            (cells.into_iter().chain(it.counts.scores().map(text)).collect(), is_best)
        };
        write_to(&mut html, format_args!("{}", table("Thresholds", header, listed.into_iter().map(line).collect())));
        html
    }
}

/// Some of the points, the ends among them.
fn thinned(all: &[AtThreshold]) -> Vec<AtThreshold> {
    let last = all.len().saturating_sub(1);
    let mut places: Vec<usize> = (0..POINTS).map(|at| at * last / (POINTS - 1)).collect();
    places.dedup();
    // JSON has no infinity.
    let finite = |it: &AtThreshold| AtThreshold { threshold: it.threshold.min(f32::MAX), ..*it };
    places.into_iter().filter_map(|at| all.get(at)).map(finite).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden values: `roc_auc_score` and `average_precision_score` of scikit-learn, in their documentation.
    #[test]
    fn areas_are_those_of_scikit_learn() {
        let rows = vec![(0.1, false), (0.4, false), (0.35, true), (0.8, true)];
        let curves = Thresholds::of(rows).unwrap();
        assert!((curves.auc - 0.75).abs() < 1e-12 && (curves.average_precision - 5.0 / 6.0).abs() < 1e-12);
        assert_eq!((curves.best.threshold, curves.curve.len()), (0.35, 5));
        // Of 0.8 alone.
        let half = curves.listed[2].counts;
        assert_eq!((half.true_positives, half.false_positives, half.false_negatives), (1, 0, 1));
        assert!(curves.html("<b>").contains("&lt;b&gt;"));
    }

    #[test]
    fn rows_of_equal_probability_are_called_together() {
        let curves = Thresholds::of(vec![(0.5, true), (0.5, false), (0.5, false)]).unwrap();
        assert!((curves.auc - 0.5).abs() < 1e-12 && (curves.average_precision - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(Thresholds::of(vec![(0.5, true)]), None);
        let many: Vec<(f32, bool)> = (0..1000_u16).map(|at| (f32::from(at) / 1000.0, at > 500)).collect();
        let curves = Thresholds::of(many).unwrap();
        assert_eq!((curves.auc, curves.curve.len(), curves.best.threshold), (1.0, POINTS, 0.501));
    }
}

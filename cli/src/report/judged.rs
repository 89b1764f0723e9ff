//! Judgements as parts of a page.

use std::collections::BTreeMap;

use super::chart::{Chart, Series, Style, histogram};
use super::counts::YesNoCounts;
use super::folds::values_of;
use super::importance::{ColumnImportance, Importance};
use super::judge::{Classes, Judgement, Mistake, Of, Residuals};
use super::markup::table;
use super::results::{End, FoldScore};
use super::sample::RowPreview;
use super::text::{escaped, number, percent, write_to};
use super::{tokens, value_name};
use crate::seen::listed;
use manyhands_engine::shown::thousands;
use manyhands_engine::timing::ratio;

/// Classes of a matrix that is shown whole.
const MATRIX: usize = 24;
/// Confusions that are listed where it is not.
const PAIRS: usize = 24;
/// Columns whose importance is shown.
const COLUMNS: usize = 40;
/// Letters of a class's name above which it stands upright at the head of a column.
const SHORT: usize = 3;
/// Opacity of the strongest cell: the number in it stays readable.
const STRONGEST: f64 = 0.4;

/// In place of the outputs of a run that was interrupted.
pub fn at_the_end() -> String {
    "<h2>Right and wrong</h2>\n<p>A model is judged at the end of its run, and this one was interrupted.</p>\n".into()
}

/// All outputs of a run.
pub fn section(End { judgements, rows, baseline, importance, fold, .. }: &End) -> String {
    let mut html = String::from("<h2>Right and wrong</h2>\n");
    if let Some(FoldScore { rows, values }) = fold {
        let (rows, told) = (thousands(rows), escaped(&values_of(values)));
        write_to(
            &mut html,
            format_args!("<p>The best model on the {rows} rows of the fold that was held out: {told}.</p>\n"),
        );
    }
    if judgements.is_empty() {
        let nothing = if fold.is_some() { "" } else { ": nothing tells how the model does on new rows" };
        write_to(
            &mut html,
            format_args!(
                "<p>There are no validation data{nothing}. Name test data, or set <code>validation = 0.2</code> in \
                 <code>[training]</code>.</p>\n"
            ),
        );
        return html;
    }
    write_to(
        &mut html,
        format_args!("<p class=\"soft\">The best model on the {} rows of the validation data.</p>\n", thousands(rows)),
    );
    if let Some(baseline) = baseline {
        write_to(
            &mut html,
            format_args!(
                "<p>For comparison, a model that does not look at its inputs: {}.</p>\n",
                escaped(&baseline.to_string())
            ),
        );
    }
    for Judgement { output, of } in judgements {
        if judgements.len() > 1 {
            write_to(&mut html, format_args!("<h3>Output <code>{}</code></h3>\n", escaped(output)));
        }
        match of {
            Of::Classes(classes) => html.push_str(&of_classes(classes)),
            Of::Labels(labels) => {
                html.push_str(&scores(labels.iter().map(|(name, counts)| (name.clone(), *counts)), None))
            }
            Of::Values(columns) => {
                columns.iter().for_each(|(name, residuals)| html.push_str(&of_values(name, residuals)))
            }
            Of::Tokens(tokens) => html.push_str(&tokens::section(tokens)),
            Of::Nothing(why) => write_to(&mut html, format_args!("<p>{}</p>\n", escaped(why))),
        }
    }
    html + &importance.as_ref().map_or_else(String::new, of_columns)
}

fn name(classes: &Classes, class: usize) -> String {
    classes.names.get(class).cloned().unwrap_or_else(|| class.to_string())
}

fn of_classes(classes: &Classes) -> String {
    let sum = |rows: u64, it: &(usize, usize, u64)| rows.saturating_add(it.2);
    let rows = classes.counts.iter().fold(0, sum);
    let right = classes.counts.iter().filter(|it| it.0 == it.1).fold(0, sum);
    let by_class = classes.by_class();
    let mut html = format!(
        "<p>{} of {} rows are right: {}.</p>\n",
        thousands(right),
        thousands(rows),
        percent(ratio(right, rows))
    );
    let never: Vec<(String, f64)> =
        classes.never_predicted().into_iter().map(|(class, rows)| (name(classes, class), count(rows))).collect();
    if !never.is_empty() {
        write_to(&mut html, format_args!("<p>Never predicted: {}.</p>\n", escaped(&listed(&never))));
    }
    html.push_str("<div class=\"pair\">\n<div>\n<h3>Confusion matrix</h3>\n");
    html.push_str(&if classes.names.len() <= MATRIX { matrix(classes, &by_class) } else { pairs(classes, &by_class) });
    html.push_str("</div>\n<div>\n<h3>By class</h3>\n");
    let counts = by_class.into_iter().enumerate().map(|(class, counts)| (name(classes, class), counts));
    html.push_str(&scores(counts, Some(rows)));
    html.push_str("</div>\n</div>\n");
    if let Some(thresholds) = &classes.thresholds {
        html.push_str(&thresholds.html(&name(classes, 1)));
    }
    html.push_str("<h3>The most confident mistakes</h3>\n");
    html.push_str(&gallery(classes));
    html
}

#[allow(clippy::cast_precision_loss, reason = "counts of rows")]
fn count(rows: u64) -> f64 {
    rows as f64
}

fn matrix(classes: &Classes, by_class: &[YesNoCounts]) -> String {
    let n_classes = classes.names.len();
    let counts: BTreeMap<(usize, usize), u64> = classes.counts.iter().map(|it| ((it.0, it.1), it.2)).collect();
    let is_upright = n_classes > 4 && classes.names.iter().any(|name| name.chars().count() > SHORT);
    let mut html = String::from(
        "<p class=\"soft\">A row holds the rows of a true class, a column those that were predicted as a class.</p>\n\
         <div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Confusion matrix\"><table class=\"matrix\"><thead><tr>\
         <th scope=\"col\">true \\ predicted</th>",
    );
    for class in 0..n_classes {
        let text = escaped(&name(classes, class));
        let text = if is_upright { format!("<span class=\"up\">{text}</span>") } else { text };
        write_to(&mut html, format_args!("<th scope=\"col\">{text}</th>"));
    }
    html.push_str("</tr></thead><tbody>\n");
    for (truth, of_truth) in by_class.iter().enumerate() {
        write_to(&mut html, format_args!("<tr><th scope=\"row\">{}</th>", escaped(&name(classes, truth))));
        let rows = of_truth.rows();
        for predicted in 0..n_classes {
            let found = counts.get(&(truth, predicted)).copied().unwrap_or(0);
            let (class, part) = (if truth == predicted { " class=\"hit\"" } else { "" }, ratio(found, rows));
            // A few mistakes are to be seen, too.
            let strength = if found == 0 { 0.0 } else { 0.06 + (STRONGEST - 0.06) * part.sqrt() };
            let text = if found == 0 { "·".into() } else { found.to_string() };
            write_to(&mut html, format_args!("<td{class} style=\"--a:{strength:.2}\">{text}</td>"));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
    html
}

/// The most frequent confusions, where a matrix would be too large.
fn pairs(classes: &Classes, by_class: &[YesNoCounts]) -> String {
    let mut wrong: Vec<&(usize, usize, u64)> = classes.counts.iter().filter(|it| it.0 != it.1).collect();
    wrong.sort_by_key(|it| std::cmp::Reverse(it.2));
    let header = [("is", false), ("was taken for", false), ("rows", true), ("of the class", true)];
    let rows = wrong.iter().take(PAIRS).map(|(truth, predicted, rows)| {
        let part = ratio(*rows, by_class.get(*truth).map_or(0, |counts| counts.rows()));
        (vec![name(classes, *truth), name(classes, *predicted), thousands(rows), percent(part)], false)
    });
    let rows: Vec<_> = rows.collect();
    let all = format!("<p class=\"soft\">The {} most frequent of {} confusions.</p>\n", rows.len(), wrong.len());
    all + &table("Confusions", header, rows)
}

/// Precision, recall and F1 of each, and their mean where each row has one class.
fn scores(counts: impl Iterator<Item = (String, YesNoCounts)>, rows: Option<u64>) -> String {
    let counts: Vec<(String, YesNoCounts)> = counts.collect();
    let header = [("class", false), ("rows", true), ("precision", true), ("recall", true), ("F1", true)];
    let text = |score: Option<f64>| score.map_or_else(|| "–".to_owned(), |score| format!("{score:.3}"));
    let mut lines: Vec<(Vec<String>, bool)> = counts
        .iter()
        .map(|(name, counts)| {
            let cells = [name.clone(), thousands(counts.rows())];
            (cells.into_iter().chain(counts.scores().map(text)).collect(), false)
        })
        .collect();
    if let Some(rows) = rows {
        // As in scikit-learn's report: what can't be computed counts as 0, and classes without rows are left out.
        let with_rows: Vec<[f64; 3]> = counts
            .iter()
            .filter(|(_, counts)| counts.rows() > 0)
            .map(|(_, counts)| counts.scores().map(|score| score.unwrap_or(0.0)))
            .collect();
        #[allow(clippy::cast_precision_loss, reason = "shown with few digits")]
        let n_classes = with_rows.len().max(1) as f64;
        let mean = |at: usize| format!("{:.3}", with_rows.iter().map(|scores| scores[at]).sum::<f64>() / n_classes);
        lines.push((vec!["mean of the classes".into(), thousands(rows), mean(0), mean(1), mean(2)], true));
    }
    table("Scores by class", header, lines)
}

fn gallery(classes: &Classes) -> String {
    if classes.mistakes.is_empty() {
        return "<p>There is none: every row is right.</p>\n".into();
    }
    let told = |it: &Mistake| {
        format!(
            "<b>{}</b>, taken for <b>{}</b> with {}<br><span class=\"soft\">{} · {} for the true class</span>",
            escaped(&name(classes, it.truth)),
            escaped(&name(classes, it.predicted)),
            percent(f64::from(it.probability)),
            place(it.row, it.source.as_deref()),
            percent(f64::from(it.of_truth)),
        )
    };
    let items: Vec<(String, String, Option<&RowPreview>)> = classes
        .mistakes
        .iter()
        .map(|it| (format!("row {}, {}", it.row, name(classes, it.truth)), told(it), it.sample.as_ref()))
        .collect();
    of_samples(&items)
}

/// The row's number, and its file and line.
fn place(row: usize, source: Option<&str>) -> String {
    match source {
        Some(source) => format!("row {row}, {}", escaped(source)),
        None => format!("row {row}"),
    }
}

/// Columns by how much worse the score gets without what they say.
fn of_columns(it: &Importance) -> String {
    let metric = value_name(&it.metric);
    let header = [("column".to_owned(), false), (format!("{metric} gets worse by"), true), ("±".to_owned(), true)];
    let row =
        |column: &ColumnImportance| (vec![column.name.clone(), number(column.mean), number(column.deviation)], false);
    let rows: Vec<_> = it.columns.iter().take(COLUMNS).map(row).collect();
    let others = it.columns.len() - rows.len();
    let mut html = format!(
        "<h3>Columns that matter</h3>\n<p class=\"soft\">Each column's values are shuffled among {} rows, {} times: mean and standard \
         deviation of how much worse {} gets than {}. Near 0, the model does without the column. Of columns that say the same, each can \
         look unimportant: the model reads the other.</p>\n",
        thousands(it.rows),
        it.repeats,
        escaped(&metric),
        number(it.score)
    );
    html.push_str(&table("Columns that matter", header, rows));
    if others > 0 {
        write_to(
            &mut html,
            format_args!("<p class=\"soft\">and {} others, of less importance</p>\n", thousands(others)),
        );
    }
    html
}

/// Rows with what is told of them: a name for those who can't see a picture, markup, the row.
pub(super) fn of_samples(items: &[(String, String, Option<&RowPreview>)]) -> String {
    let is_rows = items.iter().any(|it| matches!(it.2, Some(RowPreview::Values(..))));
    let mut html = format!("<ul class=\"gallery{}\">\n", if is_rows { " rows" } else { "" });
    for (name, told, sample) in items {
        html.push_str("<li>");
        if let Some(RowPreview::Picture { png, width, height }) = sample {
            let small = if width.max(height) < &64 { " class=\"small\"" } else { "" };
            write_to(
                &mut html,
                format_args!(
                    "<img{small} src=\"data:image/png;base64,{png}\" width=\"{width}\" height=\"{height}\" alt=\"{}\">",
                    escaped(name)
                ),
            );
        }
        html.push_str(told);
        if let Some(RowPreview::Values(values, others)) = sample {
            html.push_str("<dl>");
            for (name, value) in values {
                write_to(&mut html, format_args!("<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(value)));
            }
            html.push_str("</dl>");
            if *others > 0 {
                write_to(&mut html, format_args!("<span class=\"soft\">and {others} others</span>"));
            }
        }
        html.push_str("</li>\n");
    }
    html.push_str("</ul>\n");
    html
}

fn of_values(name: &str, it: &Residuals) -> String {
    let r2 = it.r2.map_or_else(|| "–".into(), number);
    let interval = it.interval.map_or_else(|| "–".into(), |within| format!("± {}", number(within)));
    let facts = [
        ("mean absolute error", number(it.mean_absolute_error)),
        ("root mean squared error", number(it.root_mean_squared_error)),
        ("R²", r2),
        ("mean of prediction less target", number(it.bias)),
        ("90 % prediction interval", interval),
    ];
    let mut html = format!("<h3>{}</h3>\n<dl class=\"facts\">", escaped(&format!("Predictions of {name}")));
    for (what, value) in facts {
        write_to(&mut html, format_args!("<div class=\"fact\"><dt>{what}</dt><dd>{value}</dd></div>"));
    }
    html.push_str("</dl>\n<div class=\"charts\">\n");
    let points: Vec<(f64, f64)> = it.points.iter().map(|(x, y)| (f64::from(*x), f64::from(*y))).collect();
    let ends = points.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), (x, _)| (a.min(*x), b.max(*x)));
    let series = vec![
        Series {
            name: "exact".into(),
            colour: 1,
            style: Style::Dashed,
            points: vec![(ends.0, ends.0), (ends.1, ends.1)],
        },
        Series { name: "rows".into(), colour: 0, style: Style::Points, points },
    ];
    let (title, x, y) = ("Prediction and target".into(), "target".into(), "prediction".into());
    html.push_str(&Chart { title, x, y, may_be_log: false, series }.html());
    html.push_str(&histogram("Residuals", "prediction less target", it.range, &it.bars));
    html.push_str("</div>\n<h3>The largest errors</h3>\n");
    let items: Vec<(String, String, Option<&RowPreview>)> = it
        .worst
        .iter()
        .map(|worst| {
            let (target, prediction) = (number(f64::from(worst.target)), number(f64::from(worst.prediction)));
            let told = format!(
                "<b>{target}</b>, predicted <b>{prediction}</b><br><span class=\"soft\">{}</span>",
                place(worst.row, worst.source.as_deref())
            );
            (format!("row {}", worst.row), told, worst.sample.as_ref())
        })
        .collect();
    html.push_str(&of_samples(&items));
    html
}

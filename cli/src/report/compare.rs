//! Several runs: one table, curves over each other, and the settings in which they differ.

use std::collections::BTreeMap;

use manyhands::logs::Values;
use manyhands_engine::shown::thousands;
use manyhands_engine::table::Table;

use super::chart::{Chart, Series, Style};
use super::folds::mean_of;
use super::markup::table as html_table;
use super::page::{state, whole};
use super::text::{duration, escaped, number};
use super::{LoadedRun, value_name};

/// Colours, before a dashed line tells more runs apart.
const COLOURS: usize = 6;

/// A header, and whether its column holds numbers.
type TableHeader = Vec<(String, bool)>;

/// A row for each run; the best by the first number is marked.
fn rows(runs: &[LoadedRun]) -> (TableHeader, Vec<(Vec<String>, bool)>) {
    let names = shared_names(runs);
    let mut header: TableHeader = vec![("run".into(), false), ("state".into(), false), ("epochs".into(), true)];
    header.push(("best epoch".into(), true));
    header.extend(names.iter().map(|name| (value_name(name), true)));
    let scores = scores_of_folds(runs).unwrap_or_default();
    let of_folds: Vec<&str> = scores.iter().take(1).flat_map(Values::iter).map(|(name, _)| name).collect();
    header.extend(of_folds.iter().map(|name| (format!("held-out {}", value_name(name)), true)));
    header.extend([("training".into(), true), ("rows/s".into(), true), ("parameters".into(), true)]);
    header.push(("adapters".into(), false));
    let best = best_run(runs);
    let cells = runs.iter().enumerate().map(|(at, run)| {
        let LoadedRun { log, results, .. } = run;
        let epoch = run.best().map(|(epoch, _)| epoch);
        let at_best = log.epochs.iter().find(|log| Some(log.epoch) == epoch).or(log.epochs.last());
        let value = |name: &String| at_best.and_then(|log| log.values.get(name)).map_or_else(String::new, number);
        let mut cells = vec![run.name.clone(), state(results).to_owned(), log.epochs.len().to_string()];
        cells.push(epoch.map_or_else(String::new, |epoch| epoch.to_string()));
        cells.extend(names.iter().map(value));
        let of_fold = |name: &&str| scores.get(at).and_then(|fold| fold.get(name)).map_or_else(String::new, number);
        cells.extend(of_folds.iter().map(of_fold));
        let rate = log.epochs.last().map_or(0.0, |epoch| epoch.samples_per_s);
        cells.extend([duration(log.seconds()), thousands(format_args!("{rate:.0}")), thousands(results.parameters)]);
        let adapters: Vec<&str> = results.adapters.iter().map(|adapter| adapter.name.as_str()).collect();
        cells.push(adapters.join(", "));
        (cells, best == Some(at))
    });
    (header, cells.collect())
}

/// The numbers to compare: those of validation, if all runs have them.
fn shared_names(runs: &[LoadedRun]) -> Vec<String> {
    let names = |run: &LoadedRun| -> Vec<String> {
        let names = run.log.names().into_iter();
        names.flat_map(|name| [format!("val_{name}"), name]).collect()
    };
    let has = |run: &LoadedRun, name: &String| run.log.epochs.iter().any(|epoch| epoch.values.get(name).is_some());
    let mut all: Vec<String> = Vec::new();
    for name in runs.iter().flat_map(names) {
        if !all.contains(&name) && runs.iter().any(|run| has(run, &name)) {
            all.push(name);
        }
    }
    if runs.iter().all(|run| run.log.has_validation()) {
        all.retain(|name| name.starts_with("val_"));
    }
    all
}

/// The settings with which one run's numbers are another's: data, what is predicted, and its loss.
const COMPARED: [&str; 10] = [
    "data.type",
    "data.train",
    "data.test",
    "data.file",
    "data.folder",
    "data.target",
    "data.targets",
    "data.target_kind",
    "loss",
    "losses",
];

/// The best run, if all predict the same and are chosen by the same number.
fn best_run(runs: &[LoadedRun]) -> Option<usize> {
    let results = &runs.first()?.results;
    let is_compared = |key: &str| {
        COMPARED.iter().any(|it| key.strip_prefix(it).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    };
    let predicted = |run: &LoadedRun| -> Vec<(String, String)> {
        flat(&run.settings).into_iter().filter(|(key, _)| is_compared(key)).collect()
    };
    let first = predicted(runs.first()?);
    if runs.iter().any(|run| predicted(run) != first) {
        return None;
    }
    if runs.iter().any(|run| (&run.results.monitor, run.results.mode) != (&results.monitor, results.mode)) {
        return None;
    }
    let sign = results.mode?.sign();
    let values = runs.iter().enumerate().filter_map(|(at, run)| Some((at, sign * run.best()?.1)));
    values.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(at, _)| at)
}

/// Scores on the rows that were held out, where all runs are folds.
fn scores_of_folds(runs: &[LoadedRun]) -> Option<Vec<Values>> {
    runs.iter().map(|run| Some(run.results.end.as_ref()?.fold.as_ref()?.values.clone())).collect()
}

/// Their mean and standard deviation.
pub fn folds(runs: &[LoadedRun]) -> Option<String> {
    Some(mean_of(&scores_of_folds(runs)?))
}

/// The comparison for a terminal.
pub fn table(runs: &[LoadedRun]) -> Table {
    let (header, rows) = rows(runs);
    let numbers = header.iter().enumerate().filter(|(_, (_, is_number))| *is_number).map(|(at, _)| at);
    let mut table = Table::new(header.iter().map(|(text, _)| text.clone())).numbers(numbers);
    rows.into_iter().for_each(|(cells, _)| table.row(cells));
    table
}

/// The comparison as a page.
pub fn page(runs: &[LoadedRun]) -> String {
    let (header, rows) = rows(runs);
    let mut body = format!("<h1>{} runs</h1>\n<h2>Results</h2>\n", runs.len());
    let best = if rows.iter().any(|(_, is_best)| *is_best) {
        "the best run is set in bold"
    } else {
        "none is called the best, since data, loss or the number that chooses the best model differ"
    };
    body += &format!("<p class=\"soft\">Numbers are those of each run's best epoch; {best}.</p>\n");
    body.push_str(&html_table("Results", header, rows));
    if let Some(told) = folds(runs) {
        body += &format!("<p>On the folds that were held out, {}.</p>\n", escaped(&told));
    }
    body.push_str("<h2>Curves</h2>\n<div class=\"charts\">\n");
    for name in shared_names(runs) {
        let series = runs.iter().enumerate().map(|(at, run)| Series {
            name: run.name.clone(),
            colour: at % COLOURS,
            style: if at < COLOURS { Style::Solid } else { Style::Dashed },
            points: run.log.curve(&name),
        });
        let (title, x, may_be_log) = (value_name(&name), "epochs".into(), name.contains("loss"));
        body.push_str(&Chart { title, x, y: String::new(), may_be_log, series: series.collect() }.html());
    }
    body.push_str("</div>\n<h2>Settings that differ</h2>\n");
    body.push_str(&differences(runs));
    whole("Comparison of runs · manyhands", &body)
}

/// Settings by key that are not the same in all runs.
fn differences(runs: &[LoadedRun]) -> String {
    let settings: Vec<BTreeMap<String, String>> = runs.iter().map(|run| flat(&run.settings)).collect();
    let keys: std::collections::BTreeSet<&String> = settings.iter().flat_map(BTreeMap::keys).collect();
    let differing = keys.into_iter().filter(|key| settings.iter().any(|it| it.get(*key) != settings[0].get(*key)));
    let rows: Vec<(Vec<String>, bool)> = differing
        .map(|key| {
            let values = settings.iter().map(|it| it.get(key).cloned().unwrap_or_else(|| "–".into()));
            ([key.clone()].into_iter().chain(values).collect(), false)
        })
        .collect();
    if rows.is_empty() {
        return "<p>None: the runs have the same settings.</p>\n".into();
    }
    let header = [("setting".to_owned(), false)].into_iter().chain(runs.iter().map(|run| (run.name.clone(), false)));
    let html = "<p class=\"soft\">– stands for the default.</p>\n".to_owned();
    html + &html_table("Settings that differ", header, rows)
}

/// Settings as `optimizer.learning_rate` and their values.
fn flat(text: &str) -> BTreeMap<String, String> {
    fn add(path: &str, value: &toml::Value, all: &mut BTreeMap<String, String>) {
        let key = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match value {
            toml::Value::Table(table) => table.iter().for_each(|(name, value)| add(&key(name), value, all)),
            toml::Value::Array(values) if values.iter().any(toml::Value::is_table) => {
                values.iter().enumerate().for_each(|(at, value)| add(&key(&at.to_string()), value, all));
            }
            value => drop(all.insert(path.to_owned(), value.to_string())),
        }
    }
    let mut all = BTreeMap::new();
    if let Ok(table) = text.parse::<toml::Table>() {
        add("", &toml::Value::Table(table), &mut all);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_flat_by_key() {
        let text = "model = \"a\"\n[optimizer]\nlr = 0.1\n[[losses]]\ntype = \"x\"\n[data]\nignore = [1, 2]\n";
        let flat: Vec<(String, String)> = flat(text).into_iter().collect();
        let expected =
            [("data.ignore", "[1, 2]"), ("losses.0.type", "\"x\""), ("model", "\"a\""), ("optimizer.lr", "0.1")];
        assert_eq!(flat, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }
}

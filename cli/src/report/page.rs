//! `report.html`: a page for one run. It holds all that it shows, and loads nothing.

use std::path::Path;

use manyhands::logs::TimeSummary;
use manyhands_engine::files::PAGE_MARK;
use manyhands_engine::shown::{bytes, thousands};
use manyhands_engine::timing::ratio;

use super::chart::{Chart, Series, Style};
use super::judged;
use super::log::AdapterLine;
use super::markup::{bar, table};
use super::results::{How, Results, moment};
use super::text::{duration, escaped, number, percent, write_to};
use super::{LoadedRun, value_name};

const STYLE: &str = include_str!("page.css");

/// Colours of training and of validation.
const TRAIN: usize = 0;
const VALIDATION: usize = 1;
/// Colour of the best epoch.
const MARK: usize = 3;

/// A whole page: `body` is markup.
pub fn whole(title: &str, body: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'";
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n{PAGE_MARK}{version}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        escaped(title)
    )
}

/// The page of a run.
pub fn of_run(run: &LoadedRun) -> String {
    let mut body = head(run);
    body.push_str(&curves(run));
    body.push_str(&samples(run));
    body.push_str(&changed(run));
    if let Some(end) = &run.results.end {
        body.push_str(&match end.how {
            How::Interrupted => judged::at_the_end(),
            How::Finished | How::StoppedEarly => judged::section(end),
        });
    }
    body.push_str(&time(run));
    body.push_str(&repeat(run));
    body.push_str(&about(run));
    whole(&format!("{} · manyhands", run.name), &body)
}

/// State of a run, in words.
pub fn state(results: &Results) -> &'static str {
    match results.end.as_ref().map(|end| end.how) {
        None if results.failure.is_some() => "failed",
        Some(How::Finished) => "finished",
        Some(How::StoppedEarly) => "stopped early",
        Some(How::Interrupted) => "interrupted",
        None => "not finished",
    }
}

fn head(run: &LoadedRun) -> String {
    let LoadedRun { name, results, log, .. } = run;
    let mut html = format!("<p class=\"tag\">{}</p>\n<h1>{}</h1>\n", state(results), escaped(name));
    write_to(
        &mut html,
        format_args!(
            "<p class=\"soft\">{} · manyhands {} · {} · seed {}</p>\n",
            moment(results.started),
            escaped(&results.version),
            escaped(&results.system),
            results.seed
        ),
    );
    let mut facts: Vec<(String, String)> = Vec::new();
    if let Some((epoch, value)) = run.best() {
        facts.push((format!("best {}, epoch {epoch}", value_name(&results.monitor)), number(value)));
        let other = log.names().into_iter().filter(|name| name != "loss").map(|name| match log.has_validation() {
            true => format!("val_{name}"),
            false => name,
        });
        let at_best = log.epochs.iter().find(|log| log.epoch == epoch);
        for name in other.filter(|name| *name != results.monitor).take(2) {
            if let Some(value) = at_best.and_then(|log| log.values.get(&name)) {
                facts.push((format!("{} there", value_name(&name)), number(value)));
            }
        }
    }
    facts.push(("epochs".into(), format!("{} of {}", log.epochs.len(), results.epochs)));
    facts.push(("steps".into(), thousands(log.steps)));
    facts.push(("training".into(), duration(log.seconds())));
    if let Some(last) = log.epochs.last() {
        facts.push(("rows a second".into(), thousands(format_args!("{:.0}", last.samples_per_s))));
    }
    facts.push(("parameters".into(), thousands(results.parameters)));
    html.push_str("<dl class=\"facts\">");
    for (what, value) in facts {
        write_to(&mut html, format_args!("<div class=\"fact\"><dt>{}</dt><dd>{value}</dd></div>", escaped(&what)));
    }
    html.push_str("</dl>\n");
    if let Some(failure) = &results.failure {
        let text = escaped(&failure.text).replace('\n', "<br>");
        write_to(&mut html, format_args!("<p><b>It ended with an error:</b> {text}</p>\n"));
    }
    if results.has_kept_the_worst() {
        write_to(
            &mut html,
            format_args!(
                "<p><b>`best.safetensors` holds the worst epoch:</b> an older version took the wrong direction of `{}` for the \
                 better one. Train again.</p>\n",
                escaped(&results.monitor)
            ),
        );
    }
    if log.skipped > 0 {
        write_to(
            &mut html,
            format_args!("<p>{} steps had a gradient that was not finite, and changed nothing.</p>", log.skipped),
        );
    }
    html
}

/// Texts that a language model wrote after its epochs.
fn samples(run: &LoadedRun) -> String {
    if run.results.samples.is_empty() {
        return String::new();
    }
    let lines = run.results.samples.iter().map(|sample| (vec![sample.epoch.to_string(), sample.text.clone()], false));
    let header = [("epoch", true), ("text", false)];
    format!("<h2>Samples</h2>\n{}", table("What the model wrote after each epoch", header, lines.collect()))
}

/// Training images as they were changed at random.
fn changed(run: &LoadedRun) -> String {
    let changed = run.results.changed.iter().enumerate();
    let items: Vec<_> = changed.map(|(at, image)| (format!("image {at}"), String::new(), Some(image))).collect();
    if items.is_empty() {
        return String::new();
    }
    let told = "The first training images as <code>augment</code> changes them in the first epoch. A person should still see the class.";
    format!("<h2>Changed images</h2>\n<p class=\"soft\">{told}</p>\n{}", judged::of_samples(&items))
}

fn curves(run: &LoadedRun) -> String {
    let LoadedRun { log, .. } = run;
    if log.epochs.is_empty() && log.losses.len() < 2 {
        return "<h2>Curves</h2>\n<p>No epoch has ended.</p>\n".into();
    }
    let mut html = String::from("<h2>Curves</h2>\n<div class=\"charts\">\n");
    let series = |name: &str, colour, style, points| Series { name: name.into(), colour, style, points };
    let names = if log.epochs.is_empty() { vec!["loss".to_owned()] } else { log.names() };
    #[allow(clippy::cast_precision_loss, reason = "drawn")]
    let best = run.best().map(|(epoch, _)| epoch as f64);
    for name in names {
        let mut all = Vec::new();
        if name == "loss" {
            all.push(series("batches", TRAIN, Style::Faint, log.losses.clone()));
        }
        all.push(series("training", TRAIN, Style::Solid, log.curve(&name)));
        let validation = log.curve(&format!("val_{name}"));
        let mark = best.and_then(|epoch| all.last()?.points.iter().find(|point| point.0 == epoch).copied());
        all.push(series("validation", VALIDATION, Style::Dashed, validation));
        all.extend(mark.map(|point| series("best epoch", MARK, Style::Mark, vec![point])));
        let (title, x) = (value_name(&name), "epochs".into());
        let may_be_log = name.contains("loss");
        html.push_str(&Chart { title, x, y: String::new(), may_be_log, series: all }.html());
    }
    let rate: Vec<(f64, f64)> =
        log.epochs.iter().zip(1_u32..).map(|(epoch, at)| (f64::from(at), f64::from(epoch.learning_rate))).collect();
    let is_changing = rate.iter().any(|(_, value)| *value != rate[0].1);
    if is_changing {
        let all = vec![series("learning rate", 2, Style::Solid, rate)];
        let title = "learning rate".into();
        html.push_str(&Chart { title, x: "epochs".into(), y: String::new(), may_be_log: true, series: all }.html());
    }
    html.push_str("</div>\n");
    html.push_str(&table_of_epochs(run));
    html
}

fn table_of_epochs(run: &LoadedRun) -> String {
    let Some(first) = run.log.epochs.first() else { return String::new() };
    let names: Vec<String> = first.values.iter().map(|(name, _)| name.to_owned()).collect();
    let best = run.best().map(|(epoch, _)| epoch);
    let header = names.iter().map(|name| (value_name(name), true));
    let header = [("epoch".to_owned(), true)].into_iter().chain(header).chain([("seconds".to_owned(), true)]);
    let rows = run.log.epochs.iter().map(|epoch| {
        let values = names.iter().map(|name| epoch.values.get(name).map_or_else(String::new, number));
        let cells = [epoch.epoch.to_string()].into_iter().chain(values).chain([format!("{:.2}", epoch.seconds)]);
        (cells.collect(), best == Some(epoch.epoch))
    });
    format!(
        "<details><summary>All numbers</summary>\n{}</details>\n",
        table("Numbers of all epochs", header, rows.collect())
    )
}

fn time(run: &LoadedRun) -> String {
    let LoadedRun { log, results, .. } = run;
    let mut html = String::from("<h2>Adapters and time</h2>\n");
    let rows = log.adapters.values().fold(0_u64, |rows, adapter| rows.saturating_add(adapter.rows));
    let name = |(at, adapter): (&usize, &AdapterLine)| format!("{at} {}", adapter.name);
    if log.adapters.len() > 1 {
        html.push_str("<h3>Rows by adapter</h3>\n");
        let parts: Vec<(String, f64)> = log.adapters.iter().map(|it| (name(it), ratio(it.1.rows, rows))).collect();
        html.push_str(&bar("Rows by adapter", &parts));
        let series = log.adapters.iter().enumerate().map(|(colour, it)| Series {
            name: name(it),
            colour,
            style: Style::Solid,
            points: it.1.shares.iter().map(|(x, share)| (*x, 100.0 * share)).collect(),
        });
        let (title, x, y) = ("Split over the run".into(), "epochs".into(), "% of the rows".into());
        let chart = Chart { title, x, y, may_be_log: false, series: series.collect() };
        write_to(&mut html, format_args!("<div class=\"charts\">{}</div>\n", chart.html()));
    }
    match &results.end {
        Some(end) => html.push_str(&summary(&end.time)),
        None => {
            let header = [("adapter", false), ("rows", true), ("busy", true)];
            let rows =
                log.adapters.iter().map(|it| (vec![name(it), thousands(it.1.rows), duration(it.1.ms / 1e3)], false));
            html.push_str(&table("Adapters", header, rows.collect()));
        }
    }
    html
}

fn summary(time: &TimeSummary) -> String {
    let seen: Vec<(String, f64)> = time.host_parts().into_iter().map(|(what, part)| (what.to_owned(), part)).collect();
    let largest = seen.iter().max_by(|a, b| a.1.total_cmp(&b.1)).cloned();
    let mut html = format!(
        "<h3>The host's time</h3>\n<p>{} steps in {}: {:.1} steps a second, {} rows a second, since the run was begun or resumed.</p>\n",
        thousands(time.steps),
        duration(time.ms / 1e3),
        time.steps_per_s(),
        thousands(format_args!("{:.0}", time.rows_per_s()))
    );
    html.push_str(&bar("The host's time", &seen));
    html.push_str("<h3>The adapters' time</h3>\n");
    let header = [
        "adapter",
        "rows",
        "share",
        "rows/s when busy",
        "computing",
        "transfers",
        "waiting for others",
        "waiting for data",
        "idle",
    ];
    let header = header.into_iter().enumerate().map(|(at, text)| (text, at > 0));
    let rows = time.adapters.iter().enumerate().map(|(at, it)| {
        let times = [it.compute_ms, it.transfer_ms, it.others_ms, it.data_ms, it.idle_ms];
        let cells = [
            format!("{at} {}", it.name),
            thousands(it.rows),
            percent(ratio(it.rows, time.rows)),
            thousands(format_args!("{:.0}", it.rows_per_busy_s)),
        ];
        (cells.into_iter().chain(times.map(|ms| percent(time.part(ms)))).collect(), false)
    });
    html.push_str(&table("Time of each adapter", header, rows.collect()));
    html.push_str(&limits(&time.advice, largest));
    html
}

/// The cause of a slow run; without advice, the largest part of the host's time.
fn limits(advice: &[String], largest: Option<(String, f64)>) -> String {
    let mut html = String::from("<h3>What limited the run</h3>\n");
    match (advice, largest) {
        ([], Some((what, part))) => write_to(
            &mut html,
            format_args!(
                "<p>Nothing stands out. Most of the host's time went into {}: {}.</p>\n",
                escaped(&what),
                percent(part)
            ),
        ),
        (advice, _) => {
            html.push_str("<ul>\n");
            for advice in advice {
                let (cause, help) = advice.split_once("help: ").unwrap_or((advice, ""));
                let (cause, help) = (escaped(cause.trim()), escaped(help.trim()));
                write_to(&mut html, format_args!("<li>{cause}<br><span class=\"soft\">{help}</span></li>\n"));
            }
            html.push_str("</ul>\n");
        }
    }
    html
}

/// Words of a command as a shell reads them.
fn quoted(words: &[String]) -> String {
    let is_plain =
        |word: &str| !word.is_empty() && word.chars().all(|it| it.is_alphanumeric() || "-_./=:,+@%".contains(it));
    let quote =
        |word: &String| if is_plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', "'\\''")) };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

fn repeat(run: &LoadedRun) -> String {
    let LoadedRun { results, folder, .. } = run;
    let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let command = |words: &[&str]| {
        let folder = results.data_folder.as_deref().filter(|_| words[0] == "train");
        let words = ["manyhands"].iter().chain(words).map(|word| (*word).to_owned());
        let folder = folder.into_iter().flat_map(|folder| ["--data-folder".to_owned(), folder.to_owned()]);
        quoted(&words.chain(folder).collect::<Vec<_>>())
    };
    let again = sibling(folder);
    let mut lines = vec![("It was started by", quoted(&results.command))];
    if results.end.as_ref().is_none_or(|end| end.how == How::Interrupted) {
        let line = command(&["train", &file("run.toml"), "--run", &folder.to_string_lossy(), "--resume"]);
        lines.push(("Continue it", line));
    }
    let (settings, log) = (file("run.toml"), file("log.jsonl"));
    lines.push(("Train again with the same settings and seed", command(&["train", &settings, "--run", &again])));
    if results.adapters.len() > 1 {
        let words = ["train", &settings, "--run", &again, "--split-from", &log];
        lines.push(("Train again to the same bits, on the same adapters", command(&words)));
    }
    lines.push(("Predict with the best model", command(&["predict", &file("best.safetensors"), "DATA"])));
    let mut html = String::from("<h2>How to repeat it</h2>\n");
    for (what, line) in lines {
        write_to(
            &mut html,
            format_args!("<p class=\"soft\">{what}:</p>\n<pre tabindex=\"0\"><code>{}</code></pre>\n", escaped(&line)),
        );
    }
    html
}

/// Another folder beside this one.
fn sibling(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    folder.with_file_name(format!("{name}-again")).to_string_lossy().into_owned()
}

fn about(run: &LoadedRun) -> String {
    let LoadedRun { results, settings, .. } = run;
    let mut html = String::from("<h2>Data, model, settings</h2>\n");
    for data in &results.data {
        write_to(&mut html, format_args!("<pre tabindex=\"0\">{}</pre>\n", escaped(data)));
    }
    let header = [("adapter", false), ("kind", false), ("backend", false), ("driver", false), ("memory", true)];
    let rows = results.adapters.iter().enumerate().map(|(at, it)| {
        let cells =
            [format!("{at} {}", it.name), it.kind.clone(), it.backend.clone(), it.driver.clone(), bytes(it.bytes)];
        (cells.to_vec(), false)
    });
    html.push_str("<h3>Adapters in use</h3>\n");
    html.push_str(&table("Adapters in use", header, rows.collect()));
    for (what, text) in [("Layers", &results.layers), ("Settings", settings)] {
        write_to(
            &mut html,
            format_args!(
                "<details><summary>{what}</summary><pre tabindex=\"0\">{}</pre></details>\n",
                escaped(text.trim_end())
            ),
        );
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_pasted() {
        let words = ["manyhands", "train", "my file.toml", "it's", ""].map(String::from);
        assert_eq!(quoted(&words), r"manyhands train 'my file.toml' 'it'\''s' ''");
        assert_eq!(sibling(Path::new("runs/a.b")), Path::new("runs").join("a.b-again").to_string_lossy());
    }
}

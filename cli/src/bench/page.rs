//! The page of `manyhands bench report`. It holds all that it shows, and loads nothing.

use crate::doctor::facts::{Examined, StepOutcome};
use crate::doctor::judge::{FindingLevel, verdict};
use crate::report::chart::{Chart, Series, Style};
use crate::report::markup::{bar, table};
use crate::report::page::whole;
use crate::report::text::{duration, escaped, number, percent, write_to};
use manyhands_bench::kernels::{AdapterKernels, Timed};
use manyhands_bench::report::BenchReport;
use manyhands_bench::scaling::ScalingCurve;
use manyhands_bench::steps::RigSteps;
use manyhands_engine::shown::{bytes, thousands};

use super::findings::best_tiles;
use super::measured::Measured;

/// The page of a report.
pub fn page(report: &BenchReport<Measured>) -> String {
    let (about, measured) = (&report.about, &report.measured);
    let machine = &measured.machine;
    let mut body = String::from("<p class=\"tag\">measured</p>\n<h1>Adapters of a machine</h1>\n");
    write_to(
        &mut body,
        format_args!(
            "<p class=\"soft\">manyhands {} ({}) · {} · {} threads{} · {} of {} min</p>\n",
            about.version,
            about.build,
            escaped(&about.system),
            about.threads,
            machine.memory.map(|memory| format!(" · memory {}", bytes(memory))).unwrap_or_default(),
            duration(measured.seconds),
            number(measured.minutes)
        ),
    );
    if about.build != "optimized" {
        body.push_str("<p><b>This is a debug build:</b> its times say nothing about manyhands.</p>\n");
    }
    body.push_str(&findings(measured));
    body.push_str(&adapters(measured));
    body.push_str(&steps(measured));
    body.push_str(&scaling(measured));
    body.push_str(&faults(measured));
    body.push_str(&torch(measured));
    // Last of the numbers: they fill several screens.
    body.push_str(&kernels(measured));
    body.push_str(&left_out(measured));
    body.push_str(
        "<h2>About these numbers</h2>\n<p>Times are medians; what is compared was measured in turn. The peak of bandwidth is that \
         of a copy, the peak of arithmetic that of chains of multiply-adds in registers, or the fastest product where that is \
         faster; both were measured here. The page and the JSON file beside it name adapters, drivers, processor family, \
         memory and speeds of this machine, and nothing about its owner: no names, no paths, no addresses.</p>\n",
    );
    whole("Adapters of a machine · manyhands", &body)
}

fn findings(measured: &Measured) -> String {
    let mut html = String::from("<h2>Findings</h2>\n");
    if measured.findings.is_empty() {
        html.push_str("<p>All is well: no result is wrong, and no speed is suspicious.</p>\n");
        return html;
    }
    html.push_str("<ul>\n");
    for finding in &measured.findings {
        let who = finding.adapter.map_or("this machine".into(), |index| measured.machine.name(index).to_owned());
        let level = if finding.level == FindingLevel::Wrong { "<b>Wrong:</b> " } else { "" };
        write_to(
            &mut html,
            format_args!(
                "<li>{level}{}: {}. <span class=\"soft\">{}.</span></li>\n",
                escaped(&who),
                escaped(&finding.problem),
                escaped(&finding.advice)
            ),
        );
    }
    html.push_str("</ul>\n");
    html
}

fn adapters(measured: &Measured) -> String {
    let header = [
        ("adapter", false),
        ("kind", false),
        ("backend", false),
        ("driver", false),
        ("upload GB/s", true),
        ("readback GB/s", true),
        ("round trip ms", true),
        ("kernels right", true),
        ("copy GB/s", true),
        ("peak GFLOP/s", true),
        ("verdict", false),
    ];
    let row = |adapter: &Examined| {
        let Examined { info, link, outcome, .. } = adapter;
        let checked = measured.checked.iter().find(|checked| checked.adapter == info.index).map(|it| &it.checked);
        let right = checked.filter(|checked| checked.kernels > 0).map_or("–".into(), |checked| {
            let wrong: std::collections::BTreeSet<&str> =
                checked.wrong.iter().filter_map(|name| name.split(' ').next()).collect();
            format!("{} of {}", checked.kernels - wrong.len(), checked.kernels)
        });
        let peaks = measured.kernels.iter().find(|kernels| kernels.name == info.name).map(|kernels| &kernels.peaks);
        let rate = |value: Option<f64>| value.map_or("–".into(), number);
        let failed = matches!(outcome, StepOutcome::Failed(_));
        let cells = vec![
            info.name.clone(),
            crate::adapters::kind(info.kind).into(),
            info.backend.clone(),
            info.driver.clone(),
            rate(link.map(|link| link.upload_gb_s)),
            rate(link.map(|link| link.readback_gb_s)),
            rate(link.map(|link| link.round_trip_ms)),
            right,
            rate(peaks.map(|peaks| peaks.copy_gb_s)),
            rate(peaks.map(|peaks| peaks.gflop_per_s)),
            if failed { "fails".into() } else { verdict(info.index, &measured.findings).to_owned() },
        ];
        (cells, false)
    };
    format!("<h2>Adapters</h2>\n{}", table("Adapters", header, measured.machine.adapters.iter().map(row).collect()))
}

fn kernels(measured: &Measured) -> String {
    let mut html = String::from("<h2>Kernels</h2>\n");
    if measured.kernels.is_empty() {
        return html + "<p>Not measured.</p>\n";
    }
    html.push_str("<p>Of each product, every tile that the adapter can run; the fastest is marked.</p>\n");
    for (idx, adapter) in measured.kernels.iter().enumerate() {
        write_to(&mut html, format_args!("<h3>{}</h3>\n", escaped(&adapter.name)));
        // Like cards have like names: the number tells their tables apart.
        let label = format!("Kernels of adapter {idx}, {}", adapter.name);
        write_to(&mut html, format_args!("<div class=\"one-line\">{}</div>\n", of_adapter(&label, adapter)));
    }
    html
}

fn of_adapter(label: &str, adapter: &AdapterKernels) -> String {
    let header = [
        ("kernel", false),
        ("size", false),
        ("tile", false),
        ("ms", true),
        ("GFLOP/s", true),
        ("GB/s", true),
        ("of the peak", true),
    ];
    let best = best_tiles(adapter);
    let rate = |value: Option<f64>| value.map_or(String::new(), number);
    let row = |timed: &Timed| {
        let cells = vec![
            timed.kernel.clone(),
            timed.size.clone(),
            timed.tile.clone().unwrap_or_default(),
            number(timed.ms),
            rate(timed.gflop_per_s),
            rate(timed.gb_s),
            percent(timed.of_peak),
        ];
        (cells, timed.tile.is_some() && best.iter().any(|best| std::ptr::eq(*best, timed)))
    };
    table(label, header, adapter.kernels.iter().map(row).collect())
}

fn steps(measured: &Measured) -> String {
    let mut html = String::from("<h2>Training steps</h2>\n");
    if measured.steps.is_empty() {
        return html + "<p>Not measured.</p>\n";
    }
    let header = [
        ("model", false),
        ("adapters", false),
        ("batch", true),
        ("parameters", true),
        ("step ms", true),
        ("samples/s", true),
        ("GFLOP/s", true),
        ("memory", true),
    ];
    let row = |steps: &RigSteps| {
        let most = steps.adapters.iter().map(|adapter| adapter.bytes).max().unwrap_or(0);
        let cells = vec![
            steps.model.to_owned(),
            steps.rig.clone(),
            steps.batch_size.to_string(),
            thousands(steps.parameters),
            number(steps.step_ms),
            number(steps.samples_per_s),
            number(steps.gflop_per_s),
            bytes(most),
        ];
        (cells, steps.adapters.len() > 1)
    };
    html.push_str("<p>Each adapter alone, and all together, which is marked; the split is learned.</p>\n");
    html.push_str(&table("Training steps", header, measured.steps.iter().map(row).collect()));
    for steps in measured.steps.iter().filter(|steps| steps.adapters.len() > 1) {
        write_to(&mut html, format_args!("<h3>{} on all adapters: rows and time</h3>\n", escaped(steps.model)));
        let rows: f64 = steps.adapters.iter().map(|adapter| f64::from(adapter.rows)).sum();
        let share: Vec<(String, f64)> =
            steps.adapters.iter().map(|it| (it.name.clone(), f64::from(it.rows) / rows.max(1.0))).collect();
        html.push_str(&bar("rows", &share));
        for adapter in steps.adapters.iter().filter(|adapter| adapter.rows > 0) {
            let phases = [
                ("weights", adapter.weights_ms),
                ("upload", adapter.upload_ms),
                ("compute", adapter.compute_ms),
                ("readback", adapter.readback_ms),
                ("wait for others", adapter.wait_ms),
            ];
            let busy: f64 = phases.iter().map(|(_, ms)| ms).sum();
            let whole = steps.step_ms.max(busy).max(f64::MIN_POSITIVE);
            let mut parts: Vec<(String, f64)> = phases.map(|(what, ms)| (what.to_owned(), ms / whole)).into();
            parts.push(("host".into(), 1.0 - busy / whole));
            write_to(&mut html, format_args!("<p class=\"soft\">{}</p>\n", escaped(&adapter.name)));
            html.push_str(&bar(&format!("time of {}", adapter.name), &parts));
        }
    }
    html
}

#[allow(clippy::cast_precision_loss, reason = "few adapters")]
fn scaling(measured: &Measured) -> String {
    if measured.scaling.is_empty() {
        return String::new();
    }
    let mut html = String::from("<h2>Several adapters</h2>\n<div class=\"charts\">\n");
    let chart = |curve: &ScalingCurve| {
        let alone = curve.weak.first().map_or(1.0, |point| point.samples_per_s).max(f64::MIN_POSITIVE);
        let series = |name: &str, colour, style, points| Series { name: name.into(), colour, style, points };
        let ideal = curve.weak.iter().map(|it| (it.n_adapters as f64, it.ideal_samples_per_s / alone));
        let grows = curve.weak.iter().map(|it| (it.n_adapters as f64, it.samples_per_s / alone));
        let stays = curve.strong.iter().map(|it| (it.n_adapters as f64, it.samples_per_s / alone));
        Chart {
            title: format!("{}: times the first adapter's speed", curve.model),
            x: "adapters".into(),
            y: String::new(),
            may_be_log: false,
            series: vec![
                series("sum of each alone", 2, Style::Dashed, ideal.collect()),
                series("the batch grows", 0, Style::Solid, grows.collect()),
                series("the batch stays", 1, Style::Solid, stays.collect()),
            ],
        }
    };
    measured.scaling.iter().for_each(|curve| html.push_str(&chart(curve).html()));
    html.push_str("</div>\n");
    let header = [
        ("model", false),
        ("batch", false),
        ("adapters", true),
        ("rows", true),
        ("shares", false),
        ("step ms", true),
        ("samples/s", true),
        ("of the sum", true),
    ];
    let mut rows = Vec::new();
    for curve in &measured.scaling {
        for (what, points) in [("stays", &curve.strong), ("grows", &curve.weak)] {
            for point in points.iter().filter(|point| point.n_adapters > 1) {
                let shares: Vec<String> = point.shares.iter().map(u32::to_string).collect();
                let cells = vec![
                    curve.model.to_owned(),
                    what.to_owned(),
                    point.n_adapters.to_string(),
                    point.batch_size.to_string(),
                    shares.join(" + "),
                    number(point.step_ms),
                    number(point.samples_per_s),
                    percent(point.efficiency),
                ];
                rows.push((cells, false));
            }
        }
    }
    html.push_str(&table("Several adapters", header, rows));
    html
}

fn faults(measured: &Measured) -> String {
    measured.faults.as_ref().map_or(String::new(), |faults| {
        let losses = match faults.largest_difference {
            0.0 => "are equal".to_owned(),
            most => format!("differ by {most:.1e} at most, in parts of the loss"),
        };
        format!(
            "<h2>Lost adapters</h2>\n<p>{} steps were trained twice: undisturbed, and with an adapter destroyed in the middle of \
             a step {} times. Losses {losses}. The longest step took {} ms, without faults {} ms.</p>\n",
            faults.steps,
            faults.lost,
            number(faults.longest_step_ms),
            number(faults.usual_step_ms)
        )
    })
}

fn torch(measured: &Measured) -> String {
    let Some(torch) = &measured.torch else { return String::new() };
    let mut html = format!(
        "<h2>PyTorch</h2>\n<p>PyTorch {} on {} (`{}`), f32 without TF32, in the same sitting, not in turn. Ratios are those of our \
         fastest adapter; above 1, manyhands is faster.</p>\n",
        escaped(&torch.version),
        escaped(&torch.name),
        escaped(&torch.device)
    );
    let header = [("what", false), ("PyTorch", true), ("manyhands", true), ("ratio", true)];
    let mut rows = Vec::new();
    for product in &torch.products {
        let ours = measured.kernels.iter().flat_map(|kernels| &kernels.kernels);
        let ours = ours.filter(|timed| timed.kernel == "dense.forward" && timed.size == product.size);
        let best = ours.filter_map(|timed| timed.gflop_per_s).fold(0.0, f64::max);
        let cells = vec![
            format!("product {}, GFLOP/s", product.size),
            number(product.gflop_per_s),
            if best > 0.0 { number(best) } else { "–".into() },
            if best > 0.0 { number(best / product.gflop_per_s) } else { "–".into() },
        ];
        rows.push((cells, false));
    }
    for step in &torch.steps {
        let ours = measured.steps.iter().filter(|ours| ours.model == step.model && ours.batch_size == step.batch_size);
        let best = ours.filter(|ours| ours.adapters.len() == 1).map(|ours| ours.step_ms).fold(f64::INFINITY, f64::min);
        let cells = vec![
            format!("step of {}, {} rows, ms", step.model, step.batch_size),
            number(step.step_ms),
            if best.is_finite() { number(best) } else { "–".into() },
            if best.is_finite() { number(step.step_ms / best) } else { "–".into() },
        ];
        rows.push((cells, false));
    }
    html.push_str(&table("PyTorch", header, rows));
    html
}

fn left_out(measured: &Measured) -> String {
    if measured.left_out.is_empty() {
        return String::new();
    }
    let mut html = String::from("<h2>Left out</h2>\n<ul>\n");
    for left in &measured.left_out {
        write_to(&mut html, format_args!("<li>{}: {}</li>\n", escaped(&left.what), escaped(&left.why)));
    }
    html.push_str("</ul>\n");
    html
}

//! Judges a report: results that are wrong, and speeds that a GPU of today should not have. Asks nothing of the machine.

use crate::doctor::judge::{Finding, FindingLevel};
use crate::report::text::percent;
use manyhands::adapters::Kind;
use manyhands_bench::kernels::{AdapterKernels, Timed};
use manyhands_bench::scaling::ScalingCurve;

use super::faults::TOLERANCE;
use super::measured::Measured;

/// Part of the measured peak that the best tile of a product should reach.
const LEAST_OF_PEAK: f64 = 0.3;
/// Time of a short transfer, and speed of a long one, that are suspicious on a GPU.
const LONG_TRIP_MS: f64 = 1.0;
const SLOW_READBACK_GB_S: f64 = 1.0;
/// Part of the sum of their speeds that several adapters should reach.
const LEAST_EFFICIENCY: f64 = 0.8;

/// Findings beside those of `doctor`.
pub fn findings(measured: &Measured) -> Vec<Finding> {
    let mut all = Vec::new();
    for checked in measured.checked.iter().filter(|checked| !checked.checked.wrong.is_empty()) {
        all.push(Finding {
            level: FindingLevel::Wrong,
            adapter: Some(checked.adapter),
            problem: format!("these kernels differ from their definitions: {}", checked.checked.wrong.join(", ")),
            advice: "don't train on it: leave it out by `--adapters`, install another version of the driver, and report this".into(),
        });
    }
    for adapter in measured.machine.adapters.iter().filter(|adapter| adapter.info.kind.is_gpu()) {
        let advice = |problem: String, advice: &str| Finding {
            level: FindingLevel::Advice,
            adapter: Some(adapter.info.index),
            problem,
            advice: advice.into(),
        };
        if let Some(link) = adapter.link {
            if link.round_trip_ms > LONG_TRIP_MS {
                let problem =
                    format!("a short transfer takes {:.2} ms, where 0.1 to 0.5 ms are usual", link.round_trip_ms);
                all.push(advice(problem, "look whether the card saves power, and whether another program uses it"));
            }
            // `doctor` tells it of cards.
            if link.readback_gb_s < SLOW_READBACK_GB_S && adapter.info.kind != Kind::DiscreteGpu {
                let problem = format!("values come back with only {:.2} GB/s", link.readback_gb_s);
                all.push(advice(problem, "install a newer driver; if it stays, please report this"));
            }
        }
        let kernels = measured.kernels.iter().find(|kernels| kernels.name == adapter.info.name);
        for product in kernels.into_iter().flat_map(slow_products) {
            let tile = product.tile.as_deref().unwrap_or("no");
            let problem = format!(
                "the product {} {} reaches only {} of the measured peak, with the tile `{tile}`",
                product.kernel,
                product.size,
                percent(product.of_peak)
            );
            all.push(advice(problem, "please hand this report in: it shows where a better tile is needed"));
        }
    }
    for curve in &measured.scaling {
        all.extend(of_scaling(curve));
    }
    if let Some(faults) = measured.faults.as_ref().filter(|faults| faults.largest_difference > TOLERANCE) {
        all.push(Finding {
            level: FindingLevel::Wrong,
            adapter: None,
            problem: format!("the loss changed by {:.1e} of itself when adapters were lost", faults.largest_difference),
            advice: "please report this: a lost adapter must not change what is computed".into(),
        });
    }
    all
}

/// The best tile of each product, where even that is slow. Small products can't fill a GPU.
fn slow_products(kernels: &AdapterKernels) -> Vec<&Timed> {
    best_tiles(kernels).into_iter().filter(|product| product.of_peak < LEAST_OF_PEAK && is_large(product)).collect()
}

/// Whether a product is large enough for any GPU: all sides are at least 1024.
fn is_large(product: &Timed) -> bool {
    product.size.split(" x ").all(|side| side.parse::<u32>().is_ok_and(|side| side >= 1024))
}

/// The fastest tile of each product.
pub fn best_tiles(kernels: &AdapterKernels) -> Vec<&Timed> {
    let mut best: Vec<&Timed> = Vec::new();
    for timed in kernels.kernels.iter().filter(|timed| timed.gflop_per_s.is_some()) {
        match best.iter_mut().find(|other| (&other.kernel, &other.size) == (&timed.kernel, &timed.size)) {
            Some(other) if other.ms > timed.ms => *other = timed,
            Some(_) => {}
            None => best.push(timed),
        }
    }
    best
}

fn of_scaling(curve: &ScalingCurve) -> Option<Finding> {
    let all = curve.weak.last().filter(|point| point.n_adapters > 1 && point.efficiency < LEAST_EFFICIENCY)?;
    Some(Finding {
        level: FindingLevel::Advice,
        adapter: None,
        problem: format!(
            "{} adapters train {} with {} of the sum of their speeds",
            all.n_adapters,
            curve.model,
            percent(all.efficiency)
        ),
        advice: "small models and slow links pay less: the steps' phases in the report show where the time goes".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::faults::Faults;
    use crate::bench::measured::CheckedAdapter;
    use crate::doctor::judge::tests::healthy;
    use manyhands_bench::kernels::Checked;
    use manyhands_bench::machine::Peaks;
    use manyhands_bench::scaling::ScalingPoint;

    fn timed(size: &str, tile: &str, ms: f64, of_peak: f64) -> Timed {
        let (kernel, tile) = ("dense.forward".into(), Some(tile.into()));
        Timed { kernel, size: size.into(), tile, ms, gflop_per_s: Some(1.0 / ms), gb_s: None, of_peak }
    }

    fn good() -> Measured {
        let machine = healthy();
        let peaks = Peaks { copy_gb_s: 300.0, copied_by: "a kernel", gflop_per_s: 1e4, computed_by: "chains" };
        let kernels = vec![
            timed("1024 x 1024 x 1024", "registers", 4.0, 0.1),
            timed("1024 x 1024 x 1024", "workgroup64", 1.0, 0.4),
            timed("256 x 1024 x 784", "registers", 1.0, 0.05),
        ];
        let kernels = vec![AdapterKernels { name: machine.adapters[0].info.name.clone(), peaks, kernels }];
        let checked = Checked { kernels: 3, of: 3, cases: 9, wrong: Vec::new() };
        let checked = vec![CheckedAdapter { adapter: 0, name: "GeForce".into(), checked }];
        let faults = Faults { steps: 24, lost: 3, largest_difference: 1e-6, longest_step_ms: 9.0, usual_step_ms: 3.0 };
        Measured {
            machine,
            findings: Vec::new(),
            checked,
            kernels,
            steps: Vec::new(),
            scaling: Vec::new(),
            faults: Some(faults),
            torch: None,
            left_out: Vec::new(),
            seconds: 60.0,
            minutes: 10.0,
        }
    }

    fn one(measured: &Measured) -> (FindingLevel, String) {
        let found = findings(measured);
        assert_eq!(found.len(), 1, "{found:?}");
        (found[0].level, found[0].problem.clone())
    }

    #[test]
    fn a_good_report_has_no_findings() {
        assert_eq!(findings(&good()), []);
    }

    #[test]
    fn the_best_tile_counts() {
        let mut measured = good();
        measured.kernels[0].kernels[1].of_peak = 0.2;
        let (level, problem) = one(&measured);
        assert!(
            level == FindingLevel::Advice && problem.contains("reaches only 20.0 % of the measured peak"),
            "{problem}"
        );
        assert!(problem.contains("`workgroup64`"), "{problem}");
    }

    #[test]
    fn slow_transfers_are_told() {
        let mut measured = good();
        measured.machine.adapters[0].link.as_mut().unwrap().round_trip_ms = 2.5;
        assert!(one(&measured).1.contains("a short transfer takes 2.50 ms"));
        let mut measured = good();
        measured.machine.adapters[0].info.kind = Kind::IntegratedGpu;
        measured.machine.adapters[0].link.as_mut().unwrap().readback_gb_s = 0.5;
        assert!(one(&measured).1.contains("with only 0.50 GB/s"));
    }

    #[test]
    fn wrong_results_are_wrong() {
        let mut measured = good();
        measured.checked[0].checked.wrong = vec!["adam.update".into()];
        let (level, problem) = one(&measured);
        assert!(level == FindingLevel::Wrong && problem.ends_with("adam.update"), "{problem}");
        let mut measured = good();
        measured.faults.as_mut().unwrap().largest_difference = 0.1;
        assert_eq!(one(&measured).0, FindingLevel::Wrong);
    }

    #[test]
    fn several_adapters_that_are_slow_together_are_told() {
        let mut measured = good();
        let point = |n_adapters, efficiency| ScalingPoint {
            n_adapters,
            batch_size: 64,
            shares: vec![32; n_adapters],
            step_ms: 1.0,
            quartiles_ms: [1.0; 2],
            samples_per_s: 64e3,
            ideal_samples_per_s: 64e3 / efficiency,
            efficiency,
        };
        let weak = vec![point(1, 1.0), point(2, 0.6)];
        let (strong, alone) = (weak.clone(), Vec::new());
        measured.scaling =
            vec![ScalingCurve { model: "cnn", about: "", parameters: 1, batch_size: 64, alone, strong, weak }];
        assert!(one(&measured).1.contains("2 adapters train cnn with 60.0 % of the sum"));
    }
}

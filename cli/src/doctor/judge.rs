//! Judges the facts: what is wrong, what could be better, and what to do about it. Asks nothing of the machine.

use manyhands::ErrorKind;
use manyhands::adapters::{Info, Kind};
use manyhands_engine::adapters::list::{Dxc, is_fxc};
use manyhands_engine::shown::bytes;
use serde::Serialize;

use super::facts::{ComparedStep, Examined, Failed, MachineFacts, StepOutcome};
use manyhands_engine::adapters::{UNFINISHED, WRONG_RESULTS};

/// Free memory below which training meets its limits.
const LITTLE_MEMORY: u64 = 1_000_000_000;
/// Transfers slower than this are far below any slot that a card is made for, in 10⁹ bytes a second.
const SLOW_LINK_GB_S: f64 = 1.0;
/// Seconds of the reset limit that Windows has by itself.
const USUAL_RESET_S: f64 = 2.0;
/// Remedy for a driver that computes nothing.
const IDLE_ADVICE: &str = "leave it out by `--adapters`; if it is DX12 under Wine, use Vulkan alone: set `WGPU_BACKEND=vulkan`; else \
                           install a newer driver";
/// Remedy for a driver with wrong results.
const WRONG_ADVICE: &str = "don't train on it: leave it out by `--adapters`, install another version of the driver, and report this with the \
                            output of `manyhands doctor --json`";
/// Names that are told of many.
const MOST_NAMES: usize = 4;

/// Weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingLevel {
    /// Training works, but could be faster or safer.
    Advice,
    /// Training does not work, or gives wrong results.
    Wrong,
}

/// A finding and its remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: FindingLevel,
    /// Index of the adapter; `None` for the machine.
    pub adapter: Option<usize>,
    pub problem: String,
    pub advice: String,
}

/// All findings about a machine.
pub fn judge(facts: &MachineFacts) -> Vec<Finding> {
    let mut findings: Vec<Finding> = facts.adapters.iter().flat_map(|adapter| of_adapter(adapter, facts.dxc)).collect();
    let machine = |problem: String, advice: &str| Finding {
        level: FindingLevel::Advice,
        adapter: None,
        problem,
        advice: advice.to_owned(),
    };
    if let Some(free) = facts.memory_free.filter(|free| *free < LITTLE_MEMORY) {
        findings.push(machine(
            format!("only {} of main memory are free", bytes(free)),
            "end other programs; smaller batches, or `--memory cpu=500MB`, keep a run within its limits",
        ));
    }
    for reset in &facts.resets {
        if let Some(seconds) = reset.seconds.filter(|seconds| *seconds < USUAL_RESET_S) {
            findings.push(machine(
                format!("the system resets a driver whose work takes {seconds} s (`{}`)", reset.name),
                "submissions take far less than 0.1 s, but other programs share the card: 2 s or more are safe; remove the \
                 setting and restart",
            ));
        }
    }
    if facts.gpus == 0 && facts.adapters.len() > 1 {
        findings.push(machine(
            "no GPU is found, only drivers that compute on the CPU".into(),
            "if there is a card, install its maker's driver with Vulkan (Windows: or DX12); in a container, pass the card on",
        ));
    }
    findings
}

/// The verdict on an adapter in a word.
pub fn verdict(index: usize, findings: &[Finding]) -> &'static str {
    let of_it = findings.iter().filter(|finding| finding.adapter == Some(index));
    match of_it.map(|finding| finding.level).max() {
        None => "good",
        Some(FindingLevel::Advice) => "works",
        Some(FindingLevel::Wrong) => "WRONG",
    }
}

fn of_adapter(adapter: &Examined, dxc: Dxc) -> Vec<Finding> {
    let finding = |level: FindingLevel, (problem, advice): (String, String)| Finding {
        level,
        adapter: Some(adapter.info.index),
        problem,
        advice,
    };
    let result = match &adapter.outcome {
        StepOutcome::Failed(failed) => Some(of_failure(adapter, failed)),
        StepOutcome::Trained(step) => of_step(step),
    };
    let mut findings: Vec<Finding> = result.into_iter().map(|it| finding(FindingLevel::Wrong, it)).collect();
    if !adapter.kernels.wrong.is_empty() && matches!(adapter.outcome, StepOutcome::Trained(_)) {
        let problem = format!("wrong results of {}: other tiles take their place", adapter.kernels.wrong.join(", "));
        findings.push(finding(FindingLevel::Advice, (problem, "install another version of the driver".into())));
    }
    if is_fxc(&adapter.info) {
        let problem =
            "DX12 has FXC here, the old shader compiler, which takes about three times as long to build shaders".into();
        findings.push(finding(FindingLevel::Advice, (problem, dxc.advice().into())));
    }
    let slowest = adapter.link.map_or(f64::INFINITY, |link| link.upload_gb_s.min(link.readback_gb_s));
    if adapter.info.kind == Kind::DiscreteGpu && slowest < SLOW_LINK_GB_S {
        let problem = format!("transfers reach only {slowest:.2} GB/s");
        let advice = "look whether the card sits in a slot of 16 lanes, without a riser cable, and whether it saves power; a \
                      learned split gives it fewer rows, `gradient_compression = \"fp16\"` sends half";
        findings.push(finding(FindingLevel::Advice, (problem, advice.into())));
    }
    findings
}

/// A step that was not done.
fn of_failure(adapter: &Examined, Failed { kind, text }: &Failed) -> (String, String) {
    let (text, help) = text.split_once("\n  help: ").unwrap_or((text, ""));
    let text = in_short(text, &adapter.info);
    let others = match adapter.info.backend.as_str() {
        "dx12" => "the card's Vulkan driver (under Wine set `WGPU_BACKEND=vulkan`)",
        _ => "a newer driver of the card's maker",
    };
    match kind {
        ErrorKind::OutOfMemory => (
            format!("it has too little memory for a small network: {text}"),
            "end other programs that use its memory, and raise limits that `--memory` or the settings set; else leave it out by \
             `--adapters`"
                .into(),
        ),
        ErrorKind::AdapterLost if text.contains(UNFINISHED) => {
            ("the driver computes nothing: it reports success, but a run did not come to its end".into(), IDLE_ADVICE.into())
        }
        ErrorKind::AdapterLost if text.contains(WRONG_RESULTS) => (
            format!("its results are wrong: {}", text.split(WRONG_RESULTS).nth(1).unwrap_or_default().trim()),
            WRONG_ADVICE.into(),
        ),
        ErrorKind::AdapterLost => (
            format!("the driver does not come to the end of a training step: {text}"),
            format!(
                "install {others}; look in the system's log for a reset of the driver; until then leave it out by `--adapters`"
            ),
        ),
        ErrorKind::Unsupported | ErrorKind::Adapter => (
            format!("it can't run the kernels: {text}"),
            format!("install {others}; until then leave it out by `--adapters`"),
        ),
        // The CPU's numbers are finite.
        ErrorKind::NonFinite => (
            format!("its results are wrong: {text}"),
            "don't train on it: leave it out by `--adapters`, install another version of the driver, and report this".into(),
        ),
        _ => (text, help.to_owned()),
    }
}

/// An error in a line: its beginning, without what the finding says itself, and the cause at its end.
fn in_short(text: &str, info: &Info) -> String {
    let is_blank = |sign: char| sign.is_whitespace() || sign.is_control();
    let mut lines = text.lines().map(|line| line.trim_matches(is_blank)).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let first = first.strip_prefix(&format!("adapter {} `{}` ", info.index, info.name)).unwrap_or(first);
    let known = ["can't run this model: ", "has too little memory for one row: "];
    let first = known.iter().find_map(|known| first.strip_prefix(known)).unwrap_or(first);
    match lines.next_back() {
        Some(last) => format!("{}: {last}", first.trim_end_matches(": Validation Error")),
        None => first.to_owned(),
    }
}

/// A step beside the CPU's.
fn of_step(step: &ComparedStep) -> Option<(String, String)> {
    if step.differences.is_empty() {
        return None;
    }
    if !step.has_changed && step.loss == 0.0 {
        return Some((
            "the driver computes nothing: it reports success, but no value has changed".into(),
            IDLE_ADVICE.into(),
        ));
    }
    let mut names: Vec<String> = step.differences.iter().take(MOST_NAMES).map(|it| format!("`{}`", it.name)).collect();
    if step.differences.len() > MOST_NAMES {
        names.push(format!("{} more", step.differences.len() - MOST_NAMES));
    }
    let largest = step.differences.iter().map(|it| it.part).fold(0.0, f64::max);
    let kernels = match &step.wrong_kernels[..] {
        [] => String::new(),
        kernels => format!("; wrong kernels: {}", kernels.join(", ")),
    };
    Some((
        format!(
            "its results are wrong: a training step differs from the CPU's in {} by up to {} of the largest value (loss {:.4}, on \
             the CPU {:.4}){kernels}",
            names.join(", "),
            part(largest),
            step.loss,
            step.expected_loss
        ),
        WRONG_ADVICE.into(),
    ))
}

fn part(part: f64) -> String {
    if part < 10.0 { format!("{:.1} %", 100.0 * part) } else { "many times".into() }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::doctor::facts::{Difference, KernelVerdicts, LinkSpeed, Reset};

    /// A machine on which all is well.
    pub fn healthy() -> MachineFacts {
        let info = Info { name: "GeForce".into(), kind: Kind::DiscreteGpu, backend: "vulkan".into(), ..Info::cpu() };
        let card = Examined {
            info,
            memory: Some(8 << 30),
            link: Some(LinkSpeed { upload_gb_s: 9.0, readback_gb_s: 8.0, round_trip_ms: 0.2 }),
            kernels: KernelVerdicts { right: 57, ..KernelVerdicts::default() },
            outcome: StepOutcome::Trained(ComparedStep {
                has_changed: true,
                loss: 1.6,
                expected_loss: 1.6,
                ..ComparedStep::default()
            }),
        };
        let cpu = Examined { info: Info { index: 1, ..Info::cpu() }, link: None, ..card.clone() };
        MachineFacts {
            version: "0",
            system: "linux x86_64".into(),
            threads: 8,
            memory: Some(32 << 30),
            memory_free: Some(16 << 30),
            resets: vec![Reset { name: "TdrDelay".into(), seconds: Some(2.0) }],
            dxc: Dxc::Missing,
            gpus: 1,
            adapters: vec![card, cpu],
        }
    }

    fn one(facts: &MachineFacts) -> Finding {
        let findings = judge(facts);
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings[0].clone()
    }

    #[test]
    fn a_good_machine_has_no_findings() {
        assert_eq!(judge(&healthy()), []);
        assert_eq!(verdict(0, &[]), "good");
    }

    #[test]
    fn the_old_compiler_without_the_new_one_is_told() {
        let mut facts = healthy();
        facts.adapters[0].info.backend = "dx12".into();
        facts.adapters[0].info.driver = "31.0.15 FXC".into();
        let found = one(&facts);
        assert_eq!((found.level, found.adapter), (FindingLevel::Advice, Some(0)));
        assert!(found.problem.contains("FXC") && found.advice.contains("dxcompiler.dll"), "{found:?}");
        assert_eq!(verdict(0, &[found]), "works");
        facts.adapters[0].info.driver = "31.0.15 DXC".into();
        assert_eq!(judge(&facts), []);
    }

    #[test]
    fn failures_have_the_advice_that_fits() {
        let failed = |backend: &str, kind: ErrorKind| {
            let mut facts = healthy();
            facts.adapters[0].info.backend = backend.into();
            facts.adapters[0].outcome = StepOutcome::Failed(Failed { kind, text: "it said so\n  help: x".into() });
            let found = one(&facts);
            assert!(found.level == FindingLevel::Wrong && found.problem.ends_with(": it said so"), "{found:?}");
            (found.problem, found.advice)
        };
        let (problem, advice) = failed("vulkan", ErrorKind::OutOfMemory);
        assert!(problem.contains("too little memory") && advice.contains("--memory"), "{problem} {advice}");
        let (problem, advice) = failed("dx12", ErrorKind::AdapterLost);
        assert!(problem.contains("does not come to the end") && advice.contains("Vulkan driver"), "{problem} {advice}");
        let (problem, advice) = failed("vulkan", ErrorKind::Unsupported);
        assert!(problem.contains("can't run the kernels") && advice.contains("newer driver"), "{problem} {advice}");
        let (problem, advice) = failed("vulkan", ErrorKind::NonFinite);
        assert!(problem.contains("results are wrong") && advice.contains("don't train on it"), "{problem} {advice}");
    }

    /// DX12 of Wine 8.0 on Debian 12, as `doctor --json` told it there, with an error's text.
    fn wine(kind: ErrorKind, text: &str) -> MachineFacts {
        let mut facts = healthy();
        facts.system = "windows x86_64".into();
        let info = Info {
            name: "NVIDIA GeForce GTX 470".into(),
            kind: Kind::IntegratedGpu,
            backend: "dx12".into(),
            driver: "8.21.13.9135 FXC".into(),
            vendor: 4318,
            device: 1741,
            ..Info::cpu()
        };
        let outcome = StepOutcome::Failed(Failed { kind, text: text.into() });
        facts.adapters = vec![Examined { info, memory: None, link: None, kernels: KernelVerdicts::default(), outcome }];
        facts
    }

    /// With FXC 10.0.22621 each kernel compiles, each run succeeds, and nothing is computed.
    #[test]
    fn dx12_of_wine_computes_nothing() {
        let text = "all adapters were lost: adapter 0 `NVIDIA GeForce GTX 470` was lost (the device did not run to the end), and none \
                    is left to continue on\n  help: resume from the last checkpoint; allow the CPU adapter to take over, or name it \
                    beside the others";
        let mut facts = wine(ErrorKind::AdapterLost, text);
        let findings = judge(&facts);
        assert!(findings[0].problem.starts_with("the driver computes nothing"), "{findings:?}");
        assert!(findings[0].advice.contains("WGPU_BACKEND=vulkan"), "{findings:?}");
        assert!(findings[1].advice.starts_with("lay Microsoft's `dxcompiler.dll`"), "{findings:?}");
        assert_eq!((findings.len(), verdict(0, &findings)), (2, "WRONG"));
        // With a `dxcompiler.dll` of version 1.9 beside the program: Wine's driver has no shader model 6.
        facts.dxc = Dxc::Unused;
        let findings = judge(&facts);
        assert!(findings[1].advice.starts_with("install a newer driver of the card"), "{findings:?}");
    }

    /// Wine's own FXC knows no kernels; that of Windows 8 no registers of today's.
    #[test]
    fn the_cause_of_a_kernel_that_does_not_compile_is_told_in_a_line() {
        for cause in [
            "FXC D3DCompile error (Not implemented. (0x80004001))\n",
            "FXC D3DCompile error (0x8876086C): error X3506: unrecognized compiler target 'cs_5_1'\n\0",
        ] {
            let text = format!(
                "adapter 0 `NVIDIA GeForce GTX 470` can't run this model: kernel `conv2d.forward` can't be built: Validation \
                 Error\n\nCaused by:\n  In Device::create_compute_pipeline, label = 'conv2d.forward'\n    Internal error: \
                 {cause}\n  help: choose other adapters"
            );
            let found = judge(&wine(ErrorKind::Unsupported, &text)).remove(0);
            let cause = cause.trim_end_matches(['\n', '\0']);
            assert_eq!(
                found.problem,
                format!("it can't run the kernels: kernel `conv2d.forward` can't be built: Internal error: {cause}")
            );
            assert!(found.advice.contains("Vulkan driver (under Wine set `WGPU_BACKEND=vulkan`)"), "{found:?}");
        }
    }

    #[test]
    fn wrong_results_are_told_with_layers_and_kernels() {
        let mut facts = healthy();
        let differences = ["conv/kernel", "a", "b", "c", "d"].map(|name| Difference { name: name.into(), part: 0.25 });
        facts.adapters[0].outcome = StepOutcome::Trained(ComparedStep {
            has_changed: true,
            loss: 1.2,
            expected_loss: 1.6,
            differences: differences.into(),
            wrong_kernels: vec!["conv2d.forward".into()],
            ..ComparedStep::default()
        });
        let found = one(&facts);
        for part in ["`conv/kernel`, `a`, `b`, `c`, 1 more by up to 25.0 %", "wrong kernels: conv2d.forward"] {
            assert!(found.problem.contains(part), "{found:?}");
        }
        assert!(found.level == FindingLevel::Wrong && found.advice.contains("don't train on it"));
        assert_eq!(verdict(0, &[found]), "WRONG");
    }

    #[test]
    fn a_kernel_that_the_driver_compiles_wrong_is_told() {
        let mut facts = healthy();
        let text = format!(
            "adapter 0 `GeForce` was lost: {WRONG_RESULTS} its driver `1.2` computes dense.forward, 4: y[0] is 0\n  help: x"
        );
        facts.adapters[0].outcome = StepOutcome::Failed(Failed { kind: ErrorKind::AdapterLost, text });
        let found = one(&facts);
        assert_eq!(found.problem, "its results are wrong: its driver `1.2` computes dense.forward, 4: y[0] is 0");
        assert!(found.level == FindingLevel::Wrong && found.advice.contains("don't train on it"), "{found:?}");
        let mut facts = healthy();
        facts.adapters[0].kernels.wrong = vec!["dense.forward workgroup64".into()];
        let found = one(&facts);
        assert!(
            found.level == FindingLevel::Advice && found.problem.contains("dense.forward workgroup64"),
            "{found:?}"
        );
    }

    #[test]
    fn the_machine_is_judged_too() {
        let mut facts = healthy();
        facts.memory_free = Some(300 << 20);
        assert!(one(&facts).problem.contains("of main memory are free"));
        let mut facts = healthy();
        facts.resets[0].seconds = Some(0.5);
        assert!(one(&facts).problem.contains("resets a driver whose work takes 0.5 s (`TdrDelay`)"));
        let mut facts = healthy();
        facts.adapters[0].info.kind = Kind::Software;
        assert_eq!(judge(&facts), [], "there is one that was not to be tried");
        facts.gpus = 0;
        assert!(one(&facts).problem.contains("no GPU is found"));
        let mut facts = healthy();
        facts.adapters[0].link = Some(LinkSpeed { upload_gb_s: 0.4, readback_gb_s: 0.3, round_trip_ms: 0.2 });
        let found = one(&facts);
        assert!(found.problem.contains("only 0.30 GB/s") && found.advice.contains("slot"), "{found:?}");
    }
}

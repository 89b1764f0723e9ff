//! Finds the causes of a slow run, and their remedies.

use crate::data::LoaderSettings;
use crate::scheduler::split::SplitMode;
use crate::scheduler::timeline::TimeSummary;
use crate::table::percent;

/// Fewest steps for advice.
const FEW_STEPS: u64 = 10;
/// Fewest milliseconds for advice: a shorter run is mostly start-up.
const SHORT_MS: f64 = 1000.0;
/// Part of the time above which waiting for data is starvation.
const STARVING: f64 = 0.1;
/// Part of the others' time above which an adapter that they wait for is named; more where the split is learned, since
/// waiting for the slowest can't be avoided altogether.
const HOLDING_UP: f64 = 0.1;
const HOLDING_UP_LEARNED: f64 = 0.25;
/// Part of the time above which the host's own work is named.
const HOST_BOUND: f64 = 0.3;

pub(super) fn advice(summary: &TimeSummary, loader: &LoaderSettings, split: &SplitMode) -> Vec<String> {
    if summary.steps < FEW_STEPS {
        return Vec::new();
    }
    [starvation(summary, loader), slowest(summary, split), host(summary)].into_iter().flatten().collect()
}

fn starvation(summary: &TimeSummary, loader: &LoaderSettings) -> Option<String> {
    let part = summary.part(summary.host.data_ms);
    if part <= STARVING || summary.ms < SHORT_MS {
        return None;
    }
    let LoaderSettings { workers, prefetch, .. } = loader;
    let help = if *workers == 0 {
        "batches are read between the steps; with `workers = 2` threads read them ahead".into()
    } else if prefetch <= workers {
        format!("raise `prefetch` from {prefetch} to {}, so that no worker waits for a step to end", 2 * workers + 2)
    } else {
        format!(
            "the source is slow: use more `workers` (now {workers}), a faster format, images that were decoded and \
             scaled beforehand, or cheaper augmentation"
        )
    };
    Some(format!("data starvation: waiting for data took {} of the time\n  help: {help}", percent(part)))
}

/// The adapter that others waited for most.
fn slowest(summary: &TimeSummary, split: &SplitMode) -> Option<String> {
    let with_rows = summary.adapters.iter().filter(|adapter| adapter.rows > 0).count();
    let others = f64::from(u32::try_from(with_rows.saturating_sub(1)).unwrap_or(u32::MAX));
    let adapters = summary.adapters.iter().enumerate();
    let (idx, adapter) = adapters.max_by(|a, b| a.1.held_up_ms.total_cmp(&b.1.held_up_ms))?;
    let part = summary.part(adapter.held_up_ms / others.max(1.0));
    let (limit, help) = match split {
        SplitMode::Learned => {
            (HOLDING_UP_LEARNED, "larger batches let its fixed cost matter less; or leave it out of `adapters`")
        }
        SplitMode::Even | SplitMode::Fixed(_) | SplitMode::Recorded(_) => {
            (HOLDING_UP, "the learned split gives each adapter rows by its speed, so that all finish together")
        }
    };
    (part > limit).then(|| {
        let name = &adapter.name;
        let part = percent(part);
        format!("adapter {idx} `{name}` made the others wait for {part} of the time\n  help: {help}")
    })
}

fn host(summary: &TimeSummary) -> Option<String> {
    let host = &summary.host;
    let part = summary.part(host.reduce_ms + host.update_ms + host.broadcast_ms);
    (part > HOST_BOUND).then(|| {
        format!(
            "adding gradients, updating and broadcasting weights took {} of the time\n  \
             help: use larger batches, so that there are fewer updates, or fewer adapters",
            percent(part)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::timeline::{AdapterTime, HostTime};

    fn summary(host: HostTime, held_up_ms: [f64; 3]) -> TimeSummary {
        let adapter = |held_up_ms| AdapterTime { name: "a".into(), rows: 1, held_up_ms, ..AdapterTime::default() };
        let adapters = held_up_ms.map(adapter).to_vec();
        TimeSummary { ms: 1000.0, steps: 10, rows: 100, host, adapters, advice: Vec::new() }
    }

    #[test]
    fn starvation_is_named_with_the_setting_to_change() {
        let starved = summary(HostTime { data_ms: 400.0, ..HostTime::default() }, [0.0; 3]);
        let text = |workers, prefetch| {
            let loader = LoaderSettings { workers, prefetch, ..LoaderSettings::default() };
            advice(&starved, &loader, &SplitMode::Learned).join("\n")
        };
        assert!(text(0, 4).contains("data starvation: waiting for data took 40 % of the time"), "{}", text(0, 4));
        assert!(text(0, 4).contains("`workers = 2`"), "{}", text(0, 4));
        assert!(text(4, 2).contains("raise `prefetch` from 2 to 10"), "{}", text(4, 2));
        assert!(text(1, 4).contains("the source is slow: use more `workers` (now 1)"), "{}", text(1, 4));
        let short = TimeSummary { ms: 999.0, ..starved.clone() };
        assert_eq!(advice(&short, &LoaderSettings::default(), &SplitMode::Learned), Vec::<String>::new());
        let fed = summary(HostTime { data_ms: 99.0, ..HostTime::default() }, [0.0; 3]);
        assert_eq!(advice(&fed, &LoaderSettings::default(), &SplitMode::Learned), Vec::<String>::new());
    }

    #[test]
    fn the_adapter_that_others_wait_for_is_named() {
        // Two others waited 150 ms each.
        let uneven = summary(HostTime::default(), [0.0, 300.0, 2.0]);
        let text = |split| advice(&uneven, &LoaderSettings::default(), &split).join("\n");
        let even = text(SplitMode::Even);
        assert!(even.contains("adapter 1 `a` made the others wait for 15 % of the time"), "{even}");
        assert!(even.contains("learned split"), "{even}");
        assert_eq!(text(SplitMode::Learned), "");
    }

    #[test]
    fn work_on_the_host_is_named() {
        let busy = HostTime { reduce_ms: 200.0, update_ms: 100.0, broadcast_ms: 50.0, ..HostTime::default() };
        let text = advice(&summary(busy, [0.0; 3]), &LoaderSettings::default(), &SplitMode::Learned).join("\n");
        assert!(text.contains("took 35 % of the time") && text.contains("larger batches"), "{text}");
    }
}

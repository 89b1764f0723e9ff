//! A timeline as a trace that Perfetto and `chrome://tracing` open.
//!
//! Source: the Trace Event Format, <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>:
//! "X" events, complete with their duration, and "M" events, which name process and threads.

use std::fmt::Write as _;
use std::path::Path;

use super::{Lane, Span, Timeline};
use crate::error::Result;
use crate::files::{self, FileKind};
use crate::shown;

/// The one process of a trace. The host is its main thread, which has the same number: Perfetto takes 0 for no thread,
/// and lays its spans over another's. The adapters are the threads after it.
const PROCESS: usize = 1;
/// A span that ends this much after the start of the next is cut there: clocks are read at slightly different times.
const TOLERANCE_NS: u64 = 1_000;

/// A span in nanoseconds since the start.
struct Event<'a> {
    span: &'a Span,
    start_ns: u64,
    end_ns: u64,
}

impl Timeline {
    /// The kept spans as a Chrome trace (JSON). Open it at <https://ui.perfetto.dev>: nothing is sent anywhere.
    ///
    /// One track for the host and one for each adapter. Times are in microseconds since the start; `step` counts from
    /// 1, as in logs; `stage` counts from 0, as in a placement: where an adapter's track is empty, it waits.
    pub fn to_trace(&self) -> String {
        let mut text = String::from("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
        push_name(&mut text, "process_name", PROCESS, "manyhands");
        push_name(&mut text, "thread_name", PROCESS, "host");
        for (adapter_idx, name) in self.names.iter().enumerate() {
            push_name(&mut text, "thread_name", thread_of(adapter_idx), &format!("adapter {adapter_idx} {name}"));
        }
        for lane in std::iter::once(Lane::Host).chain((0..self.names.len()).map(Lane::Adapter)) {
            self.lane(lane).iter().for_each(|event| push_event(&mut text, event));
        }
        text.truncate(text.len() - ",\n".len());
        text.push_str("\n]}\n");
        text
    }

    /// Writes [`to_trace`](Self::to_trace) to a file.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn write_trace(&self, path: &Path) -> Result<()> {
        if self.n_dropped > 0 {
            log::warn!(
                "`{}` holds the last {} spans: {} before them were not kept",
                shown(path),
                self.spans.len(),
                self.n_dropped
            );
        }
        files::write(path, FileKind::Trace, |out| out.write_all(self.to_trace().as_bytes()))
    }

    /// Spans of one track, sorted and clipped so that they nest; Perfetto rejects overlapping spans.
    fn lane(&self, lane: Lane) -> Vec<Event<'_>> {
        let nanoseconds = |ms: f64| nanoseconds(ms - self.begin_ms);
        let spans = self.spans().filter(|span| span.lane == lane);
        let mut events: Vec<Event<'_>> = spans
            .map(|span| Event { span, start_ns: nanoseconds(span.start_ms), end_ns: nanoseconds(span.end_ms()) })
            .collect();
        events.sort_by_key(|event| (event.start_ns, std::cmp::Reverse(event.end_ns)));
        let mut open: Vec<usize> = Vec::new();
        for idx in 0..events.len() {
            let Event { start_ns, end_ns, .. } = events[idx];
            while let Some(outer) = open.last().copied().filter(|outer| events[*outer].end_ns < end_ns) {
                // The enclosing span ends first, so it must end before this one begins.
                if events[outer].end_ns > start_ns.saturating_add(TOLERANCE_NS) {
                    break;
                }
                events[outer].end_ns = events[outer].end_ns.min(start_ns);
                open.pop();
            }
            while open.last().is_some_and(|outer| events[*outer].end_ns <= start_ns) {
                open.pop();
            }
            if let Some(outer) = open.last() {
                events[idx].end_ns = end_ns.min(events[*outer].end_ns);
            }
            open.push(idx);
        }
        events
    }
}

fn thread_of(adapter_idx: usize) -> usize {
    PROCESS + 1 + adapter_idx
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; 584 years fit")]
fn nanoseconds(ms: f64) -> u64 {
    (ms.max(0.0) * 1e6).round() as u64
}

fn push_name(text: &mut String, what: &str, thread: usize, name: &str) {
    let name = serde_json::Value::from(name);
    push(text, format_args!(r#"{{"ph":"M","name":"{what}","pid":{PROCESS},"tid":{thread},"args":{{"name":{name}}}}}"#));
    if what == "thread_name" {
        let order = format_args!(
            r#"{{"ph":"M","name":"thread_sort_index","pid":{PROCESS},"tid":{thread},"args":{{"sort_index":{thread}}}}}"#
        );
        push(text, order);
    }
}

fn push_event(text: &mut String, event: &Event<'_>) {
    let Event { span, start_ns, end_ns } = event;
    let (kind, thread) = match span.lane {
        Lane::Host => ("host", PROCESS),
        Lane::Adapter(adapter_idx) => ("adapter", thread_of(adapter_idx)),
    };
    let step = span.step.map_or_else(String::new, |step| format!(r#""step":{},"#, step + 1));
    let stage = span.task.map_or_else(String::new, |task| format!(r#""stage":{},"#, task.stage));
    let name = span.what.name();
    let line = format_args!(
        r#"{{"ph":"X","name":"{name}","cat":"{kind}","pid":{PROCESS},"tid":{thread},"ts":{},"dur":{},"args":{{{step}{stage}"rows":{}}}}}"#,
        Microseconds(*start_ns),
        Microseconds(end_ns.saturating_sub(*start_ns)),
        span.rows
    );
    push(text, line);
}

fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string can't fail.
    writeln!(text, "{line},").unwrap_or_default();
}

/// Nanoseconds, written as microseconds to all digits.
struct Microseconds(u64);

impl std::fmt::Display for Microseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Activity, Lane, Span, Timeline, Tracing};

    /// Start and end in nanoseconds of the spans that a lane gives.
    fn lane(spans: &[(Activity, f64, f64)]) -> Vec<(&'static str, u64, u64)> {
        let mut timeline = Timeline::default();
        timeline.start(0.0, Tracing::On);
        for (what, start_ms, end_ms) in spans {
            let ms = end_ms - start_ms;
            timeline.record(Span {
                lane: Lane::Host,
                what: *what,
                start_ms: *start_ms,
                ms,
                step: None,
                task: None,
                rows: 0,
            });
        }
        timeline.lane(Lane::Host).iter().map(|event| (event.span.what.name(), event.start_ns, event.end_ns)).collect()
    }

    #[test]
    fn outer_spans_come_first() {
        let spans = lane(&[(Activity::Reduce, 1.0, 2.0), (Activity::Update, 2.0, 4.0), (Activity::Step, 1.0, 4.0)]);
        let wanted =
            [("step", 1_000_000, 4_000_000), ("reduce", 1_000_000, 2_000_000), ("update", 2_000_000, 4_000_000)];
        assert_eq!(spans, wanted);
    }

    #[test]
    fn neighbours_that_touch_are_cut_apart() {
        let spans = lane(&[(Activity::Reduce, 1.0, 2.000_000_9), (Activity::Update, 2.0, 4.0)]);
        assert_eq!(spans, [("reduce", 1_000_000, 2_000_000), ("update", 2_000_000, 4_000_000)]);
    }

    #[test]
    fn a_span_ends_with_the_one_around_it() {
        let spans = lane(&[(Activity::Step, 1.0, 4.0), (Activity::Update, 2.0, 4.5), (Activity::Save, 5.0, 6.0)]);
        assert_eq!(
            spans,
            [("step", 1_000_000, 4_000_000), ("update", 2_000_000, 4_000_000), ("save", 5_000_000, 6_000_000)]
        );
    }
}

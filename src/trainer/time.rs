//! The trainer's part of the timeline.

use super::advice::advice;
use super::{Fit, Trainer};
use crate::data::LoaderSettings;
use crate::error::Result;
use crate::scheduler::timeline::{Activity, Lane, Span, TimeSummary, Tracing};

impl Trainer {
    pub(super) fn start_timeline(&mut self, fit: &Fit) -> Result<()> {
        let tracing = if fit.trace.is_some() { Tracing::On } else { Tracing::Off };
        let now_ms = self.runtime.now_ms();
        self.opened()?.timeline_mut().start(now_ms, tracing);
        Ok(())
    }

    /// Records the host's work since `start_ms`, and gives the present time.
    pub(super) fn record(&mut self, what: Activity, start_ms: f64) -> f64 {
        match &mut self.scheduler {
            Some(opened) => opened.scheduler.record(what, start_ms, None, 0),
            None => self.runtime.now_ms(),
        }
    }

    /// Records a time in the trace alone: in the summary it is part of something else.
    pub(super) fn trace(&mut self, what: Activity, start_ms: f64) {
        let ms = self.runtime.now_ms() - start_ms;
        if let Some(opened) = &mut self.scheduler {
            opened.scheduler.timeline_mut().trace(Span { lane: Lane::Host, what, start_ms, ms, step: None, rows: 0 });
        }
    }

    pub(super) fn write_trace(&self, fit: &Fit) -> Result<()> {
        match (&fit.trace, &self.scheduler) {
            (Some(path), Some(opened)) => opened.scheduler.timeline().write_trace(path),
            _ => Ok(()),
        }
    }

    pub(super) fn time_summary(&mut self, loader: &LoaderSettings) -> Result<TimeSummary> {
        let (now_ms, split) = (self.runtime.now_ms(), self.split.clone());
        let summary = self.opened()?.timeline().summary(now_ms);
        Ok(TimeSummary { advice: advice(&summary, loader, &split), ..summary })
    }
}

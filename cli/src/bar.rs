//! The progress bar of a run: one line of stderr, which is cleared while other lines are written.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use unicode_width::UnicodeWidthChar;

use manyhands_engine::runtime::{self, Runtime};

/// Milliseconds between two drawings.
const PAUSE_MS: f64 = 50.0;
/// Milliseconds after which a speed counts half for the time that is left.
const HALF_LIFE_MS: f64 = 15e3;

/// The place of the bar, which several parts of the command write above.
#[derive(Clone, Default)]
pub struct Bars(Arc<Mutex<Option<BarLine>>>);

/// A bar, until this is dropped.
pub struct Bar(Bars);

struct BarLine {
    runtime: Arc<dyn Runtime>,
    columns: usize,
    prefix: String,
    message: String,
    len: u64,
    position: u64,
    /// Milliseconds of a step, lately.
    step_ms: Option<f64>,
    /// Time at which the position was set.
    set_ms: f64,
    /// Time of the last drawing.
    drawn_ms: f64,
    /// Columns that are drawn on.
    drawn: usize,
}

impl Bars {
    /// Begins a bar of `len` steps, `position` of which are done, on a terminal of so many columns.
    pub fn begin(&self, len: u64, position: u64, columns: usize) -> Bar {
        let runtime = runtime::system();
        let now_ms = runtime.now_ms();
        let (prefix, message) = (String::new(), String::new());
        let line = BarLine {
            runtime,
            columns,
            prefix,
            message,
            len,
            position,
            step_ms: None,
            set_ms: now_ms,
            drawn_ms: f64::NEG_INFINITY,
            drawn: 0,
        };
        *self.line() = Some(line);
        Bar(self.clone())
    }

    /// Writes lines above the bar.
    pub fn suspend<R>(&self, write: impl FnOnce() -> R) -> R {
        let mut line = self.line();
        if let Some(line) = &mut *line {
            line.clear();
        }
        let written = write();
        if let Some(line) = &mut *line {
            line.draw();
        }
        written
    }

    fn line(&self) -> MutexGuard<'_, Option<BarLine>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bar {
    /// Shows that so many steps are done, between two texts.
    pub fn show(&self, prefix: String, position: u64, message: String) {
        if let Some(line) = &mut *self.0.line() {
            let now_ms = line.runtime.now_ms();
            line.step_ms = smoothed(line.step_ms, now_ms - line.set_ms, position.saturating_sub(line.position));
            (line.prefix, line.message, line.position, line.set_ms) = (prefix, message, position, now_ms);
            if now_ms >= line.drawn_ms + PAUSE_MS {
                line.draw();
            }
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(mut line) = self.0.line().take() {
            line.clear();
        }
    }
}

impl BarLine {
    fn draw(&mut self) {
        let left_ms = self.step_ms.map(|step_ms| step_ms * decimal(self.len.saturating_sub(self.position)));
        let text = text(self.columns, &self.prefix, (self.position, self.len), left_ms, &self.message);
        let width = width(&text);
        let rest = self.drawn.saturating_sub(width);
        put(&format!("\r{text}{:rest$}", ""));
        (self.drawn, self.drawn_ms) = (width.max(self.drawn), self.runtime.now_ms());
    }

    fn clear(&mut self) {
        if self.drawn > 0 {
            put(&format!("\r{:1$}\r", "", self.drawn));
        }
        self.drawn = 0;
    }
}

/// Errors of stderr itself can't be reported.
fn put(text: &str) {
    let mut stderr = io::stderr().lock();
    drop(stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()));
}

/// The line, in one column less than the terminal has: so no terminal begins another.
fn text(columns: usize, prefix: &str, (position, len): (u64, u64), left_ms: Option<f64>, message: &str) -> String {
    let left = left_ms.map_or("?".into(), short);
    let head = match columns {
        110.. => format!("{prefix} {} {position}/{len} steps, {left} left · ", filled(24, position, len)),
        70.. => format!("{prefix} {} {position}/{len}, {left} left · ", filled(8, position, len)),
        _ => format!("{prefix} {position}/{len} · "),
    };
    let mut room = columns.saturating_sub(1);
    let fits = |letter: &char| {
        let width = letter.width().unwrap_or(0);
        let fits = width <= room;
        room = room.saturating_sub(width);
        fits
    };
    head.chars().chain(message.chars()).take_while(fits).collect()
}

fn filled(cells: u64, position: u64, len: u64) -> String {
    let done = (position.min(len) * cells).checked_div(len).unwrap_or(cells);
    (0..cells).map(|cell| if cell < done { '█' } else { '░' }).collect()
}

fn width(text: &str) -> usize {
    text.chars().map(|letter| letter.width().unwrap_or(0)).sum()
}

/// A time by its largest unit.
fn short(ms: f64) -> String {
    match ms / 1e3 {
        seconds if seconds < 90.0 => format!("{seconds:.0}s"),
        seconds if seconds < 90.0 * 60.0 => format!("{:.0}m", seconds / 60.0),
        seconds if seconds < 36.0 * 3600.0 => format!("{:.0}h", seconds / 3600.0),
        seconds => format!("{:.0}d", seconds / 86400.0),
    }
}

/// Milliseconds of a step, when some more took so long: old ones count less.
fn smoothed(before: Option<f64>, ms: f64, steps: u64) -> Option<f64> {
    if steps == 0 {
        return before;
    }
    let step_ms = ms / decimal(steps);
    let kept = 0.5_f64.powf(ms / HALF_LIFE_MS);
    Some(before.map_or(step_ms, |before| kept * before + (1.0 - kept) * step_ms))
}

#[allow(clippy::cast_precision_loss, reason = "shown with few digits")]
fn decimal(steps: u64) -> f64 {
    steps as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_fits_the_terminal_whatever_it_says() {
        let line = |columns, message: &str| text(columns, "epoch 1/3", (30, 120), Some(125e3), message);
        let bar = "██████░░░░░░░░░░░░░░░░░░";
        assert_eq!(line(120, "loss 0.5"), format!("epoch 1/3 {bar} 30/120 steps, 2m left · loss 0.5"));
        assert_eq!(line(80, "loss 0.5"), "epoch 1/3 ██░░░░░░ 30/120, 2m left · loss 0.5");
        assert_eq!(line(24, "loss 0.5"), "epoch 1/3 30/120 · loss");
        assert_eq!(line(24, "損失です"), "epoch 1/3 30/120 · 損失");
        assert_eq!(line(0, "loss"), "");
    }

    #[test]
    fn times_that_are_left_follow_the_speed() {
        assert_eq!([0.0, 89e3, 91e3, 5.4e6, 2e8].map(short), ["0s", "89s", "2m", "2h", "2d"]);
        let mut step_ms = smoothed(None, 1000.0, 1);
        assert_eq!((step_ms, smoothed(step_ms, 5.0, 0)), (Some(1000.0), Some(1000.0)));
        for _ in 0..300 {
            step_ms = smoothed(step_ms, 500.0, 5);
        }
        assert!((step_ms.unwrap() - 100.0).abs() < 1.0, "{step_ms:?}");
    }
}

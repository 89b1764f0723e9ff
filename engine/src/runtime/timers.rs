//! Timers of the native runtime: one thread wakes all waiters.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Resolves after some milliseconds; never, if they are more than a clock can count.
pub(super) fn sleep(ms: f64) -> Sleep {
    let duration = Duration::try_from_secs_f64(ms.max(0.0) / 1e3).ok();
    Sleep { end: duration.and_then(|duration| now().checked_add(duration)), place: None }
}

#[allow(clippy::disallowed_methods, reason = "this is the native clock")]
fn now() -> Instant {
    Instant::now()
}

pub(super) struct Sleep {
    end: Option<Instant>,
    /// Its position in the queue, once it waits.
    place: Option<WakeTime>,
}

/// Time of waking, and a unique number.
type WakeTime = (Instant, u64);

struct Timers {
    waiting: Mutex<Waiting>,
    /// Another is to be woken before the thread looks again.
    changed: Condvar,
}

struct Waiting {
    wakers: BTreeMap<WakeTime, Waker>,
    next: u64,
    /// Time when the thread looks again by itself. Most waits end long before their limit: the thread is left alone for those that come
    /// after them, and finds at its time that there is nothing to do yet.
    look: Option<Instant>,
}

static TIMERS: Timers =
    Timers { waiting: Mutex::new(Waiting { wakers: BTreeMap::new(), next: 0, look: None }), changed: Condvar::new() };

impl Timers {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread, if it does not run yet. False if the system gives none.
    #[allow(clippy::disallowed_methods, reason = "this is a native thread")]
    fn start(&'static self) -> bool {
        static STARTED: OnceLock<bool> = OnceLock::new();
        *STARTED.get_or_init(|| {
            let started = std::thread::Builder::new().name("timers".into()).spawn(|| self.wake());
            started.map_err(|error| log::warn!("the system gives no thread for timers: {error}")).is_ok()
        })
    }

    fn wake(&self) -> ! {
        let mut waiting = self.lock();
        loop {
            let now = now();
            let later = waiting.wakers.split_off(&(now, u64::MAX));
            let due = std::mem::replace(&mut waiting.wakers, later);
            if !due.is_empty() {
                drop(waiting);
                due.into_values().for_each(Waker::wake);
                waiting = self.lock();
                continue;
            }
            waiting.look = waiting.wakers.first_key_value().map(|((end, _), _)| *end);
            waiting = match waiting.look.map(|end| end.saturating_duration_since(now)) {
                Some(rest) => self.changed.wait_timeout(waiting, rest).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(end) = self.end else { return Poll::Pending };
        if now() >= end {
            return Poll::Ready(());
        }
        if !TIMERS.start() {
            return look_again(context);
        }
        let mut waiting = TIMERS.lock();
        let place = *self.place.get_or_insert_with(|| {
            waiting.next += 1;
            (end, waiting.next)
        });
        let is_too_late = waiting.look.is_none_or(|look| end < look);
        waiting.wakers.insert(place, context.waker().clone());
        drop(waiting);
        if is_too_late {
            TIMERS.changed.notify_one();
        }
        Poll::Pending
    }
}

/// Without that thread, a waiter polls the clock.
fn look_again(context: &Context<'_>) -> Poll<()> {
    super::threads::pause(1);
    context.waker().wake_by_ref();
    Poll::Pending
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            TIMERS.lock().wakers.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_thread_time_passes_too() {
        let end = now() + Duration::from_millis(20);
        let wait = std::future::poll_fn(|context| if now() < end { look_again(context) } else { Poll::Ready(()) });
        pollster::block_on(wait);
        assert!(now() >= end);
    }

    #[test]
    fn those_that_wait_are_woken_in_time() {
        let begin = now();
        let ms = || begin.elapsed().as_secs_f64() * 1e3;
        let order = Mutex::new(Vec::new());
        let wait = |ms: f64| {
            let order = &order;
            async move {
                sleep(ms).await;
                order.lock().unwrap_or_else(PoisonError::into_inner).push(ms);
            }
        };
        pollster::block_on(futures_lite::future::zip(wait(300.0), futures_lite::future::zip(wait(50.0), wait(0.0))));
        assert!(ms() >= 300.0);
        assert_eq!(order.into_inner().unwrap_or_default(), [0.0, 50.0, 300.0]);
        // Neither a dropped nor an endless timer leaves an entry.
        pollster::block_on(async {
            let mut long = sleep(1e300);
            let mut dropped = sleep(1e6);
            assert!(futures_lite::future::poll_once(&mut long).await.is_none());
            assert!(futures_lite::future::poll_once(&mut dropped).await.is_none());
        });
        pollster::block_on(sleep(1.0));
    }
}

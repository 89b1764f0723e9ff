//! Tells the host that a long run gets on: only an adapter that does nothing counts as hung.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_channel::Sender;

use super::{ActorId, Event, Message};
use crate::runtime::Runtime;

/// Milliseconds from one beat to the next.
const BEAT_MS: f64 = 2_000.0;

/// Sends [`Event::Working`], at most every two seconds.
pub(crate) struct Heartbeat {
    actor: ActorId,
    events: Sender<Message>,
    clock: Arc<dyn Runtime>,
    /// Bits of the time of the last beat; NaN before the first, which nobody hears.
    last_ms: AtomicU64,
}

impl Heartbeat {
    pub(crate) fn new(actor: ActorId, events: Sender<Message>, clock: Arc<dyn Runtime>) -> Self {
        Self { actor, events, clock, last_ms: AtomicU64::new(f64::NAN.to_bits()) }
    }

    /// Waits for so long, as a part of the work.
    pub(crate) async fn sleep(&self, ms: f64) {
        let until_ms = self.clock.now_ms() + ms;
        loop {
            let left_ms = until_ms - self.clock.now_ms();
            if left_ms <= 0.0 {
                return;
            }
            self.clock.sleep(left_ms.min(BEAT_MS)).await;
            self.beat();
        }
    }

    /// Says that a part of the work is done.
    pub(crate) fn beat(&self) {
        let (now_ms, last_ms) = (self.clock.now_ms(), f64::from_bits(self.last_ms.load(Ordering::Relaxed)));
        if now_ms - last_ms < BEAT_MS {
            return;
        }
        self.last_ms.store(now_ms.to_bits(), Ordering::Relaxed);
        if !last_ms.is_nan() {
            // Nobody to tell is no matter.
            drop(self.events.try_send(Message { actor: self.actor, event: Event::Working }));
        }
    }
}

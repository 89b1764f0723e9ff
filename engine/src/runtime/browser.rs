//! A page's or a worker's event loop, its clock and its timers.

use litemap::LiteMap;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_channel::{Receiver, Sender};
use futures_lite::StreamExt;
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::WorkerGlobalScope;

use super::{LocalTask, Runtime};

/// The event loop of a page or a worker.
///
/// The clock is the same in all workers of a page: times of adapters in different workers can be compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Browser;

/// Longest delay that `setTimeout` takes; a longer one would count as none.
const MOST_MS: f64 = 2_147_483_647.0;

/// The global object. A page's has the functions used here, too.
fn global() -> WorkerGlobalScope {
    js_sys::global().unchecked_into()
}

impl Runtime for Browser {
    fn now_ms(&self) -> f64 {
        let Some(performance) = global().performance() else { return js_sys::Date::now() };
        performance.time_origin() + performance.now()
    }

    fn sleep(&self, ms: f64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(Timer::start(ms))
    }

    fn spawn(&self, _name: &str, actor: Box<dyn FnOnce() -> LocalTask + Send>) {
        wasm_bindgen_futures::spawn_local(actor());
    }

    fn settle(&self, last_words: LocalTask) {
        // Nothing may block here; devices close later.
        wasm_bindgen_futures::spawn_local(last_words);
    }
}

/// Timers that run, by a number of ours; and the one function that `setTimeout` calls with that number.
struct BrowserTimers {
    next: f64,
    running: LiteMap<u64, Sender<()>>,
    ring: Closure<dyn Fn(f64)>,
}

thread_local! {
    static TIMERS: RefCell<BrowserTimers> = RefCell::new(BrowserTimers {
        next: 0.0,
        running: LiteMap::new(),
        ring: Closure::new(|number: f64| end(number)),
    });
}

/// Ends a timer: its waiter sees a closed channel.
fn end(number: f64) {
    TIMERS.with(|timers| drop(timers.borrow_mut().running.remove(&number.to_bits())));
}

/// A running `setTimeout`, which ends when this is dropped: the scheduler starts one for each event that it waits for.
struct Timer {
    number: f64,
    handle: i32,
    rings: Pin<Box<Receiver<()>>>,
}

impl Timer {
    fn start(ms: f64) -> Self {
        TIMERS.with(|timers| {
            let mut timers = timers.borrow_mut();
            timers.next += 1.0;
            let number = timers.next;
            let (sender, receiver) = async_channel::bounded(1);
            timers.running.insert(number.to_bits(), sender);
            #[allow(clippy::cast_possible_truncation, reason = "clamped to what fits")]
            let delay = ms.clamp(0.0, MOST_MS).ceil() as i32;
            let arguments = js_sys::Array::of1(&JsValue::from_f64(number));
            let started = global().set_timeout_with_callback_and_timeout_and_arguments(
                timers.ring.as_ref().unchecked_ref(),
                delay,
                &arguments,
            );
            // Without timers nothing is ever late.
            Self { number, handle: started.unwrap_or(0), rings: Box::pin(receiver) }
        })
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.rings.poll_next(context).map(|_| ())
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        global().clear_timeout_with_handle(self.handle);
        end(self.number);
    }
}

//! Functions of the page for this worker: posting messages, and starting further workers.

use std::cell::{Cell, RefCell};

use js_sys::{Array, Float32Array, Function, Object, Reflect, Uint8Array, Uint32Array};
use manyhands_engine::adapters::remote::Packet;
use wasm_bindgen::{JsCast, JsValue};

use crate::messages::{Event, Level, SentNumbers};

struct Host {
    post: Function,
    /// None where no CPU adapter is needed.
    open_cpu: Option<Function>,
}

thread_local! {
    static HOST: RefCell<Option<Host>> = const { RefCell::new(None) };
    static STEP: Cell<u64> = const { Cell::new(0) };
}

/// Stores the functions of `engine.js`.
pub(crate) fn meet(post: Function, open_cpu: Option<Function>) {
    HOST.with(|host| *host.borrow_mut() = Some(Host { post, open_cpu }));
}

/// Tells the page something.
pub(crate) fn tell(event: &Event) {
    let text = serde_json::to_string(event).unwrap_or_default();
    let beside = Object::new();
    for (name, values) in event.arrays() {
        let array: JsValue = match values {
            SentNumbers::Bytes(values) => Uint8Array::from(values).into(),
            SentNumbers::Floats(values) => Float32Array::from(values).into(),
        };
        // A plain object takes any property.
        drop(Reflect::set(&beside, &name.into(), &array));
    }
    with_host(|host| host.post.call2(&JsValue::NULL, &text.into(), &beside));
}

/// Starts a worker for a CPU adapter; returns functions to send to it and to end it.
pub(crate) fn open_cpu(heard: &JsValue, ended: &JsValue) -> Option<(Function, Function)> {
    let open = |host: &Host| match &host.open_cpu {
        Some(open_cpu) => open_cpu.call2(&JsValue::NULL, heard, ended),
        None => Err(JsValue::NULL),
    };
    let opened = with_host(open)?;
    let function = |name: &str| Reflect::get(&opened, &name.into()).ok()?.dyn_into::<Function>().ok();
    Some((function("send")?, function("end")?))
}

fn with_host(call: impl FnOnce(&Host) -> Result<JsValue, JsValue>) -> Option<JsValue> {
    // Messages to a closed page are dropped.
    HOST.with(|host| host.borrow().as_ref().and_then(|host| call(host).ok()))
}

/// Posts a packet through a function.
pub(crate) fn send(packet: &Packet, post: &Function) {
    let arrays: Array = packet.arrays.iter().map(|values| Float32Array::from(&values[..])).collect();
    drop(post.call2(&JsValue::NULL, &Uint32Array::from(packet.words.as_slice()), &arrays));
}

/// A received packet.
pub(crate) fn packet(words: Vec<u32>, arrays: &Array) -> Packet {
    let arrays = arrays.iter().map(|values| values.unchecked_into::<Float32Array>().to_vec().into()).collect();
    Packet { words, arrays }
}

/// Number of training steps, for messages without access to the trainer.
pub(crate) fn step() -> u64 {
    STEP.get()
}

pub(crate) fn set_step(step: u64) {
    STEP.set(step);
}

/// Passes the engine's log to the page.
pub(crate) struct Notices;

impl log::Log for Notices {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Info && metadata.target().starts_with("manyhands")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = if record.level() <= log::Level::Warn { Level::Warn } else { Level::Info };
            tell(&Event::Notice { level, message: record.args().to_string(), step: step() });
        }
    }

    fn flush(&self) {}
}

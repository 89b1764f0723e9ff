//! The CPU adapter in a worker of its own, and how the engine's worker opens it.

use std::cell::RefCell;
use std::sync::Arc;

use async_channel::Sender;
use js_sys::{Array, Function};
use manyhands::adapters::{Info, Kind};
use manyhands_engine::adapters::remote::{self, LinkEnd, Packet};
use manyhands_engine::adapters::{self, ActorId, Handle, Message, Opener};
use manyhands_engine::runtime::{self, LocalTask, Runtime};
use wasm_bindgen::JsCast;
use wasm_bindgen::closure::Closure;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::{host, models};

/// Opens adapters as a page can: the CPU adapter in another worker, where it does not block this one's GPUs.
pub(crate) fn opener() -> Opener {
    Arc::new(|info: &Info, actor: ActorId, runtime: Arc<dyn Runtime>, events: Sender<Message>| match info.kind {
        Kind::Cpu => Ok(open(info, actor, &*runtime, events)),
        _ => adapters::open(info, actor, runtime, events),
    })
}

fn open(info: &Info, actor: ActorId, runtime: &dyn Runtime, events: Sender<Message>) -> Handle {
    let (there, outgoing) = async_channel::unbounded::<Packet>();
    let (incoming, here) = async_channel::unbounded();
    let carry = move || -> LocalTask {
        Box::pin(async move {
            let heard = incoming.clone();
            let heard = Closure::<dyn Fn(Vec<u32>, Array)>::new(move |words: Vec<u32>, arrays: Array| {
                // A receiver that is gone has closed the link.
                drop(heard.try_send(host::packet(words, &arrays)));
            });
            let ended = incoming.clone();
            let ended = Closure::<dyn Fn()>::new(move || {
                ended.close();
            });
            if let Some((send, end)) = host::open_cpu(heard.as_ref(), ended.as_ref()) {
                while let Ok(packet) = outgoing.recv().await {
                    host::send(&packet, &send);
                }
                drop(end.call0(&wasm_bindgen::JsValue::NULL));
            }
            incoming.close();
        })
    };
    runtime.spawn("worker", Box::new(carry));
    remote::connect(info, actor, runtime, events, LinkEnd { there, here })
}

thread_local! {
    /// Channel of packets for a worker of a CPU adapter.
    static INBOX: RefCell<Option<Sender<Packet>>> = const { RefCell::new(None) };
}

/// Serves a CPU adapter in this worker: `post(words, arrays)` carries its answers.
#[wasm_bindgen]
pub fn serve_cpu(post: Function) {
    let (inbox, here) = async_channel::unbounded();
    let (there, outgoing) = async_channel::unbounded::<Packet>();
    INBOX.with(|place| *place.borrow_mut() = Some(inbox));
    wasm_bindgen_futures::spawn_local(remote::serve(runtime::system(), LinkEnd { there, here }, models::KERNELS));
    wasm_bindgen_futures::spawn_local(async move {
        while let Ok(packet) = outgoing.recv().await {
            host::send(&packet, post.unchecked_ref());
        }
    });
}

/// A packet for the CPU adapter of this worker.
#[wasm_bindgen]
pub fn deliver(words: Vec<u32>, arrays: Array) {
    INBOX.with(|inbox| {
        if let Some(inbox) = &*inbox.borrow() {
            // The adapter receives as long as its worker lives.
            drop(inbox.try_send(host::packet(words, &arrays)));
        }
    });
}

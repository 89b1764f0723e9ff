//! An adapter that a test can take away at any moment.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::sync::{Arc, Mutex};

use async_channel::Sender;
use manyhands_engine::adapters::{self, Opener, Request};

/// Where requests of the first adapter that was opened go, once there is one.
pub type Requests = Arc<Mutex<Option<Sender<Request>>>>;

/// Opens adapters, and keeps the first one's end.
pub fn breakable() -> (Opener, Requests) {
    let kept: Requests = Arc::default();
    let keep = kept.clone();
    let opener: Opener = Arc::new(move |info, actor, runtime, events| {
        let handle = adapters::open(info, actor, runtime, events)?;
        keep.lock().unwrap().get_or_insert_with(|| handle.requests.clone());
        Ok(handle)
    });
    (opener, kept)
}

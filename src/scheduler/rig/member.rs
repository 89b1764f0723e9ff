//! An adapter of a rig: its actor, its loaded plan, and whether it takes part.

use crate::error::Error;
use manyhands_engine::adapters::{ActorId, Handle};

/// The status of an adapter of a rig.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum AdapterStatus {
    /// The adapter takes part.
    Active {
        /// Whether it is excluded from training steps, because they are faster without it, or because a placement gives
        /// it no layers.
        is_excluded: bool,
    },
    /// The adapter was lost.
    Lost {
        /// Milliseconds until it is opened again; `None` if it never is.
        again_ms: Option<f64>,
    },
    /// The adapter is being opened again.
    Returning,
    /// The adapter was removed.
    Left,
}

/// An adapter of a rig.
pub(in crate::scheduler) struct Member {
    pub handle: Handle,
    /// The actor of the adapter; `None` if it was lost.
    pub actor: Option<ActorId>,
    /// Number of times it was opened.
    pub openings: u32,
    /// Index of the stage that it computes.
    pub stage: usize,
    /// Rows that a run may have.
    pub capacity: u32,
    /// Whether that is fewer than requested, because memory did not suffice.
    pub is_reduced: bool,
    pub presence: Presence,
    pub loading: Loading,
    /// Bytes that the plan takes on it.
    pub bytes: u64,
    /// Time of its last event, or of the last work it was given.
    pub last_seen_ms: f64,
    /// Number of times it was lost.
    pub losses: u32,
    /// Whether it lacks the newest weights. They are sent before its next run.
    pub is_stale: bool,
    /// Whether a fixed or even split reserves a slot for it: false for one that left, or that replaces lost ones.
    pub has_slot: bool,
    /// Whether it is a CPU adapter that was added because all others were lost.
    pub is_replacement: bool,
    /// Whether it may get rows at all: see [`Rig::limit_active`](super::Rig::limit_active).
    pub is_enabled: bool,
}

/// Presence of a member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::scheduler) enum Presence {
    /// The member takes part in training.
    Active,
    /// The member was lost, and is opened again at that time.
    Lost { again_ms: f64 },
    /// The member is being opened again and loads the plan.
    Returning,
    /// The member has loaded the plan again, and takes part from the next step on.
    Ready,
    /// The member was removed, and is not opened again.
    Left,
    /// The placement gives the member no stage: it is closed until another one does.
    Spare,
}

/// State of loading the plan.
#[derive(Default)]
pub(in crate::scheduler) enum Loading {
    #[default]
    Done,
    InProgress,
    Failed(Error),
}

impl Member {
    pub fn new(handle: Handle, actor: ActorId, stage: usize, capacity: u32, now_ms: f64) -> Self {
        Self {
            handle,
            actor: Some(actor),
            openings: 1,
            stage,
            capacity,
            is_reduced: false,
            presence: Presence::Active,
            loading: Loading::Done,
            bytes: 0,
            last_seen_ms: now_ms,
            losses: 0,
            is_stale: true,
            has_slot: true,
            is_replacement: false,
            is_enabled: true,
        }
    }

    pub fn is_active(&self) -> bool {
        self.presence == Presence::Active
    }

    pub fn is_loading(&self) -> bool {
        matches!(self.loading, Loading::InProgress)
    }

    /// Removes the actor: one that hangs finds no more work if it wakes up, and its events are ignored.
    pub fn dismiss(&mut self, presence: Presence) {
        self.handle.requests.close();
        (self.presence, self.actor, self.loading) = (presence, None, Loading::Done);
    }
}

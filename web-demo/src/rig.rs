//! The adapters in use, by ids of the page, which are never reused.

use std::cell::RefCell;

use manyhands::adapters::{Info, Kind};
use manyhands::{AdapterStatus, OpenAdapter, Trainer};
use manyhands_engine::adapters::{Request, gpu};

use crate::host::tell;
use crate::logs::MemberPlace;
use crate::messages::{Event, Listed, MemberPresence, RigMember, share_device};

/// An adapter with the page's id for it.
#[derive(Clone)]
struct PageAdapter {
    id: u32,
    info: Info,
}

/// Adapters by their positions in the engine.
#[derive(Default)]
pub(crate) struct PageRig {
    adapters: Vec<PageAdapter>,
    next_id: u32,
    /// The CPU adapter in the page's list: the engine opens one by itself when all others are lost.
    cpu: Option<Info>,
    sent: Vec<RigMember>,
    /// Indices among the members sent to the page, by position.
    pub(crate) places: Vec<Option<MemberPlace>>,
}

thread_local! {
    /// Handles of the adapters in use by their ids: an adapter may be disconnected while a step runs.
    static PLUGS: RefCell<Vec<(u32, async_channel::Sender<Request>)>> = const { RefCell::new(Vec::new()) };
}

/// Destroys the device of a member, at once, if it has one.
pub(crate) fn unplug(id: u32) {
    PLUGS.with(|plugs| {
        for (_, plug) in plugs.borrow().iter().filter(|plug| plug.0 == id) {
            // A lost adapter takes no more requests.
            drop(plug.try_send(Request::Lose));
        }
    });
}

/// An adapter in a message to the page.
pub(crate) fn listed(info: &Info) -> Listed {
    Listed { info: info.clone(), requested_as: gpu::requested_as(info) }
}

impl PageRig {
    /// A rig without adapters in use.
    pub(crate) fn of(list: &[Info]) -> Self {
        Self { cpu: list.iter().find(|info| info.kind == Kind::Cpu).cloned(), ..Self::default() }
    }

    /// Starts with a new list of adapters.
    pub(crate) fn begin(&mut self, infos: &[Info]) {
        self.adapters.clear();
        infos.iter().for_each(|info| self.add(info));
    }

    fn add(&mut self, info: &Info) {
        self.adapters.push(PageAdapter { id: self.next_id, info: info.clone() });
        self.next_id += 1;
    }

    /// Position of a member.
    pub(crate) fn position(&self, id: u32) -> Option<usize> {
        let position = self.adapters.iter().position(|adapter| adapter.id == id)?;
        self.places.get(position).copied().flatten().map(|_| position)
    }

    /// Whether an id is that of a member that has left, whose requests were on their way.
    pub(crate) fn has_left(&self, id: u32) -> bool {
        id < self.next_id && self.position(id).is_none()
    }

    /// Number of members.
    pub(crate) fn len(&self) -> usize {
        self.sent.len()
    }

    /// Keeps the remaining adapters, in order, for a new trainer; returns them with their throttles.
    pub(crate) fn keep(&mut self) -> Vec<(Info, f64)> {
        self.adapters.retain(|adapter| self.sent.iter().any(|member| member.id == adapter.id));
        self.sent.iter().map(|member| (member.info.info.clone(), member.throttle)).collect()
    }

    /// The adapters that take part, with their throttles.
    pub(crate) fn active(&self) -> Vec<(Info, f64)> {
        let active = self.sent.iter().filter(|member| member.presence == MemberPresence::Active);
        active.map(|member| (member.info.info.clone(), member.throttle)).collect()
    }

    /// Records the engine's adapters and their status; sends them to the page if they changed.
    pub(crate) fn update(&mut self, trainer: &Trainer) {
        let open = trainer.open_adapters();
        if open.is_empty() {
            return;
        }
        let listed = |info: &Info| self.cpu.clone().filter(|_| info.kind == Kind::Cpu).unwrap_or_else(|| info.clone());
        let infos: Vec<Info> = open.iter().map(|adapter| listed(&adapter.info)).collect();
        // The engine may have continued with another adapter by itself.
        self.adapters.truncate(infos.len());
        for (idx, info) in infos.iter().enumerate() {
            match self.adapters.get(idx) {
                Some(adapter) if adapter.info == *info => {}
                Some(_) => {
                    self.adapters[idx] = PageAdapter { id: self.next_id, info: info.clone() };
                    self.next_id += 1;
                }
                None => self.add(info),
            }
        }
        PLUGS.with(|plugs| {
            let Some(scheduler) = trainer.scheduler() else { return };
            let near = |(idx, adapter): (usize, &PageAdapter)| (adapter.id, scheduler.handle(idx).requests.clone());
            *plugs.borrow_mut() = self.adapters.iter().enumerate().map(near).collect();
        });
        self.tell(&open);
    }

    fn tell(&mut self, open: &[OpenAdapter]) {
        let mut members: Vec<RigMember> = Vec::new();
        self.places.clear();
        for (position, (page_adapter, adapter)) in self.adapters.iter().zip(open).enumerate() {
            let has_left = adapter.status == AdapterStatus::Left;
            self.places.push((!has_left).then_some(MemberPlace { at: members.len(), id: page_adapter.id }));
            if has_left {
                continue;
            }
            let twin = members.iter().find(|earlier| share_device(&earlier.info.info, &page_adapter.info));
            let member = RigMember {
                id: page_adapter.id,
                position,
                info: listed(&page_adapter.info),
                presence: MemberPresence::Active,
                again_ms: None,
                is_excluded: false,
                throttle: adapter.throttle,
                shares_device_with: twin.map(|twin| twin.id),
            };
            members.push(member.with_status(adapter.status));
        }
        let is_new = members.len() != self.sent.len() || members.iter().zip(&self.sent).any(|(a, b)| !a.is_like(b));
        self.sent = members;
        if is_new {
            tell(&Event::Rig { members: self.sent.clone() });
        }
    }
}

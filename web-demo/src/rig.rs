//! The adapters in use as the page knows them: by ids that never name another.

use std::cell::RefCell;

use manyhands::Trainer;
use manyhands::adapters::{Info, Request, gpu};
use manyhands::scheduler::Standing;

use crate::host::tell;
use crate::messages::{Event, Listed, Member, share_device};

/// An adapter with the page's id for it.
#[derive(Clone)]
struct Seat {
    id: u32,
    info: Info,
}

/// Adapters by their positions in the engine.
#[derive(Default)]
pub(crate) struct Rig {
    seats: Vec<Seat>,
    next_id: u32,
    throttles: litemap::LiteMap<u32, f64>,
    told: Vec<Member>,
    /// Places among those told, by position.
    pub(crate) places: Vec<Option<usize>>,
}

thread_local! {
    /// Near ends of the adapters in use by their ids: what is pulled is pulled while a step runs.
    static PLUGS: RefCell<Vec<(u32, async_channel::Sender<Request>)>> = const { RefCell::new(Vec::new()) };
}

/// Destroys the device of a member, at once. False if there is no such member.
pub(crate) fn unplug(id: u32) -> bool {
    PLUGS.with(|plugs| {
        let plugs = plugs.borrow();
        plugs.iter().find(|plug| plug.0 == id).is_some_and(|plug| plug.1.try_send(Request::Lose).is_ok())
    })
}

/// An adapter as the page is told of it.
pub(crate) fn listed(info: &Info) -> Listed {
    Listed { info: info.clone(), requested_as: gpu::requested_as(info) }
}

impl Rig {
    /// Another list of adapters, all new.
    pub(crate) fn begin(&mut self, infos: &[Info]) {
        self.seats.clear();
        self.throttles.clear();
        infos.iter().for_each(|info| self.sit(info));
    }

    fn sit(&mut self, info: &Info) {
        self.seats.push(Seat { id: self.next_id, info: info.clone() });
        self.next_id += 1;
    }

    /// Position of a member.
    pub(crate) fn position(&self, id: u32) -> Option<usize> {
        let position = self.seats.iter().position(|seat| seat.id == id)?;
        self.places.get(position).copied().flatten().map(|_| position)
    }

    /// Remembers a throttle.
    pub(crate) fn throttle(&mut self, id: u32, factor: f64) {
        self.throttles.insert(id, factor);
    }

    /// Keeps those that stay, in their order, for a trainer that begins anew; gives them with their throttles.
    pub(crate) fn keep(&mut self) -> Vec<(Info, f64)> {
        let stays = |position: usize| self.places.get(position).is_some_and(Option::is_some);
        self.seats = (0..self.seats.len()).filter(|idx| stays(*idx)).map(|idx| self.seats[idx].clone()).collect();
        self.seats.iter().map(|seat| (seat.info.clone(), self.factor(seat.id))).collect()
    }

    fn factor(&self, id: u32) -> f64 {
        self.throttles.get(&id).copied().unwrap_or(1.0)
    }

    /// The adapters that stay.
    pub(crate) fn infos(&self) -> Vec<Info> {
        self.told.iter().map(|member| member.info.info.clone()).collect()
    }

    /// Takes in which adapters the engine has and how it stands with them; tells the page if it looks another way.
    pub(crate) fn update(&mut self, trainer: &mut Trainer) {
        let Some(scheduler) = trainer.scheduler() else { return };
        let infos: Vec<Info> = scheduler.adapters().cloned().collect();
        let standings = scheduler.standings();
        // The engine may have gone on with another adapter by itself.
        self.seats.truncate(infos.len());
        for (idx, info) in infos.iter().enumerate() {
            match self.seats.get(idx) {
                Some(seat) if seat.info == *info => {}
                Some(_) => {
                    self.seats[idx] = Seat { id: self.next_id, info: info.clone() };
                    self.next_id += 1;
                }
                None => self.sit(info),
            }
        }
        PLUGS.with(|plugs| {
            let near = |(idx, seat): (usize, &Seat)| (seat.id, scheduler.near_end(idx).requests.clone());
            *plugs.borrow_mut() = self.seats.iter().enumerate().map(near).collect();
        });
        self.tell(&standings);
    }

    fn tell(&mut self, standings: &[Standing]) {
        let mut members: Vec<Member> = Vec::new();
        self.places.clear();
        for (seat, standing) in self.seats.iter().zip(standings) {
            let has_left = *standing == Standing::Left;
            self.places.push((!has_left).then_some(members.len()));
            if has_left {
                continue;
            }
            let twin = members.iter().find(|earlier| share_device(&earlier.info.info, &seat.info));
            let member = Member {
                id: seat.id,
                info: listed(&seat.info),
                presence: "there",
                again_ms: None,
                is_resting: false,
                throttle: self.factor(seat.id),
                shares_device_with: twin.map(|twin| twin.id),
            };
            members.push(member.standing(*standing));
        }
        let is_new = members.len() != self.told.len() || members.iter().zip(&self.told).any(|(a, b)| !a.is_like(b));
        self.told = members;
        if is_new {
            tell(&Event::Rig { members: self.told.clone() });
        }
    }
}

//! The data service: the track list, and early detection of losses (DyRAM §3.2.2).

use proto_core::time::Instant;

use super::table::Phase;
use super::{Fanout, Feedbacks, Relay, Verdict};
use crate::config::Carriage;
use crate::event::Event;
use crate::stats::DropReason;
use crate::track::Arrival;
use crate::types::Addr;
use crate::wheel::{tick_of, time_since};
use crate::wire::{self, Packet};
use crate::{Meta, Seq};

impl Relay<'_> {
    #[inline]
    pub(super) fn data(
        &mut self,
        now: Instant,
        number: u16,
        from: Addr,
        meta: &Meta,
        packet: &Packet<&mut [u8]>,
    ) -> Result<Verdict, DropReason> {
        self.check_down(number, from, meta.group)?;
        self.check_session(now, number, packet.session())?;
        let seq = packet.sequence();
        let (track, lost) = self.tables.track(number);
        match track.arrive(lost, seq) {
            Arrival::InOrder => {}
            Arrival::Gap(first, count) => self.gap(number, first, count),
            Arrival::Recovered => self.arrived_late(now, number, seq),
            Arrival::Duplicate => return Err(DropReason::Duplicate),
            Arrival::Ahead => return Err(DropReason::FarAhead),
        }
        self.stats.data = self.stats.data.wrapping_add(1);
        Ok(self.to_all_children(number))
    }

    /// Records the packets of `rest` that continue `first`, which goes to all children: DATA of the same session in
    /// sequence, with nothing missing before it. Returns their length.
    #[inline]
    pub(super) fn data_in_sequence(&mut self, fanout: &Fanout, first: &[u8], rest: &[u8]) -> usize {
        let Some(mut after) = wire::Successors::of_data(first).filter(|_| fanout.state.is_none())
        else {
            return 0;
        };
        let (track, lost) = self.tables.track(fanout.session);
        let mut len = 0;
        for packet in rest.chunks(first.len().max(1)) {
            let next = after.next(packet).filter(|seq| track.is_next(*seq));
            let Some(seq) = next else {
                break;
            };
            track.arrive(lost, seq);
            self.stats.data = self.stats.data.wrapping_add(1);
            len += packet.len();
        }
        len
    }

    /// Forwards a message of the transport to all children. Its sequence says how far the source is, which reveals the
    /// loss of the last packets.
    pub(super) fn cast(
        &mut self,
        now: Instant,
        number: u16,
        from: Addr,
        meta: &Meta,
        packet: &Packet<&mut [u8]>,
    ) -> Result<Verdict, DropReason> {
        self.check_down(number, from, meta.group)?;
        self.check_session(now, number, packet.session())?;
        let (track, lost) = self.tables.track(number);
        if let Some((first, count)) = track.expect(lost, packet.sequence()) {
            self.gap(number, first, count);
        }
        Ok(self.to_all_children(number))
    }

    #[inline]
    fn to_all_children(&self, number: u16) -> Verdict {
        if self.config.carriage == Carriage::Multicast {
            return Verdict::Done;
        }
        Verdict::Send(Fanout {
            session: number,
            state: None,
            up: false,
        })
    }

    /// Checks that a new packet comes from above or, where IP multicast carries the data, to the group from the source.
    #[inline]
    fn check_down(&self, number: u16, from: Addr, group: bool) -> Result<(), DropReason> {
        let fits = match self.config.carriage {
            Carriage::Relays => !group && self.is_above(number, from),
            Carriage::Multicast => group && self.is_source(number, from),
        };
        if fits {
            Ok(())
        } else {
            Err(DropReason::NotFromParent)
        }
    }

    /// Checks the session identifier. Of two identifiers the first is served until it has been silent for
    /// [`Config::takeover`](crate::Config::takeover).
    #[inline]
    fn check_session(&mut self, now: Instant, number: u16, id: u32) -> Result<(), DropReason> {
        let session = self.tables.session_mut(number);
        if session.id == Some(id) {
            session.heard.run = tick_of(now) as u32;
            return Ok(());
        }
        self.check_other(now, number, id)
    }

    /// Handles an identifier that is not the running one.
    #[cold]
    fn check_other(&mut self, now: Instant, number: u16, id: u32) -> Result<(), DropReason> {
        let takeover = self.config.takeover;
        let session = self.tables.session(number);
        let key = session.name();
        if let (Some(running), Some(key)) = (session.id, key)
            && time_since(now, session.heard.run) < takeover
        {
            self.another_run(now, number, Event::Collision(key, [running, id]));
            return Err(DropReason::OtherSession);
        }
        self.begin(now, number, id);
        Ok(())
    }

    /// Handles a second session identifier. The source may have been started again: the parent knows and is asked.
    /// Without a parent, the collision is reported once.
    #[cold]
    fn another_run(&mut self, now: Instant, number: u16, collision: Event) {
        let session = self.tables.session_mut(number);
        if let Some(parent) = &mut session.parent {
            parent.suspect(now);
            self.set_timer(number);
        } else if !core::mem::replace(&mut session.collided, true) {
            self.notify(collision);
        }
    }

    /// Begins another run of the source: all state of packets is discarded.
    pub(super) fn begin(&mut self, now: Instant, number: u16, id: u32) {
        self.tables.forget_states(number);
        let (track, lost) = self.tables.track(number);
        *track = crate::track::Track::default();
        lost.fill(0);
        self.tables.forget_acks(number);
        let session = self.tables.session_mut(number);
        session.id = Some(id);
        session.heard.run = tick_of(now) as u32;
        session.collided = false;
        session.acks.folded = None;
        session.ack_sent = false;
        session.feedbacks = Feedbacks::default();
        self.update_parent(number, now);
    }

    /// Asks for missing packets at once, where early detection is enabled. Where IP multicast carries the data, only the
    /// NACKs of children tell whether a child lost what this relay lost.
    fn gap(&mut self, number: u16, first: Seq, count: u32) {
        self.stats.gaps = self.stats.gaps.wrapping_add(u64::from(count));
        if !self.config.early_detection || self.config.carriage == Carriage::Multicast {
            return;
        }
        // Children ask for packets that find no free state.
        for index in 0..count.min(self.tables.limits.nack_states as u32) {
            let seq = first.plus(index);
            if self.tables.find_state(number, seq).is_some() {
                continue;
            }
            let Some(state) = self.tables.new_state(number, seq) else {
                break;
            };
            self.ask_parent(state);
        }
    }

    /// A missing packet arrived late: it goes to all children.
    fn arrived_late(&mut self, now: Instant, number: u16, seq: Seq) {
        self.stats.recovered = self.stats.recovered.wrapping_add(1);
        if let Some(state) = self.tables.find_state(number, seq) {
            self.tables.subcast_to_all(state);
            self.mark_repaired(now, state);
        }
    }

    /// The packet of this state is being sent: repeated NACKs are ignored for the hold time.
    pub(super) fn mark_repaired(&mut self, now: Instant, state: u16) {
        let number = self.tables.session_of(state);
        let until = now + self.hold(number);
        let entry = self.tables.state_mut(state);
        entry.phase = Phase::Repaired;
        entry.for_parent = false;
        self.tables.wheel.set(state, until);
    }
}

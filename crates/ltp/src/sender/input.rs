//! Requests and reports.

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};

use proto_core::time::Duration;
use siphasher::sip::SipHasher24;

use super::Sender;
use super::answers::Answer;
use crate::error::Error;
use crate::replier::{Target, Wanted};
use crate::store::Store;
use crate::wire::pace::Feedback;
use crate::wire::report::Report;
use crate::wire::request::{self, Kind};
use crate::wire::{Header, Type};
use crate::{Meta, Path};

/// Blocks repaired for one request; the receiver requests the others again.
const BLOCKS_PER_REQUEST: u64 = 64;

impl<S: Store> Sender<'_, S> {
    pub(super) fn input(&mut self, meta: &Meta, packet: &[u8]) -> Result<(), Error> {
        let header = Header::parse(packet)?;
        if !matches!(header.kind, Type::Request | Type::Report | Type::Feedback) {
            return Err(Error::Unexpected);
        }
        let packet = self.hashing.open(packet).ok_or(Error::Authenticator)?;
        if self.is_ended() {
            return Err(Error::Ended);
        }
        if header.kind == Type::Report {
            let report = Report::parse(packet)?;
            return self.report(meta, &report);
        }
        if header.kind == Type::Feedback {
            return self.feedback(meta, &Feedback::parse(packet)?);
        }
        let request = request::Repr::parse(packet)?;
        // A receiver of an older session learns of this one by the answer to its question.
        if request.session != self.session && request.kind != Kind::Sync {
            return Err(Error::OtherSession);
        }
        if meta.path == Path::Group {
            self.check_option(meta)?;
        }
        match request.kind {
            Kind::Sync => self.sync_request(meta, request.nonce),
            Kind::Data | Kind::DataOrParity => self.data_request(meta, &request),
            Kind::Digests => self.digests_request(meta, &request),
            Kind::Left => self.left_request(meta, &request),
        }
    }

    fn check_option(&self, meta: &Meta) -> Result<(), Error> {
        match meta.option {
            Some(option) if option.group != self.config.group.ip() => Err(Error::OptionMismatch),
            _ => Ok(()),
        }
    }

    /// Returns the token of an address: a peer that returns it receives there.
    pub(super) fn token(&self, address: SocketAddr) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.token_key);
        match address.ip() {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
        hasher.write_u16(address.port());
        hasher.finish().max(1)
    }

    /// The chaining values to the left of a block, for one that starts there.
    fn left_request(&mut self, meta: &Meta, request: &request::Repr) -> Result<(), Error> {
        let range = request.ranges.first().ok_or(Error::Value)?;
        let block = u64::from(range.lo);
        if meta.path == Path::Group {
            return Err(Error::Unexpected);
        }
        if !self.config.integrity || block > self.digests.hashed() {
            return Err(Error::RequestUnsent);
        }
        if !self.is_verified(meta, request) {
            self.give_token(meta.source, request.tag, request.nonce);
            return Err(Error::RequestUnverified);
        }
        self.answer(Answer::Left {
            to: meta.source,
            nonce: request.nonce,
            block,
        })?;
        self.request_taken(meta);
        Ok(())
    }

    fn sync_request(&mut self, meta: &Meta, nonce: u64) -> Result<(), Error> {
        if meta.path == Path::Group {
            return Err(Error::Unexpected);
        }
        // As long as the request, so that no proof of the address is needed.
        self.answer(Answer::Sync {
            to: meta.source,
            nonce,
        })?;
        self.stats.requests_unicast += 1;
        Ok(())
    }

    fn request_taken(&mut self, meta: &Meta) {
        match meta.path {
            Path::Group => self.stats.requests_group += 1,
            Path::Unicast => self.stats.requests_unicast += 1,
        }
        self.touch_linger();
    }

    fn data_request(&mut self, meta: &Meta, request: &request::Repr) -> Result<(), Error> {
        let verified = self.is_verified(meta, request);
        let target = self.request_target(meta, request, verified);
        let mut budget = BLOCKS_PER_REQUEST;
        let mut outcome = Err(Error::RequestUnsent);
        for range in &request.ranges {
            let asked = (request.kind, request.tag, verified);
            outcome = outcome.or(self.data_range(target, range, asked, &mut budget));
        }
        if meta.path == Path::Unicast && !verified && outcome != Err(Error::RequestUnsent) {
            self.give_token(meta.source, request.tag, request.nonce);
        }
        if outcome.is_ok() {
            self.learn_round_trip(request.round_trip_us);
            self.request_taken(meta);
        }
        outcome
    }

    fn is_verified(&self, meta: &Meta, request: &request::Repr) -> bool {
        meta.path == Path::Unicast && request.token == self.token(meta.source)
    }

    /// Returns the target of repairs that only one receiver asks for; `None` is the group. An address
    /// that proved nothing never gets more than a token.
    fn request_target(
        &mut self,
        meta: &Meta,
        request: &request::Repr,
        verified: bool,
    ) -> Option<u16> {
        if !self.config.repair.unicast {
            return None;
        }
        let address = if verified {
            meta.source
        } else {
            self.lone_requester(meta, request)?
        };
        self.repairs.target(self.now, Target::Unicast(address))
    }

    /// Returns the proven address of a receiver that asks the group for itself alone. Its request comes from
    /// another port than its reports, so that the host decides; with several active receivers on that host
    /// it is not known which one asked.
    fn lone_requester(&self, meta: &Meta, request: &request::Repr) -> Option<SocketAddr> {
        let turned = meta
            .option
            .is_some_and(|option| option.turning_point.is_some());
        let alone = meta.path == Path::Group && request.nonce == request::REPAIR_ALONE;
        if turned || !alone {
            return None;
        }
        self.receivers.only_active(meta.source.ip())
    }

    fn learn_round_trip(&mut self, round_trip_us: u32) {
        let named = Duration::from_micros(u64::from(round_trip_us));
        let longest = self.config.repair.hold_down * 10;
        self.repairs.extend_hold_down(named.min(longest));
    }

    /// Queues the repairs of one range, clipped to packets that were sent and are stored.
    fn data_range(
        &mut self,
        target: Option<u16>,
        range: &request::Range,
        asked: (Kind, u16, bool),
        budget: &mut u64,
    ) -> Result<(), Error> {
        let mut outcome = Err(Error::RequestHeldDown);
        for (block, mask) in self.content.requested(range)? {
            if *budget == 0 {
                break;
            }
            *budget -= 1;
            let wanted = self.repaired_with(asked, block, mask);
            let repaired = self.repair(target, &wanted);
            if repaired == Err(Error::RepairsFull) {
                return repaired;
            }
            if repaired.is_ok() {
                outcome = Ok(());
            }
        }
        outcome
    }

    fn repair(&mut self, target: Option<u16>, wanted: &Wanted) -> Result<(), Error> {
        self.stats.requested_packets += u64::from(wanted.mask.count_ones());
        let now = self.now;
        match target {
            None => {
                let group = self.repairs.target(now, Target::Group);
                let group = group.ok_or(Error::TargetsFull)?;
                self.repairs.queue(now, group, wanted)
            }
            // Through relays the group is the whole tree, and nearly all of it has been repaired already.
            Some(target) if self.has_relay_ack() => self.repairs.queue(now, target, wanted),
            Some(target) => {
                let aggregate = self.config.repair.aggregate;
                self.repairs.queue_adaptive(now, target, wanted, aggregate)
            }
        }
    }

    fn digests_request(&mut self, meta: &Meta, request: &request::Repr) -> Result<(), Error> {
        let range = request.ranges.first().ok_or(Error::Value)?;
        let (lo, hi) = (u64::from(range.lo), u64::from(range.hi));
        if lo >= self.digests.published() {
            return Err(Error::RequestUnsent);
        }
        let lo = lo.max(self.content.oldest_block());
        let hi = hi.min(self.digests.published() - 1);
        if lo > hi {
            return Err(Error::RequestNotStored);
        }
        let count = (hi - lo + 1).min(self.digests_per_packet());
        let answer = match meta.path {
            Path::Unicast if self.is_verified(meta, request) => Answer::Digests {
                to: Some(meta.source),
                nonce: request.nonce,
                first: lo,
                count,
            },
            Path::Unicast => {
                self.give_token(meta.source, request.tag, request.nonce);
                return Err(Error::RequestUnverified);
            }
            Path::Group => {
                // The numbers of digests lie beside those of packets in the hold-down table.
                let group = self.repairs.target(self.now, Target::Group);
                let group = group.ok_or(Error::TargetsFull)?;
                if !self.repairs.hold_once(self.now, group, 1 << 63 | lo) {
                    return Err(Error::RequestHeldDown);
                }
                Answer::Digests {
                    to: None,
                    nonce: 0,
                    first: lo,
                    count,
                }
            }
        };
        self.answer(answer)?;
        self.request_taken(meta);
        Ok(())
    }
}

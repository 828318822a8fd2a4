//! Repairs, as source and replier share them: the queue for each target, the hold-down after a repair, and the rate
//! of each target.

#[cfg(all(test, feature = "alloc"))]
mod tests;

use core::net::SocketAddr;

use lms_proto::TurningPoint;
use managed::ManagedSlice;
use proto_core::time::{Duration, Instant};

use crate::error::Error;
use crate::pacing::Pacer;

/// Where a repair goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Group,
    Unicast(SocketAddr),
    TurningPoint(TurningPoint),
    /// The DyRAM relay.
    Relay,
}

/// What repairs a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum With {
    /// The packets of the mask.
    #[default]
    Packets,
    /// As many parity packets as the mask, which has no holes, has bits. Two requests for different losses are served
    /// by the larger number.
    Parity,
    /// Parity that nobody requested. A later request is not held down by it.
    Advance,
}

/// The repairs of one block that someone asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) block: u32,
    pub(crate) mask: u64,
    pub(crate) with: With,
    pub(crate) tag: u16,
}

impl Wanted {
    /// One packet, for the relay.
    pub(crate) fn packet(block: u64, index: u32) -> Self {
        Wanted {
            block: block as u32,
            mask: 1 << index,
            with: With::Packets,
            tag: 0,
        }
    }
}

/// One block's repairs for one target: an entry of the caller's storage.
#[derive(Clone, Copy, Default, Debug)]
pub struct Pending {
    mask: u64,
    ready: Instant,
    block: u32,
    tag: u16,
    target: u16,
    with: With,
}

/// One repair that was made: an entry of the caller's storage.
#[derive(Clone, Copy, Default, Debug)]
pub struct HoldDown {
    /// Packet number + 1; 0: free.
    number: u64,
    until: Instant,
    /// The table index of the target in the low half, its generation in the high half.
    target: u32,
    /// The last receiver that got it by unicast.
    last: u32,
}

/// A target of repairs: an entry of the caller's storage.
#[derive(Clone, Copy, Default, Debug)]
pub struct TargetEntry {
    target: Option<Target>,
    pacer: Pacer,
    used: Instant,
    generation: u16,
    waiting: u16,
}

/// What to repair next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Repair {
    pub(crate) target: Target,
    pub(crate) block: u32,
    /// The packet; parity has another index.
    pub(crate) index: u32,
    pub(crate) with: With,
    pub(crate) tag: u16,
}

/// Index of the group in the target table: it is always there.
const GROUP: u16 = 0;
/// Stands for any receiver by unicast in the table of repairs made.
const ANY_RECEIVER: u32 = u32::MAX;

/// Limits of one target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetLimits {
    pub(crate) rate_bps: Option<u64>,
    pub(crate) depth_len: usize,
}

#[derive(Debug)]
pub(crate) struct Repairs<'a> {
    pending: ManagedSlice<'a, Pending>,
    len: usize,
    made: ManagedSlice<'a, HoldDown>,
    targets: ManagedSlice<'a, TargetEntry>,
    limits: TargetLimits,
    hold_down: Duration,
    packets_per_block: u32,
}

impl<'a> Repairs<'a> {
    pub(crate) fn new(
        pending: ManagedSlice<'a, Pending>,
        made: ManagedSlice<'a, HoldDown>,
        targets: ManagedSlice<'a, TargetEntry>,
        limits: TargetLimits,
        hold_down: Duration,
    ) -> Self {
        let mut repairs = Repairs {
            pending,
            len: 0,
            made,
            targets,
            limits,
            hold_down,
            packets_per_block: 64,
        };
        repairs.clear();
        repairs
    }

    /// Forgets everything (another session).
    pub(crate) fn clear(&mut self) {
        self.len = 0;
        self.made.fill(HoldDown::default());
        self.targets.fill(TargetEntry::default());
        if let Some(first) = self.targets.first_mut() {
            first.target = Some(Target::Group);
        }
    }

    pub(crate) fn set_packets_per_block(&mut self, packets: u32) {
        self.packets_per_block = packets;
    }

    /// The buckets of targets that come from now on hold at least `depth_len` bytes.
    pub(crate) fn deepen(&mut self, depth_len: usize) {
        self.limits.depth_len = self.limits.depth_len.max(depth_len);
    }

    /// Repairs are held down for no less than this time from now on.
    pub(crate) fn extend_hold_down(&mut self, hold_down: Duration) {
        self.hold_down = self.hold_down.max(hold_down);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the table index of a target; without room the one unused longest is replaced.
    pub(crate) fn target(&mut self, now: Instant, target: Target) -> Option<u16> {
        if target == Target::Group {
            return (!self.targets.is_empty()).then_some(GROUP);
        }
        let known = self
            .targets
            .iter()
            .position(|entry| entry.target == Some(target));
        let index = known.or_else(|| self.evict(now, target))?;
        self.targets[index].used = now;
        u16::try_from(index).ok()
    }

    fn evict(&mut self, now: Instant, target: Target) -> Option<usize> {
        let (index, entry) = self
            .targets
            .iter_mut()
            .enumerate()
            .skip(1)
            .filter(|(_, entry)| entry.waiting == 0)
            .min_by_key(|(_, entry)| (entry.target.is_some(), entry.used))?;
        // An evicted target must not come back with a full bucket: only an entry that was never used begins
        // with one, others pass on the tokens that are left.
        let fresh = Pacer::new(self.limits.rate_bps, self.limits.depth_len, now);
        let mut pacer = if entry.target.is_some() {
            entry.pacer
        } else {
            fresh
        };
        pacer.budget(now);
        *entry = TargetEntry {
            target: Some(target),
            pacer,
            used: now,
            generation: entry.generation.wrapping_add(1),
            waiting: 0,
        };
        Some(index)
    }

    fn key(&self, target: u16) -> u32 {
        u32::from(self.targets[usize::from(target)].generation) << 16 | u32::from(target)
    }

    fn slot(&self, number: u64, key: u32) -> Option<usize> {
        let mixed = number.wrapping_add(u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let bits = self.made.len().checked_ilog2()?;
        Some((mixed as usize) & ((1 << bits) - 1))
    }

    fn held_down(&self, now: Instant, number: u64, key: u32) -> Option<&HoldDown> {
        let held = &self.made[self.slot(number, key)?];
        (held.number == number + 1 && held.target == key && held.until > now).then_some(held)
    }

    fn hold(&mut self, now: Instant, number: u64, key: u32, last: u32) {
        let until = now + self.hold_down;
        if let Some(slot) = self.slot(number, key) {
            self.made[slot] = HoldDown {
                number: number + 1,
                until,
                target: key,
                last,
            };
        }
    }

    /// Starts the hold-down of that number for that target. Returns false if it is held down already.
    pub(crate) fn hold_once(&mut self, now: Instant, target: u16, number: u64) -> bool {
        let key = self.key(target);
        if self.held_down(now, number, key).is_some() {
            return false;
        }
        self.hold(now, number, key, 0);
        true
    }

    /// Returns the number under which the hold-down of a repair is tracked.
    fn number(&self, (block, with): (u32, With), index: u32) -> u64 {
        let number = u64::from(block) * u64::from(self.packets_per_block) + u64::from(index);
        match with {
            With::Packets => number,
            With::Parity => 1 << 62 | number,
            With::Advance => 1 << 61 | number,
        }
    }

    /// The bits of `mask` that are not held down for that target.
    fn not_held_down(&self, now: Instant, target: u16, wanted: &Wanted) -> u64 {
        let (key, repaired) = (self.key(target), (wanted.block, wanted.with));
        bits(wanted.mask)
            .filter(|&index| {
                self.held_down(now, self.number(repaired, index), key)
                    .is_none()
            })
            .fold(0, |left, index| left | 1 << index)
    }

    /// Queues repairs of one block for one target.
    pub(crate) fn queue(
        &mut self,
        now: Instant,
        target: u16,
        wanted: &Wanted,
    ) -> Result<(), Error> {
        let mask = self.not_held_down(now, target, wanted);
        if mask == 0 {
            return Err(Error::RequestHeldDown);
        }
        self.enqueue(target, &Wanted { mask, ..*wanted }, now)
    }

    /// Queues repairs for a receiver with a verified address that requested them by unicast: it alone gets them,
    /// unless another receiver requests the same; then the group does.
    pub(crate) fn queue_adaptive(
        &mut self,
        now: Instant,
        requester: u16,
        wanted: &Wanted,
        aggregate: Duration,
    ) -> Result<(), Error> {
        let repaired = (wanted.block, wanted.with);
        let mut mask = self.not_held_down(now, GROUP, wanted);
        let own = self.key(requester);
        let (mut group, mut alone) = (0, 0);
        for index in bits(mask) {
            match self.held_down(now, self.number(repaired, index), ANY_RECEIVER) {
                Some(held) if held.last == own => mask &= !(1 << index),
                Some(_) => group |= 1 << index,
                None => alone |= 1 << index,
            }
        }
        if mask == 0 {
            return Err(Error::RequestHeldDown);
        }
        let ready = now + aggregate;
        let mut at = 0;
        while at < self.len {
            let entry = &mut self.pending[at];
            if (entry.block, entry.with) == repaired && entry.target != requester {
                let common = entry.mask & alone;
                alone &= !common;
                if entry.target != GROUP {
                    group |= common;
                    entry.mask &= !common;
                    if entry.mask == 0 {
                        self.remove(at);
                        continue;
                    }
                }
            }
            at += 1;
        }
        let part = |mask| Wanted { mask, ..*wanted };
        if group != 0 {
            self.enqueue(GROUP, &part(group), ready)?;
        }
        if alone != 0 {
            self.enqueue(requester, &part(alone), ready)?;
        }
        Ok(())
    }

    fn enqueue(&mut self, target: u16, wanted: &Wanted, ready: Instant) -> Result<(), Error> {
        let &Wanted {
            block,
            mask,
            with,
            tag,
        } = wanted;
        let waiting = &mut self.pending[..self.len];
        if let Some(entry) = waiting
            .iter_mut()
            .find(|e| e.block == block && e.target == target && e.with == with)
        {
            entry.mask |= mask;
            entry.tag = tag;
            entry.ready = entry.ready.min(ready);
            return Ok(());
        }
        let entry = self.pending.get_mut(self.len).ok_or(Error::RepairsFull)?;
        *entry = Pending {
            mask,
            ready,
            block,
            tag,
            target,
            with,
        };
        self.len += 1;
        self.targets[usize::from(target)].waiting += 1;
        Ok(())
    }

    fn remove(&mut self, at: usize) {
        let target = usize::from(self.pending[at].target);
        self.targets[target].waiting -= 1;
        self.pending.copy_within(at + 1..self.len, at);
        self.len -= 1;
    }

    fn due(&mut self, now: Instant, frame_len: usize) -> Option<usize> {
        (0..self.len).find(|&at| {
            let entry = self.pending[at];
            let pacer = &mut self.targets[usize::from(entry.target)].pacer;
            entry.ready <= now && pacer.budget(now) >= frame_len
        })
    }

    /// Returns the next repair and its position, first come first served; it stays in the queue until
    /// [`Repairs::done`].
    pub(crate) fn peek(&mut self, now: Instant, frame_len: usize) -> Option<(usize, Repair)> {
        let at = self.due(now, frame_len)?;
        let entry = &self.pending[at];
        let target = self.targets[usize::from(entry.target)].target?;
        let index = entry.mask.trailing_zeros();
        Some((
            at,
            Repair {
                target,
                block: entry.block,
                index,
                with: entry.with,
                tag: entry.tag,
            },
        ))
    }

    /// The repair that [`Repairs::peek`] named was sent (`frame_len` bytes), or cannot be made
    /// (`None`).
    pub(crate) fn done(&mut self, now: Instant, at: usize, frame_len: Option<usize>) {
        let entry = self.pending[at];
        let index = entry.mask.trailing_zeros();
        if let Some(frame_len) = frame_len {
            let number = self.number((entry.block, entry.with), index);
            let key = self.key(entry.target);
            let unicast = matches!(
                self.targets[usize::from(entry.target)].target,
                Some(Target::Unicast(_))
            );
            if unicast {
                self.hold(now, number, ANY_RECEIVER, key);
            } else {
                self.hold(now, number, key, 0);
            }
            self.spend(entry.target, frame_len);
        }
        let left = entry.mask & (entry.mask - 1);
        self.pending[at].mask = left;
        if left == 0 {
            self.remove(at);
        }
    }

    /// Keeps the entry of a target, for which something outside this queue waits.
    pub(crate) fn keep(&mut self, target: u16) {
        self.targets[usize::from(target)].waiting += 1;
    }

    /// Ends a [`Repairs::keep`].
    pub(crate) fn release(&mut self, target: u16) {
        self.targets[usize::from(target)].waiting -= 1;
    }

    /// Takes bytes from a target's share.
    pub(crate) fn spend(&mut self, target: u16, frame_len: usize) {
        self.targets[usize::from(target)].pacer.spend(frame_len);
    }

    /// Whether a target's share allows a frame of this length now.
    pub(crate) fn allows(&mut self, now: Instant, target: u16, frame_len: usize) -> bool {
        self.targets[usize::from(target)].pacer.budget(now) >= frame_len
    }

    /// Returns when a target's share allows a frame of this length.
    pub(crate) fn allowed_at(&self, target: u16, frame_len: usize) -> Instant {
        self.targets[usize::from(target)].pacer.ready_at(frame_len)
    }

    /// Returns the target of an index.
    pub(crate) fn destination(&self, target: u16) -> Option<Target> {
        self.targets.get(usize::from(target))?.target
    }

    /// Returns when the next repair may be sent.
    pub(crate) fn poll_timeout(&self, frame_len: usize) -> Option<Instant> {
        let waiting = &self.pending[..self.len];
        let at = |entry: &Pending| {
            let pacer = &self.targets[usize::from(entry.target)].pacer;
            entry.ready.max(pacer.ready_at(frame_len))
        };
        waiting.iter().map(at).min()
    }
}

/// The indexes of the bits that are set, from the lowest.
pub(crate) fn bits(mut mask: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        (mask != 0).then(|| {
            let index = mask.trailing_zeros();
            mask &= mask - 1;
            index
        })
    })
}

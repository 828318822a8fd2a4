//! The body of each service.
//!
//! ```text
//! NACK     flags 1: acknowledgement is valid; sequence: first missing
//! +---------------------------------------------------------------+
//! |  mask: bit i, from the lowest, is sequence + 1 + i (64 bits)  |
//! +---------------------------------------------------------------+
//! |  acknowledgement: receivers below have everything before it   |
//! +-------------------------------+-------------------------------+
//! |  number of earlier requests   |  0                            |
//! +-------------------------------+-------------------------------+
//!
//! ABSENT   sequence: first packet that the replier lacks
//! +---------------------------------------------------------------+
//! |  mask, as in NACK (64 bits)                                   |
//! +---------------------------------------------------------------+
//!
//! ACK      sequence: receivers below have everything before it; no body
//!
//! JOIN     flags: 0 receiver, 1 relay, 2 source; 80 bytes, filled with zeros
//! +---------------------------------------------------------------+
//! |  token that the parent sent here; 0: none yet (64 bits)       |
//! +---------------------------------------------------------------+
//! |  time stamp, echoed                                           |
//! +---------------------------------------------------------------+
//! |  round-trip time to the farthest receiver below, by way of    |
//! |  the parent, microseconds                                     |
//! +---------------------------------------------------------------+
//! |  receivers below, including the child                         |
//! +---------------------------------------------------------------+
//! |  relay identifier of the child; 0: not a relay                |
//! +---------------------------------------------------------------+
//! |  round-trip time to the parent, microseconds; 0: not known    |
//! +---------------------------------------------------------------+
//!
//! JOINED   flags: status in the lower half, 0x10 LIVE, 0x20 ATTACHED; 80 bytes
//! +---------------------------------------------------------------+
//! |  token for this address (64 bits)                             |
//! +---------------------------------------------------------------+
//! |  time stamp of the JOIN                                       |
//! +---------------------------------------------------------------+
//! |  time that the parent needs for a repair, microseconds        |
//! +-------------------------------+---------------+---------------+
//! |  join again within, ms        |  path length  |  0            |
//! +-------------------------------+---------------+---------------+
//! |  0                                                            |
//! +---------------------------------------------------------------+
//! |  path: relay identifiers from the source to the parent,       |
//! |  0 to 14, filled with zeros                                   |
//! +---------------------------------------------------------------+
//!
//! LEAVE, MOVE
//! +---------------------------------------------------------------+
//! |  token of the child (64 bits)                                 |
//! +---------------------------------------------------------------+
//!
//! STALLED  sequence: the last acknowledgement of the stalled child
//! +---------------------------------------------------------------+
//! |  IP address of the stalled child; IPv4 as IPv4-mapped IPv6    |
//! |  (128 bits)                                                   |
//! +-------------------------------+-------------------------------+
//! |  its UDP port                 |  0                            |
//! +-------------------------------+-------------------------------+
//! |  identifier of the relay that no longer waits for it          |
//! +---------------------------------------------------------------+
//!
//! FEEDBACK sequence: 0
//! +---------------------------------------------------------------+
//! |  rank: relays pass on the lowest (64 bits)                    |
//! +---------------------------------------------------------------+
//! |  microseconds that relays below have held it                  |
//! +---------------------------------------------------------------+
//! |  message of the transport, 1 to 128 bytes                     |
//! +---------------------------------------------------------------+
//! ```
//!
//! JOIN is as long as its answer, so that a relay cannot be used to amplify traffic to a forged address. LIVE: the
//! session identifier and the sequence number (one past the newest) are valid. ATTACHED: the path begins at the source.

use proto_core::wire::Writer;

use super::{COMMON_LEN, Packet, ParseError, Service, u16_at, u32_at, u64_at};
use crate::types::Addr;
use crate::{RelayId, Seq, SocketAddr};

/// Largest number of relays between a source and a child.
pub const MAX_PATH: usize = 14;
/// Length of the body of STALLED.
const STALLED_LEN: usize = 24;
/// Longest message of the transport in FEEDBACK.
pub const MAX_MESSAGE: usize = 128;
/// Length of the body of FEEDBACK before the message.
const RANKED_LEN: usize = 12;
/// Length of the longest body of FEEDBACK.
pub const FEEDBACK_LEN: usize = RANKED_LEN + MAX_MESSAGE;
/// Length of the body of JOIN and of JOINED.
pub const JOIN_LEN: usize = 24 + 4 * MAX_PATH;

/// Relays on the path from the source, the one nearest to it first.
pub type Path = heapless::Vec<RelayId, MAX_PATH, u8>;

proto_core::numbered! {
    /// Role of an endpoint or relay that joins.
    pub enum Role: u8 {
        /// Consumes the data.
        Receiver = 0,
        /// Forwards to receivers below.
        Relay = 1,
        /// Sends the data: the parent of the relay that it joins.
        Source = 2,
    }
}

proto_core::numbered! {
    /// A parent's answer to a JOIN.
    pub enum Status: u8 {
        /// Accepted until the next refresh is due.
        Joined = 0,
        /// Join again with this token, which proves the address.
        Challenge = 1,
        /// A table is full.
        Full = 2,
        /// The child is above this relay: the tree would have a loop.
        Loop = 3,
        /// The relay drains.
        Draining = 4,
    }
}

/// NACK: packets are missing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Nack {
    /// Further missing packets: bit `i` stands for sequence number + 1 + `i`.
    pub mask: u64,
    /// Every receiver below has everything before this packet.
    pub ack: Option<Seq>,
    /// Number of earlier requests for the same packets.
    pub repeats: u16,
}

/// JOIN: a child or the source announces itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Join {
    /// Role of an endpoint or relay that joins.
    pub role: Role,
    /// The token that the parent sent to this address; 0 if there is none yet.
    pub token: u64,
    /// Time stamp that the parent echoes; the child measures the round-trip time with it.
    pub stamp: u32,
    /// Round-trip time between the parent and the farthest receiver below, in microseconds.
    pub far_us: u32,
    /// Receivers below, including the child itself.
    pub receivers: u32,
    /// The relay's identifier; 0 for other roles.
    pub relay: RelayId,
    /// Round-trip time to the parent, in microseconds; 0 if unknown.
    pub round_trip_us: u32,
}

/// JOINED: the parent's answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Joined {
    /// The answer.
    pub status: Status,
    /// Whether session identifier and sequence number of the packet are valid.
    pub live: bool,
    /// Whether the path begins at the source.
    pub attached: bool,
    /// The token for the child's address.
    pub token: u64,
    /// The time stamp of the JOIN.
    pub stamp: u32,
    /// How long the parent may need for a repair, in microseconds.
    pub repair_us: u32,
    /// Interval in which to join again, in milliseconds.
    pub refresh_ms: u16,
    /// Relays from the source to the parent, the parent last.
    pub path: Path,
}

/// STALLED: a relay no longer waits for a child.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stalled {
    /// Address of the child as its relay sees it.
    pub child: SocketAddr,
    /// The relay that the child joined; never 0.
    pub relay: RelayId,
}

/// FEEDBACK: a message of the transport to the source, one of many that relays pass on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Feedback<'a> {
    /// The transport's order of messages: relays pass on the lowest.
    pub rank: u64,
    /// How long relays below have held it, in microseconds; the highest value stands for more.
    pub held_us: u32,
    /// The message, 1 to [`MAX_MESSAGE`] bytes.
    pub message: &'a [u8],
}

/// A service and its fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body<'a> {
    /// [`Service::Data`].
    Data(&'a [u8]),
    /// [`Service::Repair`].
    Repair(&'a [u8]),
    /// [`Service::Nack`].
    Nack(Nack),
    /// [`Service::Ack`].
    Ack,
    /// [`Service::Absent`], with the mask.
    Absent(u64),
    /// [`Service::Join`].
    Join(Join),
    /// [`Service::Joined`].
    Joined(Joined),
    /// [`Service::Leave`], with the token.
    Leave(u64),
    /// [`Service::Cast`].
    Cast(&'a [u8]),
    /// [`Service::Move`], with the token.
    Move(u64),
    /// [`Service::Stalled`].
    Stalled(Stalled),
    /// [`Service::Feedback`].
    Feedback(Feedback<'a>),
}

const LIVE: u8 = 0x10;
const ATTACHED: u8 = 0x20;

fn expect(holds: bool, error: ParseError) -> Result<(), ParseError> {
    if holds { Ok(()) } else { Err(error) }
}

/// Checks the body of a service without payload of the transport. `common` begins with the fields that all services
/// share.
pub(super) fn check(service: Service, common: &[u8]) -> Result<(), ParseError> {
    let (b, flags) = (&common[COMMON_LEN..], common[1]);
    let len = match service {
        Service::Nack => 16,
        Service::Ack => 0,
        Service::Absent | Service::Leave | Service::Move => 8,
        Service::Join | Service::Joined => JOIN_LEN,
        Service::Stalled => STALLED_LEN,
        Service::Feedback => b.len().clamp(RANKED_LEN + 1, FEEDBACK_LEN),
        Service::Data | Service::Repair | Service::Cast => return Ok(()),
    };
    expect(b.len() >= len, ParseError::Truncated)?;
    expect(b.len() == len, ParseError::Length)?;
    // No session identifier and no sequence number.
    let nameless = u64_at(common, 4) == 0;
    let zeros = |b: &[u8]| b.iter().all(|&byte| byte == 0);
    let holds = match service {
        Service::Nack => flags <= 1 && zeros(&b[14..]) && (flags == 1 || zeros(&b[8..12])),
        Service::Join => nameless && zeros(&b[28..]),
        Service::Joined => {
            let used = 24 + 4 * usize::from(b[18]).min(MAX_PATH);
            let live = flags & LIVE != 0;
            flags & 0xc0 == 0 && zeros(&b[19..24]) && zeros(&b[used..]) && (live || nameless)
        }
        Service::Leave => flags == 0 && nameless,
        Service::Move => flags == 0 && nameless,
        Service::Stalled => flags == 0 && zeros(&b[18..20]),
        Service::Feedback => flags == 0 && u32_at(common, 8) == 0,
        _ => flags == 0,
    };
    expect(holds, ParseError::Reserved)?;
    let fits = match service {
        Service::Join => flags <= Role::Source as u8,
        Service::Joined => {
            Status::from_number(flags & 0xf).is_some() && usize::from(b[18]) <= MAX_PATH
        }
        Service::Stalled => u32_at(b, 20) != 0,
        _ => true,
    };
    expect(fits, ParseError::Value)
}

impl<'a> Body<'a> {
    /// Reads the body of a checked packet.
    pub(super) fn read(packet: &Packet<&'a [u8]>) -> Self {
        let b = &packet.bytes[usize::from(packet.header_len)..];
        match packet.service() {
            Service::Data => Body::Data(b),
            Service::Repair => Body::Repair(b),
            Service::Cast => Body::Cast(b),
            Service::Nack => Body::Nack(Nack::read(packet)),
            Service::Ack => Body::Ack,
            Service::Absent => Body::Absent(u64_at(b, 0)),
            Service::Join => Body::Join(Join::read(packet)),
            Service::Joined => Body::Joined(Joined::read(packet)),
            Service::Leave => Body::Leave(u64_at(b, 0)),
            Service::Move => Body::Move(u64_at(b, 0)),
            Service::Stalled => Body::Stalled(Stalled::read(packet)),
            Service::Feedback => Body::Feedback(Feedback::read(b)),
        }
    }

    pub(super) fn service(&self) -> Service {
        match self {
            Body::Data(_) => Service::Data,
            Body::Repair(_) => Service::Repair,
            Body::Nack(_) => Service::Nack,
            Body::Ack => Service::Ack,
            Body::Absent(_) => Service::Absent,
            Body::Join(_) => Service::Join,
            Body::Joined(_) => Service::Joined,
            Body::Leave(_) => Service::Leave,
            Body::Cast(_) => Service::Cast,
            Body::Move(_) => Service::Move,
            Body::Stalled(_) => Service::Stalled,
            Body::Feedback(_) => Service::Feedback,
        }
    }

    pub(super) fn flags(&self) -> u8 {
        match self {
            Body::Nack(nack) => u8::from(nack.ack.is_some()),
            Body::Join(join) => join.role as u8,
            Body::Joined(joined) => {
                let live = if joined.live { LIVE } else { 0 };
                let attached = if joined.attached { ATTACHED } else { 0 };
                joined.status as u8 | live | attached
            }
            _ => 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Body::Data(payload) | Body::Repair(payload) | Body::Cast(payload) => payload.len(),
            Body::Nack(_) => 16,
            Body::Ack => 0,
            Body::Absent(_) | Body::Leave(_) | Body::Move(_) => 8,
            Body::Join(_) | Body::Joined(_) => JOIN_LEN,
            Body::Stalled(_) => STALLED_LEN,
            Body::Feedback(feedback) => RANKED_LEN + feedback.message.len(),
        }
    }

    /// Writes the body into `b`, which has its length.
    pub(super) fn write(&self, b: &mut [u8]) {
        match self {
            Body::Data(payload) | Body::Repair(payload) | Body::Cast(payload) => {
                b.copy_from_slice(payload);
            }
            Body::Nack(nack) => Writer::new(b)
                .u64(nack.mask)
                .u32(nack.ack.unwrap_or_default().0)
                .u16(nack.repeats)
                .zeros(),
            Body::Ack => {}
            Body::Absent(value) | Body::Leave(value) | Body::Move(value) => {
                b.copy_from_slice(&value.to_be_bytes());
            }
            Body::Join(join) => join.write(b),
            Body::Joined(joined) => joined.write(b),
            Body::Stalled(stalled) => stalled.write(b),
            Body::Feedback(feedback) => feedback.write(b),
        }
    }
}

impl Nack {
    pub(crate) fn read<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        let b = packet.payload();
        Nack {
            mask: u64_at(b, 0),
            ack: (packet.flags() == 1).then(|| Seq(u32_at(b, 8))),
            repeats: u16_at(b, 12),
        }
    }
}

impl Stalled {
    pub(crate) fn read<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        let b = packet.payload();
        let child: [u8; 18] = b[..18].try_into().unwrap_or_default();
        Stalled {
            child: Addr::from_bytes(child).into(),
            relay: RelayId(u32_at(b, 20)),
        }
    }

    fn write(&self, b: &mut [u8]) {
        let address = Addr::from(self.child).bytes();
        Writer::new(b).bytes(&address).u16(0).u32(self.relay.0);
    }
}

impl<'a> Feedback<'a> {
    /// Reads a checked body.
    pub(crate) fn read(b: &'a [u8]) -> Self {
        Feedback {
            rank: u64_at(b, 0),
            held_us: u32_at(b, 8),
            message: &b[RANKED_LEN..],
        }
    }

    fn write(&self, b: &mut [u8]) {
        Writer::new(b)
            .u64(self.rank)
            .u32(self.held_us)
            .bytes(self.message);
    }
}

impl Join {
    pub(crate) fn read<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        let b = packet.payload();
        Join {
            // Checked: the number is a role.
            role: Role::from_number(packet.flags()).unwrap_or(Role::Receiver),
            token: u64_at(b, 0),
            stamp: u32_at(b, 8),
            far_us: u32_at(b, 12),
            receivers: u32_at(b, 16),
            relay: RelayId(u32_at(b, 20)),
            round_trip_us: u32_at(b, 24),
        }
    }

    fn write(&self, b: &mut [u8]) {
        Writer::new(b)
            .u64(self.token)
            .u32(self.stamp)
            .u32(self.far_us)
            .u32(self.receivers)
            .u32(self.relay.0)
            .u32(self.round_trip_us)
            .zeros();
    }
}

impl Joined {
    pub(crate) fn read<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        let (b, flags) = (packet.payload(), packet.flags());
        let path = b[24..].chunks_exact(4).take(usize::from(b[18]));
        Joined {
            // Checked: the number is a status.
            status: Status::from_number(flags & 0xf).unwrap_or(Status::Full),
            live: flags & LIVE != 0,
            attached: flags & ATTACHED != 0,
            token: u64_at(b, 0),
            stamp: u32_at(b, 8),
            repair_us: u32_at(b, 12),
            refresh_ms: u16_at(b, 16),
            path: path.map(|id| RelayId(u32_at(id, 0))).collect(),
        }
    }

    fn write(&self, b: &mut [u8]) {
        let fields = Writer::new(b)
            .u64(self.token)
            .u32(self.stamp)
            .u32(self.repair_us)
            .u16(self.refresh_ms)
            .u8(self.path.len() as u8)
            .bytes(&[0; 5]);
        self.path
            .iter()
            .fold(fields, |fields, id| fields.u32(id.0))
            .zeros();
    }
}

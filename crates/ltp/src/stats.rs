//! Counters.

use crate::error::Drops;

/// Counters of a sender. Bytes are UDP payloads unless they say frame bytes (payload + 42).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SenderStats {
    /// DATA packets sent.
    pub data_packets: u64,
    /// REPAIR packets sent to the group.
    pub repairs_group: u64,
    /// REPAIR packets sent to one receiver.
    pub repairs_unicast: u64,
    /// PARITY packets sent to the group.
    pub parity_group: u64,
    /// PARITY packets sent to one receiver.
    pub parity_unicast: u64,
    /// PARITY packets queued for the group before anyone requested them.
    pub parity_in_advance: u64,
    /// SYNC packets sent to the group.
    pub syncs: u64,
    /// DIGESTS packets sent.
    pub digests: u64,
    /// Answers sent (SYNC, DIGESTS, REPORT_ACK), to one receiver or, DIGESTS, to the group.
    pub answers: u64,
    /// Answers that gave way to others in a full queue, and REPORT_ACK packets, tokens among them, that found no place.
    pub answers_lost: u64,
    /// Ethernet frame bytes of everything sent.
    pub frame_bytes: u64,
    /// Packets received and taken.
    pub received: u64,
    /// REQUEST packets taken, by multicast.
    pub requests_group: u64,
    /// REQUEST packets taken, by unicast.
    pub requests_unicast: u64,
    /// Packets requested, before the hold-down.
    pub requested_packets: u64,
    /// REPORT packets taken.
    pub reports: u64,
    /// Feedback of receivers that congestion control took.
    pub feedback: u64,
    /// Packets of congestion control that were sent.
    pub paces: u64,
    /// Times that the window stopped new data.
    pub stalls: u64,
    /// Events that found their queue full.
    pub events_lost: u64,
    /// Packets dropped, by reason.
    pub drops: Drops,
}

/// Counters of a receiver, which may be a replier too; one field for each.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ReceiverStats {
    /// DATA packets that brought something new.
    pub data_packets: u64,
    /// REPAIR packets that brought something new.
    pub repairs: u64,
    /// DATA packets that brought nothing new.
    pub duplicate_data: u64,
    /// REPAIR packets for a packet that was requested and had already come.
    pub duplicate_repairs: u64,
    /// REPAIR packets that this receiver had not requested: losses of other receivers.
    pub unneeded_repairs: u64,
    /// PARITY packets that are held, or were until their block was whole.
    pub parity: u64,
    /// PARITY packets of which nothing more was lacking, or that came twice.
    pub unneeded_parity: u64,
    /// PARITY packets for which there was no room, or that are not taken.
    pub parity_lost: u64,
    /// Packets restored from parity.
    pub restored_packets: u64,
    /// Blocks restored from parity that did not match their digest.
    pub restored_wrongly: u64,
    /// SYNC packets taken.
    pub syncs: u64,
    /// DIGESTS packets taken.
    pub digests: u64,
    /// Packets found missing.
    pub lost_packets: u64,
    /// REQUEST packets sent to the group.
    pub requests_group: u64,
    /// REQUEST packets sent to the source.
    pub requests_source: u64,
    /// Packets requested, repetitions included.
    pub requested_packets: u64,
    /// REPORT packets sent.
    pub reports: u64,
    /// Feedback to the source's congestion control that was sent.
    pub feedback: u64,
    /// Blocks discarded because their digest was wrong.
    pub blocks_rejected: u64,
    /// Digests requested again because the block, fetched again, did not match them either.
    pub digests_rejected: u64,
    /// Times the whole was wrong and the source was asked which blocks are wrong.
    pub audits: u64,
    /// Blocks compared with the source's own digests in audits.
    pub blocks_audited: u64,
    /// Times the source was asked to confirm a heartbeat or digests with a nonce.
    pub confirmations: u64,
    /// REQUEST packets taken as replier.
    pub requests_taken: u64,
    /// REPAIR packets sent as replier.
    pub repairs_sent: u64,
    /// PARITY packets sent as replier.
    pub parity_sent: u64,
    /// DIGESTS packets sent as replier.
    pub digests_sent: u64,
    /// Ethernet frame bytes of everything sent.
    pub frame_bytes: u64,
    /// Events that found their queue full.
    pub events_lost: u64,
    /// Packets dropped, by reason.
    pub drops: Drops,
}

//! Counters: packets sent, and one named reason for each packet dropped.

use crate::carrier::Malformed;
use crate::rule::Reason;
use crate::wire::encap::OpenError;
use crate::wire::found::{HeaderError, OptionError};
use crate::wire::option::ParseError;
use crate::wire::udp;

proto_core::drop_reasons! {
    /// Why a packet was dropped.
    pub enum DropReason: "{}" {
        /// The packet is shorter than an IPv4 header, or than the header says it is long.
        HeaderTruncated = "header_truncated",
        /// The version is not 4.
        HeaderVersion = "header_version",
        /// The header length is below 20 bytes.
        HeaderLength = "header_length",
        /// The total length is below the header length.
        TotalLength = "total_length",
        /// The packet is shorter than its total length.
        PacketTruncated = "packet_truncated",
        /// The header checksum is wrong.
        HeaderChecksum = "header_checksum",
        /// An IPv4 option has no length byte, or reaches past the header.
        OptionTruncated = "option_truncated",
        /// An IPv4 option says it is shorter than 2 bytes.
        OptionLength = "option_length",
        /// The LMS option has a wrong length.
        LmsLength = "lms_length",
        /// The LMS option's sub-option is neither request nor dmcast.
        LmsSubOption = "lms_sub_option",
        /// The LMS option's sub-option has a wrong length.
        LmsSubOptionLength = "lms_sub_option_length",
        /// Only one of turning-point interface and address is set.
        HalfTurningPoint = "half_turning_point",
        /// Beside the LMS option there is one that is unknown here and forbids forwarding (IPv6).
        ForbiddingOption = "forbidding_option",
        /// A datagram to the port of the UDP carrier is too short, or of an unknown kind.
        Datagram = "datagram",
        /// Two LMS options in one header.
        DuplicateOption = "duplicate_option",
        /// A multicast packet carries the dmcast option with no encapsulation.
        NotEncapsulated = "not_encapsulated",
        /// A request is a fragment.
        RequestFragment = "request_fragment",
        /// The request is not addressed as its carrier does it: by an option, to the option's group.
        GroupMismatch = "group_mismatch",
        /// There is no entry for the option's source and group.
        NoEntry = "no_entry",
        /// The request arrived on an interface that is not in the entry.
        NotInEntry = "not_in_entry",
        /// A request from below had turned already (it may not come up again).
        TurnedFromBelow = "turned_from_below",
        /// A request from the parent had not turned (the source's own link, or a sibling router).
        UnturnedFromParent = "unturned_from_parent",
        /// A turned request from the parent, and there is no replier below.
        NoReplier = "no_replier",
        /// The request should go to the parent, and the entry has none.
        NoParent = "no_parent",
        /// The replier's interface has no address to write as the turning point.
        NoAddress = "no_address",
        /// The TTL is used up.
        TtlExpired = "ttl_expired",
        /// The entry's limit on requests.
        RequestRate = "request_rate",
        /// The outer packet of a dmcast is a fragment.
        OuterFragment = "outer_fragment",
        /// A dmcast to us with no turning point.
        NoTurningPoint = "no_turning_point",
        /// A dmcast to us whose turning point is another router.
        OtherTurningPoint = "other_turning_point",
        /// The inner packet is shorter than an IPv4 header, or than its header says it is long.
        InnerHeaderTruncated = "inner_header_truncated",
        /// The inner version is not 4.
        InnerVersion = "inner_version",
        /// The inner header length is below 20 bytes.
        InnerHeaderLength = "inner_header_length",
        /// The inner total length is below the inner header length.
        InnerTotalLength = "inner_total_length",
        /// The length of the inner packet does not match the outer one, or is too short for UDP.
        InnerPacketLength = "inner_packet_length",
        /// The inner header checksum is wrong.
        InnerHeaderChecksum = "inner_header_checksum",
        /// The inner packet carries an IPv4 option other than the dmcast's own, or a malformed one.
        InnerOption = "inner_option",
        /// The inner packet is a fragment.
        InnerFragment = "inner_fragment",
        /// The inner packet is not UDP.
        InnerProtocol = "inner_protocol",
        /// The inner packet is not from the option's source.
        InnerSourceMismatch = "inner_source_mismatch",
        /// The inner packet is not to the option's group.
        InnerGroupMismatch = "inner_group_mismatch",
        /// The number of the turning-point interface matches none that is downstream in the entry:
        /// guessed, out of date, or of this router before a restart.
        NotDownstream = "not_downstream",
        /// The cookie of the turning point is missing or wrong: forged, or out of date.
        Cookie = "cookie",
        /// The limit on wrong numbers of the interface that the dmcast arrived on.
        WrongNumberRate = "wrong_number_rate",
        /// The outer packet arrived on an interface that is not of the entry's tree.
        NotOnTree = "not_on_tree",
        /// The outer source is no unicast address, is this router's, or belongs to another of its links
        /// than the one that the dmcast arrived on.
        OuterSource = "outer_source",
        /// The entry is a shared tree's, and the inner source was not seen sending into it.
        SourceNotSeen = "source_not_seen",
        /// No request of this entry has turned here for which a repair is due; to a dmcast in the classic form, none in
        /// that form.
        NoCredit = "no_credit",
        /// The inner TTL is used up.
        InnerTtlExpired = "inner_ttl_expired",
        /// The entry's limit on dmcasts.
        DmcastRate = "dmcast_rate",
    }
    /// Packets dropped, by reason.
    pub type Drops;
}

/// Counters of a [`Router`](super::Router) since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Packets that were not for LMS.
    pub passed: u64,
    /// Requests sent to the parent (copies counted each).
    pub requests_to_parent: u64,
    /// Requests that turned here: the turning point was set.
    pub requests_turned: u64,
    /// Requests that had turned further up and went on to the replier.
    pub requests_to_replier: u64,
    /// Requests by datagram that are of no entry here and went on towards the source.
    pub requests_routed: u64,
    /// Dmcasts stripped and multicast.
    pub dmcasts: u64,
    /// Events dropped for newer ones because the queue was full.
    pub events_lost: u64,
    /// Packets dropped, by reason.
    pub drops: Drops,
}

impl Stats {
    pub(super) fn count_drop(&mut self, reason: DropReason) {
        self.drops.count(reason);
    }
}

impl From<HeaderError> for DropReason {
    fn from(error: HeaderError) -> Self {
        match error {
            HeaderError::Truncated => DropReason::HeaderTruncated,
            HeaderError::Version => DropReason::HeaderVersion,
            HeaderError::HeaderLength => DropReason::HeaderLength,
            HeaderError::TotalLength => DropReason::TotalLength,
            HeaderError::PacketTruncated => DropReason::PacketTruncated,
            HeaderError::Checksum => DropReason::HeaderChecksum,
        }
    }
}

impl From<OptionError> for DropReason {
    fn from(error: OptionError) -> Self {
        match error {
            OptionError::Truncated => DropReason::OptionTruncated,
            OptionError::Length => DropReason::OptionLength,
            OptionError::Duplicate => DropReason::DuplicateOption,
            OptionError::Unknown => DropReason::ForbiddingOption,
            OptionError::Lms(error) => match error {
                ParseError::Truncated | ParseError::Length => DropReason::LmsLength,
                ParseError::SubOption => DropReason::LmsSubOption,
                ParseError::SubOptionLength => DropReason::LmsSubOptionLength,
                // The other two are no error where options are searched for ours.
                ParseError::TurningPoint | ParseError::NotLms | ParseError::Experiment => {
                    DropReason::HalfTurningPoint
                }
            },
        }
    }
}

impl From<OpenError> for DropReason {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::OuterFragment => DropReason::OuterFragment,
            OpenError::OuterChecksum => DropReason::HeaderChecksum,
            OpenError::InnerLength => DropReason::InnerPacketLength,
            OpenError::InnerOption => DropReason::InnerOption,
            OpenError::Inner(error) => match error {
                HeaderError::Truncated => DropReason::InnerHeaderTruncated,
                HeaderError::Version => DropReason::InnerVersion,
                HeaderError::HeaderLength => DropReason::InnerHeaderLength,
                HeaderError::TotalLength => DropReason::InnerTotalLength,
                HeaderError::PacketTruncated => DropReason::InnerPacketLength,
                HeaderError::Checksum => DropReason::InnerHeaderChecksum,
            },
        }
    }
}

impl From<Malformed> for DropReason {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Header(error) => error.into(),
            Malformed::Option(error) => error.into(),
            Malformed::NotEncapsulated => DropReason::NotEncapsulated,
            Malformed::RequestFragment => DropReason::RequestFragment,
            Malformed::Datagram(udp::ParseError::TurningPoint) => DropReason::HalfTurningPoint,
            Malformed::Datagram(_) => DropReason::Datagram,
            Malformed::Open(error) => error.into(),
        }
    }
}

impl From<Reason> for DropReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::TurnedFromBelow => DropReason::TurnedFromBelow,
            Reason::NoReplier => DropReason::NoReplier,
            Reason::UnturnedFromParent => DropReason::UnturnedFromParent,
            Reason::NotInEntry => DropReason::NotInEntry,
        }
    }
}

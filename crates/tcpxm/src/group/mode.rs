//! Transmission modes and what moves a receiver from one to another (TCP-XM §2.1, §2.5, Figure 1).

use core::net::IpAddr;

use crate::config::GroupMode;
use crate::error::Failure;

/// How a sender reaches one receiver.
///
/// # Figure 1: transmission modes
///
/// | in mode | when | goes to |
/// | --- | --- | --- |
/// | (start) | the user asks for unicast only | [`Mode::UnicastOnly`] |
/// | (start) | the user asks for multicast only | [`Mode::MulticastOnly`] |
/// | (start) | otherwise | [`Mode::UnicastGroup`] |
/// | [`Mode::UnicastGroup`] | the SYN-ACK has no group option, or proposes a group that is not allowed ([`GroupConfig::max_alternatives`](crate::GroupConfig::max_alternatives)) | [`Mode::UnicastGroupOnly`] |
/// | [`Mode::UnicastGroup`] | the SYN-ACK has the group, or another one that is allowed | stays |
/// | [`Mode::UnicastGroup`] | feedback reaches [`FALL_FORWARD_PERCENT`], over at least [`FALL_FORWARD_SEGMENTS`] segments | [`Mode::Multicast`] |
/// | [`Mode::Multicast`] | [`FALL_BACK_LOSSES`] multicast losses with no success between or behind them, the last of them sent after the recovery from the first | [`Mode::UnicastGroup`] |
/// | [`Mode::MulticastOnly`] | the SYN-ACK has no group option | the receiver fails: [`Failure::NoMulticast`](crate::Failure::NoMulticast) |
/// | [`Mode::MulticastOnly`] | nothing but repairs has arrived for [`GroupConfig::multicast_timeout`](crate::GroupConfig::multicast_timeout), and feedback is 0 | the receiver fails: [`Failure::NoMulticast`](crate::Failure::NoMulticast) |
/// | [`Mode::MulticastOnly`] | any other number of losses | stays |
/// | any of a group | the receiver holds the group below its rate | [`Mode::UnicastOnly`], detached, for good |
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// `TX_UNICAST_ONLY`: by explicit request, or detached; not synchronized with other receivers. Also every
    /// connection that is not in a group.
    UnicastOnly,
    /// `TX_UNICAST_GROUP`: by unicast, in step with the group, and by multicast as well, until that
    /// is seen to arrive.
    UnicastGroup,
    /// `TX_MULTICAST_ONLY`: by explicit request; never falls back. A receiver that multicast does not
    /// reach fails.
    MulticastOnly,
    /// `TX_UNICAST_GROUP_ONLY`: by unicast, in step with the group; the receiver cannot get
    /// multicast.
    UnicastGroupOnly,
    /// `TX_MULTICAST`: by multicast alone; repairs by unicast, as always.
    Multicast,
}

/// Consecutive multicast losses after which a receiver falls back (TCP-XM §2.5). Those that were
/// sent before the sender gave way to the first are two at most: a full queue drops the end of a
/// flight, and that says nothing of multicast.
pub const FALL_BACK_LOSSES: u32 = 3;
/// Feedback, in per cent, at which a receiver falls forward (TCP-XM §2.5).
pub const FALL_FORWARD_PERCENT: u8 = 50;
/// Segments that feedback must be about before it is believed.
pub const FALL_FORWARD_SEGMENTS: u64 = 16;

impl Mode {
    /// Returns the mode in which a group's receivers start.
    #[must_use]
    pub const fn start(asked: GroupMode) -> Self {
        match asked {
            GroupMode::Auto => Mode::UnicastGroup,
            GroupMode::Unicast => Mode::UnicastOnly,
            GroupMode::Multicast => Mode::MulticastOnly,
        }
    }

    /// The mode after the SYN-ACK, which answers the group offered with `answer`.
    /// `served`: whether an answer that is another group can be served.
    ///
    /// # Errors
    ///
    /// [`Failure::NoMulticast`] when multicast was demanded and cannot be had.
    pub fn after_syn_ack(self, answer: Option<IpAddr>, served: bool) -> Result<Self, Failure> {
        match (self, answer.is_some() && served) {
            (Mode::UnicastGroup, false) => Ok(Mode::UnicastGroupOnly),
            (Mode::MulticastOnly, false) => Err(Failure::NoMulticast),
            (mode, _) => Ok(mode),
        }
    }

    /// The mode after feedback about at least `segments` segments, all later than the last
    /// fall-back.
    #[must_use]
    pub const fn after_feedback(self, percent: u8, segments: u64) -> Self {
        match self {
            Mode::UnicastGroup
                if percent >= FALL_FORWARD_PERCENT && segments >= FALL_FORWARD_SEGMENTS =>
            {
                Mode::Multicast
            }
            mode => mode,
        }
    }

    /// Returns the mode after this many consecutive multicast losses.
    #[must_use]
    pub const fn after_losses(self, consecutive: u32) -> Self {
        match self {
            Mode::Multicast if consecutive >= FALL_BACK_LOSSES => Mode::UnicastGroup,
            mode => mode,
        }
    }

    /// The mode after the receiver was detached for being slow.
    #[must_use]
    pub const fn after_detaching(self) -> Self {
        Mode::UnicastOnly
    }

    /// Whether new data goes to the receiver by unicast.
    #[must_use]
    pub const fn unicasts(self) -> bool {
        matches!(
            self,
            Mode::UnicastOnly | Mode::UnicastGroup | Mode::UnicastGroupOnly
        )
    }

    /// Whether new data goes to the receiver's group.
    #[must_use]
    pub const fn multicasts(self) -> bool {
        matches!(
            self,
            Mode::UnicastGroup | Mode::MulticastOnly | Mode::Multicast
        )
    }
}

/// The sender's knowledge of one receiver's multicast reception.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reception {
    /// Data from this offset on goes by multicast alone; nothing does when it is the maximum.
    multicast_from: u64,
    /// Losses since the last success (the paper's `nrtxm`).
    losses: u32,
    /// End of the sent data when the last loss was found that a full queue may have caused.
    found: u64,
    highest: u64,
    /// Last feedback (the paper's `msegstper`).
    percent: Option<u8>,
    /// Segments from this offset on are later than the last fall-back.
    since: u64,
    fell_back: bool,
}

impl Reception {
    pub(crate) const fn new() -> Self {
        Self {
            multicast_from: u64::MAX,
            losses: 0,
            found: 0,
            highest: 0,
            percent: None,
            since: 0,
            fell_back: false,
        }
    }

    /// Data from `offset` on goes by multicast alone.
    pub(crate) fn begin_multicast(&mut self, offset: u64) {
        self.multicast_from = offset;
        self.losses = 0;
    }

    pub(crate) fn fall_back(&mut self, offset: u64) {
        *self = Self {
            since: offset,
            fell_back: true,
            percent: self.percent,
            ..Self::new()
        };
    }

    pub(crate) fn multicast_from(&self) -> u64 {
        self.multicast_from
    }

    pub(crate) fn percent(&self) -> Option<u8> {
        self.percent
    }

    pub(crate) fn losses(&self) -> u32 {
        self.losses
    }

    /// Something that went by multicast alone has arrived, up to `end`.
    pub(crate) fn multicast_success(&mut self, end: u64) {
        self.losses = 0;
        self.highest = self.highest.max(end);
    }

    /// Behind the last byte that is known to have come by multicast.
    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }

    /// Records `segments` consecutive lost segments from `offset` on. `sent`: their end, and the end of all sent
    /// data; `begins`: no recovery is in progress.
    ///
    /// A full queue drops the end of a flight, any number of segments, and then some of what is sent before the
    /// sender reduces its rate: two losses at most. The third is one of later data.
    pub(crate) fn multicast_losses(
        &mut self,
        segments: u64,
        offset: u64,
        sent: (u64, u64),
        begins: bool,
    ) {
        if offset < self.multicast_from {
            return;
        }
        let (end, nxt) = sent;
        let later = self.losses > 0 && begins && end > self.found;
        let segments = u32::try_from(segments).unwrap_or(u32::MAX);
        let losses = self.losses.saturating_add(segments);
        if later {
            self.losses = losses;
        } else {
            self.losses = losses.min(self.losses.max(FALL_BACK_LOSSES - 1));
            self.found = nxt;
        }
    }

    /// Feedback that came with an acknowledgement up to `una`. Says how many segments, all later
    /// than the last fall-back, it is about.
    ///
    /// The receiver reports on its last 128 segments and knows nothing of a fall-back: after one, its report
    /// counts only when 128 later segments have arrived.
    pub(crate) fn feedback(&mut self, percent: u8, una: u64, payload: u64) -> u64 {
        self.percent = Some(percent);
        let segments = una.saturating_sub(self.since) / payload;
        if self.fell_back && segments < 128 {
            return 0;
        }
        segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Option<IpAddr> = Some(IpAddr::V4(core::net::Ipv4Addr::new(239, 192, 0, 1)));
    const ALL: [Mode; 5] = [
        Mode::UnicastOnly,
        Mode::UnicastGroup,
        Mode::MulticastOnly,
        Mode::UnicastGroupOnly,
        Mode::Multicast,
    ];

    #[test]
    fn every_pair_of_mode_and_cause_leads_where_the_table_says() {
        use Mode::*;
        let after = |mode: Mode| {
            (
                mode.after_syn_ack(None, true),
                mode.after_syn_ack(GROUP, true),
                mode.after_syn_ack(GROUP, false),
                mode.after_feedback(50, 16),
                mode.after_losses(3),
            )
        };
        let stay = |mode| (Ok(mode), Ok(mode), Ok(mode), mode, mode);
        assert_eq!(after(UnicastOnly), stay(UnicastOnly));
        assert_eq!(after(UnicastGroupOnly), stay(UnicastGroupOnly));
        let (only, group) = (UnicastGroupOnly, UnicastGroup);
        assert_eq!(
            after(group),
            (Ok(only), Ok(group), Ok(only), Multicast, group)
        );
        let no = Err(Failure::NoMulticast);
        assert_eq!(
            after(MulticastOnly),
            (no, Ok(MulticastOnly), no, MulticastOnly, MulticastOnly)
        );
        let multicast = Multicast;
        assert_eq!(
            after(multicast),
            (
                Ok(multicast),
                Ok(multicast),
                Ok(multicast),
                multicast,
                group
            )
        );
    }

    #[test]
    fn thresholds() {
        for mode in ALL {
            assert_eq!(mode.after_feedback(49, 1000), mode);
            assert_eq!(mode.after_feedback(100, 15), mode);
            assert_eq!(mode.after_losses(2), mode);
            assert_eq!(mode.after_detaching(), Mode::UnicastOnly);
        }
    }

    #[test]
    fn a_success_between_losses_starts_the_count_again() {
        let mut reception = Reception::new();
        reception.begin_multicast(1000);
        reception.multicast_losses(2, 1000, (1200, 1500), true);
        reception.multicast_success(1500);
        reception.multicast_losses(2, 3000, (3200, 4000), true);
        assert_eq!(reception.losses(), 2);
        reception.multicast_losses(1, 5000, (5100, 6000), true);
        assert_eq!(reception.losses(), 3);
    }

    #[test]
    fn the_third_loss_was_sent_after_the_recovery_from_the_first() {
        let mut reception = Reception::new();
        reception.begin_multicast(1000);
        reception.multicast_losses(9, 1000, (2000, 2500), true);
        reception.multicast_losses(5, 1000, (2500, 3000), false);
        // A recovery of its own, of earlier data.
        reception.multicast_losses(5, 2500, (3000, 3000), true);
        assert_eq!(reception.losses(), 2);
        reception.multicast_losses(1, 3000, (3100, 3200), true);
        assert_eq!(reception.losses(), 3);
    }

    #[test]
    fn losses_of_what_went_by_unicast_do_not_count() {
        let mut reception = Reception::new();
        reception.multicast_losses(9, 0, (900, 900), true);
        reception.begin_multicast(1000);
        reception.multicast_losses(9, 999, (1900, 1900), true);
        assert_eq!(reception.losses(), 0);
    }

    #[test]
    fn feedback_from_before_a_fall_back_does_not_count() {
        let mut reception = Reception::new();
        assert_eq!(reception.feedback(50, 1600, 100), 16);
        reception.fall_back(2000);
        assert_eq!(reception.feedback(90, 2000 + 12_700, 100), 0);
        assert_eq!(reception.feedback(60, 2000 + 12_800, 100), 128);
        assert_eq!(reception.percent(), Some(60));
    }
    #[test]
    fn the_table_of_what_goes_where() {
        let rows = ALL.map(|mode| (mode.unicasts(), mode.multicasts()));
        let [only, both, neither] = [(true, false), (true, true), (false, true)];
        assert_eq!(rows, [only, both, neither, only, neither]);
        let asked = [GroupMode::Auto, GroupMode::Unicast, GroupMode::Multicast];
        let expected = [Mode::UnicastGroup, Mode::UnicastOnly, Mode::MulticastOnly];
        assert_eq!(asked.map(Mode::start), expected);
    }

    #[test]
    fn the_first_byte_by_multicast_alone_counts() {
        let mut reception = Reception::new();
        reception.begin_multicast(1000);
        assert_eq!(reception.multicast_from(), 1000);
        reception.multicast_losses(1, 1000, (1100, 1200), true);
        assert_eq!(reception.losses(), 1);
        reception.begin_multicast(2000);
        assert_eq!(reception.losses(), 0, "another attempt");
    }

    #[test]
    fn after_a_fall_back_nothing_is_known() {
        let mut reception = Reception::new();
        reception.feedback(70, 1600, 100);
        reception.begin_multicast(1000);
        reception.multicast_success(1500);
        reception.multicast_success(1200);
        assert_eq!(reception.highest(), 1500);
        reception.multicast_losses(1, 2000, (2100, 3000), true);
        reception.fall_back(3000);
        reception.multicast_losses(1, 4000, (4100, 5000), true);
        assert_eq!((reception.losses(), reception.highest()), (0, 0));
        assert_eq!(reception.percent(), Some(70), "what the receiver said last");
    }
}

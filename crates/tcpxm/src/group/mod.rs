//! The group around a sender's protocol control blocks (TCP-XM §2.1, §2.5).
//!
//! [`Mode`] has the table of modes and transitions.
//!
//! # What goes where
//!
//! | mode | new data | repairs | in step with the group |
//! | --- | --- | --- | --- |
//! | [`Mode::UnicastOnly`] | unicast | unicast | no |
//! | [`Mode::UnicastGroup`] | unicast and multicast | unicast | yes |
//! | [`Mode::UnicastGroupOnly`] | unicast | unicast | yes |
//! | [`Mode::Multicast`], [`Mode::MulticastOnly`] | multicast | unicast; multicast where several lack the same | yes |
//!
//! One multicast copy serves all receivers of a group, whatever their number; it is sent as long as one may
//! listen. In step means: the same bytes at the same time, within the intersection of all windows (§2.1, step
//! 12); of congestion windows, that of the receiver with the lowest rate counts (`endpoint/representative.rs`).
//!
//! # Counting
//!
//! A multicast loss is a segment that was sent to a receiver by multicast alone and that its acknowledgements,
//! a timeout, or the answer to a probe show to be lost. Of several losses in one acknowledgement, those count
//! that are consecutive with nothing received between them, and nothing by multicast after them: a queue that overflows drops many
//! in a row, and later arrivals show that multicast works. Feedback is the receiver's report on its last 128
//! segments. The receiver does not know of a fall-back, so its report counts again when 128 later segments were
//! acknowledged.

pub(crate) mod flow;
pub(crate) mod mode;
pub(crate) mod repairs;
mod session;
mod turns;
mod unreached;

pub(crate) use flow::{Blocked, Copy, Flow};
pub(crate) use mode::Reception;
pub use mode::{FALL_BACK_LOSSES, FALL_FORWARD_PERCENT, FALL_FORWARD_SEGMENTS, Mode};
pub(crate) use repairs::Turn;
pub(crate) use session::{Buffer, GroupState, RATE_CHECK, RATE_SAMPLE, Session, Watch};
pub(crate) use turns::Pace;
pub(crate) use unreached::Unreached;

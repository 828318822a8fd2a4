//! Losses decided by a test.

use crate::trace::Record;

/// Decision of a script about a packet that is sent on a link, see [`Sim::script`](crate::Sim::script).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The link's own [`Loss`](crate::Loss) decides.
    Chance,
    /// The packet is lost. It has used the link's time, and counts as lost.
    Lose,
    /// The packet is not lost at random, and the link draws no random number. A full queue, an MTU or a failed link
    /// still drop it.
    Pass,
}

pub(crate) type Script = Box<dyn FnMut(&Record<'_>) -> Disposition>;

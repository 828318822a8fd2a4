//! Losses that a test decides by itself.

use crate::trace::Record;

/// What a script says about a packet that is handed to a link: see
/// [`Sim::script`](crate::Sim::script).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The link's own [`Loss`](crate::Loss) decides.
    Chance,
    /// It is lost. It has used the link's time, and counts as lost.
    Lose,
    /// It is not lost at random, and the link's luck stays as it was. A full queue, an MTU or a
    /// failed link still drop it.
    Pass,
}

pub(crate) type Script = Box<dyn FnMut(&Record<'_>) -> Fate>;

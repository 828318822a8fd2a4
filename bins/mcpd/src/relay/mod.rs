//! Links to other hosts of a copy: blocks come from a feeder, and go to children.
//!
//! | module | contents |
//! | --- | --- |
//! | [`shelf`] | the blocks that are verified, for the threads that serve children |
//! | [`links`] | the links of one copy, and the feeders that are expected |
//! | [`island`] | passes blocks on by multicast, and receives those that another host multicasts |
//! | [`pull`] | requests missing blocks from the feeder, and stores its answers |

pub(crate) mod island;
pub(crate) mod links;
pub(crate) mod pull;
pub(crate) mod shelf;

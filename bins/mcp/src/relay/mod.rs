//! Hosts that relay to hosts: the arrangement, and the blocks that this side feeds.
//!
//! | module | contents |
//! | --- | --- |
//! | [`arrange`] | which host feeds which |
//! | [`stock`] | the blocks that the sender has read, for the hosts that it feeds itself |

pub(crate) mod arrange;
pub(crate) mod stock;

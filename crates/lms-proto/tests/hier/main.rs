//! LMS-HIER: who is elected, what hosts and routers tell each other, what they refuse.

mod common;
mod election;
mod endpoint;
mod forged;
mod hostile;
#[path = "../../../igmp/tests/igmp/packets.rs"]
mod igmp_common;
mod link;
mod memory;
mod refused;
mod wire;

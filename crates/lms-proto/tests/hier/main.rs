//! LMS-HIER: election, messages between hosts and routers, refused messages.

mod adverts;
mod common;
mod election;
mod endpoint;
mod forged;
mod hostile;
#[path = "../../../igmp/tests/igmp/packets.rs"]
mod igmp_common;
mod link;
mod memory;
mod queries;
mod received;
mod refused;
mod tables;
mod wire;

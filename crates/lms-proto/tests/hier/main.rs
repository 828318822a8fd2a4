//! LMS-HIER and IGMP: who is elected, what hosts and routers tell each other, what they refuse.

mod common;
mod election;
mod endpoint;
mod forged;
mod hostile;
mod igmp_common;
mod igmp_hostile;
mod igmp_member;
mod igmp_querier;
mod link;
mod memory;
mod refused;
mod wire;

//! IGMPv3: querier, member, proxy, wire format.

mod common;
mod hostile;
mod member;
mod memory;
mod packets;
mod querier;
mod refused;
mod wire;

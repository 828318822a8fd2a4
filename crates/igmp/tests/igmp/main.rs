//! IGMPv3 and MLDv2: querier, member, proxy, wire formats. What both have in common is tested with each of them.

mod ipv4;
mod ipv6;
mod memory;
mod mld;
mod oracle;
mod packets;
mod wire;

//! IGMPv3 (RFC 3376) with the replier cost in its reports: querier, member and proxy.

pub mod datagram;

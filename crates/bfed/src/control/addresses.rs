//! Addresses that peers may name in JOIN and TRANSLATION.
//!
//! This gateway's data nodes dial and probe the addresses that a peer names, so a peer may name its own data nodes
//! only:
//!
//! | [`PeerConfig::data_prefixes`](crate::PeerConfig::data_prefixes) | the peer's address | allowed |
//! | --- | --- | --- |
//! | some | | addresses in one of them |
//! | none | known, by [`ControlNode::set_peer_address`] | that address |
//! | none | not known | all but those of this host and of this link |
//!
//! A JOIN that names another address is answered with NO_ROUTE, and a TRANSLATION with LEAVE: the peer is excluded.

use core::net::IpAddr;

use super::ControlNode;
use crate::coordination::Coordinator;
use crate::prefix::{Prefix, is_beyond_this_link};
use crate::types::{ChannelAddress, PeerId};
use crate::wire::join::FlowChannel;

impl<C: Coordinator> ControlNode<C> {
    /// Sets the address of the other end of a peer's stream. Call it before [`connected`](ControlNode::connected).
    pub fn set_peer_address(&mut self, id: PeerId, address: IpAddr) {
        if let Some(state) = self.peers.get_mut(&id) {
            state.address = Some(address);
        }
    }

    /// Returns whether a peer may name these channels.
    pub(super) fn may_name(&self, id: PeerId, flows: &[FlowChannel]) -> bool {
        let Some(state) = self.peers.get(&id) else {
            return false;
        };
        let prefixes = &state.config.data_prefixes;
        let fits = |address: IpAddr| match (&prefixes[..], state.address) {
            ([], None) => is_beyond_this_link(address),
            ([], Some(own)) => Prefix::host(own).contains(address),
            (prefixes, _) => prefixes.iter().any(|prefix| prefix.contains(address)),
        };
        flows.iter().all(|flow| match &flow.address {
            ChannelAddress::Datagram(to)
            | ChannelAddress::Stream(to)
            | ChannelAddress::Quic(to, _) => fits(to.ip()),
            ChannelAddress::Native(_) => true,
        })
    }
}

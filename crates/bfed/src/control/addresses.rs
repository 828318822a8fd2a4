//! Which addresses peers may name in JOIN and TRANSLATION.
//!
//! This gateway's data nodes dial and probe what a peer names, so a peer names its own data nodes alone:
//!
//! | [`PeerConfig::data_prefixes`](crate::PeerConfig::data_prefixes) | the peer's address | it may name |
//! | --- | --- | --- |
//! | some | | addresses in one of them |
//! | none | known, by [`ControlNode::set_peer_address`] | that address |
//! | none | not known | any but those of this host and of this link |
//!
//! A JOIN that names another address is answered by NO_ROUTE, and a TRANSLATION by LEAVE: the peer is
//! passed over.

use core::net::IpAddr;

use super::ControlNode;
use crate::coordination::Coordinator;
use crate::prefix::{Prefix, is_beyond_this_link};
use crate::types::{ChannelAddress, PeerId};
use crate::wire::join::FlowChannel;

impl<C: Coordinator> ControlNode<C> {
    /// Says where a peer's stream comes from, or goes to; call it before
    /// [`connected`](ControlNode::connected).
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
            ChannelAddress::Datagram(to) | ChannelAddress::Stream(to) => fits(to.ip()),
            ChannelAddress::Native(_) => true,
        })
    }
}

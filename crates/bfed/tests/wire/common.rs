//! What several tests need.

use bfed::wire::join::FlowChannel;
use bfed::wire::sroute::GatewayCost;
use bfed::{ChannelAddress, Cost, FlowLabel, GatewayId, SessionName};

pub(crate) fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

pub(crate) fn gateway(network: u32, number: u32) -> GatewayId {
    GatewayId::new(network, number).unwrap()
}

pub(crate) fn cost(network: u32, number: u32, cost: u32) -> GatewayCost {
    GatewayCost {
        gateway: gateway(network, number),
        cost: Cost(cost),
    }
}

pub(crate) fn channel(label: u32, address: ChannelAddress) -> FlowChannel {
    FlowChannel {
        label: FlowLabel::new(label),
        address,
    }
}

pub(crate) fn name() -> SessionName {
    SessionName::parse("bfed://7/m").unwrap()
}

pub(crate) fn conference() -> SessionName {
    SessionName::parse("bfed://isp.net/224.5.6.7/8888/8889/?content=RTP&multi-source=true").unwrap()
}

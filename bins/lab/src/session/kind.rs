//! The version of IP that a session uses, and how LMS's messages travel: options of scenarios and of the demo.

use std::net::{Ipv6Addr, SocketAddrV6};

use clap::ValueEnum;

use crate::prelude::*;

/// A version of IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ip {
    /// IPv4
    #[default]
    #[value(name = "4")]
    V4,
    /// IPv6
    #[value(name = "6")]
    V6,
}

impl Ip {
    /// Gives a network addresses of this version too; IPv4 ones it has in any case.
    pub(crate) fn addresses(self, plan: Plan) -> Plan {
        match self {
            Ip::V4 => plan,
            Ip::V6 => plan.with_ipv6(),
        }
    }

    /// A source-specific group of this version.
    pub(crate) fn group(self) -> SocketAddr {
        const PORT: u16 = 5_001;
        match self {
            Ip::V4 => SocketAddrV4::new(Ipv4Addr::new(232, 1, 1, 1), PORT).into(),
            Ip::V6 => {
                let group = Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0x8000, 1);
                SocketAddrV6::new(group, PORT, 0, 0).into()
            }
        }
    }
}

/// How requests and repairs travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Carrier {
    /// By IP options, and by UDP where those are not answered
    #[default]
    Option,
    /// By UDP, to a port of their own
    Udp,
}

impl Carrier {
    /// `--assist` of hosts that LMS routers help.
    pub(crate) fn assist(self) -> &'static str {
        match self {
            Carrier::Option => "lms",
            Carrier::Udp => "lms+udp",
        }
    }
}

//! The data connection: one stream to all receivers over TCP-XM, encrypted or not.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail};
use linux_net::link::{self, Interface};
use linux_net::{Capability, privileges};
use mcp_control::wire::plan::Carrier;
use mcp_control::{Digest, Layout};
use tcpxm_tokio::seal::{Output, segment_key};
use tcpxm_tokio::{
    Config, CongestionControl, ConnStats, Failure, GroupChoice, GroupConfig, GroupEvent,
    GroupHandle, GroupMode, Mode, State, XmEndpoint, XmGroup,
};
use tokio::sync::mpsc;

use crate::args::{self, Args, MinRate};
use crate::copy::{MIN_ROUND_TRIP, Reach};
use crate::host::routing_hint;
use crate::resend::{Resend, Sent};
use crate::tree::Tree;

/// RFC 6298 §2.1.
const LONGEST_FIRST_TIMEOUT: Duration = Duration::from_secs(1);
/// Size of the send buffer; receivers that are not in step get older data from the files.
const SEND_BUFFER: usize = 16 << 20;
/// Largest IP packet, unless the MTU of the interface is smaller.
const MTU: usize = 1500;
/// Connection timeout of the data connection: three attempts, of which the last waits longest.
const CONNECT: Duration = Duration::from_secs(5);

/// The options of the data connection.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) sealed: bool,
    pub(crate) carrier: Carrier,
    group: Option<IpAddr>,
    mode: args::Mode,
    interface: Option<Interface>,
    /// The address that named the interface, if it was named so.
    address: Option<IpAddr>,
    ttl: u8,
    rate_bps: Option<u64>,
    pub(crate) min_rate: MinRate,
    /// Hosts may feed hosts.
    pub(crate) relay: bool,
    control: CongestionControl,
    gso: bool,
    timeout: Duration,
}

impl Options {
    pub(crate) fn new(args: &Args, sealed: bool) -> anyhow::Result<Options> {
        let interface = args
            .interface
            .as_deref()
            .map(link::find_named)
            .transpose()?;
        if let Some(Interface { name, .. }) = interface.as_ref().filter(|found| !found.is_up) {
            bail!("interface {name} is down: `ip link set {name} up`");
        }
        let carrier = match args.carrier {
            args::Carrier::Udp => Carrier::Udp,
            args::Carrier::Ip => Carrier::Ip,
        };
        if carrier == Carrier::Ip && !privileges::has(Capability::NetRaw) {
            bail!(NO_RAW);
        }
        Ok(Options {
            sealed,
            carrier,
            group: args.group,
            mode: args.mode,
            address: args.interface.as_deref().and_then(|name| name.parse().ok()),
            interface,
            ttl: args.ttl,
            rate_bps: args.rate.bits(),
            min_rate: args.min_rate,
            relay: !args.no_relay,
            control: match args.congestion {
                args::CongestionControl::Cubic => CongestionControl::Cubic,
                args::CongestionControl::Newreno => CongestionControl::NewReno,
                args::CongestionControl::Bbr => CongestionControl::Bbr,
            },
            gso: !args.no_gso,
            timeout: args.timeout(),
        })
    }

    /// Returns whether data may only come by multicast, and whether it never does.
    pub(crate) fn multicast(&self) -> (bool, bool) {
        let (only, never) = (args::Mode::Multicast, args::Mode::Unicast);
        (self.mode == only, self.mode == never)
    }

    /// Returns `--rate` in bits per second.
    pub(crate) fn rate_bps(&self) -> Option<u64> {
        self.rate_bps
    }

    /// Returns the first transmission mode of the hosts.
    pub(crate) fn first_mode(&self) -> &'static str {
        name(match self.mode {
            args::Mode::Auto => Mode::UnicastGroup,
            args::Mode::Unicast => Mode::UnicastOnly,
            args::Mode::Multicast => Mode::MulticastOnly,
        })
    }

    /// Returns the options for hosts whose data connection failed: unicast, which third parties cannot disturb.
    pub(crate) fn without_multicast(&self) -> Options {
        Options {
            mode: match self.mode {
                args::Mode::Multicast => args::Mode::Multicast,
                args::Mode::Auto | args::Mode::Unicast => args::Mode::Unicast,
            },
            ..self.clone()
        }
    }

    /// Returns the addresses to connect to hosts from; none: chosen by the routes. Over IP the data comes from
    /// one address, which each host expects to be that of its control connection.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        match (self.carrier, self.address, &self.interface) {
            (Carrier::Ip, Some(address), _) => vec![address],
            (Carrier::Ip, None, Some(interface)) => {
                let first = interface.addresses.first();
                first
                    .map(|first| first.address.into())
                    .into_iter()
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the group offered to the receivers: the given one, or a random one of 239.192.0.0/14 (RFC 2365
    /// §6.2) or ff18::/16 (RFC 7346, organisation-local), with a group identifier as in RFC 3307 §4.3.
    pub(crate) fn group(&self, ipv6: bool) -> io::Result<Option<IpAddr>> {
        if self.mode == args::Mode::Unicast {
            return Ok(None);
        }
        if self.group.is_some() {
            return Ok(self.group);
        }
        let seed = linux_net::process::random::<32>()?;
        if ipv6 {
            let mut octets = [0; 16];
            octets.copy_from_slice(&seed[..16]);
            (octets[0], octets[1]) = (0xff, 0x18);
            octets[12] |= 0x80;
            return Ok(Some(Ipv6Addr::from(octets).into()));
        }
        let group = Ipv4Addr::new(239, 192 | seed[0] & 3, seed[1], seed[2]);
        Ok(Some(group.into()))
    }
}

const NO_RAW: &str = "--carrier ip needs CAP_NET_RAW: run as root, or grant it with \
                      `setcap cap_net_raw+ep` on this program, or take --carrier udp";

/// The port from which data is sent.
#[derive(Debug)]
pub(crate) struct Reservation(XmEndpoint, Carrier);

impl Reservation {
    /// Reserves a port to send from. `locals` are this host's addresses on its control connections, all of one
    /// version of IP. A single address is that of the data too; otherwise the routes choose the address for
    /// each receiver. Multicast is sent on the configured interface, or that of the first connection.
    pub(crate) fn new(options: &Options, locals: &[SocketAddr]) -> anyhow::Result<Reservation> {
        let addresses: BTreeSet<IpAddr> = locals.iter().map(SocketAddr::ip).collect();
        let none = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let first = addresses.first().copied().unwrap_or(none);
        let bind = match (addresses.len(), first) {
            (1, first) => first,
            (_, IpAddr::V4(_)) => none,
            (_, IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        };
        if options.carrier == Carrier::Ip && addresses.len() > 1 {
            let list: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
            bail!(
                "hosts are reached from several addresses of this host ({}): with --carrier ip all \
                 data comes from one, name it with --interface",
                list.join(", ")
            );
        }
        let mut config = Config::new(SocketAddr::new(bind, 0));
        config.ttl = options.ttl;
        config.segmentation_offload = options.gso;
        config.machine.carrier = match options.carrier {
            Carrier::Udp => tcpxm_tokio::Carrier::Udp,
            Carrier::Ip => tcpxm_tokio::Carrier::Ip,
        };
        config.machine.send_buffer = SEND_BUFFER;
        config.machine.congestion_control = options.control;
        let scope = locals.iter().find_map(|local| match local {
            SocketAddr::V6(local) => Some(local.scope_id()).filter(|&scope| scope != 0),
            SocketAddr::V4(_) => None,
        });
        let routed = match scope {
            Some(scope) => link::list()?.into_iter().find(|found| found.index == scope),
            None => link::find(&first.to_string()).ok(),
        };
        if let Some(interface) = options.interface.clone().or(routed) {
            config.interface = interface.index;
            let mtu = (interface.mtu as usize).clamp(576, MTU);
            config.machine.mtu = u16::try_from(mtu).unwrap_or(576);
        }
        let endpoint = XmEndpoint::open(&config).map_err(|error| anyhow!(routing_hint(&error)))?;
        Ok(Reservation(endpoint, options.carrier))
    }

    /// Returns whether data can come from here to hosts that are reached from these addresses.
    pub(crate) fn fits(&self, locals: &[SocketAddr]) -> bool {
        let bound = self.0.local_address().ip();
        let fits = |local: &SocketAddr| match bound.is_unspecified() {
            true => local.is_ipv4() == bound.is_ipv4(),
            false => local.ip() == bound,
        };
        locals.iter().all(fits)
    }

    pub(crate) fn counter(&self) -> Counter {
        Counter(self.0.clone())
    }

    pub(crate) fn carrier(&self) -> Carrier {
        self.1
    }

    pub(crate) fn is_ipv6(&self) -> bool {
        self.0.local_address().is_ipv6()
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.local_address().port()
    }
}

/// Counts what is sent from a reserved port.
#[derive(Debug)]
pub(crate) struct Counter(XmEndpoint);

impl Counter {
    /// Returns the bytes of segments that were sent so far, all copies counted.
    pub(crate) fn sent(&self) -> u64 {
        let stats = self.0.stats().machine;
        stats.unicast_bytes_sent + stats.multicast_bytes_sent
    }
}

/// An event of one receiver, numbered as in the data connection.
#[derive(Debug)]
pub(crate) enum DataEvent {
    Mode(usize, &'static str),
    Detached(usize),
    Failed(usize, Failure),
}

/// Observes and fails receivers while another thread writes.
#[derive(Debug, Clone)]
pub(crate) struct Handle(GroupHandle);

impl Handle {
    pub(crate) fn drop_receiver(&self, receiver: usize) {
        self.0.abort(receiver);
    }

    /// Serves a receiver separately from now on; returns whether it was in step with others.
    pub(crate) fn detach(&self, receiver: usize) -> bool {
        self.0.detach(receiver)
    }

    /// Returns the state of a receiver; `None` when its connection has ended.
    pub(crate) fn reach(&self, receiver: usize) -> Option<Reach> {
        let stats = self.0.stats(receiver)?;
        let round_trip = stats.smoothed_rtt;
        let round_trip = round_trip.map(|time| Duration::from_micros(time.total_micros()));
        let (allowed, in_use) = congestion(&stats, round_trip);
        let closed = stats.outstanding + stats.payload as u64 > stats.send_window;
        let connecting = matches!(stats.state, State::SynSent | State::SynReceived);
        Some(Reach {
            acknowledged: stats.acknowledged,
            is_connecting: connecting,
            is_due: connecting || stats.outstanding > 0,
            is_full: connecting || closed || in_use,
            in_step: connecting || stats.mode != Mode::UnicastOnly,
            window: allowed.min(stats.send_window),
            round_trip,
            is_unicast: stats.mode.unicasts(),
            is_multicast: stats.mode.multicasts(),
        })
    }
}

/// Returns how many bytes congestion control lets be on their way to a receiver, and whether they are. With BBR that is
/// not the window, which is twice what the path carries, but what it has measured, where it governs the rate.
fn congestion(stats: &ConnStats, round_trip: Option<Duration>) -> (u64, bool) {
    match (stats.bandwidth_bps, round_trip) {
        (Some(bandwidth), Some(round_trip)) => {
            let round_trip_us = round_trip.max(MIN_ROUND_TRIP).as_micros() as u64;
            let carried = (bandwidth / 8).saturating_mul(round_trip_us) / 1_000_000;
            (carried, stats.governs && stats.outstanding * 2 >= carried)
        }
        _ => {
            let window = stats.congestion_window;
            (window, stats.outstanding + stats.payload as u64 > window)
        }
    }
}

/// Explains why a host's data connection failed.
pub(crate) fn explain(failure: Failure, carrier: Carrier) -> String {
    let firewall = match carrier {
        Carrier::Udp => "does a firewall drop UDP?",
        Carrier::Ip => "does a firewall drop protocol 6 from other programs than the kernel?",
    };
    match failure {
        Failure::ConnectTimeout => format!("no answer to the data connection: {firewall}"),
        Failure::Timeout => "stopped answering on the data connection".to_owned(),
        Failure::NoMulticast => {
            "multicast does not reach it, and --mode multicast is given".to_owned()
        }
        Failure::Reset => "the host has ended the data connection".to_owned(),
        other => other.to_string(),
    }
}

/// The receivers of a data connection.
pub(crate) struct Receivers {
    pub(crate) addresses: Vec<IpAddr>,
    /// The same on all of them.
    pub(crate) port: u16,
    /// The longest time that one of their control connections took to open.
    pub(crate) longest_connect: Option<Duration>,
}

/// Returns how long to wait for the first answer of a host whose control connection opened in this time: as RFC 6298
/// §2.2 after one sample, and no more than without any.
fn first_timeout(connect: Duration) -> mcp_control::Duration {
    let timeout = (connect * 3).min(LONGEST_FIRST_TIMEOUT);
    mcp_control::Duration::from_micros(timeout.as_micros() as u64)
}

/// The stream to all receivers.
pub(crate) struct Outgoing {
    group: XmGroup,
    output: Output,
    sent: Sent,
}

impl Outgoing {
    pub(crate) fn open(
        reservation: &Reservation,
        options: &Options,
        receivers: Receivers,
        group: Option<IpAddr>,
        key: Option<[u8; 32]>,
        what: (Arc<Tree>, Arc<Layout>),
    ) -> io::Result<(Outgoing, Handle, mpsc::UnboundedReceiver<DataEvent>)> {
        let endpoint = &reservation.0;
        let local = endpoint.local_address();
        let mut config = GroupConfig::new(local, receivers.addresses, receivers.port);
        config.initial_rto = receivers.longest_connect.map(first_timeout);
        config.mode = match options.mode {
            args::Mode::Auto => GroupMode::Auto,
            args::Mode::Unicast => GroupMode::Unicast,
            args::Mode::Multicast => GroupMode::Multicast,
        };
        if let Some(group) = group {
            config.group = GroupChoice::Given(group);
        }
        config.min_rate_bps = options.min_rate.bits();
        config.max_rate_bps = options.rate_bps;
        let timeout = options.timeout.min(CONNECT).as_millis() as u64;
        config.connect_timeout = mcp_control::Duration::from_millis(timeout);
        config.key = key.as_ref().map(segment_key);
        let (tree, layout) = what;
        let sent = Sent::default();
        let resend = Resend::new(tree, layout, sent.clone(), key.as_ref());
        let group = endpoint.open_archived_group(config, Box::new(resend))?;
        let handle = group.handle();
        let events = forward(group.handle());
        let outgoing = Outgoing {
            group,
            output: Output::new(key.as_ref()),
            sent,
        };
        Ok((outgoing, Handle(handle), events))
    }

    /// Records the digest of a block that was written.
    pub(crate) fn wrote(&self, digest: Digest) {
        self.sent.push(digest);
    }

    /// Sends a piece of one record at most.
    pub(crate) fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.output.write_all(&mut self.group, piece)
    }

    /// Waits until each receiver has everything, or has failed.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.group.finish()?;
        self.group.wait_delivered().map(|_| ())
    }
}

/// Forwards the events of a group.
fn forward(handle: GroupHandle) -> mpsc::UnboundedReceiver<DataEvent> {
    let (to, events) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(event) = handle.next_event().await {
            let event = match event {
                GroupEvent::Mode(receiver, mode) => DataEvent::Mode(receiver, name(mode)),
                GroupEvent::Detached(receiver) => DataEvent::Detached(receiver),
                GroupEvent::Closed(receiver, Some(failure)) => DataEvent::Failed(receiver, failure),
                GroupEvent::Closed(_, None) | GroupEvent::Delivered(_) => continue,
            };
            if to.send(event).is_err() {
                return; // The copy is over.
            }
        }
    });
    events
}

fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::UnicastOnly => "unicast_only",
        Mode::UnicastGroup => "unicast_group",
        Mode::MulticastOnly => "multicast_only",
        Mode::UnicastGroupOnly => "unicast_group_only",
        Mode::Multicast => "multicast",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_timeout_is_three_round_trips_and_a_second_at_most() {
        let of = |ms| first_timeout(Duration::from_millis(ms)).total_millis();
        assert_eq!([0, 20, 333, 334, 60_000].map(of), [0, 60, 999, 1000, 1000]);
    }
}

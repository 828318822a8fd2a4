//! The data connection: one stream to all receivers over TCP-XM, sealed or not.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use anyhow::anyhow;
use cli::multicast::{self, Local};
use tcpxm_tokio::seal::Sealer;
use tcpxm_tokio::{
    Config, CongestionControl, GroupChoice, GroupConfig, GroupEvent, GroupHandle, GroupMode, Mode,
    XmEndpoint, XmGroup,
};
use tokio::sync::mpsc;

use crate::args::{self, Args};

/// Sent bytes that are kept until everybody has them.
const SEND_BUFFER: usize = 16 << 20;
/// Largest IP packet, unless the interface takes less.
const MTU: usize = 1500;

/// What the command line says about the data connection.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) sealed: bool,
    group: Option<Ipv4Addr>,
    mode: args::Mode,
    local: Option<Local>,
    ttl: u8,
    rate_bps: Option<u64>,
    min_rate_bps: Option<u64>,
    control: CongestionControl,
    patience: Duration,
}

/// Where the group is looked up for an interface; which one it is does not matter.
const ANY_GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 192, 0, 1), 1);

impl Options {
    pub(crate) fn new(args: &Args, sealed: bool) -> anyhow::Result<Options> {
        let interface = args.interface.as_deref();
        let local = interface.map(|name| multicast::local(ANY_GROUP, Some(name), None));
        Ok(Options {
            sealed,
            group: args.group,
            mode: args.mode,
            local: local.transpose().map_err(|message| anyhow!(message))?,
            ttl: args.ttl,
            rate_bps: args.rate.bits(),
            min_rate_bps: args.min_rate.map(|rate| rate.0),
            control: match args.cc {
                args::CongestionControl::Cubic => CongestionControl::Cubic,
                args::CongestionControl::Newreno => CongestionControl::NewReno,
            },
            patience: args.patience(),
        })
    }

    /// For hosts whose data connection failed: to each by itself, where nobody else can reach.
    pub(crate) fn without_multicast(&self) -> Options {
        Options {
            mode: match self.mode {
                args::Mode::Multicast => args::Mode::Multicast,
                args::Mode::Auto | args::Mode::Unicast => args::Mode::Unicast,
            },
            ..self.clone()
        }
    }

    /// The group that is offered to receivers: the given one, or a random one of 239.192.0.0/14
    /// (RFC 2365 §6.2).
    pub(crate) fn group(&self) -> io::Result<Option<Ipv4Addr>> {
        if self.mode == args::Mode::Unicast {
            return Ok(None);
        }
        if self.group.is_some() {
            return Ok(self.group);
        }
        let seed = cli::clock::seed()?;
        Ok(Some(Ipv4Addr::new(
            239,
            192 | seed[0] & 3,
            seed[1],
            seed[2],
        )))
    }
}

/// The port that data will come from.
#[derive(Debug)]
pub(crate) struct Reservation(XmEndpoint);

impl Reservation {
    /// A port to send from. `addresses` are this host's as receivers see them on their control
    /// connections: where there is one it is that of the data too, else each receiver is sent to from
    /// the address that the routes choose. Multicast leaves by the interface of the user's choice, or
    /// else by that of the first.
    pub(crate) fn new(
        options: &Options,
        addresses: &BTreeSet<Ipv4Addr>,
    ) -> io::Result<Reservation> {
        let first = addresses.first().copied();
        let first = first.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let routed = multicast::local(ANY_GROUP, None, Some(first)).ok();
        let local = options.local.clone().or(routed);
        let bind = if addresses.len() == 1 {
            first
        } else {
            Ipv4Addr::UNSPECIFIED
        };
        let mut config = Config::new(SocketAddrV4::new(bind, 0).into());
        config.ttl = options.ttl;
        config.machine.send_buffer = SEND_BUFFER;
        config.machine.congestion_control = options.control;
        if let Some(local) = &local {
            config.interface = local.interface.index;
            let mtu = (local.interface.mtu as usize).clamp(576, MTU);
            config.machine.mtu = u16::try_from(mtu).unwrap_or(576);
        }
        XmEndpoint::open(&config).map(Reservation)
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.local_address().port()
    }
}

/// News of one receiver, by its number in the data connection.
#[derive(Debug)]
pub(crate) enum DataNews {
    Mode(usize, &'static str),
    Detached(usize),
    Failed(usize, String),
}

/// Gives receivers up while another thread writes.
#[derive(Debug)]
pub(crate) struct Handle(GroupHandle);

impl Handle {
    pub(crate) fn drop_receiver(&self, receiver: usize) {
        self.0.abort(receiver);
    }
}

/// The stream to all receivers.
pub(crate) enum Outgoing {
    Plain(XmGroup),
    Sealed(Box<Sealer<XmGroup>>),
}

impl Outgoing {
    pub(crate) fn open(
        reservation: &Reservation,
        options: &Options,
        receivers: &[Ipv4Addr],
        port: u16,
        group: Option<Ipv4Addr>,
        key: Option<[u8; 32]>,
    ) -> io::Result<(Outgoing, Handle, mpsc::UnboundedReceiver<DataNews>)> {
        let endpoint = &reservation.0;
        let addresses = receivers.iter().map(|&address| address.into()).collect();
        let mut config = GroupConfig::new(endpoint.local_address(), addresses, port);
        config.mode = match options.mode {
            args::Mode::Auto => GroupMode::Auto,
            args::Mode::Unicast => GroupMode::Unicast,
            args::Mode::Multicast => GroupMode::Multicast,
        };
        if let Some(group) = group {
            config.group = GroupChoice::Given(IpAddr::V4(group));
        }
        config.min_rate_bps = options.min_rate_bps;
        config.max_rate_bps = options.rate_bps;
        let patience = options.patience.as_millis().min(1 << 40) as u64;
        config.max_wait = mcp_control::Duration::from_millis(patience);
        let group = endpoint.open_group(config)?;
        let handle = group.handle();
        let news = forward(group.handle());
        let outgoing = match key {
            None => Outgoing::Plain(group),
            Some(key) => Outgoing::Sealed(Box::new(Sealer::new(group, &key))),
        };
        Ok((outgoing, Handle(handle), news))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Outgoing::Plain(group) => group.write_all(bytes),
            Outgoing::Sealed(sealer) => sealer.write_all(bytes),
        }
    }

    /// Waits until each receiver has everything, or has failed.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let group = match self {
            Outgoing::Plain(group) => group,
            Outgoing::Sealed(sealer) => sealer.get_ref(),
        };
        group.finish()?;
        group.wait_delivered().map(|_| ())
    }
}

/// Hands the news of a group on as they come.
fn forward(handle: GroupHandle) -> mpsc::UnboundedReceiver<DataNews> {
    let (to, news) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(event) = handle.next_event().await {
            let event = match event {
                GroupEvent::Mode(receiver, mode) => DataNews::Mode(receiver, name(mode)),
                GroupEvent::Detached(receiver) => DataNews::Detached(receiver),
                GroupEvent::Closed(receiver, Some(failure)) => {
                    DataNews::Failed(receiver, failure.to_string())
                }
                GroupEvent::Closed(_, None) | GroupEvent::Delivered(_) => continue,
            };
            if to.send(event).is_err() {
                return; // The copy is over.
            }
        }
    });
    news
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

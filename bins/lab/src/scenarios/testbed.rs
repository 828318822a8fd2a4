//! The testbed of LMS Figure 6.15: a router between the source, H1 (the replier) and H2.

use linux_net::link;
use linux_net::raw::Ipv4Socket;
use linux_net::udp::{Config, Membership, OptionBuffer, OptionSocket};
use lms_proto::{Form, Kind, LmsOption};

use crate::packets::Seen;
use crate::prelude::*;
use crate::session::{Owner, Replies, Session};
use netlab::Capture;

/// Time limit for a packet to arrive.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);

/// A host's end: a socket for requests, its address, what went over its link.
pub(super) struct End {
    pub(crate) node: NodeId,
    pub(crate) address: Ipv4Addr,
    pub(crate) requests: OptionSocket,
    pub(crate) wire: Capture,
}

/// The testbed with `lms-router` running and H1 its static replier.
pub(super) struct Testbed {
    pub(crate) session: Session,
    pub(crate) group: SocketAddrV4,
    pub(crate) source: End,
    pub(crate) h1: End,
    pub(crate) h2: End,
    pub(crate) router: Vec<Ipv4Addr>,
}

impl End {
    fn open(network: &Network, node: NodeId, group: SocketAddrV4) -> Result<End> {
        let requests = network.within(node, || {
            let interface = link::find("eth0")?.index;
            let bind = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, group.port());
            let socket = OptionSocket::open(&Config {
                bind,
                interface,
                ttl: 16,
                ..Config::default()
            })?;
            socket.join(&Membership {
                group: *group.ip(),
                source: None,
                interface,
            })?;
            Ok(socket)
        })?;
        let address = network.plan().address(node);
        Ok(End {
            node,
            address,
            requests,
            wire: Capture::start(network, node, "eth0")?,
        })
    }

    /// Waits for a captured packet.
    pub(super) fn see(&self, what: &str, wanted: impl Fn(&Seen) -> bool) -> Result<Seen> {
        self.wire.wait(what, TIMEOUT, Seen::of(wanted))
    }

    /// The option and the payload that `recvmsg` hands to the application.
    pub(super) fn receive(&self) -> Result<(LmsOption, Vec<u8>)> {
        let mut buffer = OptionBuffer::new(2_000);
        let end = Instant::now() + TIMEOUT;
        loop {
            if let Some(datagram) = self.requests.receive(&mut buffer)? {
                let (_, option) = LmsOption::parse::<Ipv4Addr>(datagram.options)?;
                return Ok((option, datagram.payload.to_vec()));
            }
            if Instant::now() > end {
                bail!("the application at {} received no request", self.address);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A session on the testbed's network, multicast routes in place, the router not started; H2's link
/// has this shape. The receivers are H1 and H2.
pub(super) fn session(group: SocketAddrV4, link_of_h2: Shape) -> Result<Session> {
    let mut plan = Plan::default();
    let (source, router) = (plan.host("source"), plan.router("router"));
    let (h1, h2) = (plan.host("h1"), plan.host("h2"));
    let wire = Shape::default();
    for (host, shape) in [(source, wire), (h1, wire), (h2, link_of_h2)] {
        plan.link(router, host, shape);
    }
    let network = Network::build(plan, 0)?;
    let mut session = Session::new(network, source, vec![h1, h2], group);
    session.own(Owner::Lab)?;
    Ok(session)
}

impl Testbed {
    /// Builds it and waits until the router knows its replier.
    pub(super) fn build(group: SocketAddrV4) -> Result<Testbed> {
        let mut session = session(group, Shape::default())?;
        let (source, h1, h2) = (session.source, session.receivers[0], session.receivers[1]);
        let plan = session.network.plan();
        let replies = Replies::set(plan.address(source), *group.ip(), plan.address(h1));
        session.start_routers(&replies)?;
        session.wait_for_repliers(TIMEOUT)?;
        let plan = session.network.plan();
        let branch = session.branches.first().context("no router on the tree")?;
        let links = branch.down.iter().chain([&branch.up]);
        let router = links
            .filter_map(|link| plan.address_on(branch.router, *link))
            .collect();
        let open = |node| End::open(&session.network, node, group);
        let (source, h1, h2) = (open(source)?, open(h1)?, open(h2)?);
        Ok(Testbed {
            source,
            h1,
            h2,
            router,
            session,
            group,
        })
    }

    /// A host multicasts a request with an option whose turning point is unset.
    pub(super) fn request(&self, host: &End, form: Form, payload: &[u8]) -> Result<()> {
        let group = self.group;
        let option = LmsOption {
            kind: Kind::Request,
            turning_point: None,
            source: self.source.address.into(),
            group: (*group.ip()).into(),
        };
        let mut bytes = [0; 40];
        let len = option.emit(form, &mut bytes)?;
        let options = &bytes[..len];
        host.requests
            .send(group, options, payload)
            .map_err(Into::into)
    }

    /// A host sends a whole IPv4 packet.
    pub(super) fn send_packet(&self, host: &End, packet: &[u8]) -> Result<()> {
        let network = &self.session.network;
        network.within(host.node, || Ok(Ipv4Socket::sender()?.send(0, packet)?))
    }
}

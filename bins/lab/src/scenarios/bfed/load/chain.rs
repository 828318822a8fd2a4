//! Two data nodes in a row, as of two gateways, over a plain or an encrypted link.

use bfed::wire::join::FlowChannel;
use bfed::{ChannelAddress, KeyDigest, PeerId};
use control_stream::links::LinkCredentials;
use control_stream::tls::{Credentials, write_new_secret};

use super::content::{Checker, header};
use super::nodes::{Content, DataNodes, UP};
use super::sinks::{Receiver, Sinks};
use super::sources::Sources;
use super::steer::Subscription;
use super::{CHECKED, Forwarder, Link, Load, Running, Stage};
use crate::prelude::*;

/// The port of the first data node. The namespace belongs to the scenario: it is free, as are the next ones.
const PORT: u16 = 4150;
/// The second data node, as the first knows it.
const DOWN: PeerId = PeerId(100);

/// The addresses of both data nodes, and the digest of their key on an encrypted link.
pub(super) struct Ends {
    /// The digest of their common key, with QUIC.
    key: Option<KeyDigest>,
}

impl Ends {
    fn new(link: Link) -> Result<Ends> {
        let key = match link {
            Link::Plain => None,
            Link::Quic => Some(KeyDigest(key()?)),
        };
        Ok(Ends { key })
    }

    /// The address of a data node by its number, from 1.
    pub(super) fn address(&self, number: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, PORT + number as u16 - 1).into()
    }

    /// The `[links]` section of both.
    pub(super) fn section(&self) -> String {
        match self.key {
            Some(_) => format!("[links]\nkey-file = {:?}\n\n", key_file()),
            None => String::new(),
        }
    }

    /// The end of a data node's channels.
    fn channel(&self, number: usize) -> ChannelAddress {
        let address = self.address(number);
        match self.key {
            Some(key) => ChannelAddress::Quic(address, key),
            None => ChannelAddress::Stream(address),
        }
    }
}

fn key_file() -> PathBuf {
    Path::new(SCRATCH).join("links.key")
}

/// Returns the digest of what both data nodes show; writes their key if there is none.
fn key() -> Result<[u8; 32]> {
    let file = key_file();
    if !file.exists() {
        write_new_secret(&file).map_err(anyhow::Error::msg)?;
    }
    let credentials = Credentials::read(&file).map_err(anyhow::Error::msg)?;
    Ok(LinkCredentials::new(&credentials, &[]).own)
}

impl Stage {
    /// Starts a source, two data nodes in a row, and a receiver.
    pub(super) fn start_chain(&self, load: Load, sources: Sources, link: Link) -> Result<Running> {
        let ends = Ends::new(link)?;
        let start = || {
            let (network, place) = (&self.network, self.gateway);
            DataNodes::start(network, place, 2, Content::Bulk, "", Some(&ends))
        };
        let mut nodes = start()?;
        nodes.link(&ends)?;
        let down = nodes.send_down(1, 0..1, 1, sources.address)?;
        let &(to, label) = down.first().context("no channel to the receiver")?;
        let receiver = Receiver {
            to,
            attach: Some(label),
            checker: Checker::new(&header(label, load.frame), load.frame, CHECKED),
        };
        let connect = || Sinks::connect(vec![receiver]);
        let sinks = self.network.within(self.gateway, connect)?;
        nodes.receive(0, 0..1, sources.address)?;
        sources.gather(1)?;
        // Both ends of the link, the source's channel and the receiver's.
        self.until_open(&nodes, 4)?;
        Ok(Running {
            sources,
            sinks,
            forwarder: Forwarder::Nodes(nodes),
        })
    }
}

impl DataNodes {
    /// The first session, from the first data node to the second.
    fn link(&mut self, ends: &Ends) -> Result<()> {
        let session = self.session(0)?;
        let subscription = |up, peer, flow| {
            vec![Subscription {
                up,
                peer: Some(peer),
                flows: vec![flow],
                session: session.clone(),
            }]
        };
        let to = FlowChannel {
            label: None,
            address: ends.channel(2),
        };
        let answers = self.steering.ask(0, subscription(false, DOWN, to))?;
        let flow = answers.into_iter().flatten().next();
        let flow = flow.context("no channel between the data nodes")?;
        self.steering.ask(1, subscription(true, UP, flow)).map(drop)
    }
}

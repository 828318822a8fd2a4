//! Two islands of IP multicast on one host, each on an interface of its own, and what is announced in them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use linux_net::inet::{self, Membership, Transmit, UdpSocket};
use linux_net::link::{self, Editor};
use linux_net::netns::Namespace;
use linux_net::udp::Batch;
use sap::{Description, Media, Origin, Packet};

use bfed_gateway::status::Show;
use serde_json::Value;

use crate::common::*;

/// The group and port of the session in island 1, where sources announce it, and where pool 239.255.0.0/18 of island 2 is
/// announced.
const SESSION: &str = "239.1.2.3:5004";
const SAP_OF_SESSION: &str = "224.2.127.254:9875";
const SAP_OF_POOL: &str = "239.255.255.255:9875";

/// A host of an island.
struct Host {
    socket: UdpSocket,
    batch: Batch,
}

impl Host {
    /// A member of a group, or a sender to it.
    fn new(interface: &str, group: SocketAddr, member: bool) -> Host {
        let index = link::find(interface).unwrap().index;
        let found = link::find(interface).unwrap();
        let own = SocketAddr::from((found.addresses[0].address, 0));
        let bind = if member { group } else { own };
        let socket = UdpSocket::open(&inet::Config {
            interface: index,
            loopback: true,
            ..inet::Config::new(bind)
        })
        .unwrap();
        if member {
            let (group, source, interface) = (group.ip(), None, index);
            let membership = Membership {
                group,
                source,
                interface,
            };
            socket.join(&membership).unwrap();
        }
        Host {
            socket,
            batch: Batch::new(4),
        }
    }

    fn send(&self, destination: &str, bytes: &[u8]) {
        let sent = self.socket.send(&Transmit {
            source: None,
            destination: destination.parse().unwrap(),
            bytes,
            segment_len: None,
        });
        sent.unwrap();
    }

    /// A datagram that fits, if one has come.
    fn received<T>(&mut self, fits: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        self.socket.receive(&mut self.batch).unwrap();
        self.batch.received().find_map(|one| fits(one.payload))
    }
}

/// The list of sessions of a gateway.
fn list(gateway: &Daemon) -> Value {
    let overview = gateway.show(Show::Overview);
    let page: SocketAddr = overview["page"].as_str().unwrap().parse().unwrap();
    let answer = say(
        page,
        b"GET /sessions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    );
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains("200 OK") && head.contains("application/json"),
        "{head}"
    );
    serde_json::from_str(body).unwrap()
}

/// What a source in island 1 announces.
fn announcement() -> Vec<u8> {
    let mut media = Media::new("video", SESSION.parse().unwrap(), "RTP/AVP", "33");
    media.ttl = Some(16);
    let description = Description::new("Evening news", vec![media]);
    let origin = Origin {
        session: "- 1".into(),
        address: "127.0.0.1".into(),
        version: 1,
    };
    Packet {
        deletion: false,
        hash: 7,
        source: Ipv4Addr::LOCALHOST.into(),
        payload: description.emit(&origin).as_bytes(),
    }
    .emit()
}

/// Interface `island2`, beside the loopback interface.
fn add_island() {
    let mut editor = Editor::open().unwrap();
    editor.add_veth("island2", "other-end", None).unwrap();
    for name in ["other-end", "island2"] {
        let index = editor.index(name).unwrap();
        editor.set_up(index, true).unwrap();
    }
    let index = editor.index("island2").unwrap();
    let address = Ipv4Addr::new(10, 9, 0, 1);
    editor.add_address(index, address, 24).unwrap();
}

fn gateways() -> [Daemon; 2] {
    let at = [port(), port()];
    let islands = [
        "interface = \"lo\"\nexport = [\"239.1.0.0/16\"]\nlearn-from = [\"127.0.0.0/8\"]\n",
        "interface = \"island2\"\n",
    ];
    let start = |own: usize| {
        let network = format!("[network]\nkind = \"ip\"\n{}", islands[own]);
        let page = "[status]\npage = \"127.0.0.1:0\"\n";
        let rest = format!("{network}{page}{}", peer(2 - own as u32, at[1 - own]));
        Daemon::start("run", own as u32 + 1, &listen(at[own]), &rest)
    };
    let gateways = [start(0), start(1)];
    gateways.iter().for_each(Daemon::peered);
    gateways
}

/// Both lists have the session: as it is announced, and as it is presented at that group.
fn compare(here: &Value, there: &Value, group: SocketAddr) {
    assert_eq!(
        (&here["format"], &here["network"], &there["network"]),
        (&1.into(), &1.into(), &2.into())
    );
    assert_eq!(there["mediator"], "239.255.98.102:25190");
    let (here, there) = (&here["sessions"][0], &there["sessions"][0]);
    for key in [
        "session",
        "title",
        "media",
        "content",
        "owner",
        "flow",
        "flow_name",
    ] {
        assert_eq!(here[key], there[key], "{key}");
    }
    assert_eq!(
        (&here["title"], &here["media"]),
        (&"Evening news".into(), &"video:RTP/AVP:33".into())
    );
    assert_eq!(
        (&here["announced_by"], &here["address"]),
        (&"127.0.0.1".into(), &Value::Null)
    );
    assert_eq!(there["address"], group.to_string());
}

#[test]
fn what_is_announced_in_one_island_is_announced_where_the_other_presents_it() {
    if !netlab::permitted(env!("CARGO_PKG_NAME")) {
        return;
    }
    let namespace = Namespace::new().expect("namespace");
    namespace
        .run(|| {
            add_island();
            let [first, second] = gateways();
            // A source announces its session in island 1, whose gateway lists it.
            let source = Host::new("lo", SESSION.parse().unwrap(), false);
            let url = eventually("the announcement", || {
                source.send(SAP_OF_SESSION, &announcement());
                let list = first.show(Show::Announced);
                let row = &list["announced"][0];
                assert!(row.is_null() || row["title"] == "Evening news");
                row["session"].as_str().map(str::to_owned)
            });
            // A client joins it in island 2, and everybody there is told where it is.
            let mut listener = Host::new("island2", SAP_OF_POOL.parse().unwrap(), true);
            let mut options = bfed_client::JoinOptions::new(url.parse().unwrap());
            options.interface = Some("island2".into());
            let cancel = bfed_client::Cancel::new().unwrap();
            let mut viewer = Viewer::default();
            let mut session = bfed_client::Session::join(options, &cancel, &mut viewer).unwrap();
            let found = eventually("the announcement in island 2", || {
                session
                    .step(Duration::from_millis(20), &mut viewer)
                    .unwrap();
                listener.received(|bytes| {
                    let packet = Packet::parse(bytes)
                        .ok()
                        .filter(|packet| !packet.deletion)?;
                    Description::parse(packet.payload).ok()
                })
            });
            let (_, description) = found;
            assert_eq!(description.name, "Evening news");
            assert_eq!(description.federated.as_deref(), Some(url.as_str()));
            let [media] = &description.media[..] else {
                panic!("{description:?}");
            };
            assert_eq!(
                (media.protocol.as_str(), media.format.as_str()),
                ("RTP/AVP", "33")
            );
            compare(&list(&first), &list(&second), media.group);
            // A player that has read nothing but the announcement receives the source's data.
            let mut player = Host::new("island2", media.group, true);
            eventually("the data", || {
                source.send(SESSION, b"a picture");
                session
                    .step(Duration::from_millis(20), &mut viewer)
                    .unwrap();
                player.received(|bytes| (bytes == b"a picture").then_some(()))
            });
            // The gateway that presents the session withdraws it when it ends.
            drop(session);
            let (code, _) = second.end(nix::sys::signal::Signal::SIGTERM);
            assert_eq!(code, Some(0));
            eventually("the withdrawal", || {
                listener.received(|bytes| Packet::parse(bytes).ok()?.deletion.then_some(()))
            });
        })
        .expect("enter namespace");
}

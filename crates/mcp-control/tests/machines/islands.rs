//! MULTICAST and LISTEN: to which servers a client may send them, and when a server takes them.

use mcp_control::wire::Message;
use mcp_control::wire::hello::Capabilities;
use mcp_control::wire::island::{Island, Listen, MAX_MEMBERS, MIN_MEMBERS, Multicast};
use mcp_control::wire::progress::Done;
use mcp_control::wire::relay::{Fed, LinkId, LinkReport, LinkSecret, LinkState};
use mcp_control::{ClientEvent, Error, ServerEvent};

use crate::common::{Pair, layout, linked, links_only, manifest, path, whole};

fn island() -> Island {
    Island {
        link: LinkId([1; 16]),
        secret: LinkSecret([2; 32]),
        group: [239, 255, 1, 2].into(),
        source: 4000,
        destination: 5000,
        sealed: true,
    }
}

fn multicast_to(members: usize) -> Multicast {
    Multicast {
        island: island(),
        members: vec![[192, 0, 2, 1].into(); members],
    }
}

fn multicast() -> Multicast {
    multicast_to(MIN_MEMBERS)
}

fn listen() -> Listen {
    Listen {
        island: island(),
        head: [192, 0, 2, 9].into(),
    }
}

/// A feeder, for a host that is to leave its island.
fn leave() -> Fed {
    Fed {
        link: LinkId([3; 16]),
        secret: LinkSecret([2; 32]),
        sealed: true,
        alone: true,
    }
}

fn all() -> Capabilities {
    Capabilities::FED
        .with(Capabilities::FEEDS)
        .with(Capabilities::ISLANDS)
}

fn plan_links(pair: &mut Pair) {
    let data = Some((links_only(), layout()));
    pair.client.plan(pair.now, data).unwrap();
    pair.settle();
}

/// Has both messages arrive, and returns the events that they cause.
fn arrive(pair: &mut Pair) -> Result<Vec<ServerEvent>, Error> {
    fn frame(message: &impl Message) -> Vec<u8> {
        let mut frame = vec![0; message.buffer_len()];
        message.emit(&mut frame);
        frame
    }
    let frames = [frame(&multicast()), frame(&listen())];
    let taken = frames.map(|frame| pair.server.handle_packet(pair.now, &(), &frame));
    let events: Vec<_> = std::iter::from_fn(|| pair.server.poll_event()).collect();
    assert_eq!(taken[0], taken[1], "both are taken, or neither is");
    assert!(taken[0].is_ok() || events.is_empty(), "{events:?}");
    taken[0].map(|()| events)
}

#[test]
fn a_client_sends_them_to_hosts_that_know_islands() {
    let mut pair = linked(all());
    let now = pair.now;
    // Not before the plan.
    assert!(pair.client.multicast(now, &multicast()).is_err());
    assert!(pair.client.listen(now, &listen()).is_err());
    plan_links(&mut pair);
    pair.client.multicast(now, &multicast()).unwrap();
    pair.client.listen(now, &listen()).unwrap();
    pair.settle();
    let expected = [
        ServerEvent::Multicast(multicast()),
        ServerEvent::Listen(listen()),
    ];
    assert_eq!(pair.at_server[pair.at_server.len() - 2..], expected);
    let report = LinkReport {
        link: island().link,
        state: LinkState::Expected,
    };
    pair.server.link(now, &report).unwrap();
    pair.settle();
    assert_eq!(*pair.last_client(), ClientEvent::Link(report));
}

#[test]
fn a_client_sends_them_to_no_host_without_the_capability() {
    for (capabilities, multicasts, listens) in [
        (Capabilities::FED, false, false),
        (Capabilities::FED.with(Capabilities::FEEDS), false, false),
        (Capabilities::FED.with(Capabilities::ISLANDS), false, true),
        (all(), true, true),
    ] {
        let mut pair = linked(capabilities);
        plan_links(&mut pair);
        let now = pair.now;
        let multicast = pair.client.multicast(now, &multicast());
        assert_eq!(multicast.is_ok(), multicasts, "{capabilities:?}");
        let listen = pair.client.listen(now, &listen());
        assert_eq!(listen.is_ok(), listens, "{capabilities:?}");
        let leave = pair.client.fed(now, &leave());
        assert_eq!(leave.is_ok(), listens, "{capabilities:?}");
        let events = pair.at_server.len();
        pair.settle();
        let sent = usize::from(multicasts) + 2 * usize::from(listens);
        assert_eq!(pair.at_server.len(), events + sent, "{capabilities:?}");
    }
}

#[test]
fn a_client_sends_them_only_with_links_in_the_plan() {
    let mut pair = linked(all());
    pair.suggest();
    let data = Some((path(), layout()));
    pair.client.plan(pair.now, data).unwrap();
    let now = pair.now;
    assert!(pair.client.multicast(now, &multicast()).is_err());
    assert!(pair.client.listen(now, &listen()).is_err());
}

#[test]
fn a_client_names_2_to_64_members() {
    let mut pair = linked(all());
    plan_links(&mut pair);
    let now = pair.now;
    for members in [0, MIN_MEMBERS - 1, MAX_MEMBERS + 1, 257] {
        let sent = pair.client.multicast(now, &multicast_to(members));
        assert!(sent.is_err(), "{members}");
    }
    for members in [MIN_MEMBERS, MAX_MEMBERS] {
        let multicast = multicast_to(members);
        pair.client.multicast(now, &multicast).unwrap();
        pair.settle();
        assert_eq!(*pair.last_server(), ServerEvent::Multicast(multicast));
    }
}

#[test]
fn a_server_takes_them_from_the_plan_to_the_end() {
    let expected = Ok(vec![
        ServerEvent::Multicast(multicast()),
        ServerEvent::Listen(listen()),
    ]);
    let mut pair = linked(all());
    assert_eq!(arrive(&mut pair), Err(Error::Unexpected), "before the plan");
    plan_links(&mut pair);
    assert_eq!(arrive(&mut pair), expected, "planned");
    pair.server.ready(pair.now).unwrap();
    pair.settle();
    assert_eq!(arrive(&mut pair), expected, "while data comes");
    let done = Done {
        received: 1,
        bytes: manifest().bytes(),
        whole: whole(),
    };
    pair.server.done(pair.now, &done).unwrap();
    pair.settle();
    assert_eq!(arrive(&mut pair), expected, "after DONE");
    pair.client.expect(pair.now, whole());
    pair.settle();
    assert_eq!(*pair.last_server(), ServerEvent::Verified);
    assert_eq!(arrive(&mut pair), Err(Error::Unexpected), "at the end");
}

#[test]
fn a_server_takes_none_without_links_in_the_plan() {
    let mut pair = linked(all());
    pair.suggest();
    let data = Some((path(), layout()));
    pair.client.plan(pair.now, data).unwrap();
    pair.settle();
    assert_eq!(arrive(&mut pair), Err(Error::Unexpected), "planned");
    pair.server.ready(pair.now).unwrap();
    pair.settle();
    assert_eq!(arrive(&mut pair), Err(Error::Unexpected), "data");
    let done = Done {
        received: layout().len(),
        bytes: manifest().bytes(),
        whole: whole(),
    };
    pair.server.done(pair.now, &done).unwrap();
    assert_eq!(arrive(&mut pair), Err(Error::Unexpected), "after DONE");
}

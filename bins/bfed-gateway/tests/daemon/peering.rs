//! Peers: how sessions with them come up, end and survive a restart.

use bfed::wire::notification::{Reason, Repr as Notification};
use bfed_gateway::status::Show;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::*;

#[test]
fn gateways_peer_and_show_it() {
    let (one, other) = pair("");
    one.peered();
    other.peered();
    eventually("routes", || {
        let routes = one.show(Show::Routes);
        (routes["routes"].as_array()?.len() == 12).then_some(())
    });
    for what in [
        "overview", "routes", "peers", "sessions", "nodes", "counters",
    ] {
        let shown = one.status(&["status", what]);
        assert_eq!(shown.status.code(), Some(0), "{what}");
        assert!(!shown.stdout.is_empty() || what == "sessions", "{what}");
        let json = one.status(&["status", what, "--json"]);
        assert!(
            serde_json::from_slice::<Value>(&json.stdout)
                .unwrap()
                .is_object()
        );
    }
    assert_eq!(one.status(&["drain", "9"]).status.code(), Some(1));
    assert_eq!(one.status(&["drain", "1"]).status.code(), Some(0));
    // A shutdown with a notification: the other side reports the reason.
    let (code, folder) = other.end(Signal::SIGTERM);
    let said = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(!said.contains("control node lost"), "{said}");
    assert_eq!(code, Some(0));
    let why = eventually("the reason", || {
        let peers = one.show(Show::Peers);
        let why = peers["peers"][0]["last_end"].as_str()?.to_owned();
        why.contains("shutdown").then_some(why)
    });
    assert!(why.contains("ended by the peer"), "{why}");
    // A second signal ends the process at once.
    assert_eq!(one.end(Signal::SIGINT).0, Some(0));
}

#[test]
fn an_end_for_a_restart_keeps_the_peers_routes() {
    let (one, other) = pair_of("control", "");
    one.peered();
    other.peered();
    eventually("routes", || {
        (one.show(Show::Routes)["routes"].as_array()?.len() == 12).then_some(())
    });
    let (code, folder) = other.end(Signal::SIGUSR2);
    assert_eq!(code, Some(0));
    eventually("the loss", || {
        (one.show(Show::Overview)["established"] == 0).then_some(())
    });
    let peers = one.show(Show::Peers);
    assert_eq!(peers["peers"][0]["stale"], true);
    assert_eq!(
        one.show(Show::Routes)["routes"].as_array().unwrap().len(),
        12
    );
    let other = Daemon::again("control", folder);
    one.peered();
    other.peered();
    eventually("no stale routes", || {
        (one.show(Show::Peers)["peers"][0]["stale"] == false).then_some(())
    });
}

#[test]
fn peers_do_not_wait_for_a_gateway_whose_data_nodes_end_with_it() {
    let (one, other) = pair("");
    one.peered();
    other.peered();
    let (code, _folder) = other.end(Signal::SIGUSR2);
    assert_eq!(code, Some(0));
    eventually("the loss", || {
        (one.show(Show::Overview)["established"] == 0).then_some(())
    });
    assert_eq!(one.show(Show::Peers)["peers"][0]["stale"], false);
    assert_eq!(one.show(Show::Routes)["routes"], serde_json::json!([]));
}

#[test]
fn peers_without_proof_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let key = secret(&folder, "a");
    let (one, other) = pair(&key);
    one.peered();
    other.peered();
    // Another secret, and none at all.
    let at = one.show(Show::Overview)["listen"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let forger = Daemon::start("run", 2, &secret(&folder, "b"), &peer(1, at));
    let why = eventually("a failed call", || {
        let peers = forger.show(Show::Peers);
        peers["peers"][0]["last_end"].as_str().map(str::to_owned)
    });
    assert!(!why.is_empty());
    let plain = Daemon::start("run", 2, "", &peer(1, at));
    eventually("strangers", || {
        let counters = one.show(Show::Counters);
        (counters["control"]["strangers"].as_u64()? >= 2).then_some(())
    });
    assert_eq!(plain.show(Show::Overview)["established"], 0);
    assert_eq!(forger.show(Show::Overview)["established"], 0);
    one.peered();
}

#[test]
fn malformed_messages_end_the_session_of_their_sender_only() {
    let at = [port(), port()];
    let more = format!("{}[[peer]]\nnetwork = 3\n", peer(2, at[1]));
    let one = Daemon::start("run", 1, &listen(at[0]), &more);
    let other = Daemon::start("run", 2, &listen(at[1]), &peer(1, at[0]));
    one.peered();
    let reason = |answer: &[u8]| {
        let mut frames = bfed::wire::Frames::new();
        let (mut input, mut last) = (answer, None);
        while let Ok(Some(message)) = frames.next(&mut input) {
            last = Notification::parse(message).ok();
        }
        last.map(|last| last.reason)
    };
    assert_eq!(
        reason(&say(at[0], b"GET / HTTP/1.1\r\n\r\n")),
        Some(Reason::BadMessage)
    );
    assert_eq!(reason(&say(at[0], &open(9))), Some(Reason::BadPeer));
    // A configured peer that sends malformed data.
    let nonsense = [open(3), b"nonsense, and more of it".to_vec()].concat();
    let answer = say(at[0], &nonsense);
    assert!(
        matches!(reason(&answer), Some(Reason::BadMessage | Reason::Version)),
        "{answer:?}"
    );
    let why = eventually("the reason", || {
        let peers = one.show(Show::Peers);
        let mut all = peers["peers"].as_array()?.iter();
        let third = all.find(|peer| peer["gateway"] == "3.1")?;
        third["last_end"].as_str().map(str::to_owned)
    });
    assert!(why.contains("ended here"), "{why}");
    one.peered();
    other.peered();
    assert!(one.log().contains("no such peer is configured here"));
}

#[test]
fn a_peering_that_may_cross_no_hop_needs_the_highest_ttl() {
    let at = [port(), port()];
    let folder = tempfile::tempdir().unwrap();
    let key = secret(&folder, "c");
    let gateway = |at| format!("{}\n{key}", listen(at));
    let near = |network, at| format!("{}max-hops = 1\n", peer(network, at));
    let one = Daemon::start("run", 1, &gateway(at[0]), &near(2, at[1]));
    let other = Daemon::start("run", 2, &gateway(at[1]), &near(1, at[0]));
    one.peered();
    other.peered();
    // Without the highest TTL packets may have crossed any number of hops: they are dropped.
    drop(other);
    eventually("the loss", || {
        (one.show(Show::Overview)["established"] == 0).then_some(())
    });
    let far = Daemon::start("run", 2, &key, &peer(1, at[0]));
    eventually("an OPEN that is not confirmed", || {
        let peers = one.show(Show::Peers);
        (peers["peers"][0]["state"] == "open-confirm").then_some(())
    });
    drop(far);
    eventually("the loss", || {
        let peers = one.show(Show::Peers);
        (peers["peers"][0]["state"] != "open-confirm").then_some(())
    });
    assert!(one.log().matches("peering established").nth(1).is_none());
}

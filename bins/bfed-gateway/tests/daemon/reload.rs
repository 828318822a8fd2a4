//! A new configuration while the gateway runs.

use bfed_gateway::status::Show;
use nix::sys::signal::Signal;

use crate::common::*;

#[test]
fn a_reload_is_taken_whole_or_not_at_all() {
    let (one, other) = pair("");
    one.peered();
    let config = one.folder.path().join("gateway.toml");
    let good = std::fs::read_to_string(&config).unwrap();
    std::fs::write(
        &config,
        good.replace("network = 2", "network = 2\ncost = 0"),
    )
    .unwrap();
    one.signal(Signal::SIGHUP);
    let told = eventually("a rejection", || {
        let overview = one.show(Show::Overview);
        overview["configuration"]["last_error"]
            .as_str()
            .map(str::to_owned)
    });
    assert!(told.contains("cost: 0 is too small"), "{told}");
    one.peered();
    // A policy counts at once; a new port for peers waits, and is named.
    let policy = "network = 2\nimport-default = \"reject\"";
    let next = good
        .replace("network = 2", policy)
        .replace("nodes = 1", "nodes = 2");
    std::fs::write(&config, next).unwrap();
    one.signal(Signal::SIGHUP);
    eventually("no route that is used", || {
        let routes = one.show(Show::Routes);
        let mut routes = routes["routes"].as_array()?.iter();
        routes.all(|route| route["best"] == false).then_some(())
    });
    let overview = one.show(Show::Overview);
    assert_eq!(overview["configuration"]["reloads"], 1);
    assert_eq!(overview["configuration"]["rejected"], 1);
    assert_eq!(overview["configuration"]["needs_restart"][0], "data");
    assert_eq!(overview["established"], 1);
    // Without its peer.
    let at = good.find("[[peer]]").unwrap();
    std::fs::write(&config, &good[..at]).unwrap();
    one.signal(Signal::SIGHUP);
    eventually("the peer is gone", || {
        (one.show(Show::Overview)["peers"] == 0).then_some(())
    });
    eventually("the other knows why", || {
        let peers = other.show(Show::Peers);
        let why = peers["peers"][0]["last_end"].as_str()?;
        (why.contains("reconfigured") || why.contains("no such peer")).then_some(())
    });
}

//! `check --host`: what of a configuration does not fit this host.

use std::path::{Path, PathBuf};

use daemon_kit::host::HostCheck;
use daemon_kit::settings::Daemon;

fn daemon() -> Daemon {
    Daemon {
        socket: PathBuf::from("/run/polycast/some.sock"),
        socket_mode: 0o660,
        user: None,
        cpu: None,
        metrics: None,
    }
}

#[test]
fn what_is_there_is_no_problem() {
    let mut host = HostCheck::default();
    let user = Some("root".to_owned());
    host.daemon(&Daemon {
        user,
        cpu: Some(0),
        ..daemon()
    });
    host.interface("source.upstream", "lo");
    host.interface("source.upstream", "127.0.0.1");
    host.address("metrics.listen", Some(([127, 0, 0, 1], 1).into()));
    host.address("metrics.listen", Some(([0, 0, 0, 0], 9464).into()));
    host.address("metrics.listen", None);
    assert_eq!(host.problems(), [""; 0]);
}

#[test]
fn what_is_not_is_named_with_its_key() {
    let mut host = HostCheck::default();
    host.daemon(&Daemon {
        user: Some("nobody-of-this-name".to_owned()),
        cpu: Some(4095),
        socket: Path::new("/nonexistent/a/b.sock").to_owned(),
        ..daemon()
    });
    host.interface("source.upstream", "nope0");
    // Reserved for documentation.
    host.address("relay.listen", Some(([192, 0, 2, 77], 4143).into()));
    let found = host.problems();
    for (problem, start) in found.iter().zip([
        "daemon.user: there is no user \"nobody-of-this-name\"",
        "daemon.cpu: there is no core 4095",
        "daemon.socket: /nonexistent: no such folder",
        "source.upstream: no interface is called or has the address nope0: there are ",
        "relay.listen: 192.0.2.77 is no address of this host",
    ]) {
        assert!(problem.starts_with(start), "{problem}");
    }
    assert_eq!(found.len(), 5, "{found:?}");
}

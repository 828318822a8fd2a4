//! What tests of gateways share.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use bfed::wire::open::Repr as Open;
use bfed::{GatewayId, Tables};

/// Time allowed for what must happen.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Calls `look` until it returns something.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a free port of loopback.
pub(crate) fn port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Returns the OPEN of gateway 1 of a network.
pub(crate) fn open(network: u32, hold_time_s: u16) -> Open {
    Open {
        version_low: 1,
        version_high: 1,
        hold_time_s,
        gateway: GatewayId::new(network, 1).unwrap(),
        boot: 7,
        tables: Tables::ALL,
        graceful: None,
        transport: bfed::wire::transport::Transport::Plain,
        echo: false,
    }
}

//! Single hosts for tests: namespaces joined by wires, without a plan.
//!
//! Functions here panic where a step fails: they are for tests.

use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use linux_net::link::{self, Editor, Interface};
use linux_net::netns::Namespace;
use linux_net::poll::{self, Watch};

const INSIDE: &str = "POLYCAST_TEST_INSIDE";
/// Longest time that [`eventually`] waits.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Runs `body` where namespaces can be made: here as root, else in a child process that is root of its own user
/// namespace. Where neither works, the test is [skipped](crate::skip). Call it in the test itself, with a closure: its
/// type has the name of the test.
pub fn with_namespaces<F: FnOnce()>(body: F) {
    let name = std::any::type_name::<F>();
    let test = name.split_once("::").map_or(name, |(_, path)| path);
    let test = test.trim_end_matches("::{{closure}}");
    let refused = match Namespace::new() {
        Ok(_) => return body(),
        Err(error) => error,
    };
    let skip = |why: &str| crate::skip(test, format_args!("no namespaces here: {refused}{why}"));
    if std::env::var_os(INSIDE).is_some() {
        return skip("");
    }
    let again = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--mount"])
        .arg(std::env::current_exe().expect("own path"))
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .status();
    match again {
        Ok(status) if status.success() => {}
        // The exit code of `unshare` itself.
        Ok(status) if status.code() == Some(1) => skip(""),
        Ok(status) => panic!("{test} failed in its user namespace: {status}"),
        Err(error) => skip(&format!("; {error}")),
    }
}

/// Calls `attempt` until it returns something. Fails with `what` after 20 s.
pub fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until `fd` is readable; `false` if it is not within `timeout`.
pub fn readable(fd: BorrowedFd<'_>, timeout: Duration) -> bool {
    poll::wait(&mut [Watch::readable(fd)], Some(timeout)).expect("poll") > 0
}

/// One host of a network.
#[derive(Debug)]
pub struct Host {
    /// Its namespace.
    pub namespace: Namespace,
}

impl Default for Host {
    fn default() -> Self {
        Host::new()
    }
}

impl Host {
    /// Creates a host without interfaces. Link-local IPv6 addresses of those that it gets are used at once, without
    /// duplicate address detection.
    pub fn new() -> Host {
        let host = Host {
            namespace: Namespace::new().expect("namespace"),
        };
        host.run(|| {
            for name in ["all", "default"] {
                // A kernel without IPv6 has no such setting.
                let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/accept_dad"), "0");
            }
        });
        host
    }

    /// Runs `work` on this host.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(work).expect("enter namespace")
    }

    /// Runs `work` with an editor of this host's interfaces.
    pub fn edit<T: Send>(&self, work: impl FnOnce(&mut Editor) -> T + Send) -> T {
        self.run(|| work(&mut Editor::open().expect("editor")))
    }

    /// Returns an interface of this host.
    pub fn interface(&self, name: &str) -> Interface {
        self.run(|| link::find(name).expect("interface"))
    }

    /// Returns the index of an interface of this host.
    pub fn index(&self, name: &str) -> u32 {
        self.interface(name).index
    }
}

/// Joins two hosts by a wire, each end given by host, name and address in one /24, or /64 of IPv6, and waits for the
/// carrier.
pub fn wire<A: Copy + Into<IpAddr>>(ends: [(&Host, &str, A); 2]) {
    let [(a, a_name, _), (b, b_name, _)] = ends;
    a.edit(|editor| {
        editor
            .add_veth(a_name, b_name, Some(b.namespace.as_fd()))
            .expect("veth");
    });
    for (host, name, address) in ends {
        let index = host.index(name);
        let address = address.into();
        let prefix_len = if address.is_ipv4() { 24 } else { 64 };
        host.edit(|editor| {
            editor
                .add_address(index, address, prefix_len)
                .expect("address");
            editor.set_up(index, true).expect("up");
        });
    }
    for (host, name, _) in ends {
        eventually("carrier", || host.interface(name).is_running.then_some(()));
    }
}

//! Two gateways with a session that never ends, for the soak.
//!
//! ```text
//! source --- gateway 1: control, data --- gateway 2: control, data, data --- viewers
//! ```

use super::federation::{Design, Federation, Kind, Peering, SOON};
use crate::prelude::*;

/// A group of network 1.
const SESSION: &str = "bfed://1/239.1.2.3/5004/?framing=numbered";
const VIEWERS: usize = 1;
/// A pause of the session at the viewer that is longer is a fault.
const STALL: Duration = Duration::from_secs(45);

pub(in crate::scenarios) struct Steady {
    federation: Federation,
    source: Process,
    /// A viewer from start to end, the bytes that it has, and since when.
    viewer: Process,
    seen: (u64, Instant),
}

impl Steady {
    /// Starts everything; the session's bytes are those of [`Steady::feed`].
    pub(in crate::scenarios) fn start() -> Result<Steady> {
        let island = |data| Design {
            data,
            ..Design::new(Kind::Ip)
        };
        let peerings = [Peering::new(0, VIEWERS)];
        let designs = [island(1), island(2)];
        let mut federation = Federation::build(&designs, &peerings, Shape::default(), "")?;
        federation.start_all()?;
        federation.settle()?;
        let launch = Launch::carried("bfed-join")
            .named("bfed-join send")
            .args(["send", SESSION, "--json", "--interface", "eth0"])
            .args(["--rate", "4M"])
            .stdin_piped();
        let source = federation.network.start(federation.host(0), launch)?;
        let options = ["--output", "/dev/null"];
        let mut viewer = watch(&federation, "bfed-join recv", &options)?;
        viewer.wait_event("joined", SOON)?;
        Ok(Steady {
            federation,
            source,
            viewer,
            seen: (0, Instant::now()),
        })
    }

    /// Writes a line to the session.
    pub(in crate::scenarios) fn feed(&mut self, line: &str) -> Result<()> {
        self.source.write_line(line)
    }

    /// A viewer that joins, and leaves when it has some bytes.
    pub(in crate::scenarios) fn view(&self, name: &str, options: &[&str]) -> Result<Process> {
        watch(&self.federation, name, options)
    }

    /// Returns a fault when the session does not flow to its viewer.
    pub(in crate::scenarios) fn stalled(&mut self) -> Option<String> {
        let progress = self.viewer.last("progress");
        let bytes = progress.map_or(0, |progress| count(&progress, "bytes"));
        if bytes != self.seen.0 {
            self.seen = (bytes, Instant::now());
        }
        if self.seen.1.elapsed() < STALL {
            return None;
        }
        self.seen.1 = Instant::now();
        let (account, tails) = (self.federation.account(), self.federation.tails());
        Some(format!(
            "no data came to the viewer for {STALL:?}, after {bytes} bytes\n{account}\n{tails}"
        ))
    }

    /// The programs that run from start to end.
    pub(in crate::scenarios) fn observed(&mut self) -> impl Iterator<Item = &mut Process> {
        let first = |process: &&mut Process| {
            process.name().ends_with("control1.1") || process.name().ends_with("data1.1")
        };
        let gateways = self.federation.processes().filter(first);
        gateways.chain([&mut self.source, &mut self.viewer])
    }

    /// A daemon of the gateways by its process's name, and its network.
    pub(in crate::scenarios) fn daemon(&mut self, name: &str) -> Option<(&mut Daemon, &Network)> {
        self.federation.daemon(name)
    }

    /// Stops everything; returns whether the viewer left and all gateways ended in an orderly way.
    pub(in crate::scenarios) fn stop(mut self) -> bool {
        // The source waits for its standard input, which stays open: it is killed when it is dropped.
        let left = self.viewer.stop(SOON).is_ok();
        self.federation.stop() && left
    }
}

fn watch(federation: &Federation, name: &str, options: &[&str]) -> Result<Process> {
    let launch = Launch::carried("bfed-join")
        .named(name)
        .args(["recv", SESSION, "--json", "--late", "--interface", "eth0"])
        .args(["--connect-timeout", "40s"])
        .args(options);
    federation.network.start(federation.host(VIEWERS), launch)
}

//! Programs on the hosts of islands: viewers and sources of sessions.

use super::{Federation, Kind, SOON};
use crate::prelude::*;

/// A program that views a session.
pub(crate) struct Viewer {
    /// Its island.
    pub(crate) at: usize,
    pub(crate) process: Process,
    /// Where it writes.
    pub(crate) file: PathBuf,
}

impl Viewer {
    /// Waits for its gateway's answer, which is "local" in the session's own island.
    pub(crate) fn joined(&mut self) -> Result<()> {
        let answered =
            |value: &Value| value["event"] == "joined" || text(value, "reason") == "local";
        self.process.wait_that("`joined`", SOON, answered)?;
        Ok(())
    }

    /// Waits until its session has ended; returns its final report.
    pub(crate) fn end(&mut self) -> Result<Value> {
        self.process.succeed(SOON)?;
        self.process.last("end").context("a viewer told no end")
    }

    /// Frames that it misses so far.
    pub(crate) fn lost(&self) -> u64 {
        let last = self
            .process
            .last("end")
            .or_else(|| self.process.last("progress"));
        last.map_or(0, |last| crate::transfer::count(&last, "lost"))
    }
}

impl Federation {
    /// The mediator of an island, as an argument of `bfed-join`.
    fn mediator(&self, at: usize) -> Option<String> {
        let own = self.on_lan(at, self.node(self.head(at)));
        match self.islands[at].design.kind {
            Kind::Ip => None,
            Kind::Ssm => Some(own.to_string()),
            Kind::Http | Kind::Moq => Some(format!("http://{own}:8080")),
        }
    }

    /// A viewer on an island's host.
    pub(crate) fn view(&self, at: usize, session: &str, options: &[&str]) -> Result<Viewer> {
        let host = self.islands[at].host;
        let short: String = session
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect();
        let file = Path::new(SCRATCH).join(format!("seen{}-{short}.bin", at + 1));
        let mut launch = Launch::carried("bfed-join")
            .named(format!("bfed-join {short} on host {}", at + 1))
            .args(["recv", session, "--json", "--output"])
            .arg(&file)
            .args(options);
        launch = match self.mediator(at) {
            Some(mediator) => launch.args(["--mediator", &mediator]),
            None => launch,
        };
        if self.islands[at].design.kind != Kind::Http {
            launch = launch.args(["--interface", "eth0"]);
        }
        let process = self.network.start(host, launch)?;
        Ok(Viewer { at, process, file })
    }

    /// The URL of a session on an HTTP island.
    pub(crate) fn url(&self, at: usize, session: &str) -> Result<String> {
        let mediator = self.mediator(at).context("no HTTP network")?;
        let name = session.replace(':', "%3A").replace('/', "%2F");
        Ok(format!("{mediator}/s/{name}"))
    }

    /// Bytes of frames that one island's gateway has sent to another's.
    pub(crate) fn crossed(&mut self, from: usize, to: usize) -> Result<u64> {
        let gateway = self.gateway(from);
        let index = self.network.index(gateway, self.link(from, to)?)?;
        Ok(self.network.editor(gateway).counters(index)?.tx_bytes)
    }

    /// A plain HTTP client on an HTTP island's host, if there is installed: it reads a session
    /// and needs no support for the federation. Clients of one island have different numbers.
    pub(crate) fn curl(&self, at: usize, session: &str, number: usize) -> Result<Option<Viewer>> {
        if std::process::Command::new("curl")
            .arg("--version")
            .output()
            .is_err()
        {
            return Ok(None);
        }
        let file = Path::new(SCRATCH).join(format!("curl{}.{number}.bin", at + 1));
        let launch = Launch::external("curl", "curl")
            .named(format!("curl on host {}", at + 1))
            .args(["-sSLN", "--output"])
            .arg(&file)
            .arg(self.url(at, session)?);
        let process = self.network.start(self.islands[at].host, launch)?;
        Ok(Some(Viewer { at, process, file }))
    }

    /// The source of a session, on an island's host.
    pub(crate) fn send(
        &self,
        at: usize,
        session: &str,
        file: &Path,
        rate: &str,
    ) -> Result<Process> {
        let launch = Launch::carried("bfed-join")
            .named(format!("bfed-join send on host {}", at + 1))
            .args(["send", session, "--json", "--interface", "eth0"])
            .args(["--rate", rate, "--input"])
            .arg(file);
        self.network.start(self.islands[at].host, launch)
    }
}

//! LTP over a router: alone, with LMS routers, with DyRAM relays.

use super::super::dyram::stage::Stage as Relayed;
use super::grid::Path as NetworkPath;
use super::network::{Routed, routed};
use super::results::Measured;
use super::tool::Runner;
use crate::prelude::*;
use crate::session::{Owner, Replies, Session};
use crate::transfer::Transfer;

/// Source-specific, as with PIM.
const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(232, 1, 1, 2), 5_002);
/// Time limit for routes to exist, and for ended programs to be collected.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What helps with repairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Help {
    /// The router forwards multicast; the sender repairs.
    None,
    /// The router is `lms-router`.
    Lms,
    /// The router is `dyram-relay`; there is no multicast routing.
    Dyram,
}

/// LTP with its settings. Its rate is that of TFMCC.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ltp {
    pub(super) help: Help,
    /// `lms-send --parity`.
    pub(super) parity: &'static str,
}

impl Ltp {
    /// One transfer in a network of its own.
    pub(super) fn transfer(
        self,
        runner: &Runner,
        path: &NetworkPath,
        run: u64,
    ) -> Result<Measured> {
        let file = Path::new(SCRATCH).join("original.bin");
        if !file.exists() {
            write_file(&file, runner.bytes)?;
        }
        let built = routed(path, run + 1)?;
        let link = built.link;
        if self.help == Help::Dyram {
            let mut stage = relayed(built)?;
            return self.send(&mut stage.session, link, &file, runner);
        }
        let mut session = self.session(built)?;
        self.send(&mut session, link, &file, runner)
    }

    /// A router that forwards the group, and helps with repairs where it should.
    fn session(self, built: Routed) -> Result<Session> {
        let Routed {
            network,
            source,
            receivers,
            ..
        } = built;
        let ends: Vec<NodeId> = receivers.iter().copied().chain([source]).collect();
        let mut session = Session::new(network, source, receivers, GROUP);
        session.own(Owner::Lab)?;
        let from = session.source_address().to_string();
        session.receive_more = ["--source", &from].map(str::to_owned).to_vec();
        session.wait_for_routes(TIMEOUT)?;
        if self.help == Help::Lms {
            session.start_routers(&Replies::default())?;
        } else {
            session.assist = ends
                .into_iter()
                .map(|end| (end, "none".to_owned()))
                .collect();
        }
        Ok(session)
    }

    fn send(
        self,
        session: &mut Session,
        link: LinkId,
        file: &Path,
        runner: &Runner,
    ) -> Result<Measured> {
        let before = sent_bytes(session, link)?;
        let args = ["--parity", self.parity, "--connect-timeout", "20s"];
        let mut transfer = Transfer::start(session, file, &args)?;
        transfer.watch(runner.limit, |_| {})?;
        let wire = sent_bytes(session, link)? - before;
        let seconds = last_complete(&transfer)?;
        let outcome = transfer.finish(session, TIMEOUT)?;
        ensure!(outcome.whole(), "a copy is not the file that was sent");
        Ok(Measured::of(seconds, wire, runner.bytes))
    }
}

/// Seconds from the sender's start until the last receiver has verified the file.
fn last_complete(transfer: &Transfer) -> Result<f64> {
    let mut last = transfer.sender.started();
    for receiver in &transfer.receivers {
        let events = receiver.process.events();
        let complete = events
            .iter()
            .find(|event| event.value["event"] == "complete");
        let complete = complete.with_context(|| format!("{} told no `complete`", receiver.name))?;
        last = last.max(complete.at);
    }
    Ok((last - transfer.sender.started()).as_secs_f64())
}

/// Ethernet bytes that the source has sent.
fn sent_bytes(session: &mut Session, link: LinkId) -> Result<u64> {
    let (network, source) = (&mut session.network, session.source);
    let index = network.index(source, link)?;
    Ok(network.editor(source).counters(index)?.tx_bytes)
}

/// A relay in the router, without multicast routing.
fn relayed(built: Routed) -> Result<Relayed> {
    let Routed {
        network,
        source,
        router,
        receivers,
        ..
    } = built;
    let receivers: Vec<_> = receivers
        .into_iter()
        .map(|node| (node, vec![router]))
        .collect();
    let mut stage = Relayed::new(network, (source, router), &receivers)?;
    stage.start(&[(router, Vec::new())], "")?;
    Ok(stage)
}

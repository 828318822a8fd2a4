//! `bfed-control-failover`: control nodes are killed, stopped or cut off, and etcd is unreachable for a while: one of them
//! takes over and no frame of an established session is lost.

use super::federation::{Design, Federation, Kind, Part, Peering, SOON};
use super::under_way::{Load, PAUSE, millis, sessions};
use crate::prelude::*;

/// Control nodes that are killed, stopped or cut off, and etcd outages: a standby takes over, no frame is lost
#[derive(Debug, clap::Args)]
pub(crate) struct ControlFailover {
    /// Sessions, half bulk data, half real-time (quick: 2)
    #[arg(long, default_value_t = 6, default_value_if("quick", "true", "2"))]
    sessions: usize,
    /// Seconds for which etcd is unreachable (quick: 6)
    #[arg(long, default_value_t = 130, default_value_if("quick", "true", "6"))]
    away: u64,
}

/// Where the gateway with two control nodes is.
const MIDDLE: usize = 1;
const VIEWERS: [usize; 2] = [1, 2];
const CONTROLS: [Part; 2] = [Part::Control(MIDDLE, 0), Part::Control(MIDDLE, 1)];
const DATA: usize = 2;
/// bit/s of a session.
const RATE: u64 = 1_000_000;
/// `etcd.lease`.
const LEASE: Duration = Duration::from_secs(2);

impl Scenario for ControlFailover {
    const NAME: &'static str = "bfed-control-failover";
    const FIGURE: &'static str = "Broadcast Federation §5.3.4: control node failure";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "control nodes take turns");
        if !cfg!(feature = "etcd") {
            report.skip("failover", "this `lab` was built without `--features etcd`");
            return Ok(report);
        }
        if installed("etcd").is_none() {
            report.skip("failover", "etcd is not installed (Debian: etcd-server)");
            return Ok(report);
        }
        let away = Duration::from_secs(self.away);
        let mut play = Play::begin(context, self.sessions)?;
        play.killed()?;
        play.ended()?;
        play.cut_off()?;
        play.without_etcd_alone()?;
        play.without_etcd(away)?;
        play.finish(&mut report)?;
        report.note(format!(
            "networks 1, 2, 3 in a chain, 5 ms apart; network 2's gateway: two control nodes and {DATA} data \
             nodes on hosts of their own, one etcd, lease {} s; sources in network 1, viewers in 2 and 3",
            LEASE.as_secs()
        ));
        Ok(report)
    }
}

/// Actions and their results.
struct Act {
    words: &'static str,
    /// Until the successor had the peers, the data nodes and all trees.
    took: Duration,
    /// Frames that all viewers together missed, and the longest pause.
    lost: u64,
    pause: Duration,
}

struct Play<'c> {
    context: &'c Context,
    federation: Federation,
    etcd: Option<Process>,
    load: Load,
    acts: Vec<Act>,
    holds: Vec<(String, bool)>,
}

impl<'c> Play<'c> {
    fn begin(context: &'c Context, count: usize) -> Result<Play<'c>> {
        let mut designs = [Kind::Ip; 3].map(Design::new);
        (designs[MIDDLE].data, designs[MIDDLE].controls) = (DATA, CONTROLS.len());
        let peerings = [Peering::new(0, 1), Peering::new(1, 2)];
        let shape = Shape::default().delayed(Duration::from_millis(5));
        let mut federation = Federation::build(&designs, &peerings, shape, "")?;
        let etcd = start_etcd(&federation)?;
        federation.use_etcd(format!(
            "endpoints = [\"http://{}:2379\"]\nlease = \"{}s\"\n",
            federation.address(MIDDLE),
            LEASE.as_secs()
        ));
        federation.start_all()?;
        federation.settle()?;
        let load = Load::start(&federation, sessions(count), &VIEWERS, RATE)?;
        let play = Play {
            context,
            federation,
            etcd: Some(etcd),
            load,
            acts: Vec::new(),
            holds: Vec::new(),
        };
        play.one_active()?;
        Ok(play)
    }

    /// Waits until exactly one control node is active, with all its peers, data nodes and trees; returns it.
    fn one_active(&self) -> Result<Part> {
        let (begun, sessions) = (Instant::now(), self.load.sessions.len() as u64);
        let mut shown = Vec::new();
        while begun.elapsed() < SOON {
            shown.clear();
            for part in CONTROLS {
                shown.push((part, self.federation.status(part, "overview").ok()));
            }
            let active = |view: &&(Part, Option<Value>)| {
                view.1.as_ref().is_some_and(|view| view["active"] == true)
            };
            if let [(part, Some(view))] = shown.iter().filter(active).collect::<Vec<_>>()[..]
                && count(view, "nodes") == DATA as u64
                && count(view, "established") == 2
                && count(view, "sessions") == sessions
                && attached(&self.federation.status(*part, "sessions")?) == sessions
            {
                return Ok(*part);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let tails = CONTROLS.map(|part| self.federation.tail(part)).concat();
        anyhow::bail!(
            "no control node is the only one, with all that it should have: {shown:?}\n{tails}"
        )
    }

    /// Acts on the active control node, waits for its successor, and records what viewers saw.
    fn act(
        &mut self,
        words: &'static str,
        what: impl FnOnce(&mut Self, Part) -> Result<()>,
    ) -> Result<(Part, Part)> {
        let before = self.one_active()?;
        self.context.note(format!("{words}: {}", before.name()));
        let lost: u64 = self.load.lost().iter().sum();
        let then = Instant::now();
        what(self, before)?;
        let after = self.one_active()?;
        let took = then.elapsed();
        let flows = self.load.flows_again();
        self.holds
            .push((format!("{words}: everything flows on"), flows));
        // Viewers report their counters once a second.
        std::thread::sleep(Duration::from_millis(1100));
        let pauses = self.load.since(then);
        for outcome in pauses
            .iter()
            .filter(|outcome| !flows && outcome.seen.ago > PAUSE)
        {
            self.context.note(format!(
                "{words}: {} in network {} has had nothing for {:.0} ms",
                outcome.session,
                outcome.island + 1,
                millis(outcome.seen.ago)
            ));
        }
        let pause = pauses.iter().map(|outcome| outcome.seen.pause).max();
        self.acts.push(Act {
            words,
            took,
            lost: self.load.lost().iter().sum::<u64>() - lost,
            pause: pause.unwrap_or_default(),
        });
        Ok((before, after))
    }

    fn other(&mut self, words: &str, parts: (Part, Part)) {
        let name = format!("{words}: the other one is active");
        self.holds.push((name, parts.0 != parts.1));
    }

    fn killed(&mut self) -> Result<()> {
        let words = "the active one killed (-9)";
        let parts = self.act(words, |play, active| {
            play.federation.signal(active, Signal::SIGKILL)
        })?;
        self.other(words, parts);
        self.federation.start(parts.0)
    }

    fn ended(&mut self) -> Result<()> {
        self.standby()?;
        let words = "the active one ended (SIGTERM)";
        let parts = self.act(words, |play, active| {
            let (orderly, _) = play.federation.end(active)?;
            play.holds
                .push(("the control node ends in an orderly way".into(), orderly));
            Ok(())
        })?;
        self.other(words, parts);
        self.federation.start(parts.0)
    }

    /// Cuts its host's link: etcd, data nodes and peers are unreachable. It must not consider itself active
    /// when the link is restored.
    fn cut_off(&mut self) -> Result<()> {
        self.standby()?;
        let words = "the active one's link cut";
        let parts = self.act(words, |play, active| {
            play.federation.cut(active, true)?;
            play.idle(active)
        })?;
        self.other(words, parts);
        self.federation.cut(parts.0, false)
    }

    /// Only etcd is unreachable: the standby must be able to take over everything else.
    fn without_etcd_alone(&mut self) -> Result<()> {
        self.standby()?;
        let words = "the active one cut off from etcd alone";
        let etcd = self.federation.address(MIDDLE);
        let parts = self.act(words, |play, active| {
            let node = play.federation.node(active);
            let editor = play.federation.network.editor(node);
            let loopback = editor.index("lo")?;
            editor.set_up(loopback, true)?;
            // Packets to etcd stay on the host, where no process receives them, while loopback is up.
            editor.set_route(etcd, 32, None, Some(loopback))?;
            play.idle(active)
        })?;
        self.other(words, parts);
        // It is restarted, and reaches etcd over the link again.
        self.federation.signal(parts.0, Signal::SIGKILL)?;
        let node = self.federation.node(parts.0);
        let editor = self.federation.network.editor(node);
        let loopback = editor.index("lo")?;
        editor.set_up(loopback, false)?;
        self.federation.start(parts.0)
    }

    fn without_etcd(&mut self, away: Duration) -> Result<()> {
        self.standby()?;
        self.act("etcd away", |play, _| {
            if let Some(mut etcd) = play.etcd.take() {
                etcd.signal(Signal::SIGKILL)?;
                etcd.wait(SOON)?;
            }
            std::thread::sleep(away);
            play.etcd = Some(start_etcd(&play.federation)?);
            Ok(())
        })?;
        Ok(())
    }

    /// Waits until this control node reports that it is not active.
    fn idle(&self, part: Part) -> Result<()> {
        let idle = |view: &Value| view["active"] == false;
        self.federation.until(part, "overview", idle).map(drop)
    }

    /// Waits until every control node reaches etcd.
    fn standby(&self) -> Result<()> {
        for part in CONTROLS {
            let there = |view: &Value| view["store_answers"] == true;
            self.federation.until(part, "overview", there)?;
        }
        Ok(())
    }

    fn finish(self, report: &mut Report) -> Result<()> {
        let mut table = Table::new(
            "until one control node has all peers, data nodes and trees",
            &["what happens", "s", "frames lost", "longest pause ms"],
        );
        for act in &self.acts {
            table.row([
                act.words.into(),
                Cell::number(act.took.as_secs_f64(), 2),
                act.lost.into(),
                Cell::number(millis(act.pause), 0),
            ]);
            report.check(
                format!("{}: frames lost", act.words),
                act.lost as f64,
                "",
                Bound::Exactly(0.0),
            );
        }
        report.tables.push(table);
        for (name, holds) in self.holds {
            report.holds(name, holds);
        }
        let acts = self.acts.iter().map(|act| {
            json!({"what": act.words, "s": act.took.as_secs_f64(), "lost": act.lost,
                   "pause_ms": millis(act.pause)})
        });
        report.datum("acts", acts.collect::<Vec<_>>());
        let lost: u64 = self.load.stop()?.iter().sum();
        report.check(
            "frames lost, over all",
            lost as f64,
            "",
            Bound::Exactly(0.0),
        );
        report.holds("gateways end in an orderly way", self.federation.stop());
        Ok(())
    }
}

/// Trees through which data comes.
fn attached(sessions: &Value) -> u64 {
    let rows = sessions["sessions"].as_array().into_iter().flatten();
    let whole = |row: &&Value| row["attached"] == true && !text(row, "upstream").is_empty();
    rows.filter(whole).count() as u64
}

/// etcd beside the gateway; its files outlive it.
fn start_etcd(federation: &Federation) -> Result<Process> {
    let address = federation.address(MIDDLE);
    let launch = Launch::external("etcd", "etcd")
        .arg("--data-dir")
        .arg(Path::new(SCRATCH).join("etcd"))
        .args([
            format!("--listen-client-urls=http://{address}:2379"),
            format!("--advertise-client-urls=http://{address}:2379"),
            format!("--listen-peer-urls=http://{address}:2380"),
            format!("--initial-advertise-peer-urls=http://{address}:2380"),
            format!("--initial-cluster=default=http://{address}:2380"),
        ]);
    federation.network.start(federation.gateway(MIDDLE), launch)
}

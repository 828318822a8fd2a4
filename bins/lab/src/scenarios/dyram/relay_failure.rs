//! `dyram-relay-failure`: a relay is killed in the middle, started again, and the other one is drained:
//! children go to their second parent, and nothing is lost.

use super::stage::{Stage, children};
use crate::prelude::*;
use crate::transfer::Transfer;

/// A relay is killed in the middle, another one drained: children move, and lose nothing
#[derive(Debug, clap::Args)]
pub(crate) struct RelayFailure {
    /// Size of the file in MiB (quick: 24)
    #[arg(long, default_value_t = 64, default_value_if("quick", "true", "24"))]
    mib: u64,
}

/// Children announce themselves this often here, in seconds (2 s by default).
const REFRESH_S: f64 = 1.0;
/// Three announcements without an answer, a quarter of a second each.
const TRIES_S: f64 = 0.75;
/// Children of the two relays in the middle: two receivers each, and one relay.
const CHILDREN: u64 = 5;

impl Scenario for RelayFailure {
    const NAME: &'static str = "dyram-relay-failure";
    const FIGURE: &'static str = "DyRAM §3.1: robustness to host and link failures";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "children of a relay that dies lose nothing");
        let bytes = self.mib << 20;
        let (mut stage, [first, second]) = build()?;
        let file = Path::new(SCRATCH).join("file.bin");
        write_file(&file, bytes)?;
        let options = [
            "--rate",
            "16M",
            "--connect-timeout",
            "30s",
            "--timeout",
            "60s",
        ];
        let mut transfer = Transfer::start(&stage.session, &file, &options)?;
        let mut play = Play {
            first,
            second,
            begin: Instant::now(),
            killed: None,
            moved: None,
            again: None,
            drained: None,
            ended: None,
            children: [Vec::new(), Vec::new()],
        };
        let mut failed = None;
        transfer.watch(Duration::from_secs(90 + bytes / 500_000), |transfer| {
            failed = failed
                .take()
                .or(play.step(context, &mut stage, transfer).err());
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        let outcome = transfer.finish(&stage.session, Duration::from_secs(20))?;
        play.report(&mut report);
        report.tables.push(outcome.receiver_table());
        let whole = outcome.whole() && outcome.receivers.len() == 6;
        report.holds(
            "every receiver has every byte, and the sender's digest",
            whole,
        );
        report.holds("no router has a multicast route", !stage.has_multicast()?);
        report.datum("outcome", &outcome);
        Ok(report)
    }
}

/// A relay next to the source, two below it, a fourth below these; all nodes below the two know
/// both.
fn build() -> Result<(Stage, [NodeId; 2])> {
    let mut plan = Plan::default();
    let shape = Shape::lossy(0.01).delayed(Duration::from_millis(1));
    let source = plan.host("source");
    let [r1, r2, r3, r4] = ["r1", "r2", "r3", "r4"].map(|name| plan.router(name));
    for (a, b) in [(source, r1), (r1, r2), (r1, r3), (r2, r4)] {
        plan.link(a, b, shape);
    }
    let relays = [
        (r1, vec![]),
        (r2, vec![r1]),
        (r3, vec![r1]),
        (r4, vec![r2, r3]),
    ];
    let places = [
        ("h1", r2, vec![r2, r3]),
        ("h2", r2, vec![r2, r3]),
        ("h3", r3, vec![r3, r2]),
        ("h4", r3, vec![r3, r2]),
        ("h5", r4, vec![r4]),
        ("h6", r4, vec![r4]),
    ];
    let receivers: Vec<_> = places
        .into_iter()
        .map(|(name, router, relays)| {
            let host = plan.host(name);
            plan.link(router, host, shape);
            (host, relays)
        })
        .collect();
    let mut stage = Stage::new(Network::build(plan, 5)?, (source, r1), &receivers)?;
    let refresh = format!("[timers]\nrefresh = \"{REFRESH_S}s\"\n");
    stage.start(&relays, &refresh)?;
    Ok((stage, [r2, r3]))
}

/// What was done and seen, and when (seconds after the sender's start).
struct Play {
    first: NodeId,
    second: NodeId,
    begin: Instant,
    killed: Option<f64>,
    moved: Option<f64>,
    again: Option<f64>,
    drained: Option<f64>,
    ended: Option<(Option<i32>, f64)>,
    /// Children of the two, over time.
    children: [Vec<(f64, f64)>; 2],
}

impl Play {
    fn step(
        &mut self,
        context: &Context,
        stage: &mut Stage,
        transfer: &mut Transfer,
    ) -> Result<()> {
        let now = self.begin.elapsed().as_secs_f64();
        let [first, second] = [self.first, self.second]
            .map(|node| stage.relay(node).map_or(0, |relay| children(relay)));
        self.children[0].push((now, first as f64));
        self.children[1].push((now, second as f64));
        let progress = transfer.sender.last("progress");
        let bytes = progress.map_or(0, |event| count(&event, "bytes"));
        let part = bytes as f64 / transfer.bytes as f64;
        if self.killed.is_none() && part > 0.2 && first + second == CHILDREN {
            context.note(format!("{now:.1} s: r2 is killed"));
            stage.relay(self.first)?.process.signal(Signal::SIGKILL)?;
            self.killed = Some(now);
        } else if self.killed.is_some() && self.moved.is_none() && second == CHILDREN {
            context.note(format!("{now:.1} s: all are below r3"));
            self.moved = Some(now);
        } else if self.moved.is_some() && self.again.is_none() && part > 0.5 {
            context.note(format!("{now:.1} s: r2 is started again"));
            let Stage {
                session, relays, ..
            } = stage;
            let relay = relays.iter_mut().find(|relay| relay.node == self.first);
            if let Some(relay) = relay {
                relay.restart(&session.network)?;
            }
            self.again = Some(now);
        } else if self.again.is_some_and(|at| now > at + 1.0) && self.drained.is_none() {
            context.note(format!("{now:.1} s: r3 is asked to end"));
            stage.relay(self.second)?.process.signal(Signal::SIGTERM)?;
            self.drained = Some(now);
        } else if self.drained.is_some()
            && self.ended.is_none()
            && let Some(code) = stage.relay(self.second)?.process.ended()
        {
            context.note(format!("{now:.1} s: r3 has ended"));
            self.ended = Some((code.code(), now));
        }
        Ok(())
    }

    fn report(self, report: &mut Report) {
        let mut table = Table::new("what happened", &["s", "what", "took s"]);
        let took = |from: Option<f64>, to: Option<f64>| from.zip(to).map(|(from, to)| to - from);
        let ended = self.ended.map(|(_, at)| at);
        let (moved, left) = (took(self.killed, self.moved), took(self.drained, ended));
        for (at, what, took) in [
            (self.killed, "r2's relay is killed", None),
            (self.moved, "r3 has all the children of both", moved),
            (self.again, "r2's relay is started again", None),
            (self.drained, "r3's relay is asked to end (SIGTERM)", None),
            (ended, "it has ended: all its children are below r2", left),
        ] {
            let cell = |value: Option<f64>| value.map_or("-".into(), |s| Cell::number(s, 2));
            table.row([cell(at), what.into(), cell(took)]);
        }
        report.tables.push(table);
        let seconds = |value: Option<f64>| value.unwrap_or(f64::NAN);
        // At most the time between two announcements, then the tries, and the delay of polling. A draining relay also tells
        // its own parent, at its next check.
        let limit = REFRESH_S + TRIES_S + 1.0;
        let name = "seconds until the children of the dead relay are below the other";
        report.timed(name, seconds(moved), "s", Bound::AtMost(limit));
        let name = "seconds until a relay that is asked to end has sent its children on";
        report.timed(name, seconds(left), "s", Bound::AtMost(limit + REFRESH_S));
        let code = self.ended.and_then(|(code, _)| code);
        report.holds("it ended with code 0", code == Some(0));
        report.holds("every step was seen", moved.is_some() && left.is_some());
        report.note("children announce themselves each second here (2 s by default)");
        report.note("times are seen by polling each 0.1 s");
        report.datum(
            "times",
            json!({
                "killed": self.killed, "moved": self.moved, "again": self.again,
                "drained": self.drained, "ended": ended,
            }),
        );
        let [first, second] = self.children;
        let plot = Plot::lines("children", "seconds", "children");
        report
            .plots
            .push(plot.series("r2", first).series("r3", second));
    }
}

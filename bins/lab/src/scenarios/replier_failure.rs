//! `lms-replier-failure`: the elected replier is killed in the middle, then the router next to it is
//! restarted; everything still arrives.

use crate::prelude::*;
use crate::session::{Owner, Replies, Session};
use crate::transfer::{Transfer, router_table};

/// The elected replier is killed in the middle, then the router next to it is restarted
#[derive(Debug, clap::Args)]
pub(crate) struct ReplierFailure {
    /// Size of the file in MiB (quick: 24)
    #[arg(long, default_value_t = 64, default_value_if("quick", "true", "24"))]
    mib: u64,
}

const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 6, 7, 1), 5_002);
/// How often routers refresh their state here; a silent replier is replaced after 3 of them and some
/// slack.
const REFRESH: Duration = Duration::from_millis(500);
const HOLD: Duration = Duration::from_millis(1_750);

impl Scenario for ReplierFailure {
    const NAME: &'static str = "lms-replier-failure";
    const FIGURE: &'static str = "LMS §6.7.1";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "repairs go on when a replier dies");
        let bytes = self.mib << 20;
        let mut session = build()?;
        session.own(Owner::Lab)?;
        session.start_routers(&Replies::default())?;
        let file = Path::new(SCRATCH).join("file.bin");
        write_file(&file, bytes)?;
        let mut transfer = Transfer::start(&session, &file, &["--rate", "24M", "--timeout", "4s"])?;
        let mut play = Play::default();
        let mut repliers = Vec::new();
        let begin = Instant::now();
        let limit = Duration::from_secs(60 + bytes / 1_000_000);
        let mut failed = None;
        transfer.watch_all(limit, |transfer| {
            session.remember_repliers(&mut repliers);
            let step = play.step(context, &mut session, transfer, begin);
            failed = failed.take().or(step.err());
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        let killed = play
            .killed
            .clone()
            .context("the transfer ended before a replier could be killed")?;
        let outcome = transfer.finish_all(&session, Duration::from_secs(20))?;
        play.report(&mut report, &killed);
        report.tables.push(outcome.receiver_table());
        report.tables.push(router_table(&session, &repliers)?);
        let name = "every receiver that lives has every byte, and the sender's digest";
        report.holds(name, outcome.whole() && outcome.receivers.len() == 3);
        let missing = count(&outcome.sender, "complete") == 3;
        report.holds("the sender says who has confirmed: 3 of 4", missing);
        report.datum("outcome", &outcome);
        Ok(report)
    }
}

/// Four receivers behind two routers behind one.
fn build() -> Result<Session> {
    let mut plan = Plan::default();
    let source = plan.host("source");
    let [r1, r2, r3] = ["r1", "r2", "r3"].map(|name| plan.router(name));
    let receivers: Vec<NodeId> = ["h1", "h2", "h3", "h4"].map(|name| plan.host(name)).into();
    let shape = Shape::lossy(0.02).delayed(Duration::from_millis(1));
    for (a, b) in [(source, r1), (r1, r2), (r1, r3)] {
        plan.link(a, b, shape);
    }
    for (receiver, router) in receivers.iter().zip([r2, r2, r3, r3]) {
        plan.link(router, *receiver, shape);
    }
    Ok(Session::new(
        Network::build(plan, 3)?,
        source,
        receivers,
        GROUP,
    ))
}

/// What was done and seen, and when (seconds after the sender's start).
#[derive(Default)]
struct Play {
    /// The killed receiver, the router that had elected it, and the time.
    killed: Option<(String, String, f64)>,
    replaced: Option<(String, f64)>,
    restarted: Option<f64>,
    elected_again: Option<(String, f64)>,
    /// Dmcasts forwarded by all routers, over time.
    dmcasts: Vec<(f64, f64)>,
}

impl Play {
    fn step(
        &mut self,
        context: &Context,
        session: &mut Session,
        transfer: &mut Transfer,
        begin: Instant,
    ) -> Result<()> {
        let now = begin.elapsed().as_secs_f64();
        let total: u64 = session
            .routers
            .iter()
            .map(|r| count(&r.counters().unwrap_or_default()["packets"], "dmcast"))
            .sum();
        self.dmcasts.push((now, total as f64));
        let last = &transfer.receivers[3].process;
        let bytes = last
            .last("progress")
            .and_then(|event| event["bytes"].as_u64())
            .unwrap_or(0);
        let part = bytes as f64 / transfer.bytes as f64;
        // r2's replier repairs h1 and h2's side; it is one of these two.
        let replier = session.routers[1].group(&GROUP.ip().to_string())?["replier"].clone();
        let who = replier["neighbour"].as_str().map(str::to_owned);
        match (
            &self.killed,
            &self.replaced,
            self.restarted,
            &self.elected_again,
        ) {
            (None, ..) if part > 0.25 => self.kill(context, session, transfer, who, now)?,
            (Some((_, old, _)), None, ..) if who.is_some() && who.as_ref() != Some(old) => {
                let who = who.unwrap_or_default();
                context.note(format!("{now:.1} s: r2 has a new replier, {who}"));
                self.replaced = Some((who, now));
            }
            (Some(_), Some(_), None, _) if part > 0.55 => {
                context.note(format!("{now:.1} s: r2's lms-router is restarted"));
                session.routers[1].restart(&session.network)?;
                self.restarted = Some(begin.elapsed().as_secs_f64());
            }
            (Some(_), Some(_), Some(_), None) if who.is_some() => {
                let who = who.unwrap_or_default();
                context.note(format!("{now:.1} s: r2 has a replier again, {who}"));
                self.elected_again = Some((who, now));
            }
            _ => {}
        }
        Ok(())
    }

    fn kill(
        &mut self,
        context: &Context,
        session: &Session,
        transfer: &mut Transfer,
        who: Option<String>,
        now: f64,
    ) -> Result<()> {
        let Some(who) = who else { return Ok(()) };
        let plan = session.network.plan();
        let found = transfer
            .receivers
            .iter_mut()
            .find(|r| plan.address(r.node).to_string() == who);
        let receiver = found.with_context(|| format!("the replier {who} is no receiver"))?;
        context.note(format!(
            "{now:.1} s: {}, r2's elected replier, is killed",
            receiver.name
        ));
        receiver.process.signal(Signal::SIGKILL)?;
        receiver.given_up = true;
        self.killed = Some((receiver.name.clone(), who, now));
        Ok(())
    }

    fn report(&self, report: &mut Report, (name, _, killed): &(String, String, f64)) {
        let mut table = Table::new("what happened", &["s", "what", "took s"]);
        let mut row = |at: f64, what: String, took: Option<f64>| {
            let took = took.map_or_else(|| Cell::from("-"), |took| Cell::number(took, 2));
            table.row([Cell::number(at, 2), what.into(), took]);
        };
        row(
            *killed,
            format!("{name}, the elected replier of r2, is killed"),
            None,
        );
        if let Some((who, at)) = &self.replaced {
            row(
                *at,
                format!("r2 has another replier, {who}"),
                Some(at - killed),
            );
        }
        if let Some(at) = self.restarted {
            row(at, "r2's lms-router is restarted".into(), None);
            if let Some((who, again)) = &self.elected_again {
                row(
                    *again,
                    format!("r2 has a replier again, {who}"),
                    Some(again - at),
                );
            }
        }
        report.tables.push(table);
        let gap = self
            .replaced
            .as_ref()
            .map_or(f64::NAN, |(_, at)| at - killed);
        let limit = (HOLD + 2 * REFRESH).as_secs_f64();
        report.timed(
            "seconds until the dead replier is replaced",
            gap,
            "s",
            Bound::AtMost(limit),
        );
        let again = self
            .elected_again
            .as_ref()
            .zip(self.restarted)
            .map(|((_, at), from)| at - from);
        let name = "seconds until the restarted router has a replier";
        report.timed(name, again.unwrap_or(f64::NAN), "s", Bound::AtMost(limit));
        report.note(
            "routers refresh every 0.5 s here (10 s by default) and hold 3 times that and slack",
        );
        report.note("times are seen by polling each 0.1 s");
        let plot = Plot::lines("dmcasts forwarded by all routers", "seconds", "dmcasts");
        report
            .plots
            .push(plot.series("dmcasts", self.dmcasts.clone()));
        report.datum(
            "times",
            json!({
                "killed": killed,
                "replaced": self.replaced,
                "restarted": self.restarted,
                "elected_again": self.elected_again,
            }),
        );
    }
}

//! `bfed-convergence`: federations that no lab can build, in virtual time: how long routes and trees
//! take to settle when links fail and recover, and how many messages that costs.
//!
//! # What runs
//!
//! `bfed`'s control nodes, one for each network, with one routing table; each has a data node that
//! agrees to everything, so trees are the same as with real ones. Networks form a random tree
//! and as many links more; a link takes 10 ms one way. Sessions of random owners are viewed at random
//! gateways.
//!
//! Then random links break, one after another, each mended before the next. Both ends learn at once
//! that a link is broken: in reality the hold timer, or the kernel, adds its time. No gateway waits for a
//! restart, flaps are not damped, soft state needs no refresh meanwhile; all else is as by default
//! (changes of routes are gathered for 100 ms, lost peers are contacted again after a second).
//!
//! # What is measured
//!
//! *Settled* is the last change of any route or tree anywhere. *Flows again*: the time from the break
//! until every gateway on a viewer's way is attached, sends to the next, and every link of the way is
//! up; of viewers whose path led over the link and that can still be reached.

mod world;

use anyhow::Result;
use bfed::{Duration, Instant, SessionName};
use netsim::Rng;
use serde::Serialize;

use crate::plot::Plot;
use crate::report::{Bound, Cell, Report, Table};
use crate::scenario::{Context, Need, Scenario, within};
use world::{Messages, World};

/// 50 and 500 simulated gateways whose links break: how soon routes and trees settle
#[derive(Debug, clap::Args)]
pub struct Convergence {
    /// How many, or several numbers with commas (quick: 20)
    #[arg(
        long,
        default_value = "50,500",
        value_delimiter = ',',
        default_value_if("quick", "true", "20")
    )]
    #[arg(value_parser = within::<usize>(3..=2000))]
    gateways: Vec<usize>,
    /// Links that break, one after another (quick: 4)
    #[arg(long, default_value_t = 20, default_value_if("quick", "true", "4"))]
    failures: usize,
    /// Of the federation and of what breaks
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// After this long without a change the network counts as settled.
const CALM: Duration = Duration::from_secs(20);
/// After a link is mended its ends may wait for a minute before they call.
const CALLED: Duration = Duration::from_secs(70);
/// Sessions, and viewers of each.
const SESSIONS: usize = 20;
const VIEWERS: usize = 10;
/// Viewers see a session again within this many milliseconds after both ends learn of the break.
const TARGET_MS: f64 = 1500.0;

impl Scenario for Convergence {
    const NAME: &'static str = "bfed-convergence";
    const NEEDS: &'static [Need] = &[];
    const FIGURE: &'static str = "Broadcast Federation §5.1 and §5.2";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "routes and trees when links break");
        let failures = self.failures;
        let seed: u64 = self.seed;
        let mut start = Table::with_header(
            "from nothing to all routes",
            "gateways | links | settled s | UPDATEs | a gateway | tree messages",
        );
        let mut breaks = Table::with_header(
            "a link breaks",
            "gateways | breaks | settled ms, mean | worst | UPDATEs, mean | worst | viewers \
             struck | flows again ms, mean | 95 % | worst | cut off | mended: settled s, mean",
        );
        let mut plot = Plot::lines(
            "viewers struck by broken links",
            "ms since the break",
            "share of them that see the session again",
        );
        for &count in &self.gateways {
            let outcome = run(context, count, failures, seed)?;
            outcome.add(&mut report, &mut start, &mut breaks, &mut plot);
        }
        report.tables = vec![start, breaks];
        report.plots = vec![plot];
        report.note(
            "virtual time; links of 10 ms; both ends of a link learn at once that it is broken (in \
             reality the hold timer or the kernel adds its time); one routing table; changes of routes \
             are gathered for 100 ms; no damping",
        );
        report.note(format!(
            "{SESSIONS} sessions of {VIEWERS} viewers each; every break is mended, and everything \
             settled, before the next; ends of a broken link call ever more slowly, up to a minute apart"
        ));
        Ok(report)
    }
}

/// Numbers of gateways.
/// What one break did.
#[derive(Clone, Debug, Default, Serialize)]
struct Break {
    settled_ms: f64,
    updates: u64,
    tree_messages: u64,
    /// When each viewer that was struck saw the session again.
    again_ms: Vec<f64>,
    /// Viewers without a remaining path.
    cut_off: usize,
    /// Viewers that had a remaining path and did not receive the session.
    lost: usize,
    mended_ms: f64,
    routes_right: bool,
}

/// What one federation did.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    gateways: usize,
    links: usize,
    settled_ms: f64,
    updates: u64,
    tree_messages: u64,
    routes_right: bool,
    breaks: Vec<Break>,
}

fn millis(time: Duration) -> f64 {
    time.total_micros() as f64 / 1000.0
}

/// Viewers and the sessions they view.
struct Audience(Vec<(usize, SessionName)>);

impl Audience {
    fn new(count: usize, rng: &mut Rng) -> Result<Audience> {
        let mut viewers = Vec::new();
        for number in 0..SESSIONS {
            let owner = rng.below(count as u64) as usize;
            let name = format!("bfed://{}/session-{number}", owner + 1);
            let session = SessionName::parse(&name).map_err(|error| anyhow::anyhow!("{error}"))?;
            let others = (0..VIEWERS).map(|_| rng.below(count as u64) as usize);
            let others = others.filter(|&at| at != owner);
            viewers.extend(others.map(|at| (at, session.clone())));
        }
        viewers.sort();
        viewers.dedup();
        Ok(Audience(viewers))
    }

    /// Viewers without their session request it; then the network settles.
    fn ask(&self, world: &mut World) -> Result<()> {
        for (at, session) in &self.0 {
            if world.way(*at, session).is_none() {
                world.view(*at, session)?;
            }
        }
        world.run(CALM, |_| Ok(()))
    }
}

fn owner(session: &SessionName) -> usize {
    match session.owner() {
        bfed::Owner::Number(network) => network.get() as usize - 1,
        bfed::Owner::Name(_) => usize::MAX,
    }
}

fn run(context: &Context, count: usize, failures: usize, seed: u64) -> Result<Outcome> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&(count as u64).to_le_bytes());
    let rng = &mut Rng::new(bytes);
    let mut world = World::new(count, rng)?;
    let begun = world.now;
    world.run(CALM, |_| Ok(()))?;
    let settled_ms = millis(world.changed_at - begun);
    let updates = world.messages.updates;
    let audience = Audience::new(count, rng)?;
    audience.ask(&mut world)?;
    let mut outcome = Outcome {
        gateways: count,
        links: world.links().len(),
        settled_ms,
        updates,
        tree_messages: world.messages.trees,
        routes_right: world.routes_are_shortest()?,
        breaks: Vec::new(),
    };
    context.note(format!(
        "{count} gateways: settled after {settled_ms:.0} ms"
    ));
    for number in 0..failures {
        let done = broken(&mut world, &audience, rng)?;
        context.note(format!("{count} gateways, break {}: {done:?}", number + 1));
        outcome.breaks.push(done);
    }
    Ok(outcome)
}

/// A random link breaks, and is mended once everything has settled.
fn broken(world: &mut World, audience: &Audience, rng: &mut Rng) -> Result<Break> {
    let links = world.links();
    let link = links[rng.below(links.len() as u64) as usize];
    let struck = |(at, session): &&(usize, SessionName)| {
        let way = world.way(*at, session);
        way.is_some_and(|way| way.contains(&link))
    };
    let struck: Vec<_> = audience.0.iter().filter(struck).cloned().collect();
    let (begun, before) = (world.now, world.messages);
    world.set_link(link, false)?;
    let reached =
        |(at, session): &(usize, SessionName)| world.distances(owner(session)).contains_key(at);
    let (mut waiting, gone): (Vec<_>, Vec<_>) = struck.into_iter().partition(reached);
    let mut again_ms = Vec::new();
    let mut look = |world: &mut World, waiting: &mut Vec<(usize, SessionName)>| {
        waiting.retain(|(at, session)| {
            let flows = world.way(*at, session).is_some();
            if flows {
                again_ms.push(millis(world.now - begun));
            }
            !flows
        });
    };
    world.run(CALM, |world| {
        if world.trees_changed() {
            look(world, &mut waiting);
        }
        Ok(())
    })?;
    let spent: Messages = world.messages - before;
    let settled_ms = millis(world.changed_at - begun);
    let broken_right = world.routes_are_shortest()?;
    let lost = waiting.len();
    let mended: Instant = world.now;
    world.set_link(link, true)?;
    world.run(CALLED, |_| Ok(()))?;
    let mended_ms = millis(world.changed_at - mended);
    audience.ask(world)?;
    Ok(Break {
        settled_ms,
        updates: spent.updates,
        tree_messages: spent.trees,
        again_ms,
        cut_off: gone.len(),
        lost,
        mended_ms,
        routes_right: broken_right && world.routes_are_shortest()?,
    })
}

fn mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    values.clone().sum::<f64>() / values.count().max(1) as f64
}

impl Outcome {
    fn add(&self, report: &mut Report, start: &mut Table, breaks: &mut Table, plot: &mut Plot) {
        let count = self.gateways;
        start.row([
            count.into(),
            self.links.into(),
            Cell::number(self.settled_ms / 1000.0, 2),
            self.updates.into(),
            Cell::number(self.updates as f64 / count as f64, 1),
            self.tree_messages.into(),
        ]);
        let settled = self.breaks.iter().map(|one| one.settled_ms);
        let updates = self.breaks.iter().map(|one| one.updates as f64);
        let mut again: Vec<f64> = self
            .breaks
            .iter()
            .flat_map(|one| one.again_ms.clone())
            .collect();
        again.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let last = again.len().saturating_sub(1);
            again
                .get((last as f64 * share).round() as usize)
                .copied()
                .unwrap_or(0.0)
        };
        let mended = self.breaks.iter().map(|one| one.mended_ms);
        let cut_off: usize = self.breaks.iter().map(|one| one.cut_off).sum();
        let lost: usize = self.breaks.iter().map(|one| one.lost).sum();
        breaks.row([
            count.into(),
            self.breaks.len().into(),
            Cell::number(mean(settled.clone()), 0),
            Cell::number(settled.fold(0.0, f64::max), 0),
            Cell::number(mean(updates.clone()), 0),
            Cell::number(updates.fold(0.0, f64::max), 0),
            again.len().into(),
            Cell::number(mean(again.iter().copied()), 0),
            Cell::number(at(0.95), 0),
            Cell::number(at(1.0), 0),
            cut_off.into(),
            Cell::number(mean(mended) / 1000.0, 1),
        ]);
        let shares = again.iter().enumerate();
        let shares = shares.map(|(at, &ms)| (ms, (at + 1) as f64 / again.len() as f64));
        let series = format!("{count} gateways");
        *plot = std::mem::take(plot).series(&series, shares);
        let right = self.routes_right && self.breaks.iter().all(|one| one.routes_right);
        report.holds(
            format!("{count} gateways: all routes are shortest paths, always"),
            right,
        );
        let name = format!("{count} gateways: viewers who could be reached and were not");
        report.check(name, lost as f64, "", Bound::Exactly(0.0));
        let name = format!("{count} gateways: the last viewer sees the session again");
        report.check(name, at(1.0), "ms", Bound::AtMost(TARGET_MS));
        report.datum(&format!("gateways-{count}"), self);
    }
}

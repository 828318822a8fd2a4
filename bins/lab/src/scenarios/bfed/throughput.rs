//! `bfed-throughput`: what data nodes forward, one to five of them, and one beside haproxy.

use bfed::wire::data::MAX_PAYLOAD_LEN;

use super::load::{Facts, Flow, Link, Load, Relay, Splice, Stage, has_haproxy};
use super::rounds::prepare;
use crate::prelude::*;

/// Throughput of one to five data nodes, and of one beside haproxy
#[derive(Debug, clap::Args)]
pub(crate) struct Throughput {
    /// What each data node and haproxy get of a core, in percent
    #[arg(long, default_value_t = 10.0, value_parser = within::<f64>(1.0..=100.0))]
    share: f64,
    /// Time that is measured, for each setting (quick: 0.4)
    #[arg(long, default_value_t = 3.0, default_value_if("quick", "true", "0.4"))]
    seconds: f64,
    /// Times that each setting is measured; the median counts (quick: 1)
    #[arg(long, default_value_t = 5, default_value_if("quick", "true", "1"))]
    #[arg(value_parser = within::<usize>(1..=1_000_000))]
    rounds: usize,
    /// Most data nodes (quick: 2)
    #[arg(long, default_value_t = 5, default_value_if("quick", "true", "2"))]
    #[arg(value_parser = within::<usize>(1..=1_000_000))]
    nodes: usize,
    /// What: nodes, relay, links, or several with commas
    #[arg(long, value_delimiter = ',', default_value = "all", value_parser = PARTS)]
    parts: Vec<String>,
}

/// The longer frames of the paper's comparison, in bytes; its throughput grew up to there. As long as those of a session in a
/// group, beside haproxy.
const FRAME: usize = 16 << 10;
/// The frames of bulk data beside haproxy: as the HTTP network cuts them.
const BULK: usize = MAX_PAYLOAD_LEN;
/// Frames of the two lines of Figure 10, whose sizes the paper's text does not name.
const FRAMES: [usize; 2] = [1 << 10, FRAME];
/// Receivers of one session.
const FANOUT: usize = 8;
/// What n data nodes forward, as a part of n times what one forwards.
const LINEAR: f64 = 0.9;
/// What a data node delivers as a part of what haproxy does, by name and number of receivers: to one receiver beside
/// haproxy with splice; to eight, and to a group, beside haproxy without it.
const TARGETS: [(Splice, f64); 3] = [(Splice::On, 1.0), (Splice::Off, 1.5), (Splice::Off, 10.0)];
/// What an encrypted link forwards, as a part of what a plain one does.
const ENCRYPTED: f64 = 0.6;
/// haproxy's ways, and what the report calls them.
const HAPROXY: [(Splice, &str); 3] = [
    (Splice::Off, "haproxy"),
    (Splice::On, "haproxy with splice"),
    (Splice::LongPipes, "haproxy with splice, pipes of 1 MiB"),
];

/// What `--parts` takes.
const PARTS: [&str; 4] = ["all", "nodes", "relay", "links"];

impl Scenario for Throughput {
    const NAME: &'static str = "bfed-throughput";
    const FIGURE: &'static str = "Broadcast Federation §6.2, Figure 10";

    fn run(&self, context: &Context) -> Result<Report> {
        let parts = chosen(&self.parts, &PARTS);
        let mut report = Report::new(Self::NAME, "bytes through data nodes");
        let run = Run {
            context,
            stage: prepare(self.share, &mut report)?,
            options: self,
        };
        if parts.contains(&"nodes") {
            run.nodes(&mut report, self.nodes)?;
        }
        if parts.contains(&"relay") {
            run.relay(&mut report)?;
        }
        if parts.contains(&"links") {
            run.links(&mut report)?;
        }
        report.note(
            "bytes on TCP channels between data nodes, headers included; on the native network, payloads. \
             Sources and receivers are threads of lab on the same machine, held to no share",
        );
        report.note(
            "the paper (§6.2): a little less than 200 Mbit/s for each data node, linear from one to five, \
             around a gigabit with five; 496 MHz Pentium III, two gateways in a row",
        );
        Ok(report)
    }
}

struct Run<'a> {
    context: &'a Context,
    options: &'a Throughput,
    stage: Stage,
}

/// All rounds of one setting.
struct Rounds {
    flows: Vec<Flow>,
    facts: Vec<Facts>,
}

impl Rounds {
    fn of(&self, figure: fn(&Flow) -> f64) -> f64 {
        median(self.flows.iter().map(figure))
    }

    /// The part that arrived.
    fn arrived(&self) -> f64 {
        let sum = |part: fn(&Facts) -> u64| self.facts.iter().map(part).sum::<u64>() as f64;
        sum(|facts| facts.arrived) / sum(|facts| facts.due).max(1.0)
    }
}

impl Run<'_> {
    /// All settings in turn, as many times as there are rounds.
    fn play(&self, settings: &[(String, Load)]) -> Result<Vec<Rounds>> {
        let fresh = || Rounds {
            flows: Vec::new(),
            facts: Vec::new(),
        };
        let mut all: Vec<Rounds> = settings.iter().map(|_| fresh()).collect();
        for round in 1..=self.options.rounds {
            for ((name, load), rounds) in settings.iter().zip(&mut all) {
                self.context.note(format!("{name}, round {round}"));
                let (flow, facts) = self.stage.play(*load, self.options.seconds)?;
                rounds.flows.push(flow);
                rounds.facts.push(facts);
            }
        }
        Ok(all)
    }

    /// Figure 10.
    fn nodes(&self, report: &mut Report, most: usize) -> Result<()> {
        let settings: Vec<(String, Load)> = (1..=most)
            .flat_map(|nodes| FRAMES.map(|frame| (nodes, frame)))
            .map(|(nodes, frame)| {
                let load = Load {
                    nodes,
                    ..Load::one(Relay::DataNodes, frame)
                };
                (format!("{nodes} data nodes, frames of {frame} bytes"), load)
            })
            .collect();
        let all = self.play(&settings)?;
        let mut table = Table::with_header(
            "Figure 10: one session a data node",
            "data nodes | frame, bytes | Mbit/s | / one node | Gbit for 1 s of a core",
        );
        let mut lines = FRAMES.map(|_| Vec::new());
        let rate = |rounds: &Rounds| rounds.of(Flow::bps);
        for (at, ((_, load), rounds)) in settings.iter().zip(&all).enumerate() {
            let line = at % FRAMES.len();
            let ratio = rate(rounds) / rate(&all[line]);
            table.row([
                load.nodes.into(),
                load.frame.into(),
                Cell::number(rate(rounds) / 1e6, 1),
                Cell::number(ratio, 2),
                Cell::number(rounds.of(Flow::bits_per_cpu_s) / 1e9, 2),
            ]);
            lines[line].push((load.nodes as f64, rate(rounds) / 1e6));
            if load.nodes == most && most > 1 && self.stage.has_shares() {
                report.timed(
                    format!(
                        "frames of {} bytes: {most} data nodes / {most} times one",
                        load.frame
                    ),
                    ratio / most as f64,
                    "",
                    Bound::AtLeast(LINEAR),
                );
            }
        }
        report.tables.push(table);
        let mut plot = Plot::lines("one session a data node", "data nodes", "Mbit/s");
        for (frame, line) in FRAMES.iter().zip(lines) {
            plot = plot.series(&format!("frames of {frame} bytes"), line);
        }
        report.plots.push(plot);
        let whole = all.iter().flat_map(|rounds| &rounds.facts).all(Facts::hold);
        report.holds(
            "every byte arrives at every receiver, as it was sent",
            whole,
        );
        report.datum("nodes", data(&settings, &all));
        Ok(())
    }

    /// One data node in three roles, and haproxy where it is installed.
    fn forwarders() -> Vec<(String, Load)> {
        let setting = |name: String, relay, fanout| {
            let frame = match relay {
                Relay::Native => FRAME,
                _ => BULK,
            };
            let load = Load::one(relay, frame);
            (name, Load { fanout, ..load })
        };
        let mut settings = vec![
            setting("data node, 1 receiver".into(), Relay::DataNodes, 1),
            setting(
                format!("data node, {FANOUT} receivers"),
                Relay::DataNodes,
                FANOUT,
            ),
            setting(
                format!("data node, a group with {FANOUT} receivers"),
                Relay::Native,
                FANOUT,
            ),
        ];
        if has_haproxy() {
            for fanout in [1, FANOUT] {
                settings.extend(HAPROXY.map(|(splice, name)| {
                    let receivers = if fanout == 1 { "receiver" } else { "receivers" };
                    let name = format!("{name}, {fanout} {receivers}");
                    setting(name, Relay::Haproxy(splice), fanout)
                }));
            }
        }
        settings
    }

    /// One data node, and haproxy.
    fn relay(&self, report: &mut Report) -> Result<()> {
        let settings = Self::forwarders();
        if !has_haproxy() {
            report.skip("data node / haproxy", "haproxy is not installed");
        }
        let all = self.play(&settings)?;
        self.compare(report, &settings, &all);
        let names = settings.iter().map(|(name, _)| name);
        let bars = all
            .iter()
            .map(|rounds| rounds.of(Flow::bits_per_cpu_s) / 1e9);
        let plot = Plot::bars("for one second of a core", "Gbit delivered", names);
        report.plots.push(plot.heights("delivered", bars));
        for ((name, load), rounds) in settings.iter().zip(&all) {
            let (said, holds): (_, fn(&Facts) -> bool) = match load.relay {
                Relay::Haproxy(_) => continue,
                Relay::DataNodes | Relay::Chain(_) => (
                    "every byte arrives at every receiver, as it was sent",
                    Facts::hold,
                ),
                // Datagrams that a slow receiver loses are its own loss; the table shows them.
                Relay::Native => ("what arrives is what was sent", |facts| {
                    facts.wrong == 0 && facts.arrived > 0 && facts.arrived <= facts.due
                }),
            };
            report.holds(format!("{name}: {said}"), rounds.facts.iter().all(holds));
        }
        report.datum("relay", data(&settings, &all));
        Ok(())
    }

    /// The table, and each role compared with haproxy with as many receivers.
    fn compare(&self, report: &mut Report, settings: &[(String, Load)], all: &[Rounds]) {
        let mut table = Table::with_header(
            format!("one session, one forwarder, frames of {BULK} bytes; in a group of {FRAME}"),
            "who | delivered, Mbit/s | core used | Gbit for 1 s of a core | / haproxy | / haproxy with splice | arrived",
        );
        // Without limits the load generator may be the bottleneck: then processor time for each byte is compared.
        let figure = match self.stage.has_shares() {
            true => Flow::bps,
            false => Flow::bits_per_cpu_s,
        };
        for (at, ((name, load), rounds)) in settings.iter().zip(all).enumerate() {
            let ratio = |splice| {
                let mut both = settings.iter().zip(all);
                let beside = both.find(|((_, other), _)| {
                    other.relay == Relay::Haproxy(splice) && other.fanout == load.fanout
                });
                beside.map(|(_, other)| rounds.of(figure) / other.of(figure))
            };
            let shown = |splice| ratio(splice).map_or("-".into(), |ratio| Cell::number(ratio, 2));
            table.row([
                name.as_str().into(),
                Cell::number(rounds.of(Flow::bps) / 1e6, 1),
                Cell::number(rounds.of(|flow| flow.cpu_s / flow.seconds), 3),
                Cell::number(rounds.of(Flow::bits_per_cpu_s) / 1e9, 2),
                shown(Splice::Off),
                shown(Splice::On),
                Cell::number(rounds.arrived(), 4),
            ]);
            let Some(&(splice, least)) = TARGETS.get(at) else {
                continue;
            };
            let other = HAPROXY.iter().find(|(other, _)| *other == splice);
            if let Some((ratio, (_, other))) = ratio(splice).zip(other) {
                let what = format!("{name} / {other}, for each byte delivered");
                report.timed(what, ratio, "", Bound::AtLeast(least));
            }
        }
        report.tables.push(table);
    }
}

impl Run<'_> {
    /// Two data nodes in a row: QUIC between them, and TCP in the clear.
    fn links(&self, report: &mut Report) -> Result<()> {
        let links = [(Link::Plain, "plain: TCP"), (Link::Quic, "encrypted: QUIC")];
        let settings = links.map(|(link, name)| {
            let load = Load::one(Relay::Chain(link), BULK);
            (name.to_owned(), load)
        });
        let all = self.play(&settings)?;
        let mut table = Table::with_header(
            format!("one session through two data nodes, frames of {BULK} bytes"),
            "link | delivered, Mbit/s | cores used, both nodes | Gbit for 1 s of a core | / plain",
        );
        // The work of both nodes for each byte: with shares, the one that works less waits for the other.
        let figure = |rounds: &Rounds| rounds.of(Flow::bits_per_cpu_s);
        for ((name, _), rounds) in settings.iter().zip(&all) {
            table.row([
                name.as_str().into(),
                Cell::number(rounds.of(Flow::bps) / 1e6, 1),
                Cell::number(rounds.of(|flow| flow.cpu_s / flow.seconds), 3),
                Cell::number(figure(rounds) / 1e9, 2),
                Cell::number(figure(rounds) / figure(&all[0]), 2),
            ]);
        }
        report.tables.push(table);
        let what = "encrypted link / plain link, for each byte delivered";
        let ratio = figure(&all[1]) / figure(&all[0]);
        report.timed(what, ratio, "", Bound::AtLeast(ENCRYPTED));
        let whole = all.iter().flat_map(|rounds| &rounds.facts).all(Facts::hold);
        report.holds(
            "every byte arrives through both data nodes, as it was sent",
            whole,
        );
        report.datum("links", data(&settings, &all));
        Ok(())
    }
}

/// Every single measurement.
fn data(settings: &[(String, Load)], all: &[Rounds]) -> Vec<serde_json::Value> {
    let rows = settings.iter().zip(all).map(|((name, _), rounds)| {
        serde_json::json!({ "setting": name, "flows": rounds.flows, "facts": rounds.facts })
    });
    rows.collect()
}

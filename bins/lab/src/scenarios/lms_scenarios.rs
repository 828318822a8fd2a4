//! `lms-scenarios`: the three scenarios of LMS §6.5.3 on the testbed of Figure 6.15, every field of the
//! option checked in captured packets.

use linux_net::raw::Ipv4Socket;
use lms_proto::{Form, Kind, TurningPoint};

use super::testbed::{TIMEOUT, Testbed};
use crate::packets::{Seen, data, dmcast};
use crate::prelude::*;

/// The paper's three scenarios: a request turns, a replier's request goes up, a dmcast comes down
#[derive(Debug, clap::Args)]
pub(crate) struct LmsScenarios {}

const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 6, 5, 3), 6_503);
const UDP: u8 = 17;
const IPIP: u8 = 4;

impl Scenario for LmsScenarios {
    const NAME: &'static str = "lms-scenarios";
    const FIGURE: &'static str = "LMS §6.5.3, Figure 6.15";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "source, router, H1 (the replier) and H2");
        let columns =
            "scenario | seen at | from | to | TTL | IP | option | TP if | TP | source | group";
        report
            .tables
            .push(Table::with_header("captured packets", columns));
        let bench = Bench(Testbed::build(GROUP)?);
        context.note("1: H2 multicasts a request");
        let turning_point = bench.first(&mut report)?;
        context.note("2: H1, the replier, multicasts a request");
        bench.second(&mut report)?;
        context.note("3: H1 sends a dmcast to the turning point");
        bench.third(&mut report, turning_point)?;
        let counters = bench.0.session.routers[0].counters()?;
        report.datum("router", &counters);
        let expected = [
            ("request_turned", 1),
            ("request_to_parent", 1),
            ("dmcast", 1),
        ];
        for (name, count) in expected {
            let counted = counters["packets"]
                .as_object()
                .into_iter()
                .flatten()
                .filter(|(key, _)| key.starts_with(name))
                .filter_map(|(_, value)| value.as_u64())
                .sum::<u64>();
            report.holds(
                format!("the router counts {count} packet as {name}"),
                counted == count,
            );
        }
        let dropped: u64 = counters["drops"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(_, v)| v.as_u64())
            .sum();
        report.holds("the router dropped nothing", dropped == 0);
        Ok(report)
    }
}

struct Bench(Testbed);

fn is_request(seen: &Seen) -> bool {
    seen.protocol == UDP
        && seen
            .option
            .is_some_and(|(option, _)| option.kind == Kind::Request)
}

impl Bench {
    /// H2's request turns at the router and reaches H1 with the turning point filled in.
    fn first(&self, report: &mut Report) -> Result<TurningPoint> {
        let payload = b"lo 7, hi 9, request 1";
        self.0.h2.request(
            &self.0.session.network,
            Form::Classic,
            self.0.source.address,
            payload,
        )?;
        let sent = self
            .0
            .h2
            .wire
            .wait("request", TIMEOUT, Seen::of(is_request))?;
        row(report, "1", "H2's link", &sent);
        self.fields(report, "1: as H2 sends it", &sent, self.0.h2.address);
        report.holds(
            "1: as H2 sends it: turning point unset",
            sent.turning_point().is_none(),
        );
        let turned = self
            .0
            .h1
            .wire
            .wait("request", TIMEOUT, Seen::of(is_request))?;
        row(report, "1", "H1's link", &turned);
        self.fields(report, "1: as H1 receives it", &turned, self.0.h2.address);
        let point = turned
            .turning_point()
            .context("1: the router set no turning point")?;
        let router = matches!(point.router, std::net::IpAddr::V4(a) if self.0.router.contains(&a));
        report.holds("1: the turning-point address is the router's", router);
        // Only the router interprets it: scenario 3 shows that it leads to H2.
        report.holds(
            "1: the turning-point interface is set",
            point.iface.is_set(),
        );
        report.holds(
            "1: the router takes one hop off",
            turned.ttl + 1 == sent.ttl,
        );
        let (option, received) = self.0.h1.receive()?;
        let same = turned.option.is_some_and(|(seen, _)| seen == option) && received == payload;
        report.holds(
            "1: recvmsg at H1 delivers the same option and the payload",
            same,
        );
        let elsewhere = Seen::drain(&self.0.source.wire)?.iter().any(is_request);
        report.holds("1: nothing reaches the source", !elsewhere);
        Ok(point)
    }

    /// H1's own request passes the router untouched, toward the source.
    fn second(&self, report: &mut Report) -> Result<()> {
        let payload = b"lo 3, hi 3, request 1";
        self.0.h1.wire.drain()?;
        self.0.h2.wire.drain()?;
        self.0.h1.request(
            &self.0.session.network,
            Form::Classic,
            self.0.source.address,
            payload,
        )?;
        let sent = self
            .0
            .h1
            .wire
            .wait("request", TIMEOUT, Seen::of(is_request))?;
        row(report, "2", "H1's link", &sent);
        let passed = self
            .0
            .source
            .wire
            .wait("request", TIMEOUT, Seen::of(is_request))?;
        row(report, "2", "source's link", &passed);
        self.fields(
            report,
            "2: as the source receives it",
            &passed,
            self.0.h1.address,
        );
        report.holds("2: the option is untouched", passed.option == sent.option);
        report.holds("2: turning point unset", passed.turning_point().is_none());
        let (option, received) = self.0.source.receive()?;
        let same = passed.option.is_some_and(|(seen, _)| seen == option) && received == payload;
        report.holds(
            "2: recvmsg at the source delivers the same option and the payload",
            same,
        );
        let elsewhere = Seen::drain(&self.0.h2.wire)?.iter().any(is_request);
        report.holds("2: nothing reaches H2", !elsewhere);
        Ok(())
    }

    /// H1's dmcast is decapsulated at the turning point and multicast to H2 alone.
    fn third(&self, report: &mut Report, point: TurningPoint) -> Result<()> {
        let std::net::IpAddr::V4(router) = point.router else {
            bail!("turning point without IPv4")
        };
        let payload = b"the packet that H2 has lost";
        let from = SocketAddrV4::new(self.0.source.address, GROUP.port());
        let inner = data(from, GROUP, payload)?;
        let packet = dmcast(self.0.h1.address, router, point.iface, &inner)?;
        self.0.h1.wire.drain()?;
        self.0.source.wire.drain()?;
        let network = &self.0.session.network;
        network.within(self.0.h1.node, || {
            Ok(Ipv4Socket::sender()?.send(0, &packet)?)
        })?;
        let sent =
            self.0
                .h1
                .wire
                .wait("dmcast", TIMEOUT, Seen::of(|seen| seen.protocol == IPIP))?;
        row(report, "3", "H1's link", &sent);
        let (option, _) = sent.option.context("3: the dmcast has no option")?;
        report.holds("3: as H1 sends it: option 139", option.kind == Kind::Dmcast);
        report.holds(
            "3: its turning point is the request's",
            option.turning_point == Some(point),
        );
        report.holds("3: to the turning-point router", sent.destination == router);
        let is_data = |seen: &Seen| seen.protocol == UDP && seen.destination == *GROUP.ip();
        let got = self.0.h2.wire.wait("repair", TIMEOUT, Seen::of(is_data))?;
        row(report, "3", "H2's link", &got);
        report.holds(
            "3: H2 receives it from the source, as data",
            got.source == self.0.source.address,
        );
        report.holds("3: both headers' options are gone", got.option.is_none());
        report.holds("3: the inner packet is whole", got.payload == inner[20..]);
        report.holds(
            "3: nothing returns to H1",
            !Seen::drain(&self.0.h1.wire)?.iter().any(is_data),
        );
        let up = Seen::drain(&self.0.source.wire)?
            .iter()
            .any(|seen| is_data(seen) || seen.protocol == IPIP);
        report.holds("3: nothing reaches the source", !up);
        Ok(())
    }

    /// The fields that no router may touch.
    fn fields(&self, report: &mut Report, at: &str, seen: &Seen, host: Ipv4Addr) {
        let Some((option, length)) = seen.option else {
            report.holds(format!("{at}: carries the option"), false);
            return;
        };
        report.holds(format!("{at}: option 138, 16 bytes"), length == 16);
        report.holds(
            format!("{at}: original source"),
            option.source == self.0.source.address,
        );
        report.holds(format!("{at}: group"), option.group == *GROUP.ip());
        let header = seen.source == host && seen.destination == *GROUP.ip();
        report.holds(format!("{at}: from the requester to the group"), header);
    }
}

fn row(report: &mut Report, scenario: &str, place: &str, seen: &Seen) {
    let dash = || "-".to_owned();
    let option = seen.option.map(|(option, _)| option);
    let point = seen.turning_point();
    let kind = option.map_or_else(dash, |option| match option.kind {
        Kind::Request => "138".to_owned(),
        Kind::Dmcast => "139".to_owned(),
    });
    let cells = [
        scenario.to_owned(),
        place.to_owned(),
        seen.source.to_string(),
        seen.destination.to_string(),
        seen.ttl.to_string(),
        if seen.protocol == IPIP {
            "IPIP".to_owned()
        } else {
            "UDP".to_owned()
        },
        kind,
        point.map_or_else(dash, |point| point.iface.0.to_string()),
        point.map_or_else(dash, |point| point.router.to_string()),
        option.map_or_else(dash, |option| option.source.to_string()),
        option.map_or_else(dash, |option| option.group.to_string()),
    ];
    let record: Value = serde_json::json!(cells);
    let packets = report
        .data
        .entry("packets")
        .or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(list) = packets {
        list.push(record);
    }
    if report.plots.is_empty() {
        report
            .plots
            .push(Plot::bars("captured packets", "bytes of IP header", &[]).series("", Vec::new()));
    }
    let plot = &mut report.plots[0];
    plot.series[0]
        .points
        .push((plot.bars.len() as f64, seen.header_bytes as f64));
    plot.bars.push(format!("{scenario}: {place}"));
    report.tables[0].row(cells.map(Into::into));
}

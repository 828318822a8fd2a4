//! `lms-scenarios`: the three scenarios of LMS §6.5.3 on the testbed of Figure 6.15, every field of the
//! option checked in captured packets.

use std::net::IpAddr;

use lms_proto::{Form, Kind, TurningPoint};

use super::testbed::{End, Testbed};
use crate::packets::{Seen, data, dmcast};
use crate::prelude::*;

/// The paper's three scenarios: a request turns, a replier's request goes up, a dmcast comes down
#[derive(Debug, clap::Args)]
pub(crate) struct LmsScenarios {}

const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 6, 5, 3), 6_503);

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
        let plot = Plot::bars("captured packets", "bytes of IP header", [""; 0]);
        report.plots.push(plot.series("", []));
        let bed = Testbed::build(GROUP)?;
        context.note("1: H2 multicasts a request");
        let turning_point = first(&bed, &mut report)?;
        context.note("2: H1, the replier, multicasts a request");
        second(&bed, &mut report)?;
        context.note("3: H1 sends a dmcast to the turning point");
        third(&bed, &mut report, turning_point)?;
        let counters = bed.session.routers[0].counters()?;
        report.datum("router", &counters);
        let sum = |map: &str, prefix: &str| -> u64 {
            let all = counters[map].as_object().into_iter().flatten();
            let some = all.filter(|(key, _)| key.starts_with(prefix));
            some.filter_map(|(_, value)| value.as_u64()).sum()
        };
        for name in ["request_turned", "request_to_parent", "dmcast"] {
            let counted = sum("packets", name);
            report.holds(
                format!("the router counts 1 packet as {name}"),
                counted == 1,
            );
        }
        report.holds("the router dropped nothing", sum("drops", "") == 0);
        Ok(report)
    }
}

/// Whether the application at `end` receives the option of this packet, and this payload.
fn delivered(end: &End, packet: &Seen, payload: &[u8]) -> Result<bool> {
    let (option, received) = end.receive()?;
    Ok(packet.option.is_some_and(|(seen, _)| seen == option) && received == payload)
}

/// Whether a packet has passed an end's link since the last look.
fn seen_at(end: &End, wanted: impl Fn(&Seen) -> bool) -> Result<bool> {
    Ok(Seen::drain(&end.wire)?.iter().any(wanted))
}

/// H2's request turns at the router and reaches H1 with the turning point filled in.
fn first(bed: &Testbed, report: &mut Report) -> Result<TurningPoint> {
    let payload = b"lo 7, hi 9, request 1";
    bed.request(&bed.h2, Form::Classic, payload)?;
    let sent = bed.h2.see("request", Seen::is_request)?;
    row(report, "1", "H2's link", &sent);
    fields(bed, report, "1: as H2 sends it: ", &sent, bed.h2.address);
    let unset = sent.turning_point().is_none();
    report.holds("1: as H2 sends it: turning point unset", unset);
    let turned = bed.h1.see("request", Seen::is_request)?;
    row(report, "1", "H1's link", &turned);
    fields(
        bed,
        report,
        "1: as H1 receives it: ",
        &turned,
        bed.h2.address,
    );
    let point = turned
        .turning_point()
        .context("1: the router set no turning point")?;
    let router = matches!(point.router, IpAddr::V4(a) if bed.router.contains(&a));
    let same = delivered(&bed.h1, &turned, payload)?;
    let elsewhere = seen_at(&bed.source, Seen::is_request)?;
    let checks = [
        ("the turning-point address is the router's", router),
        // Only the router interprets it: scenario 3 shows that it leads to H2.
        ("the turning-point interface is set", point.iface.is_set()),
        ("the router takes one hop off", turned.ttl + 1 == sent.ttl),
        (
            "recvmsg at H1 delivers the same option and the payload",
            same,
        ),
        ("nothing reaches the source", !elsewhere),
    ];
    report.all_hold("1: ", checks);
    Ok(point)
}

/// H1's own request passes the router untouched, toward the source.
fn second(bed: &Testbed, report: &mut Report) -> Result<()> {
    let payload = b"lo 3, hi 3, request 1";
    bed.h1.wire.drain()?;
    bed.h2.wire.drain()?;
    bed.request(&bed.h1, Form::Classic, payload)?;
    let sent = bed.h1.see("request", Seen::is_request)?;
    row(report, "2", "H1's link", &sent);
    let passed = bed.source.see("request", Seen::is_request)?;
    row(report, "2", "source's link", &passed);
    let at = "2: as the source receives it: ";
    fields(bed, report, at, &passed, bed.h1.address);
    let same = delivered(&bed.source, &passed, payload)?;
    let elsewhere = seen_at(&bed.h2, Seen::is_request)?;
    let checks = [
        ("the option is untouched", passed.option == sent.option),
        ("turning point unset", passed.turning_point().is_none()),
        (
            "recvmsg at the source delivers the same option and the payload",
            same,
        ),
        ("nothing reaches H2", !elsewhere),
    ];
    report.all_hold("2: ", checks);
    Ok(())
}

/// H1's dmcast is decapsulated at the turning point and multicast to H2 alone.
fn third(bed: &Testbed, report: &mut Report, point: TurningPoint) -> Result<()> {
    let IpAddr::V4(router) = point.router else {
        bail!("turning point without IPv4")
    };
    let from = SocketAddrV4::new(bed.source.address, GROUP.port());
    let inner = data(from, GROUP, b"the packet that H2 has lost")?;
    let packet = dmcast(bed.h1.address, router, point.iface, &inner)?;
    bed.h1.wire.drain()?;
    bed.source.wire.drain()?;
    bed.send_packet(&bed.h1, &packet)?;
    let sent = bed.h1.see("dmcast", Seen::is_dmcast)?;
    row(report, "3", "H1's link", &sent);
    let (option, _) = sent.option.context("3: the dmcast has no option")?;
    let to_group = |seen: &Seen| !seen.is_dmcast() && seen.destination == *GROUP.ip();
    let got = bed.h2.see("repair", to_group)?;
    row(report, "3", "H2's link", &got);
    let from_source = got.source == bed.source.address;
    let back = seen_at(&bed.h1, to_group)?;
    let up = seen_at(&bed.source, |seen| to_group(seen) || seen.is_dmcast())?;
    let checks = [
        ("as H1 sends it: option 139", option.kind == Kind::Dmcast),
        (
            "its turning point is the request's",
            option.turning_point == Some(point),
        ),
        ("to the turning-point router", sent.destination == router),
        ("H2 receives it from the source, as data", from_source),
        ("both headers' options are gone", got.option.is_none()),
        ("the inner packet is whole", got.payload == inner[20..]),
        ("nothing returns to H1", !back),
        ("nothing reaches the source", !up),
    ];
    report.all_hold("3: ", checks);
    Ok(())
}

/// The fields that no router may touch.
fn fields(bed: &Testbed, report: &mut Report, at: &str, seen: &Seen, host: Ipv4Addr) {
    let Some((option, length)) = seen.option else {
        return report.holds(format!("{at}carries the option"), false);
    };
    let header = seen.source == host && seen.destination == *GROUP.ip();
    let checks = [
        ("option 138, 16 bytes", length == 16),
        ("original source", option.source == bed.source.address),
        ("group", option.group == *GROUP.ip()),
        ("from the requester to the group", header),
    ];
    report.all_hold(at, checks);
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
        if seen.is_dmcast() { "IPIP" } else { "UDP" }.to_owned(),
        kind,
        point.map_or_else(dash, |point| point.iface.0.to_string()),
        point.map_or_else(dash, |point| point.router.to_string()),
        option.map_or_else(dash, |option| option.source.to_string()),
        option.map_or_else(dash, |option| option.group.to_string()),
    ];
    let record = json!(cells);
    let packets = report
        .data
        .entry("packets")
        .or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(list) = packets {
        list.push(record);
    }
    let plot = &mut report.plots[0];
    plot.series[0]
        .points
        .push((plot.bars.len() as f64, seen.header_bytes as f64));
    plot.bars.push(format!("{scenario}: {place}"));
    report.tables[0].row(cells.map(Into::into));
}

//! The table, the targets and the plot of the measurements.

use super::backend::Backend;
use super::carrier::Carrier;
use super::saturate::Cost;
use crate::prelude::*;

/// What was forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) enum Kind {
    /// Nothing: a host that drops what arrives.
    Drop,
    /// Multicast, by the kernel.
    Kernel,
    /// Requests, by `lms-router`.
    Request(Carrier, Backend),
    /// Dmcasts, by `lms-router`.
    Dmcast(Carrier, Backend),
}

impl Kind {
    fn label(self) -> String {
        match self {
            Kind::Drop => "a host's drop, part of each below".to_owned(),
            Kind::Kernel => "kernel multicast".to_owned(),
            Kind::Request(carrier, backend) => {
                format!("LMS request, {}{}", carrier.label(), backend.label())
            }
            Kind::Dmcast(carrier, backend) => {
                format!("LMS dmcast, {}{}", carrier.label(), backend.label())
            }
        }
    }

    /// Cycles of the paper's router for one and for two receivers (Table 6.1).
    fn paper_us(self, receivers: usize) -> Option<f64> {
        match (self, receivers) {
            (Kind::Kernel, 1) => Some(12.3),
            (Kind::Kernel, 2) => Some(22.3),
            (Kind::Request(Carrier::Option, Backend::Ring), 2) => Some(13.3),
            (Kind::Dmcast(Carrier::Option, Backend::Ring), 2) => Some(12.4),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, serde::Serialize)]
struct Line {
    kind: Kind,
    interfaces: usize,
    payload: usize,
    cost: Cost,
}

/// All measurements of one run.
#[derive(Debug, Default)]
pub(super) struct Results {
    lines: Vec<Line>,
}

/// The largest multiple of the kernel's time for one receiver.
const TARGET_RATIO: f64 = 2.0;
/// The same in XDP.
const TARGET_XDP: f64 = 0.5;
/// Flat in the number of interfaces: the largest multiple of the lowest cost.
const TARGET_FLAT: f64 = 1.15;
/// The largest multiple of the IPv4 option's time, for the other carriers.
const TARGET_CARRIER: f64 = 1.15;
/// Above this share of idle time the measured core was not the limit.
const IDLE: f64 = 0.05;

impl Results {
    pub(super) fn add(&mut self, kind: Kind, interfaces: usize, payload: usize, cost: Cost) {
        self.lines.push(Line {
            kind,
            interfaces,
            payload,
            cost,
        });
    }

    fn of(&self, kind: Kind, payload: usize) -> impl Iterator<Item = &Line> {
        self.lines
            .iter()
            .filter(move |line| line.kind == kind && line.payload == payload)
    }

    /// The kernel's time for one receiver, with packets like these.
    fn kernel(&self, payload: usize) -> f64 {
        self.of(Kind::Kernel, payload)
            .next()
            .map_or(f64::NAN, |line| line.cost.ns_per_packet)
    }

    pub(super) fn report(&self, name: &str, large: usize) -> Report {
        let mut report = Report::new(name, "time per packet of one core, all its work counted");
        let columns = "forwarded | interfaces | payload | ns | median ns | packets/s | x kernel to 1 | \
             paper us | paper x | idle % | lost";
        let mut table = Table::with_header("Table 6.1 again", columns);
        let dash = || Cell::from("-");
        for line in &self.lines {
            let (ns, ratio) = (
                line.cost.ns_per_packet,
                line.cost.ns_per_packet / self.kernel(line.payload),
            );
            let paper = line.kind.paper_us(line.interfaces);
            table.row([
                line.kind.label().into(),
                line.interfaces.into(),
                line.payload.into(),
                Cell::number(ns, 0),
                Cell::number(line.cost.median_ns, 0),
                Cell::number(1e9 / ns, 0),
                Cell::number(ratio, 2),
                paper.map_or_else(dash, |us| Cell::number(us, 1)),
                paper.map_or_else(dash, |us| Cell::number(us / 12.3, 2)),
                Cell::number(line.cost.idle * 100.0, 1),
                line.cost.lost.into(),
            ]);
        }
        report.tables.push(table);
        let requests = super::REQUEST_PAYLOAD;
        for backend in [Backend::Ring, Backend::Xdp, Backend::XdpGeneric] {
            self.judge(
                &mut report,
                Kind::Request(Carrier::Option, backend),
                requests,
                backend,
            );
            self.judge(
                &mut report,
                Kind::Dmcast(Carrier::Option, backend),
                large,
                backend,
            );
        }
        self.compare(
            &mut report,
            |carrier| Kind::Request(carrier, Backend::Ring),
            requests,
        );
        self.compare(
            &mut report,
            |carrier| Kind::Dmcast(carrier, Backend::Ring),
            large,
        );
        let doubtful = self
            .lines
            .iter()
            .filter(|line| line.cost.idle > IDLE)
            .count();
        if doubtful > 0 {
            report.note(format!(
                "{doubtful} lines with idle time: the generator was the limit there, the time is an \
                 upper bound"
            ));
        }
        self.notes(&mut report);
        report.plots.push(self.plot(large));
        report.datum("lines", &self.lines);
        report
    }

    fn judge(&self, report: &mut Report, kind: Kind, payload: usize, backend: Backend) {
        if self.of(kind, payload).next().is_none() {
            return;
        }
        let times = self.of(kind, payload).map(|line| line.cost.ns_per_packet);
        let (least, most) = times.fold((f64::INFINITY, 0.0f64), |(least, most), ns| {
            (least.min(ns), most.max(ns))
        });
        let ratio = most / self.kernel(payload);
        let name = format!("{}: time / kernel's to one receiver", kind.label());
        let target = match backend {
            Backend::Xdp => TARGET_XDP,
            Backend::Ring | Backend::XdpGeneric => TARGET_RATIO,
        };
        report.timed(name, ratio, "", Bound::AtMost(target));
        let name = format!("{}: dearest / cheapest of 2, 4, 8 interfaces", kind.label());
        report.timed(name, most / least, "", Bound::AtMost(TARGET_FLAT));
    }

    /// The other carriers beside the IPv4 option, with two interfaces.
    fn compare(&self, report: &mut Report, kind: fn(Carrier) -> Kind, payload: usize) {
        if self.of(kind(Carrier::Option), payload).next().is_none() {
            return;
        }
        let time = |carrier| {
            let mut lines = self.of(kind(carrier), payload);
            let line = lines.find(|line| line.interfaces == 2);
            line.map_or(f64::NAN, |line| line.cost.ns_per_packet)
        };
        let [option, others @ ..] = Carrier::ALL;
        for other in others {
            let label = kind(other).label();
            let name = format!("{label}: time / {}", option.label());
            let ratio = time(other) / time(option);
            report.timed(name, ratio, "", Bound::AtMost(TARGET_CARRIER));
        }
    }

    fn notes(&self, report: &mut Report) {
        report.note(
            "time: wall clock of core 1, which does all the router's work: receive interrupts, kernel \
             forwarding or lms-router (captured by a packet ring, sent by a packet socket), transmission, \
             and the far end's drop of what it gets; core 0 only generates, with a window that keeps \
             core 1 busy and overflows nothing",
        );
        report.note(
            "ns: the least of ten rounds; with a quiet machine the median is near it; each round measures \
             every line once, forwards and backwards by turns",
        );
        report.note(
            "XDP: the driver's part of the router's links runs in threads on core 1, where also the hosts' drivers take \
             the frames; of a packet in the ring's lines, receive packet steering hands it to core 1",
        );
        report.note(
            "what limits the ring: two crossings between kernel and program and two copies of each packet, and \
             that each packet sent on a virtual link runs the receiver's softirq by itself; the program's \
             own part is a tenth",
        );
    }

    fn plot(&self, large: usize) -> Plot {
        let points = |kind, payload| -> Vec<(f64, f64)> {
            self.of(kind, payload)
                .map(|line| (line.interfaces as f64, line.cost.ns_per_packet / 1e3))
                .collect()
        };
        let requests = |backend| {
            let kind = Kind::Request(Carrier::Option, backend);
            points(kind, super::REQUEST_PAYLOAD)
        };
        let dmcasts = |backend| points(Kind::Dmcast(Carrier::Option, backend), large);
        Plot::lines(
            "Figure 6.16 again: time per packet",
            "member interfaces",
            "microseconds",
        )
        .series("kernel multicast", points(Kind::Kernel, large))
        .series("LMS request", requests(Backend::Ring))
        .series("LMS dmcast", dmcasts(Backend::Ring))
        .series("LMS request, XDP", requests(Backend::Xdp))
        .series("LMS dmcast, XDP", dmcasts(Backend::Xdp))
    }
}

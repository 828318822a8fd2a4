//! `lms-overhead`: Figures 6.13 and 6.14, every size taken from captured packets and from what the
//! kernel hands over; then the same sizes in a transfer by the real programs.

use std::collections::BTreeSet;
use std::io::IoSliceMut;
use std::os::fd::{AsFd as _, AsRawFd as _};

use linux_net::link;
use linux_net::udp::{Batch, Config, GroupSocket, Membership, OptionSocket, Options, Transmit};
use lms_proto::endpoint::{self, Endpoint, Storage};
use lms_proto::wire::udp::Ports;
use lms_proto::{Form, Iface, InterfaceConfig, Key};
use ltp::wire::{Header, Type, request};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg};

use super::testbed::{self, End, TIMEOUT, Testbed};
use crate::packets::Seen;
use crate::prelude::*;
use crate::session::Replies;
use netlab::Capture;

/// What requests and dmcasts cost in bytes, at the endpoints and on the wire
#[derive(Debug, clap::Args)]
pub(crate) struct Overhead {}

const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 6, 13, 14), 6_513);
const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
/// Figure 6.7: `nak_lo`, `nak_hi`, `nak_seqn`.
const NAK: [u8; 12] = [0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 1];
/// "If we assume an application uses 1K size packets" (LMS §6.5.2).
const REPAIR: [u8; 1_024] = [0x4c; 1_024];

impl Scenario for Overhead {
    const NAME: &'static str = "lms-overhead";
    const FIGURE: &'static str = "LMS §6.5.1, §6.5.2, Figures 6.13 and 6.14";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "bytes that LMS adds to requests and repairs");
        let bench = Bench::build()?;
        context.note("requests and dmcasts with the classic option, and the same without LMS");
        let classic = bench.measure(Form::Classic)?;
        context.note("the same with our own form of the option");
        let own = bench.measure(Form::Own)?;
        drop(bench);
        compare(&mut report, &classic, &own);
        judge(&mut report, "classic", &classic, 16);
        judge(&mut report, "own", &own, 28);
        report.datum("classic", &classic);
        report.datum("own", &own);
        context.note("a file by lms-send and lms-recv, 10 % lost on one link");
        let told = Programs::watch(context)?;
        told.report(&mut report);
        report.note("sizes are of IPv4 packets, captured on the hosts' links");
        report.note(format!(
            "control bytes: cmsghdr and its data; cmsghdr has 12 bytes in the paper, {} here",
            classic.send_control - classic.option
        ));
        report.note(
            "a dmcast is handed over as a whole packet on a raw socket: headers instead of control bytes",
        );
        Ok(report)
    }
}

/// Sizes in bytes, for one form of the option.
#[derive(Clone, Debug, Serialize)]
struct Sizes {
    /// The option in a captured request.
    option: usize,
    /// A captured request, and the same datagram without LMS.
    request: usize,
    request_without: usize,
    /// A captured request after it has turned.
    request_turned: usize,
    /// `cmsg_len` at `sendmsg`, and with the filling to its alignment.
    send_control: usize,
    send_control_filled: usize,
    /// `cmsg_len` at `recvmsg`, as the kernel wrote it.
    receive_control: usize,
    /// A captured dmcast, and the same data multicast by the source.
    dmcast: usize,
    dmcast_without: usize,
    /// The dmcast as it reaches the receiver.
    dmcast_received: usize,
    /// What a dmcast hands to `sendmsg` beyond the repair's payload.
    dmcast_handed: usize,
}

/// The testbed, and sockets for data at its source and at H2.
struct Bench {
    bed: Testbed,
    source: GroupSocket,
    h2: GroupSocket,
}

impl Bench {
    fn build() -> Result<Bench> {
        let bed = Testbed::build(GROUP)?;
        let open = |end: &End| {
            bed.session.network.within(end.node, || {
                let interface = link::find("eth0")?.index;
                let socket = GroupSocket::open(&Config {
                    bind: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, GROUP.port()),
                    interface,
                    ttl: 16,
                    options: Options::Refuse,
                    ..Config::default()
                })?;
                socket.join(&Membership {
                    group: *GROUP.ip(),
                    source: None,
                    interface,
                })?;
                Ok(socket)
            })
        };
        let (source, h2) = (open(&bed.source)?, open(&bed.h2)?);
        Ok(Bench { bed, source, h2 })
    }

    fn measure(&self, form: Form) -> Result<Sizes> {
        for end in [&self.bed.source, &self.bed.h1, &self.bed.h2] {
            end.wire.drain()?;
        }
        let (h1, h2) = (&self.bed.h1, &self.bed.h2);
        send(&self.h2, &NAK)?;
        let plain = h2.see("datagram", is_data)?;
        self.bed.request(h2, form, &NAK)?;
        let sent = h2.see("request", Seen::is_request)?;
        let turned = h1.see("request", Seen::is_request)?;
        let (receive_control, received) = control_at_recvmsg(&h1.requests)?;
        ensure!(
            received == NAK,
            "the request's payload has changed on its way"
        );
        let (_, option) = sent.option.context("a request without option")?;
        let filled = OptionSocket::ancillary_len(&vec![0; option]).context("option too long")?;
        let header = OptionSocket::ancillary_len(&[]).context("no control message")?;

        let point = turned
            .turning_point()
            .context("the router set no turning point")?;
        let handed = self.dmcast(form, point)?;
        let dmcast = h1.see("dmcast", Seen::is_dmcast)?;
        let repair = h2.see("repair", is_data)?;
        self.delivered()?;
        send(&self.source, &REPAIR)?;
        let data = h2.see("packet of data", is_data)?;
        self.delivered()?;
        Ok(Sizes {
            option,
            request: sent.total_bytes,
            request_without: plain.total_bytes,
            request_turned: turned.total_bytes,
            send_control: header + option,
            send_control_filled: filled,
            receive_control,
            dmcast: dmcast.total_bytes,
            dmcast_without: data.total_bytes,
            dmcast_received: repair.total_bytes,
            dmcast_handed: handed - REPAIR.len(),
        })
    }

    /// H1 sends a repair as `lms-recv` does; returns the bytes handed to the kernel.
    fn dmcast(&self, form: Form, point: lms_proto::TurningPoint) -> Result<usize> {
        let interface = InterfaceConfig::ipv4(self.bed.h1.address, 24);
        let config = endpoint::Config {
            form,
            ..endpoint::Config::new(Iface(1), interface)
        };
        let endpoint = Endpoint::new(config, Storage::owned(1), [0; 32], lms_proto::Instant::ZERO);
        let key = Key::new(self.bed.source.address, *GROUP.ip());
        let ports = Ports {
            source: GROUP.port(),
            group: GROUP.port(),
        };
        let mut packet = vec![0; 2_000];
        let length = endpoint.dmcast(key, point, ports, &REPAIR, &mut packet)?;
        self.bed.send_packet(&self.bed.h1, &packet[..length])?;
        Ok(length)
    }

    /// H2's data socket, which refuses datagrams with options, gets the repair.
    fn delivered(&self) -> Result<()> {
        let (mut batch, end) = (Batch::new(1), Instant::now() + TIMEOUT);
        loop {
            self.h2.receive(&mut batch)?;
            if batch.iter().any(|datagram| datagram.payload == REPAIR) {
                return Ok(());
            }
            ensure!(Instant::now() < end, "H2 received no data");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn send(socket: &GroupSocket, bytes: &[u8]) -> Result<()> {
    Ok(socket.send_all(&Transmit {
        destination: GROUP,
        bytes,
        segment_len: None,
    })?)
}

fn is_data(seen: &Seen) -> bool {
    seen.is_data(*GROUP.ip())
}

/// The length that the kernel gives the control message with the option, and the payload.
fn control_at_recvmsg(socket: &OptionSocket) -> Result<(usize, Vec<u8>)> {
    let end = Instant::now() + TIMEOUT;
    let mut payload = vec![0; 2_000];
    loop {
        let mut control = cmsg_space!([u64; 32]);
        let mut parts = [IoSliceMut::new(&mut payload)];
        let fd = socket.as_fd().as_raw_fd();
        let flags = MsgFlags::MSG_DONTWAIT;
        match recvmsg::<SockaddrIn>(fd, &mut parts, Some(&mut control), flags) {
            Ok(message) => {
                let bytes = message.bytes;
                let length = message.cmsgs()?.find_map(|control| match control {
                    ControlMessageOwned::Unknown(control)
                        if control.cmsg_header.cmsg_type == libc::IP_RECVOPTS =>
                    {
                        Some(control.cmsg_header.cmsg_len)
                    }
                    _ => None,
                });
                let length = length.context("recvmsg delivers no option")?;
                return Ok((length, payload[..bytes].to_vec()));
            }
            Err(Errno::EAGAIN | Errno::EINTR) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error).context("recvmsg of a request"),
        }
    }
}

/// The lines of the table, and the paper's figures.
const LINES: [(&str, Option<usize>); 14] = [
    ("request: IP option", Some(16)),
    ("request: control bytes at sendmsg", Some(28)),
    ("   with the filling to 8 bytes", None),
    ("request: control bytes at recvmsg", Some(28)),
    ("request: the packet without the NAK", Some(44)),
    ("request: the packet, NAK of 12 bytes", Some(56)),
    ("   the same datagram without LMS", Some(40)),
    ("request: beyond it, on the wire", Some(16)),
    ("dmcast: 1 KiB of data, on the wire", Some(1088)),
    ("   the same data multicast by the source", Some(1052)),
    ("dmcast: beyond it, on the wire", Some(36)),
    ("   of it the encapsulating IP header", Some(20)),
    ("dmcast: beyond it, at the receiver", Some(0)),
    ("dmcast: handed to sendmsg beyond the data", Some(28)),
];

impl Sizes {
    fn request_beyond(&self) -> usize {
        self.request - self.request_without
    }

    fn dmcast_beyond(&self) -> usize {
        self.dmcast - self.dmcast_without
    }

    fn received_beyond(&self) -> usize {
        self.dmcast_received - self.dmcast_without
    }

    /// The figures of [`LINES`].
    fn lines(&self) -> [usize; 14] {
        [
            self.option,
            self.send_control,
            self.send_control_filled,
            self.receive_control,
            self.request - NAK.len(),
            self.request,
            self.request_without,
            self.request_beyond(),
            self.dmcast,
            self.dmcast_without,
            self.dmcast_beyond(),
            self.dmcast_beyond() - self.option,
            self.received_beyond(),
            self.dmcast_handed,
        ]
    }
}

fn compare(report: &mut Report, classic: &Sizes, own: &Sizes) {
    let columns = ["bytes", "paper", "classic, 138/139", "own, 158"];
    let mut table = Table::new("Figures 6.13 and 6.14", &columns);
    let lines = LINES.into_iter().zip(classic.lines());
    for (((name, paper), classic), own) in lines.zip(own.lines()) {
        let paper = paper.map_or_else(|| "-".into(), Cell::from);
        table.row([name.into(), paper, classic.into(), own.into()]);
    }
    report.tables.push(table);
    report.note("paper's 40, 56, 1088 and 1052 follow from its sizes of headers, option and NAK");
    let names = [
        "option",
        "control, send",
        "control, receive",
        "request",
        "dmcast",
    ];
    let bars = |s: &Sizes| {
        let sizes = [s.option, s.send_control, s.receive_control];
        let beyond = [s.request_beyond(), s.dmcast_beyond()];
        sizes.into_iter().chain(beyond).map(|size| size as f64)
    };
    let plot = Plot::bars("LMS overhead, bytes", "bytes", names)
        .heights("paper", [16.0, 28.0, 28.0, 16.0, 36.0])
        .heights("classic", bars(classic))
        .heights("own", bars(own));
    report.plots.push(plot);
}

/// Exact bytes; `option` is the option's length in this form.
fn judge(report: &mut Report, form: &str, sizes: &Sizes, option: usize) {
    let control = size_of::<libc::cmsghdr>() + option;
    let packet = IP_HEADER + UDP_HEADER + option;
    let without_nak = sizes.request - NAK.len();
    let (turned, whole) = (packet + NAK.len(), IP_HEADER + packet);
    let at_receiver = "dmcast at the receiver beyond a plain multicast";
    let handed = "dmcast handed to sendmsg beyond the data";
    let lines = [
        ("option of a request", sizes.option, option),
        (
            "request beyond a plain datagram",
            sizes.request_beyond(),
            option,
        ),
        ("a request without its NAK", without_nak, packet),
        ("a request that has turned", sizes.request_turned, turned),
        ("control bytes at sendmsg", sizes.send_control, control),
        ("control bytes at recvmsg", sizes.receive_control, control),
        (
            "dmcast beyond a plain multicast",
            sizes.dmcast_beyond(),
            IP_HEADER + option,
        ),
        (at_receiver, sizes.received_beyond(), 0),
        (handed, sizes.dmcast_handed, whole),
    ];
    for (name, measured, exact) in lines {
        let bound = Bound::Exactly(exact as f64);
        report.check(format!("{form}: {name}"), measured as f64, "bytes", bound);
    }
}

/// The packets of a transfer by the real programs, H2 losing some.
struct Programs {
    h1: (Ipv4Addr, Vec<Seen>),
    h2: (Ipv4Addr, Vec<Seen>),
}

impl Programs {
    fn watch(context: &Context) -> Result<Programs> {
        let mut session = testbed::session(GROUP, Shape::lossy(0.1))?;
        session.wait_for_routes(TIMEOUT)?;
        session.start_routers(&Replies::default())?;
        let file = Path::new(SCRATCH).join("overhead.bin");
        crate::transfer::write_file(&file, if context.quick { 1 << 20 } else { 4 << 20 })?;
        let [h1, h2] = session.receivers[..] else {
            bail!("the testbed has two receivers");
        };
        let wire = |node: NodeId| Capture::start(&session.network, node, "eth0");
        let wires = [wire(h1)?, wire(h2)?];
        let mut all = vec![
            session.receive(h1, &["--replier-cost", "1"])?,
            session.receive(h2, &["--replier-cost", "1000"])?,
        ];
        for receiver in &mut all {
            receiver.wait_event("waiting", TIMEOUT)?;
        }
        all.push(session.send(&file, &["--receivers", "2", "--rate", "20M"])?);
        let mut seen = [Vec::new(), Vec::new()];
        let end = Instant::now() + Duration::from_secs(40);
        loop {
            let ended = all.iter_mut().all(|process| process.ended().is_some());
            for (wire, seen) in wires.iter().zip(&mut seen) {
                seen.extend(Seen::drain(wire)?);
            }
            if ended {
                break;
            }
            ensure!(Instant::now() < end, "the transfer does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        for process in &mut all {
            process.succeed(TIMEOUT)?;
        }
        let [at_h1, at_h2] = seen;
        let plan = session.network.plan();
        Ok(Programs {
            h1: (plan.address(h1), at_h1),
            h2: (plan.address(h2), at_h2),
        })
    }

    /// Requests of H2: (size, size without the option, size by the number of ranges).
    fn requests(&self) -> Vec<[usize; 3]> {
        let own = |seen: &&Seen| seen.is_request() && seen.source == self.h2.0;
        let size = |seen: &Seen| {
            let request = request::Repr::parse(seen.payload.get(UDP_HEADER..)?).ok()?;
            let ranges = request.ranges.len().max(1);
            let option = seen.header_bytes - IP_HEADER;
            let expected = seen.header_bytes + UDP_HEADER + request::REQUEST_LEN + 8 * (ranges - 1);
            Some([seen.total_bytes, seen.total_bytes - option, expected])
        };
        let requests = self.h2.1.iter().filter(own);
        requests.filter_map(size).collect()
    }

    /// Dmcasts of H1: (size, size of the packet inside).
    fn dmcasts(&self) -> Vec<[usize; 2]> {
        let own = |seen: &&Seen| seen.is_dmcast() && seen.source == self.h1.0;
        let size = |seen: &Seen| Some([seen.total_bytes, Seen::read(&seen.payload)?.total_bytes]);
        self.h1.1.iter().filter(own).filter_map(size).collect()
    }

    /// Sizes of the packets of one type that reach H2 without option.
    fn at_h2(&self, kind: Type) -> Vec<usize> {
        let wanted = |seen: &&Seen| {
            let payload = seen.payload.get(UDP_HEADER..).unwrap_or_default();
            is_data(seen) && Header::parse(payload).is_ok_and(|header| header.kind == kind)
        };
        let packets = self.h2.1.iter().filter(wanted);
        packets.map(|seen| seen.total_bytes).collect()
    }

    fn report(&self, report: &mut Report) {
        let (requests, dmcasts) = (self.requests(), self.dmcasts());
        let (data, repairs) = (self.at_h2(Type::Data), self.at_h2(Type::Repair));
        let columns = ["packets", "count", "bytes", "without LMS", "beyond"];
        let mut table = Table::new("a file by lms-send and lms-recv", &columns);
        let pairs: Vec<[usize; 2]> = requests.iter().map(|r| [r[0], r[1]]).collect();
        table.row(line("requests of H2", &pairs));
        table.row(line("dmcasts of H1", &dmcasts));
        let plain = data.iter().max().copied().unwrap_or(0);
        let pairs: Vec<[usize; 2]> = repairs.iter().map(|&size| [size, plain]).collect();
        table.row(line("repairs at H2", &pairs));
        table.row(line(
            "data at H2",
            &data.iter().map(|&s| [s, s]).collect::<Vec<_>>(),
        ));
        report.tables.push(table);
        report.note(format!(
            "NAK of the paper: 12 bytes; REQUEST of LTP: {} with one range, 8 for each further one",
            request::REQUEST_LEN
        ));
        let some = !requests.is_empty() && !dmcasts.is_empty() && !repairs.is_empty();
        report.holds(
            "programs: requests, dmcasts and repairs were captured",
            some,
        );
        let mut only = |name: &str, exact: usize, sizes: BTreeSet<usize>| {
            // Of several sizes, the first that differs.
            let measured = sizes.iter().copied().find(|&size| size != exact);
            let measured = measured
                .or(sizes.first().copied())
                .map_or(f64::NAN, |s| s as f64);
            let bound = Bound::Exactly(exact as f64);
            report.check(format!("programs: {name}"), measured, "bytes", bound);
        };
        let beyond = requests.iter().map(|r| r[0] - r[1]).collect();
        only("each request beyond a plain datagram", 28, beyond);
        let off = requests.iter().map(|r| r[0].abs_diff(r[2])).collect();
        only("each request beyond its headers, option and ranges", 0, off);
        let beyond = dmcasts.iter().map(|[whole, inner]| whole - inner).collect();
        only("each dmcast beyond the packet inside", 48, beyond);
        let sizes = repairs.into_iter().collect();
        only("each repair at H2, as the data", plain, sizes);
    }
}

/// A row: how many, from the smallest to the largest, and what LMS adds.
fn line(name: &str, pairs: &[[usize; 2]]) -> [Cell; 5] {
    let span = |values: BTreeSet<usize>| match (values.first(), values.last()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (Some(only), _) => only.to_string(),
        _ => "-".to_owned(),
    };
    [
        name.into(),
        pairs.len().into(),
        span(pairs.iter().map(|pair| pair[0]).collect()).into(),
        span(pairs.iter().map(|pair| pair[1]).collect()).into(),
        span(
            pairs
                .iter()
                .map(|pair| pair[0] - pair[1].min(pair[0]))
                .collect(),
        )
        .into(),
    ]
}

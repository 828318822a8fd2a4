//! Classic BPF programs: what the kernel keeps from us, so that one packet in a million costs
//! the other ones nothing.
//!
//! Offsets count from the IP header, as a `SOCK_DGRAM` packet socket sees packets. Options of an IPv4 header
//! are walked wherever they stand (after NOPs, after a router alert): a program has no loops, so
//! the walk is unrolled as far as a 16-byte option can be pushed back in 40 bytes of options. Hop-by-hop headers of
//! IPv6 are rare enough to pass as they are, whatever is in them.

use std::net::{IpAddr, Ipv4Addr};

use libc::sock_filter;

/// LMS §6.2.1 and `docs/wire.md`: the options by number.
const REQUEST: u32 = 138;
const DMCAST: u32 = 139;
const SINGLE: u32 = 158;
const SINGLE_ID: u32 = 0x4c4d;
/// LMS-HIER: UDP port and group.
const HIER_PORT: u32 = 4138;
const HIER_GROUP: u32 = 0xe000_00fe;

const ACCEPT: u32 = 0xffff_ffff;
const REJECT: u32 = 0;
/// Options of a header at most: 40 bytes, less the 16 of the last one, of one byte each, and the last one.
const STEPS: usize = 25;

const SKF_AD_OFF: u32 = (-0x1000_i32).cast_unsigned();
const SKF_NET_OFF: u32 = (-0x10_0000_i32).cast_unsigned();
const SKF_AD_PKTTYPE: u32 = 4;

/// Which kind of LMS message an option walk looks for.
#[derive(Clone, Copy)]
enum Wanted {
    Request,
    Dmcast,
}

impl Wanted {
    const fn classic(self) -> u32 {
        match self {
            Self::Request => REQUEST,
            Self::Dmcast => DMCAST,
        }
    }

    const fn sub_option(self) -> u32 {
        match self {
            Self::Request => 1,
            Self::Dmcast => 2,
        }
    }
}

/// Offsets in an IPv6 header, and next headers.
mod ipv6 {
    pub(super) const NEXT_HEADER: u32 = 6;
    pub(super) const DESTINATION: u32 = 24;
    pub(super) const LEN: u32 = 40;
    pub(super) const HOP_BY_HOP: u32 = 0;
    pub(super) const TUNNEL: u32 = 41;
    pub(super) const ICMP: u32 = 58;
    /// ICMPv6 types: query, report and done of MLDv1, and the report of MLDv2.
    pub(super) const MLD: [u32; 4] = [130, 131, 132, 143];
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Label(usize);

/// A one-pass assembler: jumps name labels, offsets are filled in at the end.
#[derive(Default)]
struct Assembler {
    code: Vec<sock_filter>,
    /// Jumps to patch: instruction, label when true, label when false. `None`: fall through.
    jumps: Vec<(usize, Option<Label>, Option<Label>)>,
    /// The position of each label.
    labels: Vec<Option<usize>>,
}

/// Opcodes: class, size, mode.
mod op {
    pub(super) const LOAD_U32: u16 = 0x20;
    pub(super) const LOAD_U16: u16 = 0x28;
    pub(super) const LOAD_U8: u16 = 0x30;
    pub(super) const LOAD_U16_X: u16 = 0x48;
    pub(super) const LOAD_U8_X: u16 = 0x50;
    pub(super) const LOAD_MEM: u16 = 0x60;
    pub(super) const STORE_MEM: u16 = 0x02;
    pub(super) const LOAD_X_IHL: u16 = 0xb1;
    pub(super) const ADD: u16 = 0x04;
    pub(super) const ADD_X: u16 = 0x0c;
    pub(super) const AND: u16 = 0x54;
    pub(super) const SHIFT_LEFT: u16 = 0x64;
    pub(super) const JUMP: u16 = 0x05;
    pub(super) const IF_EQ: u16 = 0x15;
    pub(super) const IF_GT: u16 = 0x25;
    pub(super) const IF_GT_X: u16 = 0x2d;
    pub(super) const TO_X: u16 = 0x07;
    pub(super) const FROM_X: u16 = 0x87;
    pub(super) const RETURN: u16 = 0x06;
}

impl Assembler {
    fn emit(&mut self, code: u16, k: u32) {
        self.code.push(sock_filter {
            code,
            jt: 0,
            jf: 0,
            k,
        });
    }

    fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    fn branch(&mut self, code: u16, k: u32, yes: Option<Label>, no: Option<Label>) {
        self.jumps.push((self.code.len(), yes, no));
        self.emit(code, k);
    }

    fn jump(&mut self, to: Label) {
        self.branch(op::JUMP, 0, Some(to), None);
    }

    /// Continues when A equals `k`, else drops the packet.
    fn require_eq(&mut self, k: u32) {
        let go_on = self.label();
        self.branch(op::IF_EQ, k, Some(go_on), None);
        self.emit(op::RETURN, REJECT);
        self.place(go_on);
    }

    /// Drops the packet when A equals `k`.
    fn refuse_eq(&mut self, k: u32) {
        let go_on = self.label();
        self.branch(op::IF_EQ, k, None, Some(go_on));
        self.emit(op::RETURN, REJECT);
        self.place(go_on);
    }

    fn finish(mut self) -> Vec<sock_filter> {
        for (at, yes, no) in std::mem::take(&mut self.jumps) {
            let distance = |label: Option<Label>| {
                let target = label.and_then(|l| self.labels[l.0]).unwrap_or(at + 1);
                target - at - 1
            };
            let (yes, no) = (distance(yes), distance(no));
            let instruction = &mut self.code[at];
            if instruction.code == op::JUMP {
                instruction.k = yes as u32;
            } else {
                instruction.jt = u8::try_from(yes).expect("conditional jumps stay short");
                instruction.jf = u8::try_from(no).expect("conditional jumps stay short");
            }
        }
        self.code
    }

    /// Packets others send to us: not ours, not another station's seen in promiscuous mode.
    fn require_incoming(&mut self) {
        self.emit(op::LOAD_U32, SKF_AD_OFF + SKF_AD_PKTTYPE);
        for other in [
            libc::PACKET_OTHERHOST,
            libc::PACKET_OUTGOING,
            libc::PACKET_LOOPBACK,
        ] {
            self.refuse_eq(u32::from(other));
        }
    }

    /// Packets of this version of IP.
    fn require_version(&mut self, version: u32) {
        self.emit(op::LOAD_U8, 0);
        self.emit(op::AND, 0xf0);
        self.require_eq(version << 4);
    }

    /// Accepts the packets of a source to a group, of the packet's version of IP.
    fn accept_sources(&mut self, sources: &[(IpAddr, IpAddr)], ipv4: bool) {
        let (source_at, group_at) = if ipv4 { (12, 16) } else { (8, 24) };
        let of_version = |(source, _): &&(IpAddr, IpAddr)| source.is_ipv4() == ipv4;
        for (source, group) in sources.iter().filter(of_version) {
            let next = self.label();
            for (start, address) in [(source_at, *source), (group_at, *group)] {
                for (at, word) in words(address) {
                    self.emit(op::LOAD_U32, start + at);
                    self.branch(op::IF_EQ, word, None, Some(next));
                }
            }
            self.emit(op::RETURN, ACCEPT);
            self.place(next);
        }
    }

    /// Accepts packets whose port, in A, is one of these.
    fn accept_ports(&mut self, ports: &[u16]) {
        for port in ports {
            let next = self.label();
            self.branch(op::IF_EQ, u32::from(*port), None, Some(next));
            self.emit(op::RETURN, ACCEPT);
            self.place(next);
        }
    }

    /// X = where the packet goes on after a hop-by-hop header.
    fn load_x_past_hop_by_hop(&mut self) {
        self.emit(op::LOAD_U8, ipv6::LEN + 1);
        self.emit(op::SHIFT_LEFT, 3);
        self.emit(op::ADD, ipv6::LEN + 8);
        self.emit(op::TO_X, 0);
    }

    /// Walks the options of the IPv4 header at offset X; accepts at the one sought, jumps to
    /// `absent` at the end. Uses M[0].
    fn walk_options(&mut self, wanted: Wanted, absent: Label) {
        // M[0] = X + header length; X = X + 20.
        self.emit(op::LOAD_U8_X, 0);
        self.emit(op::AND, 0x0f);
        self.emit(op::SHIFT_LEFT, 2);
        self.emit(op::ADD_X, 0);
        self.emit(op::STORE_MEM, 0);
        self.emit(op::FROM_X, 0);
        self.emit(op::ADD, 20);
        self.emit(op::TO_X, 0);
        for _ in 0..STEPS {
            self.walk_one(wanted, absent);
        }
        self.jump(absent);
    }

    fn walk_one(&mut self, wanted: Wanted, absent: Label) {
        let [inside, not_end, not_nop, single, skip, accept, next] =
            std::array::from_fn(|_| self.label());
        self.emit(op::LOAD_MEM, 0);
        self.branch(op::IF_GT_X, 0, Some(inside), None);
        self.jump(absent);
        self.place(inside);
        self.emit(op::LOAD_U8_X, 0);
        self.branch(op::IF_EQ, wanted.classic(), Some(accept), None);
        self.branch(op::IF_EQ, SINGLE, Some(single), None);
        self.branch(op::IF_EQ, 0, None, Some(not_end));
        self.jump(absent);
        self.place(not_end);
        self.branch(op::IF_EQ, 1, None, Some(not_nop));
        self.emit(op::FROM_X, 0);
        self.emit(op::ADD, 1);
        self.emit(op::TO_X, 0);
        self.jump(next);
        self.place(single);
        self.emit(op::LOAD_U16_X, 2);
        self.branch(op::IF_EQ, SINGLE_ID, None, Some(skip));
        self.emit(op::LOAD_U8_X, 4);
        self.branch(op::IF_EQ, wanted.sub_option(), Some(accept), Some(skip));
        self.place(accept);
        self.emit(op::RETURN, ACCEPT);
        self.place(not_nop);
        self.place(skip);
        self.emit(op::LOAD_U8_X, 1);
        let forward = self.label();
        self.branch(op::IF_GT, 1, Some(forward), None);
        self.jump(absent);
        self.place(forward);
        self.emit(op::ADD_X, 0);
        self.emit(op::TO_X, 0);
        self.place(next);
    }
}

/// For a UDP socket: only datagrams whose IP header carries options, or that have a hop-by-hop header (`true`), or
/// only those without.
pub(crate) fn udp_options(with: bool, ipv4: bool) -> Vec<sock_filter> {
    let mut a = Assembler::default();
    let (yes, no) = if with {
        (ACCEPT, REJECT)
    } else {
        (REJECT, ACCEPT)
    };
    let [plain, options] = std::array::from_fn(|_| a.label());
    if ipv4 {
        a.emit(op::LOAD_U8, SKF_NET_OFF);
        a.emit(op::AND, 0x0f);
        a.branch(op::IF_GT, 5, Some(options), Some(plain));
    } else {
        a.emit(op::LOAD_U8, SKF_NET_OFF + ipv6::NEXT_HEADER);
        a.branch(op::IF_EQ, ipv6::HOP_BY_HOP, Some(options), Some(plain));
    }
    a.place(options);
    a.emit(op::RETURN, yes);
    a.place(plain);
    a.emit(op::RETURN, no);
    a.finish()
}

/// What a router must see. IPv4: LMS requests to any group, IPIP that carries an LMS option (in the
/// outer header, or as LMS §6.4.5 suggests in the inner one), IGMP. IPv6: UDP behind a hop-by-hop header to any group,
/// IPv6 in IPv6 where either packet has such a header, MLD. Both: LMS-HIER messages; the UDP packets of
/// a few sources, each to one group; and UDP packets to a few ports.
pub(crate) fn router(ipv4: bool, sources: &[(IpAddr, IpAddr)], ports: &[u16]) -> Vec<sock_filter> {
    let mut a = Assembler::default();
    a.require_incoming();
    if ipv4 {
        router_ipv4(&mut a, sources, ports);
    } else {
        router_ipv6(&mut a, sources, ports);
    }
    a.finish()
}

fn router_ipv4(a: &mut Assembler, sources: &[(IpAddr, IpAddr)], ports: &[u16]) {
    let [reject, udp, ipip, inner] = std::array::from_fn(|_| a.label());
    a.require_version(4);
    a.emit(op::LOAD_U8, 9);
    a.branch(op::IF_EQ, libc::IPPROTO_UDP.unsigned_abs(), Some(udp), None);
    let not_ipip = a.label();
    a.branch(
        op::IF_EQ,
        libc::IPPROTO_IPIP.unsigned_abs(),
        None,
        Some(not_ipip),
    );
    a.jump(ipip);
    a.place(not_ipip);
    a.require_eq(libc::IPPROTO_IGMP.unsigned_abs());
    a.emit(op::RETURN, ACCEPT);

    a.place(udp);
    a.accept_sources(sources, true);
    if !ports.is_empty() {
        let later = a.label();
        a.emit(op::LOAD_U16, 6);
        a.emit(op::AND, 0x1fff);
        a.branch(op::IF_EQ, 0, None, Some(later));
        a.emit(op::LOAD_X_IHL, 0);
        a.emit(op::LOAD_U16_X, 2);
        a.accept_ports(ports);
        a.place(later);
    }
    a.emit(op::LOAD_U32, 16);
    let not_hier = a.label();
    a.branch(op::IF_EQ, HIER_GROUP, None, Some(not_hier));
    a.emit(op::LOAD_U16, 6);
    a.emit(op::AND, 0x1fff);
    a.require_eq(0);
    a.emit(op::LOAD_X_IHL, 0);
    a.emit(op::LOAD_U16_X, 2);
    a.require_eq(HIER_PORT);
    a.emit(op::RETURN, ACCEPT);
    a.place(not_hier);
    a.emit(op::AND, 0xf000_0000);
    a.require_eq(0xe000_0000);
    a.emit(op::LOAD_U32, 0);
    a.emit(op::AND, 0);
    a.emit(op::TO_X, 0);
    a.walk_options(Wanted::Request, reject);

    a.place(ipip);
    a.emit(op::LOAD_U32, 16);
    a.emit(op::AND, 0xf000_0000);
    a.refuse_eq(0xe000_0000);
    a.emit(op::LOAD_U16, 6);
    a.emit(op::AND, 0x1fff);
    a.require_eq(0);
    a.emit(op::LOAD_U32, 0);
    a.emit(op::AND, 0);
    a.emit(op::TO_X, 0);
    a.walk_options(Wanted::Dmcast, inner);
    a.place(inner);
    a.emit(op::LOAD_X_IHL, 0);
    a.walk_options(Wanted::Dmcast, reject);
    a.place(reject);
    a.emit(op::RETURN, REJECT);
}

fn router_ipv6(a: &mut Assembler, sources: &[(IpAddr, IpAddr)], ports: &[u16]) {
    let [hop_by_hop, tunnel, udp] = std::array::from_fn(|_| a.label());
    a.require_version(6);
    a.emit(op::LOAD_U8, ipv6::NEXT_HEADER);
    a.branch(op::IF_EQ, ipv6::HOP_BY_HOP, Some(hop_by_hop), None);
    a.branch(op::IF_EQ, ipv6::TUNNEL, Some(tunnel), None);
    a.branch(op::IF_EQ, libc::IPPROTO_UDP.unsigned_abs(), Some(udp), None);
    a.emit(op::RETURN, REJECT);

    a.place(hop_by_hop);
    a.load_x_past_hop_by_hop();
    a.emit(op::LOAD_U8, ipv6::LEN);
    let [other, message, not_message] = std::array::from_fn(|_| a.label());
    a.branch(op::IF_EQ, ipv6::ICMP, None, Some(other));
    a.emit(op::LOAD_U8_X, 0);
    for kind in ipv6::MLD {
        a.branch(op::IF_EQ, kind, Some(message), None);
    }
    a.jump(not_message);
    a.place(message);
    a.emit(op::RETURN, ACCEPT);
    a.place(not_message);
    a.emit(op::RETURN, REJECT);
    a.place(other);
    let [request, dmcast] = std::array::from_fn(|_| a.label());
    a.branch(
        op::IF_EQ,
        libc::IPPROTO_UDP.unsigned_abs(),
        Some(request),
        None,
    );
    a.branch(op::IF_EQ, ipv6::TUNNEL, Some(dmcast), None);
    a.emit(op::RETURN, REJECT);
    a.place(request);
    a.emit(op::LOAD_U8, ipv6::DESTINATION);
    a.require_eq(0xff);
    a.emit(op::RETURN, ACCEPT);
    a.place(dmcast);
    a.emit(op::LOAD_U8, ipv6::DESTINATION);
    a.refuse_eq(0xff);
    a.emit(op::RETURN, ACCEPT);

    a.place(tunnel);
    a.emit(op::LOAD_U8, ipv6::DESTINATION);
    a.refuse_eq(0xff);
    a.emit(op::LOAD_U8, ipv6::LEN + ipv6::NEXT_HEADER);
    a.require_eq(ipv6::HOP_BY_HOP);
    a.emit(op::RETURN, ACCEPT);

    a.place(udp);
    a.accept_sources(sources, false);
    a.emit(op::LOAD_U16, ipv6::LEN + 2);
    a.accept_ports(ports);
    a.require_eq(HIER_PORT);
    a.emit(op::LOAD_U16, ipv6::DESTINATION);
    a.require_eq(0xff02);
    a.emit(op::RETURN, ACCEPT);
}

/// What an SSM endpoint must see beside its socket: whole LMS requests to its group and port.
pub(crate) fn tap(group: IpAddr, port: u16) -> Vec<sock_filter> {
    let mut a = Assembler::default();
    a.require_incoming();
    match group {
        IpAddr::V4(group) => tap_ipv4(&mut a, group, port),
        IpAddr::V6(_) => {
            a.require_version(6);
            a.emit(op::LOAD_U8, ipv6::NEXT_HEADER);
            a.require_eq(ipv6::HOP_BY_HOP);
            a.emit(op::LOAD_U8, ipv6::LEN);
            a.require_eq(libc::IPPROTO_UDP.unsigned_abs());
            for (at, word) in words(group) {
                a.emit(op::LOAD_U32, ipv6::DESTINATION + at);
                a.require_eq(word);
            }
            a.load_x_past_hop_by_hop();
            a.emit(op::LOAD_U16_X, 2);
            a.require_eq(u32::from(port));
            a.emit(op::RETURN, ACCEPT);
        }
    }
    a.finish()
}

fn tap_ipv4(a: &mut Assembler, group: Ipv4Addr, port: u16) {
    let reject = a.label();
    a.require_version(4);
    a.emit(op::LOAD_U8, 9);
    a.require_eq(libc::IPPROTO_UDP.unsigned_abs());
    a.emit(op::LOAD_U32, 16);
    a.require_eq(u32::from(group));
    a.emit(op::LOAD_U16, 6);
    a.emit(op::AND, 0x3fff);
    a.require_eq(0);
    a.emit(op::LOAD_X_IHL, 0);
    a.emit(op::LOAD_U16_X, 2);
    a.require_eq(u32::from(port));
    a.emit(op::LOAD_U32, 0);
    a.emit(op::AND, 0);
    a.emit(op::TO_X, 0);
    a.walk_options(Wanted::Request, reject);
    a.place(reject);
    a.emit(op::RETURN, REJECT);
}

/// An address as 32-bit words, each with its offset.
fn words(address: IpAddr) -> Vec<(u32, u32)> {
    let octets = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let words = octets.as_chunks::<4>().0.iter();
    (0..)
        .step_by(4)
        .zip(words.map(|word| u32::from_be_bytes(*word)))
        .collect()
}

/// Nothing at all.
pub(crate) fn nothing() -> Vec<sock_filter> {
    let mut a = Assembler::default();
    a.emit(op::RETURN, REJECT);
    a.finish()
}

/// For a raw socket: only segments to this port. The socket sees IPv4 packets from their header on,
/// of IPv6 packets the payload.
pub(crate) fn segments(port: u16, ipv4: bool) -> Vec<sock_filter> {
    let mut a = Assembler::default();
    if ipv4 {
        a.emit(op::LOAD_X_IHL, 0);
        a.emit(op::LOAD_U16_X, 2);
    } else {
        a.emit(op::LOAD_U16, 2);
    }
    a.require_eq(u32::from(port));
    a.emit(op::RETURN, ACCEPT);
    a.finish()
}

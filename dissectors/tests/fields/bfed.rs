//! Broadcast Federation: control messages and data packets.

mod messages;

use bfed::wire::{Header, data, fragment, init, parity, repair, report};

use crate::Fields;
use crate::goldens::{Golden, hex};
use crate::packets::Carrier;

fn packet(bytes: &[u8]) -> Option<Fields> {
    let packet = data::Packet::new_checked(bytes).ok()?;
    let repr = data::Repr::parse(&packet);
    let mut fields = Fields::of("bfed_data");
    fields
        .put("version", 1)
        .put("type", repr.kind as u8)
        .put("flags", repr.class.bits() | u8::from(repr.is_again) << 7)
        .put("payload_length", repr.payload_len)
        .put("label", repr.label.get())
        .put("sequence", repr.sequence);
    if matches!(repr.kind, data::Kind::Probe | data::Kind::Echo) {
        fields.put("cookie", packet.cookie());
    } else {
        fields.put("timestamp", repr.timestamp_us);
        match repr.class.is_some() {
            true => fields
                .put("rtt_units", repr.rtt_us / 32)
                .put("age", repr.age_ms),
            false => fields.put("rtt", repr.rtt_us),
        };
    }
    if repr.kind == data::Kind::Report {
        let report = report::Repr::parse(packet.payload()).ok()?;
        fields
            .put("echo", report.echo_us)
            .put("delay", report.delay_us)
            .put("rate", report.received_rate)
            .put("loss", report.loss);
    } else if repr.kind == data::Kind::Fragment {
        let fragment = fragment::Repr::parse(packet.payload()).ok()?;
        fields
            .put("frame", fragment.frame)
            .put("index", fragment.index)
            .put("count", fragment.count)
            .bytes("payload", &packet.payload()[fragment::LEN..]);
    } else if repr.kind == data::Kind::Init {
        let (init, bytes) = init::Repr::parse(packet.payload()).ok()?;
        fields
            .put("generation", init.generation)
            .put("total", init.total)
            .put("offset", init.offset)
            .bytes("payload", bytes);
    } else if repr.kind == data::Kind::InitRequest {
        let request = init::Request::parse(packet.payload()).ok()?;
        fields
            .put("generation", request.generation)
            .put("offset", request.offset);
    } else if repr.kind == data::Kind::RepairRequest {
        let request = repair::Request::parse(packet.payload()).ok()?;
        fields
            .put("first", request.first)
            .put("others", request.others);
    } else if repr.kind == data::Kind::Parity {
        let (front, shard) = parity::Repr::parse(packet.payload()).ok()?;
        fields
            .put("block", front.count)
            .put("parities", front.total)
            .put("parity", front.index)
            .bytes("payload", shard);
    } else if repr.payload_len > 0 {
        fields.bytes("payload", packet.payload());
    }
    Some(fields)
}

fn message(bytes: &[u8]) -> Option<Fields> {
    let kind = Header::new_checked(bytes).ok()?.type_number();
    let mut fields = Fields::of("bfed");
    fields
        .put("identifier", 0x6266)
        .put("version", 1)
        .put("type", kind)
        .put("length", bytes.len());
    messages::read(&mut fields, bytes)?;
    Some(fields)
}

const GOLDENS: &[(&str, &str)] = &[
    (
        "bfed open",
        "62660101002400000102005a0000000700000001deadbeef000201020fff0204
         00030078",
    ),
    (
        "bfed open_with_quic",
        "62660101002100000101005a0000000700000001deadbeef0002010200010301
         02",
    ),
    (
        "bfed open_with_echo",
        "62660101002000000101005a0000000700000001deadbeef0002010200010400",
    ),
    ("bfed echo_request", "62660106001000000123456789abcdef"),
    ("bfed echo_reply", "62660107001000000123456789abcdef"),
    ("bfed keepalive", "6266010200080000"),
    (
        "bfed notification",
        "6266010300140000080a35313320726f75746573",
    ),
    (
        "bfed update",
        "6266010400480000050000010000000900000002000100000007000000010028
         0001000400000003000200100000000800000004000000070000000180030008
         0001000100000002",
    ),
    ("bfed end_of_table", "62660105000900000b"),
    (
        "bfed sroute_request",
        "62660110003400000000004d00000007000000011e0000020000000700000001
         0000000700000002000a626665643a2f2f372f6d",
    ),
    (
        "bfed sroute_response",
        "62660111003400000000004d0000000200000007000000010000000300000007
         00000002ffffffff000a626665643a2f2f372f6d",
    ),
    (
        "bfed join",
        "6266011200850000011f00010000000700000001000000030002aabbccdd0100
         0006c00002011388000000000400001220010db8000000000000000000000001
         13890041626665643a2f2f6973702e6e65742f3232342e352e362e372f383838
         382f383838392f3f636f6e74656e743d525450266d756c74692d736f75726365
         3d74727565",
    ),
    ("bfed leave", "6266011300140000000a626665643a2f2f372f6d"),
    (
        "bfed translation",
        "62660114003e0000000200000008000000040000000700000001000100000000
         0500000e3233392e312e322e333a35303030000a626665643a2f2f372f6d",
    ),
    (
        "bfed no_route",
        "626601150015000002000a626665643a2f2f372f6d",
    ),
    (
        "bfed register",
        "62660120001c000000000003deadbeef000027100000000000000002",
    ),
    (
        "bfed heartbeat",
        "626601210018000000000000000000020000002900000001",
    ),
    (
        "bfed subscribe_down",
        "6266012200400000000000050000000000000002010000000000000900000000
         3b9aca0000010000000001000006c00002011388000a626665643a2f2f372f6d",
    ),
    (
        "bfed subscribe_up",
        "6266012300260000000000060000000000000002000000000000000a62666564
         3a2f2f372f6d",
    ),
    (
        "bfed allocate",
        "6266012400260000000000040000000000000002000000000100000a62666564
         3a2f2f372f6d",
    ),
    (
        "bfed allocate_response",
        "62660125002a000000000004000000010000000101000006c00002021770000a
         626665643a2f2f372f6d",
    ),
    (
        "bfed allocate_response_with_quic",
        "62660125004a000000000004000000010000000106000026c00002021770abab
         abababababababababababababababababababababababababababababab000a
         626665643a2f2f372f6d",
    ),
    (
        "bfed refresh",
        "62660126001c00000000000000000002000a626665643a2f2f372f6d",
    ),
    (
        "bfed reclaim",
        "6266012700300000000000000000000201000000010000000000000900000000
         00000000000a626665643a2f2f372f6d",
    ),
    (
        "bfed statistics",
        "62660128004200000000000100000000000186a0000100000000000000010000
         0000000003e800000000000000020000000000000000000a626665643a2f2f37
         2f6d",
    ),
    ("bfed liveness", "62660129000d00000000000702"),
    (
        "bfed request",
        "62660130001c00000000006301010000000a626665643a2f2f372f6d",
    ),
    (
        "bfed request_with_a_token",
        "626601300021000000000063010100
         00000a626665643a2f2f372f6d000376342e",
    ),
    (
        "bfed answer_translation",
        "62660131002f0000000000630100006900010500000d687474703a2f2f656467
         652f6d000a626665643a2f2f372f6d",
    ),
    (
        "bfed answer_no_route",
        "6266013100200000000000630200000000000001000a626665643a2f2f372f6d",
    ),
    (
        "bfed answer_redirect",
        "6266013100310000000000630300000000000009000000020c3139322e302e32
         2e393a3830000a626665643a2f2f372f6d",
    ),
    (
        "bfed answer_cost",
        "626601310020000000000000040000000000000c000a626665643a2f2f372f6d",
    ),
    (
        "bfed data_packet",
        "11000004aabbccdd00000007000f42400000753064617461",
    ),
    (
        "bfed attach_packet",
        "12000000aabbccdd000000000000000000000000",
    ),
    (
        "bfed probe_packet",
        "14000000aabbccdd010203041122334455667788",
    ),
    (
        "bfed echo_packet",
        "15000000aabbccdd010203041122334455667788",
    ),
    (
        "bfed fragment_packet",
        "1600000caabbccdd00000007000f424000007530010203040103000064617461",
    ),
    (
        "bfed data_packet_with_a_class",
        "116e0004aabbccdd00000007000f424003e8002864617461",
    ),
    (
        "bfed data_packet_again",
        "11ee0004aabbccdd00000007000f424003e8002864617461",
    ),
    (
        "bfed tail_packet",
        "1a6e0000aabbccdd00000007000000000000002a",
    ),
    (
        "bfed parity_packet",
        "1b6e000caabbccdd00000007000000000000002a1004030000046e0164617461",
    ),
    (
        "bfed repair_request_packet",
        "1900000caabbccdd000000000000000000000000000000070000000000000005",
    ),
    (
        "bfed init_packet",
        "1700000caabbccdd0000000000000000000000000102030405dc03e8696e6974",
    ),
    (
        "bfed init_request_packet",
        "18000008aabbccdd00000000000000000000000001020304000003e8",
    ),
    (
        "bfed report_packet",
        "13000010aabbccdd000000000000000000000000000f4240000000fa0001e848
         02000000",
    ),
];

pub(crate) fn goldens() -> Vec<Golden> {
    let golden = |&(name, text): &(&'static str, &str)| {
        let bytes = hex(text);
        if name.contains("_packet") {
            return Golden::new(name, bytes, Carrier::Udp(5002), packet);
        }
        let mut golden = Golden::new(name, bytes, Carrier::Tcp(4140), message);
        golden.framing = Some((4, 2, 0));
        // The identifier says whether it is worth waiting for the rest.
        golden.text.push(0..2);
        golden.text.extend(texts(&golden.bytes));
        if name == "bfed update" {
            // Flags of attributes: the parser passes most bits over and keeps none.
            golden.text.extend([32..33, 40..41, 60..61]);
        }
        golden
    };
    GOLDENS.iter().map(golden).collect()
}

/// Where the name of a session stands, and other text: it has rules of its own.
fn texts(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let at = |what: &[u8]| bytes.windows(what.len()).position(|part| part == what);
    let name = at(b"bfed://").map(|at| at..bytes.len());
    let others = [
        &b"239.1.2.3:5000"[..],
        b"http://edge/m",
        b"192.0.2.9:80",
        b"513 routes",
    ];
    let others = others
        .iter()
        .filter_map(|text| Some(at(text)?..at(text)? + text.len()));
    name.into_iter().chain(others).collect()
}

//! What `tshark` shows with the dissectors is what the Rust parsers read: for every golden of the
//! crates, every truncation of it, and every flip of one bit.

mod bfed;
mod dyram;
mod goldens;
mod ldc;
mod lms;
mod ltp;
mod mcp;
mod packets;
mod tcpxm;
mod tshark;

use goldens::{Golden, every_golden};
use packets::Carrier;
use tshark::{Seen, Tshark};

/// Fields as `tshark` shows them: each name with its values, in the order of the packet.
pub(crate) type Shown = std::collections::BTreeMap<String, Vec<String>>;

/// What the Rust parser reads, as fields of one protocol.
pub(crate) struct Fields {
    protocol: &'static str,
    pub(crate) shown: Shown,
}

impl Fields {
    pub(crate) fn of(protocol: &'static str) -> Self {
        Fields {
            protocol,
            shown: Shown::new(),
        }
    }

    /// Adds a number, an address or a text.
    pub(crate) fn put(&mut self, name: &str, value: impl ToString) -> &mut Self {
        let name = format!("polycast.{}.{name}", self.protocol);
        self.shown.entry(name).or_default().push(value.to_string());
        self
    }

    pub(crate) fn flag(&mut self, name: &str, value: bool) -> &mut Self {
        self.put(name, u8::from(value))
    }

    pub(crate) fn bytes(&mut self, name: &str, value: &[u8]) -> &mut Self {
        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        self.put(name, hex)
    }
}

/// `tshark`, or `None` and a conspicuous line.
fn tshark() -> Option<Tshark> {
    let found = Tshark::find();
    if found.is_none() {
        netlab::lacks_program(env!("CARGO_PKG_NAME"), "tshark");
    }
    found
}

fn show(tshark: &Tshark, cases: &[(&Golden, Vec<u8>)]) -> Vec<Seen> {
    let packets: Vec<Vec<u8>> = cases
        .iter()
        .enumerate()
        .map(|(at, (golden, bytes))| golden.carrier.wrap(bytes, at))
        .collect();
    let seen = tshark.dissect(&packets);
    assert_eq!(seen.len(), cases.len());
    for (seen, (golden, bytes)) in seen.iter().zip(cases) {
        assert_eq!(seen.lua_error, None, "{} {bytes:02x?}", golden.name);
    }
    seen
}

#[test]
fn every_field_of_every_golden() {
    let Some(tshark) = tshark() else { return };
    let goldens = every_golden();
    let cases: Vec<_> = goldens.iter().map(|one| (one, one.bytes.clone())).collect();
    for (seen, golden) in show(&tshark, &cases).iter().zip(&goldens) {
        let expected = golden.fields(&golden.bytes).expect(golden.name);
        assert_eq!(seen.fields, expected, "{}", golden.name);
        let sound = !seen.malformed || golden.is_shared();
        assert!(sound, "{}: {:?}", golden.name, seen.messages);
    }
}

/// Both say no, or both say the same.
fn agree(golden: &Golden, bytes: &[u8], seen: &Seen) {
    let context = || format!("{} {bytes:02x?}: {:?}", golden.name, seen.messages);
    match golden.fields(bytes) {
        Some(expected) => {
            assert_eq!(seen.fields, expected, "{}", context());
            assert!(!seen.malformed || golden.is_shared(), "{}", context());
        }
        None => assert!(seen.malformed || seen.fields.is_empty(), "{}", context()),
    }
}

#[test]
fn every_truncation_is_malformed_or_another_packet() {
    let Some(tshark) = tshark() else { return };
    let goldens = every_golden();
    let cases: Vec<_> = goldens
        .iter()
        .flat_map(|golden| {
            golden
                .truncations()
                .into_iter()
                .map(move |cut| (golden, cut))
        })
        .collect();
    assert!(cases.len() > 2000, "{}", cases.len());
    for (seen, (golden, bytes)) in show(&tshark, &cases).iter().zip(&cases) {
        agree(golden, bytes, seen);
    }
}

#[test]
fn every_flip_of_a_bit_is_malformed_or_another_packet() {
    let Some(tshark) = tshark() else { return };
    let goldens = every_golden();
    let cases: Vec<_> = goldens
        .iter()
        .flat_map(|golden| golden.flips().into_iter().map(move |flip| (golden, flip)))
        .collect();
    assert!(cases.len() > 20_000, "{}", cases.len());
    for (seen, (golden, bytes)) in show(&tshark, &cases).iter().zip(&cases) {
        agree(golden, bytes, seen);
    }
}

/// Without "Decode As": protocols with a port, and those recognised on any.
#[test]
fn recognised_on_any_port() {
    let Some(tshark) = tshark() else { return };
    let goldens = every_golden();
    let bytes = |name: &str| {
        let found = goldens.iter().find(|golden| golden.name == name);
        &found.expect(name).bytes
    };
    let flow = |port: u16, name: &str| Carrier::Udp(port).wrap(bytes(name), 1);
    let packets = [
        flow(7000, "ltp sync"),
        flow(7000, "ltp data"),
        flow(7001, "ltp request"),
        flow(7002, "dyram carriers 1"),
        flow(7003, "bfed request"),
        flow(7004, "bfed data_packet"),
        flow(7004, "bfed report_packet"),
        Carrier::Tcp(7005).wrap(bytes("bfed attach_packet"), 1),
        Carrier::Tcp(7006).wrap(bytes("ldc hello"), 1),
    ];
    let fields = [
        "ltp.type",
        "ltp.sequence",
        "ltp.lo",
        "dyram.service",
        "bfed.nonce",
        "bfed_data.payload",
        "bfed_data.loss",
        "bfed_data.label",
        "ldc.layers",
    ];
    for (seen, field) in tshark.recognise(&packets).iter().zip(fields) {
        let name = format!("polycast.{field}");
        assert!(seen.fields.contains_key(&name), "{name}: {:?}", seen.fields);
    }
}

/// LTP within DyRAM: in FEEDBACK as in DATA.
#[test]
fn what_feedback_carries_is_explained() {
    let Some(tshark) = tshark() else { return };
    let goldens = every_golden();
    let bytes = |name: &str| {
        let found = goldens.iter().find(|golden| golden.name == name);
        found.expect(name).bytes.clone()
    };
    let mut packet = bytes("dyram feedback");
    packet.truncate(44 + 12);
    packet.extend(bytes("ltp feedback"));
    packet[7] = packet.len() as u8;
    let packets = [Carrier::Udp(4143).wrap(&packet, 1)];
    let seen = &tshark.recognise(&packets)[0];
    assert!(!seen.malformed, "{seen:?}");
    for field in ["dyram.rank", "ltp.loss_event_rate"] {
        let name = format!("polycast.{field}");
        assert!(seen.fields.contains_key(&name), "{name}: {:?}", seen.fields);
    }
}

/// What the programs said to each other: each message in its order, and none malformed. The captures
/// keep 200 bytes of a packet.
#[test]
fn captures_of_the_programs() {
    let Some(tshark) = tshark() else { return };
    let said = |capture: &str, field: &str| -> Vec<String> {
        let packets = tshark.capture(capture);
        for seen in &packets {
            assert_eq!(seen.lua_error, None);
            assert!(!seen.malformed, "{capture}: {seen:?}");
        }
        let values = packets
            .into_iter()
            .filter_map(|mut seen| seen.fields.remove(field));
        values.flatten().collect()
    };
    // One receiver: SYNC and REPORT until it has joined, then a file of one block.
    let said_by_ltp = said("ltp.pcap", "polycast.ltp.type").join(" ");
    assert_eq!(said_by_ltp, "3 6 7 6 3 7 3 1 4 6 3 7 3 3 3");
    // HELLO, WELCOME ... DONE, VERIFIED.
    let said_by_mcp = said("mcp.pcap", "polycast.mcp.type").join(" ");
    assert_eq!(said_by_mcp, "1 2 3 4 6 7 8 9 10 11 13 12 14 15");
    // The group in SYN and SYN-ACK, feedback in each acknowledgement.
    let options = said("mcp.pcap", "polycast.tcpxm.kind").join(" ");
    assert_eq!(options, "253 253 254 254");
}

/// Each golden that the tests of the crates spell out stands in the table here too.
#[test]
fn no_golden_is_forgotten() {
    let table: Vec<String> = every_golden()
        .iter()
        .map(|one| one.bytes.iter().map(|b| format!("{b:02x}")).collect())
        .collect();
    let mut forgotten = Vec::new();
    for (file, text) in goldens::SOURCES {
        let literals = goldens::literals(text);
        assert!(literals.len() >= 3, "{file}: {literals:?}");
        let known = |literal: &String| {
            let literal = literal.as_str();
            table.iter().any(|golden| golden.contains(literal))
                || goldens::PIECES.contains(&literal)
        };
        let missing = literals.into_iter().filter(|literal| !known(literal));
        forgotten.extend(missing.map(|literal| format!("{file}: {literal}")));
    }
    assert_eq!(forgotten, Vec::<String>::new());
}

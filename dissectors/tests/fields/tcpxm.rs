//! TCP-XM: its options; the rest of a segment is shown by Wireshark's own dissector.

use std::net::IpAddr;

use tcpxm::wire::{GroupOption, Segment};

use crate::Fields;
use crate::goldens::{Golden, hex};
use crate::packets::Carrier;

fn option(fields: &mut Fields, kind: u8, length: usize) {
    fields
        .put("kind", kind)
        .put("length", length)
        .put("experiment", 0x584d);
}

pub(crate) fn parse(bytes: &[u8]) -> Option<Fields> {
    let segment = Segment::parse(bytes).ok()?;
    let mut fields = Fields::of("tcpxm");
    if let Some(group) = segment.options.group {
        option(&mut fields, 253, group.buffer_len());
        match group {
            GroupOption::Leave => fields.flag("leave", true),
            GroupOption::Named(address @ IpAddr::V4(_)) => fields.put("group", address),
            GroupOption::Named(address @ IpAddr::V6(_)) => fields.put("group6", address),
        };
    }
    if let Some(feedback) = segment.options.feedback {
        option(&mut fields, 254, 5);
        fields.put("feedback", feedback.percent);
    }
    if let Some(tag) = segment.options.tag {
        option(&mut fields, 254, 12);
        fields.bytes("tag", &tag.0);
    }
    Some(fields)
}

const GOLDENS: &[(&str, &str)] = &[
    (
        "tcpxm syn",
        "12345678 01020304 00000000 c0024000 00000000 020405b4
         0402080a 10000001 00000000 01030307 fd08584d efc00102",
    ),
    (
        "tcpxm syn ack, IPv6",
        "12345678 01020304 05060708 f0124000 00000000 020405a0
         0402080a 00000002 00000001 0103030e fd14584d ff3e0000000000000000000080000001",
    ),
    (
        "tcpxm feedback",
        "12345678 01020304 05060708 e0104000 00000000 0101080a 00000009 00000008
         fe05584d32 0512 00000100 00000200 00000300 00000400 00",
    ),
    (
        "tcpxm to the group",
        "12345678 01020304 00000000 80180000 00000000 0101080a 00000009 00000000 64617461",
    ),
    (
        "tcpxm tag",
        "12345678 01020304 00000000 b0180000 00000000 0101080a 00000009 00000000
         fe0c584d b6aa00265fc4d072 64617461",
    ),
    (
        "tcpxm leave",
        "12345678 01020304 05060708 90104000 00000000 0101080a 00000009 00000008 fd04584d 64617461",
    ),
];

pub(crate) fn goldens() -> Vec<Golden> {
    let golden = |&(name, text): &(&'static str, &str)| {
        let bytes = hex(text);
        let mut golden = Golden::new(name, bytes, Carrier::Segment, parse);
        // The header and the data are not ours.
        let header_len = usize::from(golden.bytes[12] >> 4) * 4;
        golden.text = vec![0..20, header_len..golden.bytes.len()];
        golden
    };
    GOLDENS.iter().map(golden).collect()
}

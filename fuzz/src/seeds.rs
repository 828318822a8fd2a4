//! What each target starts from.

use crate::goldens::of as goldens;
use crate::machine;

/// The seeds of a target.
///
/// # Panics
/// If there is no such target.
pub fn of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "decode_lms_option" => goldens("crates/lms-proto/tests/golden_option.rs"),
        "decode_ipv4" => machine::router::packets(),
        "decode_lms_hier" | "decode_igmp" => crate::goldens::link_local(),
        "decode_mld" => goldens("crates/igmp/tests/igmp/mld.rs"),
        "decode_ltp" => goldens("crates/ltp/tests/golden_wire.rs"),
        "decode_dyram" => machine::dyram::goldens(),
        "decode_tcpxm" => goldens("crates/tcpxm/tests/golden_wire.rs"),
        "decode_tcpxm_options" => {
            let segments = goldens("crates/tcpxm/tests/golden_wire.rs");
            segments
                .iter()
                .filter_map(|segment| Some(segment.get(20..)?.to_vec()))
                .collect()
        }
        "decode_mcp" => goldens("crates/mcp-control/tests/golden_wire.rs"),
        "decode_mcp_path" => texts(&[
            "\u{3}t/a/../b",
            "\u{2}../../etc",
            "t/.a.mcp-part",
            "a//b",
            "/a",
            "x\u{7f}\u{1b}[0m",
        ]),
        "decode_ldc_stream" => stream(),
        "decode_ldc_frames" => frames(),
        "decode_media" => crate::decode::media::seeds(),
        "decode_media_group" => crate::decode::media::group_seeds(),
        "decode_bfed_message" => goldens("crates/bfed/tests/wire/golden.rs"),
        "decode_bfed_data" => goldens("crates/bfed/tests/wire/golden.rs"),
        "decode_bfed_name" => texts(&[
            "bfed://1/news/?content=real-time",
            "bfed://example.org/a%20b/?flows=audio,video&sources=many",
            "bfed://7/239.1.2.3/?metric=latency",
        ]),
        "decode_bfed_pattern" => texts(&[
            "bfed://7/239.1.*",
            "bfed://*",
            "bfed://0.0.0.7/%61/b",
            "bfed://bn.example/m/",
        ]),
        "decode_bfed_token" => texts(&[
            r#"{"exp":"2027-01-15T08:00:00Z","nbf":"2027-01-15T07:00:00Z","sessions":"bfed://*/news*","rights":["join"]}"#,
            r#"{"exp":"2027-01-15T08:00:00+02:00","sub":"a","sessions":"bfed://7","rights":["publish"],"client":"10.0.0.0/8"}"#,
            "v4.public.AAAA",
        ]),
        "decode_bfed_contents" => crate::decode::contents::seeds(),
        "decode_bfed_external" => crate::decode::external::seeds(),
        "decode_sap" => crate::decode::sap::seeds(),
        "lms_router" => machine::router::seeds(),
        "lms_endpoint" => machine::lms_endpoint::seeds(),
        "igmp_proxy" => machine::igmp::igmp_seeds(),
        "mld_proxy" => machine::igmp::mld_seeds(),
        "ltp_session" => machine::ltp::seeds(),
        "ltp_member" => machine::ltp_member::seeds(),
        "ltp_tree" => machine::tree::seeds(),
        "dyram_child" => machine::dyram_child::seeds(),
        "dyram_relay" => machine::dyram::relay_seeds(),
        "dyram_attachment" => machine::dyram::attachment_seeds(),
        "tcpxm_endpoint" => machine::tcpxm::seeds(),
        "tcpxm_member" => machine::tcpxm_member::seeds(),
        "ldc_ring" => machine::ring::seeds(),
        "ldc_ring_peer" => machine::ring_peer::seeds(),
        "bfed_control" => machine::bfed_control_seeds::seeds(),
        "bfed_data" => machine::bfed_data::seeds(),
        "bfed_data_peer" => machine::bfed_data_peer::seeds(),
        "mcp_client" | "mcp_server" => machine::mcp::seeds(),
        "mcp_server_peer" => machine::mcp_store::seeds(),
        _ => panic!("no target {target}"),
    }
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Streams of messages, whole and cut, in pieces of several lengths; and lengths that are too long.
fn frames() -> Vec<Vec<u8>> {
    let long = [&[0x43, 0xe8][..], &[7; 1_000], b"\x00\x01x"].concat();
    let parts: [&[u8]; 5] = [
        b"\x03abc\x00\x80\x00\x00\x01d",
        &long,
        b"\x05abc",
        b"\x43\xe9",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    let sizes = [1, 7, 255];
    sizes
        .iter()
        .flat_map(|size| parts.map(|part| [&[*size][..], part].concat()))
        .collect()
}

/// A hello, with each of the headers behind it.
fn stream() -> Vec<Vec<u8>> {
    let parts = goldens("bins/ldc-stream/tests/golden_wire.rs");
    let hellos = parts.iter().filter(|part| part.starts_with(b"LDCS"));
    let headers = || {
        parts
            .iter()
            .filter(|part| part.len() == 32 && !part.starts_with(b"LDCS"))
    };
    hellos
        .flat_map(|hello| headers().map(move |header| [&hello[..], header].concat()))
        .collect()
}

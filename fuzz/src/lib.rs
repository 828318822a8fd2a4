//! The fuzz targets of polycast, as plain functions: `fuzz_targets/` runs them under libFuzzer,
//! `tests/replay.rs` under `cargo test`. See `README.md`.

pub mod decode;
pub mod goldens;
pub mod machine;
pub mod memory;
pub mod script;
pub mod seeds;

/// Lists the targets, in the order in which `run` goes through them.
macro_rules! targets {
    ($($name:ident = $path:path,)+) => {
        $(
            #[doc = concat!("The target `", stringify!($name), "`.")]
            pub fn $name(bytes: &[u8]) {
                $path(bytes);
            }
        )+

        /// Every target by its name.
        pub const TARGETS: &[(&str, fn(&[u8]))] = &[$((stringify!($name), $name)),+];
    };
}

targets! {
    decode_lms_option = decode::lms::option,
    decode_ipv4 = decode::lms::ipv4,
    decode_lms_hier = decode::lms::hier,
    decode_igmp = decode::lms::igmp,
    decode_mld = decode::lms::mld,
    decode_ltp = decode::ltp::packet,
    decode_dyram = decode::dyram::packet,
    decode_tcpxm = decode::tcpxm::segment,
    decode_tcpxm_options = decode::tcpxm::options,
    decode_mcp = decode::mcp::frame,
    decode_mcp_path = decode::mcp::path,
    decode_ldc_stream = decode::ldc::stream,
    decode_ldc_frames = decode::ldc::frames,
    decode_bfed_message = decode::bfed::message,
    decode_bfed_data = decode::bfed::data,
    decode_bfed_name = decode::bfed::name,
    decode_bfed_pattern = decode::bfed::pattern,
    decode_bfed_token = decode::bfed::token,
    decode_bfed_contents = decode::contents::session,
    decode_bfed_external = decode::external::client,
    decode_sap = decode::sap::packets,
    decode_media = decode::media::stream,
    decode_media_group = decode::media::group,
    lms_router = machine::router::run,
    lms_endpoint = machine::lms_endpoint::run,
    igmp_proxy = machine::igmp::igmp,
    mld_proxy = machine::igmp::mld,
    ltp_session = machine::ltp::run,
    ltp_member = machine::ltp_member::run,
    ltp_tree = machine::tree::run,
    dyram_child = machine::dyram_child::child_that_lies,
    dyram_relay = machine::dyram::relay,
    dyram_attachment = machine::dyram::attachment,
    tcpxm_endpoint = machine::tcpxm::run,
    tcpxm_member = machine::tcpxm_member::run,
    ldc_ring = machine::ring::run,
    ldc_ring_peer = machine::ring_peer::run,
    bfed_control = machine::bfed_control::run,
    bfed_data = machine::bfed_data::run,
    bfed_data_peer = machine::bfed_data_peer::run,
    mcp_client = machine::mcp::client,
    mcp_server = machine::mcp::server,
    mcp_server_peer = machine::mcp_store::run,
}

/// The whole of a fuzz target: under cargo-fuzz the fuzzer's loop, otherwise a program that replays
/// the files named on its command line.
#[macro_export]
macro_rules! fuzz {
    ($name:ident) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|bytes: &[u8]| $crate::$name(bytes));

        #[cfg(not(fuzzing))]
        fn main() {
            $crate::replay_arguments($crate::$name);
        }
    };
}

/// Runs a target with the files named on the command line.
pub fn replay_arguments(target: fn(&[u8])) {
    for path in std::env::args_os().skip(1) {
        match std::fs::read(&path) {
            Ok(bytes) => {
                target(&bytes);
                println!("{}: passed", path.display());
            }
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                std::process::exit(2);
            }
        }
    }
}

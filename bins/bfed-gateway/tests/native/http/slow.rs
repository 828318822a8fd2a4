//! Subscribers of Media over QUIC that do not read.

use std::process::Command;
use std::time::Duration;

use bfed_gateway::native::http::MoqConfig;
use moq_net::track;
use web_transport_quinn::quinn;

use super::moq::{Peer, counts, moq_config, moq_edge, raw_with_window, run};
use super::*;

/// Bytes of a piece of the source.
const PIECE: usize = 65_536;

/// Runs a test in a process of its own, whose memory nothing else uses.
fn in_own_process(test: &str, body: impl FnOnce()) {
    const VARIABLE: &str = "POLYCAST_TEST_IN_OWN_PROCESS";
    if std::env::var_os(VARIABLE).is_some() {
        return body();
    }
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args([test, "--exact", "--nocapture"]);
    let status = command.env(VARIABLE, "1").status().unwrap();
    assert!(status.success(), "{test}: {status}");
}

/// A field of `/proc/self/status`, in bytes.
fn memory(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.unwrap().trim_start_matches(':').trim();
    kib.trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// A subscriber of a session that reads nothing.
async fn silent(broadcast: &str) -> (quinn::Connection, quinn::SendStream, quinn::RecvStream) {
    let connection = raw_with_window("moq-lite-04", 64 << 10).await;
    let (mut send, answer) = connection.open_bi().await.unwrap();
    // SUBSCRIBE: identifier, broadcast, track, priority, order, greatest age, from the newest group on, without an end.
    let name = [&[broadcast.len() as u8], broadcast.as_bytes()].concat();
    let message = [&[0][..], &name, &[1, b'0', 128, 0, 10, 0, 0]].concat();
    let whole = [&[2, message.len() as u8][..], &message].concat();
    send.write_all(&whole).await.unwrap();
    (connection, send, answer)
}

/// Reads that many bytes of a track, and keeps none.
async fn read(track: track::Subscriber, len: usize) {
    let (mut groups, mut have) = (track.ordered(), 0);
    while have < len {
        let mut group = groups.next_group().await.unwrap().unwrap();
        group.read_frame().await.unwrap().unwrap();
        while let Ok(Some(frame)) = group.read_frame().await {
            assert!(frame.payload.iter().all(|byte| *byte == 7));
            have += frame.payload.len();
        }
    }
}

#[test]
fn readers_that_never_read_cost_others_nothing_and_little_memory() {
    let name = "http::slow::readers_that_never_read_cost_others_nothing_and_little_memory";
    in_own_process(name, || alone(silent_readers));
}

fn silent_readers() {
    const SILENT: usize = 8;
    const STREAM: usize = 48 << 20;
    let net = moq_edge(MoqConfig {
        memory: 1 << 20,
        max_age: Duration::from_millis(500),
        ..moq_config()
    });
    let mut source = Client::put(EDGE, &path("bfed://7/raw"));
    source.chunk(&[7; 8192]);
    run(async {
        let mut all = Vec::new();
        for _ in 0..SILENT {
            all.push(silent("7/raw").await);
        }
        let fast = Peer::raw("moq-lite-06").await;
        let track = fast.track("7/raw").await.unwrap();
        let before = memory("VmRSS");
        let read = tokio::spawn(read(track, STREAM / 8));
        for _ in 0..STREAM / PIECE {
            source.chunk(&[7; PIECE]);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        read.await.unwrap();
        let grown = memory("VmHWM").saturating_sub(before);
        assert!(grown < 16 << 20, "{grown} bytes");
        drop(all);
    });
    counts(&*net, "moq_groups", 5);
}

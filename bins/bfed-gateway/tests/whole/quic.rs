//! Gateways with keys: data between them goes over QUIC.

use std::time::Duration;

use bfed_gateway::config::Mode;
use bfed_gateway::status::Show;
use tempfile::TempDir;

use super::cluster::key_file;
use super::forward::{BULK, DATA, REAL_TIME, frames, join, sent};
use super::{Gateway, eventually, port};

/// Gateways in a line, with certificates of one authority; `own` adds to the configuration of each.
fn line(count: usize, own: impl Fn(usize) -> &'static str) -> (Vec<Gateway>, TempDir) {
    let keys = tempfile::tempdir().unwrap();
    let key = key_file(&keys, "server.pem");
    let at: Vec<_> = (0..count).map(|_| port()).collect();
    let start = |number: usize| {
        let folder = tempfile::tempdir().unwrap();
        let mut text = format!(
            "[gateway]\nnetwork = {}\nlisten = \"{}\"\n{key}\n[daemon]\nsocket = {:?}\n{DATA}\n{}\n",
            number + 1,
            at[number],
            folder.path().join("sock"),
            own(number),
        );
        for peer in (0..count).filter(|other| number.abs_diff(*other) == 1) {
            let entry = format!(
                "[[peer]]\nnetwork = {}\naddress = \"{}\"\ntls-name = \"server.example\"\n",
                peer + 1,
                at[peer]
            );
            text.push_str(&entry);
        }
        Gateway::run(Mode::Whole, folder, &text)
    };
    ((0..count).map(start).collect(), keys)
}

fn established(line: &[Gateway]) {
    for (number, gateway) in line.iter().enumerate() {
        let is_end = number == 0 || number + 1 == line.len();
        gateway.peered(if is_end { 1 } else { 2 });
    }
}

/// Waits until each gateway has as many streams: as over TCP, what is sent before reaches no receiver.
fn streams(line: &[Gateway], counts: &[u64]) {
    for (gateway, count) in line.iter().zip(counts) {
        eventually("a stream", || {
            (gateway.counter("sockets", "quic_streams_opened") >= *count).then_some(())
        });
    }
}

pub(super) fn over_quic(line: &[Gateway]) {
    for gateway in line {
        assert!(gateway.counter("sockets", "quic_connected") > 0);
        assert_eq!(gateway.counter("sockets", "streams_opened"), 0, "TCP");
        assert_eq!(gateway.counter("sockets", "quic_refused"), 0);
    }
}

#[test]
fn a_file_comes_whole_and_in_order_over_quic() {
    let (line, _keys) = line(3, |_| "");
    established(&line);
    join(&line[2], 1, BULK);
    streams(&line, &[1, 2, 1]);
    let frames = frames(400, 16_384);
    sent(&line[0], BULK, &frames);
    eventually("all frames", || {
        (line[2].hand.got(BULK).len() >= frames.len()).then_some(())
    });
    assert!(line[2].hand.got(BULK) == frames, "not the same bytes");
    over_quic(&line);
    assert!(line[1].counter("sockets", "quic_stream_bytes_received") > 400 * 16_384);
}

#[test]
fn a_film_comes_over_quic_with_frames_of_any_length() {
    let (line, _keys) = line(3, |_| "");
    established(&line);
    join(&line[2], 1, REAL_TIME);
    for len in [1200, 16_384] {
        let before = line[2].hand.got(REAL_TIME).len();
        eventually("twenty frames", || {
            sent(&line[0], REAL_TIME, &frames(2, len));
            std::thread::sleep(Duration::from_millis(20));
            (line[2].hand.got(REAL_TIME).len() >= before + 20).then_some(())
        });
    }
    let got = line[2].hand.got(REAL_TIME);
    let sent: Vec<_> = [frames(2, 1200), frames(2, 16_384)].concat();
    assert!(
        got.iter().all(|frame| sent.contains(frame)),
        "a frame that was not sent"
    );
    over_quic(&line);
    assert!(line[2].counter("sockets", "quic_datagrams_received") > 40);
    assert!(
        line[2].counter("plane", "frames_timed") > 0,
        "with their age"
    );
}

#[test]
fn a_receiver_that_takes_nothing_pauses_the_source_over_quic_and_loses_nothing() {
    let (line, _keys) = line(2, |_| "");
    established(&line);
    join(&line[1], 1, BULK);
    streams(&line, &[1, 1]);
    line[1].hand.set_busy(true);
    let frames = frames(1000, 16_384);
    sent(&line[0], BULK, &frames);
    eventually("a pause at the receiver's gateway", || {
        (line[1].counter("plane", "pauses") > 0).then_some(())
    });
    eventually("a pause at the source", || {
        (line[0].counter("plane", "pauses") > 0).then_some(())
    });
    assert_eq!(line[1].hand.got(BULK).len(), 0);
    line[1].hand.set_busy(false);
    eventually("all frames", || {
        (line[1].hand.got(BULK).len() >= frames.len()).then_some(())
    });
    assert!(line[1].hand.got(BULK) == frames, "not the same bytes");
    assert_eq!(line[0].counter("drops", "queue_full"), 0);
}

#[test]
fn gateways_with_different_transports_do_not_peer() {
    let own = |number: usize| match number {
        0 => "[links]\ntransport = \"plain\"",
        _ => "",
    };
    let (line, _keys) = line(2, own);
    eventually("the reason", || {
        let peers = line[1].show(Show::Peers);
        peers.to_string().contains("transport").then_some(())
    });
    assert_eq!(line[1].show(Show::Overview)["established"], 0);
}

#[test]
fn plain_links_remain_where_both_gateways_choose_them() {
    let (line, _keys) = line(2, |_| "[links]\ntransport = \"plain\"");
    established(&line);
    join(&line[1], 1, BULK);
    let frames = frames(50, 16_384);
    sent(&line[0], BULK, &frames);
    eventually("all frames", || {
        (line[1].hand.got(BULK).len() >= frames.len()).then_some(())
    });
    assert_eq!(line[1].counter("sockets", "quic_connected"), 0);
}

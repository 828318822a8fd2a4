//! Sessions that play in a browser: a test pattern of ffmpeg, and headless chromium.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bfed_client::session_path;
use bfed_gateway::status::Show;
use headless::Browser;
use linux_net::netns::Namespace;
use socket2::{Domain, Socket, Type};

use crate::common::*;

/// A program that is killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn runs(program: &str) -> bool {
    let mut command = Command::new(program);
    let command = command
        .arg("-version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs `body` in a network of its own, or says which program is missing.
fn in_a_network(body: impl FnOnce() + Send) {
    for (program, is_there) in [
        ("chromium", headless::is_installed()),
        ("ffmpeg", runs("ffmpeg")),
    ] {
        if !is_there {
            netlab::lacks_program(env!("CARGO_PKG_NAME"), program);
            return;
        }
    }
    if netlab::permitted(env!("CARGO_PKG_NAME")) {
        let namespace = Namespace::new().expect("namespace");
        namespace.run(body).expect("enter namespace");
    }
}

/// Waits until the clock of the video has advanced by three seconds and its frames are visible. Returns what the page says.
fn plays(browser: &mut Browser, state: &str) -> String {
    let (advance, limit) = (Duration::from_secs(3), Duration::from_secs(60));
    browser.plays(advance, limit).expect("a clock that runs");
    // The pattern has eight bars, and a page without a picture is black.
    let colours = browser.colours().expect("a screenshot");
    assert!(colours >= 6, "{colours} colours in the screenshot");
    text_of(browser, state)
}

/// Returns the text of an element.
fn text_of(browser: &mut Browser, id: &str) -> String {
    let text = browser.value(&format!("document.getElementById('{id}').textContent"));
    let text = text.expect("an answer");
    text.as_str().unwrap_or_default().to_owned()
}

/// ffmpeg with a test pattern, as fast as it plays, and its output.
fn pattern(arguments: &[&str]) -> Running {
    let mut command = Command::new("ffmpeg");
    command.args([
        "-hide_banner",
        "-loglevel",
        "error",
        "-re",
        "-f",
        "lavfi",
        "-i",
    ]);
    command.args([
        "testsrc=size=320x240:rate=25",
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
    ]);
    command.args(["-tune", "zerolatency", "-g", "25", "-pix_fmt", "yuv420p"]);
    command.args(arguments).arg("pipe:1");
    Running(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    )
}

/// Calls `send` with the output of a program until either ends.
fn pour(running: &mut Running, len: usize, mut send: impl FnMut(&[u8]) -> bool + Send + 'static) {
    let mut output = running.0.stdout.take().unwrap();
    std::thread::spawn(move || {
        let mut piece = vec![0; len];
        let mut filled = 0;
        while let Ok(read @ 1..) = output.read(&mut piece[filled..]) {
            filled += read;
            // Whole packets where the length is theirs.
            if filled == len || len > 1316 {
                if !send(&piece[..filled]) {
                    return;
                }
                filled = 0;
            }
        }
    });
}

/// The section of a gateway of an HTTP network.
fn http(server: SocketAddr) -> String {
    let mediator = port();
    format!("[network]\nkind = \"http\"\nlisten = \"{server}\"\nmediator = \"{mediator}\"\n")
}

#[test]
fn a_test_pattern_of_an_ip_multicast_island_plays_in_a_browser_of_another_over_hls() {
    in_a_network(|| {
        let (at, server) = ([port(), port()], port());
        let multicast =
            "[network]\nkind = \"ip\"\ninterface = \"lo\"\nexport = [\"239.1.0.0/16\"]\n";
        let rest = format!("{multicast}{}", peer(2, at[1]));
        let one = Daemon::start("run", 1, &listen(at[0]), &rest);
        let status = "[status]\npage = \"127.0.0.1:0\"\n";
        let rest = format!("{}{status}{}", http(server), peer(1, at[0]));
        let other = Daemon::start("run", 2, &listen(at[1]), &rest);
        one.peered();
        other.peered();
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
        let group: SocketAddr = "239.1.2.3:5004".parse().unwrap();
        let mut source = pattern(&["-f", "mpegts"]);
        pour(&mut source, 1316, move |packets| {
            socket.send_to(packets, &group.into()).is_ok()
        });
        let session = "bfed://1/239.1.2.3/5004/?content=real-time";
        let path = session_path(session, 0).replacen("/s/", "/play/", 1);
        let mut browser = Browser::open(&format!("http://{server}{path}")).unwrap();
        let state = plays(&mut browser, "state");
        assert!(state.starts_with("HLS, 320 × 240"), "{state}");
        // The status page leads there, and has the player itself.
        let page = other.show(Show::Overview)["page"].clone();
        let mut status = Browser::open(&format!("http://{}/", page.as_str().unwrap())).unwrap();
        let link = eventually("a link to the player", || {
            let link = status.value("document.querySelector('#sessions a')?.href");
            let link = link.expect("an answer");
            link.as_str().map(str::to_owned)
        });
        let expected = "/play/bfed%3A%2F%2F1%2F239.1.2.3%2F5004";
        assert!(
            link.starts_with(&format!("http://{server}{expected}")),
            "{link}"
        );
        // All of it is seen at once on a small screen.
        let screen = serde_json::json!({"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": false});
        let resized = status.call("Emulation.setDeviceMetricsOverride", screen);
        resized.expect("a screen");
        let height = status.value("document.documentElement.scrollHeight");
        let height = height.expect("an answer");
        assert!(
            height.as_u64().is_some_and(|height| height <= 800),
            "{height}"
        );
        let clicked = status.value("document.querySelector('#sessions button').click()");
        clicked.expect("a click");
        let state = plays(&mut status, "player-state");
        assert!(state.starts_with("HLS, 320 × 240"), "{state}");
        // Both browsers are of one address.
        let counted = text_of(&mut status, "viewer-more");
        assert!(counted.contains("1 HLS"), "{counted}");
        let overview = eventually("viewers", || {
            let overview = other.show(Show::Overview);
            (overview["viewers"] == 1).then_some(overview)
        });
        assert_eq!(overview["viewers"], 1);
        numbers_advance(&mut status);
        // A player that is closed reads no more.
        let stopped = "document.getElementById('player-stop').click(), document.querySelectorAll('video').length";
        let left = status.value(stopped).expect("an answer");
        assert_eq!(left, 0);
    });
}

/// The status page counts frames of the link from the first gateway, and draws their ages.
fn numbers_advance(status: &mut Browser) {
    let frames = "[...document.querySelectorAll('#hops tbody tr')]\
        .filter(row => row.cells[0].textContent === '1.1').map(row => Number(row.cells[7].textContent))[0] ?? 0";
    let count = |status: &mut Browser| {
        let count = status.value(frames).expect("an answer");
        count.as_u64().unwrap_or_default()
    };
    let first = eventually("frames", || Some(count(status)).filter(|count| *count > 0));
    eventually("more frames", || (count(status) > first).then_some(()));
    let line = "document.querySelectorAll('#hops polyline').length";
    eventually("a time line of their ages", || {
        let drawn = status.value(line).expect("an answer");
        drawn.as_u64().filter(|count| *count > 0)
    });
    let lost = "document.querySelector('#hops tbody tr').cells[2].textContent";
    let lost = status.value(lost).expect("an answer");
    assert!(
        lost.as_str()
            .is_some_and(|lost| lost.parse::<u64>().is_ok()),
        "{lost}"
    );
    let ages = "document.querySelector('#hops tbody tr').cells[6].textContent";
    let ages = status.value(ages).expect("an answer");
    assert!(
        ages.as_str().is_some_and(|age| age.ends_with(" ms")),
        "{ages}"
    );
}

/// A source of fragments that a browser begins to play three seconds later, in a gateway with this network. Returns what the page
/// says.
fn fragments_play(server: SocketAddr, network: &str) -> String {
    let _gateway = Daemon::start("run", 2, &listen(port()), network);
    let path = session_path("bfed://2/film", 0);
    let mut put = TcpStream::connect(server).unwrap();
    let head = format!("PUT {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    put.write_all(head.as_bytes()).unwrap();
    let fragments = "+frag_every_frame+empty_moov+default_base_moof";
    let mut source = pattern(&["-f", "mp4", "-movflags", fragments]);
    pour(&mut source, 1 << 16, move |bytes| {
        let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        put.write_all(&chunk).is_ok()
    });
    std::thread::sleep(Duration::from_secs(3));
    let path = path.replacen("/s/", "/play/", 1);
    let mut browser = Browser::open(&format!("http://{server}{path}")).unwrap();
    plays(&mut browser, "state")
}

#[test]
fn a_stream_of_fragments_plays_through_media_source() {
    in_a_network(|| {
        let server = port();
        let state = fragments_play(server, &http(server));
        assert!(state.starts_with("stream, 320 × 240"), "{state}");
    });
}

#[test]
fn a_stream_of_fragments_plays_over_moq() {
    in_a_network(|| {
        let (server, folder) = (port(), tempfile::tempdir().unwrap());
        let [certificate, key] = headless::pinned_certificate(folder.path()).unwrap();
        let network = format!(
            "{}moq-listen = \"{}\"\nmoq-certificate = {certificate:?}\nmoq-key = {key:?}\nmoq-pin = true\n",
            http(server).replace("\"http\"", "\"moq\""),
            port()
        );
        let state = fragments_play(server, &network);
        assert!(state.starts_with("MoQ, 320 × 240"), "{state}");
    });
}

/// Appends groups in the player with a buffer and streams of this script: group 2 stalls in its head until it is released,
/// the others are whole. Returns the numbers of the groups that were appended.
const GROUPS: &str = "(async release => {
    const appended = [], buffer = new EventTarget();
    buffer.buffered = [];
    buffer.appendBuffer = bytes => {
        appended.push(bytes[0]);
        setTimeout(() => buffer.dispatchEvent(new Event('updateend')));
    };
    const start = new Uint8Array([0, 2, 0]);
    // Number, header of six bytes that says that a decoder can start, a frame of one byte.
    const rest = number => new Uint8Array([number, 6, 0, 1, 0, 0, 0, 0, 1, number]);
    const group = number => new ReadableStream({ async start(controller) {
        controller.enqueue(start);
        if (number === 2) {
            if (release === null) return;
            await new Promise(done => setTimeout(done, release));
        }
        controller.enqueue(rest(number));
        controller.close();
    } });
    const incomingUnidirectionalStreams = new ReadableStream({ start(controller) {
        for (const number of [1, 2, 3, 4]) controller.enqueue(group(number));
    } });
    const player = Object.create(Player.prototype);
    player.video = { buffered: [], currentTime: 0, paused: true };
    player.readGroups({ incomingUnidirectionalStreams }, buffer);
    for (let looks = 0; looks < 200 && appended.at(-1) !== 4; looks += 1) await new Promise(done => setTimeout(done, 50));
    return appended;
})";

#[test]
fn a_group_whose_head_stalls_delays_no_other_in_the_player() {
    if !headless::is_installed() {
        netlab::lacks_program(env!("CARGO_PKG_NAME"), "chromium");
        return;
    }
    if netlab::permitted(env!("CARGO_PKG_NAME")) {
        let namespace = Namespace::new().expect("namespace");
        let body = || {
            let server = port();
            let _gateway = Daemon::start("run", 2, &listen(port()), &http(server));
            let path = session_path("bfed://2/film", 0).replacen("/s/", "/play/", 1);
            let mut browser = Browser::open(&format!("http://{server}{path}")).unwrap();
            eventually("the player's script", || {
                let kind = browser.value("typeof Player").expect("an answer");
                (kind == "function").then_some(())
            });
            for (release, expected) in [("null", "[1,3,4]"), ("20", "[1,2,3,4]")] {
                let appended = browser.value(&format!("{GROUPS}({release})")).unwrap();
                assert_eq!(appended.to_string(), expected, "released after {release}");
            }
        };
        namespace.run(body).expect("enter namespace");
    }
}

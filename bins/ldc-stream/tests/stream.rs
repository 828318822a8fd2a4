//! Both programs as a user starts them, over loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use ldc_stream::wire::{Data, HEADER_LEN, HELLO_LEN, Header, Hello, generated};
use serde_json::Value;

fn program(verb: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ldc-stream"));
    command.arg(verb).args(["--json", "--quiet"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A receiver that listens, and its port.
fn receiver(args: &[&str]) -> (Child, String) {
    let mut child = program("recv")
        .args(args)
        .arg("127.0.0.1:0")
        .spawn()
        .unwrap();
    let out = child.stdout.as_mut().unwrap();
    // The first event, byte by byte: the rest is for later.
    let mut line = Vec::new();
    let mut byte = [0];
    while line.last() != Some(&b'\n') {
        out.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    let event: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(event["event"], "waiting");
    (child, event["address"].as_str().unwrap().to_owned())
}

fn send(address: &str, args: &[&str]) -> Output {
    program("send").args(args).arg(address).output().unwrap()
}

/// The last event, and the exit code.
fn end(output: &Output) -> (Value, i32) {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    let event: Value = serde_json::from_str(line).unwrap_or_else(|error| {
        let err = String::from_utf8_lossy(&output.stderr);
        panic!("{error}: {line:?}\n{err}")
    });
    assert_eq!(event["event"], "end");
    let code = output.status.code().unwrap();
    assert_eq!(event["exit_code"], code);
    (event, code)
}

const SHORT: [&str; 4] = ["--window", "100ms", "--duration", "500ms"];

#[test]
fn every_policy_delivers_what_it_did_not_drop() {
    for policy in [
        &["--policy", "lowest-first"][..],
        &["--policy", "naive"],
        &["--policy", "deadline"],
        &["--policy", "priority-progress"],
        &["--policy", "none"],
        &["--policy", "none", "--slots", "1"],
        &["--no-ldc"],
        &["--no-ldc", "--policy", "deadline", "--nodelay"],
    ] {
        let (child, address) = receiver(&["--clock", "shared"]);
        let (sent, code) = end(&send(&address, &[&SHORT[..], policy].concat()));
        assert_eq!(
            (code, &sent["result"]),
            (0, &"sent".into()),
            "{policy:?}: {sent}"
        );
        let (got, code) = end(&child.wait_with_output().unwrap());
        assert_eq!((code, &got["result"]), (0, &"complete".into()), "{got}");
        assert_eq!((&got["windows"], &got["corrupt"]), (&5.into(), &0.into()));
        // On a machine that is busy something may come too late for its policy: it is counted.
        let count = |name: &str| sent[name].as_u64().unwrap();
        let layers = got["layers"].as_array().unwrap();
        let came: u64 = layers
            .iter()
            .map(|layer| layer["messages"].as_u64().unwrap())
            .sum();
        let lost = count("dropped") + count("expired") + count("refused");
        assert_eq!(count("offered"), came + lost, "{policy:?}: {sent}");
        if lost == 0 {
            assert_eq!(got["bytes"], sent["offered_bytes"]);
            // 131072 bit/s for half a second.
            let whole = |layer: &Value| layer["bytes"] == 8192 && layer["windows_complete"] == 5;
            assert!(layers.len() == 8 && layers.iter().all(whole), "{got}");
        }
        let drops_nothing = policy.contains(&"none") || *policy == ["--no-ldc"];
        assert!(lost == 0 || !drops_nothing, "{policy:?}: {sent}");
    }
}

/// A file with a key that both ends share.
fn key_file(folder: &Path) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("key");
    std::fs::write(&path, "5a".repeat(32)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn over_quic_every_policy_delivers_what_it_did_not_drop() {
    let folder = tempfile::tempdir().unwrap();
    let quic = [
        "--transport",
        "quic",
        "--key-file",
        &key_file(folder.path()),
    ];
    for how in [
        &["--policy", "lowest-first"][..],
        &["--policy", "naive"],
        &["--policy", "deadline", "--order", "strict"],
        &["--policy", "priority-progress", "--datagrams"],
        &["--policy", "none", "--congestion", "bbr"],
        &[
            "--policy",
            "none",
            "--order",
            "weighted",
            "--congestion",
            "reno",
        ],
        &["--policy", "none", "--message", "100k"],
    ] {
        let (child, address) = receiver(&[&["--clock", "shared"][..], &quic].concat());
        let args = [&SHORT[..], &quic, how].concat();
        let (sent, code) = end(&send(&address, &args));
        assert_eq!(
            (code, &sent["result"]),
            (0, &"sent".into()),
            "{how:?}: {sent}"
        );
        let (got, code) = end(&child.wait_with_output().unwrap());
        assert_eq!((code, &got["result"]), (0, &"complete".into()), "{got}");
        assert_eq!((&got["windows"], &got["corrupt"]), (&5.into(), &0.into()));
        let count = |name: &str| sent[name].as_u64().unwrap();
        let layers = got["layers"].as_array().unwrap();
        let came = layers
            .iter()
            .map(|layer| layer["messages"].as_u64().unwrap());
        let came: u64 = came.sum();
        // What was given up on its way may have arrived.
        let lost = count("dropped") + count("expired") + count("refused");
        let expected = count("offered") - lost;
        assert!(
            (expected - count("reset")..=expected).contains(&came),
            "{how:?}: {sent}"
        );
        if lost + count("reset") == 0 {
            assert_eq!(got["bytes"], sent["offered_bytes"]);
        }
        assert!(
            lost + count("reset") == 0 || !how.contains(&"none"),
            "{how:?}: {sent}"
        );
    }
}

#[test]
fn over_tcp_layers_can_have_rings_of_their_own() {
    for order in ["strict", "weighted"] {
        let (child, address) = receiver(&[]);
        let args = [&SHORT[..], &["--policy", "none", "--order", order]].concat();
        assert_eq!(end(&send(&address, &args)).1, 0);
        let (got, code) = end(&child.wait_with_output().unwrap());
        assert_eq!((code, &got["corrupt"]), (0, &0.into()));
        let layers = got["layers"].as_array().unwrap();
        assert!(layers.iter().all(|layer| layer["bytes"] == 8192), "{got}");
    }
}

#[test]
fn over_quic_a_sender_without_the_key_is_refused_and_the_next_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let key = key_file(folder.path());
    let other = folder.path().join("other");
    std::fs::copy(&key, &other).unwrap();
    std::fs::write(&other, "6b".repeat(32)).unwrap();
    let quic = ["--transport", "quic", "--key-file"];
    let (child, address) = receiver(&[&quic[..], &[&key]].concat());
    let wrong = send(&address, &[&quic[..], &[other.to_str().unwrap()]].concat());
    assert_eq!(wrong.status.code(), Some(1));
    let error = String::from_utf8_lossy(&wrong.stderr);
    assert!(error.contains("authentication failed"), "{error}");
    let args = [&SHORT[..], &quic, &[&key]].concat();
    assert_eq!(end(&send(&address, &args)).1, 0);
    assert_eq!(end(&child.wait_with_output().unwrap()).1, 0);
}

#[test]
fn options_that_do_not_go_together_are_refused_with_advice() {
    for (args, advice) in [
        (&["--transport", "quic"][..], "--key-file"),
        (&["--key-file", "k"], "needs --transport quic"),
        (&["--datagrams"], "needs --transport quic"),
        (
            &["--transport", "quic", "--key-file", "k", "--no-ldc"],
            "--no-ldc is for TCP",
        ),
        (&["--order", "strict", "--no-ldc"], "needs a ring"),
        (&["--order", "strict", "--layers", "9"], "at most 8 layers"),
        (
            &["--order", "weighted", "--policy", "priority-progress"],
            "leave --order out",
        ),
    ] {
        let output = send("localhost:1", args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(advice), "{args:?}: {error}");
    }
}

#[test]
fn files_arrive_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let contents = [
        vec![1; 10_000],
        (0..25_000).map(|at| at as u8).collect(),
        Vec::new(),
    ];
    for (name, bytes) in ["a", "b", "c"].iter().zip(&contents) {
        std::fs::write(path(name), bytes).unwrap();
    }
    let copies = path("copies");
    std::fs::create_dir(&copies).unwrap();
    std::fs::write(Path::new(&copies).join("layer-0"), vec![9; 99_999]).unwrap();
    let (child, address) = receiver(&["--output", &copies]);
    let output = program("send")
        .args(["--layer-rate", "800k", "--window", "50ms"])
        .args(["--policy", "none", &address]) // a busy machine must not make layers late
        .args([path("a"), path("b"), path("c")])
        .output()
        .unwrap();
    assert_eq!(end(&output).1, 0);
    assert_eq!(end(&child.wait_with_output().unwrap()).1, 0);
    for (layer, bytes) in contents.iter().enumerate() {
        let copy = std::fs::read(Path::new(&copies).join(format!("layer-{layer}"))).unwrap();
        assert!(copy == *bytes, "layer {layer}");
    }
}

/// Plays the receiver by hand: takes all there is after a pause.
fn taken(listener: &TcpListener, pause: Duration) -> (Hello, Vec<Data>, Option<u32>) {
    let mut stream = listener.accept().unwrap().0;
    std::thread::sleep(pause);
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let hello = Hello::parse(bytes.first_chunk::<HELLO_LEN>().unwrap()).unwrap();
    let (mut at, mut seen) = (HELLO_LEN, Vec::new());
    while let Some(header) = bytes[at..].first_chunk::<HEADER_LEN>() {
        at += HEADER_LEN;
        match Header::parse(header, &hello).unwrap() {
            Header::End { windows, .. } => {
                assert_eq!(at, bytes.len());
                return (hello, seen, Some(windows));
            }
            Header::Data(data) => {
                let payload = &bytes[at..at + data.len as usize];
                let expected = (data.offset..).map(|offset| generated(data.layer, offset));
                assert!(payload.iter().copied().eq(expected.take(payload.len())));
                at += payload.len();
                seen.push(data);
            }
        }
    }
    (hello, seen, None)
}

#[test]
fn behind_a_slow_receiver_the_upper_layers_are_dropped_and_nothing_is_torn() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // 64 Mbit/s in 100 ms windows: what the buffers take without a reader is soon full.
    let slow = std::thread::spawn(move || taken(&listener, Duration::from_millis(1_500)));
    let output = send(
        &address,
        &[
            "--layer-rate",
            "8M",
            "--window",
            "100ms",
            "--duration",
            "1s",
            "--unsent",
            "64K",
        ],
    );
    let (sent, code) = end(&output);
    assert_eq!(code, 0, "{sent}");
    let (_, seen, windows) = slow.join().unwrap();
    assert_eq!(windows, Some(10));
    assert_eq!(sent["written"], seen.len() as u64 + 1);
    let dropped = sent["dropped"].as_u64().unwrap();
    assert_eq!(
        sent["offered"],
        seen.len() as u64 + dropped + sent["refused"].as_u64().unwrap()
    );
    let bytes = |layer| {
        let all = seen.iter().filter(|data| data.layer == layer);
        all.map(|data| u64::from(data.len)).sum::<u64>()
    };
    assert!(
        dropped > 0 && bytes(0) > bytes(7),
        "{dropped}, {} {}",
        bytes(0),
        bytes(7)
    );
}

#[test]
fn a_receiver_that_leaves_is_told_of() {
    for how in [&["--policy", "none"][..], &["--no-ldc"], &[]] {
        let (child, address) = receiver(&["--duration", "300ms"]);
        let output = send(
            &address,
            &[&["--window", "100ms", "--duration", "10s"], how].concat(),
        );
        let (sent, code) = end(&output);
        assert_eq!(
            (code, &sent["result"]),
            (3, &"receiver_left".into()),
            "{sent}"
        );
        let (got, code) = end(&child.wait_with_output().unwrap());
        assert_eq!((code, &got["result"]), (0, &"stopped".into()));
    }
}

#[test]
fn a_receiver_that_never_says_goodbye_is_told_of() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let holder = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        std::thread::sleep(Duration::from_secs(1));
        drop(stream);
    });
    let args = [
        "--window",
        "50ms",
        "--duration",
        "100ms",
        "--linger",
        "100ms",
    ];
    let (sent, code) = end(&send(&address, &args));
    assert_eq!(
        (code, &sent["result"]),
        (3, &"unconfirmed".into()),
        "{sent}"
    );
    holder.join().unwrap();
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status();
    assert!(status.unwrap().success());
}

fn interrupt(child: &Child) {
    signal(child, "-INT");
}

#[test]
fn an_interrupt_ends_both_with_an_account() {
    for plain in [&[][..], &["--no-ldc"]] {
        let (receiver, address) = receiver(&[]);
        let mut command = program("send");
        let sender = command
            .args(["--window", "50ms"])
            .args(plain)
            .arg(&address)
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(300));
        interrupt(&sender);
        let (sent, code) = end(&sender.wait_with_output().unwrap());
        assert_eq!((code, &sent["result"]), (130, &"interrupted".into()));
        let (got, code) = end(&receiver.wait_with_output().unwrap());
        assert_eq!((code, &got["result"]), (1, &"cut".into()), "{got}");
        assert!(got["bytes"].as_u64().unwrap() > 0);
    }
    let (child, address) = receiver(&[]);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&HELLO.emit()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    interrupt(&child);
    let (got, code) = end(&child.wait_with_output().unwrap());
    assert_eq!((code, &got["result"]), (130, &"interrupted".into()));
}

const HELLO: Hello = Hello {
    layers: 2,
    generated: true,
    window_us: 100_000,
    max_payload: 1_000,
    layer_rate_bps: 1,
    start_us: 0,
};

/// What a receiver says to these bytes, and its code.
fn told(bytes: &[u8]) -> (String, i32) {
    let (child, address) = receiver(&[]);
    let mut stream = TcpStream::connect(address).unwrap();
    // It may hang up before it has read all.
    let _ = stream.write_all(bytes);
    drop(stream);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (text, output.status.code().unwrap())
}

#[test]
fn hostile_streams_are_refused_with_a_reason() {
    let data = |len: u32, of: u32| {
        Header::Data(Data {
            layer: 0,
            len,
            window: u32::MAX,
            of,
            offset: 0,
            due_us: u64::MAX,
        })
        .emit()
    };
    let hello = HELLO.emit();
    let cases: [(Vec<u8>, &str); 4] = [
        ([&hello[..], &[0xff; 32]].concat(), "type of a message"),
        (
            [&hello[..], &data(1_001, 2_000)].concat(),
            "length of a message",
        ),
        ([&hello[..], &data(100, 1)].concat(), "length of a message"),
        ([&hello[..], &data(1_000, 1_000)].concat(), "broke off"),
    ];
    for (bytes, reason) in cases {
        let (text, code) = told(&bytes);
        assert_eq!(code, 1);
        assert!(text.contains(reason), "{reason}: {text}");
    }
}

/// Strays come first and stay connected; the stream that comes after them is received, whole.
#[test]
fn stray_connections_are_refused_and_the_sender_is_still_served() {
    let (child, address) = receiver(&[]);
    let silent: Vec<_> = (0..20)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    let mut browser = TcpStream::connect(&address).unwrap();
    browser
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    drop(TcpStream::connect(&address).unwrap());
    // A sender of another release, whose hello is shorter than this one's.
    let mut newer = TcpStream::connect(&address).unwrap();
    newer.write_all(b"LDCS\x02").unwrap();
    newer
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    assert_eq!(newer.read(&mut [0]).unwrap(), 0, "it is told at once");
    let (sent, code) = end(&send(&address, &SHORT));
    assert_eq!((code, &sent["result"]), (0, &"sent".into()), "{sent}");
    let output = child.wait_with_output().unwrap();
    let (got, code) = end(&output);
    assert_eq!((code, &got["result"]), (0, &"complete".into()), "{got}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let refused: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|event: &Value| event["event"] == "refused")
        .collect();
    let count = |reason: &str| {
        let of = |event: &&Value| event["reason"].as_str().unwrap().contains(reason);
        refused.iter().filter(of).count()
    };
    assert_eq!(count("not a stream"), 1, "{text}");
    let versions = "it sends version 2 of the format of ldc-stream, this program reads version 1";
    assert_eq!(count(versions), 1, "{text}");
    assert_eq!(count("before its hello"), 1, "{text}");
    assert!(count("gave way") >= 4, "{text}");
    drop(silent);
}

#[test]
fn a_sender_that_falls_silent_ends_the_stream_with_an_error() {
    let (child, address) = receiver(&["--idle-timeout", "300ms"]);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&HELLO.emit()).unwrap();
    // The connection stays open: a host that lost its power sends no FIN.
    let output = child.wait_with_output().unwrap();
    let (got, code) = end(&output);
    assert_eq!((code, &got["result"]), (1, &"silent".into()), "{got}");
    let message = got["message"].as_str().unwrap();
    assert!(
        message.contains("nothing arrived from 127.0.0.1"),
        "{message}"
    );
    drop(stream);
}

/// What arrived while the receiver was stopped counts, however long that was.
#[test]
fn a_receiver_that_was_stopped_reads_what_came_meanwhile() {
    let (child, address) = receiver(&["--idle-timeout", "300ms"]);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&HELLO.emit()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    signal(&child, "-STOP");
    let last = Header::End {
        windows: 1,
        offered: 0,
    };
    stream.write_all(&last.emit()).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    signal(&child, "-CONT");
    let (got, code) = end(&child.wait_with_output().unwrap());
    assert_eq!((code, &got["result"]), (0, &"complete".into()), "{got}");
}

#[test]
fn a_full_disk_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let layer = folder.path().join("layer-0");
    std::os::unix::fs::symlink("/dev/full", &layer).unwrap();
    let (child, address) = receiver(&["--output", folder.path().to_str().unwrap()]);
    let sent = send(&address, &[&SHORT[..], &["--layers", "1"]].concat());
    let (got, code) = end(&child.wait_with_output().unwrap());
    assert_eq!((code, &got["result"]), (1, &"failed".into()), "{got}");
    let expected = format!("cannot write {}: No space left", layer.display());
    let message = got["message"].as_str().unwrap();
    assert!(message.contains(&expected), "{message}");
    assert_eq!(end(&sent).1, 3);
}

#[test]
fn lies_are_counted_and_cost_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let copies = folder.path().to_str().unwrap();
    let (child, address) = receiver(&["--output", copies, "--max-layer", "1MiB"]);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&HELLO.emit()).unwrap();
    for (window, offset) in [(9, 0), (4_000_000_000, 1 << 60), (3, 1 << 20)] {
        let data = Data {
            layer: 1,
            len: 10,
            window,
            of: 10,
            offset,
            due_us: 5,
        };
        stream.write_all(&Header::Data(data).emit()).unwrap();
        stream.write_all(&[7; 10]).unwrap();
    }
    let end_of_it = Header::End {
        windows: 2,
        offered: u64::MAX,
    };
    stream.write_all(&end_of_it.emit()).unwrap();
    let (got, code) = end(&child.wait_with_output().unwrap());
    assert_eq!(code, 0);
    let count = |name: &str| got[name].as_u64().unwrap();
    assert_eq!(
        (
            count("corrupt"),
            count("out_of_order"),
            count("beyond_limit")
        ),
        (3, 1, 2)
    );
    let copy = std::fs::metadata(folder.path().join("layer-1")).unwrap();
    assert_eq!(copy.len(), 10);
}

#[test]
fn wrong_usage_and_no_receiver() {
    for args in [
        &[
            "send",
            "--no-ldc",
            "--policy",
            "lowest-first",
            "127.0.0.1:1",
        ][..],
        &["send", "--layers", "65", "127.0.0.1:1"],
        &["send", "--message", "2MiB", "127.0.0.1:1"],
        &["send", "--window", "1ms", "127.0.0.1:1"],
        &["recv", "host"],
        &["recv", "--duration", "0", "5000"],
        &[],
    ] {
        let status = Command::new(env!("CARGO_BIN_EXE_ldc-stream"))
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert_eq!(status.unwrap().code(), Some(2), "{args:?}");
    }
    let output = send("127.0.0.1:1", &[]);
    assert_eq!(output.status.code(), Some(1));
    let output = send("127.0.0.1:1", &["--congestion", "nonsense"]);
    assert_eq!(output.status.code(), Some(1));
}

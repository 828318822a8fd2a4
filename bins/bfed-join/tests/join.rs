//! The program against mediators that the tests play, in networks of one host.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use bfed::wire::client::{Answer, AnswerRepr, Request, Want};
use bfed::wire::no_route::Reason;
use bfed::wire::notification::{Reason as Why, Repr as Notification};
use bfed::wire::{Header, describe_mismatch};
use bfed::{ChannelAddress, Cost, GatewayId, SessionName};
use linux_net::inet::{self, Membership, Transmit, UdpSocket as GroupSocket};
use linux_net::netns::Namespace;
use linux_net::poll::{self, Watch};
use linux_net::udp::Batch;

const GROUP: &str = "239.255.98.102:25190";
const NUMBERED: &str = "bfed://1/239.1.2.3/5004/?framing=numbered";

fn alone(body: impl FnOnce() + Send) {
    if netlab::permitted(env!("CARGO_PKG_NAME")) {
        let namespace = Namespace::new().expect("namespace");
        namespace.run(body).expect("enter namespace");
    }
}

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bfed-join"));
    command.args(arguments).args(["--interface", "lo"]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A mediator on the group.
struct OnGroup(GroupSocket, Batch);

impl OnGroup {
    fn new() -> Self {
        let group: SocketAddr = GROUP.parse().unwrap();
        let config = inet::Config {
            interface: 1,
            loopback: true,
            ..inet::Config::new(group)
        };
        let socket = GroupSocket::open(&config).unwrap();
        socket
            .join(&Membership {
                group: group.ip(),
                source: None,
                interface: 1,
            })
            .unwrap();
        OnGroup(socket, Batch::new(4))
    }

    /// The next request, within ten seconds.
    fn received(&mut self, want: Want) -> Request {
        for _ in 0..100 {
            let mut watch = [Watch::readable(self.0.as_fd())];
            poll::wait(&mut watch, Some(Duration::from_millis(100))).unwrap();
            self.0.receive(&mut self.1).unwrap();
            let requests = self
                .1
                .received()
                .filter_map(|one| Request::parse(one.payload).ok());
            if let Some(request) = requests.filter(|request| request.want == want).last() {
                return request;
            }
        }
        panic!("no request to {want}");
    }

    fn send(&self, bytes: &[u8]) {
        let destination = GROUP.parse().unwrap();
        let transmit = Transmit {
            source: None,
            destination,
            bytes,
            segment_len: None,
        };
        self.0.send(&transmit).unwrap();
    }

    fn say(&self, session: &SessionName, nonce: u32, answer: Answer) {
        self.send(&message(session, nonce, answer, 100));
    }
}

fn message(session: &SessionName, nonce: u32, answer: Answer, lifetime_s: u16) -> Vec<u8> {
    let answer = AnswerRepr {
        nonce,
        lifetime_s,
        answer,
        session: session.clone(),
    };
    let mut bytes = vec![0; answer.buffer_len()];
    answer.emit(&mut bytes);
    bytes
}

/// A mediator at a unicast address: answers `count` requests.
fn unicast(
    address: &'static str,
    count: usize,
    answer: impl Fn(Want) -> Answer + Send,
) -> Vec<Request> {
    let socket = UdpSocket::bind(address).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut requests = vec![];
    while requests.len() < count {
        let mut buffer = [0; 2000];
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        assert!(len >= 1200, "padded");
        let message_len = Header::new_checked(&buffer[..len]).unwrap().message_len();
        let request = Request::parse(&buffer[..message_len]).unwrap();
        let answer = message(&request.session, request.nonce, answer(request.want), 100);
        socket.send_to(&answer, from).unwrap();
        requests.push(request);
    }
    requests
}

fn to_group(group: &str, bytes: &[u8]) {
    let config = inet::Config {
        interface: 1,
        loopback: true,
        ..inet::Config::new(([127, 0, 0, 1], 0).into())
    };
    let transmit = Transmit {
        source: None,
        destination: group.parse().unwrap(),
        bytes,
        segment_len: None,
    };
    GroupSocket::open(&config).unwrap().send(&transmit).unwrap();
}

fn translation(address: &str) -> Answer {
    Answer::Translation(vec![ChannelAddress::Native(address.as_bytes().to_vec())])
}

fn film() -> (tempfile::NamedTempFile, Vec<u8>) {
    let bytes: Vec<u8> = (0..300_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 9) as u8)
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &bytes).unwrap();
    (file, bytes)
}

#[test]
fn a_numbered_session_arrives_whole_from_the_group_that_a_gateway_names() {
    alone(|| {
        let (file, bytes) = film();
        let mut mediator = OnGroup::new();
        let viewer = start(&["recv", NUMBERED]);
        let request = mediator.received(Want::Join);
        assert_eq!(request.session.as_str(), NUMBERED);
        mediator.say(&request.session, 0, translation("239.9.9.9:7000"));
        let reader = std::thread::spawn(|| viewer.wait_with_output().unwrap());
        std::thread::sleep(Duration::from_millis(300));
        let source = "bfed://1/239.9.9.9/7000/?framing=numbered";
        let input = file.path().to_str().unwrap();
        let source = start(&["send", source, "--input", input, "--rate", "20M"]);
        let sent = source.wait_with_output().unwrap();
        assert_eq!(code(&sent), 0, "{}", errors(&sent));
        let viewer = reader.join().unwrap();
        assert_eq!(code(&viewer), 0, "{}", errors(&viewer));
        assert!(
            viewer.stdout == bytes,
            "{} bytes of {}",
            viewer.stdout.len(),
            bytes.len()
        );
        mediator.received(Want::Leave);
    });
}

#[test]
fn a_session_of_the_own_network_is_received_natively() {
    alone(|| {
        let (file, bytes) = film();
        let mut mediator = OnGroup::new();
        let viewer = start(&["recv", "bfed://1/239.1.2.3/5004", "--length", "300000"]);
        let request = mediator.received(Want::Join);
        mediator.say(&request.session, 0, Answer::NoRoute(Reason::Local));
        let reader = std::thread::spawn(|| viewer.wait_with_output().unwrap());
        std::thread::sleep(Duration::from_millis(300));
        let input = file.path().to_str().unwrap();
        let source = start(&[
            "send",
            "bfed://1/239.1.2.3/5004",
            "--input",
            input,
            "--rate",
            "20M",
        ]);
        assert_eq!(code(&source.wait_with_output().unwrap()), 0);
        let viewer = reader.join().unwrap();
        assert_eq!(
            (code(&viewer), viewer.stdout == bytes),
            (0, true),
            "{}",
            errors(&viewer)
        );
    });
}

#[test]
fn missing_frames_are_counted_and_fail_unless_late_is_said() {
    alone(|| {
        for (late, expected) in [(false, 1), (true, 0)] {
            let mut mediator = OnGroup::new();
            let mut arguments = vec!["recv", NUMBERED, "--json", "--output", "/dev/null"];
            arguments.extend(late.then_some("--late"));
            let viewer = start(&arguments);
            let request = mediator.received(Want::Join);
            mediator.say(&request.session, 0, translation("239.9.9.9:7000"));
            std::thread::sleep(Duration::from_millis(300));
            let mut frame = vec![];
            for number in [0, 1, 4] {
                bfed_client::frames::emit_data(number, b"x", &mut frame);
                to_group("239.9.9.9:7000", &frame);
            }
            bfed_client::frames::emit_end(5, 5, &[0; 32], &mut frame);
            to_group("239.9.9.9:7000", &frame);
            let done = viewer.wait_with_output().unwrap();
            let events = String::from_utf8_lossy(&done.stdout).into_owned();
            assert_eq!(code(&done), expected, "{events}");
            assert!(events.contains("\"lost\":2,\"late\":0"), "{events}");
        }
    });
}

#[test]
fn frames_of_another_version_end_it_with_both_versions() {
    alone(|| {
        let mut mediator = OnGroup::new();
        let viewer = start(&["recv", NUMBERED, "--output", "/dev/null"]);
        let request = mediator.received(Want::Join);
        mediator.say(&request.session, 0, translation("239.9.9.9:7000"));
        std::thread::sleep(Duration::from_millis(300));
        let mut frame = vec![];
        bfed_client::frames::emit_data(0, b"x", &mut frame);
        frame[2] = 2;
        frame[16..20].fill(0);
        let check = *blake3::hash(&frame).as_bytes();
        frame[16..20].copy_from_slice(&check[..4]);
        to_group("239.9.9.9:7000", &frame);
        let done = viewer.wait_with_output().unwrap();
        assert_eq!(code(&done), 1);
        let said = "the source sends version 2 of numbered frames, this client reads version 1";
        assert!(errors(&done).contains(said), "{}", errors(&done));
    });
}

/// A gateway of another version answers a request with NOTIFICATION: the client names both versions.
#[test]
fn a_gateway_of_another_version_is_named() {
    alone(|| {
        let mut mediator = OnGroup::new();
        let viewer = start(&["recv", "bfed://1/x", "--connect-timeout", "1s"]);
        mediator.received(Want::Join);
        let text = describe_mismatch("the gateway", "the client", (1, 1));
        let why = Notification::new(
            Why::Version,
            &text.replace("gateway version 1", "gateway version 2"),
        );
        let mut bytes = vec![0; why.buffer_len()];
        why.emit(&mut bytes);
        mediator.send(&bytes);
        let done = viewer.wait_with_output().unwrap();
        assert_eq!(code(&done), 4, "{}", errors(&done));
        let said = "the client speaks version 1 of the control protocol, the gateway version 2";
        let error = errors(&done);
        let error = error.lines().find(|line| line.starts_with("error: "));
        assert!(error.is_some_and(|line| line.contains(said)), "{error:?}");
    });
}

#[test]
fn no_route_and_no_answer_have_their_codes() {
    alone(|| {
        let mut mediator = OnGroup::new();
        let viewer = start(&["recv", "bfed://1/x", "--connect-timeout", "500ms"]);
        let request = mediator.received(Want::Join);
        // An answer for another session, and an answer to another client, are ignored.
        let other = SessionName::parse("bfed://1/y").unwrap();
        mediator.say(&other, 0, Answer::NoRoute(Reason::Limit));
        mediator.say(
            &request.session,
            request.nonce ^ 1,
            Answer::NoRoute(Reason::Limit),
        );
        mediator.say(&request.session, 0, Answer::NoRoute(Reason::Unreachable));
        let done = viewer.wait_with_output().unwrap();
        assert_eq!(code(&done), 3);
        assert!(errors(&done).contains("unreachable"), "{}", errors(&done));
        let done = start(&["recv", "bfed://1/x", "--connect-timeout", "500ms"])
            .wait_with_output()
            .unwrap();
        assert_eq!(code(&done), 4, "{}", errors(&done));
    });
}

#[test]
fn a_mediator_that_is_away_ends_nothing_as_long_as_data_comes() {
    alone(|| {
        let mut mediator = OnGroup::new();
        let viewer = start(&["recv", "bfed://1/x", "--connect-timeout", "2s"]);
        let request = mediator.received(Want::Join);
        let to = translation("239.9.9.9:7000");
        mediator.send(&message(&request.session, 0, to, 3));
        std::thread::sleep(Duration::from_millis(300));
        for number in 0..60 {
            to_group("239.9.9.9:7000", &[number]);
            std::thread::sleep(Duration::from_millis(100));
        }
        let done = viewer.wait_with_output().unwrap();
        assert_eq!(code(&done), 4, "{}", errors(&done));
        assert_eq!(done.stdout, (0..60).collect::<Vec<u8>>());
    });
}

#[test]
fn the_cheapest_mediator_is_asked() {
    alone(|| {
        let mediator = |address: &'static str, cost: u32, count: usize| {
            // A thread starts in the network of its parent.
            std::thread::spawn(move || {
                unicast(address, count, |want| match want {
                    Want::Cost => Answer::Cost(Cost(cost)),
                    _ => Answer::NoRoute(Reason::Policy),
                })
            })
        };
        let dear = mediator("127.0.0.1:25190", 5, 1);
        let cheap = mediator("127.0.0.2:25190", 3, 2);
        std::thread::sleep(Duration::from_millis(100));
        // There is no mediator at the third address.
        let mut asked = vec!["recv", "bfed://9/x"];
        for address in ["127.0.0.1", "127.0.0.2", "127.0.0.3"] {
            asked.extend(["--mediator", address]);
        }
        let done = start(&asked).wait_with_output().unwrap();
        assert_eq!(code(&done), 3, "{}", errors(&done));
        assert_eq!(dear.join().unwrap()[0].want, Want::Cost);
        assert_eq!(cheap.join().unwrap()[1].want, Want::Join);
    });
}

#[test]
fn a_mediator_may_have_a_name() {
    alone(|| {
        let no_route = |_| Answer::NoRoute(Reason::Policy);
        let mediator = std::thread::spawn(move || unicast("localhost:25190", 1, no_route));
        std::thread::sleep(Duration::from_millis(100));
        let asked = ["recv", "bfed://9/x", "--mediator", "localhost"];
        let done = start(&asked).wait_with_output().unwrap();
        assert_eq!(code(&done), 3, "{}", errors(&done));
        assert_eq!(mediator.join().unwrap()[0].want, Want::Join);
        let asked = [
            "recv",
            "bfed://9/x",
            "--mediator",
            "mediator.invalid",
            "--connect-timeout",
            "1s",
        ];
        let done = start(&asked).wait_with_output().unwrap();
        assert_eq!(code(&done), 4, "{}", errors(&done));
        assert!(
            errors(&done).contains("cannot resolve mediator.invalid"),
            "{}",
            errors(&done)
        );
    });
}

#[test]
fn redirections_are_followed_and_loops_named() {
    alone(|| {
        let gateway = GatewayId::new(1, 2).unwrap();
        let mediator = |address: &'static str, to: &'static str| {
            let answer = move |_| Answer::Redirect {
                gateway,
                mediator: to.into(),
            };
            std::thread::spawn(move || unicast(address, 1, answer))
        };
        let first = mediator("127.0.0.1:25190", "127.0.0.2:25190");
        let second = mediator("127.0.0.2:25190", "127.0.0.1:25190");
        std::thread::sleep(Duration::from_millis(100));
        let done = start(&["recv", "bfed://9/x", "--mediator", "127.0.0.1"]);
        let done = done.wait_with_output().unwrap();
        assert_eq!(code(&done), 1);
        let errors = errors(&done);
        assert!(errors.contains("a loop of redirections"), "{errors}");
        assert_eq!(first.join().unwrap()[0].redirects, 0);
        assert_eq!(second.join().unwrap()[0].redirects, 1);
    });
}

#[test]
fn ctrl_c_leaves() {
    alone(|| {
        let mut mediator = OnGroup::new();
        let viewer = start(&["recv", "bfed://9/x"]);
        let request = mediator.received(Want::Join);
        mediator.say(&request.session, 0, translation("239.9.9.9:7000"));
        std::thread::sleep(Duration::from_millis(300));
        let pid = viewer.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-INT", &pid])
                .status()
                .unwrap()
                .success()
        );
        let left = mediator.received(Want::Leave);
        assert_eq!(
            (left.nonce, &left.session),
            (request.nonce, &request.session)
        );
        assert_eq!(code(&viewer.wait_with_output().unwrap()), 130);
    });
}

#[test]
fn a_request_is_left_to_others_who_ask_the_same() {
    alone(|| {
        let mut mediator = OnGroup::new();
        let mut viewer = start(&[
            "recv",
            "bfed://9/x",
            "--json",
            "--output",
            "/dev/null",
            "--duration",
            "700ms",
        ]);
        let request = mediator.received(Want::Join);
        // Another client sends a request before it repeats its own, and the answer is for all.
        let other = Request {
            nonce: request.nonce ^ 1,
            ..request.clone()
        };
        let mut bytes = vec![0; other.buffer_len()];
        other.emit(&mut bytes);
        mediator.send(&bytes);
        mediator.say(&request.session, 0, translation("239.9.9.9:7000"));
        let mut events = String::new();
        viewer
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut events)
            .unwrap();
        assert!(events.contains("\"damped\":1"), "{events}");
        assert!(events.contains("\"event\":\"joined\""), "{events}");
        assert_eq!(viewer.wait().unwrap().code(), Some(0));
    });
}

/// One request to an HTTP server: its first line, and what follows the head.
fn request(listener: &TcpListener) -> (TcpStream, String, Vec<u8>) {
    let (mut stream, _) = listener.accept().unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let (mut bytes, mut buffer) = (vec![], [0; 4096]);
    let end = loop {
        let len = stream.read(&mut buffer).unwrap();
        bytes.extend_from_slice(&buffer[..len]);
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let length: usize = length.map_or(0, |length| length.parse().unwrap());
    let mut body = bytes[end + 4..].to_vec();
    while body.len() < length {
        let len = stream.read(&mut buffer).unwrap();
        body.extend_from_slice(&buffer[..len]);
    }
    (stream, head.lines().next().unwrap().to_owned(), body)
}

#[test]
fn over_http_redirections_are_followed_and_a_stream_that_moves_is_found_again() {
    alone(|| {
        let listener = TcpListener::bind("127.0.0.1:8080").unwrap();
        let viewer = start(&["recv", NUMBERED, "--mediator", "http://127.0.0.1:8080"]);
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunk =
            |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        let (mut first, mut second, mut end) = (vec![], vec![], vec![]);
        bfed_client::frames::emit_data(0, b"hello, ", &mut first);
        bfed_client::frames::emit_data(1, b"world", &mut second);
        let digest = blake3::hash(b"hello, world");
        bfed_client::frames::emit_end(2, 12, digest.as_bytes(), &mut end);
        for turn in 0..2 {
            let (mut stream, line, body) = request(&listener);
            assert_eq!(line, "POST /mediator HTTP/1.1");
            let ask = Request::parse(&body).unwrap();
            assert_eq!(ask.want, Want::Join);
            let answer = message(
                &ask.session,
                ask.nonce,
                translation("http://127.0.0.1:8080/s/x"),
                100,
            );
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                answer.len()
            );
            stream
                .write_all(&[head.as_bytes(), &answer].concat())
                .unwrap();
            let (mut stream, line, _) = request(&listener);
            assert_eq!(line, "GET /s/x HTTP/1.1");
            stream
                .write_all(b"HTTP/1.1 307 x\r\nLocation: /s/y\r\nContent-Length: 0\r\n\r\n")
                .unwrap();
            let (mut stream, line, _) = request(&listener);
            assert_eq!(line, "GET /s/y HTTP/1.1");
            stream.write_all(chunked.as_bytes()).unwrap();
            // The first stream ends before the session does.
            let frames = [first.clone(), [second.clone(), end.clone()].concat()];
            stream.write_all(&chunk(&frames[turn])).unwrap();
            stream.write_all(b"0\r\n\r\n").unwrap();
        }
        let (_, line, body) = request(&listener);
        assert_eq!(line, "POST /mediator HTTP/1.1");
        assert_eq!(Request::parse(&body).unwrap().want, Want::Leave);
        drop(listener);
        let done = viewer.wait_with_output().unwrap();
        assert_eq!(
            (code(&done), &done.stdout[..]),
            (0, &b"hello, world"[..]),
            "{}",
            errors(&done)
        );
    });
}

#[test]
fn wrong_usage_is_told() {
    for arguments in [
        &["recv", "http://x/"][..],
        &["bfed://1/x"],
        &["recv", "bfed://1/x", "--kind", "ssm"],
        &["recv", "bfed://1/x", "--mediator", "host:0"],
        &["recv", "bfed://1/x", "--flow", "audio"],
        &["send", "bfed://1/x"],
        &["recv", "bfed://1/x", "--rate", "5M"],
        &[
            "recv",
            "bfed://1/x",
            "--mediator",
            "239.1.1.1",
            "--mediator",
            "239.1.1.2",
        ],
    ] {
        let done = start(arguments).wait_with_output().unwrap();
        assert_eq!(code(&done), 2, "{arguments:?}");
    }
}

/// A stream that cannot be written ends with the code of that; a reader that has closed the pipe hears
/// nothing about it.
#[test]
fn a_stream_that_cannot_be_written_has_a_code_of_its_own() {
    alone(|| {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        for (out, path, words, expected) in [
            (full.unwrap().into(), "-", "--output -: No space left", 74),
            (closed.into(), "-", "", 74),
            (
                Stdio::null(),
                "/dev/full",
                "--output /dev/full: No space left",
                1,
            ),
        ] {
            let mut mediator = OnGroup::new();
            let mut command = Command::new(env!("CARGO_BIN_EXE_bfed-join"));
            command.args(["recv", "bfed://1/239.1.2.3/5004", "--interface", "lo"]);
            command.args(["--output", path]);
            let viewer = command.stdout(out).stderr(Stdio::piped()).spawn().unwrap();
            let request = mediator.received(Want::Join);
            mediator.say(&request.session, 0, translation("239.9.9.9:7000"));
            std::thread::sleep(Duration::from_millis(300));
            to_group("239.9.9.9:7000", b"data");
            let done = viewer.wait_with_output().unwrap();
            assert_eq!(code(&done), expected, "{}", errors(&done));
            assert!(errors(&done).contains(words), "{}", errors(&done));
            assert_eq!(
                errors(&done).is_empty(),
                words.is_empty(),
                "{}",
                errors(&done)
            );
        }
    });
}

/// Starts `exec` with a shell.
fn exec(script: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bfed-join"));
    command.args([
        "exec",
        "bfed://1/film",
        "--kind",
        "ltp",
        "--interface",
        "lo",
    ]);
    command.args(["--", "sh", "-c", script]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn a_program_runs_while_the_session_is_joined_and_its_code_is_the_result() {
    alone(|| {
        let mut mediator = OnGroup::new();
        let member = exec("echo {group} {source} {address}; exit 7");
        let request = mediator.received(Want::Join);
        mediator.say(
            &request.session,
            0,
            translation("ltp://10.0.0.1@239.9.9.9:7000"),
        );
        mediator.received(Want::Leave);
        let done = member.wait_with_output().unwrap();
        assert_eq!(code(&done), 7, "{}", errors(&done));
        let said = String::from_utf8_lossy(&done.stdout);
        assert_eq!(
            said,
            "239.9.9.9:7000 10.0.0.1 ltp://10.0.0.1@239.9.9.9:7000\n"
        );
    });
}

#[test]
fn a_signal_ends_the_program_and_leaves_the_session() {
    alone(|| {
        let mut mediator = OnGroup::new();
        let member = exec("exec sleep 600");
        let request = mediator.received(Want::Join);
        mediator.say(
            &request.session,
            0,
            translation("ltp://10.0.0.1@239.9.9.9:7000"),
        );
        std::thread::sleep(Duration::from_millis(500));
        let id = nix::unistd::Pid::from_raw(member.id() as i32);
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
        mediator.received(Want::Leave);
        let done = member.wait_with_output().unwrap();
        assert_eq!(code(&done), 128 + 15, "{}", errors(&done));
    });
}

#[test]
fn a_session_over_ltp_names_the_command_that_receives_it() {
    alone(|| {
        let mut mediator = OnGroup::new();
        let viewer = start(&["recv", "bfed://1/film", "--output", "/dev/null"]);
        let request = mediator.received(Want::Join);
        mediator.say(
            &request.session,
            0,
            translation("ltp://10.0.0.1@239.9.9.9:7000"),
        );
        let done = viewer.wait_with_output().unwrap();
        assert_eq!(code(&done), 1);
        assert!(
            errors(&done).contains("bfed-join exec"),
            "{}",
            errors(&done)
        );
    });
}

#[test]
fn a_program_that_is_not_there_is_named() {
    alone(|| {
        let mut mediator = OnGroup::new();
        let mut command = Command::new(env!("CARGO_BIN_EXE_bfed-join"));
        command.args(["exec", "bfed://1/film", "--interface", "lo"]);
        command.args(["--", "/nowhere/lms-recv", "--source", "{source}"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let member = command.spawn().unwrap();
        let request = mediator.received(Want::Join);
        mediator.say(&request.session, 0, translation("10.0.0.1@232.9.9.9:7000"));
        let done = member.wait_with_output().unwrap();
        assert_eq!(code(&done), 1);
        assert!(
            errors(&done).contains("/nowhere/lms-recv"),
            "{}",
            errors(&done)
        );
    });
}

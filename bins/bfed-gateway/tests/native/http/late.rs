//! Viewers that arrive late: the last key frame, HLS, and hostile clients of it.

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration as StdDuration;

use bfed_gateway::native::{Network, NetworkConfig};
use media::{Event, Reader};

use bfed::native::{FrameClass, Priority};
use bfed::wire::data::{HEADER_LEN, MAX_PAYLOAD_LEN};

use super::*;

pub(super) const TS: &[u8] = include_bytes!("../../../../../crates/media/tests/samples/h264.ts");
const MP4: &[u8] = include_bytes!("../../../../../crates/media/tests/samples/h264.mp4");
const WEBM: &[u8] = include_bytes!("../../../../../crates/media/tests/samples/vp8.webm");
pub(super) const SESSION: &str = "bfed://7/film";

/// What a reader that arrives at the end of a stream begins with: the initialisation, and all from the last key frame on.
fn late(stream: &[u8]) -> Vec<u8> {
    let (mut reader, mut last) = (Reader::new(), None);
    reader.push(stream);
    while let Some(event) = reader.poll_event() {
        match event {
            Event::Unit(unit) if unit.is_start => last = Some(unit),
            _ => {}
        }
    }
    let last = last.expect("a key frame");
    assert!(
        last.offset > reader.init().len() as u64,
        "not the first one"
    );
    let rest = &stream[last.offset as usize..];
    [reader.init(), last.prefix.as_bytes(), rest].concat()
}

fn init(stream: &[u8]) -> Vec<u8> {
    let mut reader = Reader::new();
    reader.push(stream);
    reader.init().to_vec()
}

/// A source that has sent `len` bytes of a stream, all of which have arrived.
fn source(net: &dyn Network, stream: &[u8]) -> Client {
    let before = count(net, "chunks_received");
    let mut source = Client::put(EDGE, &path(SESSION));
    let mut chunks = 0;
    for piece in stream.chunks(1316 * 7) {
        source.chunk(piece);
        chunks += 1;
    }
    // Chunks may arrive in more pieces than they were sent in.
    for _ in 0..500 {
        if count(net, "chunks_received") >= before + chunks {
            break;
        }
        std::thread::sleep(StdDuration::from_millis(10));
    }
    std::thread::sleep(StdDuration::from_millis(100));
    source
}

pub(super) fn hls(file: &str) -> String {
    format!("{}/{file}", path(SESSION).replacen("/s/", "/hls/", 1))
}

fn get(file: &str) -> (u16, Vec<u8>) {
    let mut client = Client::get(EDGE, &hls(file));
    let (status, body) = client.all();
    (status, body.to_vec())
}

#[test]
fn a_late_reader_begins_with_the_initialisation_and_the_last_key_frame() {
    alone(|| {
        for stream in [TS, MP4, WEBM] {
            let net = edge();
            let stream = &stream[..stream.len() * 3 / 4];
            let mut source = source(&*net, stream);
            let mut reader = Client::get(EDGE, &path(SESSION));
            let expected = late(stream);
            assert_eq!(reader.until(expected.len()), expected);
            // Then it gets what comes.
            source.chunk(b"next");
            assert!(reader.until(expected.len() + 4).ends_with(b"next"));
        }
    });
}

#[test]
fn numbered_frames_are_no_container_whatever_is_in_them() {
    alone(|| {
        let _net = edge();
        let session = path("bfed://7/film/?framing=numbered");
        let mut source = Client::put(EDGE, &session);
        for piece in TS[..60_000].chunks(1316) {
            source.chunk(piece);
        }
        std::thread::sleep(StdDuration::from_millis(200));
        let mut reader = Client::get(EDGE, &session);
        assert_eq!(reader.head(), 200);
        source.chunk(b"now");
        assert_eq!(reader.until(3), b"now");
    });
}

#[test]
fn a_gateway_that_subscribes_late_begins_as_a_reader_does() {
    alone(|| {
        let mut net = edge();
        let stream = &MP4[..MP4.len() * 3 / 4];
        let _source = source(&*net, stream);
        up(&mut *net, &name(SESSION)).unwrap();
        let (expected, mut received) = (late(stream), vec![]);
        while received.len() < expected.len() {
            received.extend(soon(&mut *net).1);
        }
        assert_eq!(received, expected);
    });
}

/// What the data node gets of a source: initialisations and data.
fn upcalls(net: &mut dyn Network, until: usize) -> Vec<(bool, Vec<u8>)> {
    let mut all: Vec<(bool, Vec<u8>)> = vec![];
    let mut buffer = vec![0; HEADER_LEN + MAX_PAYLOAD_LEN];
    for _ in 0..500 {
        while let Some(upcall) = net.poll_upcall(now(), &mut buffer) {
            let (is_init, len) = match upcall {
                Upcall::Init { len, .. } => (true, len),
                Upcall::Data { len, .. } | Upcall::Frame { len, .. } => (false, len),
                other => panic!("{other:?}"),
            };
            all.push((is_init, buffer[HEADER_LEN..HEADER_LEN + len].to_vec()));
        }
        let data = all.iter().filter(|one| !one.0).map(|one| one.1.len());
        if data.sum::<usize>() >= until {
            break;
        }
        std::thread::sleep(StdDuration::from_millis(10));
    }
    all
}

#[test]
fn the_data_node_gets_initialisations_of_containers_that_need_them() {
    alone(|| {
        for (stream, needed) in [(MP4, true), (WEBM, true), (TS, false)] {
            let mut net = edge();
            up(&mut *net, &name(SESSION)).unwrap();
            let source = source(&*net, stream);
            let inits: Vec<_> = upcalls(&mut *net, stream.len())
                .into_iter()
                .filter_map(|(is_init, bytes)| is_init.then_some(bytes))
                .collect();
            let expected = if needed { vec![init(stream)] } else { vec![] };
            assert_eq!(inits, expected);
            // The next source may be of another container.
            drop(source);
            std::thread::sleep(StdDuration::from_millis(100));
            let mut next = Client::put(EDGE, &path(SESSION));
            next.chunk(b"text");
            let after = upcalls(&mut *net, 4);
            let expected = if needed { vec![(true, vec![])] } else { vec![] };
            assert_eq!(after[..after.len() - 1], expected);
        }
    });
}

#[test]
fn viewers_of_a_gateway_that_joins_late_wait_for_a_key_frame_after_the_initialisation() {
    alone(|| {
        for stream in [MP4, WEBM] {
            let mut net = edge();
            let foreign = name("bfed://9/film");
            let (channel, _) = down(&mut *net, &foreign).unwrap();
            // Lets the edge serve it without the mediator.
            net.send_init(now(), channel, &init(stream));
            net.send_data(now(), channel, &stream[3000..3001]).unwrap();
            let mut reader = Client::get(EDGE, &path("bfed://9/film"));
            assert_eq!(reader.head(), 200);
            for piece in stream[3001..].chunks(1000) {
                net.send_data(now(), channel, piece).unwrap();
            }
            let body = reader.until(init(stream).len() + 4000).to_vec();
            assert!(body.starts_with(&init(stream)));
            let mut seen = Reader::new();
            seen.push(&body);
            let first = std::iter::from_fn(|| seen.poll_event()).find_map(|event| match event {
                Event::Unit(unit) => Some(unit),
                Event::Init => None,
            });
            assert!(first.is_some_and(|unit| unit.is_start));
        }
    });
}

#[test]
fn a_stream_that_begins_after_its_initialisation_is_passed_on_as_it_is() {
    alone(|| {
        for stream in [MP4, WEBM] {
            let mut net = edge();
            let (channel, _) = down(&mut *net, &name("bfed://9/film")).unwrap();
            net.send_data(now(), channel, &[]).unwrap();
            let mut reader = Client::get(EDGE, &path("bfed://9/film"));
            assert_eq!(reader.head(), 200);
            net.send_init(now(), channel, &init(stream));
            for piece in stream.chunks(1000) {
                net.send_data(now(), channel, piece).unwrap();
            }
            assert_eq!(reader.until(stream.len()), stream);
        }
    });
}

#[test]
fn hostile_initialisations_change_nothing() {
    alone(|| {
        let mut net = edge();
        let (channel, _) = down(&mut *net, &name("bfed://9/film")).unwrap();
        net.send_data(now(), channel, &[]).unwrap();
        let mut reader = Client::get(EDGE, &path("bfed://9/film"));
        assert_eq!(reader.head(), 200);
        for junk in [&b"junk"[..], &[0; 60_000], TS, &MP4[..100], &WEBM[..100]] {
            net.send_init(now(), channel, junk);
        }
        net.send_init(now(), ChannelId(99), &init(MP4));
        net.send_data(now(), channel, b"data").unwrap();
        assert_eq!(reader.until(4), b"data");
    });
}

#[test]
fn where_key_frames_are_too_far_apart_a_reader_waits_for_the_next() {
    alone(|| {
        let mut config = config();
        // The bytes since the last key frame are more than half of this.
        config.queue = 8192;
        let net = channels(&NetworkConfig::Http(config));
        let half = MP4.len() / 2;
        let mut source = source(&*net, &MP4[..half]);
        let mut reader = Client::get(EDGE, &path(SESSION));
        assert_eq!(reader.head(), 200);
        std::thread::sleep(StdDuration::from_millis(100));
        assert!(!reader.is_answered(), "no byte before the next key frame");
        for piece in MP4[half..].chunks(500) {
            source.chunk(piece);
        }
        let body = reader.until(init(MP4).len() + 4000).to_vec();
        let mut seen = Reader::new();
        seen.push(&body);
        let mut units = std::iter::from_fn(|| seen.poll_event()).filter_map(|event| match event {
            Event::Unit(unit) => Some(unit),
            Event::Init => None,
        });
        let first = units.next().unwrap();
        assert!(
            first.is_start && first.time.unwrap().secs() >= 4,
            "{first:?}"
        );
    });
}

#[test]
fn a_stream_that_is_no_container_is_passed_on_from_now_on() {
    alone(|| {
        let net = edge();
        let mut source = source(&*net, &[b'x'; 30_000]);
        let mut reader = Client::get(EDGE, &path(SESSION));
        assert_eq!(reader.head(), 200);
        source.chunk(b"now");
        assert_eq!(reader.until(3), b"now");
        let (status, _) = get("index.m3u8");
        assert_eq!(status, 415);
    });
}

/// Watches the session over HLS until the source has sent all: the playlist.
pub(super) fn recorded(net: &dyn Network, stream: &[u8]) -> (Client, String) {
    let half = stream.len() / 8;
    let mut source = source(net, &stream[..half]);
    // This asks for segments, and gets none yet.
    let mut waiting = Client::get(EDGE, &hls("index.m3u8"));
    std::thread::sleep(StdDuration::from_millis(100));
    for piece in stream[half..].chunks(10_000) {
        source.chunk(piece);
    }
    let (status, body) = waiting.all();
    assert_eq!(status, 200);
    let first = String::from_utf8(body.to_vec()).unwrap();
    assert!(first.starts_with("#EXTM3U\n"), "{first}");
    std::thread::sleep(StdDuration::from_millis(200));
    let (status, body) = get("index.m3u8");
    assert_eq!(status, 200);
    (source, String::from_utf8(body).unwrap())
}

#[test]
fn segments_are_what_the_source_sent() {
    alone(|| {
        for (stream, extension) in [(TS, "ts"), (MP4, "m4s")] {
            let net = edge();
            let (_source, playlist) = recorded(&*net, stream);
            let all: Vec<&str> = playlist
                .lines()
                .filter(|line| line.ends_with(extension) && !line.starts_with('#'))
                .collect();
            assert!(!all.is_empty(), "{playlist}");
            let init = init(stream);
            for name in all {
                let (status, segment) = get(name);
                assert_eq!(status, 200, "{name}");
                let content = match extension {
                    "ts" => {
                        assert_eq!(segment[..init.len()], init[..]);
                        &segment[init.len()..]
                    }
                    _ => &segment[..],
                };
                let found = stream
                    .windows(content.len())
                    .any(|window| window == content);
                assert!(found, "{name} is a piece of the stream");
                // The parts together are the segment.
                let number = name.split('.').next().unwrap();
                let parts: Vec<u8> = (0..)
                    .map(|part| get(&format!("{number}.{part}.{extension}")))
                    .take_while(|(status, _)| *status == 200)
                    .flat_map(|(_, part)| part)
                    .collect();
                assert_eq!(parts, segment, "{name}");
            }
            if extension == "m4s" {
                assert!(
                    playlist.contains("#EXT-X-MAP:URI=\"init.0.mp4\""),
                    "{playlist}"
                );
                assert_eq!(get("init.0.mp4"), (200, init));
            }
        }
    });
}

#[test]
fn a_playlist_that_is_ahead_is_waited_for_and_one_far_ahead_is_refused() {
    alone(|| {
        let net = edge();
        let (mut source, playlist) = recorded(&*net, TS);
        let hint = playlist.split("URI=\"").last().unwrap();
        let hint = hint.split('"').next().unwrap().to_owned();
        let mut numbers = hint.split('.').map(|part| part.parse::<u64>().unwrap_or(0));
        let (segment, part) = (numbers.next().unwrap(), numbers.next().unwrap());
        let query = format!("index.m3u8?_HLS_msn={segment}&_HLS_part={part}");
        let mut waiting = [
            Client::get(EDGE, &hls(&query)),
            Client::get(EDGE, &hls(&hint)),
        ];
        std::thread::sleep(StdDuration::from_millis(200));
        assert!(waiting.iter().all(|client| !client.is_answered()));
        // The same pictures again, whose time goes back.
        for piece in TS.chunks(10_000) {
            source.chunk(piece);
        }
        let (status, body) = waiting[0].all();
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(body));
        assert!(matches!(waiting[1].head(), 200 | 404));
        assert_eq!(
            get(&format!("index.m3u8?_HLS_msn={}", segment + 100)).0,
            400
        );
        assert_eq!(get("index.m3u8?_HLS_part=0").0, 400);
        assert_eq!(get("index.m3u8?_HLS_msn=-1").0, 400);
        assert_eq!(get("99999.ts").0, 404);
    });
}

#[test]
fn sessions_with_segments_are_bounded_and_sessions_without_a_source_cost_nothing() {
    alone(|| {
        let mut config = config();
        config.hls_sessions = 0;
        let net = channels(&NetworkConfig::Http(config));
        assert_eq!(get("index.m3u8").0, 404);
        assert_eq!(count(&*net, "streams"), 0);
        let _source = source(&*net, &TS[..20_000]);
        assert_eq!(get("index.m3u8").0, 503);
        let post = format!(
            "PUT {} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n",
            hls("1.ts")
        );
        assert_eq!(Client::ask(EDGE, &post, b"").head(), 405);
    });
}

#[test]
fn a_client_does_not_take_all_places_for_segments() {
    alone(|| {
        let config = HttpConfig {
            hls_sessions_per_client: 2,
            ..config()
        };
        let _net = channels(&NetworkConfig::Http(config));
        let names = ["bfed://7/a", "bfed://7/b", "bfed://7/c"];
        let _sources = names.map(|session| {
            let mut source = Client::put(EDGE, &path(session));
            for piece in TS.chunks(1316 * 7) {
                source.chunk(piece);
            }
            source
        });
        std::thread::sleep(StdDuration::from_millis(500));
        // Waits for segments of a stream that stands still; the place is taken at once.
        let ask = |session: &str, from: [u8; 4]| {
            let list = path(session).replacen("/s/", "/hls/", 1);
            let head = format!("GET {list}/9.ts HTTP/1.1\r\nHost: x\r\n");
            Client::ask_from(from, EDGE, &head)
        };
        let status = |mut client: Client| {
            std::thread::sleep(StdDuration::from_millis(200));
            client.is_answered().then(|| client.head())
        };
        let one = [127, 0, 0, 1];
        assert_ne!(status(ask(names[0], one)), Some(429));
        assert_ne!(status(ask(names[1], one)), Some(429));
        assert_eq!(status(ask(names[2], one)), Some(429));
        assert_ne!(status(ask(names[0], one)), Some(429), "it has that one");
        // Another client has places of its own, and what both watch counts for neither.
        assert_ne!(status(ask(names[0], [127, 0, 0, 2])), Some(429));
        assert_ne!(status(ask(names[2], one)), Some(429));
    });
}

#[test]
fn clients_that_wait_and_break_off_leave_nothing() {
    alone(|| {
        let net = edge();
        let mut source = source(&*net, &TS[..20_000]);
        let waiting: Vec<Client> = (0..200)
            .map(|_| Client::get(EDGE, &hls("index.m3u8")))
            .collect();
        std::thread::sleep(StdDuration::from_millis(200));
        drop(waiting);
        // Half a head, and nothing more.
        let mut half = TcpStream::connect(EDGE).unwrap();
        half.write_all(b"GET /hls/").unwrap();
        for piece in TS[20_000..].chunks(10_000) {
            source.chunk(piece);
        }
        assert_eq!(get("index.m3u8").0, 200);
        half.set_read_timeout(Some(StdDuration::from_secs(30)))
            .unwrap();
        let _ = half.read(&mut [0; 100]);
        drop(source);
        until(&*net, "streams", 0);
    });
}

#[test]
fn the_list_and_the_player() {
    alone(|| {
        let net = edge();
        let _source = source(&*net, &MP4[..MP4.len() / 2]);
        let json = |path: &str| -> serde_json::Value {
            let mut client = Client::get(EDGE, path);
            let (status, body) = client.all();
            assert_eq!(status, 200, "{path}");
            serde_json::from_slice(body).unwrap()
        };
        let list = json("/sessions");
        let session = &list["sessions"][0];
        assert_eq!(session["session"], name(SESSION).as_str());
        assert_eq!(session["container"], "mp4");
        let address = format!("http://{EDGE}{}", session["stream"].as_str().unwrap());
        assert_eq!(session["address"], address.as_str());
        for (key, value) in [("format", 1), ("network", OWN)] {
            assert_eq!(list[key], value, "{key}");
        }
        assert_eq!(
            (&list["kind"], &list["complete"]),
            (&"http".into(), &true.into())
        );
        let known = [
            "session",
            "title",
            "owner",
            "content",
            "multi_source",
            "flow",
            "flow_name",
            "flows",
            "media",
            "mime",
            "address",
            "readers",
            "announced_by",
            "container",
            "hls_active",
            "stream",
            "play",
            "hls",
        ];
        for key in known {
            assert!(session.get(key).is_some(), "{key} of format 1");
        }
        let mime = session["mime"].as_str().unwrap();
        assert!(mime.starts_with("video/mp4; codecs=\"avc1."), "{mime}");
        let play = session["play"].as_str().unwrap();
        assert_eq!(&json(&play.replacen("/play/", "/info/", 1)), session);
        let mut page = Client::get(EDGE, play);
        let (status, body) = page.all();
        // WebTransport connects to the page's own host.
        let body = String::from_utf8_lossy(body).replace("\"https://\" + location.hostname", "");
        assert_eq!(status, 200);
        assert!(body.contains("<video") && !body.contains("NONCE") && !body.contains("innerHTML"));
        assert!(
            !body.contains("http:") && !body.contains("https:"),
            "nothing from outside"
        );
        drop(net);
        let mut config = config();
        config.list.clear();
        let _net = channels(&NetworkConfig::Http(config));
        assert_eq!(Client::get(EDGE, "/sessions").head(), 403);
    });
}

/// Classes of the frames that the data node gets of a source, by their bytes.
fn classes(net: &mut dyn Network, len: usize) -> Vec<(FrameClass, Vec<u8>)> {
    let mut all: Vec<(FrameClass, Vec<u8>)> = vec![];
    let mut buffer = vec![0; HEADER_LEN + MAX_PAYLOAD_LEN];
    for _ in 0..500 {
        while let Some(upcall) = net.poll_upcall(now(), &mut buffer) {
            let (class, len) = match upcall {
                Upcall::Frame { class, len, .. } => (class, len),
                Upcall::Data { len, .. } => (FrameClass::default(), len),
                _ => continue,
            };
            all.push((class, buffer[HEADER_LEN..HEADER_LEN + len].to_vec()));
        }
        if all.iter().map(|one| one.1.len()).sum::<usize>() >= len {
            break;
        }
        std::thread::sleep(StdDuration::from_millis(10));
    }
    all
}

#[test]
fn frames_with_bytes_of_key_frames_are_more_important_than_others() {
    alone(|| {
        for stream in [TS, MP4, WEBM] {
            let mut net = edge();
            let live = "bfed://7/film/?content=real-time";
            up(&mut *net, &name(live)).unwrap();
            let mut source = Client::put(EDGE, &path(live));
            for piece in stream.chunks(700) {
                source.chunk(piece);
                // Each in a frame of its own.
                std::thread::sleep(StdDuration::from_millis(1));
            }
            let all = classes(&mut *net, stream.len());
            let mut reader = Reader::new();
            reader.push(stream);
            let starts: Vec<_> = std::iter::from_fn(|| reader.poll_event())
                .filter_map(|event| match event {
                    Event::Unit(unit) if unit.is_start => Some(unit.offset..unit.end()),
                    _ => None,
                })
                .collect();
            assert!(starts.len() > 2);
            let (mut at, mut others) = (0, 0);
            for (class, bytes) in &all {
                let end = at + bytes.len() as u64;
                // The head of a picture tells, which may be some packets after its first byte.
                let is_within =
                    |start: &std::ops::Range<u64>| at > start.start + 700 && end <= start.end;
                if starts.iter().any(is_within) {
                    assert_eq!(class.priority, Priority::Key, "bytes {at} to {end}");
                }
                if starts
                    .iter()
                    .all(|start| end <= start.start || at >= start.end)
                {
                    others += u64::from(class.priority == Priority::Normal);
                }
                at = end;
            }
            assert!(others > all.len() as u64 / 4, "{others} of {}", all.len());
        }
    });
}

#[test]
fn a_source_declares_how_long_its_frames_are_worth_sending() {
    alone(|| {
        let mut net = edge();
        let live = "bfed://7/film/?content=real-time";
        up(&mut *net, &name(live)).unwrap();
        let ask = |value: &str| {
            let path = path(live);
            let head = format!(
                "PUT {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nPolycast-Deadline: {value}\r\n"
            );
            Client::ask(EDGE, &head, b"")
        };
        for wrong in ["0", "60001", "soon", "-1", "1.5"] {
            assert_eq!(ask(wrong).head(), 400, "{wrong}");
        }
        let mut source = ask("150");
        source.chunk(b"data");
        let expected = FrameClass {
            priority: Priority::Normal,
            lifetime: Some(bfed::Duration::from_millis(150)),
        };
        assert_eq!(classes(&mut *net, 4), [(expected, b"data".to_vec())]);
    });
}

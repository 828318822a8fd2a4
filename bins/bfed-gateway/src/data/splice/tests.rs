//! Packets between real TCP channels of a data node.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Moment};

use bfed::data::DataError;
use bfed::wire::data::{Kind, MAX_PAYLOAD_LEN, Repr};
use bfed::wire::join::FlowChannel;
use bfed::wire::subscribe::{Edge, Repr as Subscribe};
use bfed::wire::{MAX_MESSAGE_LEN, Message};
use bfed::{ChannelAddress, DataConfig, FlowLabel, NodeId, PeerId, SessionName};
use linux_net::inet::{self, UdpSocket};
use linux_net::wake::Waker;
use proto_core::clock::Clock;

use super::*;
use crate::data::streams::{READ_BYTES, listen};
use crate::data::{Command, Opened};
use crate::native::NoNetwork;

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
const UP: FlowLabel = FlowLabel::new(7).unwrap();
const TIMEOUT: Duration = Duration::from_secs(30);

/// A data node that the test drives, with a source and the labels of its receivers.
struct Stage {
    worker: Worker,
    commands: (Sender<Command>, Receiver<Command>),
    to: SocketAddr,
    labels: Vec<FlowLabel>,
    source: TcpStream,
}

impl Stage {
    fn new(receivers: u32) -> Stage {
        let listener = listen(LOCAL).unwrap();
        let to = listener.local_addr().unwrap();
        let udp = UdpSocket::open(&inet::Config::new(LOCAL)).unwrap();
        let clock = Clock::new();
        let mut config = DataConfig::new(NodeId(1));
        config.stream = Some(to);
        let mut worker = Worker::new(Opened {
            quic: None,
            config,
            network: Box::new(NoNetwork::new().unwrap()),
            udp,
            listener,
            waker: Waker::new().unwrap(),
            clock,
            max_streams: 100,
            seed: [1; 32],
            cpu: None,
        })
        .unwrap();
        let now = worker.clock.now();
        worker.node.connected(now);
        let peer = SocketAddr::new(LOCAL.ip(), 9);
        let labels = (0..receivers).map(|number| subscribe(&mut worker, number + 2, None, peer));
        let labels = labels.map(Option::unwrap).collect();
        let upstream = TcpListener::bind(LOCAL).unwrap();
        let address = upstream.local_addr().unwrap();
        subscribe(&mut worker, 1, Some(UP), address);
        let (commands, source) = (channel(), upstream);
        source.set_nonblocking(true).unwrap();
        let mut accepted = None;
        let until = Moment::now() + TIMEOUT;
        while accepted.is_none() {
            assert!(Moment::now() < until);
            worker.waker.wake();
            worker.turn(&commands.1).unwrap();
            accepted = source.accept().ok();
        }
        let source = accepted.unwrap().0;
        let mut stage = Stage {
            worker,
            commands,
            to,
            labels,
            source,
        };
        stage.until(|stage| stage.count("streams_opened") == 1);
        stage.source.set_nonblocking(true).unwrap();
        let mut attach = [0; HEADER_LEN];
        stage.until(|stage| stage.source.peek(&mut attach).is_ok());
        stage.source.set_nonblocking(false).unwrap();
        stage.source.read_exact(&mut attach).unwrap();
        let mut expected = [0; HEADER_LEN];
        let header = Repr::new(Kind::Attach, UP);
        Repr {
            sequence: bfed::wire::init::ATTACH_INIT,
            ..header
        }
        .emit(&mut expected);
        assert_eq!(attach, expected);
        stage
    }

    /// Turns the data node until something holds.
    fn until(&mut self, mut holds: impl FnMut(&mut Stage) -> bool) {
        let until = Moment::now() + TIMEOUT;
        while !holds(self) {
            assert!(Moment::now() < until, "{:?}", self.worker.snapshot());
            self.turn();
        }
    }

    /// Turns it once, without a wait.
    fn turn(&mut self) {
        self.worker.waker.wake();
        assert!(self.worker.turn(&self.commands.1).unwrap());
    }

    fn count(&self, name: &str) -> u64 {
        let counters = self.worker.output.counters();
        counters.iter().find(|(known, _)| *known == name).unwrap().1
    }

    fn drops(&mut self, reason: DataError) -> u64 {
        self.worker.node.plane().stats().drops.get(reason)
    }

    /// Connects a receiver.
    fn receiver(&mut self, number: usize) -> TcpStream {
        let before = self.count("streams_opened");
        let mut stream = TcpStream::connect(self.to).unwrap();
        let attach = packet(Kind::Attach, self.labels[number], &[]);
        stream.write_all(&attach).unwrap();
        self.until(|stage| stage.count("streams_opened") == before + 1);
        stream
    }

    /// Sends from another thread.
    fn send(&self, bytes: Vec<u8>) -> JoinHandle<()> {
        let mut source = self.source.try_clone().unwrap();
        std::thread::spawn(move || source.write_all(&bytes).unwrap())
    }

    /// Compares what a receiver gets.
    fn expect(&mut self, receiver: &TcpStream, expected: Vec<u8>) {
        let mut stream = receiver.try_clone().unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; expected.len()];
            stream.read_exact(&mut got).unwrap();
            assert!(got == expected);
        });
        self.until(|_| reader.is_finished());
        reader.join().unwrap();
    }
}

/// Subscribes a receiving peer, or the source with its label; returns the label for a receiver.
fn subscribe(
    worker: &mut Worker,
    peer: u32,
    label: Option<FlowLabel>,
    address: SocketAddr,
) -> Option<FlowLabel> {
    let message = Message::Subscribe(Subscribe {
        up: label.is_some(),
        request: peer,
        epoch: 1,
        edge: Edge::Peer {
            peer: PeerId(peer),
            rate_bps: 0,
        },
        flows: vec![FlowChannel {
            label,
            address: ChannelAddress::Stream(address),
        }],
        session: SessionName::parse("bfed://2/fake/f/?content=bulk-data").unwrap(),
    });
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    let now = worker.clock.now();
    worker.node.handle_packet(now, &(), &bytes).unwrap();
    let mut buffer = vec![0; MAX_MESSAGE_LEN];
    while let Some(len) = worker.node.poll_transmit_control(&mut buffer) {
        if let Ok(Message::AllocateResponse(response)) = Message::parse(&buffer[..len]) {
            return response.flows.first().and_then(|flow| flow.label);
        }
    }
    panic!("no answer");
}

fn packet(kind: Kind, label: FlowLabel, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; HEADER_LEN];
    let header = Repr::new(kind, label);
    Repr {
        payload_len: payload.len(),
        ..header
    }
    .emit(&mut packet);
    packet.extend(payload);
    packet
}

/// Frames of these lengths, as the label's receiver gets them.
fn frames(label: FlowLabel, lens: &[usize]) -> Vec<u8> {
    let frame = |(number, len): (usize, &usize)| {
        // Each byte tells the frame, and the first ones tell their places.
        let mut payload = vec![number as u8; *len];
        for (at, byte) in payload.iter_mut().take(256).enumerate() {
            *byte ^= at as u8;
        }
        packet(Kind::Data, label, &payload)
    };
    lens.iter().enumerate().flat_map(frame).collect()
}

const LONG: usize = 16 << 10;

#[test]
fn long_frames_are_spliced_and_every_byte_and_packet_is_counted() {
    let mut stage = Stage::new(1);
    let receiver = stage.receiver(0);
    let lens = [LONG; 400];
    let sender = stage.send(frames(UP, &lens));
    let expected = frames(stage.labels[0], &lens);
    let bytes = expected.len() as u64;
    stage.expect(&receiver, expected);
    sender.join().unwrap();
    assert!(stage.count("stream_bytes_spliced") > bytes / 2);
    // An ATTACH went up, and one came from below.
    let attach = HEADER_LEN as u64;
    assert_eq!(stage.count("stream_bytes_sent"), bytes + attach);
    assert_eq!(stage.count("stream_bytes_received"), bytes + attach);
    let stats = *stage.worker.node.plane().stats();
    assert_eq!((stats.packets, stats.copies), (401, 400), "with the ATTACH");
    assert_eq!(
        (stats.bytes, stats.copied_bytes),
        (400 * LONG as u64, 400 * LONG as u64)
    );
    assert_eq!(stats.drops.total(), 0);
}

#[test]
fn frames_of_all_lengths_arrive_in_order() {
    let mut stage = Stage::new(1);
    let receiver = stage.receiver(0);
    let lens: Vec<usize> = (0..600)
        .map(|number| match number % 100 {
            0..40 => LONG,
            40..50 => number * 7 % 200,
            50..60 => MAX_PAYLOAD_LEN,
            60 => 0,
            _ => LEAST + number * 13 % 9000,
        })
        .collect();
    let sender = stage.send(frames(UP, &lens));
    let expected = frames(stage.labels[0], &lens);
    stage.expect(&receiver, expected);
    sender.join().unwrap();
    assert!(stage.count("stream_bytes_spliced") > 0);
    assert_eq!(stage.worker.node.plane().stats().copies, 600);
}

#[test]
fn a_receiver_that_reads_nothing_holds_one_reading_and_stops_the_source() {
    let mut stage = Stage::new(1);
    let receiver = stage.receiver(0);
    let lens = [LONG; 2000];
    let sender = stage.send(frames(UP, &lens));
    stage.until(|stage| stage.worker.node.plane().stats().pauses > 0);
    let taken = stage.count("stream_bytes_received");
    for _ in 0..50 {
        stage.turn();
    }
    assert_eq!(
        stage.count("stream_bytes_received"),
        taken,
        "the source is paused"
    );
    let waiting = stage.worker.output.streams.waiting_bytes();
    assert!(waiting <= 2 * READ_BYTES, "{waiting} bytes wait");
    let expected = frames(stage.labels[0], &lens);
    stage.expect(&receiver, expected);
    sender.join().unwrap();
    assert!(stage.count("stream_bytes_spliced") > 0);
    assert_eq!(stage.worker.node.plane().stats().drops.total(), 0);
}

#[test]
fn after_a_receiver_closed_in_the_middle_the_next_one_gets_whole_frames() {
    let mut stage = Stage::new(1);
    let receiver = stage.receiver(0);
    let lens = [LONG; 2000];
    let bytes = frames(UP, &lens);
    let all = (bytes.len() + HEADER_LEN) as u64;
    let sender = stage.send(bytes);
    let expected = frames(stage.labels[0], &lens[..100]);
    stage.expect(&receiver, expected);
    assert!(stage.count("stream_bytes_spliced") > 0);
    drop(receiver);
    stage.until(|stage| stage.count("stream_bytes_received") == all);
    sender.join().unwrap();
    assert!(stage.drops(DataError::NotAttached) > 0);
    assert_eq!(stage.worker.output.streams.len(), 1);
    let receiver = stage.receiver(0);
    let sender = stage.send(frames(UP, &[LONG; 50]));
    let expected = frames(stage.labels[0], &[LONG; 50]);
    stage.expect(&receiver, expected);
    sender.join().unwrap();
}

#[test]
fn frames_that_arrive_in_pieces_are_put_together() {
    let mut stage = Stage::new(1);
    let receiver = stage.receiver(0);
    let lens = [LONG; 60];
    let (bytes, expected) = (frames(UP, &lens), frames(stage.labels[0], &lens));
    let mut source = stage.source.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        source.set_nodelay(true).unwrap();
        let mut rest = &bytes[..];
        for len in [1, 19, 1, LONG + 5, 40_000, 7, 100_003].into_iter().cycle() {
            let (now, later) = rest.split_at(len.min(rest.len()));
            source.write_all(now).unwrap();
            std::thread::sleep(Duration::from_millis(3));
            rest = later;
            if rest.is_empty() {
                return;
            }
        }
    });
    stage.expect(&receiver, expected);
    sender.join().unwrap();
}

#[test]
fn a_malformed_header_ends_the_stream_after_the_frames_before_it() {
    let mut stage = Stage::new(1);
    let receiver = stage.receiver(0);
    let lens = [LONG; 100];
    let mut bytes = frames(UP, &lens);
    bytes.extend([0xff; 3 * LONG]);
    let mut source = stage.source.try_clone().unwrap();
    // The data node may close the stream before everything is written.
    let sender = std::thread::spawn(move || drop(source.write_all(&bytes)));
    let expected = frames(stage.labels[0], &lens);
    stage.expect(&receiver, expected);
    stage.until(|stage| stage.count("streams_malformed") == 1);
    stage.until(|stage| stage.worker.output.streams.len() <= 2 && sender.is_finished());
    sender.join().unwrap();
}

#[test]
fn packets_with_the_label_of_another_flow_are_dropped_among_those_that_are_spliced() {
    let mut stage = Stage::new(1);
    let receiver = stage.receiver(0);
    let other = FlowLabel::new(8).unwrap();
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..40 {
        bytes.extend(frames(UP, &[LONG; 3]));
        bytes.extend(frames(other, &[LONG, 40]));
        bytes.extend(packet(Kind::Attach, UP, &[]));
        expected.extend(frames(stage.labels[0], &[LONG; 3]));
    }
    let sender = stage.send(bytes);
    stage.expect(&receiver, expected);
    sender.join().unwrap();
    stage.until(|stage| stage.drops(DataError::UnknownFlow) == 40 * 3);
}

#[test]
fn a_second_receiver_gets_frames_from_the_next_one_on() {
    let mut stage = Stage::new(2);
    let first = stage.receiver(0);
    let warm = [LONG; 100];
    let sender = stage.send(frames(UP, &warm));
    let expected = frames(stage.labels[0], &warm);
    stage.expect(&first, expected);
    sender.join().unwrap();
    let second = stage.receiver(1);
    let sender = stage.send(frames(UP, &warm));
    for (receiver, label) in [(&first, 0), (&second, 1)] {
        let expected = frames(stage.labels[label], &warm);
        stage.expect(receiver, expected);
    }
    sender.join().unwrap();
}

#[test]
fn without_pipes_packets_are_copied() {
    let mut stage = Stage::new(1);
    stage.worker.splicer = None;
    let receiver = stage.receiver(0);
    let lens = [LONG; 200];
    let sender = stage.send(frames(UP, &lens));
    let expected = frames(stage.labels[0], &lens);
    stage.expect(&receiver, expected);
    sender.join().unwrap();
    assert_eq!(stage.count("stream_bytes_spliced"), 0);
}

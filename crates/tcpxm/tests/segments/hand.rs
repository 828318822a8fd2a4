//! An endpoint, and a peer whose segments are made by hand.

use std::net::{IpAddr, SocketAddr};

use tcpxm::store::Ring;
use tcpxm::wire::{Flags, GroupOption, Options, Segment};
use tcpxm::{
    Config, ConnId, ConnStats, Duration, Endpoint, Error, Event, Failure, Instant, Meta, Received,
    Seq, State,
};

pub(crate) const PORT: u16 = 7000;
pub(crate) const PEER_PORT: u16 = 5000;
pub(crate) const ISS: Seq = Seq(0xffff_ff00); // wraps soon
pub(crate) const GROUP: &str = "239.192.3.4";

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// An endpoint, and a peer whose segments are made by hand.
pub(crate) struct Hand {
    pub(crate) endpoint: Endpoint<Ring>,
    pub(crate) now: Instant,
    /// The peer's next sequence number, and the endpoint's.
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) id: Option<ConnId>,
}

pub(crate) struct Sent {
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    pub(crate) options: Options,
    pub(crate) payload: Vec<u8>,
}

pub(crate) const ACK: Flags = Flags {
    syn: false,
    fin: false,
    rst: false,
    psh: false,
    ack: true,
    urg: false,
};

pub(crate) fn flags(text: &str) -> Flags {
    let has = |letter| text.contains(letter);
    Flags {
        syn: has('S'),
        fin: has('F'),
        rst: has('R'),
        psh: has('P'),
        ack: has('A'),
        urg: has('U'),
    }
}

impl Hand {
    pub(crate) fn new(config: Config) -> Self {
        let now = Instant::ZERO;
        let mut endpoint = Endpoint::new(config, [7; 32], now);
        endpoint.listen(now, PORT).unwrap();
        Self {
            endpoint,
            now,
            seq: ISS,
            ack: Seq(0),
            id: None,
        }
    }

    /// An endpoint that connects to the peer, and the SYN that it has sent.
    pub(crate) fn connecting(config: Config) -> (Self, Sent) {
        let mut hand = Self::new(config);
        let local = SocketAddr::new(ip("10.0.0.1"), PORT);
        let remote = SocketAddr::new(ip("10.0.0.9"), PEER_PORT);
        hand.id = Some(hand.endpoint.connect(hand.now, local, remote).unwrap());
        let syn = hand.sent().pop().unwrap();
        assert_eq!((syn.flags, syn.ack), (flags("S"), Seq(0)));
        hand.ack = syn.seq.plus(1);
        (hand, syn)
    }

    pub(crate) fn segment<'a>(
        &self,
        seq: Seq,
        ack: Seq,
        flags: Flags,
        payload: &'a [u8],
    ) -> Segment<'a> {
        Segment {
            source_port: PEER_PORT,
            destination_port: PORT,
            seq,
            ack,
            flags,
            window: 60_000,
            options: Options::default(),
            payload,
        }
    }

    pub(crate) fn inject(&mut self, segment: &Segment<'_>, to: &str) -> Result<(), Error> {
        let mut bytes = vec![0; segment.buffer_len()];
        segment.emit(&mut bytes);
        let meta = Meta {
            source: SocketAddr::new(ip("10.0.0.9"), PEER_PORT),
            destination: ip(to),
        };
        self.endpoint.handle_packet(self.now, &meta, &bytes)
    }

    pub(crate) fn give(
        &mut self,
        seq: Seq,
        ack: Seq,
        flag_text: &str,
        payload: &[u8],
    ) -> Result<(), Error> {
        let segment = self.segment(seq, ack, flags(flag_text), payload);
        self.inject(&segment, "10.0.0.1")
    }

    /// Hands in a segment without data at the peer's position, with these options.
    pub(crate) fn answer(&mut self, flag_text: &str, options: Options) -> Result<(), Error> {
        let mut segment = self.segment(self.seq, self.ack, flags(flag_text), &[]);
        segment.options = options;
        self.inject(&segment, "10.0.0.1")
    }

    /// Hands in an acknowledgement of `len` bytes more, with this window.
    pub(crate) fn acknowledge(&mut self, len: u32, window: u16) {
        self.ack = self.ack.plus(len);
        let mut segment = self.segment(self.seq, self.ack, ACK, &[]);
        segment.window = window;
        self.inject(&segment, "10.0.0.1").unwrap();
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let sent = self.endpoint.send(self.now, self.id.unwrap(), bytes);
        assert_eq!(sent.unwrap(), bytes.len());
    }

    pub(crate) fn sent(&mut self) -> Vec<Sent> {
        let mut buffer = [0; 1500];
        let mut all = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(self.now, &mut buffer) {
            let segment = Segment::parse(&buffer[..transmit.len]).unwrap();
            all.push(Sent {
                seq: segment.seq,
                ack: segment.ack,
                flags: segment.flags,
                window: segment.window,
                options: segment.options,
                payload: segment.payload.to_vec(),
            });
        }
        all
    }

    pub(crate) fn wait(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.endpoint.handle_timeout(self.now);
    }

    /// Completes a handshake with these options in the SYN.
    pub(crate) fn establish(config: Config, options: Options) -> Self {
        let mut hand = Self::new(config);
        let mut syn = hand.segment(ISS, Seq(0), flags("S"), &[]);
        syn.options = options;
        hand.inject(&syn, "10.0.0.1").unwrap();
        let answer = hand.sent().pop().unwrap();
        assert!(answer.flags.syn && answer.flags.ack && answer.ack == ISS.plus(1));
        hand.seq = ISS.plus(1);
        hand.ack = answer.seq.plus(1);
        let mut ack = hand.segment(hand.seq, hand.ack, ACK, &[]);
        ack.options.timestamps = options.timestamps;
        hand.inject(&ack, "10.0.0.1").unwrap();
        hand.id = hand.endpoint.accept(hand.now, PORT);
        assert_eq!(hand.state(), State::Established);
        hand
    }

    pub(crate) fn plain() -> Self {
        Self::establish(
            Config::default(),
            Options {
                mss: Some(1000),
                ..Options::default()
            },
        )
    }

    pub(crate) fn grouped() -> Self {
        let group = Some(GroupOption::Named(ip(GROUP)));
        Self::establish(
            Config::default(),
            Options {
                mss: Some(1000),
                group,
                ..Options::default()
            },
        )
    }

    pub(crate) fn state(&self) -> State {
        self.endpoint.conn_stats(self.id.unwrap()).unwrap().state
    }

    pub(crate) fn stats(&self) -> ConnStats {
        self.endpoint.conn_stats(self.id.unwrap()).unwrap()
    }

    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.endpoint.poll_event()).collect()
    }

    /// How the connection has ended, if the event of that is due.
    pub(crate) fn end(&mut self) -> Option<Option<Failure>> {
        self.events().into_iter().find_map(|event| match event {
            Event::Closed { failure, .. } => Some(failure),
            _ => None,
        })
    }

    /// Waits until something is sent: what, and after how many milliseconds.
    pub(crate) fn wait_for(&mut self, most_ms: u64) -> (Vec<Sent>, u64) {
        for ms in 1..=most_ms {
            self.wait(1);
            let sent = self.sent();
            if !sent.is_empty() {
                return (sent, ms);
            }
        }
        panic!("nothing in {most_ms} ms");
    }

    pub(crate) fn read(&mut self) -> Vec<u8> {
        let mut out = vec![0; 1 << 20];
        match self.endpoint.recv(self.now, self.id.unwrap(), &mut out) {
            Ok(Received::Data(len)) => out[..len].to_vec(),
            _ => Vec::new(),
        }
    }

    /// Nothing was sent but one empty acknowledgement of where things are.
    pub(crate) fn assert_challenge(&mut self) {
        let sent = self.sent();
        assert_eq!(sent.len(), 1);
        assert_eq!(
            (sent[0].flags, sent[0].seq, sent[0].ack),
            (ACK, self.ack, self.seq)
        );
        assert!(sent[0].payload.is_empty());
    }
}

//! Nodes that several tests use.

use netsim::{Duration, Instant, Io, Node, Port};

/// Sends `left` packets of `len` bytes on port 0, one each `gap`, numbered in their first 8 bytes.
pub(crate) struct Talker {
    pub(crate) left: u64,
    pub(crate) sent: u64,
    pub(crate) len: usize,
    pub(crate) gap: Duration,
    pub(crate) next: Instant,
}

impl Talker {
    pub(crate) fn new(packets: u64, len: usize, gap: Duration) -> Self {
        Self {
            left: packets,
            sent: 0,
            len,
            gap,
            next: Instant::ZERO,
        }
    }
}

impl Node for Talker {
    fn handle_packet(&mut self, _now: Instant, _port: Port, _packet: &[u8], _io: &mut Io<'_>) {}

    fn handle_timeout(&mut self, _now: Instant, io: &mut Io<'_>) {
        let mut packet = vec![0; self.len];
        packet[..8].copy_from_slice(&self.sent.to_be_bytes());
        io.send(Port(0), &packet);
        self.sent += 1;
        self.left -= 1;
        self.next += self.gap;
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (self.left > 0).then_some(self.next)
    }
}

/// Records received packets with their time in nanoseconds.
#[derive(Default)]
pub(crate) struct Listener {
    pub(crate) heard: Vec<(u64, Vec<u8>)>,
}

impl Listener {
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.heard
            .iter()
            .map(|(_, p)| u64::from_be_bytes(p[..8].try_into().unwrap()))
            .collect()
    }
}

impl Node for Listener {
    fn handle_packet(&mut self, _now: Instant, _port: Port, packet: &[u8], io: &mut Io<'_>) {
        self.heard.push((io.now_ns(), packet.to_vec()));
    }
}

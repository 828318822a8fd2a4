//! Byte streams between drivers: opened, closed, broken. Messages on a stream keep their order.
//!
//! The packets of a world are these, or contain them.

use std::collections::BTreeMap;
use std::fmt;

use bfed::ConnId;
use bfed::wire::Message;
use netsim::explore::Outbox;

/// What arrives at an end of a stream.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Packet {
    pub(crate) conn: ConnId,
    pub(crate) what: What,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum What {
    /// The stream is open.
    Opened,
    Message(Vec<u8>),
    /// The other end has closed it.
    Closed,
    /// It is broken. What is in flight may arrive before that.
    Broken,
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}: ", self.conn.0)?;
        match &self.what {
            What::Opened => f.write_str("opened"),
            What::Closed => f.write_str("closed"),
            What::Broken => f.write_str("broken"),
            What::Message(bytes) => {
                let message = Message::parse(bytes).expect("what is sent can be read");
                write!(f, "{message:?}")
            }
        }
    }
}

/// Returns the bytes of a message.
pub(crate) fn bytes(message: &Message) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes
}

/// Returns a message without what is counted: no node reads it.
pub(crate) fn without_counters(message: &[u8]) -> Vec<u8> {
    let mut message = Message::parse(message).expect("what is sent can be read");
    match &mut message {
        Message::Heartbeat(heartbeat) => heartbeat.sequence = 0,
        Message::Statistics(statistics) => {
            statistics.rate_bps = 0;
            for entry in &mut statistics.entries {
                (entry.packets, entry.bytes) = (0, 0);
                (entry.copies, entry.dropped) = (0, 0);
            }
        }
        _ => {}
    }
    bytes(&message)
}

/// A stream between two nodes.
#[derive(Clone, Debug, Hash)]
struct Stream {
    /// The node that dialled, and the other one.
    ends: [usize; 2],
    /// Which of them have it.
    open: [bool; 2],
    is_broken: bool,
    /// Its first message has arrived.
    has_begun: bool,
}

impl Stream {
    fn end(&self, node: usize) -> usize {
        usize::from(self.ends[1] == node)
    }
}

/// All streams.
#[derive(Debug, Hash, Default)]
pub(crate) struct Streams {
    map: BTreeMap<ConnId, Stream>,
    /// Streams so far between the nodes with this sum.
    opened: BTreeMap<usize, u64>,
}

impl Streams {
    /// Opens a stream between two nodes.
    pub(crate) fn open<P: From<Packet>>(&mut self, from: usize, to: usize, out: &mut Outbox<P>) {
        let conn = self.connect(from, to);
        self.post(conn, from, What::Opened, out);
        self.post(conn, to, What::Opened, out);
    }

    /// Opens a stream between two nodes. The first message tells the other one.
    pub(crate) fn open_from<P: From<Packet>>(
        &mut self,
        from: usize,
        to: usize,
        out: &mut Outbox<P>,
    ) {
        let conn = self.connect(from, to);
        self.post(conn, from, What::Opened, out);
    }

    /// Opens a stream between two nodes. The first message tells the other one; the node that dials knows already.
    pub(crate) fn connect(&mut self, from: usize, to: usize) -> ConnId {
        let opened = self.opened.entry(from + to).or_default();
        *opened += 1;
        let conn = ConnId((from + to) as u64 * 100 + *opened);
        let stream = Stream {
            ends: [from, to],
            open: [true; 2],
            is_broken: false,
            has_begun: false,
        };
        self.map.insert(conn, stream);
        conn
    }

    /// Returns whether the message that arrives is the first of its stream.
    pub(crate) fn begins(&mut self, conn: ConnId) -> bool {
        let stream = self.map.get_mut(&conn);
        stream.is_some_and(|stream| !std::mem::replace(&mut stream.has_begun, true))
    }

    /// Returns whether a node has the stream.
    pub(crate) fn has(&self, conn: ConnId, node: usize) -> bool {
        let stream = self.map.get(&conn);
        stream.is_some_and(|stream| stream.open[stream.end(node)])
    }

    /// Returns the node at the other end, and whether this one dialled.
    pub(crate) fn other_end(&self, conn: ConnId, node: usize) -> (usize, bool) {
        let stream = &self.map[&conn];
        let end = stream.end(node);
        (stream.ends[1 - end], end == 0)
    }

    /// The number of a stream towards a node.
    fn direction(&self, conn: ConnId, to: usize) -> u32 {
        conn.0 as u32 * 2 + self.map[&conn].end(to) as u32
    }

    /// Sends to an end that has the stream.
    pub(crate) fn post<P: From<Packet>>(
        &self,
        conn: ConnId,
        to: usize,
        what: What,
        out: &mut Outbox<P>,
    ) {
        if self.has(conn, to) && !self.map[&conn].is_broken {
            let direction = self.direction(conn, to);
            out.send_in_stream(to, direction, Packet { conn, what }.into());
        }
    }

    /// A node closes a stream, after all that it has sent.
    pub(crate) fn close<P: From<Packet>>(
        &mut self,
        conn: ConnId,
        node: usize,
        out: &mut Outbox<P>,
    ) {
        if self.has(conn, node) {
            self.post(conn, self.other_end(conn, node).0, What::Closed, out);
            self.ended(conn, node, out);
        }
    }

    /// A node no longer has a stream: nothing more arrives there.
    pub(crate) fn ended<P>(&mut self, conn: ConnId, node: usize, out: &mut Outbox<P>) {
        out.end_stream(node, self.direction(conn, node));
        let Some(stream) = self.map.get_mut(&conn) else {
            return;
        };
        stream.open[stream.end(node)] = false;
        if stream.open == [false; 2] {
            self.map.remove(&conn);
        }
    }

    /// Breaks the streams with these ends.
    pub(crate) fn break_all<P: From<Packet>>(
        &mut self,
        has_ends: impl Fn([usize; 2]) -> bool,
        out: &mut Outbox<P>,
    ) {
        let streams = self.map.iter_mut();
        for (&conn, stream) in streams.filter(|(_, stream)| has_ends(stream.ends)) {
            stream.is_broken = true;
            let ends = stream.ends.into_iter().zip(stream.open);
            for (node, _) in ends.filter(|(_, is_open)| *is_open) {
                let what = What::Broken;
                out.send(node, Packet { conn, what }.into());
            }
        }
    }

    /// Loses all that is sent on the streams of a node, in flight or later. Neither end notices.
    pub(crate) fn stall_all<P>(&mut self, node: usize, out: &mut Outbox<P>) {
        for (&conn, stream) in &mut self.map {
            if stream.ends.contains(&node) {
                stream.is_broken = true;
                for end in stream.ends {
                    let direction = conn.0 as u32 * 2 + stream.end(end) as u32;
                    out.end_stream(end, direction);
                }
            }
        }
    }

    /// A node has died: its streams break.
    pub(crate) fn leave<P: From<Packet>>(&mut self, node: usize, out: &mut Outbox<P>) {
        let own = self.map.iter();
        let own: Vec<_> = own
            .filter(|(_, stream)| stream.ends.contains(&node))
            .map(|(&conn, _)| conn)
            .collect();
        for conn in own {
            self.ended(conn, node, out);
        }
        self.break_all(|ends| ends.contains(&node), out);
    }
}

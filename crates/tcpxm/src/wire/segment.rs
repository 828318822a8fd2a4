//! A whole segment: header, options, data.

use core::net::IpAddr;

use smoltcp::wire::{IpAddress, TcpPacket, TcpSeqNumber};

use super::tag::place_of_tag;
use super::{Options, ParseError, Tag};
use crate::seq::Seq;

/// Bytes of a header without options.
pub const HEADER_BYTES: usize = 20;

/// The control bits that this TCP acts on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags {
    /// Synchronise sequence numbers.
    pub syn: bool,
    /// No more data from the sender.
    pub fin: bool,
    /// Reset the connection.
    pub rst: bool,
    /// Push.
    pub psh: bool,
    /// The acknowledgement number is valid.
    pub ack: bool,
    /// The urgent pointer is valid. Never sent (RFC 9293 §3.8.5 discourages it); on reception the
    /// data is ordinary data.
    pub urg: bool,
}

/// A segment, parsed or to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment<'a> {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number of the first octet of data, or of the SYN or FIN.
    pub seq: Seq,
    /// Acknowledgement number; valid only with [`Flags::ack`].
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// Window as in the header, unscaled.
    pub window: u16,
    /// Options.
    pub options: Options,
    /// Data.
    pub payload: &'a [u8],
}

/// Whole segments in a row whose headers differ in the sequence number and the tag alone, and whose data is one
/// piece of the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) bytes: &'a [u8],
    segment_size: usize,
    header_len: usize,
    /// How many there are.
    pub(crate) len: usize,
}

/// What two headers have in common that differ in the sequence number and the tag alone.
#[derive(Clone, Copy)]
struct Alike {
    /// The position of the tag.
    tag: Option<usize>,
}

impl Alike {
    fn to(head: &[u8]) -> Self {
        let tag = place_of_tag(head);
        Self { tag }
    }

    /// Whether that is so of these headers, of which `head` is the one that [`Alike::to`] has seen.
    fn are(self, head: &[u8], other: &[u8]) -> bool {
        let (end, rest) = self.tag.map_or((head.len(), head.len()), |at| (at, at + 8));
        other.len() == head.len()
            && other[..4] == head[..4]
            && other[8..end] == head[8..end]
            && other[rest..] == head[rest..]
    }
}

impl<'a> Run<'a> {
    /// Returns the longest run that starts with this segment, the first of those in `bytes`, `segment_size`
    /// bytes each except perhaps the last.
    pub(crate) fn of(first: &Segment<'a>, bytes: &'a [u8], segment_size: usize) -> Self {
        let header_len = bytes.len().min(segment_size) - first.payload.len();
        let mut run = Self {
            bytes: &[],
            segment_size,
            header_len,
            len: 0,
        };
        let (head, mut seq, mut end) = (&bytes[..header_len], first.seq, 0);
        let alike = Alike::to(head);
        for piece in bytes.chunks(segment_size) {
            let same = piece.len() > header_len
                && piece[4..8] == seq.0.to_be_bytes()
                && alike.are(head, &piece[..header_len]);
            if !same {
                break;
            }
            seq = seq.plus((piece.len() - header_len) as u32);
            end += piece.len();
            run.len += 1;
        }
        run.bytes = &bytes[..end];
        run
    }

    /// Each segment, and its data.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let header_len = self.header_len;
        self.bytes
            .chunks(self.segment_size)
            .map(move |segment| (segment, &segment[header_len..]))
    }

    /// Bytes of data of all.
    pub(crate) fn data_len(&self) -> usize {
        self.bytes.len() - self.len * self.header_len
    }
}

impl<'a> Segment<'a> {
    /// Parses a segment. [`Segment::verify`] checks the checksum.
    ///
    /// # Errors
    ///
    /// The reason why the bytes are no segment.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        if bytes.len() < HEADER_BYTES {
            return Err(ParseError::Truncated);
        }
        let packet = TcpPacket::new_unchecked(bytes);
        let header_len = usize::from(packet.header_len());
        if header_len < HEADER_BYTES {
            return Err(ParseError::Header);
        }
        if header_len > bytes.len() {
            return Err(ParseError::Truncated);
        }
        let flags = Flags {
            syn: packet.syn(),
            fin: packet.fin(),
            rst: packet.rst(),
            psh: packet.psh(),
            ack: packet.ack(),
            urg: packet.urg(),
        };
        Ok(Self {
            source_port: packet.src_port(),
            destination_port: packet.dst_port(),
            seq: Seq(packet.seq_number().0 as u32),
            ack: Seq(packet.ack_number().0 as u32),
            flags,
            window: packet.window_len(),
            options: Options::parse(&bytes[HEADER_BYTES..header_len])?,
            payload: &bytes[header_len..],
        })
    }

    /// Becomes the segment in `bytes` if its header is `head`, which this one was read from, but for the
    /// sequence number and the tag: so it is with nearly all segments of data that come one after the other.
    pub(crate) fn becomes(&mut self, head: &[u8], bytes: &'a [u8]) -> bool {
        let Some((header, payload)) = bytes.split_at_checked(head.len()) else {
            return false;
        };
        let [a, b, c, d] = [header[4], header[5], header[6], header[7]];
        let alike = Alike::to(head);
        let same = alike.are(head, header);
        if let Some(at) = alike.tag.filter(|_| same) {
            self.options.tag = header[at..].first_chunk().copied().map(Tag);
        }
        if same {
            self.seq = Seq(u32::from_be_bytes([a, b, c, d]));
            self.payload = payload;
        }
        same
    }

    /// Whether the checksum of a segment that travelled in IP is right (RFC 9293 MUST-3).
    #[must_use]
    pub fn verify(bytes: &[u8], source: IpAddr, destination: IpAddr) -> bool {
        cfg!(fuzzing)
            || TcpPacket::new_unchecked(bytes)
                .verify_checksum(&IpAddress::from(source), &IpAddress::from(destination))
    }

    /// Bytes of header and options.
    #[must_use]
    pub fn header_len(&self) -> usize {
        HEADER_BYTES + self.options.buffer_len()
    }

    /// Bytes of the whole segment.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        self.header_len() + self.payload.len()
    }

    /// Returns the octets of sequence space that the segment uses (RFC 9293 §3.4): SYN and FIN count one each.
    #[must_use]
    pub fn sequence_len(&self) -> u32 {
        self.payload.len() as u32 + u32::from(self.flags.syn) + u32::from(self.flags.fin)
    }

    /// Writes the header into the first [`Segment::header_len`] bytes, with checksum 0. The caller writes the
    /// data after it, so that it is copied only once.
    ///
    /// # Panics
    ///
    /// Panics if the buffer is too short, or the options are longer than 40 bytes.
    pub fn emit_header(&self, buffer: &mut [u8]) {
        let header_len = self.header_len();
        let buffer = &mut buffer[..header_len];
        buffer[..HEADER_BYTES].fill(0);
        let mut packet = TcpPacket::new_unchecked(&mut buffer[..]);
        packet.set_src_port(self.source_port);
        packet.set_dst_port(self.destination_port);
        packet.set_seq_number(TcpSeqNumber(self.seq.0 as i32));
        packet.set_ack_number(TcpSeqNumber(self.ack.0 as i32));
        packet.clear_flags();
        packet.set_header_len(u8::try_from(header_len).expect("at most 40 bytes of options"));
        packet.set_syn(self.flags.syn);
        packet.set_fin(self.flags.fin);
        packet.set_rst(self.flags.rst);
        packet.set_psh(self.flags.psh);
        packet.set_ack(self.flags.ack);
        packet.set_urg(self.flags.urg);
        packet.set_window_len(self.window);
        self.options.emit(&mut buffer[HEADER_BYTES..]);
    }

    /// Writes the whole segment, data included, with checksum 0, and returns its length.
    ///
    /// # Panics
    ///
    /// As [`Segment::emit_header`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let header_len = self.header_len();
        let len = header_len + self.payload.len();
        self.emit_header(buffer);
        buffer[header_len..len].copy_from_slice(self.payload);
        len
    }

    /// Changes a written header to that of another segment of the same connection: with this sequence number,
    /// and with or without the push bit. Fields that depend on these and on the data are left unchanged.
    pub(crate) fn renumber(bytes: &mut [u8], seq: Seq, push: bool) {
        let mut packet = TcpPacket::new_unchecked(bytes);
        packet.set_seq_number(TcpSeqNumber(seq.0 as i32));
        packet.set_psh(push);
    }

    /// Bytes of the header and options of a written segment.
    pub(crate) fn written_header_len(bytes: &[u8]) -> usize {
        usize::from(TcpPacket::new_unchecked(bytes).header_len())
    }

    /// Writes the checksum into a whole segment that is to travel in IP (RFC 9293 MUST-2).
    pub fn fill_checksum(bytes: &mut [u8], source: IpAddr, destination: IpAddr) {
        TcpPacket::new_unchecked(bytes)
            .fill_checksum(&IpAddress::from(source), &IpAddress::from(destination));
    }
}

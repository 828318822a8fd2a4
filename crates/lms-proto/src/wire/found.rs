//! An LMS option found in a header of either family, the errors of such headers, and the turning point that a router
//! writes into the option.

use core::fmt;

use super::option::{Body, Form, ParseError, View, body_at};
use crate::{Family, Iface, Kind};

proto_core::errors! {
    /// Why an IP header is malformed. Drop such a packet.
    pub enum HeaderError {
        /// Fewer bytes than a header has, or than its length field says.
        Truncated = "IP header is truncated",
        /// The version is not the family's.
        Version = "wrong IP version",
        /// The header length is below 20 bytes (IPv4).
        HeaderLength = "IPv4 header length is below 20",
        /// The total length is below the header length.
        TotalLength = "IP packet length is below the header length",
        /// Fewer bytes than the total length says.
        PacketTruncated = "IP packet is truncated",
        /// The header checksum is wrong (IPv4).
        Checksum = "IPv4 header checksum is wrong",
    }
}

/// Why the options of a header with an LMS option are malformed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OptionError {
    /// An option has no length byte, or reaches past the header.
    Truncated,
    /// An option's length byte is below the minimum of 2 (IPv4).
    Length,
    /// The LMS option itself is malformed.
    Lms(ParseError),
    /// A second LMS option.
    Duplicate,
    /// An unrecognized option whose type requires that the packet be discarded (RFC 8200 §4.2).
    Unknown,
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionError::Truncated => f.write_str("option reaches past the header"),
            OptionError::Length => f.write_str("option length is too small"),
            OptionError::Lms(error) => error.fmt(f),
            OptionError::Duplicate => f.write_str("two LMS options in one header"),
            OptionError::Unknown => f.write_str("unknown option that forbids forwarding"),
        }
    }
}

impl core::error::Error for OptionError {}

/// Where one option lies in a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OptionAt {
    /// Offset in the packet of the option's type byte.
    pub at: usize,
    /// Length of the option in bytes.
    pub len: usize,
}

/// Where a turning point is written in a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TurnAt {
    /// Offset of the turning-point interface; the address follows it.
    pub body_at: usize,
    /// Offset of the cookie; `None` in the classic form.
    pub cookie_at: Option<usize>,
}

impl TurnAt {
    /// Its place in an option of the family in this form, which starts at `option_at`.
    #[inline]
    pub(crate) fn in_option<A: Family>(option_at: usize, form: Form) -> Self {
        let body_at = option_at + body_at(form);
        let cookie_at = body_at + Body::<A>::LEN;
        TurnAt {
            body_at,
            cookie_at: (form == Form::Own).then_some(cookie_at),
        }
    }
}

/// A turning point to be written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Turn<A> {
    /// The address of the router.
    pub router: A,
    /// The interface's number on the wire.
    pub number: Iface,
    /// The cookie, for forms that have one.
    pub cookie: u64,
}

/// An LMS option found in a packet, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found<A> {
    /// Request or dmcast.
    pub kind: Kind,
    /// Where the whole option lies.
    pub option: OptionAt,
    /// Where the turning point is written.
    pub turn_at: TurnAt,
    /// The fields.
    pub body: Body<A>,
    /// The cookie of the turning point; `None` in the classic form.
    pub cookie: Option<u64>,
}

impl<A: Family> Found<A> {
    /// Reads the option at a place in the packet; `Ok(None)`: it is of another experiment.
    ///
    /// # Errors
    /// [`OptionError::Truncated`] when the place is not in the packet, [`OptionError::Lms`] when the option is
    /// malformed.
    #[inline]
    pub fn read(packet: &[u8], option: OptionAt) -> Result<Option<Self>, OptionError> {
        let OptionAt { at, len } = option;
        let bytes = packet.get(at..at + len).ok_or(OptionError::Truncated)?;
        let view = match View::<A>::new_checked(bytes) {
            Ok(view) => view,
            Err(ParseError::Experiment) => return Ok(None),
            Err(error) => return Err(OptionError::Lms(error)),
        };
        let has_cookie = view.form() == Form::Own;
        Ok(Some(Found {
            kind: view.kind(),
            option,
            turn_at: TurnAt::in_option::<A>(at, view.form()),
            body: view.body(),
            cookie: has_cookie.then_some(view.cookie()),
        }))
    }
}

//! The LMS option: requests and dmcasts are IPv4 packets that carry it (LMS §6.2.1).
//!
//! ```text
//! classic form                                  single form
//! +---------+---------+-------------------+     +---------+---------+-------------------+
//! | 138/139 |   16    | interface         |     |   158   |   20    | experiment 0x4c4d |
//! +---------+---------+-------------------+     +---------+---------+-------------------+
//! | turning-point address                 |     | sub 1/2 |   16    | interface         |
//! +---------------------------------------+     +---------+---------+-------------------+
//! | original source                       |     | turning-point address, original       |
//! +---------------------------------------+     | source, group: as in the classic form |
//! | group                                 |     |                                       |
//! +---------------------------------------+     +---------------------------------------+
//! ```
//!
//! The last 14 bytes of both forms are the same; [`View`] and [`LmsOption`] hide the difference.

use core::net::{IpAddr, Ipv4Addr};

use crate::Iface;

/// Option type of a request in the classic form, `IPOPT_MREQ`.
pub const IPOPT_MREQ: u8 = 138;
/// Option type of a directed multicast in the classic form, `IPOPT_DMCAST`.
pub const IPOPT_DMCAST: u8 = 139;
/// Option type of the single form, `IPOPT_LMS` (experimental, RFC 4727).
pub const IPOPT_LMS: u8 = 158;
/// Experiment identifier of the single form, `LM`.
pub const EXPERIMENT: u16 = 0x4c4d;
/// Length of the classic form in bytes.
pub const CLASSIC_LEN: usize = 16;
/// Length of the single form in bytes.
pub const SINGLE_LEN: usize = 20;

const BODY_LEN: usize = 14;
const SUB_REQUEST: u8 = 1;
const SUB_DMCAST: u8 = 2;

/// What a packet with the option is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A receiver asks for a retransmission.
    Request,
    /// A replier's repair on its way to the turning point.
    Dmcast,
}

/// How the option is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// Options 138 and 139.
    Classic,
    /// The single option 158 with sub-options.
    Single,
}

/// Where a request turned from going up to going down: a router, and the interface below which
/// the loss happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TurningPoint {
    /// An address of the router.
    pub router: IpAddr,
    /// That router's number for the interface. No other node can read anything in it: it is keyed,
    /// differs between groups, and changes with time.
    pub iface: Iface,
}

proto_core::errors! {
    /// Why bytes are not an LMS option.
    pub enum ParseError {
        /// The bytes end before the option does: wait for nothing, drop the packet.
        Truncated = "LMS option is truncated",
        /// The option type is not one of ours: look at the next option.
        NotLms = "not an LMS option",
        /// The length byte does not fit the option type.
        Length = "LMS option has a wrong length",
        /// Option 158 of another experiment: look at the next option.
        Experiment = "option 158 of another experiment",
        /// A sub-option type that is neither request nor dmcast.
        SubOption = "unknown LMS sub-option",
        /// The sub-option's length byte is not 16.
        SubOptionLength = "LMS sub-option has a wrong length",
        /// Only one of turning-point interface and address is set.
        TurningPoint = "turning point is only half set",
    }
}

proto_core::errors! {
    /// Why an option cannot be written.
    pub enum EmitError {
        /// The buffer is shorter than [`LmsOption::buffer_len`].
        Space = "buffer too short for the LMS option",
        /// An address is not IPv4: the IPv4 option carries no other.
        Family = "the IPv4 option carries IPv4 addresses only",
        /// The turning point is `0.0.0.0` or interface 0xffff, which mean "unset" on the wire.
        TurningPoint = "a turning point may not have the unset address or interface",
    }
}

/// The part that both forms share, their last 14 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Body([u8; BODY_LEN]);

impl Body {
    #[inline]
    fn iface(&self) -> Iface {
        Iface(u16::from_be_bytes([self.0[0], self.0[1]]))
    }

    #[inline]
    fn word<const AT: usize>(&self) -> Ipv4Addr {
        Ipv4Addr::new(self.0[AT], self.0[AT + 1], self.0[AT + 2], self.0[AT + 3])
    }
}

/// A view over the bytes of one option; bytes after its end are not looked at.
#[derive(Clone, Copy, Debug)]
pub struct View<T> {
    bytes: T,
    form: Form,
    kind: Kind,
}

impl<T: AsRef<[u8]>> View<T> {
    /// Checks type, lengths and turning point, and wraps the bytes.
    ///
    /// # Errors
    /// [`ParseError::NotLms`] or [`ParseError::Experiment`] for another option, [`ParseError::Truncated`] when
    /// the bytes end before the option does, and another [`ParseError`] when its lengths, its sub-option or its
    /// turning point are wrong.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, ParseError> {
        let b = bytes.as_ref();
        let (form, kind) = match *b.first().ok_or(ParseError::Truncated)? {
            IPOPT_MREQ => (Form::Classic, classic(b, Kind::Request)?),
            IPOPT_DMCAST => (Form::Classic, classic(b, Kind::Dmcast)?),
            IPOPT_LMS => (Form::Single, single(b)?),
            _ => return Err(ParseError::NotLms),
        };
        let view = View { bytes, form, kind };
        let body = view.body();
        if body.word::<2>().is_unspecified() == body.iface().is_set() {
            return Err(ParseError::TurningPoint);
        }
        Ok(view)
    }

    /// The constructor has checked that the bytes are there.
    #[inline]
    fn body(&self) -> Body {
        let rest = self.bytes.as_ref().get(body_at(self.form)..);
        let body = rest.and_then(<[u8]>::first_chunk::<BODY_LEN>);
        Body(body.copied().unwrap_or_default())
    }

    /// How the option is written.
    #[inline]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Request or dmcast.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Length of the option in bytes.
    #[inline]
    pub fn option_len(&self) -> usize {
        LmsOption::buffer_len(self.form)
    }

    /// The turning-point interface, [`Iface::UNSET`] while no router has turned the packet.
    #[inline]
    pub fn turning_point_iface(&self) -> Iface {
        self.body().iface()
    }

    /// The turning-point address, `0.0.0.0` while no router has turned the packet.
    #[inline]
    pub fn turning_point_address(&self) -> Ipv4Addr {
        self.body().word::<2>()
    }

    /// The turning point, if set.
    pub fn turning_point(&self) -> Option<TurningPoint> {
        let iface = self.turning_point_iface();
        iface.is_set().then(|| TurningPoint {
            router: self.turning_point_address().into(),
            iface,
        })
    }

    /// The original source.
    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        self.body().word::<6>()
    }

    /// The multicast group.
    #[inline]
    pub fn group(&self) -> Ipv4Addr {
        self.body().word::<10>()
    }
}

/// Offset in the option of the turning-point interface, whence both forms are the same.
pub(crate) const fn body_at(form: Form) -> usize {
    match form {
        Form::Classic => 2,
        Form::Single => 6,
    }
}

/// Checks an option of type 138 or 139.
#[inline]
fn classic(b: &[u8], kind: Kind) -> Result<Kind, ParseError> {
    if usize::from(*b.get(1).ok_or(ParseError::Truncated)?) != CLASSIC_LEN {
        return Err(ParseError::Length);
    }
    if b.len() < CLASSIC_LEN {
        Err(ParseError::Truncated)
    } else {
        Ok(kind)
    }
}

/// Checks an option of type 158. Says [`ParseError::Experiment`] before anything about the whole
/// length, for another experiment has its own.
#[inline]
fn single(b: &[u8]) -> Result<Kind, ParseError> {
    let len = usize::from(*b.get(1).ok_or(ParseError::Truncated)?);
    if len < 4 {
        return Err(ParseError::Length);
    }
    let experiment = b.get(2..4).ok_or(ParseError::Truncated)?;
    if experiment != EXPERIMENT.to_be_bytes() {
        return Err(ParseError::Experiment);
    }
    if len != SINGLE_LEN {
        return Err(ParseError::Length);
    }
    let option = b.first_chunk::<SINGLE_LEN>().ok_or(ParseError::Truncated)?;
    let kind = match option[4] {
        SUB_REQUEST => Kind::Request,
        SUB_DMCAST => Kind::Dmcast,
        _ => return Err(ParseError::SubOption),
    };
    if usize::from(option[5]) != SINGLE_LEN - 4 {
        return Err(ParseError::SubOptionLength);
    }
    Ok(kind)
}

/// The option as a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LmsOption {
    /// Request or dmcast.
    pub kind: Kind,
    /// Where the request turned; `None` in a request that has not turned yet.
    pub turning_point: Option<TurningPoint>,
    /// The sender of the requested or repaired data.
    pub source: IpAddr,
    /// The multicast group of that data.
    pub group: IpAddr,
}

impl LmsOption {
    /// Reads the option that starts at the first byte; later bytes are not looked at.
    ///
    /// # Errors
    /// As [`View::new_checked`].
    pub fn parse(bytes: &[u8]) -> Result<(Form, LmsOption), ParseError> {
        let view = View::new_checked(bytes)?;
        let option = LmsOption {
            kind: view.kind(),
            turning_point: view.turning_point(),
            source: view.source().into(),
            group: view.group().into(),
        };
        Ok((view.form(), option))
    }

    /// Length of the option in bytes: 16 or 20, a multiple of 4 so that it needs no padding.
    pub const fn buffer_len(form: Form) -> usize {
        match form {
            Form::Classic => CLASSIC_LEN,
            Form::Single => SINGLE_LEN,
        }
    }

    /// Writes the option at the start of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`EmitError::TurningPoint`] when the turning point has an unset address or interface,
    /// [`EmitError::Family`] when an address is not IPv4, and [`EmitError::Space`] when `buffer` is shorter
    /// than [`LmsOption::buffer_len`].
    pub fn emit(&self, form: Form, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let v4 = |address: IpAddr| match address {
            IpAddr::V4(a) => Ok(a.octets()),
            IpAddr::V6(_) => Err(EmitError::Family),
        };
        let (iface, router) = match self.turning_point {
            None => (Iface::UNSET, [0; 4]),
            Some(tp) if !tp.iface.is_set() || tp.router.is_unspecified() => {
                return Err(EmitError::TurningPoint);
            }
            Some(tp) => (tp.iface, v4(tp.router)?),
        };
        let (source, group) = (v4(self.source)?, v4(self.group)?);
        let len = Self::buffer_len(form);
        let out = buffer.get_mut(..len).ok_or(EmitError::Space)?;
        let at = body_at(form);
        match (form, self.kind) {
            (Form::Classic, Kind::Request) => out[0] = IPOPT_MREQ,
            (Form::Classic, Kind::Dmcast) => out[0] = IPOPT_DMCAST,
            (Form::Single, kind) => {
                out[0] = IPOPT_LMS;
                out[2..4].copy_from_slice(&EXPERIMENT.to_be_bytes());
                out[4] = if kind == Kind::Request {
                    SUB_REQUEST
                } else {
                    SUB_DMCAST
                };
                out[5] = (SINGLE_LEN - 4) as u8;
            }
        }
        out[1] = len as u8;
        out[at..at + 2].copy_from_slice(&iface.0.to_be_bytes());
        out[at + 2..at + 6].copy_from_slice(&router);
        out[at + 6..at + 10].copy_from_slice(&source);
        out[at + 10..at + 14].copy_from_slice(&group);
        Ok(len)
    }
}

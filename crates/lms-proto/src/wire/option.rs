//! The LMS option: what requests and directed multicasts carry (LMS §6.2.1).
//!
//! ```text
//! classic form (IPv4)                           own form (IPv4)
//! +---------+---------+-------------------+     +---------+---------+-------------------+
//! | 138/139 |   16    | interface         |     |   158   |   28    | experiment 0x4c4d |
//! +---------+---------+-------------------+     +---------+---------+-------------------+
//! | turning-point address                 |     | sub 1/2 |   24    | interface         |
//! +---------------------------------------+     +---------+---------+-------------------+
//! | original source                       |     | turning-point address, original       |
//! +---------------------------------------+     | source, group: as in the classic form |
//! | group                                 |     +---------------------------------------+
//! +---------------------------------------+     | cookie of the turning point, 8 bytes  |
//!                                               +---------------------------------------+
//! ```
//!
//! In IPv6 the own form is an option of the hop-by-hop header: type 0x3e, length 62, then the same fields, with addresses
//! of 16 bytes and 58 in the length of the sub-option. The type's upper bits say "skip if unknown" and "may change on
//! the way" (RFC 8200 §4.2); like 158 it is one for experiments (RFC 4727).
//!
//! From the interface on, the fields are the same in all forms, and the UDP carrier has them too: [`Body`].

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Family, Iface, Key};

/// Option type of a request in the classic form, `IPOPT_MREQ`.
pub const IPOPT_MREQ: u8 = 138;
/// Option type of a directed multicast in the classic form, `IPOPT_DMCAST`.
pub const IPOPT_DMCAST: u8 = 139;
/// Option type of the own form in IPv4, `IPOPT_LMS` (experimental, RFC 4727).
pub const IPOPT_LMS: u8 = 158;
/// Option type of the own form in IPv6's hop-by-hop header (experimental, RFC 4727).
pub const HOP_BY_HOP_LMS: u8 = 0x3e;
/// Experiment identifier of the own form, `LM`.
pub const EXPERIMENT: u16 = 0x4c4d;
/// Length of the classic form in bytes.
pub const CLASSIC_LEN: usize = 16;
/// Length of the longest form in bytes: the own form in IPv6.
pub const MAX_LEN: usize = OWN_BODY_AT + Body::<Ipv6Addr>::LEN + COOKIE_LEN;

/// Length of a cookie in bytes.
pub(crate) const COOKIE_LEN: usize = 8;
/// Type, length, experiment, kind and length of the sub-option.
const OWN_BODY_AT: usize = 6;

/// Request or dmcast as a number, in the own form and in the UDP carrier.
pub(crate) const SUB_REQUEST: u8 = 1;
pub(crate) const SUB_DMCAST: u8 = 2;

/// What a packet with the option is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A receiver asks for a retransmission.
    Request,
    /// A replier's repair on its way to the turning point.
    Dmcast,
}

impl Kind {
    pub(crate) const fn number(self) -> u8 {
        match self {
            Kind::Request => SUB_REQUEST,
            Kind::Dmcast => SUB_DMCAST,
        }
    }

    pub(crate) const fn from_number(number: u8) -> Option<Kind> {
        match number {
            SUB_REQUEST => Some(Kind::Request),
            SUB_DMCAST => Some(Kind::Dmcast),
            _ => None,
        }
    }
}

/// How the option is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// Options 138 and 139 of the paper, in IPv4 alone: the turning point has no cookie.
    Classic,
    /// One option for both kinds, with a cookie.
    Own,
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
    /// The proof that this router turned a request there: its answer must repeat it. 0 in the classic form.
    pub cookie: u64,
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
        /// The option is one of another experiment: look at the next option.
        Experiment = "option of another experiment",
        /// A sub-option type that is neither request nor dmcast.
        SubOption = "unknown LMS sub-option",
        /// The sub-option's length byte does not fit its type.
        SubOptionLength = "LMS sub-option has a wrong length",
        /// Only one of turning-point interface and address is set, or a cookie without them.
        TurningPoint = "turning point is only half set",
    }
}

proto_core::errors! {
    /// Why an option cannot be written.
    pub enum EmitError {
        /// The buffer is shorter than [`LmsOption::buffer_len`].
        Space = "buffer too short for the LMS option",
        /// The addresses are not of one family, or not of the form's: the classic form carries IPv4 addresses.
        Family = "the addresses are not of the family that this option carries",
        /// The turning point has the unspecified address or interface 0xffff, which mean "unset" on the wire.
        TurningPoint = "a turning point may not have the unset address or interface",
    }
}

/// The fields that all forms and carriers share, with addresses of one family.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Body<A> {
    /// The turning-point interface, [`Iface::UNSET`] while no router has turned the packet.
    pub turning_iface: Iface,
    /// The turning-point address, unspecified while no router has turned the packet.
    pub turning_router: A,
    /// The original source.
    pub source: A,
    /// The multicast group.
    pub group: A,
}

impl<A: Family> Body<A> {
    /// Length in bytes.
    pub const LEN: usize = 2 + 3 * A::LEN;

    /// Reads the fields at the start of `bytes`; `None` where they are too few.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..Self::LEN)?;
        Some(Body {
            turning_iface: Iface(u16::from_be_bytes([bytes[0], bytes[1]])),
            turning_router: A::read(&bytes[2..])?,
            source: A::read(&bytes[2 + A::LEN..])?,
            group: A::read(&bytes[2 + 2 * A::LEN..])?,
        })
    }

    /// The source and the group.
    #[inline]
    pub fn key(&self) -> Key<A> {
        Key::new(self.source, self.group)
    }

    /// Whether interface and address of the turning point are set both, or neither.
    #[inline]
    pub fn is_consistent(&self) -> bool {
        self.turning_router.is_unspecified() != self.turning_iface.is_set()
    }

    /// Writes the fields at the start of `out`; `None` where they do not fit.
    pub fn write(&self, out: &mut [u8]) -> Option<()> {
        let (iface, rest) = out.get_mut(..Self::LEN)?.split_first_chunk_mut::<2>()?;
        *iface = self.turning_iface.0.to_be_bytes();
        let addresses = [self.turning_router, self.source, self.group];
        for (out, address) in rest.chunks_exact_mut(A::LEN).zip(addresses) {
            out.copy_from_slice(address.octets().as_ref());
        }
        Some(())
    }

    /// The turning point with this cookie, if it is set.
    pub fn turning_point(&self, cookie: u64) -> Option<TurningPoint> {
        self.turning_iface.is_set().then(|| TurningPoint {
            router: self.turning_router.into(),
            iface: self.turning_iface,
            cookie,
        })
    }

    /// The fields of an option with these values.
    ///
    /// # Errors
    /// [`EmitError::TurningPoint`] when the turning point has an unset address or interface,
    /// [`EmitError::Family`] when an address is of the other family.
    pub fn of(option: &LmsOption) -> Result<Self, EmitError> {
        let address = |address| A::from_ip(address).ok_or(EmitError::Family);
        let (turning_iface, turning_router) = match option.turning_point {
            None => (Iface::UNSET, A::UNSPECIFIED),
            Some(at) if !at.iface.is_set() || at.router.is_unspecified() => {
                return Err(EmitError::TurningPoint);
            }
            Some(at) => (at.iface, address(at.router)?),
        };
        Ok(Body {
            turning_iface,
            turning_router,
            source: address(option.source)?,
            group: address(option.group)?,
        })
    }
}

/// A view over the bytes of one option of the family; bytes after its end are not looked at.
#[derive(Clone, Copy, Debug)]
pub struct View<A> {
    body: Body<A>,
    cookie: u64,
    form: Form,
    kind: Kind,
}

impl<A: Family> View<A> {
    /// Checks type, lengths and turning point, and reads the fields.
    ///
    /// # Errors
    /// [`ParseError::NotLms`] or [`ParseError::Experiment`] for another option, [`ParseError::Truncated`] when
    /// the bytes end before the option does, and another [`ParseError`] when its lengths, its sub-option or its
    /// turning point are wrong.
    #[inline]
    pub fn new_checked(b: &[u8]) -> Result<Self, ParseError> {
        let (form, kind) = match *b.first().ok_or(ParseError::Truncated)? {
            IPOPT_MREQ if A::HAS_CLASSIC_FORM => (Form::Classic, classic(b, Kind::Request)?),
            IPOPT_DMCAST if A::HAS_CLASSIC_FORM => (Form::Classic, classic(b, Kind::Dmcast)?),
            option_type if option_type == A::OPTION_TYPE => (Form::Own, own::<A>(b)?),
            _ => return Err(ParseError::NotLms),
        };
        let at = body_at(form);
        let body = Body::<A>::read(b.get(at..).unwrap_or(&[])).ok_or(ParseError::Truncated)?;
        let cookie = match form {
            Form::Classic => 0,
            Form::Own => {
                let bytes = b.get(at + Body::<A>::LEN..);
                let bytes = bytes.and_then(<[u8]>::first_chunk::<COOKIE_LEN>);
                u64::from_be_bytes(*bytes.ok_or(ParseError::Truncated)?)
            }
        };
        if !body.is_consistent() || (cookie != 0 && !body.turning_iface.is_set()) {
            return Err(ParseError::TurningPoint);
        }
        Ok(View {
            body,
            cookie,
            form,
            kind,
        })
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
        option_len::<A>(self.form)
    }

    /// The addresses, and the turning point's interface.
    #[inline]
    pub fn body(&self) -> Body<A> {
        self.body
    }

    /// The cookie of the turning point: 0 in the classic form, and while no router has turned the packet.
    #[inline]
    pub fn cookie(&self) -> u64 {
        self.cookie
    }
}

/// Length in bytes of an option of the family in this form.
pub const fn option_len<A: Family>(form: Form) -> usize {
    match form {
        Form::Classic => CLASSIC_LEN,
        Form::Own => OWN_BODY_AT + Body::<A>::LEN + COOKIE_LEN,
    }
}

/// Offset in the option of the turning-point interface.
pub(crate) const fn body_at(form: Form) -> usize {
    match form {
        Form::Classic => 2,
        Form::Own => OWN_BODY_AT,
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

/// Checks an option in the own form. Says [`ParseError::Experiment`] before anything about the whole
/// length, for another experiment has its own.
#[inline]
fn own<A: Family>(b: &[u8]) -> Result<Kind, ParseError> {
    let len = usize::from(*b.get(1).ok_or(ParseError::Truncated)?) + A::UNCOUNTED;
    if len < 4 {
        return Err(ParseError::Length);
    }
    let experiment = b.get(2..4).ok_or(ParseError::Truncated)?;
    if experiment != EXPERIMENT.to_be_bytes() {
        return Err(ParseError::Experiment);
    }
    if len != option_len::<A>(Form::Own) {
        return Err(ParseError::Length);
    }
    let option = b.get(..len).ok_or(ParseError::Truncated)?;
    let kind = Kind::from_number(option[4]).ok_or(ParseError::SubOption)?;
    if usize::from(option[5]) != len - 4 {
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
    /// Reads the option of the family that starts at the first byte; later bytes are not looked at.
    ///
    /// # Errors
    /// As [`View::new_checked`].
    pub fn parse<A: Family>(bytes: &[u8]) -> Result<(Form, LmsOption), ParseError> {
        let view = View::<A>::new_checked(bytes)?;
        let body = view.body();
        let option = LmsOption {
            kind: view.kind(),
            turning_point: body.turning_point(view.cookie()),
            source: body.source.into(),
            group: body.group.into(),
        };
        Ok((view.form(), option))
    }

    /// Length of the option in bytes: 16 or 28 for IPv4, 64 for IPv6.
    pub const fn buffer_len(&self, form: Form) -> usize {
        match (form, self.group) {
            (Form::Own, IpAddr::V6(_)) => option_len::<Ipv6Addr>(form),
            _ => option_len::<Ipv4Addr>(form),
        }
    }

    /// Writes the option of its family at the start of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`EmitError::TurningPoint`] when the turning point has an unset address or interface,
    /// [`EmitError::Family`] when the addresses are not of one family, or not of the form's, and
    /// [`EmitError::Space`] when `buffer` is shorter than [`LmsOption::buffer_len`].
    pub fn emit(&self, form: Form, buffer: &mut [u8]) -> Result<usize, EmitError> {
        match (form, self.group) {
            (Form::Own, IpAddr::V6(_)) => self.emit_own::<Ipv6Addr>(buffer),
            (Form::Own, IpAddr::V4(_)) => self.emit_own::<Ipv4Addr>(buffer),
            (Form::Classic, _) => {
                let body = Body::<Ipv4Addr>::of(self)?;
                let out = buffer.get_mut(..CLASSIC_LEN).ok_or(EmitError::Space)?;
                out[0] = match self.kind {
                    Kind::Request => IPOPT_MREQ,
                    Kind::Dmcast => IPOPT_DMCAST,
                };
                out[1] = CLASSIC_LEN as u8;
                body.write(&mut out[2..]).ok_or(EmitError::Space)?;
                Ok(CLASSIC_LEN)
            }
        }
    }

    fn emit_own<A: Family>(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let body = Body::<A>::of(self)?;
        let len = option_len::<A>(Form::Own);
        let out = buffer.get_mut(..len).ok_or(EmitError::Space)?;
        out[0] = A::OPTION_TYPE;
        out[1] = (len - A::UNCOUNTED) as u8;
        out[2..4].copy_from_slice(&EXPERIMENT.to_be_bytes());
        out[4] = self.kind.number();
        out[5] = (len - 4) as u8;
        let cookie = self.turning_point.map_or(0, |at| at.cookie);
        let (fields, last) = out[OWN_BODY_AT..].split_at_mut(Body::<A>::LEN);
        body.write(fields).ok_or(EmitError::Space)?;
        last.copy_from_slice(&cookie.to_be_bytes());
        Ok(len)
    }
}

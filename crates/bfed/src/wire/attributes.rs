//! Attributes of a route, and how errors in them are handled (RFC 7606).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |  flags        |  type         |  length                       |
//! +---------------+---------------+-------------------------------+
//! |  value                                                        |
//! +---------------------------------------------------------------+
//! ```
//!
//! Flag 0x80, optional: a receiver that does not know the type ignores it. The other flags are reserved: sent as 0,
//! ignored.
//!
//! | type | | optional | value |
//! | --- | --- | --- | --- |
//! | 1 | COST | no | 32 bits, not infinite |
//! | 2 | PATH | no | gateways, 1 to 32: the sender first, the destination last |
//! | 3 | TAGS | yes | 32 bits each, 1 to 16: tags of policies |
//!
//! | error | action |
//! | --- | --- |
//! | TAGS: wrong length, or the optional flag missing | the attribute is discarded |
//! | repeated attribute | the second is discarded |
//! | unknown optional attribute | the attribute is discarded |
//! | COST or PATH missing, of wrong length or value, or flagged optional | the route is withdrawn |
//! | PATH does not lead from the sender to the destination, or contains a gateway twice | the route is withdrawn |
//! | attribute longer than the route's attributes | the route is withdrawn |
//! | unknown mandatory attribute | the session is reset |
//! | list of attributes longer than the message, or invalid destination | the session is reset |

use alloc::vec::Vec;

use super::reader::{Field, Reader, Writer};
use crate::types::{Cost, GatewayId};

/// Most gateways of a path.
pub const MAX_PATH: usize = 32;
/// Most tags of a route.
pub const MAX_TAGS: usize = 16;

const OPTIONAL: u8 = 0x80;
const COST: u8 = 1;
const PATH: u8 = 2;
const TAGS: u8 = 3;

/// Attributes of a route.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Attributes {
    /// Cost from the sender on.
    pub cost: Cost,
    /// Gateways of its path: the sender first, the destination last.
    pub path: Vec<GatewayId>,
    /// Tags of policies, in the order in which they were set.
    pub tags: Vec<u32>,
}

/// How an error in the attributes is handled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// The attribute is discarded; the route remains.
    Discard(Wrong),
    /// The route is withdrawn.
    Withdraw(Wrong),
    /// The session is reset.
    Reset(Wrong),
}

/// An error in an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wrong {
    /// COST or PATH is missing.
    Missing,
    /// Wrong length, or out of bounds.
    Value,
    /// The optional flag is missing, or set where it must not be.
    Flags,
    /// Repeated.
    Twice,
    /// Unknown.
    Unknown,
    /// Longer than the data that contains it.
    Overrun,
}

/// Attributes parsed so far.
#[derive(Default)]
struct Partial {
    cost: Option<Cost>,
    path: Option<Vec<GatewayId>>,
    tags: Option<Vec<u32>>,
}

impl Attributes {
    /// Parses the attributes of a route to `destination`. Calls `discarded` for each discarded attribute.
    ///
    /// # Errors
    /// [`Fault::Withdraw`] or [`Fault::Reset`], by the table above.
    pub fn parse(
        bytes: &[u8],
        destination: GatewayId,
        mut discarded: impl FnMut(Wrong),
    ) -> Result<Self, Fault> {
        let mut reader = Reader::new(bytes);
        let mut partial = Partial::default();
        let mut withdraw = None;
        while !reader.is_empty() {
            // A reset outranks a withdrawal: the rest is parsed in any case.
            match partial.read(&mut reader) {
                Ok(()) => {}
                Err(Fault::Discard(wrong)) => discarded(wrong),
                Err(Fault::Withdraw(Wrong::Overrun)) => {
                    return Err(Fault::Withdraw(Wrong::Overrun));
                }
                Err(Fault::Withdraw(wrong)) => withdraw = withdraw.or(Some(wrong)),
                Err(reset) => return Err(reset),
            }
        }
        if let Some(wrong) = withdraw {
            return Err(Fault::Withdraw(wrong));
        }
        let missing = Fault::Withdraw(Wrong::Missing);
        let cost = partial.cost.ok_or(missing)?;
        let path = partial.path.ok_or(missing)?;
        if path.last() != Some(&destination) {
            return Err(Fault::Withdraw(Wrong::Value));
        }
        Ok(Attributes {
            cost,
            path,
            tags: partial.tags.unwrap_or_default(),
        })
    }

    /// Returns the length of the attributes in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        let mut writer = Writer::counting();
        self.emit(&mut writer);
        writer.len()
    }

    /// Writes the attributes.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        let head = |writer: &mut Writer<'_>, flags: u8, kind: u8, len: usize| {
            writer.u8(flags);
            writer.u8(kind);
            writer.u16(len as u16);
        };
        head(writer, 0, COST, 4);
        self.cost.emit(writer);
        head(writer, 0, PATH, 8 * self.path.len());
        for gateway in &self.path {
            gateway.emit(writer);
        }
        if !self.tags.is_empty() {
            head(writer, OPTIONAL, TAGS, 4 * self.tags.len());
            for tag in &self.tags {
                tag.emit(writer);
            }
        }
    }
}

impl Partial {
    fn read(&mut self, reader: &mut Reader<'_>) -> Result<(), Fault> {
        let overrun = |_| Fault::Withdraw(Wrong::Overrun);
        let optional = reader.u8().map_err(overrun)? & OPTIONAL != 0;
        let kind = reader.u8().map_err(overrun)?;
        let len = usize::from(reader.u16().map_err(overrun)?);
        let value = reader.bytes(len).map_err(overrun)?;
        match kind {
            COST if self.cost.is_some() => Err(Fault::Discard(Wrong::Twice)),
            PATH if self.path.is_some() => Err(Fault::Discard(Wrong::Twice)),
            TAGS if self.tags.is_some() => Err(Fault::Discard(Wrong::Twice)),
            COST | PATH if optional => Err(Fault::Withdraw(Wrong::Flags)),
            TAGS if !optional => Err(Fault::Discard(Wrong::Flags)),
            COST => {
                self.cost = Some(cost(value).ok_or(Fault::Withdraw(Wrong::Value))?);
                Ok(())
            }
            PATH => {
                self.path = Some(path(value).ok_or(Fault::Withdraw(Wrong::Value))?);
                Ok(())
            }
            TAGS => {
                self.tags = Some(tags(value).ok_or(Fault::Discard(Wrong::Value))?);
                Ok(())
            }
            _ if optional => Err(Fault::Discard(Wrong::Unknown)),
            _ => Err(Fault::Reset(Wrong::Unknown)),
        }
    }
}

fn cost(value: &[u8]) -> Option<Cost> {
    let cost = Cost(u32::from_be_bytes(value.try_into().ok()?));
    cost.is_finite().then_some(cost)
}

fn path(value: &[u8]) -> Option<Vec<GatewayId>> {
    if !value.len().is_multiple_of(8) || !(1..=MAX_PATH).contains(&(value.len() / 8)) {
        return None;
    }
    let mut reader = Reader::new(value);
    let mut path = Vec::with_capacity(value.len() / 8);
    while !reader.is_empty() {
        let gateway = reader.get().ok()?;
        if path.contains(&gateway) {
            return None;
        }
        path.push(gateway);
    }
    Some(path)
}

fn tags(value: &[u8]) -> Option<Vec<u32>> {
    if !value.len().is_multiple_of(4) || !(1..=MAX_TAGS).contains(&(value.len() / 4)) {
        return None;
    }
    let mut reader = Reader::new(value);
    (0..value.len() / 4).map(|_| reader.u32().ok()).collect()
}

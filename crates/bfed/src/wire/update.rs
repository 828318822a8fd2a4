//! UPDATE: routes of one table that are withdrawn and announced (§5.1); END_OF_TABLE: the full table
//! was sent (RFC 4724 §2).
//!
//! ```text
//!  UPDATE
//! +---------------+---------------+-------------------------------+
//! |  table        |  0            |  number of withdrawn          |
//! +---------------+---------------+-------------------------------+
//! |  withdrawn gateways, 8 bytes each                             |
//! +-------------------------------+-------------------------------+
//! |  number of announced          |
//! +-------------------------------+-------------------------------+
//! |  destination: network                                         | each
//! |               number                                          |
//! +-------------------------------+-------------------------------+
//! |  length of attributes         |  attributes ...               |
//! +-------------------------------+-------------------------------+
//!
//!  END_OF_TABLE
//! +---------------+
//! |  table        |
//! +---------------+
//! ```

use alloc::vec::Vec;

use super::attributes::{Attributes, Fault, Wrong};
use super::{HEADER_LEN, MAX_MESSAGE_LEN, ParseError, Type, body, header};
use crate::types::{GatewayId, Table};

/// Most routes that an UPDATE can hold.
pub const MAX_ROUTES: usize = MAX_MESSAGE_LEN / 8;

/// A route that is announced.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Announced {
    /// Where it leads.
    pub destination: GatewayId,
    /// What is known of it.
    pub attributes: Attributes,
}

/// An UPDATE.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// The table that all routes are of.
    pub table: Table,
    /// Routes that are no more.
    pub withdrawn: Vec<GatewayId>,
    /// Routes that are new or have changed.
    pub announced: Vec<Announced>,
}

/// An UPDATE as read from a peer that may err.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Parsed {
    /// What stands. Routes whose attributes were wrong are among the withdrawn.
    pub update: Repr,
    /// Attributes that were discarded.
    pub discarded: Vec<Wrong>,
    /// Why routes were withdrawn by mistake, one for each.
    pub faulty: Vec<Wrong>,
}

/// Why an UPDATE resets the session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Error {
    /// Routes cannot be told apart.
    Malformed(ParseError),
    /// An attribute that must be known is not.
    Attribute(Wrong),
}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Self {
        Error::Malformed(error)
    }
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Error::Malformed(error) => write!(f, "routes cannot be told apart: {error}"),
            Error::Attribute(_) => f.write_str("an attribute that must be known is not"),
        }
    }
}

impl core::error::Error for Error {}

impl Repr {
    /// Reads a message, and mends what RFC 7606 says can be mended.
    ///
    /// # Errors
    /// The session is to be reset.
    pub fn parse_mending(bytes: &[u8]) -> Result<Parsed, Error> {
        let mut reader = body(bytes, Type::Update)?;
        let table = reader.table()?;
        reader.reserved(1)?;
        let mut withdrawn = reader.list(MAX_ROUTES, |reader| reader.gateway())?;
        let mut announced = Vec::new();
        let (mut discarded, mut faulty) = (Vec::new(), Vec::new());
        for _ in 0..reader.u16()? {
            let destination = reader.gateway()?;
            let len = usize::from(reader.u16()?);
            let attributes = reader.bytes(len)?;
            match Attributes::parse(attributes, destination, |wrong| discarded.push(wrong)) {
                Ok(attributes) => announced.push(Announced {
                    destination,
                    attributes,
                }),
                Err(Fault::Reset(wrong)) => return Err(Error::Attribute(wrong)),
                Err(Fault::Withdraw(wrong) | Fault::Discard(wrong)) => {
                    withdrawn.push(destination);
                    faulty.push(wrong);
                }
            }
        }
        reader.end()?;
        Ok(Parsed {
            update: Repr {
                table,
                withdrawn,
                announced,
            },
            discarded,
            faulty,
        })
    }

    /// Reads a message in which nothing is wrong.
    ///
    /// # Errors
    /// It is not an UPDATE, or something in it is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        match Repr::parse_mending(bytes) {
            Ok(parsed) if parsed.discarded.is_empty() && parsed.faulty.is_empty() => {
                Ok(parsed.update)
            }
            Err(Error::Malformed(error)) => Err(error),
            _ => Err(ParseError::Value),
        }
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        let announced: usize = self
            .announced
            .iter()
            .map(|route| 10 + route.attributes.buffer_len())
            .sum();
        HEADER_LEN + 4 + 8 * self.withdrawn.len() + 2 + announced
    }

    /// Writes the message.
    ///
    /// # Panics
    /// `buffer` is shorter than [`Repr::buffer_len`], or that is beyond [`MAX_MESSAGE_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let mut writer = header(buffer, Type::Update, self.buffer_len());
        writer.u8(self.table.number());
        writer.u8(0);
        writer.list(&self.withdrawn, |writer, &gateway| writer.gateway(gateway));
        writer.list(&self.announced, |writer, route| {
            writer.gateway(route.destination);
            writer.u16(route.attributes.buffer_len() as u16);
            route.attributes.emit(writer);
        });
    }
}

/// Reads an END_OF_TABLE.
///
/// # Errors
/// It is not one.
pub fn parse_end(bytes: &[u8]) -> Result<Table, ParseError> {
    let mut reader = body(bytes, Type::EndOfTable)?;
    let table = reader.table()?;
    reader.end()?;
    Ok(table)
}

/// Length of an END_OF_TABLE in bytes.
pub const END_LEN: usize = HEADER_LEN + 1;

/// Writes an END_OF_TABLE.
///
/// # Panics
/// `buffer` is shorter than [`END_LEN`].
pub fn emit_end(table: Table, buffer: &mut [u8]) {
    header(buffer, Type::EndOfTable, END_LEN).u8(table.number());
}

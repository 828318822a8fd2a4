//! UPDATE: withdrawn and announced routes of one table (§5.1); END_OF_TABLE: the full table has been sent
//! (RFC 4724 §2).
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
use super::reader::{Field, Reader, Writer};
use super::{Body, MAX_MESSAGE_LEN, ParseError, Type};
use crate::types::{GatewayId, Table};

/// Most routes of an UPDATE.
pub const MAX_ROUTES: usize = MAX_MESSAGE_LEN / 8;

/// An announced route.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Announced {
    /// The gateway that the route leads to.
    pub destination: GatewayId,
    /// Its attributes.
    pub attributes: Attributes,
}

impl Announced {
    fn emit(&self, writer: &mut Writer<'_>) {
        self.destination.emit(writer);
        writer.u16(self.attributes.buffer_len() as u16);
        self.attributes.emit(writer);
    }
}

/// An UPDATE.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// The table of all its routes.
    pub table: Table,
    /// Withdrawn routes.
    pub withdrawn: Vec<GatewayId>,
    /// New and changed routes.
    pub announced: Vec<Announced>,
}

/// An UPDATE as parsed from a peer that may make errors.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Parsed {
    /// The routes. Those with wrong attributes are among the withdrawn.
    pub update: Repr,
    /// Reasons for discarded attributes.
    pub discarded: Vec<Wrong>,
    /// Reasons for routes that were withdrawn because of errors, one for each.
    pub faulty: Vec<Wrong>,
}

/// Why an UPDATE resets the session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Error {
    /// The message cannot be split into routes.
    Malformed(ParseError),
    /// An unknown mandatory attribute.
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
            Error::Malformed(error) => write!(f, "cannot split the UPDATE into routes: {error}"),
            Error::Attribute(_) => f.write_str("unknown mandatory attribute"),
        }
    }
}

impl core::error::Error for Error {}

impl Repr {
    /// Parses a whole message and repairs errors as RFC 7606 says.
    ///
    /// # Errors
    /// The session must be reset.
    pub fn parse_lenient(bytes: &[u8]) -> Result<Parsed, Error> {
        let (kind, mut reader) = super::split(bytes)?;
        let parsed = Self::parse_faulty(kind, &mut reader)?;
        reader.end()?;
        Ok(parsed)
    }

    fn parse_faulty(kind: Type, reader: &mut Reader<'_>) -> Result<Parsed, Error> {
        if kind != Type::Update {
            return Err(ParseError::Type.into());
        }
        let table = reader.get()?;
        reader.reserved(1)?;
        let mut withdrawn = reader.list(MAX_ROUTES, GatewayId::parse)?;
        let mut announced = Vec::new();
        let (mut discarded, mut faulty) = (Vec::new(), Vec::new());
        for _ in 0..reader.u16()? {
            let destination = reader.get()?;
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
}

impl Body for Repr {
    fn parse_body(kind: Type, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        match Self::parse_faulty(kind, reader) {
            Ok(parsed) if parsed.discarded.is_empty() && parsed.faulty.is_empty() => {
                Ok(parsed.update)
            }
            Err(Error::Malformed(error)) => Err(error),
            _ => Err(ParseError::Value),
        }
    }

    fn emit_body(&self, writer: &mut Writer<'_>) -> Type {
        self.table.emit(writer);
        writer.u8(0);
        writer.list(&self.withdrawn);
        writer.u16(self.announced.len() as u16);
        for route in &self.announced {
            route.emit(writer);
        }
        Type::Update
    }
}

whole_messages!(Repr);

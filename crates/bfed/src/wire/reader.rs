//! Fields of messages, big-endian.

use alloc::string::String;
use alloc::vec::Vec;

use super::ParseError;
use super::attributes::MAX_PATH;
use super::sroute::MAX_GATEWAYS;
use crate::name::{MAX_FLOWS, MAX_NAME_LEN, SessionName};
use crate::types::{BnNum, ChannelAddress, Cost, FlowLabel, GatewayId, NodeId, PeerId, Table};

/// Longest text for people, in bytes.
pub const MAX_TEXT_LEN: usize = 128;

/// A value with one encoding in control messages.
pub trait Field: Sized {
    /// Parses the value at the front of `reader`.
    ///
    /// # Errors
    /// Bytes are missing, or the value is out of bounds.
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError>;

    /// Writes the value.
    fn emit(&self, writer: &mut Writer<'_>);
}

/// A field that also occurs in lists: their length in 16 bits, then the entries.
pub trait Listed: Field {
    /// Most entries of a list.
    const MAX: usize;
}

/// Reads fields from the front of a byte slice.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Creates a reader of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes }
    }

    /// Returns whether all bytes have been read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the next `len` bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], ParseError> {
        let (taken, rest) = self
            .bytes
            .split_at_checked(len)
            .ok_or(ParseError::Truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (taken, rest) = self
            .bytes
            .split_first_chunk()
            .ok_or(ParseError::Truncated)?;
        self.bytes = rest;
        Ok(*taken)
    }

    /// Reads any field.
    ///
    /// # Errors
    /// Bytes are missing, or the value is out of bounds.
    pub fn get<T: Field>(&mut self) -> Result<T, ParseError> {
        T::parse(self)
    }

    /// Reads 8 bits.
    ///
    /// # Errors
    /// There are fewer.
    pub fn u8(&mut self) -> Result<u8, ParseError> {
        self.get()
    }

    /// Reads 16 bits.
    ///
    /// # Errors
    /// There are fewer.
    pub fn u16(&mut self) -> Result<u16, ParseError> {
        self.get()
    }

    /// Reads 32 bits.
    ///
    /// # Errors
    /// There are fewer.
    pub fn u32(&mut self) -> Result<u32, ParseError> {
        self.get()
    }

    /// Reads `len` bytes that must be 0.
    ///
    /// # Errors
    /// They are not, or there are fewer.
    pub fn reserved(&mut self, len: usize) -> Result<(), ParseError> {
        match self.bytes(len)?.iter().all(|&byte| byte == 0) {
            true => Ok(()),
            false => Err(ParseError::Reserved),
        }
    }

    /// Reads a list of at most `max` entries: its length in 16 bits, then each entry with `entry`.
    ///
    /// # Errors
    /// There are more entries, or an entry is wrong.
    pub fn list<T>(
        &mut self,
        max: usize,
        mut entry: impl FnMut(&mut Self) -> Result<T, ParseError>,
    ) -> Result<Vec<T>, ParseError> {
        let len = usize::from(self.u16()?);
        if len > max {
            return Err(ParseError::Length);
        }
        // Memory is not reserved in advance: a short message may promise a long list.
        (0..len).map(|_| entry(self)).collect()
    }

    /// Checks that all bytes have been read.
    ///
    /// # Errors
    /// Bytes are left.
    pub const fn end(&self) -> Result<(), ParseError> {
        if self.bytes.is_empty() {
            Ok(())
        } else {
            Err(ParseError::Length)
        }
    }
}

/// Writes fields, or counts the bytes that they take.
#[derive(Debug)]
pub struct Writer<'a> {
    /// Where the next field goes; `None` if bytes are only counted.
    rest: Option<&'a mut [u8]>,
    len: usize,
}

impl<'a> Writer<'a> {
    /// Creates a writer to the front of `buffer`.
    #[must_use]
    pub const fn new(buffer: &'a mut [u8]) -> Self {
        Writer {
            rest: Some(buffer),
            len: 0,
        }
    }

    /// Creates a writer that only counts.
    #[must_use]
    pub const fn counting() -> Self {
        Writer { rest: None, len: 0 }
    }

    /// Returns the number of bytes written so far.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether nothing has been written yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// The buffer is full.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        if let Some(buffer) = self.rest.take() {
            let (front, rest) = buffer.split_at_mut(bytes.len());
            front.copy_from_slice(bytes);
            self.rest = Some(rest);
        }
    }

    /// Writes 8 bits.
    pub fn u8(&mut self, value: u8) {
        value.emit(self);
    }

    /// Writes 16 bits.
    pub fn u16(&mut self, value: u16) {
        value.emit(self);
    }

    /// Writes 32 bits.
    pub fn u32(&mut self, value: u32) {
        value.emit(self);
    }

    /// Writes a list: its length in 16 bits, then each entry.
    pub fn list<T: Field>(&mut self, list: &[T]) {
        self.u16(list.len() as u16);
        for entry in list {
            entry.emit(self);
        }
    }
}

macro_rules! integers {
    ($($type:ty),+) => {
        $(impl Field for $type {
            fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
                Ok(<$type>::from_be_bytes(reader.array()?))
            }

            fn emit(&self, writer: &mut Writer<'_>) {
                writer.bytes(&self.to_be_bytes());
            }
        })+
    };
}

integers!(u8, u16, u32, u64, u128);

macro_rules! numbers {
    ($($type:ident),+) => {
        $(impl Field for $type {
            fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
                Ok($type(reader.u32()?))
            }

            fn emit(&self, writer: &mut Writer<'_>) {
                writer.u32(self.0);
            }
        })+
    };
}

numbers!(Cost, NodeId, PeerId);

/// A byte that is 0 or 1.
impl Field for bool {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        match reader.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(ParseError::Value),
        }
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.u8((*self).into());
    }
}

impl Field for GatewayId {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let (network, number) = (BnNum::new(reader.u32()?), reader.u32()?);
        let network = network.ok_or(ParseError::Value)?;
        Ok(GatewayId { network, number })
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.u32(self.network.get());
        writer.u32(self.number);
    }
}

const _: () = assert!(MAX_PATH == MAX_GATEWAYS);

impl Listed for GatewayId {
    const MAX: usize = MAX_GATEWAYS;
}

/// A flow label, or 0 for none.
impl Field for Option<FlowLabel> {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(FlowLabel::new(reader.u32()?))
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.u32(self.map_or(0, FlowLabel::get));
    }
}

impl Field for Table {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        Table::from_number(reader.u8()?).ok_or(ParseError::Value)
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.u8(self.number());
    }
}

impl Listed for ChannelAddress {
    const MAX: usize = MAX_FLOWS;
}

/// The length in 16 bits, then the name, which must be in normal form.
impl Field for SessionName {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let len = usize::from(reader.u16()?);
        if len > MAX_NAME_LEN {
            return Err(ParseError::Length);
        }
        let text = core::str::from_utf8(reader.bytes(len)?).map_err(|_| ParseError::Name)?;
        match SessionName::parse(text) {
            Ok(name) if name.as_str() == text => Ok(name),
            _ => Err(ParseError::Name),
        }
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.u16(self.as_str().len() as u16);
        writer.bytes(self.as_str().as_bytes());
    }
}

/// Text for people: the length in 8 bits, then at most [`MAX_TEXT_LEN`] bytes of UTF-8 without control characters.
impl Field for String {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let len = usize::from(reader.u8()?);
        if len > MAX_TEXT_LEN {
            return Err(ParseError::Length);
        }
        let text = core::str::from_utf8(reader.bytes(len)?).map_err(|_| ParseError::Value)?;
        if text.chars().any(char::is_control) {
            return Err(ParseError::Value);
        }
        Ok(text.into())
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.u8(self.len() as u8);
        writer.bytes(self.as_bytes());
    }
}

impl<T: Listed> Field for Vec<T> {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        reader.list(T::MAX, T::parse)
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.list(self);
    }
}

/// Returns `text` without control characters, cut to [`MAX_TEXT_LEN`] bytes between two characters.
#[must_use]
pub fn clip(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars().filter(|character| !character.is_control()) {
        if out.len() + character.len_utf8() > MAX_TEXT_LEN {
            break;
        }
        out.push(character);
    }
    out
}

//! Fields in and out of bytes, big-endian.

use alloc::string::String;

use super::ParseError;
use crate::name::{MAX_NAME_LEN, SessionName};
use crate::types::{BnNum, Cost, FlowLabel, GatewayId, Table};

/// Longest text of a reason, in bytes.
pub const MAX_TEXT_LEN: usize = 128;

/// Reads fields from the front of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// At the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes }
    }

    /// Bytes not read yet.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.bytes.len()
    }

    /// The next `len` bytes.
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

    /// A byte.
    ///
    /// # Errors
    /// There is none.
    pub fn u8(&mut self) -> Result<u8, ParseError> {
        Ok(self.array::<1>()?[0])
    }

    /// 16 bits.
    ///
    /// # Errors
    /// There are fewer.
    pub fn u16(&mut self) -> Result<u16, ParseError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// 32 bits.
    ///
    /// # Errors
    /// There are fewer.
    pub fn u32(&mut self) -> Result<u32, ParseError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// 64 bits.
    ///
    /// # Errors
    /// There are fewer.
    pub fn u64(&mut self) -> Result<u64, ParseError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// `len` bytes that must be 0.
    ///
    /// # Errors
    /// They are not, or there are fewer.
    pub fn reserved(&mut self, len: usize) -> Result<(), ParseError> {
        let zero = self.bytes(len)?.iter().all(|&byte| byte == 0);
        if zero {
            Ok(())
        } else {
            Err(ParseError::Reserved)
        }
    }

    /// A byte that is 0 or 1.
    ///
    /// # Errors
    /// It is another.
    pub fn bool(&mut self) -> Result<bool, ParseError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(ParseError::Value),
        }
    }

    /// A gateway.
    ///
    /// # Errors
    /// Its network's number is 0.
    pub fn gateway(&mut self) -> Result<GatewayId, ParseError> {
        let network = BnNum::new(self.u32()?);
        let number = self.u32()?;
        let network = network.ok_or(ParseError::Value)?;
        Ok(GatewayId { network, number })
    }

    /// A cost.
    ///
    /// # Errors
    /// There are fewer than 32 bits.
    pub fn cost(&mut self) -> Result<Cost, ParseError> {
        Ok(Cost(self.u32()?))
    }

    /// A flow label.
    ///
    /// # Errors
    /// It is 0.
    pub fn label(&mut self) -> Result<FlowLabel, ParseError> {
        FlowLabel::new(self.u32()?).ok_or(ParseError::Value)
    }

    /// A flow label, or 0 for none.
    ///
    /// # Errors
    /// There are fewer than 32 bits.
    pub fn label_or_none(&mut self) -> Result<Option<FlowLabel>, ParseError> {
        Ok(FlowLabel::new(self.u32()?))
    }

    /// The number of a table.
    ///
    /// # Errors
    /// There is no such table.
    pub fn table(&mut self) -> Result<Table, ParseError> {
        Table::from_number(self.u8()?).ok_or(ParseError::Value)
    }

    /// The name of a session, its length in 16 bits before it.
    ///
    /// # Errors
    /// It is not a name in normal form.
    pub fn name(&mut self) -> Result<SessionName, ParseError> {
        let len = usize::from(self.u16()?);
        if len > MAX_NAME_LEN {
            return Err(ParseError::Length);
        }
        let text = core::str::from_utf8(self.bytes(len)?).map_err(|_| ParseError::Name)?;
        match SessionName::parse(text) {
            Ok(name) if name.as_str() == text => Ok(name),
            _ => Err(ParseError::Name),
        }
    }

    /// Text for people, its length in a byte before it. What is not UTF-8 is replaced.
    ///
    /// # Errors
    /// It is longer than [`MAX_TEXT_LEN`], or not UTF-8, or has control characters.
    pub fn text(&mut self) -> Result<String, ParseError> {
        let len = usize::from(self.u8()?);
        if len > MAX_TEXT_LEN {
            return Err(ParseError::Length);
        }
        let text = core::str::from_utf8(self.bytes(len)?).map_err(|_| ParseError::Value)?;
        if text.chars().any(char::is_control) {
            return Err(ParseError::Value);
        }
        Ok(text.into())
    }

    /// A list: its length in 16 bits, at most `max`, then each entry by `entry`.
    ///
    /// # Errors
    /// There are more than `max`, or an entry is wrong.
    pub fn list<T>(
        &mut self,
        max: usize,
        mut entry: impl FnMut(&mut Self) -> Result<T, ParseError>,
    ) -> Result<alloc::vec::Vec<T>, ParseError> {
        let len = usize::from(self.u16()?);
        if len > max {
            return Err(ParseError::Length);
        }
        // Not reserved in advance: a short message may promise a long list.
        (0..len).map(|_| entry(self)).collect()
    }

    /// That was all.
    ///
    /// # Errors
    /// It was not.
    pub const fn end(&self) -> Result<(), ParseError> {
        if self.bytes.is_empty() {
            Ok(())
        } else {
            Err(ParseError::Length)
        }
    }
}

/// Writes fields. The buffer's length was computed by `buffer_len` and fits exactly.
#[derive(Debug)]
pub struct Writer<'a> {
    rest: &'a mut [u8],
}

impl<'a> Writer<'a> {
    /// Into `buffer`, from its start.
    #[must_use]
    pub const fn new(buffer: &'a mut [u8]) -> Self {
        Writer { rest: buffer }
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// There is no room: `buffer_len` and `emit` disagree.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let (place, rest) = core::mem::take(&mut self.rest).split_at_mut(bytes.len());
        place.copy_from_slice(bytes);
        self.rest = rest;
    }

    /// A byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    /// 16 bits.
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }

    /// 32 bits.
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    /// 64 bits.
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_be_bytes());
    }

    /// A gateway.
    pub fn gateway(&mut self, gateway: GatewayId) {
        self.u32(gateway.network.get());
        self.u32(gateway.number);
    }

    /// A flow label, or 0 for none.
    pub fn label(&mut self, label: Option<FlowLabel>) {
        self.u32(label.map_or(0, FlowLabel::get));
    }

    /// The name of a session, its length before it.
    pub fn name(&mut self, name: &SessionName) {
        self.u16(name.as_str().len() as u16);
        self.bytes(name.as_str().as_bytes());
    }

    /// Text for people, its length before it.
    pub fn text(&mut self, text: &str) {
        self.u8(text.len() as u8);
        self.bytes(text.as_bytes());
    }

    /// A list: its length, then each entry by `entry`.
    pub fn list<T>(&mut self, list: &[T], mut entry: impl FnMut(&mut Self, &T)) {
        self.u16(list.len() as u16);
        for item in list {
            entry(self, item);
        }
    }

    /// Bytes that are still to be written.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.rest.len()
    }
}

/// Bytes of a name with its length.
#[must_use]
pub fn name_len(name: &SessionName) -> usize {
    2 + name.as_str().len()
}

/// `text` cut to [`MAX_TEXT_LEN`] bytes, on a character's edge, without control characters.
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

//! What wire formats share: fields in order, enums with numbers on the wire, and errors that are a list of texts.
//!
//! ```
//! use proto_core::wire::{Reader, Truncated, Writer};
//!
//! proto_core::numbered! {
//!     /// A type of packet.
//!     pub enum Type: u8 {
//!         /// Asks.
//!         Query = 1,
//!         /// Answers.
//!         Answer = 2,
//!     }
//! }
//!
//! let mut packet = [0; 5];
//! Writer::new(&mut packet).u8(Type::Answer as u8).u32(7);
//! let mut fields = Reader::new(&packet);
//! assert_eq!(Type::from_number(fields.u8()?), Some(Type::Answer));
//! assert_eq!(fields.u32()?, 7);
//! assert_eq!(fields.u8(), Err(Truncated));
//! # Ok::<(), Truncated>(())
//! ```

/// The bytes end before the field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncated;

/// Reads big-endian fields from the front of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'p>(&'p [u8]);

impl<'p> Reader<'p> {
    /// Begins at the first byte.
    #[must_use]
    pub const fn new(bytes: &'p [u8]) -> Self {
        Reader(bytes)
    }

    /// Returns the bytes that were not read.
    #[must_use]
    pub const fn rest(&self) -> &'p [u8] {
        self.0
    }

    /// Reads `N` bytes.
    ///
    /// # Errors
    /// There are fewer.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let (field, rest) = self.0.split_first_chunk().ok_or(Truncated)?;
        self.0 = rest;
        Ok(*field)
    }

    /// Reads a byte.
    ///
    /// # Errors
    /// There is none.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Truncated> {
        self.array().map(u8::from_be_bytes)
    }

    /// Reads two bytes.
    ///
    /// # Errors
    /// There are fewer.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Truncated> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads four bytes.
    ///
    /// # Errors
    /// There are fewer.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads eight bytes.
    ///
    /// # Errors
    /// There are fewer.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Truncated> {
        self.array().map(u64::from_be_bytes)
    }
}

/// Writes big-endian fields into the front of a buffer.
///
/// # Panics
/// Each call panics when the buffer ends before the field.
#[derive(Debug)]
pub struct Writer<'b>(&'b mut [u8]);

impl<'b> Writer<'b> {
    /// Begins at the first byte.
    #[must_use]
    pub const fn new(buffer: &'b mut [u8]) -> Self {
        Writer(buffer)
    }

    /// Writes these bytes.
    #[inline]
    pub fn bytes(self, field: &[u8]) -> Self {
        let (place, rest) = self.0.split_at_mut(field.len());
        place.copy_from_slice(field);
        Writer(rest)
    }

    /// Writes a byte.
    #[inline]
    pub fn u8(self, field: u8) -> Self {
        self.bytes(&[field])
    }

    /// Writes two bytes.
    #[inline]
    pub fn u16(self, field: u16) -> Self {
        self.bytes(&field.to_be_bytes())
    }

    /// Writes four bytes.
    #[inline]
    pub fn u32(self, field: u32) -> Self {
        self.bytes(&field.to_be_bytes())
    }

    /// Writes eight bytes.
    #[inline]
    pub fn u64(self, field: u64) -> Self {
        self.bytes(&field.to_be_bytes())
    }

    /// Fills the rest of the buffer with zeros.
    pub fn zeros(self) {
        self.0.fill(0);
    }
}

/// Declares an enum whose variants have numbers on the wire, and `from_number`: see the [module](mod@crate::wire).
#[macro_export]
macro_rules! numbered {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $name:ident: $number:ty {
            $($(#[$about:meta])* $variant:ident = $value:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr($number)]
        $visibility enum $name {
            $($(#[$about])* $variant = $value,)+
        }

        impl $name {
            /// Returns the variant with this number.
            #[inline]
            #[must_use]
            pub const fn from_number(number: $number) -> Option<Self> {
                match number {
                    $($value => Some($name::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

/// Declares an error that is an enum without fields, each variant with its text.
///
/// ```
/// proto_core::errors! {
///     /// Why a packet does not parse.
///     pub enum ParseError {
///         /// It is shorter than its header.
///         Truncated = "the packet is cut short",
///     }
/// }
/// assert_eq!(ParseError::Truncated.to_string(), "the packet is cut short");
/// ```
#[macro_export]
macro_rules! errors {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$about:meta])* $variant:ident = $text:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        $visibility enum $name {
            $($(#[$about])* $variant,)+
        }

        impl $name {
            /// All variants, in order.
            pub const ALL: &'static [Self] = &[$($name::$variant),+];
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(match self {
                    $($name::$variant => $text,)+
                })
            }
        }

        impl ::core::error::Error for $name {}
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; 18] = [
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18,
    ];

    #[test]
    fn fields_are_read_in_order_and_not_past_the_end() {
        let mut fields = Reader::new(&BYTES);
        assert_eq!(fields.u8(), Ok(0x01));
        assert_eq!(fields.u16(), Ok(0x0203));
        assert_eq!(fields.u32(), Ok(0x0405_0607));
        assert_eq!(fields.u64(), Ok(0x0809_0a0b_0c0d_0e0f));
        assert_eq!(fields.u32(), Err(Truncated));
        assert_eq!(fields.rest(), [16, 17, 18], "an error reads nothing");
        assert_eq!(fields.array(), Ok([16, 17, 18]));
        assert_eq!(fields.u8(), Err(Truncated));
    }

    #[test]
    fn what_is_written_can_be_read() {
        let mut buffer = [0xff; 20];
        let fields = Writer::new(&mut buffer).u8(0x01).u16(0x0203);
        let fields = fields.u32(0x0405_0607).u64(0x0809_0a0b_0c0d_0e0f);
        fields.bytes(&[16, 17, 18]).zeros();
        assert_eq!(buffer[..18], BYTES);
        assert_eq!(buffer[18..], [0, 0]);
    }

    #[test]
    #[should_panic(expected = "mid > len")]
    fn a_field_past_the_end_panics() {
        let _ = Writer::new(&mut [0; 3]).u32(1);
    }
}

//! REPORT: the payload of a receiver's report on a UDP channel (RFC 5348 §3.2.2).
//!
//! ```text
//! +---------------------------------------------------------------+
//! |  time of the newest packet, as its header said                |
//! +---------------------------------------------------------------+
//! |  how long ago that came, microseconds                         |
//! +---------------------------------------------------------------+
//! |  rate received since the last report, bytes a second          |
//! +---------------------------------------------------------------+
//! |  loss event rate p, in units of 2^-32                         |
//! +---------------------------------------------------------------+
//! ```

use super::ParseError;
use super::reader::{Field, Reader, Writer};

/// Length of the payload of a REPORT in bytes.
pub const LEN: usize = 16;

fields! {
    /// A REPORT.
    #[derive(Copy)]
    Repr {
        /// Timestamp of the newest packet, as in its header.
        echo_us: u32,
        /// Time since that packet arrived, in microseconds.
        delay_us: u32,
        /// Rate received since the last report, in bytes a second.
        received_rate: u32,
        /// Loss event rate, in units of 2^-32.
        loss: u32,
    }
}

impl Repr {
    /// Parses the payload of a REPORT.
    ///
    /// # Errors
    /// Its length is wrong.
    pub fn parse(payload: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(payload);
        let report = Field::parse(&mut reader)?;
        reader.end()?;
        Ok(report)
    }

    /// Writes the payload.
    ///
    /// # Panics
    /// `buffer` is shorter than [`LEN`].
    pub fn emit(&self, buffer: &mut [u8]) {
        Field::emit(self, &mut Writer::new(buffer));
    }
}

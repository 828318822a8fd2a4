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
use super::reader::{Reader, Writer};

/// Length of the payload of a REPORT.
pub const LEN: usize = 16;

/// A REPORT.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// The newest packet's time, as its header said.
    pub echo_us: u32,
    /// How long ago it came, in microseconds.
    pub delay_us: u32,
    /// Rate received since the last report, in bytes a second.
    pub received_rate: u32,
    /// Loss event rate, in units of 2^-32.
    pub loss: u32,
}

impl Repr {
    /// Reads the payload of a REPORT.
    ///
    /// # Errors
    /// Its length is wrong.
    pub fn parse(payload: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(payload);
        let report = Repr {
            echo_us: reader.u32()?,
            delay_us: reader.u32()?,
            received_rate: reader.u32()?,
            loss: reader.u32()?,
        };
        reader.end()?;
        Ok(report)
    }

    /// Length of the payload in bytes.
    #[must_use]
    pub const fn buffer_len(&self) -> usize {
        LEN
    }

    /// Writes the payload.
    ///
    /// # Panics
    /// `buffer` is shorter than [`LEN`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let mut writer = Writer::new(&mut buffer[..LEN]);
        writer.u32(self.echo_us);
        writer.u32(self.delay_us);
        writer.u32(self.received_rate);
        writer.u32(self.loss);
    }
}

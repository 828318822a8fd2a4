//! Floating-point codes of times.

use crate::family::CodeField;
use crate::{Duration, ResponseCode};

/// A time or interval in the floating-point code of RFC 3376 §4.1.1 and §4.1.7: below 128 the
/// number itself, then 3 bits of exponent and 4 of mantissa. Up to 31,744 units.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Code(pub u8);

impl Code {
    /// The largest code whose value is at most `value`, saturating at 31,744.
    pub const fn from_value(value: u32) -> Code {
        if value < 128 {
            return Code(value as u8);
        }
        let mut exponent = 0u32;
        while exponent < 7 && (value >> (exponent + 3)) > 0x1f {
            exponent += 1;
        }
        let mantissa = value >> (exponent + 3);
        let mantissa = if mantissa > 0x1f {
            0x0f
        } else {
            mantissa & 0x0f
        };
        Code(0x80 | (exponent as u8) << 4 | mantissa as u8)
    }

    /// Returns the number that the code represents.
    pub const fn value(self) -> u32 {
        if self.0 < 128 {
            return self.0 as u32;
        }
        let (mantissa, exponent) = ((self.0 & 0x0f) as u32, (self.0 >> 4 & 7) as u32);
        (mantissa | 0x10) << (exponent + 3)
    }

    /// As a span, of a code in seconds.
    pub const fn seconds(self) -> Duration {
        Duration::from_secs(self.value() as u64)
    }
}

/// The maximum response code of IGMP, in tenths of a second.
impl ResponseCode for Code {
    fn from_time(time: Duration) -> Self {
        Code::from_value(u32::try_from(time.total_millis() / 100).unwrap_or(u32::MAX))
    }

    fn time(self) -> Duration {
        Duration::from_millis(u64::from(self.value()) * 100)
    }

    fn time_v2(self) -> Duration {
        Duration::from_millis(u64::from(self.0) * 100)
    }

    fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl CodeField for Code {
    fn read(head: &[u8; 8]) -> Self {
        Code(head[1])
    }

    fn write(self, head: &mut [u8; 8]) {
        head[1] = self.0;
    }
}

/// The maximum response code of MLD in the floating-point code of RFC 9777 §5.1.3: below 32,768 the number of
/// milliseconds itself, then 3 bits of exponent and 12 of mantissa. Up to 8,387,584 ms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MldCode(pub u16);

impl MldCode {
    /// The largest code whose value is at most `value`, saturating at 8,387,584.
    pub const fn from_value(value: u32) -> MldCode {
        if value < 0x8000 {
            return MldCode(value as u16);
        }
        let mut exponent = 0u32;
        while exponent < 7 && (value >> (exponent + 3)) > 0x1fff {
            exponent += 1;
        }
        let mantissa = value >> (exponent + 3);
        let mantissa = if mantissa > 0x1fff {
            0x0fff
        } else {
            mantissa & 0x0fff
        };
        MldCode(0x8000 | (exponent as u16) << 12 | mantissa as u16)
    }

    /// Returns the number that the code represents.
    pub const fn value(self) -> u32 {
        if self.0 < 0x8000 {
            return self.0 as u32;
        }
        let (mantissa, exponent) = ((self.0 & 0x0fff) as u32, (self.0 >> 12 & 7) as u32);
        (mantissa | 0x1000) << (exponent + 3)
    }
}

impl ResponseCode for MldCode {
    fn from_time(time: Duration) -> Self {
        MldCode::from_value(u32::try_from(time.total_millis()).unwrap_or(u32::MAX))
    }

    fn time(self) -> Duration {
        Duration::from_millis(self.value().into())
    }

    fn time_v2(self) -> Duration {
        Duration::from_millis(self.0.into())
    }

    fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl CodeField for MldCode {
    fn read(head: &[u8; 8]) -> Self {
        MldCode(u16::from_be_bytes([head[4], head[5]]))
    }

    fn write(self, head: &mut [u8; 8]) {
        head[4..6].copy_from_slice(&self.0.to_be_bytes());
    }
}

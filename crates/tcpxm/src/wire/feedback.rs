//! The feedback option of acknowledgements (TCP-XM §2.3).

use super::{EXPERIMENT, KIND_FEEDBACK};

/// The feedback option: the percentage of the receiver's recent segments that arrived by multicast.
///
/// ```text
/// +---------------+---------------+-------------------------------+
/// |  kind 254     |  length 5     |  experiment identifier 0x584d |
/// +---------------+---------------+-------------------------------+
/// |  percentage   |
/// +---------------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Feedback {
    /// Percentage of the last 128 data segments that came by multicast, rounded to the nearest;
    /// 0 to 100.
    pub percent: u8,
}

impl Feedback {
    /// Bytes of the whole option.
    pub const LEN: usize = 5;

    /// Parses the option's value after kind and length. `None` if it belongs to another experiment, has another
    /// length, or exceeds 100 per cent.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let &[high, low, percent] = value else {
            return None;
        };
        let ours = u16::from_be_bytes([high, low]) == EXPERIMENT && percent <= 100;
        ours.then_some(Self { percent })
    }

    /// Writes the whole option and returns its length.
    ///
    /// # Panics
    ///
    /// When the buffer is shorter than [`Feedback::LEN`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let [high, low] = EXPERIMENT.to_be_bytes();
        let bytes = [KIND_FEEDBACK, Self::LEN as u8, high, low, self.percent];
        buffer[..Self::LEN].copy_from_slice(&bytes);
        Self::LEN
    }
}

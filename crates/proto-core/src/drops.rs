//! Why packets are dropped, and how often: one named reason for each, and one counter for each reason.
//!
//! [`drop_reasons!`](crate::drop_reasons) makes the list of a machine; the machine's counters have a field
//! `drops`, a [`Drops`].
//!
//! ```
//! proto_core::drop_reasons! {
//!     /// Why a packet was dropped.
//!     pub enum Reason: "packet dropped: {}" {
//!         /// It is shorter than its header.
//!         Truncated = "truncated",
//!         /// The checksum is wrong.
//!         Checksum = "checksum",
//!     }
//!     /// Packets dropped.
//!     pub type Drops;
//! }
//!
//! let mut drops = Drops::default();
//! drops.count(Reason::Checksum);
//! assert_eq!(drops.get(Reason::Checksum), 1);
//! assert_eq!(drops.total(), 1);
//! for (reason, count) in drops.iter() {
//!     println!("{} {count}", reason.name());
//! }
//! ```

use core::fmt;
use core::marker::PhantomData;

/// A reason for which packets are dropped, made by [`drop_reasons!`](crate::drop_reasons).
pub trait DropReason: Copy + 'static {
    /// Every reason, in the order of declaration.
    const ALL: &'static [Self];

    /// Returns the reason's place in [`ALL`](DropReason::ALL).
    fn index(self) -> usize;

    /// Returns the reason's name in metrics and status: lower case, with underscores.
    fn name(self) -> &'static str;
}

/// How often packets were dropped for each of `N` reasons. Counters wrap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Drops<R, const N: usize> {
    counts: [u64; N],
    reasons: PhantomData<R>,
}

impl<R, const N: usize> Default for Drops<R, N> {
    fn default() -> Self {
        Drops {
            counts: [0; N],
            reasons: PhantomData,
        }
    }
}

impl<R: DropReason, const N: usize> Drops<R, N> {
    /// Returns how often packets were dropped for this reason.
    #[inline]
    #[must_use]
    pub fn get(&self, reason: R) -> u64 {
        self.counts[reason.index()]
    }

    /// Returns all reasons with their counts, in the order of declaration.
    pub fn iter(&self) -> impl Iterator<Item = (R, u64)> + '_ {
        R::ALL.iter().map(|&reason| (reason, self.get(reason)))
    }

    /// Returns how often packets were dropped for any reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts
            .iter()
            .fold(0, |sum, &count| sum.wrapping_add(count))
    }

    /// Counts one more.
    #[inline]
    pub fn count(&mut self, reason: R) {
        self.add(reason, 1);
    }

    /// Counts `more`.
    #[inline]
    pub fn add(&mut self, reason: R, more: u64) {
        let count = &mut self.counts[reason.index()];
        *count = count.wrapping_add(more);
    }
}

/// The reasons that occurred, with their counts.
impl<R: DropReason, const N: usize> fmt::Debug for Drops<R, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = self.iter().filter(|&(_, count)| count != 0);
        f.debug_map()
            .entries(counted.map(|(reason, count)| (reason.name(), count)))
            .finish()
    }
}

/// Declares the reasons for which a machine drops packets, and the type that counts them: see the
/// [module](mod@crate::drops). The text after the name of the enum is its [`Display`](core::fmt::Display) format;
/// `{}` stands for the reason's name.
#[macro_export]
macro_rules! drop_reasons {
    (
        $(#[doc = $about:literal])+
        $vis:vis enum $Reason:ident: $format:literal {
            $($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+
        }
        $(#[doc = $counters:literal])+
        $drops_vis:vis type $Drops:ident;
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        $vis enum $Reason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl $Reason {
            /// Every reason, in the order of declaration.
            $vis const ALL: &'static [$Reason] = &[$($Reason::$variant,)+];

            /// Returns the reason's name in metrics and status: lower case, with underscores.
            #[must_use]
            $vis const fn name(self) -> &'static str {
                match self {
                    $($Reason::$variant => $name,)+
                }
            }
        }

        impl $crate::drops::DropReason for $Reason {
            const ALL: &'static [$Reason] = $Reason::ALL;

            #[inline]
            fn index(self) -> usize {
                self as usize
            }

            fn name(self) -> &'static str {
                self.name()
            }
        }

        impl core::fmt::Display for $Reason {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, $format, self.name())
            }
        }

        impl core::error::Error for $Reason {}

        $(#[doc = $counters])+
        $drops_vis type $Drops = $crate::drops::Drops<$Reason, { $Reason::ALL.len() }>;
    };
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::ToString;
    use std::vec::Vec;

    crate::drop_reasons! {
        /// Reasons of a test.
        enum Reason: "segment dropped: {}" {
            /// The first.
            First = "first_reason",
            /// The second.
            Second = "second_reason",
        }
        /// Their counters.
        type Drops;
    }

    #[test]
    fn each_reason_has_a_counter() {
        let mut drops = Drops::default();
        drops.count(Reason::Second);
        drops.add(Reason::Second, 2);
        assert_eq!(
            (drops.get(Reason::First), drops.get(Reason::Second)),
            (0, 3)
        );
        assert_eq!(drops.total(), 3);
        let counts: Vec<_> = drops.iter().collect();
        assert_eq!(counts, [(Reason::First, 0), (Reason::Second, 3)]);
        assert_eq!(format!("{drops:?}"), r#"{"second_reason": 3}"#);
    }

    #[test]
    fn counters_wrap() {
        let mut drops = Drops::default();
        drops.add(Reason::First, u64::MAX);
        drops.count(Reason::First);
        assert_eq!(drops, Drops::default());
    }

    #[test]
    fn reasons_have_names() {
        assert_eq!(Reason::First.name(), "first_reason");
        assert_eq!(Reason::First.to_string(), "segment dropped: first_reason");
    }
}

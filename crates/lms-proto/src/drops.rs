//! Reasons for which packets are dropped, and their counters: every machine has its own list.

/// Makes `DropReason` of a list of reasons with their names, and `Drops`, which counts them.
macro_rules! drop_reasons {
    (
        $(#[doc = $about:literal])+
        pub enum DropReason {
            $($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl DropReason {
            /// All reasons, in the order of their declaration.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant,)+];

            /// The reason in snake case, as metrics and status name it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(DropReason::$variant => $name,)+
                }
            }
        }

        impl core::fmt::Display for DropReason {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl core::error::Error for DropReason {}

        /// How often each reason was given; wraps.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        struct Drops([u64; DropReason::ALL.len()]);

        impl Default for Drops {
            fn default() -> Self {
                Drops([0; DropReason::ALL.len()])
            }
        }

        impl Drops {
            fn of(&self, reason: DropReason) -> u64 {
                self.0[reason as usize]
            }

            fn count(&mut self, reason: DropReason) {
                let counter = &mut self.0[reason as usize];
                *counter = counter.wrapping_add(1);
            }
        }
    };
}

pub(crate) use drop_reasons;

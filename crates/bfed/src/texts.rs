//! Errors that consist of a reason and its text.

/// Defines an enum of reasons, each with the text that it is displayed as.
macro_rules! reasons {
    ($(#[$top:meta])* pub enum $name:ident {
        $($(#[$doc:meta])* $variant:ident = $text:literal,)+
    }) => {
        $(#[$top])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// All reasons.
            pub const ALL: &[$name] = &[$($name::$variant),+];
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self {
                    $($name::$variant => $text,)+
                })
            }
        }

        impl core::error::Error for $name {}
    };
}

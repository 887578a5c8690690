//! Enumerations on the wire.

/// Defines enumerations whose codes survive the way there and back, those not known included.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident { $($value:literal => $variant:ident $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(#[doc = concat!($text, ".")] $variant,)*
            /// A code this version does not know.
            Unknown(u32),
        }

        impl From<u32> for $name {
            fn from(code: u32) -> Self {
                match code {
                    $($value => Self::$variant,)*
                    code => Self::Unknown(code),
                }
            }
        }

        impl From<$name> for u32 {
            fn from(code: $name) -> Self {
                match code {
                    $($name::$variant => $value,)*
                    $name::Unknown(code) => code,
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($text),)*
                    Self::Unknown(code) => write!(f, "unknown code {code}"),
                }
            }
        }
    )*};
}
pub(crate) use codes;

//! Enums whose variants are words in the database (a `text` column with a CHECK constraint), in
//! JSON and on the command line.
//!
//! One declaration serves all three, so each word is spelled in one place.
//! `tests/suite/closed_sets.rs` compares the words of every such enum with the CHECK constraint of
//! its column.

/// The text is not one of the words of an enum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", must_be_one_of(.expected))]
pub struct UnknownWord {
    expected: &'static [&'static str],
}

/// The error message for a word that is not one of `words`.
#[must_use]
pub fn must_be_one_of(words: &[&str]) -> String {
    format!("must be one of {}", words.join(", "))
}

impl UnknownWord {
    #[doc(hidden)]
    #[must_use]
    pub const fn expecting(expected: &'static [&'static str]) -> Self {
        Self { expected }
    }
}

#[doc(hidden)]
pub mod private {
    pub use postgres_types;
    pub use serde;
}

/// Declares an enum of words:
///
/// ```
/// letterbox_common::text_enum! {
///     /// The name of a color.
///     pub enum Color {
///         /// Like blood
///         Red = "red",
///         /// Like the sea
///         DarkBlue = "dark.blue",
///     }
/// }
/// assert_eq!("dark.blue".parse(), Ok(Color::DarkBlue));
/// assert_eq!(Color::WORDS, ["red", "dark.blue"]);
/// ```
#[macro_export]
macro_rules! text_enum {
    (
        $(#[$about:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$doc:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $visibility enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// Every variant, in the order of declaration.
            $visibility const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// The word of every variant, in the same order.
            $visibility const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word.
            #[must_use]
            $visibility const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::text_enum::UnknownWord;

            fn from_str(text: &str) -> ::std::result::Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err($crate::text_enum::UnknownWord::expecting(Self::WORDS)),
                }
            }
        }

        impl $crate::text_enum::private::serde::Serialize for $name {
            fn serialize<S: $crate::text_enum::private::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::std::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> $crate::text_enum::private::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::text_enum::private::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> ::std::result::Result<Self, D::Error> {
                use $crate::text_enum::private::serde::de::Error;
                let text = <::std::string::String as $crate::text_enum::private::serde::Deserialize>
                    ::deserialize(deserializer)?;
                text.parse().map_err(|_| D::Error::unknown_variant(&text, Self::WORDS))
            }
        }

        impl $crate::text_enum::private::postgres_types::ToSql for $name {
            fn to_sql(
                &self,
                kind: &$crate::text_enum::private::postgres_types::Type,
                out: &mut $crate::text_enum::private::postgres_types::private::BytesMut,
            ) -> ::std::result::Result<
                $crate::text_enum::private::postgres_types::IsNull,
                ::std::boxed::Box<dyn ::std::error::Error + Sync + Send>,
            > {
                self.as_str().to_sql(kind, out)
            }

            fn accepts(kind: &$crate::text_enum::private::postgres_types::Type) -> bool {
                <&str as $crate::text_enum::private::postgres_types::ToSql>::accepts(kind)
            }

            $crate::text_enum::private::postgres_types::to_sql_checked!();
        }

        impl<'a> $crate::text_enum::private::postgres_types::FromSql<'a> for $name {
            fn from_sql(
                kind: &$crate::text_enum::private::postgres_types::Type,
                raw: &'a [u8],
            ) -> ::std::result::Result<
                Self,
                ::std::boxed::Box<dyn ::std::error::Error + Sync + Send>,
            > {
                let text =
                    <&str as $crate::text_enum::private::postgres_types::FromSql>::from_sql(kind,
                        raw)?;
                text.parse().map_err(::std::convert::Into::into)
            }

            fn accepts(kind: &$crate::text_enum::private::postgres_types::Type) -> bool {
                <&str as $crate::text_enum::private::postgres_types::FromSql>::accepts(kind)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    text_enum! {
        /// For these tests.
        enum Size {
            /// Under ten
            Small = "small",
            /// The rest
            VeryLarge = "very.large",
        }
    }

    #[test]
    fn every_word_parses_to_its_variant_and_nothing_else_does() {
        for size in Size::ALL {
            assert_eq!(size.as_str().parse(), Ok(*size));
            assert_eq!(format!("{size:>12}").trim_start(), size.as_str());
            let json = serde_json::to_string(size).unwrap();
            assert_eq!(serde_json::from_str::<Size>(&json).unwrap(), *size);
        }
        let error = "Small".parse::<Size>().unwrap_err().to_string();
        assert_eq!(error, "must be one of small, very.large");
        assert!(serde_json::from_str::<Size>("\"tiny\"").is_err());
    }
}

//! Enums whose variants are words: in the database (a `text` column with a CHECK constraint), in
//! JSON, on the command line, and as labels.
//!
//! One declaration serves all of these, so each word is spelled in one place.
//! `tests/suite/closed_sets.rs` compares the words of every enum that the database has with the
//! CHECK constraint of its column.

/// The text is not one of the words of an enum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", must_be_one_of(.expected))]
pub struct UnknownWord {
    #[doc(hidden)]
    pub expected: &'static [&'static str],
}

/// The error message for a word that is not one of `words`.
pub fn must_be_one_of(words: &[&str]) -> String {
    format!("must be one of {}", words.join(", "))
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

        const _: () = {
            use ::std::{error::Error, fmt, str::FromStr};
            use $crate::text_enum::{
                UnknownWord,
                private::{
                    postgres_types::{
                        FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked,
                    },
                    serde::{Deserialize, Deserializer, Serialize, Serializer, de},
                },
            };

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.pad(self.as_str())
                }
            }

            impl FromStr for $name {
                type Err = UnknownWord;

                fn from_str(text: &str) -> Result<Self, UnknownWord> {
                    match text {
                        $($word => Ok(Self::$variant),)+
                        _ => Err(UnknownWord { expected: Self::WORDS }),
                    }
                }
            }

            impl Serialize for $name {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.serialize_str(self.as_str())
                }
            }

            impl<'de> Deserialize<'de> for $name {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let text = String::deserialize(deserializer)?;
                    let unknown = |_| de::Error::unknown_variant(&text, Self::WORDS);
                    text.parse().map_err(unknown)
                }
            }

            impl ToSql for $name {
                fn to_sql(
                    &self,
                    kind: &Type,
                    out: &mut BytesMut,
                ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
                    self.as_str().to_sql(kind, out)
                }

                fn accepts(kind: &Type) -> bool {
                    <&str as ToSql>::accepts(kind)
                }

                to_sql_checked!();
            }

            impl<'a> FromSql<'a> for $name {
                fn from_sql(
                    kind: &Type,
                    raw: &'a [u8],
                ) -> Result<Self, Box<dyn Error + Sync + Send>> {
                    Ok(<&str>::from_sql(kind, raw)?.parse()?)
                }

                fn accepts(kind: &Type) -> bool {
                    <&str as FromSql>::accepts(kind)
                }
            }
        };
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

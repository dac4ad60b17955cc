//! How the page of a form looks: what its owner says beside the form itself. Readers of the form
//! through the public endpoint are not told.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Color;
use crate::text_enum;

/// The page of a form. Everything may be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Page {
    /// Who asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// A picture of it, as a data URI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logo: Option<String>,
    /// The color of what is pressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<Color>,
    /// What the button says, instead of "Submit" in the language of the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub button: Option<String>,
    /// Where it is written what becomes of the answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privacy_url: Option<String>,
    /// Where to go on when the answers were received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continue_url: Option<String>,
    /// The language of the form, and so of the page's own words; the reader's where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locale: Option<Locale>,
    /// Origins of the pages that may show it in a frame.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frame_ancestors: Vec<String>,
    /// What a browser may fill in: by the key of the field, the HTML standard's word for it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub autocomplete: BTreeMap<String, String>,
}

text_enum! {
    /// A language that the page speaks, as its tag (BCP 47).
    pub enum Locale {
        /// Arabic
        Arabic = "ar",
        /// German
        German = "de",
        /// English
        English = "en",
        /// Spanish
        Spanish = "es",
        /// Persian
        Persian = "fa",
        /// French
        French = "fr",
        /// Hebrew
        Hebrew = "he",
        /// Italian
        Italian = "it",
        /// Japanese
        Japanese = "ja",
        /// Dutch
        Dutch = "nl",
        /// Polish
        Polish = "pl",
        /// Portuguese
        Portuguese = "pt",
        /// Swedish
        Swedish = "sv",
        /// Turkish
        Turkish = "tr",
        /// Ukrainian
        Ukrainian = "uk",
        /// Chinese, in simplified characters
        Chinese = "zh",
    }
}

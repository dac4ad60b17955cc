//! The look of a form's page, as its owner sets it beside the form itself. The public endpoint that
//! returns the form does not include it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Color;
use crate::text_enum;

/// The page of a form. Everything is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Page {
    /// The name of the organization.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// The logo, as a data URI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logo: Option<String>,
    /// The color of the button.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<Color>,
    /// The text of the button, instead of "Submit" in the language of the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub button: Option<String>,
    /// The URL of the privacy policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privacy_url: Option<String>,
    /// The page to continue to after a submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continue_url: Option<String>,
    /// The language of the form and of the page's own texts; the reader's if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locale: Option<Locale>,
    /// Origins of the pages that may embed it in a frame.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frame_ancestors: Vec<String>,
    /// The value of the HTML attribute `autocomplete`, by the key of the field.
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

//! The files that the form page loads: embedded in the program, the same for every form.

use bytes::Bytes;

use crate::response::Response;

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// A file that the page loads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageFile {
    path: &'static str,
    media_type: &'static str,
    content: &'static str,
}

macro_rules! files {
    ($($media_type:expr => [$($name:literal),+ $(,)?],)+) => {
        &[$($(PageFile {
            path: concat!("/forms/", $name),
            media_type: $media_type,
            content: include_str!(concat!("../../static/", $name)),
        }),+),+]
    };
}

const FILES: &[PageFile] = files! {
    "text/css; charset=utf-8" => ["form.css"],
    "image/svg+xml" => ["icon.svg"],
    JAVASCRIPT => [
        "form.js", "fields.js", "check.js", "number.js", "draft.js", "words.js", "proof.js",
        "proof-worker.js",
    ],
    JAVASCRIPT => [
        "words/ar.js", "words/de.js", "words/en.js", "words/es.js", "words/fa.js", "words/fr.js",
        "words/he.js", "words/it.js", "words/ja.js", "words/nl.js", "words/pl.js", "words/pt.js",
        "words/sv.js", "words/tr.js", "words/uk.js", "words/zh.js",
    ],
};

impl PageFile {
    /// The file at this path.
    pub(crate) fn at(path: &str) -> Option<&'static Self> {
        FILES.iter().find(|file| file.path == path)
    }

    pub(crate) fn response(&self) -> Response {
        super::own(self.media_type, Bytes::from_static(self.content.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use letterbox_common::form::Locale;

    use super::*;

    #[test]
    fn every_language_has_its_words() {
        for locale in Locale::ALL {
            assert!(
                PageFile::at(&format!("/forms/words/{locale}.js")).is_some(),
                "{locale}"
            );
        }
        let words = FILES.iter().filter(|file| file.path.contains("/words/"));
        assert_eq!(words.count(), Locale::ALL.len());
    }
}

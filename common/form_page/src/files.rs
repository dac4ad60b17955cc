//! The files that the form page loads: embedded in the program, the same for every form. A document
//! calls them by a name that changes with their content, so that browsers keep them.

use std::{io::Write, sync::LazyLock};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

pub(crate) const RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");
pub(crate) const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const FOR_A_YEAR: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const BY_ENCODING: HeaderValue = HeaderValue::from_static("Accept-Encoding, Origin");
const GZIP: HeaderValue = HeaderValue::from_static("gzip");
/// Length of the name of all files, in hexadecimal digits.
const NAME: usize = 16;

/// A file that the page loads.
struct PageFile {
    path: &'static str,
    media_type: &'static str,
    plain: Bytes,
    compressed: Bytes,
}

/// A file that was asked for.
#[derive(Clone, Copy)]
pub struct AskedFile {
    file: &'static PageFile,
    /// Whether its address means this content for ever.
    is_named: bool,
}

macro_rules! files {
    ($($media_type:expr => [$($name:literal),+ $(,)?],)+) => {
        vec![$($(PageFile::new(
            $name,
            $media_type,
            include_str!(concat!("../static/", $name)),
        )),+),+]
    };
}

static FILES: LazyLock<Vec<PageFile>> = LazyLock::new(|| {
    files! {
        "text/css; charset=utf-8" => ["form.css"],
        "image/svg+xml" => ["icon.svg"],
        JAVASCRIPT => [
            "form.js", "fields.js", "check.js", "number.js", "draft.js", "words.js", "proof.js",
            "proof-worker.js",
        ],
        JAVASCRIPT => [
            "words/ar.js", "words/de.js", "words/en.js", "words/es.js", "words/fa.js",
            "words/fr.js", "words/he.js", "words/it.js", "words/ja.js", "words/nl.js",
            "words/pl.js", "words/pt.js", "words/sv.js", "words/tr.js", "words/uk.js",
            "words/zh.js",
        ],
    }
});

/// The name of all files: of another content it is another one.
pub(crate) static NAME_OF_ALL: LazyLock<String> = LazyLock::new(|| {
    let mut all = Sha256::new();
    FILES.iter().for_each(|file| all.update(&file.plain));
    let mut name = hex::encode(all.finalize());
    name.truncate(NAME);
    name
});

impl PageFile {
    fn new(path: &'static str, media_type: &'static str, content: &'static str) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let compressed = encoder.write_all(content.as_bytes());
        let compressed = compressed.and_then(|()| encoder.finish());
        Self {
            path,
            media_type,
            plain: Bytes::from_static(content.as_bytes()),
            // Memory takes everything.
            compressed: compressed.unwrap_or_default().into(),
        }
    }
}

impl AskedFile {
    /// The file at this path: below `/forms/`, or below the name of all files there. The name of
    /// another version leads to the files of this one, while a service is upgraded.
    pub fn at(path: &str) -> Option<Self> {
        let path = path.strip_prefix("/forms/")?;
        let is_name =
            |name: &str| name.len() == NAME && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let named = path.split_once('/').filter(|(name, _)| is_name(name));
        let (name, path) = named.unwrap_or(("", path));
        let file = FILES.iter().find(|file| file.path == path)?;
        let is_named = name == *NAME_OF_ALL;
        Some(Self { file, is_named })
    }

    /// The file, and its headers, for who has sent these headers. Only pages of the same origin may
    /// load it.
    pub fn answer(self, asked: &HeaderMap) -> (HeaderMap, Bytes) {
        let Self { file, is_named } = self;
        let is_compressed = takes_gzip(asked);
        let content = match is_compressed {
            true => &file.compressed,
            false => &file.plain,
        };
        let mut headers = HeaderMap::new();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(file.media_type),
        );
        headers.insert(RESOURCE_POLICY, SAME_ORIGIN);
        headers.insert(header::VARY, BY_ENCODING);
        if is_compressed {
            headers.insert(header::CONTENT_ENCODING, GZIP);
        }
        if is_named {
            headers.insert(header::CACHE_CONTROL, FOR_A_YEAR);
        }
        (headers, content.clone())
    }
}

/// Whether an answer may be compressed: RFC 9110, section 12.5.3.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let given = headers.get_all(header::ACCEPT_ENCODING).iter();
    let codings = given.filter_map(|value| value.to_str().ok());
    let mut codings = codings.flat_map(|value| value.split(','));
    codings.any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=");
        let is_refused = weight.is_some_and(|weight| weight.parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

#[cfg(test)]
mod tests {
    use letterbox_common::form::Locale;

    use super::*;

    #[test]
    fn every_language_has_its_words() {
        for locale in Locale::ALL {
            let path = format!("/forms/words/{locale}.js");
            assert!(AskedFile::at(&path).is_some(), "{locale}");
        }
        let words = FILES.iter().filter(|file| file.path.starts_with("words/"));
        assert_eq!(words.count(), Locale::ALL.len());
    }

    #[test]
    fn an_answer_is_compressed_for_who_says_so() {
        for (given, is_taken) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("br;q=1,gzip", true),
            ("", false),
            ("br", false),
            ("gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("gzipped", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(given));
            assert_eq!(takes_gzip(&headers), is_taken, "{given}");
        }
    }
}

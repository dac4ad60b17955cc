//! A finding: what was looked at, how it is, and what mends it.

use serde::Serialize;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Fine,
    /// It works, and should be otherwise.
    Warning,
    /// Something does not work, or may lose what was accepted.
    Failure,
}

/// What was found about one thing.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub about: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub detail: String,
    /// What mends it; `None` if all is well.
    pub mend: Option<&'static str>,
}

impl Finding {
    /// A finding that is fine if `is_fine`.
    pub fn new(
        about: &'static str,
        is_fine: bool,
        otherwise: Verdict,
        detail: impl Into<String>,
        mend: &'static str,
    ) -> Self {
        Self {
            about,
            verdict: if is_fine { Verdict::Fine } else { otherwise },
            detail: detail.into(),
            mend: (!is_fine && !mend.is_empty()).then_some(mend),
        }
    }

    /// A finding that is fine if nothing is listed.
    pub(super) fn of_list(
        about: &'static str,
        listed: impl IntoIterator<Item = String>,
        otherwise: Verdict,
        fine: &str,
        mend: &'static str,
    ) -> Self {
        let listed: Vec<_> = listed.into_iter().collect();
        let detail = match listed.is_empty() {
            true => fine.to_owned(),
            false => listed.join(", "),
        };
        Self::new(about, listed.is_empty(), otherwise, detail, mend)
    }

    /// Something that can't be looked at, for want of a setting.
    pub fn unseen(about: &'static str, mend: &'static str) -> Self {
        Self::new(about, false, Verdict::Warning, "not looked at", mend)
    }
}

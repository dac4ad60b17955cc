//! `condition`: goes one of two ways.

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Branch {
    Then,
    Else,
}

impl Branch {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Then => "then",
            Self::Else => "else",
        }
    }

    /// Reads what [`Self::as_str`] wrote.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        [Self::Then, Self::Else]
            .into_iter()
            .find(|branch| branch.as_str() == text)
    }
}

impl From<bool> for Branch {
    fn from(holds: bool) -> Self {
        if holds { Self::Then } else { Self::Else }
    }
}

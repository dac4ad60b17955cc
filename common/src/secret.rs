//! Secrets in memory.

use zeroize::Zeroizing;

/// Implements `Debug` for something of which nothing is printed but its name.
macro_rules! never_printed {
    ($($name:ident),+) => {$(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($name), "(…)"))
            }
        }
    )+};
}
pub(crate) use never_printed;

/// An opened secret. Wiped when dropped, never printed.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes these bytes, to be wiped when the secret is dropped.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The secret itself, for the moment of its use.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

never_printed!(Secret);

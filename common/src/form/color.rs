//! The colors of form pages, and their contrast by WCAG 2.2.

use std::{fmt, str::FromStr};

use crate::as_text::serde_as_text;

/// An opaque color in sRGB, written `#rrggbb`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Color([u8; 3]);

/// The text is not a color.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a color as #rrggbb")]
pub struct NoColor;

impl Color {
    /// Black.
    pub const BLACK: Self = Self([0; 3]);
    /// White.
    pub const WHITE: Self = Self([255; 3]);

    /// Creates a color from red, green and blue.
    pub const fn new(red: u8, green: u8, blue: u8) -> Self {
        Self([red, green, blue])
    }

    /// The contrast ratio: from 1 (none) to 21.
    pub fn contrast(self, other: Self) -> f64 {
        let one = self.luminance();
        let two = other.luminance();
        (one.max(two) + 0.05) / (one.min(two) + 0.05)
    }

    /// The text color for this background: black or white, whichever has more contrast. It is
    /// always at least 4.5.
    #[must_use]
    pub fn ink(self) -> Self {
        if self.contrast(Self::WHITE) >= self.contrast(Self::BLACK) {
            Self::WHITE
        } else {
            Self::BLACK
        }
    }

    /// The first color on the way from this one to `end` that has a contrast of `least` with all of
    /// `grounds`; `end` itself if there is none.
    #[must_use]
    pub fn toward(self, end: Self, grounds: &[Self], least: f64) -> Self {
        let suits = |color: &Self| {
            let seen = |ground: &Self| color.contrast(*ground) >= least;
            grounds.iter().all(seen)
        };
        let steps = (0..=32).map(|step| self.mixed(end, f64::from(step) / 32.0));
        let mut suiting = steps.filter(suits);
        suiting.next().unwrap_or(end)
    }

    /// This color mixed with a `share` of `other`, from 0 to 1.
    #[must_use]
    pub fn mixed(self, other: Self, share: f64) -> Self {
        let mix = |one: u8, two: u8| {
            let mixed = f64::from(one) * (1.0 - share) + f64::from(two) * share;
            mixed.round().clamp(0.0, 255.0) as u8
        };
        let ([r, g, b], [red, green, blue]) = (self.0, other.0);
        Self([mix(r, red), mix(g, green), mix(b, blue)])
    }

    /// Relative luminance: 0 (black) to 1 (white).
    fn luminance(self) -> f64 {
        let linear = |channel: u8| match f64::from(channel) / 255.0 {
            small if small <= 0.04045 => small / 12.92,
            large => ((large + 0.055) / 1.055).powf(2.4),
        };
        let [red, green, blue] = self.0.map(linear);
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }
}

impl FromStr for Color {
    type Err = NoColor;

    fn from_str(text: &str) -> Result<Self, NoColor> {
        let mut channels = [0; 3];
        let digits = text.strip_prefix('#').ok_or(NoColor)?;
        hex::decode_to_slice(digits, &mut channels).map_err(|_| NoColor)?;
        Ok(Self(channels))
    }
}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", hex::encode(self.0))
    }
}

serde_as_text!(Color);

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, proptest};

    use super::*;

    fn colors() -> impl Strategy<Value = Color> {
        any::<[u8; 3]>().prop_map(Color)
    }

    #[test]
    fn a_color_is_six_digits() {
        assert_eq!("#2450D3".parse(), Ok(Color::new(0x24, 0x50, 0xd3)));
        assert_eq!(Color::new(0x24, 0x50, 0xd3).to_string(), "#2450d3");
        for text in [
            "",
            "#",
            "2450d3",
            "#245",
            "#2450d3ff",
            "#2450dg",
            "red",
            "#24 0d3",
        ] {
            assert_eq!(text.parse::<Color>(), Err(NoColor), "{text}");
        }
    }

    #[test]
    fn contrast_is_that_of_the_standard() {
        assert!((Color::BLACK.contrast(Color::WHITE) - 21.0).abs() < 1e-9);
        let gray = Color::new(0x77, 0x77, 0x77);
        assert!((gray.contrast(Color::WHITE) - 4.478).abs() < 1e-3);
    }

    proptest! {
        #[test]
        fn ink_can_be_read(color in colors()) {
            assert!(color.contrast(color.ink()) >= 4.5);
        }

        #[test]
        fn what_is_moved_toward_ink_is_seen(color in colors(), ground in colors()) {
            let seen = color.toward(ground.ink(), &[ground], 3.0);
            assert!(seen.contrast(ground) >= 3.0);
            if color.contrast(ground) >= 3.0 {
                assert_eq!(seen, color);
            }
        }
    }
}

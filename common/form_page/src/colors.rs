//! The owner's color, and the colors that the page derives from it.

use letterbox_common::form::Color;
use serde::Serialize;

/// The backgrounds in `static/form.css`, of the card and of the page, in light and dark mode.
const LIGHT: [Color; 2] = [Color::WHITE, Color::new(0xf2, 0xf4, 0xf8)];
const DARK: [Color; 2] = [Color::new(0x16, 0x1d, 0x27), Color::new(0x0d, 0x12, 0x19)];
/// The minimum contrast of elements that are not text, by WCAG 2.2, 1.4.11.
const SEEN: f64 = 3.0;

#[derive(Serialize)]
pub(crate) struct Colors {
    accent: Color,
    ink: Color,
    strong: Color,
    light_ring: Color,
    dark_ring: Color,
}

impl Colors {
    pub(crate) fn of(accent: Color) -> Self {
        let ink = accent.ink();
        // Away from the ink, so that the contrast of the text on it does not shrink.
        let away = ink.ink();
        Self {
            accent,
            ink,
            strong: accent.mixed(away, 0.15),
            light_ring: accent.toward(Color::BLACK, &LIGHT, SEEN),
            dark_ring: accent.toward(Color::WHITE, &DARK, SEEN),
        }
    }
}

//! The browsers that there are: how each is started, and what it is told of its reader.

use serde_json::{Map, Value, json};

use super::Reader;

/// A browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Chromium,
    Firefox,
}

/// Makes tests of functions that take an [`Engine`], one for each. Firefox is for `deploy/test
/// --full`; what takes long is so in both.
macro_rules! in_every_browser {
    ($($name:ident),+ $(,)?) => {
        $($crate::browser::in_every_browser!(@ $name, []);)+
    };
    (at length: $($name:ident),+ $(,)?) => {
        $($crate::browser::in_every_browser!(@ $name, [#[ignore = "for --full"]]);)+
    };
    (@ $name:ident, [$($chromium:tt)*]) => {
        mod $name {
            use $crate::browser::Engine;

            #[tokio::test]
            $($chromium)*
            async fn in_chromium() {
                super::$name(Engine::Chromium).await;
            }

            #[tokio::test]
            #[ignore = "for --full"]
            async fn in_firefox() {
                super::$name(Engine::Firefox).await;
            }
        }
    };
}
pub(crate) use in_every_browser;

impl Engine {
    /// The program that drives it through WebDriver, and its arguments.
    pub(super) fn driver(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Chromium => ("chromedriver", &["--port=0"]),
            Self::Firefox => ("geckodriver", &["--port=0", "--websocket-port=0"]),
        }
    }

    /// The port that a line of the driver's output names.
    pub(super) fn port(self, line: &str) -> Option<u16> {
        let (_, port) = match self {
            Self::Chromium => line.split_once("successfully on port ")?,
            Self::Firefox => line.split_once("Listening on 127.0.0.1:")?,
        };
        port.trim_end_matches('.').parse().ok()
    }

    /// What the driver starts: a browser with a window of this size, in CSS pixels.
    pub(super) fn capabilities(
        self,
        width: u32,
        height: u32,
        reader: Reader,
    ) -> Map<String, Value> {
        let (name, options) = match self {
            Self::Chromium => ("goog:chromeOptions", chromium(width, height, reader)),
            Self::Firefox => ("moz:firefoxOptions", firefox(width, height, reader)),
        };
        [(name.to_owned(), options)].into_iter().collect()
    }
}

fn chromium(width: u32, height: u32, reader: Reader) -> Value {
    let mut arguments = vec![
        "--headless=new".to_owned(),
        "--no-sandbox".into(),
        "--disable-gpu".into(),
        "--disable-dev-shm-usage".into(),
        "--disable-background-networking".into(),
        "--hide-scrollbars".into(),
        format!("--window-size={width},{height}"),
    ];
    arguments.extend(reader.dark.then(|| "--force-dark-mode".to_owned()));
    let contrast = "--force-high-contrast".to_owned();
    arguments.extend(reader.forced_colors.then_some(contrast));
    let languages = reader.languages;
    arguments.extend(languages.map(|languages| format!("--accept-lang={languages}")));
    let mut options = json!({ "args": arguments });
    if width < 500 {
        // A window can't be that narrow; an emulated phone can.
        options["mobileEmulation"] = json!({"deviceMetrics": {"width": width,
            "height": height, "pixelRatio": 2, "touch": true}});
    }
    options
}

fn firefox(width: u32, height: u32, reader: Reader) -> Value {
    let mut settings = json!({
        "ui.systemUsesDarkTheme": i32::from(reader.dark),
        "network.captive-portal-service.enabled": false,
        "network.connectivity-service.enabled": false,
        "dom.disable_open_during_load": false,
    });
    if reader.forced_colors {
        settings["browser.display.document_color_use"] = json!(2);
    }
    if let Some(languages) = reader.languages {
        settings["intl.accept_languages"] = json!(languages);
    }
    json!({
        "args": ["-headless", format!("--width={width}"), format!("--height={height}")],
        "prefs": settings,
    })
}

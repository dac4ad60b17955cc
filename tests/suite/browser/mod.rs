//! A browser without a window, driven through WebDriver.

mod engine;

use std::process::Stdio;

use fantoccini::{Client, ClientBuilder, Locator, elements::Element, wd::WindowHandle};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use letterbox_tests::{Form, eventually};

pub use self::engine::Engine;
pub(crate) use self::engine::in_every_browser;
use crate::site::Site;

/// A browser window with a page.
pub struct Browser {
    pub page: Client,
    driver: Child,
    engine: Engine,
}

/// What a reader has set.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reader {
    /// Prefers the dark.
    pub dark: bool,
    /// Sees a few colors only, which the system chooses.
    pub forced_colors: bool,
    /// The languages that they read, as tags with commas between them.
    pub languages: Option<&'static str>,
}

impl Reader {
    /// One who reads these languages.
    pub fn of(languages: &'static str) -> Self {
        Self {
            languages: Some(languages),
            ..Self::default()
        }
    }

    /// One who prefers the dark.
    pub fn in_the_dark() -> Self {
        Self {
            dark: true,
            ..Self::default()
        }
    }
}

impl Browser {
    /// Starts a browser with a window of this size, in CSS pixels.
    pub async fn start(engine: Engine, width: u32, height: u32) -> Self {
        Self::start_for(engine, width, height, Reader::default()).await
    }

    /// The same, for a reader with settings of their own.
    pub async fn start_for(engine: Engine, width: u32, height: u32, reader: Reader) -> Self {
        let mut started = None;
        // It draws a port, and ends when another program has that on the other loopback address.
        for _ in 0..5 {
            started = Self::start_driver(engine).await;
            if started.is_some() {
                break;
            }
        }
        let (driver, mut lines, port) = started.expect("a driver starts");
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let mut builder =
            ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new());
        let page = builder
            .capabilities(engine.capabilities(width, height, reader))
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .unwrap();
        Self {
            page,
            driver,
            engine,
        }
    }

    /// A driver, what it prints, and its port; `None` if it has ended at once.
    async fn start_driver(engine: Engine) -> Option<(Child, Lines<BufReader<ChildStdout>>, u16)> {
        let (program, arguments) = engine.driver();
        let mut driver = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}: use deploy/test"));
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        loop {
            let line = lines.next_line().await.unwrap()?;
            if let Some(port) = engine.port(&line) {
                return Some((driver, lines, port));
            }
        }
    }

    /// Goes on in the other window, when it is there.
    pub async fn switch_from(&self, first: &WindowHandle) {
        let mut other = None;
        eventually("another window", async || {
            let windows = self.page.windows().await.unwrap();
            other = windows.into_iter().find(|window| window != first);
            other.is_some()
        })
        .await;
        self.page.switch_to_window(other.unwrap()).await.unwrap();
    }

    pub async fn open(&self, url: &str) {
        self.page.goto(url).await.unwrap();
    }

    /// What a script gives back.
    pub async fn evaluate(&self, expression: &str) -> Value {
        self.page
            .execute(&format!("return {expression}"), Vec::new())
            .await
            .unwrap()
    }

    /// What a promise gives.
    pub async fn promised(&self, expression: &str) -> Value {
        let script = format!(
            "const done = arguments[0]; \
             Promise.resolve({expression}).then(done, (error) => done(String(error)))"
        );
        self.page.execute_async(&script, Vec::new()).await.unwrap()
    }

    /// Waits until this text can be read on the page.
    pub async fn await_text(&self, text: &str) {
        let shown = format!(
            "document.querySelector('main')?.innerText.includes({}) === true",
            json!(text)
        );
        eventually(text, async || self.evaluate(&shown).await == true).await;
    }

    /// The field with this label.
    pub async fn field(&self, label: &str) -> Element {
        let label = format!("//label[starts-with(normalize-space(), \"{label}\")]");
        let label = self.page.find(Locator::XPath(&label)).await.unwrap();
        let id = label.attr("for").await.unwrap();
        let id = id.expect("a label is tied to its field");
        self.page.find(Locator::Id(&id)).await.unwrap()
    }

    /// Ticks the box with this label.
    pub async fn tick(&self, label: &str) {
        self.field(label).await.click().await.unwrap();
    }

    /// What is in the field with this label.
    pub async fn value(&self, label: &str) -> String {
        let field = self.field(label).await;
        field.prop("value").await.unwrap().unwrap()
    }

    /// Types into the field with this label, instead of what stands there.
    pub async fn fill_in(&self, label: &str, text: &str) {
        let field = self.field(label).await;
        field.clear().await.unwrap();
        field.send_keys(text).await.unwrap();
    }

    /// Opens a form with a field of every type, and waits for it.
    pub async fn visit(&self, site: &Site, form: &Form) {
        self.open(&site.link(form)).await;
        self.await_text("Contact us").await;
    }

    /// Opens a form in a window of the usual size.
    pub async fn visiting(engine: Engine, site: &Site, form: &Form) -> Self {
        let browser = Self::start(engine, 1280, 900).await;
        browser.visit(site, form).await;
        browser
    }

    /// Presses the button with a text, and waits for what it leads to.
    pub async fn press_for(&self, button: &str, text: &str) {
        self.press(button).await;
        self.await_text(text).await;
    }

    /// Fills in what such a form requires.
    pub async fn answer(&self, name: &str) {
        self.fill_in("Your name", name).await;
        self.fill_in("E-mail address", "ada@example.com").await;
        let terms = self.field("I accept the terms").await;
        terms.click().await.unwrap();
    }

    /// Presses the button with this text.
    pub async fn press(&self, text: &str) {
        let button = format!("//button[normalize-space()=\"{text}\"]");
        let button = self.page.find(Locator::XPath(&button)).await.unwrap();
        button.click().await.unwrap();
    }

    /// Keeps a picture of the page where `LETTERBOX_TEST_PICTURES` names a folder.
    pub async fn picture(&self, name: &str) {
        if let Ok(folder) = std::env::var("LETTERBOX_TEST_PICTURES") {
            let picture = self.page.screenshot().await.unwrap();
            let file = format!("{folder}/{name}-{:?}.png", self.engine);
            std::fs::write(file, picture).unwrap();
        }
    }

    /// Everything that axe-core finds against WCAG and good practice, in the state that is shown.
    pub async fn assert_usable(&self, state: &str) {
        let path =
            std::env::var("LETTERBOX_TEST_AXE").expect("axe-core is installed: use deploy/test");
        let axe = std::fs::read_to_string(path).unwrap();
        self.page.execute(&axe, Vec::new()).await.unwrap();
        let run = "axe.run(document, {resultTypes: ['violations']}).then((found) => \
            found.violations.map((one) => one.id + ': ' + one.nodes.map((node) => node.html)))";
        assert_eq!(self.promised(run).await, json!([]), "{state}");
        self.picture(&format!("axe-{state}")).await;
    }

    /// Ends the browser and its driver.
    pub async fn close(mut self) {
        self.page.clone().close().await.unwrap();
        self.driver.kill().await.unwrap();
    }
}

/// A test that fails leaves no browser behind: it is in the process group of its driver.
impl Drop for Browser {
    fn drop(&mut self) {
        let driver = self.driver.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = driver.and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

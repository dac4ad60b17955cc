//! Renders templates within limits on text and processor time.

use std::{
    cell::Cell,
    io::{self, Write},
    time::Duration,
};

use minijinja::Environment;
use rustix::time::{ClockId, clock_gettime};

use super::{RenderError, TemplateContext};

/// Maximum bytes of text of one request.
const MAX_TEXT: usize = 1 << 20;
/// Maximum processor time of one request.
const MAX_TIME: Duration = Duration::from_millis(50);

/// Renders the templates of one request, within its limits.
#[derive(Debug)]
pub struct Renderer<'c> {
    pub(super) context: &'c TemplateContext,
    text_left: Cell<usize>,
    began: Duration,
}

impl TemplateContext {
    /// Returns a renderer for the templates of one request.
    #[must_use]
    pub fn renderer(&self) -> Renderer<'_> {
        Renderer {
            context: self,
            text_left: Cell::new(MAX_TEXT),
            began: thread_time(),
        }
    }
}

impl Renderer<'_> {
    /// Renders a template.
    pub(super) fn render(
        &self,
        environment: &Environment<'_>,
        source: &str,
    ) -> Result<String, RenderError> {
        let mut text = BoundedText {
            text: Vec::new(),
            most: self.text_left.get(),
        };
        let template = environment.template_from_str(source)?;
        let rendered = template.render_captured_to(self.context.value(), &mut text);
        let rendered = rendered.map(drop);
        if text.text.len() > text.most {
            return Err(too_long());
        }
        rendered?;
        self.spend(text.text.len())?;
        String::from_utf8(text.text).map_err(|error| RenderError::new(error.to_string()))
    }

    /// Charges `text` bytes, and checks the processor time.
    pub(super) fn spend(&self, text: usize) -> Result<(), RenderError> {
        let left = self.text_left.get().checked_sub(text);
        self.text_left.set(left.ok_or_else(too_long)?);
        if thread_time().saturating_sub(self.began) > MAX_TIME {
            let milliseconds = MAX_TIME.as_millis();
            return Err(RenderError::new(format!(
                "the request takes more than {milliseconds} ms to render"
            )));
        }
        Ok(())
    }
}

fn too_long() -> RenderError {
    RenderError::new(format!(
        "the request is longer than {} KiB",
        MAX_TEXT / 1024
    ))
}

/// Processor time used by this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// A writer that fails when its text exceeds a limit.
struct BoundedText {
    text: Vec<u8>,
    most: usize,
}

impl Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        if self.text.len() > self.most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{Escape, Template};

    fn context(text: &str) -> TemplateContext {
        let form = serde_json::json!({ "t": text }).to_string();
        TemplateContext::of_run(&form, "run", "now").unwrap()
    }

    fn failure(template: &Template, context: &TemplateContext, times: usize) -> Option<String> {
        let renderer = context.renderer();
        let mut rendering = (0..times).map(|_| template.render(Escape::None, &renderer));
        let failed = rendering.find_map(Result::err);
        failed.map(|error| error.to_string())
    }

    #[test]
    fn a_request_has_a_bounded_length() {
        let template = Template::new("{{ form.t }}".repeat(100));
        let context = context(&"x".repeat(5_000));
        assert_eq!(failure(&template, &context, 2), None, "1,000,000 bytes");
        let too_long = "the request is longer than 1024 KiB";
        assert_eq!(failure(&template, &context, 3).as_deref(), Some(too_long));
        let at_once = Template::new("{{ form.t }}".repeat(800));
        assert_eq!(failure(&at_once, &context, 1).as_deref(), Some(too_long));
    }

    #[test]
    fn a_request_takes_a_bounded_time() {
        let template = Template::new("{{ form.t | upper | length }}".repeat(300));
        let context = context(&"x".repeat(5_000));
        let reason = "the request takes more than 50 ms to render";
        assert_eq!(
            failure(&template, &context, 100_000).as_deref(),
            Some(reason)
        );
    }
}

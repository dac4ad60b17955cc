//! Renders templates within limits on text and processor time.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    io::{self, Write},
    time::Duration,
};

use minijinja::{Environment, Error, ErrorKind, Value};
use rustix::time::{ClockId, clock_gettime};

use super::{References, RenderError, TemplateContext, references::has_answer_of};
use crate::json;

/// Maximum bytes of text of one request.
const MAX_TEXT: usize = 1 << 20;
/// Maximum values of all answers that the templates of one request name.
const MAX_VALUES: usize = 50_000;
/// Maximum work of one template, in bytes that are copied: some seconds, at worst.
const MAX_WORK: usize = 512 << 20;
/// Maximum processor time of one request.
const MAX_TIME: Duration = Duration::from_millis(50);

/// Renders the templates of one request, within its limits.
#[derive(Debug)]
pub struct Renderer<'c> {
    context: &'c TemplateContext,
    /// The answers that templates have named.
    parsed: RefCell<BTreeMap<&'c str, Value>>,
    values_left: Cell<usize>,
    text_left: Cell<usize>,
    began: Duration,
}

impl TemplateContext {
    /// Returns a renderer for the templates of one request.
    pub fn renderer(&self) -> Renderer<'_> {
        Renderer {
            context: self,
            parsed: RefCell::default(),
            values_left: Cell::new(MAX_VALUES),
            text_left: Cell::new(MAX_TEXT),
            began: thread_time(),
        }
    }
}

impl Renderer<'_> {
    /// Renders a template with these references.
    pub(super) fn render(
        &self,
        environment: &Environment<'_>,
        source: &str,
        references: &References,
    ) -> Result<String, RenderError> {
        let mut text = BoundedText {
            text: Vec::new(),
            most: self.text_left.get(),
        };
        let values = self.values(references)?;
        let template = environment.template_from_str(source)?;
        let rendered = template.render_captured_to(&values, &mut text);
        let rendered = rendered.map(drop);
        if text.text.len() > text.most {
            return Err(too_long());
        }
        rendered.map_err(|error| self.explain(error, references))?;
        self.spend(text.text.len())?;
        String::from_utf8(text.text).map_err(|error| RenderError::new(error.to_string()))
    }

    /// The values for a template with these references: of the answers, those that it names, unless
    /// all that were named have too many values.
    pub(super) fn values(&self, references: &References) -> Result<Value, RenderError> {
        let works = references.works.iter().map(|(answers, work)| {
            let named = self.context.answers.iter();
            let named = named.filter(|(id, _)| has_answer_of(answers, id));
            let named = named.map(|(_, answer)| answer.body.len());
            work.saturating_mul(self.context.length + named.sum::<usize>())
        });
        let work = works.fold(0, usize::saturating_add);
        if work > MAX_WORK {
            let (work, most) = (work >> 20, MAX_WORK >> 20);
            return Err(RenderError::new(format!(
                "a template might copy {work} MiB of its values, and {most} MiB at most: it needs \
                 fewer filters and joins"
            )));
        }
        if !references.has_answers() {
            return Ok(self.context.value());
        }
        let mut parsed = self.parsed.borrow_mut();
        let named = self.context.answers.iter();
        let named = named.filter(|(id, _)| references.has_answer_of(id));
        for (id, answer) in named.clone() {
            if !parsed.contains_key(&**id) {
                // What has too many by itself is not parsed.
                let values = Some(json::values(&answer.body));
                let values = values.filter(|values| *values <= json::MAX_VALUES);
                let left = self.values_left.get().checked_sub(values.unwrap_or(1));
                self.values_left.set(left.ok_or_else(too_many)?);
                parsed.insert(id, answer.parse());
            }
        }
        let named = named.filter_map(|(id, _)| Some((id.clone(), parsed.get(&**id)?.clone())));
        Ok(self.context.with_parsed(Value::from_iter(named)))
    }

    /// The error of a template with these references; if a value is missing because an answer that
    /// it names can't be read, it says why.
    pub(super) fn explain(&self, error: Error, references: &References) -> RenderError {
        let is_missing = error.kind() == ErrorKind::UndefinedError;
        let named = self.context.answers.iter().filter(|_| is_missing);
        let mut named = named.filter(|(id, _)| references.has_answer_of(id));
        let unread = named.find_map(|(id, answer)| Some((id, answer.problem()?)));
        let RenderError(text) = error.into();
        RenderError(match unread {
            Some((id, problem)) => format!("{text}: the answer of {id:?} {problem}"),
            None => text,
        })
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

fn too_many() -> RenderError {
    RenderError::new(format!(
        "the answers that the request names have more than {MAX_VALUES} values"
    ))
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
    fn a_template_makes_a_bounded_work_of_its_values() {
        let many = format!(
            "{{{{ (({}){}) | length }}}}",
            ["form.t"; 100].join("~"),
            "|title".repeat(90)
        );
        let template = Template::new(many);
        assert_eq!(failure(&template, &context(&"x".repeat(10)), 1), None);
        let long = context(&"x".repeat(7_000));
        let failed = failure(&template, &long, 1).unwrap();
        assert!(failed.contains("and 512 MiB at most: it needs"), "{failed}");
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

    /// Whatever the answers are, and however many of them a template names.
    #[test]
    fn a_request_names_a_bounded_number_of_values() {
        let list = |items: usize| format!("[{}1]", "1,".repeat(items - 1)).into_bytes();
        let mut context = context("");
        let mut lengths = String::new();
        for number in 0..6 {
            let id = format!("a{number}");
            context = context.with_answer(&id, Some(200), list(9_000).into());
            lengths += &format!("{{{{ actions.{id}.body | length }}}} ");
        }
        let one = Template::new("{{ actions.a0.body | length }}");
        assert_eq!(failure(&one, &context, 1_000), None, "parsed once");
        let reason = "the answers that the request names have more than 50000 values";
        let all = Template::new(lengths);
        assert_eq!(failure(&all, &context, 1).as_deref(), Some(reason));
        let context = context.with_answer("a0", Some(200), list(10_000).into());
        let is_undefined = Template::new("{{ 'yes' if actions.a0.body is undefined }}");
        let renderer = context.renderer();
        let rendered = is_undefined.render(Escape::None, &renderer);
        assert_eq!(rendered.as_deref(), Ok("yes"));
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

//! The golden corpus: what templates give for values. Releases promise never to change, and the
//! engine is updated: a result that differs here would change every release that uses such a
//! template. So no line is edited; new ones are added at the end.

use serde::Deserialize;

use super::{Condition, Escape, Labels, RenderError, Template, TemplateContext};

const CORPUS: &str = include_str!("corpus.json");

#[derive(Deserialize)]
struct Corpus {
    /// What was submitted, as JSON text.
    form: String,
    /// Keys of what was submitted, with their labels.
    labels: Vec<(String, String)>,
    /// The body that the action `crm` was answered.
    answer: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    /// Where it stands.
    of: CorpusPlace,
    source: String,
    /// What it gives; `None` if it fails.
    gives: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CorpusPlace {
    /// A header, a query, or a string of a body among other text.
    Text,
    /// A segment of a path.
    Path,
    /// Among HTML.
    Html,
    /// A string of a body.
    Json,
    /// A condition.
    Condition,
}

impl Case {
    fn gives(&self, context: &TemplateContext) -> Result<String, RenderError> {
        let template = Template::new(&*self.source);
        let renderer = context.renderer();
        match self.of {
            CorpusPlace::Text => template.render(Escape::None, &renderer),
            CorpusPlace::Html => template.render(Escape::Html, &renderer),
            CorpusPlace::Path => template.render(Escape::PathSegment, &renderer),
            CorpusPlace::Json => template.json(&renderer),
            CorpusPlace::Condition => {
                let holds = Condition::new(&*self.source).holds(context)?;
                Ok(holds.to_string())
            }
        }
    }
}

#[test]
fn templates_never_change() {
    let corpus: Corpus = serde_json::from_str(CORPUS).unwrap();
    let context = TemplateContext::of_run(&corpus.form, "a-run", "2026-03-02T09:14:05Z").unwrap();
    let context = context.with_answer("crm", Some(201), corpus.answer.as_bytes().into());
    let labels = corpus.labels.iter();
    let labels = Labels::new(labels.map(|(key, label)| (&**key, &**label)));
    let context = context.with_labels(&labels);
    assert!(corpus.cases.len() > 100);
    for case in &corpus.cases {
        let given = case.gives(&context);
        let of = case.of;
        let source = &case.source;
        assert_eq!(
            given.as_ref().ok(),
            case.gives.as_ref(),
            "{of:?} {source}: {given:?}"
        );
    }
}

//! `email.send`: an e-mail through the owner's mail server. The account fixes server and sender;
//! the definition fixes how many recipients there are. A value stays inside its recipient, its
//! header or, escaped, its part of the text.

use std::{sync::Arc, time::Duration};

use lettre::Address;
use serde_json::{Value, json};
use url::{Host, Url};

use super::{
    ActionKind, MAX_ACCOUNT, Step,
    outgoing::{BodyType, MAX_TIMEOUT, Outgoing, Request},
};
use crate::{
    diagnostics::{Diagnostics, Fields},
    template::{Escape, MAX_LENGTH, References, RenderError, Renderer, Template, Variables},
};

pub(super) const KIND: ActionKind = ActionKind {
    name: "email.send",
    steering: None,
    sends: true,
    parse: |fields| Some(Step::Send(Arc::new(parse(fields)))),
};

/// Mail servers take their time, some on purpose, half of it for the text.
const TIMEOUT: Duration = MAX_TIMEOUT;
/// Maximum number of recipients.
const MAX_RECIPIENTS: usize = 20;
/// Maximum characters of a subject.
const MAX_SUBJECT: usize = 500;
/// The text of an e-mail that has no other.
const ANSWERS: &str = "{{ form | table }}";

#[derive(Debug)]
struct Email {
    account: String,
    to: Vec<Template>,
    reply_to: Option<Template>,
    subject: Template,
    /// Its parts, each with its type.
    parts: Vec<(&'static str, Escape, Template)>,
}

fn parse(fields: &mut Fields<'_, '_>) -> Email {
    let account = fields.text("account", MAX_ACCOUNT);
    let to = recipients(fields);
    let mut optional = |name| fields.optional_text(name, MAX_LENGTH).map(Template::new);
    let reply_to = optional("reply_to");
    let text = optional("text");
    let html = optional("html");
    let answers = (text.is_none() && html.is_none()).then(|| Template::new(ANSWERS));
    let text = text.or(answers);
    let text = text.map(|text| ("text/plain", Escape::None, text));
    let html = html.map(|html| ("text/html", Escape::Html, html));
    Email {
        account,
        to,
        reply_to,
        subject: Template::parse(fields, "subject"),
        parts: text.into_iter().chain(html).collect(),
    }
}

fn recipients(fields: &mut Fields<'_, '_>) -> Vec<Template> {
    let given = fields.get("to").and_then(Value::as_array);
    let given = given.filter(|given| (1..=MAX_RECIPIENTS).contains(&given.len()));
    let texts = given.and_then(|given| given.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    if texts.is_none() {
        let problem = format_args!("must be a list of 1 to {MAX_RECIPIENTS} e-mail addresses");
        fields.add("to", problem);
    }
    let texts = texts.unwrap_or_default();
    texts.into_iter().map(Template::new).collect()
}

/// One address, without a name: a value can't make two of it. Its domain is written as mail servers
/// know it.
fn address(template: &Template, renderer: &Renderer<'_>) -> Result<Option<String>, RenderError> {
    let text = template.render(Escape::None, renderer)?;
    let usable = || {
        let (local, domain) = text.trim().rsplit_once('@')?;
        let is_local =
            |one: u8| one.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~.".contains(&one);
        let is_domain = |one: u8| one.is_ascii_alphanumeric() || b"-.".contains(&one);
        let Ok(Host::Domain(domain)) = Host::parse(domain) else {
            return None;
        };
        let is_plain = local.bytes().all(is_local) && domain.bytes().all(is_domain);
        let address = Address::new(local, domain).ok()?;
        is_plain.then(|| address.to_string())
    };
    Ok(usable())
}

fn recipient(template: &Template, renderer: &Renderer<'_>) -> Result<String, RenderError> {
    let address = address(template, renderer)?;
    address.ok_or_else(|| RenderError::new("a recipient is no e-mail address"))
}

/// One line. What would end it is a space, and what programs would read as another text is not.
fn subject(template: &Template, renderer: &Renderer<'_>) -> Result<String, RenderError> {
    let text = template
        .render(Escape::None, renderer)?
        .replace("=?", "= ?");
    if text.chars().count() > MAX_SUBJECT {
        let problem = format!("the subject has more than {MAX_SUBJECT} characters");
        return Err(RenderError::new(problem));
    }
    let visible = text
        .chars()
        .map(|one| if one.is_control() { ' ' } else { one });
    Ok(visible.collect())
}

impl Email {
    /// The templates that are an address, each with its place.
    fn addresses(&self) -> impl Iterator<Item = (String, &Template)> {
        let to = self.to.iter().enumerate();
        let to = to.map(|(index, template)| (format!("to[{index}]"), template));
        let reply_to = self.reply_to.iter();
        to.chain(reply_to.map(|template| ("reply_to".to_owned(), template)))
    }
}

impl Outgoing for Email {
    fn account(&self) -> &str {
        &self.account
    }

    fn is_mail(&self) -> bool {
        true
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }

    fn references(&self) -> References {
        let parts = self.parts.iter().map(|(.., template)| template);
        let templates = parts.chain(&self.reply_to).chain([&self.subject]);
        let references = templates.map(|template| template.references.clone());
        references.fold(self.recipients(), References::and)
    }

    fn recipients(&self) -> References {
        let references = self.to.iter().map(|one| one.references.clone());
        references.fold(References::default(), References::and)
    }

    fn check(&self, diagnostics: &mut Diagnostics, path: &str, variables: &Variables) {
        let sample = variables.sample();
        let renderer = sample.renderer();
        for (name, template) in self.addresses() {
            let place = format!("{path}.{name}");
            let is_fine = template.check(diagnostics, &place, variables, Escape::None);
            // What is fixed must be an address; what is inserted, when it is known.
            let is_fixed = !template.references.is_untrusted();
            let is_address = || address(template, &renderer).is_ok_and(|found| found.is_some());
            if is_fine && is_fixed && !is_address() {
                diagnostics.add(&place, "must be one e-mail address, without a name");
            }
        }
        let place = format!("{path}.subject");
        let is_fine = self
            .subject
            .check(diagnostics, &place, variables, Escape::None);
        let is_fixed = !self.subject.references.is_untrusted();
        if is_fine
            && is_fixed
            && let Err(error) = subject(&self.subject, &renderer)
        {
            diagnostics.add(&place, error);
        }
        for (kind, escape, template) in &self.parts {
            let name = kind.trim_start_matches("text/").replace("plain", "text");
            template.check(diagnostics, &format!("{path}.{name}"), variables, *escape);
        }
    }

    fn render(&self, base_url: &Url, renderer: &Renderer<'_>) -> Result<Request, RenderError> {
        let mut headers = Vec::with_capacity(self.to.len() + 2);
        for template in &self.to {
            headers.push(("To".to_owned(), recipient(template, renderer)?));
        }
        // A stranger who leaves it out, or can't be answered, keeps nobody from getting the e-mail.
        let reply_to = self.reply_to.as_ref();
        let reply_to = reply_to.map(|template| address(template, renderer));
        if let Some(address) = reply_to.transpose()?.flatten() {
            headers.push(("Reply-To".to_owned(), address));
        }
        headers.push(("Subject".to_owned(), subject(&self.subject, renderer)?));
        let mut parts = json!({});
        for (kind, escape, template) in &self.parts {
            parts[kind] = template.render(*escape, renderer)?.into();
        }
        Ok(Request {
            method: self.method().to_owned(),
            url: base_url.to_string(),
            headers,
            body: Some(parts.to_string()),
            body_type: BodyType::Mail,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Definition;

    /// The problems of an e-mail with these members.
    fn problems(members: &Value) -> Vec<String> {
        let mut action = json!({"id": "m", "type": "email.send", "account": "mail",
            "to": ["a@example.com"], "subject": "Hi {{ form.t }}"});
        for (name, value) in members.as_object().unwrap() {
            action[name] = value.clone();
        }
        let field = json!({"key": "t", "label": "T", "type": "text", "required": true});
        let form = json!({"title": "T", "fields": [field]});
        let definition = json!({"form": form, "actions": [action]}).to_string();
        let problems = Definition::check(&definition).err().unwrap_or_default();
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_domain_is_written_as_servers_know_it() {
        let context = crate::TemplateContext::of_run("{}", "run", "now").unwrap();
        for (given, written) in [
            (" ada@Bücher.example ", Some("ada@xn--bcher-kva.example")),
            ("ada+x@example.com", Some("ada+x@example.com")),
            ("ada@b%2Cc.example", None),
            ("ada@0x7f.1", None),
            ("ada@[127.0.0.1]", None),
            ("\"a b\"@example.com", None),
            ("ada@example.com\r\nBcc: b@example.com", None),
        ] {
            let given = Value::from(given);
            let rendered = address(
                &Template::new(format!("{{{{ {given} }}}}")),
                &context.renderer(),
            );
            assert_eq!(rendered.unwrap().as_deref(), written, "{given}");
        }
    }

    #[test]
    fn what_no_server_would_take_is_not_deployed() {
        for fine in [
            json!({}),
            json!({"to": ["a@example.com", "{{ form.t }}"], "reply_to": "{{ form.t }}@b.example"}),
            json!({"text": "{{ form | table }}", "html": "<p>{{ form.t | escape }}</p>"}),
            json!({"to": ["{% if form.t == 'x' %}a{% else %}b{% endif %}@example.com"]}),
        ] {
            assert_eq!(problems(&fine), [""; 0], "{fine}");
        }
        let no_list = "must be a list of 1 to 20 e-mail addresses";
        let no_address = "must be one e-mail address, without a name";
        let named = "Ada <b@example.com>";
        let two = "a@example.com,b@example.com";
        let long = "the subject has more than 500 characters";
        let unknown = "unknown name \"form.nope\", expected run.id, run.received_at, form.t";
        for (members, place, problem) in [
            (json!({"to": "a@example.com"}), "to", no_list),
            (json!({"to": []}), "to", no_list),
            (json!({"to": vec!["a@example.com"; 21]}), "to", no_list),
            (json!({"to": [1]}), "to", no_list),
            (json!({"to": ["a@b.example", named]}), "to[1]", no_address),
            (json!({"to": [two]}), "to[0]", no_address),
            (json!({"reply_to": "nobody"}), "reply_to", no_address),
            (json!({"subject": "a".repeat(501)}), "subject", long),
            (json!({"html": "{{ form.nope }}"}), "html", unknown),
        ] {
            let expected = format!("actions[0].{place}: {problem}");
            assert_eq!(problems(&members), [expected], "{members}");
        }
        let unknown = problems(&json!({"bcc": "a@example.com"})).concat();
        assert!(unknown.contains("unknown member \"bcc\""), "{unknown}");
    }
}

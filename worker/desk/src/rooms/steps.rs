//! What happens with a submission, as cards: an owner has each answer mailed or sent to an account
//! without JSON. Steps of other kinds stay as they were written.

use askama::Template;
use letterbox_common::{
    form::{Field, FieldType},
    ids::WorkflowId,
};
use letterbox_operator::{AccountRow, WorkflowDetail};
use serde_json::{Value, json, value::RawValue};

use super::{
    To, Visit,
    draft::{self, Members, NotSaved, arrange, form_of, free, item, owned, version, written},
    expression::{COMPARISONS, condition, value_of},
    policy::ask_first,
};
use crate::response::{Answered, Trouble, see};

#[derive(Template)]
#[template(path = "steps.html")]
struct StepsPage<'v> {
    visit: &'v Visit,
    workflow: WorkflowDetail,
    /// Of each of [`LISTS`].
    lists: [Vec<Value>; 2],
    /// The steps that could not be saved: of which of the lists, and their ids.
    tried: Tried,
    /// Whether the person may have a person asked first.
    is_owner: bool,
    fields: Vec<Field>,
    /// The accounts of the person that send e-mail, and the others.
    mail: Vec<AccountRow>,
    accounts: Vec<AccountRow>,
    version: String,
    is_saved: bool,
    not_saved: NotSaved,
}

/// The lists of steps: the member of the definition, when it happens, and what that is called
/// where a step is added.
const LISTS: [(&str, &str, &str); 2] = [
    (
        "actions",
        "With each answer, in this order",
        "with each answer",
    ),
    (
        "on_failure",
        "If something of that has failed",
        "if something has failed",
    ),
];

type Tried = (&'static str, Vec<String>);

impl StepsPage<'_> {
    fn is_chosen(&self, comparison: &str) -> bool {
        self.visit.filled("compare") == comparison
    }

    /// The place of a mistake, as the page calls it.
    fn place(&self, path: &str) -> String {
        let (list, ids) = &self.tried;
        let named = item(path, list);
        let named = named.and_then(|(at, rest)| Some(format!("{}{rest}", ids.get(at)?)));
        named.unwrap_or_else(|| path.to_owned())
    }
}

/// The steps of a list of a draft, as they are written.
fn steps(members: &Members, list: &str) -> Vec<Box<RawValue>> {
    let steps = members.get(list);
    steps
        .and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default()
}

/// The ids of a step and of those in its branches.
fn ids(step: &Value, into: &mut Vec<String>) {
    into.extend(step["id"].as_str().map(str::to_owned));
    for branch in ["then", "else"] {
        let inside = step[branch].as_array().into_iter().flatten();
        inside.for_each(|step| ids(step, into));
    }
}

/// The steps of a branch, in words.
fn branch(step: &Value, name: &str) -> String {
    let inside = step[name].as_array().into_iter().flatten();
    inside.map(in_words).collect::<Vec<_>>().join("; ")
}

/// A step in words.
fn in_words(step: &Value) -> String {
    let text = |name: &str| step[name].as_str().unwrap_or_default();
    match text("type") {
        "email.send" => {
            let to = step["to"].as_array().into_iter().flatten();
            let to: Vec<_> = to.filter_map(Value::as_str).collect();
            format!("E-mail to {}: {}", to.join(", "), text("subject"))
        }
        "http.request" => format!("{} {} of {}", text("method"), text("path"), text("account")),
        "delay" => format!("Wait {}", span(text("for"))),
        "condition" | "ai.condition" => {
            let asked = match text("type") {
                "condition" => text("if"),
                _ => text("question"),
            };
            match (branch(step, "then"), branch(step, "else")) {
                (then, otherwise) if otherwise.is_empty() => format!("If {asked}: {then}"),
                (then, otherwise) => format!("If {asked}: {then}. Otherwise: {otherwise}"),
            }
        }
        "ai.agent" => format!("Let a model work: {}", text("goal")),
        "fail" => format!("Fail: {}", text("reason")),
        other => other.to_owned(),
    }
}

/// A duration (ISO 8601) in words, if it is one that this page makes.
fn span(duration: &str) -> String {
    let units = [
        ("P", 'D', "day"),
        ("PT", 'H', "hour"),
        ("PT", 'M', "minute"),
    ];
    let told = units.into_iter().find_map(|(before, after, unit)| {
        let count: u32 = duration
            .strip_prefix(before)?
            .strip_suffix(after)?
            .parse()
            .ok()?;
        let plural = if count == 1 { "" } else { "s" };
        Some(format!("{count} {unit}{plural}"))
    });
    told.unwrap_or_else(|| duration.to_owned())
}

/// The most characters of what a step is called: an id has room for a number behind it.
const MAX_CALLED: usize = 90;

/// A step; `None` if a button only moves or removes one; otherwise why there is none.
type Posted = Result<Option<Value>, &'static str>;

/// The step that was filled in.
fn posted(visit: &Visit, fields: &[Field], ids: &[String]) -> Result<Posted, Trouble> {
    let text = |name: &str| written(visit.filled(name));
    // Keys may begin with a space.
    let answer = |name: &str| Some(visit.filled(name)).filter(|key| !key.is_empty());
    // Whoever is asked about a step, or looks at a run, reads its id.
    let free = |name: &str| {
        let called: String = text("called").chars().take(MAX_CALLED).collect();
        let name = if called.is_empty() { name } else { &called };
        free(name, '-', |name| ids.iter().all(|id| id != name))
    };
    let step = match visit.given("do")? {
        "mail" => {
            let to = Some(text("to")).filter(|to| !to.is_empty());
            let to: Vec<_> = to
                .into_iter()
                .chain(answer("to_answer").map(value_of))
                .collect();
            let mut step = json!({"id": free("mail"), "type": "email.send",
                "account": visit.filled("account"), "to": to, "subject": text("subject")});
            if let Some(key) = answer("reply_to") {
                step["reply_to"] = value_of(key).into();
            }
            let words = text("words");
            if !words.is_empty() {
                step["text"] = words.into();
            }
            step
        }
        "send" => {
            let answers = visit.asked.form.all("answer");
            let body: serde_json::Map<_, Value> = answers
                .map(|key| (key.to_owned(), value_of(key).into()))
                .collect();
            json!({"id": free("send"), "type": "http.request",
                "account": visit.filled("account"),
                "method": text("method"), "path": text("path"), "body": body})
        }
        "wait" => {
            let (long, unit) = (text("long"), text("unit"));
            let time = if unit == "D" { "" } else { "T" };
            json!({"id": free("wait"), "type": "delay", "for": format!("P{time}{long}{unit}")})
        }
        _ => return Ok(Ok(None)),
    };
    only_if(visit, fields, ids, step)
}

/// A step that happens only if an answer is as it was filled in, if one is chosen.
fn only_if(
    visit: &Visit,
    fields: &[Field],
    ids: &[String],
    step: Value,
) -> Result<Posted, Trouble> {
    let than = written(visit.filled("than"));
    let key = visit.filled("asked");
    if key.is_empty() {
        let is_compared = visit.given("do")? != "wait" && !than.is_empty();
        return Ok(match is_compared {
            true => Err("Choose which answer is compared."),
            false => Ok(Some(step)),
        });
    }
    let field = fields.iter().find(|field| field.key == key);
    let field = field.ok_or(Trouble::Unreadable)?;
    let condition = condition(field, visit.filled("compare"), &than);
    Ok(condition.map(|condition| {
        let id = draft::free("if", '-', |id| {
            step["id"] != id && ids.iter().all(|one| one != id)
        });
        Some(json!({"id": id, "type": "condition", "if": condition, "then": [step]}))
    }))
}

/// The fields of the form of a draft.
fn fields(workflow: &WorkflowDetail) -> Vec<Field> {
    form_of(workflow)
        .map(|form| form.fields)
        .unwrap_or_default()
}

async fn found(
    visit: &Visit,
    workflow: WorkflowDetail,
    (not_saved, tried): (NotSaved, Tried),
) -> Result<StepsPage<'_>, Trouble> {
    let members = Members::of(workflow.text.as_deref().unwrap_or_default());
    let accounts = visit.operator.accounts(workflow.row.workspace_id).await?;
    let own = |one: &AccountRow| one.user_id == visit.user && one.disconnected_at.is_none();
    let own = accounts.into_iter().filter(own);
    let (mail, accounts) = own.partition(|one| one.sender.is_some());
    let read = |step: Box<RawValue>| serde_json::from_str(step.get()).unwrap_or_default();
    let list = |(list, ..): (&str, _, _)| steps(&members, list).into_iter().map(read).collect();
    Ok(StepsPage {
        visit,
        lists: LISTS.map(list),
        tried,
        is_owner: visit.rights(workflow.row.workspace_id).await?.is_owner(),
        fields: fields(&workflow),
        mail,
        accounts,
        version: version(workflow.text.as_deref()),
        is_saved: visit.asked.query.get("saved").is_some(),
        workflow,
        not_saved,
    })
}

/// What happens by the draft, for who may change it.
pub(crate) async fn show(To(visit, workflow): To<WorkflowId>) -> Answered {
    let workflow = owned(&visit, workflow).await?;
    let page = found(&visit, workflow, (NotSaved::default(), Tried::default())).await?;
    Ok(visit.page("Steps", &page))
}

/// Adds, moves or removes a step.
pub(crate) async fn save(To(visit, workflow): To<WorkflowId>) -> Answered {
    let workflow = owned(&visit, workflow).await?;
    let mut members = Members::of(workflow.text.as_deref().unwrap_or_default());
    let mut taken = Vec::new();
    for (list, ..) in LISTS {
        for step in steps(&members, list) {
            ids(
                &serde_json::from_str(step.get()).unwrap_or_default(),
                &mut taken,
            );
        }
    }
    let (list, ..) = LISTS[usize::from(visit.filled("list") == LISTS[1].0)];
    let steps = steps(&members, list).into_iter();
    let mut steps: Vec<String> = steps.map(|step| step.get().to_owned()).collect();
    let posted = posted(&visit, &fields(&workflow), &taken)?;
    let mut refused = posted.as_ref().err().map(|why| (*why).to_owned());
    // A rule without its step harms less than a step without its rule.
    if refused.is_none() && visit.asked.form.get("ask").is_some() {
        let asking = ask_first(&visit, workflow.row.workspace_id, visit.given("account")?);
        refused = asking.await?.err();
    }
    if refused.is_some() {
        let not_saved = NotSaved {
            refused,
            ..NotSaved::default()
        };
        let page = found(&visit, workflow, (not_saved, Tried::default())).await?;
        return Ok(visit.refusal("Steps", &page));
    }
    match posted.ok().flatten() {
        Some(step) => steps.push(step.to_string()),
        None => arrange(&mut steps, visit.given("do")?),
    }
    let listed = steps.iter().map(|step| format!("\n    {step}"));
    let listed = listed.collect::<Vec<_>>().join(",");
    // A definition need not say what follows a failure.
    let is_said = list == LISTS[0].0 || !steps.is_empty();
    members.set(list, is_said.then(|| format!("[{listed}\n  ]")));
    match draft::save(&visit, &workflow, &members.text()).await? {
        Ok(()) => {
            let id = workflow.row.workflow_id;
            Ok(see(&format!("/forms/{id}/steps?saved=yes")))
        }
        Err(not_saved) => {
            let id = |step: &String| {
                let step: Value = serde_json::from_str(step).unwrap_or_default();
                step["id"].as_str().unwrap_or_default().to_owned()
            };
            let tried = (list, steps.iter().map(id).collect());
            let page = found(&visit, workflow, (not_saved, tried)).await?;
            Ok(visit.refusal("Steps", &page))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_told_in_words() {
        for (step, told) in [
            (
                json!({"type": "email.send", "to": ["a@x.example"], "subject": "New"}),
                "E-mail to a@x.example: New",
            ),
            (
                json!({"type": "http.request", "method": "POST", "path": "/p", "account": "crm"}),
                "POST /p of crm",
            ),
            (json!({"type": "of.tomorrow"}), "of.tomorrow"),
        ] {
            assert_eq!(in_words(&step), told);
        }
        let wait = json!({"id": "mail", "type": "delay", "for": "P2D"});
        let branched = json!({"type": "condition", "id": "c", "if": "form.vip",
            "then": [wait], "else": []});
        let told = "If form.vip: Wait 2 days";
        assert_eq!(in_words(&branched), told);
        let mut taken = Vec::new();
        ids(&branched, &mut taken);
        assert_eq!(taken, ["c", "mail"]);
    }
}

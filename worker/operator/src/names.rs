//! How people name things: by name or e-mail address, if they have one, or by the beginning or the
//! ending of an id.

use std::{any::TypeId, fmt, marker::PhantomData, str::FromStr};

use letterbox_common::ids::{
    AccountId, ApprovalId, DeliveryId, RunId, UserId, WebhookId, WorkflowId, WorkspaceId,
};
use letterbox_database::{FromRow, Statement, ask, statements};
use tokio_postgres::types::{FromSqlOwned, ToSql};
use uuid::Uuid;

use crate::{Operator, Reason, Result};

/// Digits of an id that are enough to mean it.
pub(crate) const MIN_DIGITS: usize = 4;
/// How many matches are shown: with more than one it is not clear which one is meant.
const MOST_SHOWN: usize = 5;
/// Digits of an ending of an id that are enough.
const MIN_ENDING: usize = 8;
/// How many names are looked through for a shell.
const MOST_NAMES: i64 = 10_000;
/// How many things without names a shell offers.
const MOST_OFFERED: i64 = 100;

/// Looks for the name $1, or an id from $2 to $3 that ends with $4, if that is given, in the
/// workspace $5 or in all; gives the highest $6, first of each workspace, because indexes are by
/// workspace. Names are of what is live.
macro_rules! named {
    ($shown:literal, $from:literal, $live:literal, $id:literal) => {
        concat!(
            "SELECT one.id, one.shown, one.is_live FROM workspaces w CROSS JOIN LATERAL (SELECT ",
            $id,
            " AS id, ",
            $shown,
            " AS shown, ",
            $live,
            " AS is_live FROM ",
            $from,
            " WHERE t.workspace_id = w.workspace_id AND (",
            $shown,
            " = $1 AND ",
            $live,
            " OR ",
            $id,
            " BETWEEN $2 AND $3 AND ($4::text IS NULL OR right(",
            $id,
            "::text, length($4)) = $4)) ORDER BY ",
            $id,
            " DESC LIMIT $6) AS one WHERE $5::uuid IS NULL OR w.workspace_id = $5
ORDER BY one.id DESC LIMIT $6"
        )
    };
}

statements! {
    /// Workspaces, by name.
    WORKSPACES_NAMED = workspaces_named
        named!("t.name", "workspaces t", "true", "t.workspace_id");

    /// Users, by e-mail address.
    USERS_NAMED = users_named "
SELECT user_id AS id, email AS shown, true AS is_live FROM users
WHERE (lower(email) = lower($1) OR user_id BETWEEN $2 AND $3
       AND ($4::text IS NULL OR right(user_id::text, length($4)) = $4))
  AND ($5::uuid IS NULL OR user_id IN (SELECT user_id FROM members WHERE workspace_id = $5))
ORDER BY id DESC LIMIT $6";

    /// Workflows, by the name of one that is not deleted.
    WORKFLOWS_NAMED = workflows_named
        named!("t.name", "workflows t", "t.state <> 'deleted'", "t.workflow_id");

    /// Webhooks, by the name of one that is not deleted.
    WEBHOOKS_NAMED = webhooks_named
        named!("t.name", "webhooks t", "t.deleted_at IS NULL", "t.webhook_id");

    /// Accounts, by the name of one that is connected.
    ACCOUNTS_NAMED = accounts_named
        named!("t.name", "connected_accounts t", "t.disconnected_at IS NULL", "t.account_id");

    /// Runs; they have no names.
    RUNS_NAMED = runs_named named!("t.state", "visible_runs t", "$1 = ''", "t.run_id");

    /// Approvals; they have no names.
    APPROVALS_NAMED = approvals_named
        named!("t.action_id", "approvals t", "$1 = ''", "t.approval_id");

    /// Signals; they have no names.
    SIGNALS_NAMED = signals_named named!("t.kind", "signals t", "$1 = ''", "t.signal_id");
}

/// The first and the last id of all.
const EVERY_ID: Option<(Uuid, Uuid)> = Some((Uuid::nil(), Uuid::max()));

/// Every kind of thing that can be named: how, its id, its name in messages, and what finds it.
macro_rules! nouns {
    ($($(#[$how:meta])* $noun:ident = $id:ty, $name:literal, $statement:ident;)*) => {
        /// A kind of thing that can be named.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Noun {
            $($(#[$how])* $noun),*
        }

        impl Noun {
            /// Its name in messages.
            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$noun => $name),*
                }
            }

            fn statement(self) -> &'static Statement {
                match self {
                    $(Self::$noun => &$statement),*
                }
            }

            /// The kind that an argument of this type names, and whether by name or by id only.
            pub fn named_by(argument: impl PartialEq<TypeId>) -> Option<(Self, bool)> {
                let by_name = [$((TypeId::of::<Named<$id>>(), (Self::$noun, true))),*];
                let by_id = [$((TypeId::of::<$id>(), (Self::$noun, false))),*];
                let mut all = by_name.into_iter().chain(by_id);
                all.find(|(one, _)| argument == *one).map(|(_, named)| named)
            }
        }

        $(impl NamedId for $id {
            const NOUN: Noun = Noun::$noun;
        })*
    };
}

nouns! {
    /// By its name
    Workspace = WorkspaceId, "workspace", WORKSPACES_NAMED;
    /// By the e-mail address
    User = UserId, "user", USERS_NAMED;
    /// By its name, unless it is deleted
    Workflow = WorkflowId, "workflow", WORKFLOWS_NAMED;
    /// By its name, unless it is deleted
    Webhook = WebhookId, "webhook", WEBHOOKS_NAMED;
    /// By its name, while it is connected
    Account = AccountId, "account", ACCOUNTS_NAMED;
    /// By its id only
    Run = RunId, "run", RUNS_NAMED;
    /// By its id only
    Approval = ApprovalId, "approval", APPROVALS_NAMED;
    /// By its id only
    Signal = DeliveryId, "signal", SIGNALS_NAMED;
}

impl Noun {
    /// Whether things of this kind have names or e-mail addresses.
    pub fn has_names(self) -> bool {
        !matches!(self, Self::Run | Self::Approval | Self::Signal)
    }
}

/// A name, or the beginning or ending of an id, of something that has an id of this kind.
#[derive(Debug, Clone)]
pub struct Named<I>(Box<str>, PhantomData<fn() -> I>);

impl<I> FromStr for Named<I> {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().is_empty() || text.contains('\0') {
            return Err("must be a name, or the beginning or ending of an id");
        }
        Ok(Self(text.into(), PhantomData))
    }
}

/// An id by which things are named.
pub trait NamedId: FromStr + FromSqlOwned + fmt::Display + Copy {
    /// The kind of thing that has it.
    const NOUN: Noun;
}

impl Operator {
    /// Finds the id of what a person has named. What begins so goes before what ends so. A whole id
    /// is taken as it is: the order itself finds out whether there is such a thing.
    pub async fn id<I: NamedId>(&self, named: &Named<I>) -> Result<I> {
        self.resolve(None, named).await
    }

    /// As [`Self::id`], of what need not be named, in this workspace, if one is given.
    pub async fn id_in<I: NamedId>(
        &self,
        workspace: Option<WorkspaceId>,
        named: Option<&Named<I>>,
    ) -> Result<Option<I>> {
        match named {
            Some(named) => self.resolve(workspace, named).await.map(Some),
            None => Ok(None),
        }
    }

    async fn resolve<I: NamedId>(
        &self,
        workspace: Option<WorkspaceId>,
        named: &Named<I>,
    ) -> Result<I> {
        if let Ok(id) = named.0.parse() {
            return Ok(id);
        }
        let text = &*named.0;
        let most = MOST_SHOWN as i64 + 1;
        let begun = ids_beginning_with(text);
        let found = self.named(I::NOUN, text, begun, None, workspace, most);
        let mut matches = found.await?;
        if matches.is_empty()
            && let Some(ending) = ending_of_an_id(text)
        {
            let ending = Some(ending.as_str());
            let found = self.named(I::NOUN, "", EVERY_ID, ending, workspace, most);
            matches = found.await?;
        }
        Ok(only_one(matches, I::NOUN.as_str(), text, Match::told)?.id)
    }

    /// The id of the only thing in a workspace that has this very name.
    pub(crate) async fn id_by_name<I: NamedId>(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<I> {
        let most = MOST_SHOWN as i64 + 1;
        let found = self.named(I::NOUN, name, None, None, Some(workspace), most);
        Ok(only_one(found.await?, I::NOUN.as_str(), name, Match::told)?.id)
    }

    /// The user who has this e-mail address, wherever they are a member.
    pub(crate) async fn user_by_email(&self, email: &str) -> Result<Option<UserId>> {
        let found = self.named(Noun::User, email, None, None, None, 1).await?;
        Ok(found.first().map(|one: &Match<UserId>| one.id))
    }

    /// What can be named of a kind, for a shell: ids, each with the name or e-mail address, if it
    /// has one. Of what has no names at most 100 whose ids begin so.
    pub async fn nameable(&self, noun: Noun, beginning: &str) -> Result<Vec<(Uuid, String)>> {
        let (ids, most) = match noun.has_names() {
            true => (EVERY_ID, MOST_NAMES),
            false if beginning.is_empty() => (EVERY_ID, MOST_OFFERED),
            false => (ids_beginning_with(beginning), MOST_OFFERED),
        };
        let found = self.named(noun, "", ids, None, None, most).await?;
        let live = found.into_iter().filter(|one| one.is_live);
        Ok(live.map(|one| (one.id, one.shown)).collect())
    }

    async fn named<I: FromSqlOwned>(
        &self,
        noun: Noun,
        name: &str,
        ids: Option<(Uuid, Uuid)>,
        ending: Option<&str>,
        workspace: Option<WorkspaceId>,
        limit: i64,
    ) -> Result<Vec<Match<I>>> {
        let (first, last) = ids.unzip();
        let parameters: [&(dyn ToSql + Sync); 6] =
            [&name, &first, &last, &ending, &workspace, &limit];
        ask(self, noun.statement(), &parameters).await
    }
}

/// Something that has the name, or an id that begins so.
#[derive(FromRow)]
struct Match<I: FromSqlOwned> {
    id: I,
    /// For people, to tell it from others.
    shown: String,
    /// Whether its name names it.
    is_live: bool,
}

impl<I: FromSqlOwned + fmt::Display> Match<I> {
    fn told(&self) -> String {
        format!("{} {:?}", self.id, self.shown)
    }
}

/// The only match.
pub(crate) fn only_one<T>(
    matches: Vec<T>,
    noun: &'static str,
    text: &str,
    shown: impl Fn(&T) -> String,
) -> Result<T, Reason> {
    if matches.len() > 1 {
        return Err(Reason::Ambiguous {
            text: text.to_owned(),
            meant: matches.iter().take(MOST_SHOWN).map(shown).collect(),
        });
    }
    let only = matches.into_iter().next();
    only.ok_or_else(|| Reason::not_named(noun, text))
}

/// The text as the ending of an id as it is shown; `None` if it can be none, or is so short that a
/// mistake would name something else.
fn ending_of_an_id(text: &str) -> Option<String> {
    let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
    let is_part = text
        .bytes()
        .all(|one| one == b'-' || one.is_ascii_hexdigit());
    (is_part && digits >= MIN_ENDING).then(|| text.to_ascii_lowercase())
}

/// The first and the last id that begin with this text; `None` if none does.
fn ids_beginning_with(text: &str) -> Option<(Uuid, Uuid)> {
    let digits: String = text.chars().filter(|one| *one != '-').collect();
    let is_hex = digits.bytes().all(|one| one.is_ascii_hexdigit());
    let whole = digits.len() <= 32 && Uuid::nil().to_string().len() >= text.len();
    if digits.len() < MIN_DIGITS || !is_hex || !whole || !has_its_hyphens(text) {
        return None;
    }
    let id = |filler: &str| {
        format!("{digits}{}", filler.repeat(32 - digits.len()))
            .parse()
            .ok()
    };
    Some((id("0")?, id("f")?))
}

/// Whether hyphens stand where ids have them, if there are any.
fn has_its_hyphens(text: &str) -> bool {
    let model = Uuid::nil().to_string();
    let as_shown = text
        .bytes()
        .zip(model.bytes())
        .all(|(given, model)| (given == b'-') == (model == b'-'));
    as_shown || !text.contains('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_an_id_is_one() {
        let id = RunId::generate().to_string();
        for length in MIN_DIGITS..=36 {
            let (first, last) = ids_beginning_with(&id[..length]).unwrap();
            let whole: Uuid = id.parse().unwrap();
            assert!(first <= whole && whole <= last, "{length}");
        }
        let capitals = id.to_uppercase();
        assert_eq!(ids_beginning_with(&capitals), ids_beginning_with(&id));
        let simple = id.replace('-', "");
        assert!(ids_beginning_with(&simple[..20]).is_some());
        for text in [
            "",
            "abc",
            "Acme",
            "caf-e",
            "café",
            "0123456789-",
            &format!("{id}0"),
        ] {
            assert_eq!(ids_beginning_with(text), None, "{text}");
        }
    }

    #[test]
    fn one_is_meant_or_none() {
        let thing = |id| Match {
            id,
            shown: "x".to_owned(),
            is_live: true,
        };
        let meant = |matches| only_one(matches, "user", "x", Match::told).map(|one| one.id);
        assert_eq!(meant(vec![thing(1)]), Ok(1));
        assert!(matches!(meant(vec![]), Err(Reason::NotNamed { .. })));
        let several = meant(vec![thing(1), thing(2)]);
        assert!(matches!(several, Err(Reason::Ambiguous { .. })));
    }
}

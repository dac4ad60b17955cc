//! Whatever has an id can be named by its name or e-mail address, if it has one, or by the
//! beginning of its id.

use std::{fmt, marker::PhantomData, str::FromStr};

use letterbox_common::ids::{
    AccountId, ApprovalId, DeliveryId, RunId, UserId, WebhookId, WorkflowId, WorkspaceId,
};
use tokio_postgres::types::FromSqlOwned;
use uuid::Uuid;

use crate::{
    Operator, OperatorError, Reason,
    store::{self, NamedThing, Noun},
};

/// Digits of an id that are enough to mean it.
pub(crate) const MIN_DIGITS: usize = 4;

/// How a person names something that has an id of this kind.
pub struct Named<I>(Box<str>, PhantomData<fn() -> I>);

impl<I> Clone for Named<I> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

impl<I> fmt::Debug for Named<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<I> FromStr for Named<I> {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().is_empty() || text.contains('\0') {
            true => Err("must be a name or the beginning of an id"),
            false => Ok(Self(text.into(), PhantomData)),
        }
    }
}

/// An id by which things are named.
pub trait NamedId: FromStr + FromSqlOwned + fmt::Display + Copy {
    /// What kind of thing has it.
    const NOUN: Noun;
}

macro_rules! named_ids {
    ($($id:ty => $noun:ident),* $(,)?) => {
        $(impl NamedId for $id {
            const NOUN: Noun = Noun::$noun;
        })*
    };
}

named_ids! {
    WorkspaceId => Workspace,
    UserId => User,
    WorkflowId => Workflow,
    WebhookId => Webhook,
    AccountId => Account,
    RunId => Run,
    ApprovalId => Approval,
    DeliveryId => Signal,
}

impl Operator {
    /// The id of what a person has named. A whole id is believed: whether there is such a thing,
    /// the order finds out.
    ///
    /// # Errors
    /// When nothing, or more than one thing, can be meant.
    pub async fn id<I: NamedId>(&self, named: &Named<I>) -> Result<I, OperatorError> {
        self.id_in(None, named).await
    }

    /// As [`Self::id`], of something in this workspace, where one is given.
    ///
    /// # Errors
    /// As [`Self::id`].
    pub async fn id_in<I: NamedId>(
        &self,
        workspace: Option<WorkspaceId>,
        named: &Named<I>,
    ) -> Result<I, OperatorError> {
        if let Ok(id) = named.0.parse() {
            return Ok(id);
        }
        let text = &*named.0;
        let ids = ids_beginning_with(text);
        let things = store::named(&self.database, I::NOUN, text, ids, workspace).await?;
        Ok(meant(&things, I::NOUN, text)?)
    }

    /// As [`Self::id`], of what need not be named.
    ///
    /// # Errors
    /// As [`Self::id`].
    pub async fn id_of<I: NamedId>(
        &self,
        named: Option<&Named<I>>,
    ) -> Result<Option<I>, OperatorError> {
        match named {
            Some(named) => self.id(named).await.map(Some),
            None => Ok(None),
        }
    }
}

/// The only one of these.
fn meant<I: fmt::Display + Copy>(
    things: &[NamedThing<I>],
    noun: Noun,
    text: &str,
) -> Result<I, Reason> {
    match things {
        [] => Err(Reason::NotNamed {
            noun,
            text: text.to_owned(),
        }),
        [thing] => Ok(thing.id),
        several => {
            let shown = several
                .iter()
                .map(|one| format!("{} {:?}", one.id, one.shown));
            Err(Reason::Ambiguous {
                text: text.to_owned(),
                meant: shown.collect(),
            })
        }
    }
}

/// The first and the last id that begin with this text; None where none does.
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
        let thing = |id| NamedThing {
            id,
            shown: "x".to_owned(),
        };
        let meant = |things: Vec<_>| meant(&things, Noun::User, "x");
        assert_eq!(meant(vec![thing(1)]), Ok(1));
        assert!(matches!(meant(vec![]), Err(Reason::NotNamed { .. })));
        let several = meant(vec![thing(1), thing(2)]);
        assert!(matches!(several, Err(Reason::Ambiguous { .. })));
    }
}

//! Signing in: a link shows a page that names its user, and the button on it begins a session.
//! Opening the link alone does nothing, since programs that look at mail open links, too. A link
//! that was asked for by e-mail is for the browser that has asked: nobody can have somebody else
//! begin a session that is not theirs.

use askama::Template;
use axum::response::{IntoResponse, Response};
use letterbox_common::Token;
use letterbox_operator::{LivingLink, Operator, OperatorError};

use super::{Stranger, Visit, refused};
use crate::{
    desk::Desk,
    oidc::OidcError,
    pages::page,
    request::Asked,
    response::{Answered, Trouble, see},
    session::Cookie,
};

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage<'p> {
    step: Step<'p>,
}

enum Step<'p> {
    /// How people can sign in without a link of an operator's.
    Ways {
        by_email: bool,
        issuer: Option<&'p str>,
        /// A link that is over led here.
        is_over: bool,
    },
    Link {
        token: &'p str,
        link: LivingLink,
        /// Who is signed in in this browser.
        former: Option<&'p str>,
        /// The address that was filled in before.
        given: Option<&'p str>,
    },
    /// A link is on its way.
    Asked,
}

/// The page behind a link, or one that says where links come from.
pub(crate) async fn ask(Stranger(asked, _share): Stranger) -> Answered {
    match asked.query.get("token") {
        Some(token) => behind(&asked, token).await,
        None => Ok(shown(ways(&asked.desk, false))),
    }
}

/// The page behind a link: whose session it begins, and whose it ends here.
async fn behind(asked: &Asked, token: &str) -> Answered {
    let link = match Token::parse(token) {
        Some(token) => {
            Operator::living_link(&asked.desk.database, &token, &asked.browser()).await?
        }
        None => None,
    };
    let Some(link) = link else {
        return Ok(shown(ways(&asked.desk, true)));
    };
    let former = asked.operator().await?;
    let former = former.as_ref().and_then(Operator::person);
    let former = former.map(|person| &*person.email);
    let given = asked.form.get("email");
    Ok(shown(Step::Link {
        token,
        link,
        former,
        given,
    }))
}

fn ways(desk: &Desk, is_over: bool) -> Step<'_> {
    Step::Ways {
        by_email: desk.signs_in_by_email,
        issuer: desk.oidc.as_ref().map(|oidc| &*oidc.host),
        is_over,
    }
}

fn shown(step: Step<'_>) -> Response {
    page(None, "Sign in", &SignInPage { step })
}

/// Sends the browser to the issuer.
pub(crate) async fn ask_issuer(Stranger(asked, _share): Stranger) -> Answered {
    let desk = &asked.desk;
    let oidc = desk.oidc.as_ref().ok_or(Trouble::NotFound)?;
    match oidc.begin().await {
        Ok(begun) => {
            let cookie = Cookie::SignIn.set(&begun.kept, desk.is_https());
            Ok((cookie, see(&begun.to)).into_response())
        }
        Err(error) => {
            tracing::warn!(%error, "nobody can sign in by the issuer");
            Err(refused("The issuer can't be asked now. Try again."))
        }
    }
}

/// Begins a session for the person that the issuer identified.
pub(crate) async fn come_back(Stranger(asked, _share): Stranger) -> Answered {
    let desk = &asked.desk;
    let oidc = desk.oidc.as_ref().ok_or(Trouble::NotFound)?;
    let begun = asked.kept(Cookie::SignIn);
    let query = &asked.query;
    let ending = oidc.end(asked.client, begun, query.get("state"), query.get("code"));
    let vouched = match ending.await {
        Ok(vouched) => vouched,
        Err(OidcError::TooMany) => return Err(Trouble::Busy),
        Err(error) => {
            tracing::warn!(%error, address = asked.address, "a sign-in by the issuer failed");
            return Err(refused("You were not signed in. Begin again at /sign-in."));
        }
    };
    let session = Operator::begin_session_by(&desk.database, &vouched, asked.browser()).await?;
    let session = session.ok_or_else(|| {
        refused(
            "You are no user here: whoever runs this Letterbox can make you one, with the e-mail \
             address that the issuer has verified. If you were here before, sign in by a link \
             first, and then by the issuer in the same browser.",
        )
    })?;
    let begun = Cookie::SignIn.set("", desk.is_https());
    Ok((begun, welcome(&asked, &session)).into_response())
}

/// Sends a sign-in link for this browser. The answer is the same for every address.
pub(crate) async fn send_link(Stranger(asked, _share): Stranger) -> Answered {
    let desk = &asked.desk;
    if !desk.signs_in_by_email {
        return Err(Trouble::NotFound);
    }
    let browser = asked.browser();
    let email = browser.email.ok_or(Trouble::Unreadable)?;
    // Of several links that it asks for each is for it.
    let asked_with = browser.asked_with.map_or_else(Token::generate, Ok);
    let asked_with = asked_with.map_err(OperatorError::from)?;
    Operator::ask_sign_in_link(&desk.database, &email, &asked.address, &asked_with).await?;
    let cookie = Cookie::Link.set(asked_with.expose(), desk.is_https());
    Ok((cookie, shown(Step::Asked)).into_response())
}

/// Begins a session, in place of the one that the browser may have had.
pub(crate) async fn sign_in(Stranger(asked, _share): Stranger) -> Answered {
    let given = asked.form.get("token").unwrap_or_default();
    let session = match Token::parse(given) {
        Some(link) => Operator::begin_session(&asked.desk.database, &link, asked.browser()).await?,
        None => None,
    };
    match session {
        Some(session) => Ok(welcome(&asked, &session)),
        None => behind(&asked, given).await,
    }
}

/// Ends the session everywhere.
pub(crate) async fn sign_out(visit: Visit) -> Answered {
    visit.operator.end_session().await?;
    Ok(with_session(see("/sign-in"), "", &visit.asked.desk))
}

/// Sends the browser where it was going, in its session.
fn welcome(asked: &Asked, session: &Token) -> Response {
    let wanted = with_session(see(asked.wanted()), session.expose(), &asked.desk);
    match asked.kept(Cookie::To) {
        Some(_) => (Cookie::To.set("", asked.desk.is_https()), wanted).into_response(),
        None => wanted,
    }
}

fn with_session(response: Response, token: &str, desk: &Desk) -> Response {
    (Cookie::Session.set(token, desk.is_https()), response).into_response()
}

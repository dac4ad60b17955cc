//! The door: a link shows a page, and the button on it begins a session. Opening the link alone
//! does nothing, since programs that look at mail open links, too.

use letterbox_common::Token;
use letterbox_operator::Operator;
use minijinja::{Value, context};

use super::Visit;
use crate::{
    oidc::Oidc,
    request::Asked,
    response::{Response, Trouble, WithCookie, see},
    server::Desk,
    session::{self, Begun},
};

/// The page behind a link, or one that says where links come from.
pub(crate) fn ask(desk: &Desk, asked: &Asked) -> Response {
    let token = asked.query.get("token").and_then(Token::parse);
    let token = token.as_ref().map(Token::expose);
    desk.pages
        .outside("sign_in", "Sign in", context! { token, ..ways(desk) })
}

/// How people can sign in without a link of an operator's.
fn ways(desk: &Desk) -> Value {
    let issuer = desk.oidc.as_ref().map(Oidc::name);
    context! { by_email => desk.signs_in_by_email, issuer }
}

/// Sends the browser to the issuer.
pub(crate) async fn ask_issuer(desk: &Desk) -> Result<Response, Trouble> {
    let oidc = desk.oidc.as_ref().ok_or(Trouble::NotFound)?;
    match oidc.begin().await {
        Ok(begun) => {
            let cookie = session::begun_cookie(Begun::SignIn, &begun.kept, desk.is_https());
            Ok(see(&begun.to).with_cookie(cookie))
        }
        Err(error) => {
            tracing::warn!(%error, "nobody can sign in by the issuer");
            let words = "The issuer can't be asked now. Try again.".to_owned();
            Err(Trouble::Refused(words))
        }
    }
}

/// Begins a session for whom the issuer has sent back.
pub(crate) async fn come_back(desk: &Desk, asked: &Asked) -> Result<Response, Trouble> {
    let oidc = desk.oidc.as_ref().ok_or(Trouble::NotFound)?;
    let (begun, query) = (asked.begun.as_deref(), &asked.query);
    let vouched = match oidc.end(begun, query.get("state"), query.get("code")).await {
        Ok(vouched) => vouched,
        Err(error) => {
            tracing::warn!(%error, address = asked.address, "a sign-in by the issuer failed");
            let words = "You were not signed in. Begin again at /sign-in.".to_owned();
            return Err(Trouble::Refused(words));
        }
    };
    let address = asked.address.clone();
    let session = Operator::begin_session_by(&desk.database, &vouched, address).await?;
    let session = session.ok_or_else(|| {
        let words = "You are no user here: whoever runs this Letterbox can make you one, with the \
            e-mail address that the issuer has verified.";
        Trouble::Refused(words.to_owned())
    })?;
    let begun = session::begun_cookie(Begun::SignIn, "", desk.is_https());
    Ok(with_session(see("/"), session.expose(), desk).with_cookie(begun))
}

/// Has a link sent. The page is the same whoever asks, and for whom.
pub(crate) async fn send_link(desk: &Desk, asked: &Asked) -> Result<Response, Trouble> {
    if !desk.signs_in_by_email {
        return Err(Trouble::NotFound);
    }
    let email = asked.form.get("email").ok_or(Trouble::Unreadable)?;
    Operator::ask_sign_in_link(&desk.database, email.trim(), &asked.address).await?;
    let found = context! { is_asked => true };
    Ok(desk.pages.outside("sign_in", "Sign in", found))
}

/// Begins a session, in place of the one that the browser may have had.
pub(crate) async fn sign_in(desk: &Desk, asked: &Asked) -> Result<Response, Trouble> {
    let token = asked.form.get("token").and_then(Token::parse);
    let session = match &token {
        Some(token) => {
            Operator::begin_session(&desk.database, token, asked.address.clone()).await?
        }
        None => None,
    };
    let Some(session) = session else {
        let found = context! { is_over => true, ..ways(desk) };
        return Ok(desk.pages.outside("sign_in", "Sign in", found));
    };
    Ok(with_session(see("/"), session.expose(), desk))
}

/// Ends the session everywhere.
pub(crate) async fn sign_out(visit: &Visit<'_>) -> Result<Response, Trouble> {
    visit.operator.end_session().await?;
    Ok(with_session(see("/sign-in"), "", visit.desk))
}

fn with_session(response: Response, token: &str, desk: &Desk) -> Response {
    response.with_cookie(session::cookie(token, desk.is_https()))
}

//! Signing in: a link shows a page that names its user, and the button on it begins a session.
//! Opening the link alone does nothing, since programs that look at mail open links, too. A link
//! that was asked for by e-mail is for the browser that has asked: nobody can have somebody else
//! begin a session that is not theirs.

use letterbox_common::Token;
use letterbox_operator::{Operator, OperatorError, Orderer};
use minijinja::{Value, context};

use super::Visit;
use crate::{
    desk::Desk,
    oidc::{Oidc, OidcError},
    request::Asked,
    response::{Response, Trouble, WithCookie, see},
    session::Cookie,
};

/// The page behind a link, or one that says where links come from.
pub(crate) async fn ask(desk: &Desk, asked: &Asked) -> Result<Response, Trouble> {
    match asked.query.get("token") {
        Some(token) => behind(desk, asked, token).await,
        None => Ok(desk.pages.outside("sign_in", "Sign in", ways(desk))),
    }
}

/// The page behind a link: whose session it begins, and whose it ends here.
async fn behind(desk: &Desk, asked: &Asked, token: &str) -> Result<Response, Trouble> {
    let link = match Token::parse(token) {
        Some(token) => Operator::living_link(&desk.database, &token, &asked.browser()).await?,
        None => None,
    };
    let Some(link) = link else {
        let found = context! { is_over => true, ..ways(desk) };
        return Ok(desk.pages.outside("sign_in", "Sign in", found));
    };
    let former = match &asked.session {
        Some(session) => {
            let address = asked.address.clone();
            let nothing = Orderer::default();
            Operator::in_session(&desk.database, session, address, nothing).await?
        }
        None => None,
    };
    let former = former.as_ref().and_then(Operator::person);
    let former = former.map(|person| &person.email);
    let given = asked.form.get("email");
    let found = context! { token, link, former, given };
    Ok(desk.pages.outside("sign_in", "Sign in", found))
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
            let cookie = Cookie::SignIn.set(&begun.kept, desk.is_https());
            Ok(see(&begun.to).with_cookie(cookie))
        }
        Err(error) => {
            tracing::warn!(%error, "nobody can sign in by the issuer");
            let words = "The issuer can't be asked now. Try again.".to_owned();
            Err(Trouble::Refused(words))
        }
    }
}

/// Begins a session for the person that the issuer identified.
pub(crate) async fn come_back(desk: &Desk, asked: &Asked) -> Result<Response, Trouble> {
    let oidc = desk.oidc.as_ref().ok_or(Trouble::NotFound)?;
    let begun = asked.kept(Cookie::SignIn);
    let query = &asked.query;
    let ending = oidc.end(asked.client, begun, query.get("state"), query.get("code"));
    let vouched = match ending.await {
        Ok(vouched) => vouched,
        Err(OidcError::TooMany) => return Err(Trouble::Busy),
        Err(error) => {
            tracing::warn!(%error, address = asked.address, "a sign-in by the issuer failed");
            let words = "You were not signed in. Begin again at /sign-in.".to_owned();
            return Err(Trouble::Refused(words));
        }
    };
    let session = Operator::begin_session_by(&desk.database, &vouched, asked.browser()).await?;
    let session = session.ok_or_else(|| {
        let words = "You are no user here: whoever runs this Letterbox can make you one, with the \
            e-mail address that the issuer has verified. If you were here before, sign in by a \
            link first, and then by the issuer in the same browser.";
        Trouble::Refused(words.to_owned())
    })?;
    let begun = Cookie::SignIn.set("", desk.is_https());
    Ok(with_session(see("/"), session.expose(), desk).with_cookie(begun))
}

/// Sends a sign-in link for this browser. The answer is the same for every address.
pub(crate) async fn send_link(desk: &Desk, asked: &Asked) -> Result<Response, Trouble> {
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
    let found = context! { is_asked => true };
    let page = desk.pages.outside("sign_in", "Sign in", found);
    Ok(page.with_cookie(cookie))
}

/// Begins a session, in place of the one that the browser may have had.
pub(crate) async fn sign_in(desk: &Desk, asked: &Asked) -> Result<Response, Trouble> {
    let given = asked.form.get("token").unwrap_or_default();
    let session = match Token::parse(given) {
        Some(link) => Operator::begin_session(&desk.database, &link, asked.browser()).await?,
        None => None,
    };
    match session {
        Some(session) => Ok(with_session(see("/"), session.expose(), desk)),
        None => behind(desk, asked, given).await,
    }
}

/// Ends the session everywhere.
pub(crate) async fn sign_out(visit: &Visit<'_>) -> Result<Response, Trouble> {
    visit.operator.end_session().await?;
    Ok(with_session(see("/sign-in"), "", visit.desk))
}

fn with_session(response: Response, token: &str, desk: &Desk) -> Response {
    response.with_cookie(Cookie::Session.set(token, desk.is_https()))
}

//! The door: a link shows a page, and the button on it begins a session. Opening the link alone
//! does nothing, since programs that look at mail open links, too.

use hyper::header;
use letterbox_common::Token;
use letterbox_operator::Operator;
use minijinja::context;

use super::Visit;
use crate::{
    request::Asked,
    response::{Response, Trouble, see},
    server::Desk,
    session,
};

/// The page behind a link, or one that says where links come from.
pub(crate) fn ask(desk: &Desk, asked: &Asked) -> Response {
    let token = asked.query.get("token").and_then(Token::parse);
    let token = token.as_ref().map(Token::expose);
    let by_email = desk.signs_in_by_email;
    let found = context! { token, by_email };
    desk.pages.outside("sign_in", "Sign in", found)
}

/// Has a link sent. The page is the same whoever asks, and for whom.
pub(crate) async fn send_link(desk: &Desk, asked: &Asked) -> Result<Response, Trouble> {
    if !desk.signs_in_by_email {
        return Err(Trouble::NotFound);
    }
    let email = asked.form.get("email").ok_or(Trouble::Unreadable)?;
    Operator::ask_sign_in_link(&desk.database, email.trim()).await?;
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
        let by_email = desk.signs_in_by_email;
        let found = context! { is_over => true, by_email };
        return Ok(desk.pages.outside("sign_in", "Sign in", found));
    };
    Ok(with_cookie(see("/"), session.expose(), desk))
}

/// Ends the session everywhere.
pub(crate) async fn sign_out(visit: &Visit<'_>) -> Result<Response, Trouble> {
    visit.operator.end_session().await?;
    Ok(with_cookie(see("/sign-in"), "", visit.desk))
}

fn with_cookie(mut response: Response, token: &str, desk: &Desk) -> Response {
    let cookie = session::cookie(token, desk.is_https());
    if let Some(cookie) = cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

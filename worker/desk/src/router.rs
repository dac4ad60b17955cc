//! Routes. Without a session only the pages for signing in are served.

use std::net::IpAddr;

use hyper::{HeaderMap, Request, StatusCode, body::Incoming};
use letterbox_operator::{Operator, Orderer};

use crate::{
    desk::Desk,
    places::ConnectionPlace,
    request::{Asked, Values},
    response::{Response, Trouble, content},
    rooms::{Visit, accounts, forms, people, runs, sign_in, waiting, webhooks},
    session,
};

const STYLE: &str = include_str!("../static/desk.css");

/// Answers a request, whatever it is, on the connection that has this place.
pub(crate) async fn answer(
    desk: &Desk,
    peer: IpAddr,
    place: &ConnectionPlace,
    request: Request<Incoming>,
) -> Response {
    place.begin();
    let (head, body) = request.into_parts();
    let answered = async {
        let asked = Asked::read(desk, peer, &head)?;
        match asked.path.split('/').nth(1) {
            Some("style.css") => Ok(content(StatusCode::OK, "text/css; charset=utf-8", STYLE)),
            Some("sign-in") => at_the_door(desk, asked, &head.headers, body).await,
            _ => inside(desk, asked, place, &head.headers, body).await,
        }
    };
    match answered.await {
        Ok(response) => response,
        Err(trouble) => desk.pages.trouble(&trouble),
    }
}

/// Answers a request without a session.
async fn at_the_door(
    desk: &Desk,
    mut asked: Asked,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Response, Trouble> {
    let _share = desk.strangers.take(asked.client).ok_or(Trouble::Busy)?;
    if asked.is_post {
        asked.form = Values::read_short(headers, body).await?;
    }
    let path: Vec<&str> = asked.path.split('/').skip(1).collect();
    match (asked.is_post, path.as_slice()) {
        (false, ["sign-in"]) => sign_in::ask(desk, &asked).await,
        (true, ["sign-in"]) => sign_in::sign_in(desk, &asked).await,
        (false, ["sign-in", "oidc"]) => sign_in::ask_issuer(desk).await,
        (false, ["sign-in", "oidc", "callback"]) => sign_in::come_back(desk, &asked).await,
        (true, ["sign-in", "link"]) => sign_in::send_link(desk, &asked).await,
        _ => Err(Trouble::NotFound),
    }
}

/// Answers the person in whose session this is asked. What is posted is read only then, and must
/// come from a page of the session.
async fn inside(
    desk: &Desk,
    mut asked: Asked,
    place: &ConnectionPlace,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Response, Trouble> {
    let session = asked.session.clone().ok_or(Trouble::SignedOut)?;
    let address = asked.address.clone();
    let nothing = Orderer::default();
    // The session isn't looked up yet.
    let looking_up = desk.lookups.take(asked.client).ok_or(Trouble::Busy)?;
    let person = Operator::in_session(&desk.database, &session, address, nothing).await?;
    drop(looking_up);
    let mut operator = person.ok_or(Trouble::SignedOut)?;
    let _kept = place.keep();
    let user = operator.ordered_by().ok_or(Trouble::SignedOut)?;
    let _share = desk.people.take(user).ok_or(Trouble::Busy)?;
    if asked.is_post {
        asked.form = Values::read(headers, body).await?;
        let given = asked.form.get("form_token").unwrap_or_default();
        if !session::is_form_token(&session, given) {
            return Err(Trouble::Forged);
        }
        let reason = asked.form.get("reason").map(str::to_owned);
        operator = operator.ordering(command(&asked.path), reason);
    }
    let visit = Visit {
        desk,
        asked: &asked,
        form_token: session::form_token(&session),
        operator,
    };
    route(&visit).await
}

async fn route(visit: &Visit<'_>) -> Result<Response, Trouble> {
    let path: Vec<&str> = visit.asked.path.split('/').skip(1).collect();
    match (visit.asked.is_post, path.as_slice()) {
        (true, ["sign-out"]) => sign_in::sign_out(visit).await,
        (false, [""]) => waiting::waiting(visit).await,
        (false, ["questions", id]) => waiting::question(visit, id).await,
        (true, ["questions"]) => waiting::answer(visit).await,
        (false, ["runs"]) => runs::list(visit).await,
        (false, ["runs", id]) => runs::show(visit, id).await,
        (true, ["runs", id, "cancel"]) => runs::cancel(visit, id).await,
        (true, ["runs", id, "retry"]) => runs::retry(visit, id).await,
        (false, ["forms"]) => forms::list(visit).await,
        (true, ["forms"]) => forms::create(visit).await,
        (false, ["forms", "new"]) => forms::new(visit).await,
        (false, ["forms", id]) => forms::show(visit, id).await,
        (true, ["forms", id, "deploy"]) => forms::deploy(visit, id).await,
        (true, ["forms", id, "link"]) => forms::link(visit, id).await,
        (false, ["forms", id, "link"]) => forms::new_link(visit, id).await,
        (true, ["forms", id, "end-link"]) => forms::end_link(visit, id).await,
        (true, ["forms", id, verb]) => forms::move_to(visit, id, verb).await,
        (false, ["accounts"]) => accounts::list(visit).await,
        (true, ["accounts"]) => accounts::connect(visit).await,
        (true, ["accounts", "oauth"]) => accounts::connect_by_grant(visit).await,
        (false, ["accounts", "callback", host]) => accounts::come_back(visit, host).await,
        (true, ["accounts", "callback"]) => accounts::hand_in(visit).await,
        (false, ["accounts", id, "authorize"]) => accounts::authorize(visit, id).await,
        (true, ["accounts", id, "rotate"]) => accounts::rotate(visit, id).await,
        (true, ["accounts", id, "disconnect"]) => accounts::disconnect(visit, id).await,
        (false, ["webhooks"]) => webhooks::list(visit).await,
        (true, ["webhooks"]) => webhooks::create(visit).await,
        (false, ["webhooks", id]) => webhooks::show(visit, id).await,
        (false, ["webhooks", id, "new"]) => webhooks::new(visit, id).await,
        (true, ["webhooks", id, "replace"]) => webhooks::replace(visit, id).await,
        (true, ["webhooks", id, "delete"]) => webhooks::delete(visit, id).await,
        (false, ["me"]) => Ok(people::me(visit)),
        (true, ["me"]) => people::call_me(visit).await,
        (false, ["people"]) => people::list(visit).await,
        (true, ["people"]) => people::invite(visit).await,
        (true, ["people", "change"]) => people::change(visit).await,
        (true, ["people", "policy"]) => people::policy(visit).await,
        (true, ["people", "notices"]) => people::notices(visit).await,
        _ => Err(Trouble::NotFound),
    }
}

/// What the audit log calls what was posted: the path without its ids.
fn command(path: &str) -> String {
    let words = path
        .split('/')
        .filter(|word| !word.is_empty() && word.len() < 36);
    let words: Vec<_> = words.collect();
    format!("desk {}", words.join(" "))
}

//! Who answers which request. Whoever is not signed in sees how to, and nothing else.

use std::net::IpAddr;

use hyper::{Request, StatusCode, body::Incoming};
use letterbox_operator::{Operator, Orderer};

use crate::{
    request::Asked,
    response::{Response, Trouble, content},
    rooms::{Visit, accounts, forms, people, runs, sign_in, waiting, webhooks},
    server::Desk,
    session,
};

const STYLE: &str = include_str!("../static/desk.css");

impl Desk {
    /// Whether browsers reach the desk over TLS.
    pub(crate) fn is_https(&self) -> bool {
        self.origin.starts_with("https:")
    }
}

/// Answers a request, whatever it is.
pub(crate) async fn answer(desk: &Desk, peer: IpAddr, request: Request<Incoming>) -> Response {
    let answered = async {
        let asked = Asked::read(desk, peer, request).await?;
        route(desk, &asked).await
    };
    match answered.await {
        Ok(response) => response,
        Err(trouble) => desk.pages.trouble(&trouble),
    }
}

async fn route(desk: &Desk, asked: &Asked) -> Result<Response, Trouble> {
    let path: Vec<&str> = asked.path.split('/').skip(1).collect();
    match (asked.is_post, path.as_slice()) {
        (false, ["style.css"]) => {
            let style = "text/css; charset=utf-8";
            return Ok(content(StatusCode::OK, style, STYLE));
        }
        (false, ["sign-in"]) => return Ok(sign_in::ask(desk, asked)),
        (true, ["sign-in"]) => return sign_in::sign_in(desk, asked).await,
        (false, ["sign-in", "oidc"]) => return sign_in::ask_issuer(desk).await,
        (false, ["sign-in", "oidc", "callback"]) => return sign_in::come_back(desk, asked).await,
        (true, ["sign-in", "link"]) => return sign_in::send_link(desk, asked).await,
        _ => {}
    }
    let visit = visit(desk, asked).await?;
    match (asked.is_post, path.as_slice()) {
        (true, ["sign-out"]) => sign_in::sign_out(&visit).await,
        (false, [""]) => waiting::waiting(&visit).await,
        (false, ["questions", id]) => waiting::question(&visit, id).await,
        (true, ["questions"]) => waiting::answer(&visit).await,
        (false, ["runs"]) => runs::list(&visit).await,
        (false, ["runs", id]) => runs::show(&visit, id).await,
        (true, ["runs", id, "cancel"]) => runs::cancel(&visit, id).await,
        (true, ["runs", id, "retry"]) => runs::retry(&visit, id).await,
        (false, ["forms"]) => forms::list(&visit).await,
        (true, ["forms"]) => forms::create(&visit).await,
        (false, ["forms", "new"]) => forms::new(&visit).await,
        (false, ["forms", id]) => forms::show(&visit, id).await,
        (true, ["forms", id, "deploy"]) => forms::deploy(&visit, id).await,
        (true, ["forms", id, "link"]) => forms::link(&visit, id).await,
        (true, ["forms", id, "end-link"]) => forms::end_link(&visit, id).await,
        (true, ["forms", id, verb]) => forms::move_to(&visit, id, verb).await,
        (false, ["accounts"]) => accounts::list(&visit).await,
        (true, ["accounts"]) => accounts::connect(&visit).await,
        (true, ["accounts", "oauth"]) => accounts::connect_by_grant(&visit).await,
        (false, ["accounts", "let-in", host]) => accounts::come_back(&visit, host).await,
        (true, ["accounts", "let-in"]) => accounts::hand_in(&visit).await,
        (false, ["accounts", id, "let-in"]) => accounts::let_in(&visit, id).await,
        (true, ["accounts", id, "rotate"]) => accounts::rotate(&visit, id).await,
        (true, ["accounts", id, "disconnect"]) => accounts::disconnect(&visit, id).await,
        (false, ["webhooks"]) => webhooks::list(&visit).await,
        (true, ["webhooks"]) => webhooks::create(&visit).await,
        (false, ["webhooks", id]) => webhooks::show(&visit, id).await,
        (true, ["webhooks", id, "replace"]) => webhooks::replace(&visit, id).await,
        (true, ["webhooks", id, "delete"]) => webhooks::delete(&visit, id).await,
        (false, ["people"]) => people::list(&visit).await,
        (true, ["people"]) => people::invite(&visit).await,
        (true, ["people", "change"]) => people::change(&visit).await,
        (true, ["people", "policy"]) => people::policy(&visit).await,
        (true, ["people", "notices"]) => people::notices(&visit).await,
        _ => Err(Trouble::NotFound),
    }
}

/// The person in whose session this is asked. What is posted must come from a page of it.
async fn visit<'a>(desk: &'a Desk, asked: &'a Asked) -> Result<Visit<'a>, Trouble> {
    let session = asked.session.as_ref().ok_or(Trouble::SignedOut)?;
    let given = asked.form.get("form_token").unwrap_or_default();
    if asked.is_post && !session::is_form_token(session, given) {
        return Err(Trouble::Forged);
    }
    let orderer = Orderer {
        by: None,
        command: asked.is_post.then(|| command(&asked.path)),
        reason: asked.form.get("reason").map(str::to_owned),
    };
    let address = asked.address.clone();
    let operator = Operator::in_session(&desk.database, session, address, orderer).await?;
    let operator = operator.ok_or(Trouble::SignedOut)?;
    Ok(Visit {
        desk,
        asked,
        form_token: session::form_token(session),
        operator,
    })
}

/// What the audit log calls what was posted: the path without its ids.
fn command(path: &str) -> String {
    let words = path
        .split('/')
        .filter(|word| !word.is_empty() && word.len() < 36);
    let words: Vec<_> = words.collect();
    format!("desk {}", words.join(" "))
}

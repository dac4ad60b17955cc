//! Routes. A room takes a [`Visit`], which there is only in a session: without one, only the pages
//! for signing in are served.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::Request,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use letterbox_operator::Move;
use tower::ServiceExt;

use crate::{
    desk::Desk,
    oidc,
    request::Connection,
    response::{HEADERS, Trouble},
    rooms::{
        Visit, accounts, answers, form_link, forms, history, people, person, policy, preview,
        questions, rehearsal, runs, sign_in, steps, waiting, webhooks,
    },
};

const STYLE: &str = include_str!("../static/desk.css");
/// How long a request may take, with its body and its answer's making.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The routes of a desk, for requests that come with their [`Connection`].
pub(crate) fn router(desk: Arc<Desk>) -> Router {
    Router::new()
        .route("/style.css", get(style))
        .route("/sign-in", get(sign_in::ask).post(sign_in::sign_in))
        .route("/sign-in/oidc", get(sign_in::ask_issuer))
        .route(oidc::CALLBACK, get(sign_in::come_back))
        .route("/sign-in/link", post(sign_in::send_link))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/", get(waiting::waiting))
        .route("/questions", post(waiting::answer))
        .route("/questions/{id}", get(waiting::question))
        .route("/runs", get(runs::list))
        .route("/runs/{id}", get(runs::show))
        .route("/runs/{id}/cancel", post(runs::cancel))
        .route("/runs/{id}/retry", post(runs::retry))
        .merge(forms())
        .route("/accounts", get(accounts::list).post(accounts::connect))
        .route("/accounts/oauth", post(accounts::connect))
        .route("/accounts/callback", post(accounts::hand_in))
        .route("/accounts/callback/{host}", get(accounts::come_back))
        .route("/accounts/{id}/authorize", get(accounts::authorize))
        .route("/accounts/{id}/rotate", post(accounts::rotate))
        .route("/accounts/{id}/try", post(accounts::try_it))
        .route("/accounts/{id}/disconnect", post(accounts::disconnect))
        .route("/webhooks", get(webhooks::list).post(webhooks::create))
        .route("/webhooks/{id}", get(webhooks::show))
        .route("/webhooks/{id}/new", get(webhooks::new))
        .route("/webhooks/{id}/secret", post(webhooks::set_secret))
        .route("/webhooks/{id}/replace", post(webhooks::replace))
        .route("/signals/{id}", get(webhooks::signal))
        .route("/webhooks/{id}/delete", post(webhooks::delete))
        .route("/me", get(people::me).post(people::call_me))
        .route("/people", get(people::list).post(people::invite))
        .route("/person", get(person::show).post(person::erase))
        .route("/people/change", post(people::change))
        .route("/people/notices", post(people::notices))
        .route("/policy", get(policy::show).post(policy::change))
        .route("/history", get(history::list))
        .fallback(nothing)
        .method_not_allowed_fallback(nothing)
        .with_state(desk)
}

/// Forms: what they ask and do, who reaches them, and what was answered.
fn forms() -> Router<Arc<Desk>> {
    Router::new()
        .route("/forms", get(forms::list).post(forms::create))
        .route("/forms/new", get(forms::new))
        .route("/forms/{id}", get(forms::show))
        .route("/forms/{id}/answers", get(answers::list))
        .route("/forms/{id}/answers.csv", get(answers::file))
        .route(
            "/forms/{id}/questions",
            get(questions::show).post(questions::save),
        )
        .route("/previews/{id}", get(preview::show))
        .route("/previews/forms/{*file}", get(preview::file))
        .route("/forms/{id}/steps", get(steps::show).post(steps::save))
        .route(
            "/forms/{id}/rehearsal",
            get(rehearsal::ask).post(rehearsal::show),
        )
        .route("/forms/{id}/deploy", post(forms::deploy))
        .route(
            "/forms/{id}/link",
            get(form_link::show).post(form_link::make),
        )
        .route("/forms/{id}/end-link", post(form_link::end))
        .route(
            "/forms/{id}/pause",
            post(|to| forms::move_to(to, Move::Pause)),
        )
        .route(
            "/forms/{id}/activate",
            post(|to| forms::move_to(to, Move::Activate)),
        )
        .route(
            "/forms/{id}/draft",
            post(|to| forms::move_to(to, Move::Draft)),
        )
        .route("/forms/{id}/copy", post(forms::copy))
        .route("/forms/{id}/delete", post(forms::delete))
}

async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE).into_response()
}

async fn nothing(_: Visit) -> Trouble {
    Trouble::NotFound
}

/// Answers a request, in any case within its time.
pub(crate) async fn answer(
    router: Router,
    connection: Connection,
    mut request: Request,
) -> Result<Response, Infallible> {
    connection.place.begin();
    request.extensions_mut().insert(connection);
    let answered = tokio::time::timeout(REQUEST_TIMEOUT, router.oneshot(request)).await;
    let mut response = answered.unwrap_or_else(|_| Ok(Trouble::Unavailable.into_response()))?;
    // Around the router, which says of a known path what else it takes.
    let headers = response.headers_mut();
    headers.remove(header::ALLOW);
    for (name, value) in HEADERS {
        let own = headers.entry(name);
        own.or_insert(HeaderValue::from_static(value));
    }
    Ok(response)
}

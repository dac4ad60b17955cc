//! What an answer, or its absence, means for an action, and how long the action rests before its
//! next attempt.

use std::time::Duration;

use letterbox_workflow::actions::{Branch, Conclusion, Outgoing};
use uuid::Uuid;

use super::{send::UNAUTHORIZED, transition::AttemptEnd};
use crate::egress::{EgressError, HttpResponse};

/// Longest pause between two attempts, whether an account asks for it or not.
const MAX_PAUSE: Duration = Duration::from_secs(3600);

/// What becomes of an action after an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Done {
        branch: Option<Branch>,
        status: u16,
    },
    /// Another attempt would end the same way, or there were enough.
    Fail {
        reason: String,
        status: Option<u16>,
        end: AttemptEnd,
    },
    /// Another attempt may succeed. `after` is what the answer asks to wait.
    Retry {
        error: String,
        status: Option<u16>,
        after: Option<Duration>,
        end: AttemptEnd,
    },
}

impl Verdict {
    /// It was sent with a token that has ended: it is sent again with the next one.
    pub(super) fn refused_token(status: u16) -> Self {
        Self::Retry {
            error: "its token was refused, and is renewed".to_owned(),
            status: Some(status),
            after: Some(Duration::ZERO),
            end: AttemptEnd::NotDone,
        }
    }

    /// One word for metrics.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Done { .. } => "done",
            Self::Fail { .. } => "failed",
            Self::Retry { .. } => "retry",
        }
    }
}

/// Judges the attempt with this number, counted from 1, of at most `max_attempts`.
pub(super) fn judge(
    outgoing: &dyn Outgoing,
    sent: &Result<HttpResponse, EgressError>,
    attempt: i32,
    max_attempts: i32,
) -> Verdict {
    let done = |branch, status| Verdict::Done { branch, status };
    let fail = |reason, status, end| Verdict::Fail {
        reason,
        status,
        end,
    };
    let answered = AttemptEnd::Answered;
    let not_done = AttemptEnd::NotDone;
    let unknown = AttemptEnd::Unknown;
    // What another attempt may mend goes on; everything else is final.
    let (error, status, after, end) = match sent {
        Ok(response @ HttpResponse { status, .. }) => match *status {
            status if outgoing.is_answer(status) => match outgoing
                .conclude(&response.body, response.is_complete)
            {
                Conclusion::Done => return done(None, status),
                Conclusion::Chose(branch) => return done(Some(branch), status),
                Conclusion::Failed(reason) => return fail(reason, Some(status), answered),
                Conclusion::Incomplete => ("the answer broke off".to_owned(), None, None, unknown),
            },
            status if outgoing.is_mail() => match mail_refusal(response) {
                (error, true) => (error, Some(status), None, not_done),
                (reason, false) => return fail(reason, Some(status), not_done),
            },
            // Too many requests, or a server in trouble: it may be well later.
            429 | 500.. => {
                let after = response.retry_after;
                let end = end_of(*status);
                (answered_with(response), Some(*status), after, end)
            }
            status => return fail(answered_with(response), Some(status), end_of(status)),
        },
        Err(EgressError::Refused(reason)) => return fail(reason.clone(), None, not_done),
        Err(EgressError::NotSent(error)) => (error.clone(), None, None, not_done),
        Err(EgressError::Failed(error)) => (error.clone(), None, None, unknown),
    };
    if attempt >= max_attempts {
        let reason = format!("{error}; given up after {attempt} attempts");
        return fail(reason, status, end);
    }
    Verdict::Retry {
        error,
        status,
        after,
        end,
    }
}

/// What the code of a mail server means that has not taken the e-mail: with 4xx it may later.
fn mail_refusal(response: &HttpResponse) -> (String, bool) {
    let status = response.status;
    // Of its words only the code in them (RFC 3463): the rest is told where answers are.
    let words = String::from_utf8_lossy(&response.body);
    let code = words.split(' ').next().unwrap_or_default();
    let is_code =
        code.split('.').count() == 3 && code.bytes().all(|one| one.is_ascii_digit() || one == b'.');
    let code = if is_code {
        format!(" {code}")
    } else {
        String::new()
    };
    match status {
        UNAUTHORIZED => {
            let reason = format!("the mail server refuses the account's password or token{code}");
            (reason, false)
        }
        _ => {
            let reason = format!("the mail server answered {status}{code}");
            (reason, status < 500)
        }
    }
}

/// What is known after an answer with this status, which is not 2xx.
fn end_of(status: u16) -> AttemptEnd {
    match status {
        // A 5xx may come from a proxy in front of a server that did the work.
        500.. => AttemptEnd::Unknown,
        // These come from a proxy or rate limiter, or because an earlier attempt is in progress.
        ..=399 | 401 | 403 | 404 | 407..=409 | 421 | 423 | 425 | 429 => AttemptEnd::NotDone,
        _ => AttemptEnd::Answered,
    }
}

/// What an answer that is a failure says: its status, and where it redirects: that is not followed.
fn answered_with(response: &HttpResponse) -> String {
    let status = response.status;
    let location = response
        .location
        .as_ref()
        .filter(|_| (300..400).contains(&status));
    match location {
        Some(server) => format!("answered with status {status}: moved to {server}"),
        None if status == UNAUTHORIZED => {
            format!("answered with status {status}: it refuses the account's credential")
        }
        None => format!("answered with status {status}"),
    }
}

/// How long nothing is sent after so many attempts: as long as the answer `asks`, or `first`,
/// doubled after each attempt, and jittered by up to a quarter, so that many runs do not come back
/// together.
pub(super) fn pause_between(asks: Option<Duration>, first: Duration, attempts: i32) -> Duration {
    if let Some(asks) = asks {
        return asks.min(MAX_PAUSE);
    }
    let doublings = attempts.clamp(1, 16) - 1;
    let pause = first.saturating_mul(1 << doublings).min(MAX_PAUSE);
    let random = Uuid::new_v4().as_bytes()[0];
    pause.mul_f64(f64::from(random) / 512.0 + 0.75)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use letterbox_workflow::{actions::Step, release::Release};

    use super::*;

    fn outgoing(action: &str) -> Arc<dyn Outgoing> {
        let mut release = Release::parse(&format!("[{action}]"), None).unwrap();
        match release.actions.remove(0).step {
            Step::Send(outgoing) => outgoing,
            _ => panic!("{action} sends nothing"),
        }
    }

    fn answer(status: u16, body: &str) -> Result<HttpResponse, EgressError> {
        let body = body.as_bytes().to_vec();
        Ok(HttpResponse {
            status,
            retry_after: None,
            location: None,
            media_type: None,
            body,
            is_complete: true,
        })
    }

    /// What is known after an answer with this status, or after none.
    fn end(status: Option<u16>) -> AttemptEnd {
        match status {
            Some(300 | 404 | 429) => AttemptEnd::NotDone,
            Some(200 | 400 | 422) => AttemptEnd::Answered,
            _ => AttemptEnd::Unknown,
        }
    }

    fn fail(reason: &str, status: Option<u16>) -> Verdict {
        Verdict::Fail {
            reason: reason.to_owned(),
            status,
            end: end(status),
        }
    }

    fn retry(error: &str, status: Option<u16>) -> Verdict {
        Verdict::Retry {
            error: error.to_owned(),
            status,
            after: None,
            end: end(status),
        }
    }

    #[test]
    fn a_request_is_done_tried_again_or_failed() {
        let request = outgoing(
            r#"{"id":"a","type":"http.request","account":"c","method":"POST","path":"/"}"#,
        );
        let done = |status| Verdict::Done {
            branch: None,
            status,
        };
        let refused = Err(EgressError::Refused("private".into()));
        let broken = || Err(EgressError::Failed("no connection".into()));
        for (sent, attempt, expected) in [
            (answer(200, ""), 1, done(200)),
            (answer(299, "anything"), 6, done(299)),
            (
                answer(300, ""),
                1,
                fail("answered with status 300", Some(300)),
            ),
            (
                answer(404, ""),
                1,
                fail("answered with status 404", Some(404)),
            ),
            (
                answer(429, ""),
                1,
                retry("answered with status 429", Some(429)),
            ),
            (
                answer(500, ""),
                9,
                retry("answered with status 500", Some(500)),
            ),
            (
                answer(599, ""),
                1,
                retry("answered with status 599", Some(599)),
            ),
            (
                answer(503, ""),
                10,
                fail(
                    "answered with status 503; given up after 10 attempts",
                    Some(503),
                ),
            ),
            (
                refused,
                1,
                Verdict::Fail {
                    reason: "private".into(),
                    status: None,
                    end: AttemptEnd::NotDone,
                },
            ),
            (broken(), 1, retry("no connection", None)),
            (
                broken(),
                10,
                fail("no connection; given up after 10 attempts", None),
            ),
        ] {
            let shown = format!("{sent:?} at attempt {attempt}");
            assert_eq!(
                judge(request.as_ref(), &sent, attempt, 10),
                expected,
                "{shown}"
            );
        }
        let after = Some(Duration::from_secs(7));
        let busy = HttpResponse {
            status: 429,
            retry_after: after,
            location: None,
            media_type: None,
            body: vec![],
            is_complete: true,
        };
        let mut moved = answer(308, "").unwrap();
        moved.location = Some("https://new.example".to_owned());
        let told = "answered with status 308: moved to https://new.example";
        let mut verdict = fail(told, Some(308));
        if let Verdict::Fail { end, .. } = &mut verdict {
            *end = AttemptEnd::NotDone;
        }
        assert_eq!(judge(request.as_ref(), &Ok(moved), 1, 10), verdict);
        let verdict = judge(request.as_ref(), &Ok(busy), 1, 10);
        assert!(matches!(verdict, Verdict::Retry { after: given, .. } if given == after));
    }

    #[test]
    fn a_status_that_is_expected_is_an_answer() {
        let request = outgoing(
            r#"{"id":"a","type":"http.request","account":"c","method":"GET","path":"/",
                "expect":[200,404]}"#,
        );
        for (status, is_done) in [(200, true), (204, true), (404, true), (400, false)] {
            let verdict = judge(request.as_ref(), &answer(status, ""), 1, 10);
            assert_eq!(verdict.label() == "done", is_done, "{status}");
        }
    }

    #[test]
    fn a_model_chooses_or_fails() {
        let asking = outgoing(
            r#"{"id":"a","type":"ai.condition","account":"c","model":"m","question":"?",
                "input":"x"}"#,
        );
        let chat = |content: &str| {
            serde_json::json!({"choices": [{"message": {"content": content}}]}).to_string()
        };
        let yes = Verdict::Done {
            branch: Some(Branch::Then),
            status: 200,
        };
        assert_eq!(
            judge(asking.as_ref(), &answer(200, &chat("Yes.")), 1, 10),
            yes
        );
        let verdict = judge(asking.as_ref(), &answer(200, &chat("maybe")), 1, 10);
        let neither = "the model answered neither yes nor no";
        assert_eq!(verdict, fail(neither, Some(200)));
        let mut cut = answer(200, &chat("yes")).unwrap();
        cut.is_complete = false;
        let broke_off = Verdict::Retry {
            error: "the answer broke off".into(),
            status: None,
            after: None,
            end: AttemptEnd::Unknown,
        };
        assert_eq!(judge(asking.as_ref(), &Ok(cut), 1, 10), broke_off);
    }

    #[test]
    fn pauses_double_up_to_an_hour_and_are_not_all_the_same() {
        let second = Duration::from_secs(1);
        for (attempts, seconds) in [(1, 1.0), (2, 2.0), (3, 4.0), (12, 2048.0), (13, 3600.0)] {
            let pauses = (0..200).map(|_| pause_between(None, second, attempts).as_secs_f64());
            let mut least = f64::MAX;
            let mut most = 0.0_f64;
            for pause in pauses {
                (least, most) = (least.min(pause), most.max(pause));
            }
            assert!(least >= seconds * 0.75 && most <= seconds * 1.25);
            assert!(least < seconds * 0.9 && most > seconds * 1.1);
        }
        assert!(pause_between(None, second, i32::MAX) > Duration::from_secs(2_699));
        assert_eq!(pause_between(Some(second * 10), second, 9), second * 10);
        let an_hour = Duration::from_secs(3_600);
        assert_eq!(pause_between(Some(an_hour * 24), second, 1), an_hour);
    }
}

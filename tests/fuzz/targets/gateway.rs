//! Targets of the gateway: the heads and bodies of requests, JSON, submissions.

use std::{cell::RefCell, sync::LazyLock};

use bytes::Bytes;
use hyper::{Version, header, http::request::Parts};
use letterbox_common::{
    form::{Form, ascii_address},
    json_object,
};
use letterbox_gateway::{fuzzing, validation};
use letterbox_tests::DEFINITION;
use letterbox_workflow::{Definition, TemplateContext};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::Runtime,
    task::yield_now,
};

use super::{grammar::is_json, text};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap()
});

/// A form with a field of each type.
static FORM: LazyLock<Form> = LazyLock::new(|| {
    let definition = Definition::check(DEFINITION).unwrap();
    serde_json::from_str(&definition.form_json()).unwrap()
});

type Taken = Vec<(Parts, Bytes)>;

/// What is sent in a connection is taken as its headers say, and answered by the service itself.
/// How it is cut into pieces makes no difference; the first byte says how.
pub(super) fn http(input: &[u8]) {
    let Some((piece, input)) = input.split_first() else {
        return;
    };
    // hyper leaves the beginning of HTTP/2 without an answer; the listener looks for it by itself.
    if input.windows(14).any(|part| part == b"PRI * HTTP/2.0") {
        return;
    }
    // A head that never ends is answered or not, as its pieces come.
    let input = &[input, b"\r\n\r\n"].concat();
    let (answers, taken) = served(input, input.len().max(1));
    for (head, body) in &taken {
        let all = |name| head.headers.get_all(name).iter().collect::<Vec<_>>();
        assert!(all(header::HOST).len() == 1 || head.version < Version::HTTP_11);
        let is_chunked = !all(header::TRANSFER_ENCODING).is_empty();
        match (is_chunked, &all(header::CONTENT_LENGTH)[..]) {
            (true, lengths) => assert!(lengths.is_empty() && is_inside(body, input)),
            (false, []) => assert!(body.is_empty()),
            (false, lengths) => {
                assert_eq!(lengths.len(), 1);
                assert_eq!(lengths[0].to_str().unwrap().parse(), Ok(body.len()));
                assert!(body.is_empty() || input.windows(body.len()).any(|part| part == body));
            }
        }
    }
    let (in_pieces, taken_in_pieces) = served(input, usize::from(*piece % 64) + 1);
    assert_eq!(statuses(&answers), statuses(&in_pieces));
    let bodies = |taken: &Taken| Vec::from_iter(taken.iter().map(|(_, body)| body.clone()));
    assert_eq!(bodies(&taken), bodies(&taken_in_pieces));
}

/// Sends bytes in pieces of this size; returns the answers, and the requests that were taken.
fn served(input: &[u8], piece: usize) -> (String, Taken) {
    let (near, far) = tokio::io::duplex(1 << 20);
    let (mut reading, mut writing) = tokio::io::split(near);
    let (taken, mut answers) = (RefCell::default(), Vec::new());
    let taken: &RefCell<Taken> = &taken;
    let sending = async {
        for piece in input.chunks(piece) {
            let _ = writing.write_all(piece).await;
            yield_now().await;
        }
        // An end that arrives before the answers would be taken for a peer that went away.
        for _ in 0..64 {
            yield_now().await;
        }
        let _ = writing.shutdown().await;
    };
    let serving = fuzzing::serve(far, |head, body| taken.borrow_mut().push((head, body)));
    let receiving = reading.read_to_end(&mut answers);
    let _ = RUNTIME.block_on(async { tokio::join!(sending, serving, receiving) });
    (String::from_utf8(answers).unwrap(), taken.take())
}

/// The statuses of answers, each of which is as every answer of the service.
fn statuses(answers: &str) -> Vec<u16> {
    let answers = answers.replace("HTTP/1.0 ", "HTTP/1.1 ");
    let answers = answers.split("HTTP/1.1 ").skip(1);
    let statuses = answers.map(|answer| {
        let status = answer[..3].parse().unwrap();
        assert!([100, 200, 400, 413, 414, 431].contains(&status), "{answer}");
        let is_ours = answer.contains("\r\nx-content-type-options: nosniff\r\n");
        assert!(is_ours || status == 100, "{answer}");
        let has_envelope = answer.contains("\r\n\r\n{\"error\":{\"code\":\"");
        let has_no_body = answer.ends_with("\r\n\r\n");
        assert!(has_envelope || status < 400 || has_no_body, "{answer}");
        // A length that is absurd is told from a long head only if it arrives in one piece.
        if status == 431 { 413 } else { status }
    });
    statuses.filter(|status| *status != 100).collect()
}

/// Whether the bytes are all there, in their order.
fn is_inside(bytes: &[u8], all: &[u8]) -> bool {
    let mut all = all.iter();
    bytes.iter().all(|byte| all.any(|other| other == byte))
}

/// What is taken for JSON is what the grammar says. The members of an object are found as they were
/// written, numbers digit for digit, and are those that another parser finds.
pub(super) fn json(input: &[u8]) {
    let taken = fuzzing::json(input);
    assert_eq!(taken.is_some(), text(input).is_some() && is_json(input));
    let Some((text, members)) = taken.and_then(|text| Some((text, json_object::all(text)?))) else {
        return;
    };
    let mut rest = text;
    for (name, value) in &members {
        let begin = rest.find(value.get()).expect("it is as it was written");
        rest = &rest[begin + value.get().len()..];
        assert!(is_json(value.get().as_bytes()), "{name:?}");
    }
    // Not every JSON is a value: not that with numbers that no double holds.
    let Ok(Value::Object(known)) = serde_json::from_str(text) else {
        return;
    };
    for (name, value) in &known {
        let [found] = json_object::find(text, [name]).unwrap();
        let found: Value = serde_json::from_str(found.unwrap().get()).unwrap();
        assert_eq!(found, *value);
    }
}

/// What is taken of a submission is what it says. What fits the form is written anew in a way that
/// fits it again, with the digits of its numbers, and a run can begin with it.
pub(super) fn submission(input: &[u8]) {
    let Some((token, key, payload)) = fuzzing::submission(input) else {
        return;
    };
    assert!((20..=200).contains(&token.expose().chars().count()));
    assert!((1..=120).contains(&key.chars().count()));
    if let Ok(said) = serde_json::from_slice::<Value>(input) {
        assert_eq!(said["token"], token.expose());
        assert_eq!(said["idempotencyKey"], key);
    }
    let Ok(valid) = validation::validate(&FORM, payload) else {
        return;
    };
    let valid = text(&valid).unwrap();
    let [seats] = json_object::find(payload.get(), ["seats"]).unwrap();
    let [kept] = json_object::find(valid, ["seats"]).unwrap();
    assert_eq!(seats.map(|it| it.get()), kept.map(|it| it.get()));
    // Of values under one name the last counts; the others may be numbers that no double holds.
    if let Ok(mut said) = serde_json::from_str::<Value>(payload.get()) {
        // An address is taken as a browser would send it.
        if let Some(address) = said["email"].as_str() {
            said["email"] = ascii_address(address).as_ref().into();
        }
        assert_eq!(serde_json::from_str::<Value>(valid).unwrap(), said);
    }
    let again = validation::validate(&FORM, serde_json::from_str(valid).unwrap());
    assert_eq!(again.as_deref(), Ok(valid.as_bytes()));
    TemplateContext::of_run(valid, "run", "now").unwrap();
}

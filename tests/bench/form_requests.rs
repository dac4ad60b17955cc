//! Requests to forms: reads and submissions over many links, each from a client of its own, and
//! reads of one client who has had its share.

use std::{io::Write, sync::Arc};

use crate::{
    client::Answer,
    requests::{RUN, Requests, next},
};

const ACCEPTED: &[u8] = br#"{"status":"accepted"}"#;

/// The tokens of links, which requests use in turn.
pub type Tokens = Arc<[String]>;

/// An address that the limits have hardly seen: there are 16 million.
fn client(number: u64) -> [u8; 4] {
    let [.., b, c, d] = number.to_be_bytes();
    [100, b, c, d]
}

fn write_read(request: &mut Vec<u8>, token: &str, [a, b, c, d]: [u8; 4]) {
    let _ = write!(
        request,
        "GET /public/workflow-forms/forms?token={token} HTTP/1.1\r\nhost: bench\r\n\
         x-forwarded-for: {a}.{b}.{c}.{d}\r\n\r\n",
    );
}

fn token(tokens: &Tokens, number: u64) -> &str {
    &tokens[number as usize % tokens.len()]
}

/// Reads of forms.
pub struct Reads(pub Tokens);

impl Requests for Reads {
    fn write(&self, request: &mut Vec<u8>, _: &mut Vec<u8>) {
        let number = next();
        write_read(request, token(&self.0, number), client(number));
    }
    fn want(&self, answer: Answer) -> bool {
        answer.status == 200
    }
}

/// Submissions, each under a key of its own.
pub struct Submissions {
    tokens: Tokens,
    payload: String,
}

impl Submissions {
    pub fn new(tokens: Tokens) -> Self {
        Self {
            tokens,
            payload: letterbox_tests::payload().to_string(),
        }
    }
}

impl Requests for Submissions {
    fn write(&self, request: &mut Vec<u8>, body: &mut Vec<u8>) {
        let number = next();
        let (token, payload) = (token(&self.tokens, number), &self.payload);
        let [a, b, c, d] = client(number);
        body.clear();
        let _ = write!(
            body,
            r#"{{"token":"{token}","idempotencyKey":"{}-{number}","payload":{payload}}}"#,
            RUN.as_str(),
        );
        let _ = write!(
            request,
            "POST /public/workflow-forms/forms/submit HTTP/1.1\r\nhost: bench\r\n\
             content-type: application/json\r\nx-forwarded-for: {a}.{b}.{c}.{d}\r\n\
             content-length: {}\r\n\r\n",
            body.len(),
        );
        request.extend_from_slice(body);
    }
    fn want(&self, answer: Answer) -> bool {
        answer.status == 200 && answer.body == ACCEPTED
    }
}

/// Reads of one client, which shall be refused, or, before, shall make that so.
#[derive(Clone)]
pub struct OneClient {
    tokens: Tokens,
    address: [u8; 4],
    refused: bool,
}

impl OneClient {
    /// A client that nobody knows.
    pub fn new(tokens: Tokens) -> Self {
        Self {
            tokens,
            address: client(next()),
            refused: false,
        }
    }

    /// The same client, from now on to be refused.
    pub fn refused(self) -> Self {
        Self {
            refused: true,
            ..self
        }
    }
}

impl Requests for OneClient {
    fn write(&self, request: &mut Vec<u8>, _: &mut Vec<u8>) {
        write_read(request, token(&self.tokens, next()), self.address);
    }
    fn want(&self, answer: Answer) -> bool {
        answer.status == 429 || (answer.status == 200 && !self.refused)
    }
}

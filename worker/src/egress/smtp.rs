//! The dialogue with a mail server (RFC 5321), command by command, so that it is known whether the
//! server can have taken the e-mail. What it answers is read within bounds, and nothing of it from
//! before the encryption.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    time::timeout,
};

use super::answer::{EgressError, MIN_SECRET};

/// Maximum bytes of all answers of a server: a dialogue has about two thousand.
const MOST: usize = 16 << 10;
/// Maximum characters of what a server says that are told.
const MAX_WORDS: usize = 300;

/// How long a server may take to say why it has ended the connection.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A connection to a server.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for S {}

/// A dialogue with a server.
pub(super) struct Dialogue {
    stream: BufReader<Box<dyn Stream>>,
    left: usize,
    /// What answers may not quote, in lower case: the beginnings of what was said in secret.
    secrets: Vec<String>,
}

/// What a server answers.
pub(super) struct MailReply {
    pub(super) code: u16,
    /// Its words, without characters that can't be seen.
    pub(super) words: String,
}

/// How an account says who it is.
pub(super) enum Login<'c> {
    Password { name: &'c str, password: &'c str },
    Token { name: &'c str, token: &'c str },
}

/// Why an e-mail was not taken, or is not known to be.
pub(super) enum MailTrouble {
    /// The server says so, and does not take it.
    Answered(MailReply),
    /// Something else.
    Other(EgressError),
}

type Outcome<T> = Result<T, MailTrouble>;

impl Dialogue {
    pub(super) fn new(stream: impl Stream + 'static) -> Self {
        Self {
            stream: BufReader::new(Box::new(stream)),
            left: MOST,
            secrets: Vec::new(),
        }
    }

    /// The connection, to be encrypted. Nothing may have come on it that nobody has asked for.
    pub(super) fn into_stream(self) -> Outcome<Box<dyn Stream>> {
        match self.stream.buffer() {
            [] => Ok(self.stream.into_inner()),
            _ => Err(not_sent("the mail server says more than it was asked")),
        }
    }

    pub(super) async fn greeting(&mut self) -> Outcome<()> {
        let greeting = self.reply().await?;
        expect(greeting, 220).map(drop)
    }

    /// Says hello; what the server can do, in capital letters.
    pub(super) async fn hello(&mut self, name: &str) -> Outcome<String> {
        let known = self.ask(&format!("EHLO {name}"), 250).await?;
        Ok(known.words.to_ascii_uppercase())
    }

    /// Asks for encryption: what follows belongs to it.
    pub(super) async fn starttls(&mut self) -> Outcome<()> {
        self.ask("STARTTLS", 220).await.map(drop)
    }

    /// Says who the account is, in a way that the server can.
    pub(super) async fn login(&mut self, login: &Login<'_>, can: &str) -> Outcome<()> {
        let encoded = |text: &str| BASE64_STANDARD.encode(text);
        let mut auth = can.split("AUTH").skip(1).flat_map(str::split_whitespace);
        let (ways, secret) = match login {
            Login::Password { password, .. } => (&["PLAIN", "LOGIN"][..], password),
            Login::Token { token, .. } => (&["XOAUTH2"][..], token),
        };
        self.hide(secret);
        let answer = match (login, auth.find(|way| ways.contains(way))) {
            (_, None) => {
                let problem = "the mail server offers no way to sign in that is known: PLAIN and \
                               LOGIN with a password, XOAUTH2 with a token";
                return Err(MailTrouble::Other(EgressError::Refused(problem.to_owned())));
            }
            (Login::Password { name, password }, Some("PLAIN")) => {
                let secret = encoded(&format!("\0{name}\0{password}"));
                self.say_secret("AUTH PLAIN ", &secret).await?
            }
            (Login::Password { name, password }, Some(_)) => {
                self.ask("AUTH LOGIN", 334).await?;
                let named = self.say_secret("", &encoded(name)).await?;
                expect(named, 334)?;
                self.say_secret("", &encoded(password)).await?
            }
            (Login::Token { name, token }, Some(_)) => {
                let secret = encoded(&format!("user={name}\x01auth=Bearer {token}\x01\x01"));
                let answer = self.say_secret("AUTH XOAUTH2 ", &secret).await?;
                // It explains its refusal, and refuses what comes next.
                match answer.code {
                    334 => self.say("").await?,
                    _ => answer,
                }
            }
        };
        expect(answer, 235).map(drop)
    }

    /// Says what no answer may quote.
    async fn say_secret(&mut self, command: &str, secret: &str) -> Outcome<MailReply> {
        self.hide(secret);
        self.say(&format!("{command}{secret}")).await
    }

    fn hide(&mut self, secret: &str) {
        let beginning = secret.to_ascii_lowercase();
        let end = beginning.floor_char_boundary(MIN_SECRET);
        let beginning = &beginning[..end];
        if !beginning.is_empty() {
            self.secrets.push(beginning.to_owned());
        }
    }

    /// Says from whom and to whom the e-mail is. The server wants its text then.
    pub(super) async fn envelope(&mut self, from: &str, to: &[&str]) -> Outcome<()> {
        self.ask(&format!("MAIL FROM:<{from}>"), 250).await?;
        for address in to {
            let taken = self.say(&format!("RCPT TO:<{address}>")).await?;
            // 251: it forwards it.
            let code = if taken.code == 251 { 251 } else { 250 };
            expect(taken, code)?;
        }
        self.ask("DATA", 354).await.map(drop)
    }

    /// Sends the text. Until the server answers nobody knows whether it has taken it.
    pub(super) async fn text(&mut self, text: &[u8]) -> Outcome<MailReply> {
        let mut escaped = Vec::with_capacity(text.len() + 5);
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            escaped.extend(line.starts_with(b".").then_some(b'.'));
            escaped.extend(line);
        }
        if !escaped.ends_with(b"\r\n") {
            escaped.extend(b"\r\n");
        }
        let unknown = |trouble| match trouble {
            MailTrouble::Other(EgressError::NotSent(why)) => {
                MailTrouble::Other(EgressError::Failed(why))
            }
            other => other,
        };
        if let Err(broken) = self.write(&escaped).await {
            // It may have said why it does not want the rest.
            let said = timeout(LAST_WORDS, self.reply()).await;
            return Err(match said {
                Ok(Ok(answer)) if answer.code >= 400 => MailTrouble::Answered(answer),
                _ => broken,
            });
        }
        self.write(b".\r\n").await.map_err(unknown)?;
        let answer = self.reply().await.map_err(unknown)?;
        match answer.code {
            200..300 => Ok(answer),
            400.. => Err(MailTrouble::Answered(answer)),
            code => {
                let why = format!("the mail server answered {code} to the whole e-mail");
                Err(MailTrouble::Other(EgressError::Failed(why)))
            }
        }
    }

    async fn ask(&mut self, command: &str, code: u16) -> Outcome<MailReply> {
        let answer = self.say(command).await?;
        expect(answer, code)
    }

    async fn say(&mut self, command: &str) -> Outcome<MailReply> {
        self.write(format!("{command}\r\n").as_bytes()).await?;
        self.reply().await
    }

    async fn write(&mut self, bytes: &[u8]) -> Outcome<()> {
        let writing = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        writing.await.map_err(|error| broken(&error))
    }

    /// Reads an answer: lines that begin with the same code, the last one without a hyphen.
    async fn reply(&mut self) -> Outcome<MailReply> {
        let mut words = Vec::new();
        loop {
            let mut line = Vec::new();
            let mut reader = (&mut self.stream).take(self.left as u64);
            let read = reader.read_until(b'\n', &mut line).await;
            let read = read.map_err(|error| broken(&error))?;
            self.left -= read;
            if line.last() != Some(&b'\n') {
                return Err(not_sent(match self.left {
                    0 => "the mail server says too much",
                    _ => "the mail server ended the connection",
                }));
            }
            let line = String::from_utf8_lossy(&line);
            let code = line.get(..3).and_then(|code| code.parse().ok());
            let code = code.ok_or_else(|| not_sent("this is no mail server: it gives no code"))?;
            let text = line.get(4..).unwrap_or_default().trim_end();
            let seen = text
                .chars()
                .map(|one| if one.is_control() { ' ' } else { one });
            words.push(seen.collect::<String>());
            if line.as_bytes().get(3) != Some(&b'-') {
                let words = words.join("\n");
                let quoted = words.to_ascii_lowercase();
                let is_quoted = self.secrets.iter().any(|secret| quoted.contains(secret));
                let words = if is_quoted {
                    "[hidden]".to_owned()
                } else {
                    words
                };
                return Ok(MailReply { code, words });
            }
        }
    }
}

impl MailReply {
    pub(super) fn told(&self) -> String {
        let words = self.words.replace('\n', " ");
        words.chars().take(MAX_WORDS).collect()
    }
}

fn expect(answer: MailReply, code: u16) -> Outcome<MailReply> {
    match answer.code {
        given if given == code => Ok(answer),
        400.. => Err(MailTrouble::Answered(answer)),
        given => {
            let why = format!("the mail server answered {given} in place of {code}");
            Err(MailTrouble::Other(EgressError::NotSent(why)))
        }
    }
}

fn not_sent(why: &str) -> MailTrouble {
    MailTrouble::Other(EgressError::NotSent(why.to_owned()))
}

fn broken(error: &std::io::Error) -> MailTrouble {
    not_sent(&format!("the connection to the mail server broke: {error}"))
}

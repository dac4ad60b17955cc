//! A mail server that takes everything, or answers otherwise for a while; in clear text, behind TLS
//! or with STARTTLS.

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

/// An e-mail as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// Its recipients, with a comma between them.
    pub to: String,
    /// Head and body.
    pub text: String,
}

impl Mail {
    /// Head and body without the line breaks and signs of quoted-printable text.
    pub fn read(&self) -> String {
        let joined = self.text.replace("=\r\n", "");
        let mut parts = joined.split('=');
        let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
        for part in parts {
            let code = part
                .get(..2)
                .and_then(|code| u8::from_str_radix(code, 16).ok());
            match code {
                Some(byte) => bytes.extend([&[byte], &part.as_bytes()[2..]].concat()),
                None => bytes.extend([b"=", part.as_bytes()].concat()),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The token of the link to sign in that it brings.
    pub fn token(&self) -> String {
        let text = self.read();
        let (_, token) = text.split_once("/sign-in?token=").unwrap();
        token.split_whitespace().next().unwrap().to_owned()
    }
}

/// How the connections to a mail server are encrypted.
#[derive(Clone)]
pub enum MailTls {
    None,
    FromTheStart(TlsAcceptor),
    Starttls(TlsAcceptor),
}

/// A mail server.
#[derive(Clone)]
pub struct MailServer {
    pub url: String,
    tls: MailTls,
    taken: Arc<Mutex<Vec<Mail>>>,
    logins: Arc<Mutex<Vec<String>>>,
    answers: Arc<Mutex<Option<(String, String)>>>,
}

impl MailServer {
    pub async fn start() -> Self {
        Self::start_with(MailTls::None).await
    }

    pub async fn start_with(tls: MailTls) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let url = match &tls {
            MailTls::None => format!("smtp://127.0.0.1:{port}"),
            MailTls::FromTheStart(_) => format!("smtps://localhost:{port}"),
            MailTls::Starttls(_) => format!("smtp://localhost:{port}"),
        };
        let server = Self {
            url,
            tls,
            taken: Arc::default(),
            logins: Arc::default(),
            answers: Arc::default(),
        };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = socket.accept().await {
                let server = serving.clone();
                tokio::spawn(async move {
                    match &server.tls {
                        MailTls::FromTheStart(acceptor) => {
                            let client = acceptor.accept(client).await.ok()?;
                            server.greet(client).await
                        }
                        _ => server.greet(client).await,
                    }
                });
            }
        });
        server
    }

    /// Everything that was taken, in order.
    pub fn taken(&self) -> Vec<Mail> {
        self.taken.lock().unwrap().clone()
    }

    /// The commands by which clients have said who they are.
    pub fn logins(&self) -> Vec<String> {
        self.logins.lock().unwrap().clone()
    }

    /// Gives this answer to commands that begin so, from now on; an empty one to none.
    pub fn answer(&self, command: &str, answer: &str) {
        let answer = (!command.is_empty()).then(|| (command.to_owned(), answer.to_owned()));
        *self.answers.lock().unwrap() = answer;
    }

    async fn greet(&self, client: impl AsyncRead + AsyncWrite + Send + Unpin) -> Option<()> {
        let mut client = BufReader::new(client);
        client.write_all(b"220 mail\r\n").await.ok()?;
        if let Some(client) = self.serve(client).await
            && let MailTls::Starttls(acceptor) = &self.tls
        {
            let client = acceptor.accept(client).await.ok()?;
            self.serve(BufReader::new(client)).await;
        }
        None
    }

    /// Answers until the end, or until the client wants encryption: then it is returned.
    async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin>(
        &self,
        mut client: BufReader<S>,
    ) -> Option<S> {
        let (mut to, mut line) = (Vec::new(), String::new());
        loop {
            line.clear();
            if client.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            let line = line.trim_end();
            let other = self.answers.lock().unwrap().clone();
            let other = other.filter(|(command, _)| line.starts_with(command));
            let answer = match line.split([' ', ':']).next().unwrap_or_default() {
                _ if other.is_some() => other.unwrap().1,
                "EHLO" => match &self.tls {
                    MailTls::Starttls(_) => "250-mail\r\n250-STARTTLS\r\n250 AUTH PLAIN".to_owned(),
                    _ => "250-mail\r\n250 AUTH PLAIN XOAUTH2".to_owned(),
                },
                "STARTTLS" => {
                    client.write_all(b"220 go on\r\n").await.ok()?;
                    return Some(client.into_inner());
                }
                "AUTH" => {
                    self.logins.lock().unwrap().push(line.to_owned());
                    "235 welcome".to_owned()
                }
                "DATA" => {
                    client.write_all(b"354 go on\r\n").await.ok()?;
                    let mut text = String::new();
                    while !text.ends_with("\r\n.\r\n") {
                        client.read_line(&mut text).await.ok()?;
                    }
                    let to = to.join(",");
                    self.taken.lock().unwrap().push(Mail { to, text });
                    "250 taken".to_owned()
                }
                "QUIT" => return None,
                "RCPT" => {
                    let address = line.trim_start_matches("RCPT TO:<");
                    to.push(address.split('>').next()?.to_owned());
                    "250 ok".to_owned()
                }
                _ => "250 ok".to_owned(),
            };
            let answer = format!("{answer}\r\n");
            client.write_all(answer.as_bytes()).await.ok()?;
        }
    }
}

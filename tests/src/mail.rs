//! A mail server that takes everything, or nothing for a while.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

/// An e-mail as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    pub to: String,
    /// Head and body.
    pub text: String,
}

impl Mail {
    /// The token of the link to sign in that it brings.
    pub fn token(&self) -> String {
        // Quoted-printable text breaks lines and writes = as =3D.
        let text = self.text.replace("=\r\n", "").replace("=3D", "=");
        let (_, token) = text.split_once("/sign-in?token=").unwrap();
        token.split_whitespace().next().unwrap().to_owned()
    }
}

/// A mail server.
#[derive(Clone)]
pub struct MailServer {
    pub url: String,
    taken: Arc<Mutex<Vec<Mail>>>,
    refuses: Arc<AtomicBool>,
}

impl MailServer {
    pub async fn start() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            url: format!("smtp://{}", socket.local_addr().unwrap()),
            taken: Arc::default(),
            refuses: Arc::default(),
        };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = socket.accept().await {
                let server = serving.clone();
                tokio::spawn(async move { server.serve(client).await });
            }
        });
        server
    }

    /// Everything that was taken, in order.
    pub fn taken(&self) -> Vec<Mail> {
        self.taken.lock().unwrap().clone()
    }

    /// Takes nothing from now on, or everything again.
    pub fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::SeqCst);
    }

    async fn serve(&self, client: TcpStream) -> Option<()> {
        let mut client = BufReader::new(client);
        let (mut to, mut line) = (String::new(), String::new());
        client.write_all(b"220 mail\r\n").await.ok()?;
        loop {
            line.clear();
            if client.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            let answer = match line.trim_end() {
                "DATA" if self.refuses.load(Ordering::SeqCst) => "451 later",
                "DATA" => {
                    client.write_all(b"354 go on\r\n").await.ok()?;
                    let mut text = String::new();
                    while !text.ends_with("\r\n.\r\n") {
                        client.read_line(&mut text).await.ok()?;
                    }
                    let to = to.clone();
                    self.taken.lock().unwrap().push(Mail { to, text });
                    "250 taken"
                }
                "QUIT" => return None,
                rcpt if rcpt.starts_with("RCPT TO:<") => {
                    let address = rcpt.trim_start_matches("RCPT TO:<");
                    address.split('>').next()?.clone_into(&mut to);
                    "250 ok"
                }
                _ => "250 ok",
            };
            client
                .write_all(format!("{answer}\r\n").as_bytes())
                .await
                .ok()?;
        }
    }
}

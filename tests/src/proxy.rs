//! A TCP proxy that breaks on command: between a process and one of its servers.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};
use url::Url;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Pass,
    /// Nothing moves; connections stay open.
    Stall,
    /// What the client sends does not arrive; what the server sends does.
    StallToServer,
    /// Connections are closed and new ones refused.
    Cut,
}

/// A proxy in front of one server.
pub struct Proxy {
    /// The server's URL, through the proxy.
    pub url: String,
    mode: watch::Sender<Mode>,
}

/// An address that is known before the server behind it is.
pub struct Front(TcpListener);

impl Front {
    pub async fn bind() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    /// `host:port`
    pub fn address(&self) -> String {
        self.0.local_addr().unwrap().to_string()
    }

    /// Begins to pass connections on to `server`, a `host:port`.
    pub fn lead_to(self, server: String) -> Proxy {
        let (mode, modes) = watch::channel(Mode::Pass);
        let url = format!("http://{}", self.address());
        tokio::spawn(async move {
            while let Ok((client, _)) = self.0.accept().await {
                tokio::spawn(carry(client, server.clone(), modes.clone()));
            }
        });
        Proxy { url, mode }
    }
}

impl Proxy {
    /// In front of the server that `url` names.
    pub async fn before(url: &str) -> Self {
        let parsed = Url::parse(url).unwrap();
        let server = format!("{}:{}", parsed.host_str().unwrap(), parsed.port().unwrap());
        let front = Front::bind().await;
        let through = url.replace(&server, &front.address());
        Self {
            url: through,
            ..front.lead_to(server)
        }
    }

    pub fn pass(&self) {
        self.mode.send_replace(Mode::Pass);
    }

    pub fn stall(&self) {
        self.mode.send_replace(Mode::Stall);
    }

    pub fn stall_to_server(&self) {
        self.mode.send_replace(Mode::StallToServer);
    }

    pub fn cut(&self) {
        self.mode.send_replace(Mode::Cut);
    }
}

async fn carry(client: TcpStream, server: String, mut modes: watch::Receiver<Mode>) {
    if *modes.borrow() == Mode::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let ((client_in, client_out), (server_in, server_out)) =
        (client.into_split(), server.into_split());
    let up = pump(
        client_in,
        server_out,
        modes.clone(),
        [Mode::Stall, Mode::StallToServer],
    );
    let down = pump(
        server_in,
        client_out,
        modes.clone(),
        [Mode::Stall, Mode::Stall],
    );
    tokio::select! {
        () = up => {}
        () = down => {}
        _ = modes.wait_for(|mode| *mode == Mode::Cut) => {}
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut modes: watch::Receiver<Mode>,
    stalls: [Mode; 2],
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let Ok(mode) = modes
            .wait_for(|mode| !stalls.contains(mode))
            .await
            .map(|mode| *mode)
        else {
            return;
        };
        // What was held back when the proxy is cut never arrives.
        if mode == Mode::Cut || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

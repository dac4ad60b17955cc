//! A TCP proxy that breaks on command: between a process and one of its servers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

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
    /// What the server sends does not arrive; what the client sends does.
    StallToClient,
    /// Everything arrives, later.
    Delay(Duration),
    /// Connections are closed in the middle of what is said next.
    Tear,
    /// Connections are closed and new ones refused.
    Cut,
}

/// What the connections of one proxy share.
#[derive(Clone)]
struct Weather {
    modes: watch::Receiver<Mode>,
    harmed: Arc<AtomicU64>,
}

impl Weather {
    fn note(&self) {
        self.harmed.fetch_add(1, Ordering::Relaxed);
    }
}

/// A proxy in front of one server.
pub struct Proxy {
    /// The server's URL, through the proxy.
    pub url: String,
    mode: watch::Sender<Mode>,
    harmed: Arc<AtomicU64>,
    opened: Arc<AtomicU64>,
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
        let [harmed, opened] = [(); 2].map(|()| Arc::<AtomicU64>::default());
        let weather = Weather {
            modes,
            harmed: harmed.clone(),
        };
        let opening = opened.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = self.0.accept().await {
                opening.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(carry(client, server.clone(), weather.clone()));
            }
        });
        Proxy {
            url,
            mode,
            harmed,
            opened,
        }
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

    pub fn stall_to_client(&self) {
        self.mode.send_replace(Mode::StallToClient);
    }

    /// Lets everything arrive so much later.
    pub fn delay(&self, by: Duration) {
        self.mode.send_replace(Mode::Delay(by));
    }

    pub fn tear(&self) {
        self.mode.send_replace(Mode::Tear);
    }

    pub fn cut(&self) {
        self.mode.send_replace(Mode::Cut);
    }

    /// How many connections were opened so far.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// How many connections, or pieces of what they carry, were cut, torn, held or delayed so far.
    pub fn harmed(&self) -> u64 {
        self.harmed.load(Ordering::Relaxed)
    }
}

async fn carry(client: TcpStream, server: String, weather: Weather) {
    let mut modes = weather.modes.clone();
    if *modes.borrow() == Mode::Cut {
        return weather.note();
    }
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let ((client_in, client_out), (server_in, server_out)) =
        (client.into_split(), server.into_split());
    let up = pump(client_in, server_out, weather.clone(), Mode::StallToServer);
    let down = pump(server_in, client_out, weather.clone(), Mode::StallToClient);
    tokio::select! {
        () = up => {}
        () = down => {}
        _ = modes.wait_for(|mode| *mode == Mode::Cut) => weather.note(),
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut weather: Weather,
    one_way: Mode,
) {
    let stalls = |mode: Mode| mode == Mode::Stall || mode == one_way;
    let spares = |mode: Mode| match mode {
        Mode::StallToServer | Mode::StallToClient => mode != one_way,
        mode => mode == Mode::Pass,
    };
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let mode = *weather.modes.borrow();
        if !spares(mode) {
            weather.note();
        }
        let flowing = weather.modes.wait_for(|mode| !stalls(*mode));
        let Ok(mode) = flowing.await.map(|mode| *mode) else {
            return;
        };
        let length = match mode {
            // What was held back when the proxy is cut never arrives.
            Mode::Cut => return,
            Mode::Tear => read / 2,
            Mode::Delay(by) => {
                tokio::time::sleep(by).await;
                read
            }
            _ => read,
        };
        if to.write_all(&buffer[..length]).await.is_err() || length < read {
            return;
        }
    }
}

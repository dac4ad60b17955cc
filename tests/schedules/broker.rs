//! A broker without sockets, in the words of lapin that the services use: channels that number what
//! is published, confirms that come by these numbers, connections that break.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll},
};

use amqp::{
    BasicProperties, Confirmation, Error, ErrorKind, Event, Result,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::ShortString,
};
use shuttle::rand::{Rng, thread_rng};
use shuttle_tokio::{
    sync::{oneshot, watch},
    task::yield_now,
};

/// What a broker does with messages.
#[derive(Debug, Default)]
pub struct Server {
    ledger: Mutex<Ledger>,
    /// Whether somebody is connecting.
    is_asked: AtomicBool,
}

/// What a broker has done.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Messages that have arrived, and how often.
    pub arrived: BTreeMap<String, usize>,
    pub acknowledged: BTreeSet<String>,
    pub refused: BTreeSet<String>,
    /// The routing keys under which it answers nothing.
    pub silent: Vec<&'static str>,
    /// How many more connections it will not take.
    pub refusing: u32,
    /// Connections that nobody has closed.
    open: usize,
    connections: Vec<Connection>,
}

impl Ledger {
    /// How many connections there were.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }
}

impl Server {
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("nobody panics with it")
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.ledger().open
    }

    /// Whether somebody is connecting.
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(SeqCst)
    }

    /// The last connection, if there was one.
    pub fn connection(&self) -> Option<Connection> {
        self.ledger().connections.last().cloned()
    }
}

/// Lets others go first, for a while.
pub async fn dawdle(most: u32) {
    for _ in 0..thread_rng().gen_range(0..=most) {
        yield_now().await;
    }
}

fn broken() -> Error {
    ErrorKind::MissingHeartbeatError.into()
}

#[derive(Debug, Clone)]
pub struct Connection {
    server: Arc<Server>,
    is_broken: Arc<watch::Sender<bool>>,
    events: (async_channel::Sender<Event>, async_channel::Receiver<Event>),
}

impl Connection {
    pub async fn connect_uri_with_config(
        server: Arc<Server>,
        _: amqp::ConnectionProperties,
        (): (),
        _: crate::Runtime,
    ) -> Result<Self> {
        server.is_asked.store(true, SeqCst);
        dawdle(3).await;
        server.is_asked.store(false, SeqCst);
        let connection = Self {
            server: server.clone(),
            is_broken: Arc::new(watch::channel(false).0),
            events: async_channel::unbounded(),
        };
        let mut ledger = server.ledger();
        if ledger.refusing > 0 {
            ledger.refusing -= 1;
            return Err(broken());
        }
        ledger.open += 1;
        assert_eq!(ledger.open, 1, "two connections at once");
        ledger.connections.push(connection.clone());
        Ok(connection)
    }

    pub fn events_listener(&self) -> async_channel::Receiver<Event> {
        self.events.1.clone()
    }

    pub async fn create_channel(&self) -> Result<Channel> {
        yield_now().await;
        self.whole()?;
        let (connection, numbers) = (self.clone(), Arc::default());
        Ok(Channel {
            connection,
            numbers,
        })
    }

    pub async fn close(&self, _: u16, _: ShortString) -> Result<()> {
        self.server.ledger().open -= 1;
        self.is_broken.send_replace(true);
        yield_now().await;
        Ok(())
    }

    /// Tells who uses it.
    pub fn tell(&self, event: Event) {
        let _ = self.events.0.try_send(event);
    }

    /// Breaks it. Who waits for a confirm may hear of that, or of nothing.
    pub fn break_off(&self) {
        self.is_broken.send_replace(true);
        self.tell(Event::Error(broken()));
    }

    fn whole(&self) -> Result<()> {
        match *self.is_broken.borrow() {
            true => Err(broken()),
            false => Ok(()),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Channel {
    connection: Connection,
    numbers: Arc<Mutex<Numbers>>,
}

#[derive(Debug, Default)]
struct Numbers {
    /// Of messages that were published, and who waits for their confirms.
    published: u64,
    waiting: BTreeMap<u64, oneshot::Sender<Confirmation>>,
    /// Of messages that have arrived.
    arrived: u64,
}

impl Channel {
    pub async fn confirm_select(&self, _: ConfirmSelectOptions) -> Result<()> {
        yield_now().await;
        self.connection.whole()
    }

    /// Numbers a message, and sends it a moment later: as lapin does it, under two locks.
    pub async fn basic_publish(
        &self,
        _: ShortString,
        key: ShortString,
        options: BasicPublishOptions,
        _: &[u8],
        properties: BasicProperties,
    ) -> Result<PublisherConfirm> {
        assert!(options.mandatory);
        self.connection.whole()?;
        let (sender, confirm) = oneshot::channel();
        {
            let mut numbers = self.numbers();
            numbers.published += 1;
            let number = numbers.published;
            numbers.waiting.insert(number, sender);
        }
        yield_now().await;
        let id = properties.message_id().clone().expect("it has an id");
        let number = {
            let mut numbers = self.numbers();
            numbers.arrived += 1;
            numbers.arrived
        };
        let mut ledger = self.connection.server.ledger();
        *ledger.arrived.entry(id.to_string()).or_default() += 1;
        drop(ledger);
        shuttle_tokio::spawn(self.clone().answer(number, id.to_string(), key));
        Ok(PublisherConfirm(confirm))
    }

    async fn answer(self, number: u64, id: String, key: ShortString) {
        dawdle(6).await;
        let server = &self.connection.server;
        let is_silent = server.ledger().silent.contains(&key.as_str());
        let may_answer = self.connection.whole().is_ok() && !is_silent;
        if !may_answer {
            // Where the connection is broken, who waits may hear of it.
            if self.connection.whole().is_err() && thread_rng().gen_ratio(1, 2) {
                self.numbers().waiting.remove(&number);
            }
            return;
        }
        let confirmation = if thread_rng().gen_ratio(1, 4) {
            server.ledger().refused.insert(id);
            Confirmation::Nack(None)
        } else {
            server.ledger().acknowledged.insert(id);
            Confirmation::Ack(None)
        };
        let waiting = self.numbers().waiting.remove(&number);
        if let Some(waiting) = waiting {
            let _ = waiting.send(confirmation);
        }
    }

    pub async fn close(&self, _: u16, _: ShortString) -> Result<()> {
        yield_now().await;
        Ok(())
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().expect("nobody panics with it")
    }
}

#[derive(Debug)]
pub struct PublisherConfirm(oneshot::Receiver<Confirmation>);

impl Future for PublisherConfirm {
    type Output = Result<Confirmation>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|confirmation| confirmation.map_err(|_| broken()))
    }
}

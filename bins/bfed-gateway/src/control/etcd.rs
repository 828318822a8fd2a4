//! A gateway's assignments and the election of its control node, in etcd.
//!
//! | key under `etcd.prefix` | value | lives |
//! | --- | --- | --- |
//! | `leader` | the active control node's name | as long as its lease |
//! | `assigned/SESSION` | the number of the data node that carries it | until the session ends |
//!
//! | `last` | the control node that was elected last | without end: the next one knows that it is a successor |
//!
//! A round runs four times in the lifetime of a lease, and when there is something to write: extend the lease,
//! stand for election if no control node is elected, write changes. The revision at which `leader` was created is
//! the fencing number and a condition of every write, so a superseded control node cannot change anything.
//!
//! | etcd | the active control node | a standby |
//! | --- | --- | --- |
//! | answers | continues | waits |
//! | unreachable, the lease lasts | continues; assignments are written later | waits |
//! | unreachable, the lease has expired | stops: another may be elected | waits |
//! | reachable again, the lease lasts | continues | waits |
//! | reachable again, none elected | | the first to ask is elected |
//! | has another one elected | stops | waits |
//!
//! The lease counts from before the request, by a clock that runs while the machine is suspended, so that it
//! expires here before it expires in etcd; each output checks it (see `lease.rs`). A control node that shuts down
//! returns its lease: a standby, which watches `leader`, is elected at once.

mod tls;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bfed::{Coordinator, NodeId, SessionName};
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Error, EventType, GetOptions, PutOptions, Txn,
    TxnOp, TxnOpResponse, WatchStream,
};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::lease::{Lease, since_boot};
use crate::config::Etcd;

/// Assignments read or written at once (etcd takes 128 operations).
const PAGE: usize = 100;

/// An event of the store.
#[derive(Debug)]
pub(crate) enum StoreEvent {
    /// This control node is the active one, or is again after its lease had expired.
    Elected {
        /// The number of its term.
        epoch: u64,
        /// How long the term lasts.
        lease: Lease,
        /// Another one was active before it.
        succeeds: bool,
        /// The assignments at the start of its term.
        assigned: BTreeMap<SessionName, NodeId>,
    },
    /// Another control node is the active one, or may be.
    Deposed,
    /// Whether etcd answers.
    Reachable(bool),
}

/// Answers the machine from the state known here.
#[derive(Debug)]
pub(crate) struct Store {
    /// The lease of the term in which this control node is the active one.
    lease: Option<Lease>,
    epoch: u64,
    succeeds: bool,
    answers: bool,
    assigned: BTreeMap<SessionName, NodeId>,
    changes: Arc<Changes>,
}

/// Changes to write: one value a session, so at most as many as there are sessions.
#[derive(Debug, Default)]
struct Changes {
    map: Mutex<BTreeMap<SessionName, Option<NodeId>>>,
    changed: Notify,
}

impl Changes {
    fn put(&self, session: SessionName, node: Option<NodeId>) {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.insert(session, node);
        self.changed.notify_one();
    }

    fn some(&self) -> Vec<(SessionName, Option<NodeId>)> {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let some = map.iter().take(PAGE);
        some.map(|(session, node)| (session.clone(), *node))
            .collect()
    }

    /// Removes written entries, except those that have changed again meanwhile.
    fn written(&self, some: &[(SessionName, Option<NodeId>)]) {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        for (session, node) in some {
            if map.get(session) == Some(node) {
                map.remove(session);
            }
        }
    }

    fn clear(&self) {
        self.map
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

impl Store {
    pub(super) fn handle_event(&mut self, event: StoreEvent) {
        match event {
            StoreEvent::Elected {
                epoch,
                lease,
                succeeds,
                assigned,
            } => {
                self.assigned = assigned;
                (self.lease, self.epoch, self.succeeds) = (Some(lease), epoch, succeeds);
            }
            StoreEvent::Deposed => self.step_down(),
            StoreEvent::Reachable(answers) => self.answers = answers,
        }
    }

    pub(super) fn answers(&self) -> bool {
        self.answers
    }

    /// The lease of the term in which this control node is the active one.
    pub(super) fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Discards the state of the active one.
    pub(super) fn step_down(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.end();
        }
        self.assigned.clear();
        self.changes.clear();
    }
}

impl Coordinator for Store {
    fn is_active(&self) -> bool {
        self.lease.as_ref().is_some_and(Lease::holds)
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn succeeds(&self) -> bool {
        self.succeeds
    }

    fn assigned(&self, session: &SessionName) -> Option<NodeId> {
        self.assigned.get(session).copied()
    }

    fn assign(&mut self, session: &SessionName, node: NodeId) {
        if self.assigned.insert(session.clone(), node) != Some(node) {
            self.changes.put(session.clone(), Some(node));
        }
    }

    fn release(&mut self, session: &SessionName) {
        if self.assigned.remove(session).is_some() {
            self.changes.put(session.clone(), None);
        }
    }

    fn retain(&mut self, keep: &dyn Fn(&SessionName) -> bool) {
        let changes = &self.changes;
        self.assigned.retain(|session, _| {
            let is_kept = keep(session);
            if !is_kept {
                changes.put(session.clone(), None);
            }
            is_kept
        });
    }
}

/// The client of etcd.
pub(crate) struct StoreClient {
    config: Etcd,
    client: Option<Client>,
    lease: Option<i64>,
    /// Time since boot until which no other control node is elected.
    holds_until: Duration,
    /// This control node's term: its number and its lease.
    term: Option<(u64, Lease)>,
    /// Watches for the deletion of `leader`.
    watch: Option<WatchStream>,
    changes: Arc<Changes>,
    events: mpsc::Sender<StoreEvent>,
}

/// The result of a round.
enum Found {
    /// This control node is the active one since that revision; whether another one was active before.
    Own(u64, bool),
    Other,
}

/// Returns the lease of a running client.
pub(crate) struct Resignation {
    say: oneshot::Sender<()>,
    done: JoinHandle<()>,
}

impl Resignation {
    /// Returns the lease within `limit`, if etcd answers.
    pub(crate) async fn give(self, limit: Duration) {
        let _ = self.say.send(());
        let _ = timeout(limit, self.done).await;
    }
}

impl StoreClient {
    /// Creates a client, and the store that it keeps for the machine.
    pub(crate) fn new(config: Etcd, events: mpsc::Sender<StoreEvent>) -> (StoreClient, Store) {
        let changes = Arc::<Changes>::default();
        let store = Store {
            lease: None,
            epoch: 0,
            succeeds: false,
            answers: false,
            assigned: BTreeMap::new(),
            changes: Arc::clone(&changes),
        };
        let client = StoreClient {
            config,
            client: None,
            lease: None,
            holds_until: since_boot(),
            term: None,
            watch: None,
            changes,
            events,
        };
        (client, store)
    }

    /// Starts the task.
    pub(crate) fn start(mut self) -> Resignation {
        let (say, resign) = oneshot::channel();
        let done = tokio::spawn(async move {
            tokio::select! {
                () = self.run() => {}
                Ok(()) = resign => self.resign().await,
            }
        });
        Resignation { say, done }
    }

    /// Runs rounds until the driver has ended.
    async fn run(&mut self) {
        let mut turns = tokio::time::interval(self.config.lease / 4);
        turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // The last state logged: none yet, or why etcd is unreachable.
        let mut reported: Option<Option<String>> = None;
        loop {
            self.step_down_in_time().await;
            let mut limit = self.config.lease;
            if self.term.is_some() {
                limit = limit.min(self.remaining());
            }
            let result = match timeout(limit, self.turn()).await {
                Ok(result) => result.map_err(|error| error.to_string()),
                Err(_) => Err("no answer in time".to_owned()),
            };
            let why = result.err();
            if why.is_some() {
                (self.client, self.watch) = (None, None);
            }
            let answers = why.is_none();
            if reported.as_ref() != Some(&why) {
                match &why {
                    Some(why) => tracing::warn!(
                        event = "etcd_unreachable",
                        error = why,
                        "etcd unreachable; keeping state"
                    ),
                    None => tracing::info!(event = "etcd_reachable", "etcd answers"),
                }
                self.notify(StoreEvent::Reachable(answers)).await;
            }
            reported = Some(why);
            self.step_down_in_time().await;
            let (leads, remaining) = (self.term.is_some(), self.remaining());
            tokio::select! {
                _ = turns.tick() => {}
                () = self.changes.changed.notified(), if answers => {}
                () = gone(&mut self.watch), if !leads => {}
                () = sleep(remaining), if leads => self.step_down_in_time().await,
                () = self.events.closed() => return,
            }
        }
    }

    /// Sends an event; it is lost if the driver has ended.
    async fn notify(&self, event: StoreEvent) {
        let _ = self.events.send(event).await;
    }

    /// Returns the remaining time of the lease.
    fn remaining(&self) -> Duration {
        self.holds_until.saturating_sub(since_boot())
    }

    /// Ends the term if the lease has expired: another control node may be elected. The driver may know it already.
    async fn step_down_in_time(&mut self) {
        if let Some((_, lease)) = &self.term
            && !lease.holds()
        {
            tracing::warn!(
                event = "lease_expired",
                "the lease has expired; another control node may be elected"
            );
            self.depose().await;
        }
    }

    /// Ends the term: nothing more is sent or written in it, even before the driver learns of it.
    async fn depose(&mut self) {
        if let Some((_, lease)) = self.term.take() {
            lease.end();
            self.changes.clear();
            self.notify(StoreEvent::Deposed).await;
        }
    }

    /// Revokes the lease, and with it `leader`.
    async fn resign(&mut self) {
        if let Some((_, lease)) = self.term.take() {
            lease.end();
        }
        let Some(lease) = self.lease.take() else {
            return;
        };
        let revoked = async {
            let mut client = self.connected().await?;
            client.lease_revoke(lease).await
        };
        match revoked.await {
            Ok(_) => tracing::info!(event = "lease_returned", "lease returned"),
            Err(error) => {
                tracing::warn!(event = "lease_not_returned", %error, "cannot return the lease; it will expire");
            }
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.config.prefix)
    }

    async fn connected(&mut self) -> Result<Client, Error> {
        if let Some(client) = self.client.take() {
            return Ok(client);
        }
        let mut options = ConnectOptions::new()
            .with_connect_timeout(self.config.lease)
            .with_timeout(self.config.lease);
        if let Some(tls) = &self.config.tls {
            options = options.with_tls(tls::options(tls)?);
        }
        Client::connect(&self.config.endpoints, Some(options)).await
    }

    async fn turn(&mut self) -> Result<(), Error> {
        let mut client = self.connected().await?;
        let lease = self.keep_lease(&mut client).await?;
        match self.campaign(&mut client, lease).await? {
            Found::Own(epoch, succeeds) => {
                if self.term.as_ref().is_none_or(|term| term.0 != epoch) {
                    let assigned = self.read(&mut client).await?;
                    tracing::info!(
                        event = "elected",
                        epoch,
                        sessions = assigned.len(),
                        "elected as the active control node"
                    );
                    // Only while the lease lasts; after that this control node stands for election again.
                    let term = Lease::until(self.holds_until);
                    if term.holds() {
                        let elected = StoreEvent::Elected {
                            epoch,
                            lease: term.clone(),
                            succeeds,
                            assigned,
                        };
                        self.term = Some((epoch, term));
                        self.notify(elected).await;
                    }
                }
                self.write(&mut client, epoch).await?;
            }
            Found::Other => {
                if self.term.is_some() {
                    tracing::warn!(event = "superseded", "another control node was elected");
                    self.depose().await;
                }
                if self.watch.is_none() {
                    self.watch = Some(client.watch(self.key("leader"), None).await?);
                }
            }
        }
        self.client = Some(client);
        Ok(())
    }

    async fn keep_lease(&mut self, client: &mut Client) -> Result<i64, Error> {
        let requested_at = since_boot();
        if let Some(lease) = self.lease {
            if let Some(ttl) = kept(client, lease).await? {
                self.holds_until = requested_at + ttl;
                if let Some((_, term)) = &self.term
                    && !term.extend(self.holds_until)
                {
                    // The driver saw the lease expire and has stepped down: etcd knows who is active now.
                    self.depose().await;
                }
                return Ok(lease);
            }
            // Another control node may have been elected and have ended since.
            self.holds_until = requested_at;
            if self.term.is_some() {
                tracing::warn!(
                    event = "lease_expired",
                    "the lease has expired; another control node may be elected"
                );
                self.depose().await;
            }
        }
        let seconds = i64::try_from(self.config.lease.as_secs())
            .unwrap_or(60)
            .max(1);
        let granted = client.lease_grant(seconds, None).await?;
        let ttl = u64::try_from(granted.ttl()).unwrap_or(0);
        self.holds_until = requested_at + Duration::from_secs(ttl);
        self.lease = Some(granted.id());
        Ok(granted.id())
    }

    /// Stands for election if no control node is elected; returns the elected one.
    async fn campaign(&self, client: &mut Client, lease: i64) -> Result<Found, Error> {
        let (key, last) = (self.key("leader"), self.key("last"));
        let put = PutOptions::new().with_lease(lease);
        let name = || self.config.name.clone();
        let txn = Txn::new()
            .when([Compare::create_revision(key.clone(), CompareOp::Equal, 0)])
            .and_then([
                TxnOp::get(last.clone(), None),
                TxnOp::put(key.clone(), name(), Some(put)),
                TxnOp::put(last, name(), None),
            ])
            .or_else([TxnOp::get(key, None)]);
        let answer = client.txn(txn).await?;
        let got = answer
            .op_responses()
            .into_iter()
            .find_map(|response| match response {
                TxnOpResponse::Get(got) => Some(got),
                _ => None,
            });
        if answer.succeeded() {
            let revision = answer.header().map_or(0, |header| header.revision());
            let succeeds = got.is_some_and(|last| !last.kvs().is_empty());
            return Ok(Found::Own(u64::try_from(revision).unwrap_or(0), succeeds));
        }
        let leader = got.as_ref().and_then(|got| got.kvs().first());
        Ok(match leader.filter(|leader| leader.lease() == lease) {
            // Elected before: the answer of that round was lost, or this control node stepped down.
            Some(own) => Found::Own(u64::try_from(own.create_revision()).unwrap_or(0), true),
            None => Found::Other,
        })
    }

    /// Returns all assignments.
    async fn read(&self, client: &mut Client) -> Result<BTreeMap<SessionName, NodeId>, Error> {
        let prefix = self.key("assigned/");
        // The key after all keys with the prefix: '0' follows '/'.
        let end = self.key("assigned0");
        let mut from = prefix.clone().into_bytes();
        let mut assigned = BTreeMap::new();
        loop {
            let options = GetOptions::new()
                .with_range(end.clone())
                .with_limit(PAGE as i64);
            let page = client.get(from.clone(), Some(options)).await?;
            for pair in page.kvs() {
                // Foreign values are ignored.
                let name = pair
                    .key_str()
                    .ok()
                    .and_then(|key| key.strip_prefix(&prefix));
                let session = name.and_then(|name| SessionName::parse(name).ok());
                let node = pair.value_str().ok().and_then(|value| value.parse().ok());
                if let (Some(session), Some(node)) = (session, node) {
                    assigned.insert(session, NodeId(node));
                }
            }
            match page.kvs().last().filter(|_| page.more()) {
                Some(last) => {
                    from = last.key().to_vec();
                    from.push(0);
                }
                None => return Ok(assigned),
            }
        }
    }

    async fn write(&self, client: &mut Client, epoch: u64) -> Result<(), Error> {
        loop {
            let some = self.changes.some();
            if some.is_empty() {
                return Ok(());
            }
            let operation = |(session, node): &(SessionName, Option<NodeId>)| {
                let key = self.key(&format!("assigned/{}", session.as_str()));
                match node {
                    Some(node) => TxnOp::put(key, node.0.to_string(), None),
                    None => TxnOp::delete(key, None),
                }
            };
            let revision = i64::try_from(epoch).unwrap_or(i64::MAX);
            let own = Compare::create_revision(self.key("leader"), CompareOp::Equal, revision);
            let operations: Vec<_> = some.iter().map(operation).collect();
            let txn = Txn::new().when([own]).and_then(operations);
            if !client.txn(txn).await?.succeeded() {
                // Superseded, or the lease has expired: the next round finds out.
                return Ok(());
            }
            self.changes.written(&some);
        }
    }
}

/// Extends a lease; returns its time to live, or `None` if it has expired in etcd.
async fn kept(client: &mut Client, lease: i64) -> Result<Option<Duration>, Error> {
    let (mut keeper, mut answers) = match client.lease_keep_alive(lease).await {
        // The client's error for a lease that etcd does not know.
        Err(Error::LeaseKeepAliveError(_)) => return Ok(None),
        begun => begun?,
    };
    keeper.keep_alive().await?;
    let ttl = answers.message().await?.map_or(0, |answer| answer.ttl());
    let seconds = u64::try_from(ttl).ok().filter(|ttl| *ttl > 0);
    Ok(seconds.map(Duration::from_secs))
}

/// Waits until `leader` is deleted, or the watch ends.
async fn gone(watch: &mut Option<WatchStream>) {
    while let Some(stream) = watch {
        let Ok(Some(response)) = stream.message().await else {
            *watch = None;
            break;
        };
        if response
            .events()
            .iter()
            .any(|event| event.event_type() == EventType::Delete)
        {
            return;
        }
    }
    std::future::pending::<()>().await;
}

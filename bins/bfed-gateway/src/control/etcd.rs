//! A gateway's assignments and the election of its control node, in etcd.
//!
//! | key under `etcd.prefix` | value | lives |
//! | --- | --- | --- |
//! | `leader` | the active control node's name | as long as its lease |
//! | `assigned/SESSION` | the number of the data node that carries it | until the session ends |
//!
//! A turn is taken four times in the life of a lease, and when something is to be written: keep the
//! lease, be elected if nobody is, write what has changed. The revision at which `leader` was made is the fencing
//! number, and a condition of every write: a control node that was deposed changes nothing any more.
//!
//! | etcd | the active control node | a standby |
//! | --- | --- | --- |
//! | answers | goes on | waits |
//! | is away | goes on; what is assigned is written later | waits |
//! | is back, the lease lives | goes on | waits |
//! | is back, the lease is over, nobody is elected | is elected again, with a higher number | is elected, if it is quicker |
//! | says that another is elected | stops | waits |

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bfed::{Coordinator, NodeId, SessionName};
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Error, GetOptions, PutOptions, Txn, TxnOp,
    TxnOpResponse,
};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::News;
use crate::config::Etcd;

/// Assignments read or written at once (etcd takes 128 operations).
const PAGE: usize = 100;

/// What the machine asks, answered from what is known here.
#[derive(Debug)]
pub(crate) struct Store {
    active: bool,
    epoch: u64,
    assigned: BTreeMap<SessionName, NodeId>,
    changes: Arc<Changes>,
}

/// What is to be written: one value a session, so no more than there are sessions.
#[derive(Debug, Default)]
struct Changes {
    map: Mutex<BTreeMap<SessionName, Option<NodeId>>>,
    news: Notify,
}

impl Changes {
    fn put(&self, session: SessionName, node: Option<NodeId>) {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.insert(session, node);
        self.news.notify_one();
    }

    fn some(&self) -> Vec<(SessionName, Option<NodeId>)> {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let some = map.iter().take(PAGE);
        some.map(|(session, node)| (session.clone(), *node))
            .collect()
    }

    /// They are written; what has changed again meanwhile stays.
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
    pub(super) fn elected(&mut self, epoch: u64, assigned: BTreeMap<SessionName, NodeId>) {
        if !self.active {
            self.assigned = assigned;
        } else {
            // Nobody else was active meanwhile: what is known here is newer than what was read.
            for session in assigned.into_keys() {
                if !self.assigned.contains_key(&session) {
                    self.changes.put(session, None);
                }
            }
            for (session, node) in &self.assigned {
                self.changes.put(session.clone(), Some(*node));
            }
        }
        (self.active, self.epoch) = (true, epoch);
    }

    pub(super) fn deposed(&mut self) {
        self.active = false;
        self.assigned.clear();
        self.changes.clear();
    }
}

impl Coordinator for Store {
    fn is_active(&self) -> bool {
        self.active
    }

    fn epoch(&self) -> u64 {
        self.epoch
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
}

/// Who speaks with etcd.
pub(crate) struct Speaker {
    config: Etcd,
    client: Option<Client>,
    lease: Option<i64>,
    /// The number of this control node's term.
    epoch: Option<u64>,
    changes: Arc<Changes>,
    news: mpsc::Sender<News>,
}

/// What a turn found out.
enum Found {
    /// This control node is the active one, since that revision.
    Own(u64),
    Other,
}

impl Speaker {
    /// A speaker, and what it keeps for the machine.
    pub(crate) fn new(config: Etcd, news: mpsc::Sender<News>) -> (Speaker, Store) {
        let changes = Arc::<Changes>::default();
        let store = Store {
            active: false,
            epoch: 0,
            assigned: BTreeMap::new(),
            changes: Arc::clone(&changes),
        };
        let speaker = Speaker {
            config,
            client: None,
            lease: None,
            epoch: None,
            changes,
            news,
        };
        (speaker, store)
    }

    /// Takes turns until the driver is gone.
    pub(crate) async fn run(mut self) {
        let mut turns = tokio::time::interval(self.config.lease / 4);
        turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut said: Option<String> = None;
        loop {
            let result = match timeout(self.config.lease, self.turn()).await {
                Ok(result) => result.map_err(|error| error.to_string()),
                Err(_) => Err("no answer in time".to_owned()),
            };
            let why = result.err();
            if why != said {
                match &why {
                    Some(why) => tracing::warn!(why, "etcd is away: everything goes on as it is"),
                    None => tracing::info!("etcd answers"),
                }
                if self
                    .news
                    .send(News::Reachable(why.is_none()))
                    .await
                    .is_err()
                {
                    return;
                }
            }
            if why.is_some() {
                self.client = None;
            }
            said = why;
            tokio::select! {
                _ = turns.tick() => {}
                () = self.changes.news.notified(), if said.is_none() => {}
                () = self.news.closed() => return,
            }
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.config.prefix)
    }

    async fn turn(&mut self) -> Result<(), Error> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => {
                let options = ConnectOptions::new()
                    .with_connect_timeout(self.config.lease)
                    .with_timeout(self.config.lease);
                Client::connect(&self.config.endpoints, Some(options)).await?
            }
        };
        let lease = self.keep_lease(&mut client).await?;
        match self.campaign(&mut client, lease).await? {
            Found::Own(epoch) => {
                if self.epoch != Some(epoch) {
                    let assigned = self.read(&mut client).await?;
                    tracing::info!(epoch, sessions = assigned.len(), "elected");
                    let _ = self.news.send(News::Elected { epoch, assigned }).await;
                    self.epoch = Some(epoch);
                }
                self.write(&mut client, epoch).await?;
            }
            Found::Other => {
                if self.epoch.take().is_some() {
                    tracing::warn!("another control node is elected");
                    let _ = self.news.send(News::Deposed).await;
                }
            }
        }
        self.client = Some(client);
        Ok(())
    }

    async fn keep_lease(&mut self, client: &mut Client) -> Result<i64, Error> {
        if let Some(lease) = self.lease {
            let (mut keeper, mut answers) = client.lease_keep_alive(lease).await?;
            keeper.keep_alive().await?;
            if answers
                .message()
                .await?
                .is_some_and(|answer| answer.ttl() > 0)
            {
                return Ok(lease);
            }
        }
        let seconds = i64::try_from(self.config.lease.as_secs())
            .unwrap_or(60)
            .max(1);
        let lease = client.lease_grant(seconds, None).await?.id();
        self.lease = Some(lease);
        Ok(lease)
    }

    /// Be elected if nobody is; who is.
    async fn campaign(&self, client: &mut Client, lease: i64) -> Result<Found, Error> {
        let key = self.key("leader");
        let put = PutOptions::new().with_lease(lease);
        let txn = Txn::new()
            .when([Compare::create_revision(key.clone(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key.clone(), self.config.name.clone(), Some(put))])
            .or_else([TxnOp::get(key, None)]);
        let answer = client.txn(txn).await?;
        if answer.succeeded() {
            let revision = answer.header().map_or(0, |header| header.revision());
            return Ok(Found::Own(u64::try_from(revision).unwrap_or(0)));
        }
        let mut found = Found::Other;
        for response in answer.op_responses() {
            if let TxnOpResponse::Get(got) = response {
                for leader in got.kvs().iter().filter(|leader| leader.lease() == lease) {
                    found = Found::Own(u64::try_from(leader.create_revision()).unwrap_or(0));
                }
            }
        }
        Ok(found)
    }

    /// All assignments.
    async fn read(&self, client: &mut Client) -> Result<BTreeMap<SessionName, NodeId>, Error> {
        let prefix = self.key("assigned/");
        // What stands behind every key with the prefix: '0' follows '/'.
        let end = self.key("assigned0");
        let mut from = prefix.clone().into_bytes();
        let mut assigned = BTreeMap::new();
        loop {
            let options = GetOptions::new()
                .with_range(end.clone())
                .with_limit(PAGE as i64);
            let page = client.get(from.clone(), Some(options)).await?;
            for pair in page.kvs() {
                // What somebody else has written there is passed over.
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
                // Deposed, or the lease is over: the next turn finds out.
                return Ok(());
            }
            self.changes.written(&some);
        }
    }
}

//! The data thread: one loop over captured packets, the kernel's notifications, the control
//! thread's commands and the machine's timers. The machine lives here and nowhere else, so no
//! packet ever waits for a lock.

mod answer;
mod forward;
mod interfaces;
mod limit;
mod open;
mod proxy;
mod resolve;
mod routes;
mod watch;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use linux_net::Capability;
use linux_net::link::{self, LinkEvent};
use linux_net::nft::Guard;
use linux_net::packet::{Capture, RingStats, Sender};
use linux_net::poll::{self, Watch};
use linux_net::wake::Waker;
use lms_proto::hier;
use lms_proto::router::{self, Event, Policy, Rate};
use lms_proto::{Duration, Instant, InterfaceConfig, Key, Router};

pub(crate) use open::Opened;

use crate::config::{self, Config, StaticReplier};
use crate::control::Command;
use forward::{BATCH, Path, PathStats, group_link};
use interfaces::{Change, Interfaces};
use limit::TotalLimit;
use resolve::Resolver;
use routes::{Follow, Installer, RouteStats, Routes};
use watch::SourceWatch;

/// Consecutive batches of packets before other work.
const ROUNDS: usize = 16;
/// Longest wait: counters of the ring have 32 bits in the kernel.
const LONGEST: Duration = Duration::from_secs(10);

/// Time until a failed read of the kernel's tables is repeated.
const RETRY: Duration = Duration::from_secs(1);
/// Log lines about routes and interfaces per second; the burst is ten.
const LOG_LINES: u32 = 1;
/// Consecutive commands before packets are forwarded.
const COMMANDS: usize = 16;

/// Time allowed for the withdrawal from the hierarchy.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(2);

/// The data thread's state, one field for each source of events and each output of its loop.
#[derive(Debug)]
pub(crate) struct DataPath {
    started: StdInstant,
    config: Config,
    router: Router<'static>,
    interfaces: Interfaces,
    repliers: BTreeMap<Key, StaticReplier>,
    links: link::Watcher,
    routes: Routes,
    capture: Capture,
    watch: SourceWatch,
    sender: Sender,
    resolver: Resolver,
    waker: Waker,
    /// The guard, which is removed when this is dropped.
    guard: Option<Guard>,
    requests: TotalLimit,
    dmcasts: TotalLimit,
    path_stats: PathStats,
    route_stats: RouteStats,
    ring_stats: RingStats,
    send_buffer: Box<[u8]>,
    log: TotalLimit,
    /// Earliest time of the next log line about a neighbour of another version.
    version_log_at: Option<Instant>,
    /// Changes of routes are pending for which no descriptor is readable.
    more_routes: bool,
    /// When to repeat a failed read of the kernel's tables.
    retry: Option<Instant>,
}

/// The data thread has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataError {
    #[error("waiting for packets: {0}")]
    Wait(std::io::Error),
}

/// Descriptors that are readable.
#[derive(Clone, Copy, Default)]
struct Ready {
    links: bool,
    routes: bool,
    commands: bool,
}

impl DataPath {
    /// Returns the capabilities that the thread uses after everything is open.
    pub(crate) fn needed_later(config: &Config) -> Vec<Capability> {
        // Required to have the kernel resolve a neighbour's link address.
        match config.names_neighbours() {
            true => vec![Capability::NetAdmin],
            false => Vec::new(),
        }
    }

    pub(crate) fn new(opened: Opened, config: &Config) -> DataPath {
        let started = StdInstant::now();
        let now = Instant::ZERO;
        let limits = &config.limits;
        let storage =
            router::Storage::with_capacity(limits.groups as usize, usize::from(limits.interfaces));
        DataPath {
            started,
            config: config.clone(),
            router: Router::new(machine_config(config), storage, opened.seed, now),
            interfaces: Interfaces::new(limits.interfaces),
            repliers: routes::repliers(config),
            links: opened.links,
            routes: opened.routes,
            capture: opened.capture,
            watch: SourceWatch::default(),
            sender: opened.sender,
            resolver: opened.resolver,
            waker: opened.waker,
            guard: opened.guard,
            requests: TotalLimit::new(limits.requests_per_s),
            dmcasts: TotalLimit::new(limits.dmcasts_per_s),
            path_stats: PathStats::default(),
            route_stats: RouteStats::default(),
            ring_stats: RingStats::default(),
            send_buffer: vec![0; 1500].into(),
            log: TotalLimit::new(LOG_LINES),
            version_log_at: None,
            more_routes: false,
            retry: None,
        }
    }

    fn now(&self) -> Instant {
        let elapsed = self.started.elapsed().as_micros();
        Instant::from_micros(i64::try_from(elapsed).unwrap_or(i64::MAX))
    }

    /// Runs until a command stops it.
    pub(crate) fn run(&mut self, commands: &Receiver<Command>) -> Result<(), DataError> {
        self.follow_links();
        self.follow_routes();
        loop {
            self.forward();
            self.timers();
            let ready = self.wait()?;
            if ready.links {
                self.follow_links();
            }
            if ready.routes {
                self.follow_routes();
            }
            if ready.commands && !self.handle_commands(commands) {
                self.withdraw();
                return Ok(());
            }
        }
    }

    /// Forwards packets until none are left, or other work must be done.
    fn forward(&mut self) {
        for _ in 0..ROUNDS {
            let now = self.now();
            let mut path = Path {
                now,
                router: &mut self.router,
                interfaces: &mut self.interfaces,
                resolver: &mut self.resolver,
                watch: &mut self.watch,
                proxy: match &mut self.routes {
                    Routes::Proxy(proxy) => Some(proxy),
                    Routes::Kernel(_) | Routes::Static(_) => None,
                },
                requests: &mut self.requests,
                dmcasts: &mut self.dmcasts,
                stats: &mut self.path_stats,
                version_log_at: &mut self.version_log_at,
                guarded: self.guard.is_some(),
            };
            let count = path.batch(&mut self.capture, &self.sender);
            if count < BATCH {
                break;
            }
        }
    }

    fn timers(&mut self) {
        let now = self.now();
        self.router.handle_timeout(now);
        self.with_installer(Routes::drain);
        self.transmit(now);
        while let Some(event) = self.router.poll_event() {
            match event {
                Event::Elected { key, replier } => {
                    tracing::debug!(route = %key, ?replier, "replier elected");
                }
                Event::SourceWanted { key, .. } => self.watch.want(now, key),
            }
        }
        if let Err(error) = self.watch.apply(now, &mut self.capture)
            && self.log.take(now)
        {
            tracing::warn!(event = "sources_not_watched", %error, "cannot watch for sources of shared trees");
        }
        if self.resolver.poll_timeout().is_some_and(|at| at <= now) {
            self.resolver.ask(now);
        }
    }

    /// Sends the messages of the machines.
    fn transmit(&mut self, now: Instant) {
        loop {
            let buffer = &mut self.send_buffer;
            let from_router = self.router.poll_transmit(now, buffer);
            let transmit = from_router.or_else(|| match &mut self.routes {
                Routes::Proxy(proxy) => proxy.poll_transmit(now, buffer),
                Routes::Kernel(_) | Routes::Static(_) => None,
            });
            let Some(transmit) = transmit else { return };
            let packet = &self.send_buffer[..transmit.len];
            let Some(slot) = self.interfaces.get_mut(transmit.iface) else {
                continue;
            };
            let sent = self.sender.send(slot.index, group_link(packet), packet);
            slot.counters.control_sent += sent.sent;
            self.path_stats.send_failed += sent.failed;
        }
    }

    fn wait(&mut self) -> Result<Ready, DataError> {
        let now = self.now();
        let timers = [
            self.router.poll_timeout(),
            self.routes.poll_timeout(),
            self.resolver.poll_timeout(),
            self.watch.poll_timeout(),
            self.retry,
            self.more_routes.then_some(now),
        ];
        let next = timers.into_iter().flatten().min();
        let timeout = next.map_or(
            LONGEST,
            |at| if at > now { at - now } else { Duration::ZERO },
        );
        let timeout = StdDuration::from_micros(timeout.min(LONGEST).total_micros());
        let routes = match &self.routes {
            Routes::Kernel(watcher) => Some(watcher.as_fd()),
            Routes::Static(_) => None,
            Routes::Proxy(proxy) => Some(proxy.as_fd()),
        };
        // A descriptor may be listed twice.
        let routes = routes.unwrap_or(self.waker.as_fd());
        let mut watches = [
            Watch::readable(self.capture.as_fd()),
            Watch::readable(self.waker.as_fd()),
            Watch::readable(self.links.as_fd()),
            Watch::readable(routes),
        ];
        poll::wait(&mut watches, Some(timeout)).map_err(DataError::Wait)?;
        let [commands, links, routes] = [1, 2, 3].map(|at: usize| watches[at].is_readable());
        let now = self.now();
        let again = self.retry.take_if(|at| *at <= now).is_some();
        Ok(Ready {
            commands,
            links: links || again,
            routes: routes || again || std::mem::take(&mut self.more_routes),
        })
    }

    /// Handles interfaces that were added, changed or removed.
    fn follow_links(&mut self) {
        let mut changed = false;
        loop {
            let event = match self.links.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => {
                    self.unread_links(&error);
                    break;
                }
            };
            let change = match &event {
                LinkEvent::Added(link) | LinkEvent::Changed(link) => {
                    self.interfaces.update(link, &self.config)
                }
                LinkEvent::Removed(link) => {
                    self.resolver.forget(link.index);
                    self.interfaces.remove(link.index)
                }
            };
            changed |= self.interface_changed(change);
        }
        if changed {
            let follow = self.with_installer(Routes::interfaces_changed);
            self.followed(follow);
        }
    }

    /// The interfaces could not be read: the previous state is used until they can be.
    fn unread_links(&mut self, error: &linux_net::ReceiveError) {
        let now = self.now();
        self.route_stats.errors += 1;
        if self.log.take(now) {
            tracing::warn!(event = "interfaces_not_followed", %error, "cannot follow interface changes");
        }
        self.retry = Some(now + RETRY);
    }

    /// Updates the machine; returns whether the routes must be installed again.
    fn interface_changed(&mut self, change: Change) -> bool {
        let now = self.now();
        match change {
            Change::None => false,
            Change::Renamed => true,
            Change::Removed(iface) => {
                self.router.remove_interface(now, iface);
                true
            }
            Change::Set(iface) => {
                let Some(slot) = self.interfaces.get(iface) else {
                    return false;
                };
                if let Err(error) = self.capture.add_interface(slot.index) {
                    tracing::warn!(event = "all_groups_failed", interface = slot.name, %error, "cannot receive all groups on the interface");
                }
                let Some(address) = slot.address else {
                    // Without an address it can carry data, but cannot be a turning point.
                    self.router.remove_interface(now, iface);
                    return true;
                };
                let config = InterfaceConfig::ipv4(address.address, address.prefix_len);
                if let Err(error) = self.router.set_interface(now, iface, config) {
                    tracing::warn!(event = "interface_failed", interface = slot.name, %error, "cannot use the interface");
                }
                true
            }
        }
    }

    fn follow_routes(&mut self) {
        let follow = self.with_installer(Routes::follow);
        self.followed(follow);
    }

    /// Schedules further changes after the next packets, and failed reads later.
    fn followed(&mut self, follow: Follow) {
        match follow {
            Follow::Done => {}
            Follow::More => self.more_routes = true,
            Follow::Failed => self.retry = Some(self.now() + RETRY),
        }
    }

    fn with_installer<T>(&mut self, run: impl FnOnce(&mut Routes, &mut Installer<'_>) -> T) -> T {
        let mut installer = Installer {
            now: self.now(),
            router: &mut self.router,
            interfaces: &self.interfaces,
            repliers: &self.repliers,
            stats: &mut self.route_stats,
            log: &mut self.log,
        };
        run(&mut self.routes, &mut installer)
    }

    /// Handles commands of the control thread; returns `false` when it stops the thread or has ended.
    fn handle_commands(&mut self, commands: &Receiver<Command>) -> bool {
        self.waker.reset();
        for _ in 0..COMMANDS {
            match commands.try_recv() {
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Ok(command) => self.answer(command),
                Err(TryRecvError::Empty) => return true,
            }
        }
        // The others are handled after the next packets.
        self.waker.wake();
        true
    }

    /// Applies a validated configuration.
    fn reload(&mut self, config: &Config) {
        let now = self.now();
        let before = std::mem::replace(&mut self.config, config.clone());
        self.router.set_config(now, machine_config(config));
        if before.limits != config.limits {
            self.requests.set_rate(config.limits.requests_per_s, now);
            self.dmcasts.set_rate(config.limits.dmcasts_per_s, now);
        }
        let links: Vec<_> = self.links.interfaces().cloned().collect();
        for link in &links {
            let change = self.interfaces.update(link, &self.config);
            self.interface_changed(change);
        }
        self.reload_repliers();
        let source = self.config.source.clone();
        let follow = self.with_installer(|routes, install| {
            routes.reload(&source, install);
            routes.interfaces_changed(install)
        });
        self.followed(follow);
    }

    /// Unpins repliers that the configuration no longer names.
    fn reload_repliers(&mut self) {
        let now = self.now();
        self.repliers = routes::repliers(&self.config);
        let repliers = &self.repliers;
        self.resolver.keep(|address| {
            repliers
                .values()
                .any(|fixed| fixed.neighbour == Some(address))
        });
        for key in self.keys() {
            // No entry, no replier: nothing to free.
            let _ = self.router.set_replier(now, key, None);
        }
    }
}

impl DataPath {
    /// Withdraws from the hierarchy, so that parents elect another replier at once.
    fn withdraw(&mut self) {
        let end = self.now() + WITHDRAW_TIMEOUT;
        let keys: Vec<Key> = self.keys();
        for key in keys {
            self.router.remove(self.now(), key);
        }
        loop {
            let now = self.now();
            self.router.handle_timeout(now);
            self.transmit(now);
            match self.router.poll_timeout() {
                Some(at) if at < end && now < end => {
                    let pause = if at > now { at - now } else { Duration::ZERO };
                    std::thread::sleep(StdDuration::from_micros(pause.total_micros()));
                }
                _ => return,
            }
        }
    }

    fn keys(&self) -> Vec<Key> {
        self.router
            .table()
            .iter()
            .map(|(_, entry)| entry.key())
            .collect()
    }
}

/// Returns the configuration of the machine.
fn machine_config(config: &Config) -> router::Config {
    let rate = |per_second: u32| Rate {
        per_second,
        burst: (per_second / 10).max(10),
    };
    let refresh = u64::try_from(config.replier.refresh.as_micros()).unwrap_or(u64::MAX);
    let refresh = Duration::from_micros(refresh);
    router::Config {
        policy: match config.replier.policy {
            config::Policy::Hierarchy => Policy::Hierarchy,
            config::Policy::Random => Policy::Random { redraw: refresh },
            config::Policy::Static => Policy::Static,
            config::Policy::SearchParty => Policy::SearchParty {
                copies: config.replier.copies,
                up: 128,
            },
        },
        request_rate: rate(config.limits.group_requests_per_s),
        dmcast_rate: rate(config.limits.group_dmcasts_per_s),
        repairs_per_request: config.limits.repairs_per_request,
        repair_time: router::Config::default().repair_time,
        hierarchy: hier::Config {
            refresh,
            own_cost: config.replier.cost,
            ..hier::Config::default()
        },
    }
}

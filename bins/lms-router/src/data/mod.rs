//! The data thread: one loop over captured packets, the kernel's notifications, the control
//! thread's commands and the machine's timers. The machine lives here and nowhere else, so no
//! packet ever waits for a lock.

mod answer;
mod family;
mod fast;
mod forward;
mod interfaces;
mod limit;
mod open;
mod proxy;
mod resolve;
mod routes;
mod side;
mod watch;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use linux_net::Capability;
use linux_net::link::{self, LinkEvent};
use linux_net::nft::Guard;
use linux_net::packet::Sender;
use linux_net::poll::{self, Watch};
use linux_net::privileges;
use linux_net::wake::Waker;
use lms_proto::fast_path::Totals;
use lms_proto::{Duration, Instant};

pub(crate) use open::Opened;

use crate::config::Config;
use crate::control::Command;
use fast::Fast;
use forward::PathStats;
use interfaces::{Change, Interfaces};
use limit::TotalLimit;
use routes::RouteStats;
use side::Side;

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

/// The data thread's state: one part for each address family, and what they share.
#[derive(Debug)]
pub(crate) struct DataPath {
    config: Config,
    ipv4: Side<Ipv4Addr>,
    /// `None` on a host without IPv6.
    ipv6: Option<Side<Ipv6Addr>>,
    shared: Shared,
    links: link::Watcher,
    waker: Waker,
    /// The guard, which is removed when this is dropped.
    _guard: Option<Guard>,
    /// When to repeat a failed read of the kernel's interfaces.
    retry: Option<Instant>,
}

/// What both families use.
#[derive(Debug)]
struct Shared {
    started: StdInstant,
    interfaces: Interfaces,
    sender: Sender,
    /// What a guard hides from the kernel, where there is one.
    guard: Option<Hidden>,
    /// The fast path in the driver, where there is one.
    fast: Option<Fast>,
    requests: TotalLimit,
    dmcasts: TotalLimit,
    path_stats: PathStats,
    route_stats: RouteStats,
    send_buffer: Box<[u8]>,
    log: TotalLimit,
    /// Earliest time of the next log line about a neighbour of another version.
    version_log_at: Option<Instant>,
}

/// What the guard was put up for.
#[derive(Clone, Copy, Debug)]
struct Hidden {
    udp_port: Option<NonZeroU16>,
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
    ipv4_routes: bool,
    ipv6_routes: bool,
    commands: bool,
}

impl Shared {
    fn now(&self) -> Instant {
        let elapsed = self.started.elapsed().as_micros();
        Instant::from_micros(i64::try_from(elapsed).unwrap_or(i64::MAX))
    }
}

impl DataPath {
    /// Returns the capabilities that the thread uses after everything is open.
    pub(crate) fn needed_later(config: &Config) -> Vec<Capability> {
        let mut needed = Vec::new();
        // Required to have the kernel resolve a neighbour's link address.
        if config.names_neighbours() {
            needed.push(Capability::NetAdmin);
        }
        // To attach the program to interfaces that come later; without the capability the program was not loaded.
        let has_xdp = config.capture.xdp.is_some() && privileges::has(Capability::NetAdmin);
        if has_xdp && needed.is_empty() {
            needed.push(Capability::NetAdmin);
        }
        needed
    }

    pub(crate) fn new(opened: Opened, config: &Config) -> DataPath {
        let limits = &config.limits;
        let started = StdInstant::now();
        let mut fast = opened.fast;
        if let Some(fast) = &mut fast {
            fast.started(started);
        }
        DataPath {
            config: config.clone(),
            ipv4: Side::new(opened.ipv4, config),
            ipv6: opened.ipv6.map(|opened| Side::new(opened, config)),
            shared: Shared {
                started,
                interfaces: Interfaces::new(limits.interfaces),
                sender: opened.sender,
                guard: opened.guard.is_some().then_some(Hidden {
                    udp_port: config.capture.udp_port,
                }),
                fast,
                requests: TotalLimit::new(limits.requests_per_s),
                dmcasts: TotalLimit::new(limits.dmcasts_per_s),
                path_stats: PathStats::default(),
                route_stats: RouteStats::default(),
                send_buffer: vec![0; 1500].into(),
                log: TotalLimit::new(LOG_LINES),
                version_log_at: None,
            },
            links: opened.links,
            waker: opened.waker,
            _guard: opened.guard,
            retry: None,
        }
    }

    /// Runs until a command stops it.
    pub(crate) fn run(&mut self, commands: &Receiver<Command>) -> Result<(), DataError> {
        self.follow_links();
        let mut ready = Ready {
            ipv4_routes: true,
            ipv6_routes: true,
            ..Ready::default()
        };
        loop {
            let shared = &mut self.shared;
            self.ipv4.follow_routes(shared, ready.ipv4_routes);
            // Before packets of these entries are forwarded here.
            self.publish();
            let shared = &mut self.shared;
            self.ipv4.forward(shared);
            self.ipv4.timers(shared);
            if let Some(ipv6) = &mut self.ipv6 {
                ipv6.follow_routes(shared, ready.ipv6_routes);
                ipv6.forward(shared);
                ipv6.timers(shared);
            }
            self.publish();
            ready = self.wait()?;
            if ready.links {
                self.follow_links();
            }
            if ready.commands && !self.handle_commands(commands) {
                self.withdraw();
                return Ok(());
            }
        }
    }

    fn wait(&mut self) -> Result<Ready, DataError> {
        let now = self.shared.now();
        let ipv6 = self.ipv6.as_ref();
        let timers = [
            self.ipv4.poll_timeout(now),
            self.shared.fast.as_ref().map(Fast::poll_timeout),
            ipv6.and_then(|ipv6| ipv6.poll_timeout(now)),
            self.retry,
        ];
        let next = timers.into_iter().flatten().min();
        let timeout = next.map_or(
            LONGEST,
            |at| if at > now { at - now } else { Duration::ZERO },
        );
        let timeout = StdDuration::from_micros(timeout.min(LONGEST).total_micros());
        // A descriptor may be listed twice.
        let waker = self.waker.as_fd();
        let (ring, routes) = self.ipv4.fds();
        let (ring6, routes6) = ipv6.map_or((waker, None), Side::fds);
        let mut watches = [
            Watch::readable(ring),
            Watch::readable(ring6),
            Watch::readable(waker),
            Watch::readable(self.links.as_fd()),
            Watch::readable(routes.unwrap_or(waker)),
            Watch::readable(routes6.unwrap_or(waker)),
        ];
        poll::wait(&mut watches, Some(timeout)).map_err(DataError::Wait)?;
        let [commands, links, ipv4_routes, ipv6_routes] =
            [2, 3, 4, 5].map(|at: usize| watches[at].is_readable());
        let now = self.shared.now();
        let again = self.retry.take_if(|at| *at <= now).is_some();
        Ok(Ready {
            commands,
            links: links || again,
            ipv4_routes,
            ipv6_routes,
        })
    }

    /// Handles interfaces that were added, changed or removed.
    fn follow_links(&mut self) {
        let mut changed = false;
        let shared_address = self.shared.interfaces.any_ipv6();
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
                    self.shared.interfaces.update(link, &self.config)
                }
                LinkEvent::Removed(link) => {
                    self.ipv4.forget(link.index);
                    if let Some(ipv6) = &mut self.ipv6 {
                        ipv6.forget(link.index);
                    }
                    self.shared.interfaces.remove(link.index)
                }
            };
            changed |= self.interface_changed(change);
        }
        if changed {
            self.shared_address_changed(shared_address);
            self.interfaces_changed();
        }
    }

    /// The interfaces could not be read: the previous state is used until they can be.
    fn unread_links(&mut self, error: &linux_net::ReceiveError) {
        let now = self.shared.now();
        self.shared.route_stats.errors += 1;
        if self.shared.log.take(now) {
            tracing::warn!(event = "interfaces_not_followed", %error, "cannot follow interface changes");
        }
        self.retry = Some(now + RETRY);
    }

    /// Updates the machines; returns whether the routes must be installed again.
    fn interface_changed(&mut self, change: Change) -> bool {
        self.ipv4.interface_changed(&self.shared, change);
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.interface_changed(&self.shared, change);
        }
        change != Change::None
    }

    /// Updates the interfaces without an IPv6 address of their own, which use one of another interface, when that is
    /// no longer `before`.
    fn shared_address_changed(&mut self, before: Option<Ipv6Addr>) {
        let interfaces = &self.shared.interfaces;
        let Some(ipv6) = &mut self.ipv6 else { return };
        if interfaces.any_ipv6() == before {
            return;
        }
        for (iface, _) in interfaces.iter().filter(|(_, slot)| slot.ipv6.is_none()) {
            ipv6.interface_changed(&self.shared, Change::Set(iface));
        }
    }

    /// Tells the fast path what changed in the entries.
    fn publish(&mut self) {
        let now = self.shared.now();
        if let Some(fast) = &mut self.shared.fast {
            let side = &mut self.ipv4;
            fast.publish(
                now,
                &mut side.router,
                &mut side.resolver,
                &self.shared.interfaces,
            );
        }
    }

    /// Tells the fast path everything: the configuration or the interfaces changed.
    fn publish_all(&mut self) {
        let shared = &mut self.shared;
        if let Some(fast) = &mut shared.fast {
            let totals = Totals {
                requests: *shared.requests.rate(),
                dmcasts: *shared.dmcasts.rate(),
            };
            let side = &mut self.ipv4;
            fast.publish_all(
                &mut side.router,
                &mut side.resolver,
                &shared.interfaces,
                totals,
            );
        }
    }

    fn interfaces_changed(&mut self) {
        self.ipv4.interfaces_changed(&mut self.shared);
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.interfaces_changed(&mut self.shared);
        }
        self.publish_all();
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
        let now = self.shared.now();
        let before = std::mem::replace(&mut self.config, config.clone());
        if before.limits != config.limits {
            let shared = &mut self.shared;
            shared.requests.set_rate(config.limits.requests_per_s, now);
            shared.dmcasts.set_rate(config.limits.dmcasts_per_s, now);
        }
        let links: Vec<_> = self.links.interfaces().cloned().collect();
        let shared_address = self.shared.interfaces.any_ipv6();
        for link in &links {
            let change = self.shared.interfaces.update(link, &self.config);
            self.interface_changed(change);
        }
        self.shared_address_changed(shared_address);
        self.ipv4.reload(&mut self.shared, config);
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.reload(&mut self.shared, config);
        }
        self.interfaces_changed();
    }

    /// Withdraws from the hierarchy, so that parents elect another replier at once.
    fn withdraw(&mut self) {
        let end = self.shared.now() + WITHDRAW_TIMEOUT;
        self.ipv4.withdraw(self.shared.now());
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.withdraw(self.shared.now());
        }
        loop {
            let shared = &mut self.shared;
            let next = self.ipv4.send_withdrawals(shared);
            let ipv6 = self.ipv6.as_mut();
            let next6 = ipv6.and_then(|ipv6| ipv6.send_withdrawals(shared));
            let now = shared.now();
            match next.into_iter().chain(next6).min() {
                Some(at) if at < end && now < end => {
                    let pause = if at > now { at - now } else { Duration::ZERO };
                    std::thread::sleep(StdDuration::from_micros(pause.total_micros()));
                }
                _ => return,
            }
        }
    }
}

//! What the data thread has for one address family: the machine, its routes, its captured packets.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

use linux_net::packet::{Capture, RingStats};
use linux_net::raw;
use lms_proto::router::{self, Event, Policy, Rate};
use lms_proto::{Duration, Instant, Key, Router, hier};

use super::family::Family;
use super::forward::{BATCH, Path, group_link};
use super::interfaces::Change;
use super::resolve::Resolver;
use super::routes::{self, FixedReplier, Follow, Installer, Routes};
use super::watch::SourceWatch;
use super::{RETRY, ROUNDS, Shared};
use crate::config::{self, Config};

/// What a family needs from the kernel.
#[derive(Debug)]
pub(crate) struct OpenedSide<A: Family> {
    pub(super) routes: Routes<A>,
    pub(super) capture: Capture,
    pub(super) resolver: Resolver<A>,
    pub(super) raw: raw::Socket<A>,
    pub(super) seed: [u8; 32],
}

/// One family.
#[derive(Debug)]
pub(super) struct Side<A: Family> {
    pub(super) router: Router<'static, A>,
    pub(super) routes: Routes<A>,
    repliers: BTreeMap<Key<A>, FixedReplier<A>>,
    capture: Capture,
    pub(super) ring_stats: RingStats,
    pub(super) watch: SourceWatch<A>,
    pub(super) resolver: Resolver<A>,
    /// Requests that go on by unicast routing leave here.
    raw: raw::Socket<A>,
    /// Changes of routes are pending for which no descriptor is readable.
    more_routes: bool,
    /// When to repeat a failed read of the kernel's routes.
    retry: Option<Instant>,
}

impl<A: Family> Side<A> {
    pub(super) fn new(opened: OpenedSide<A>, config: &Config) -> Side<A> {
        let limits = &config.limits;
        let storage =
            router::Storage::with_capacity(limits.groups as usize, usize::from(limits.interfaces));
        Side {
            router: Router::new(machine_config(config), storage, opened.seed, Instant::ZERO),
            routes: opened.routes,
            repliers: routes::repliers(config),
            capture: opened.capture,
            ring_stats: RingStats::default(),
            watch: SourceWatch::default(),
            resolver: opened.resolver,
            raw: opened.raw,
            more_routes: false,
            retry: None,
        }
    }

    /// Forwards packets until none are left, or other work must be done.
    pub(super) fn forward(&mut self, shared: &mut Shared) {
        for _ in 0..ROUNDS {
            let mut path = Path {
                now: shared.now(),
                router: &mut self.router,
                resolver: &mut self.resolver,
                watch: &mut self.watch,
                proxy: match &mut self.routes {
                    Routes::Proxy(proxy) => Some(proxy),
                    Routes::Kernel(_) | Routes::Static(_) => None,
                },
                raw: &self.raw,
                interfaces: &mut shared.interfaces,
                requests: &mut shared.requests,
                dmcasts: &mut shared.dmcasts,
                stats: &mut shared.path_stats,
                version_log_at: &mut shared.version_log_at,
                guard: shared.guard,
                fast: shared.fast.as_ref(),
            };
            let count = path.batch(&mut self.capture, &shared.sender);
            if count < BATCH {
                break;
            }
        }
    }

    pub(super) fn timers(&mut self, shared: &mut Shared) {
        let now = shared.now();
        self.router.handle_timeout(now);
        self.with_installer(shared, Routes::drain);
        self.transmit(shared, now);
        while let Some(event) = self.router.poll_event() {
            match event {
                Event::Elected { key, replier } => {
                    tracing::debug!(route = %key, ?replier, "replier elected");
                }
                Event::SourceWanted { key, .. } => self.watch.want(now, key),
            }
        }
        if let Err(error) = self.watch.apply(now, &mut self.capture)
            && shared.log.take(now)
        {
            tracing::warn!(event = "sources_not_watched", %error, "cannot watch for sources of shared trees");
        }
        if self.resolver.poll_timeout().is_some_and(|at| at <= now) {
            self.resolver.ask(now);
        }
    }

    /// Sends the messages of the machines.
    fn transmit(&mut self, shared: &mut Shared, now: Instant) {
        loop {
            let buffer = &mut shared.send_buffer;
            let from_router = self.router.poll_transmit(now, buffer);
            let transmit = from_router.or_else(|| match &mut self.routes {
                Routes::Proxy(proxy) => proxy.poll_transmit(now, buffer),
                Routes::Kernel(_) | Routes::Static(_) => None,
            });
            let Some(transmit) = transmit else { return };
            let packet = &shared.send_buffer[..transmit.len];
            let Some(slot) = shared.interfaces.get_mut(transmit.iface) else {
                continue;
            };
            let sent = shared
                .sender
                .send(slot.index, group_link::<A>(packet), packet);
            slot.counters.control_sent += sent.sent;
            shared.path_stats.send_failed += sent.failed;
        }
    }

    /// When this side has something to do.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let timers = [
            self.router.poll_timeout(),
            self.routes.poll_timeout(),
            self.resolver.poll_timeout(),
            self.watch.poll_timeout(),
            self.retry,
            self.more_routes.then_some(now),
        ];
        timers.into_iter().flatten().min()
    }

    /// The descriptors to wait for: of packets, and of routes where there is one.
    pub(super) fn fds(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        let routes = match &self.routes {
            Routes::Kernel(watcher) => Some(watcher.as_fd()),
            Routes::Static(_) => None,
            Routes::Proxy(proxy) => Some(proxy.as_fd()),
        };
        (self.capture.as_fd(), routes)
    }

    /// Follows the routes where their descriptor is readable, or there is more to follow.
    pub(super) fn follow_routes(&mut self, shared: &mut Shared, is_readable: bool) {
        let now = shared.now();
        let again = self.retry.take_if(|at| *at <= now).is_some();
        if is_readable || again || std::mem::take(&mut self.more_routes) {
            let follow = self.with_installer(shared, Routes::follow);
            self.followed(shared, follow);
        }
    }

    pub(super) fn interfaces_changed(&mut self, shared: &mut Shared) {
        let follow = self.with_installer(shared, Routes::interfaces_changed);
        self.followed(shared, follow);
    }

    /// Schedules further changes after the next packets, and failed reads later.
    fn followed(&mut self, shared: &Shared, follow: Follow) {
        match follow {
            Follow::Done => {}
            Follow::More => self.more_routes = true,
            Follow::Failed => self.retry = Some(shared.now() + RETRY),
        }
    }

    fn with_installer<T>(
        &mut self,
        shared: &mut Shared,
        run: impl FnOnce(&mut Routes<A>, &mut Installer<'_, A>) -> T,
    ) -> T {
        let mut installer = Installer {
            now: shared.now(),
            router: &mut self.router,
            interfaces: &shared.interfaces,
            repliers: &self.repliers,
            stats: &mut shared.route_stats,
            log: &mut shared.log,
        };
        run(&mut self.routes, &mut installer)
    }

    /// Updates the machine as an interface changed.
    pub(super) fn interface_changed(&mut self, shared: &Shared, change: Change) {
        let now = shared.now();
        let iface = match change {
            Change::None | Change::Renamed => return,
            Change::Removed(iface) => return self.router.remove_interface(now, iface),
            Change::Set(iface) => iface,
        };
        let Some(slot) = shared.interfaces.get(iface) else {
            return;
        };
        if let Err(error) = self.capture.add_interface(slot.index) {
            tracing::warn!(event = "all_groups_failed", interface = slot.name, %error, "cannot receive all groups on the interface");
        }
        let Some(config) = A::config(&shared.interfaces, iface) else {
            // Without an address it can carry data, but cannot be a turning point.
            return self.router.remove_interface(now, iface);
        };
        if let Err(error) = self.router.set_interface(now, iface, config) {
            tracing::warn!(event = "interface_failed", interface = slot.name, family = A::NAME, %error, "cannot use the interface");
        }
    }

    /// Removes what the machine and the resolver know of an interface that is gone.
    pub(super) fn forget(&mut self, interface: u32) {
        self.resolver.forget(interface);
    }

    /// Applies a validated configuration; `interfaces_changed` follows.
    pub(super) fn reload(&mut self, shared: &mut Shared, config: &Config) {
        let now = shared.now();
        self.router.set_config(now, machine_config(config));
        self.repliers = routes::repliers(config);
        let repliers = &self.repliers;
        self.resolver.keep(|address| {
            repliers
                .values()
                .any(|fixed| fixed.neighbour == Some(address))
        });
        // Repliers that the configuration no longer names.
        for key in self.keys() {
            // No entry, no replier: nothing to free.
            let _ = self.router.set_replier(now, key, None);
        }
        let source = config.source.clone();
        self.with_installer(shared, |routes, install| routes.reload(&source, install));
    }

    /// Withdraws from the hierarchy, so that parents elect another replier at once.
    pub(super) fn withdraw(&mut self, now: Instant) {
        for key in self.keys() {
            self.router.remove(now, key);
        }
    }

    /// Sends withdrawals that are due; returns when there is more.
    pub(super) fn send_withdrawals(&mut self, shared: &mut Shared) -> Option<Instant> {
        let now = shared.now();
        self.router.handle_timeout(now);
        self.transmit(shared, now);
        self.router.poll_timeout()
    }

    fn keys(&self) -> Vec<Key<A>> {
        let entries = self.router.table().iter();
        entries.map(|(_, entry)| entry.key()).collect()
    }

    /// Adds what the kernel counted of the ring since the last reading.
    pub(super) fn read_ring(&mut self) -> RingStats {
        if let Ok(since) = self.capture.stats() {
            self.ring_stats.received += since.received;
            self.ring_stats.dropped_full += since.dropped_full;
            self.ring_stats.dropped_truncated += since.dropped_truncated;
        }
        self.ring_stats
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
        udp_port: config.capture.udp_port,
        hierarchy: hier::Config {
            refresh,
            own_cost: config.replier.cost,
            ..hier::Config::default()
        },
    }
}

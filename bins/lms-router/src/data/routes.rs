//! Where multicast routes come from: one abstraction over the kernel's table, the configuration's,
//! and the IGMP proxy's.
//!
//! A source names interfaces as it knows them (kernel numbers or names); [`Installer`] turns a
//! route into an entry of the machine. Interfaces that the router does not use, or that are not
//! there yet, are left out of the entry; when they come, all routes are looked at again.

use std::collections::BTreeMap;
use std::net::IpAddr;

use linux_net::ReceiveError;
use linux_net::mroute::{MrouteEvent, Route, Watcher, WatcherConfig};
use lms_proto::table::{Neighbour, Replier};
use lms_proto::{Iface, Instant, Key, Router};

use super::family::Family;
use super::interfaces::Interfaces;
use super::limit::TotalLimit;
use super::proxy::Proxy;
use crate::config::{Config, Source, StaticRoute};
use daemon_kit::RunError;

/// Changes of the kernel's routes that one call takes.
const CHANGES: usize = 256;

/// The routes' source.
#[derive(Debug)]
pub(crate) enum Routes<A: Family> {
    Kernel(Watcher<A>),
    Static(Vec<StaticRoute>),
    Proxy(Box<Proxy<A>>),
}

/// Counters of routes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RouteStats {
    pub(crate) installed: u64,
    pub(crate) removed: u64,
    /// Routes that the machine refused: the table is full, or the route is invalid.
    pub(crate) refused: u64,
    /// Repliers of the configuration that do not fit their route.
    pub(crate) repliers_refused: u64,
    /// Times the kernel's notifications or tables (of routes, of interfaces) could not be read.
    pub(crate) errors: u64,
}

/// The outcome of reading changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    /// All changes were read.
    Done,
    /// There may be more, without a readable descriptor.
    More,
    /// Reading failed; try again later.
    Failed,
}

/// Installs routes in the machine.
pub(crate) struct Installer<'a, A: Family> {
    pub(crate) now: Instant,
    pub(crate) router: &'a mut Router<'static, A>,
    pub(crate) interfaces: &'a Interfaces,
    pub(crate) repliers: &'a BTreeMap<Key<A>, FixedReplier<A>>,
    pub(crate) stats: &'a mut RouteStats,
    /// Limits log lines about routes.
    pub(crate) log: &'a mut TotalLimit,
}

impl<A: Family> Routes<A> {
    pub(crate) fn open(config: &Config, seed: [u8; 32]) -> Result<Routes<A>, RunError> {
        Ok(match &config.source {
            Source::Kernel => {
                let limit = config.limits.groups as usize;
                let watcher = WatcherConfig {
                    max_routes: limit,
                    ..WatcherConfig::default()
                };
                Routes::Kernel(Watcher::open_for(&watcher).map_err(RunError::open("source.kind"))?)
            }
            Source::Static(routes) => Routes::Static(routes.clone()),
            Source::IgmpProxy(proxy) => Routes::Proxy(Box::new(Proxy::open(config, proxy, seed)?)),
        })
    }

    /// Reads a bounded number of the kernel's changes.
    pub(crate) fn follow(&mut self, install: &mut Installer<'_, A>) -> Follow {
        let watcher = match self {
            Routes::Kernel(watcher) => watcher,
            Routes::Static(_) => return Follow::Done,
            Routes::Proxy(proxy) => return proxy.upcalls(install),
        };
        for _ in 0..CHANGES {
            match watcher.next_event() {
                Ok(Some(MrouteEvent::Added(route) | MrouteEvent::Changed(route))) => {
                    install.kernel(&route);
                }
                Ok(Some(MrouteEvent::Removed(route))) => install.remove(key_of(&route)),
                Ok(None) => return Follow::Done,
                Err(error) => return install.unread(&error),
            }
        }
        Follow::More
    }

    /// Installs every route again after interfaces have changed.
    pub(crate) fn interfaces_changed(&mut self, install: &mut Installer<'_, A>) -> Follow {
        match self {
            Routes::Kernel(watcher) => {
                // The kernel does not report routes whose interfaces vanish.
                let read = watcher.resync();
                for route in watcher.routes() {
                    install.kernel(route);
                }
                // The differences are queued in the watcher, without a readable descriptor.
                return match read {
                    Ok(()) => Follow::More,
                    Err(error) => install.unread(&error),
                };
            }
            Routes::Static(routes) => {
                for route in routes.iter() {
                    install.fixed(route);
                }
            }
            Routes::Proxy(proxy) => proxy.interfaces_changed(install),
        }
        Follow::Done
    }

    /// Timers of the source itself.
    pub(crate) fn drain(&mut self, install: &mut Installer<'_, A>) {
        if let Routes::Proxy(proxy) = self {
            proxy.drain(install);
        }
    }

    /// When [`Routes::drain`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Routes::Proxy(proxy) => proxy.poll_timeout(),
            Routes::Kernel(_) | Routes::Static(_) => None,
        }
    }

    /// Static routes of a new configuration.
    pub(crate) fn reload(&mut self, source: &Source, install: &mut Installer<'_, A>) {
        let (Routes::Static(old), Source::Static(new)) = (self, source) else {
            return;
        };
        let key = |route: &StaticRoute| named(route.source, route.group);
        let gone = old.iter().filter(|o| !new.iter().any(|n| key(n) == key(o)));
        for key in gone.filter_map(key) {
            install.remove(key);
        }
        old.clone_from(new);
        for route in old.iter() {
            install.fixed(route);
        }
    }

    /// Routes passed over by the source itself.
    pub(crate) fn ignored(&self) -> u64 {
        match self {
            Routes::Kernel(watcher) => watcher.ignored(),
            Routes::Static(_) | Routes::Proxy(_) => 0,
        }
    }
}

fn key_of<A: Family>(route: &Route<A>) -> Key<A> {
    Key::new(route.source, route.group)
}

/// The entry that the configuration names, if it is of this family; no source: any.
fn named<A: Family>(source: Option<IpAddr>, group: IpAddr) -> Option<Key<A>> {
    let group = A::of(group)?;
    match source {
        Some(source) => Some(Key::new(A::of(source)?, group)),
        None => Some(Key::any_source(group)),
    }
}

impl<A: Family> Installer<'_, A> {
    /// The kernel's routes could not be read.
    fn unread(&mut self, error: &ReceiveError) -> Follow {
        self.stats.errors += 1;
        if self.may_log() {
            tracing::warn!(event = "routes_not_read", %error, "cannot read the kernel's multicast routes");
        }
        Follow::Failed
    }

    /// Returns whether one more line about routes may be logged.
    pub(crate) fn may_log(&mut self) -> bool {
        self.log.take(self.now)
    }

    fn kernel(&mut self, route: &Route<A>) {
        if route.group.is_link_local_group() || !route.group.is_multicast() {
            return;
        }
        let parent = self.interfaces.number(route.input);
        let downstream = route
            .outputs
            .iter()
            .filter_map(|index| self.interfaces.number(*index))
            .collect();
        self.install(key_of(route), parent, downstream);
    }

    /// A route of the configuration, if it is of this family.
    fn fixed(&mut self, route: &StaticRoute) {
        let Some(key) = named(route.source, route.group) else {
            return;
        };
        let parent = self.interfaces.named(&route.upstream);
        let downstream = route
            .downstream
            .iter()
            .filter_map(|name| self.interfaces.named(name))
            .collect();
        self.install(key, parent, downstream);
    }

    pub(crate) fn install(
        &mut self,
        key: Key<A>,
        parent: Option<Iface>,
        mut downstream: Vec<Iface>,
    ) {
        let parent = parent.unwrap_or(Iface::UNSET);
        // The kernel lists the input of a (*, G) route among its outputs.
        downstream.retain(|iface| *iface != parent);
        match self.router.install(self.now, key, parent, &downstream) {
            Ok(_) => self.stats.installed += 1,
            Err(error) => {
                self.stats.refused += 1;
                if self.may_log() {
                    tracing::warn!(event = "route_left_out", route = %key, %error, "multicast route left out");
                }
                return;
            }
        }
        self.set_replier(key);
    }

    /// Sets the replier that the configuration names for a route.
    pub(crate) fn set_replier(&mut self, key: Key<A>) {
        let any = Key::any_source(key.group);
        let Some(fixed) = self.repliers.get(&key).or_else(|| self.repliers.get(&any)) else {
            return;
        };
        let Some(iface) = self.interfaces.named(&fixed.interface) else {
            return;
        };
        let neighbour = fixed.neighbour.map(|addr| Neighbour { addr, link: None });
        let replier = Replier {
            iface,
            cost: 0,
            neighbour,
        };
        if let Err(error) = self.router.set_replier(self.now, key, Some(replier)) {
            self.stats.repliers_refused += 1;
            if self.log.take(self.now) {
                let interface = &fixed.interface;
                tracing::warn!(event = "static_replier_failed", route = %key, interface, %error, "cannot use the static replier");
            }
        }
    }

    pub(crate) fn remove(&mut self, key: Key<A>) {
        if self.router.remove(self.now, key) {
            self.stats.removed += 1;
        }
    }
}

/// A replier of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct FixedReplier<A> {
    interface: String,
    pub(crate) neighbour: Option<A>,
}

/// Returns the configured repliers of this family by source and group.
pub(crate) fn repliers<A: Family>(config: &Config) -> BTreeMap<Key<A>, FixedReplier<A>> {
    let fixed = config.replier.fixed.iter();
    fixed
        .filter_map(|replier| {
            let fixed = FixedReplier {
                interface: replier.interface.clone(),
                neighbour: replier.neighbour.and_then(A::of),
            };
            Some((named(replier.source, replier.group)?, fixed))
        })
        .collect()
}

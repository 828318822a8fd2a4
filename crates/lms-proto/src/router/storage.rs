//! Storage of a router without a heap, as one static type with named limits.

/// Declares the storage of a [`Router`](crate::router::Router) without a heap: one type, made of named limits. A limit
/// that is out of range does not compile. For IPv6 `family: core::net::Ipv6Addr` comes first.
///
/// ```
/// use lms_proto::router::{Config, Router};
/// use lms_proto::Instant;
///
/// lms_proto::router_storage! {
///     /// The tables of an edge router.
///     struct Tables {
///         groups: 16,      // multicast forwarding entries
///         interfaces: 4,   // interface numbers below this
///         sources: 0,      // sources of shared trees that may be seen at a time
///         offers: 32,      // offers of repliers in all entries together
///         neighbours: 16,  // neighbouring hosts and routers
///         branches: 32,    // downstream links of entries with offers
///     }
/// }
///
/// let mut tables = Tables::default();
/// let now = Instant::from_millis(0);
/// let router = Router::new(Config::default(), tables.lend(), [7; 32], now);
/// assert_eq!((router.table().capacity(), router.table().iface_limit()), (16, 48));
/// ```
#[macro_export]
macro_rules! router_storage {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident {
            groups: $groups:expr,
            $($rest:tt)*
        }
    ) => {
        $crate::router_storage! {
            $(#[$meta])*
            $visibility struct $name {
                family: ::core::net::Ipv4Addr,
                groups: $groups,
                $($rest)*
            }
        }
    };
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident {
            family: $family:ty,
            groups: $groups:expr,
            interfaces: $interfaces:expr,
            sources: $sources:expr,
            offers: $offers:expr,
            neighbours: $neighbours:expr,
            branches: $branches:expr $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug)]
        $visibility struct $name {
            entries: [$crate::table::Entry<$family>; $groups],
            slots: [$crate::table::Slot; $crate::table::min_slots($groups)],
            downstream: [$crate::table::IfaceWord; $crate::table::words_for($groups, $interfaces)],
            interfaces: [$crate::router::Interface<$family>; $interfaces],
            addresses: [$crate::table::Slot; $crate::table::min_slots($interfaces)],
            subnets: [$crate::table::Slot; $crate::table::min_slots($interfaces)],
            sources: [$crate::router::SeenSource<$family>; $sources],
            hierarchy: $crate::hier::StaticStorage<
                { $groups },
                { $offers },
                { $neighbours },
                { $groups + $branches },
                { 2 * $interfaces },
                $family,
            >,
        }

        const _: () = {
            assert!($groups >= 1 && $groups <= 16_777_214, "groups: 1 to 16,777,214");
            assert!($interfaces >= 2 && $interfaces <= 65_534, "interfaces: 2 to 65,534");
        };

        impl ::core::default::Default for $name {
            fn default() -> Self {
                $name {
                    entries: ::core::array::from_fn(|_| ::core::default::Default::default()),
                    slots: ::core::array::from_fn(|_| ::core::default::Default::default()),
                    downstream: ::core::array::from_fn(|_| ::core::default::Default::default()),
                    interfaces: ::core::array::from_fn(|_| ::core::default::Default::default()),
                    addresses: ::core::array::from_fn(|_| ::core::default::Default::default()),
                    subnets: ::core::array::from_fn(|_| ::core::default::Default::default()),
                    sources: ::core::array::from_fn(|_| ::core::default::Default::default()),
                    hierarchy: ::core::default::Default::default(),
                }
            }
        }

        impl $name {
            /// Lends the tables to a router.
            $visibility fn lend(&mut self) -> $crate::router::Storage<'_, $family> {
                $crate::router::Storage {
                    table: $crate::table::Storage {
                        entries: (&mut self.entries[..]).into(),
                        slots: (&mut self.slots[..]).into(),
                        downstream: (&mut self.downstream[..]).into(),
                    },
                    interfaces: (&mut self.interfaces[..]).into(),
                    addresses: (&mut self.addresses[..]).into(),
                    subnets: (&mut self.subnets[..]).into(),
                    sources: (&mut self.sources[..]).into(),
                    hierarchy: self.hierarchy.lend(),
                }
            }
        }
    };
}

//! Look-ahead over a batch of packets: the cache lines of all its entries are read together.

use super::Router;
use crate::carrier::{Carrier, Udp};
use crate::table::{Ahead, LOOK_AHEAD};
use crate::{Family, Iface, Key};

impl<A: Family> Router<'_, A> {
    /// Reads the table's lines that a batch of packets will need, each packet with the interface that it arrived on:
    /// call it before [`Router::forward`] is called for each of them. Forwarding then waits for memory once for
    /// several packets instead of twice for each one. A table that the core's cache holds is not read.
    ///
    /// Changes nothing, and no verdict depends on it: `forward` looks everything up again. The batch should have at
    /// most some hundred packets, for which the core's first-level cache has room.
    ///
    /// ```
    /// # use lms_proto::router::{Config, Router, Storage};
    /// # use lms_proto::{Iface, Instant, Meta};
    /// # let now = Instant::from_millis(0);
    /// # let mut router = Router::<core::net::Ipv4Addr>::new(Config::default(), Storage::with_capacity(8, 8), [7; 32], now);
    /// let mut batch = [(Iface(1), [0u8; 64]), (Iface(2), [0u8; 64])];
    /// router.look_ahead(batch.iter().map(|(iface, packet)| (*iface, &packet[..])));
    /// for (iface, packet) in &mut batch {
    ///     let meta = Meta { iface: *iface, link_source: None };
    ///     let verdict = router.forward(now, &meta, packet);
    /// }
    /// ```
    pub fn look_ahead<'p>(&self, batch: impl IntoIterator<Item = (Iface, &'p [u8])>) {
        if !self.table.is_beyond_cache() {
            return;
        }
        let keys = batch.into_iter().filter_map(|(iface, packet)| {
            let key = self.guess_key(packet)?;
            Some(Ahead::new(key, iface))
        });
        let none = Ahead::new(Key::any_source(A::UNSPECIFIED), Iface::UNSET);
        let (mut group, mut len) = ([none; LOOK_AHEAD], 0);
        for ahead in keys {
            group[len] = ahead;
            len += 1;
            if len == LOOK_AHEAD {
                self.table.look_ahead(&mut group);
                len = 0;
            }
        }
        self.table.look_ahead(&mut group[..len]);
    }

    #[inline]
    fn guess_key(&self, packet: &[u8]) -> Option<Key<A>> {
        match self.udp_port {
            Some(port) if Udp::<A>::is_to(packet, port.get()) => Udp::<A>::guess_key(packet),
            _ => A::Option::guess_key(packet),
        }
    }
}

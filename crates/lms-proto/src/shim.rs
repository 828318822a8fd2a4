//! Temporary.
#![allow(missing_docs, dead_code, clippy::all, clippy::pedantic)]
pub(crate) mod datagram {
    use crate::Family;
    pub struct Ip<'a, A> {
        pub source: A,
        pub destination: A,
        pub ttl: u8,
        pub payload: &'a [u8],
    }
    fn c<A: Family>(a: core::net::Ipv4Addr) -> A {
        A::from_ip(a.into()).unwrap()
    }
    fn v4<A: Family>(a: A) -> core::net::Ipv4Addr {
        let core::net::IpAddr::V4(a) = a.into() else {
            panic!()
        };
        a
    }
    pub fn parse<A: Family>(packet: &[u8], protocol: u8) -> Option<Ip<'_, A>> {
        if A::BITS != 32 {
            return None;
        }
        let ip = igmp::datagram::parse(packet, protocol)?;
        Some(Ip {
            source: c(ip.source),
            destination: c(ip.destination),
            ttl: ip.ttl,
            payload: ip.payload,
        })
    }
    pub fn udp_payload<'a, A: Family>(ip: &Ip<'a, A>, port: u16) -> Option<&'a [u8]> {
        let ip = igmp::datagram::Ip {
            source: v4(ip.source),
            destination: v4(ip.destination),
            ttl: ip.ttl,
            payload: ip.payload,
        };
        igmp::datagram::udp_payload(&ip, port)
    }
    pub const fn udp_at<A: Family>() -> usize {
        28
    }
    pub const fn membership_at<A: Family>() -> usize {
        24
    }
    pub fn finish_udp<A: Family>(b: &mut [u8], s: A, d: A, port: u16, len: usize) -> Option<usize> {
        igmp::datagram::finish_udp(b, v4(s), v4(d), port, len)
    }
    pub fn finish_membership<A: Family>(b: &mut [u8], s: A, d: A, len: usize) -> Option<usize> {
        igmp::datagram::finish_igmp(b, v4(s), v4(d), len)
    }
}
pub(crate) mod wire {
    use super::datagram::Ip;
    use crate::Family;
    use core::marker::PhantomData;
    pub use igmp::wire::{Cost, RecordType};
    fn c<A: Family>(a: core::net::Ipv4Addr) -> A {
        A::from_ip(a.into()).unwrap()
    }
    fn v4<A: Family>(a: A) -> core::net::Ipv4Addr {
        let core::net::IpAddr::V4(a) = a.into() else {
            panic!()
        };
        a
    }
    #[derive(Clone, Copy)]
    pub struct Sources<'a, A>(igmp::wire::Sources<'a>, PhantomData<A>);
    impl<A> Default for Sources<'_, A> {
        fn default() -> Self {
            Sources(igmp::wire::Sources::NONE, PhantomData)
        }
    }
    impl<'a, A: Family> Sources<'a, A> {
        pub fn iter(&self) -> impl Iterator<Item = A> + use<A> {
            let v: heapless::Vec<A, 400> = self.0.iter().map(c).collect();
            v.into_iter()
        }
        pub fn is_empty(&self) -> bool {
            self.0.is_empty()
        }
    }
    pub struct Record<'a, A> {
        pub kind: RecordType,
        pub group: A,
        pub sources: Sources<'a, A>,
        cost: Option<Cost>,
    }
    impl<A> Record<'_, A> {
        pub fn cost(&self) -> Option<Cost> {
            self.cost
        }
    }
    pub struct Records<'a, A>(igmp::wire::Records<'a>, PhantomData<A>);
    impl<'a, A: Family> Records<'a, A> {
        pub fn iter(&self) -> RecordIter<'a, A> {
            RecordIter(self.0, 0, PhantomData)
        }
    }
    pub struct RecordIter<'a, A>(igmp::wire::Records<'a>, usize, PhantomData<A>);
    impl<'a, A: Family> Iterator for RecordIter<'a, A> {
        type Item = Record<'a, A>;
        fn next(&mut self) -> Option<Record<'a, A>> {
            let r = self.0.iter().nth(self.1)?;
            self.1 += 1;
            Some(Record {
                kind: r.kind,
                group: c(r.group),
                sources: Sources(r.sources, PhantomData),
                cost: r.cost(),
            })
        }
    }
    pub struct Query<'a, A> {
        pub group: A,
        q: igmp::wire::Query<'a>,
    }
    impl<'a, A: Family> Query<'a, A> {
        pub fn is_general(&self) -> bool {
            self.q.is_general()
        }
        pub fn max_response_time(&self) -> crate::Duration {
            self.q.max_response_time()
        }
        pub fn sources(&self) -> Option<Sources<'a, A>> {
            self.q.v3.map(|v| Sources(v.sources, PhantomData))
        }
    }
    pub enum Message<'a, A> {
        Query(Query<'a, A>),
        Report(Records<'a, A>),
        Other,
    }
    impl<'a, A: Family> Message<'a, A> {
        pub fn of(ip: &Ip<'a, A>) -> Result<Self, ()> {
            Ok(
                match igmp::wire::Message::parse(ip.payload).map_err(drop)? {
                    igmp::wire::Message::Query(q) => Message::Query(Query {
                        group: c(q.group),
                        q,
                    }),
                    igmp::wire::Message::V3Report(r) => Message::Report(Records(r, PhantomData)),
                    _ => Message::Other,
                },
            )
        }
    }
    pub struct ReportWriter<'a, A>(igmp::wire::ReportWriter<'a>, PhantomData<A>);
    impl<'a, A: Family> ReportWriter<'a, A> {
        pub fn new(b: &'a mut [u8]) -> Option<Self> {
            Some(ReportWriter(igmp::wire::ReportWriter::new(b)?, PhantomData))
        }
        pub fn count(&self) -> u16 {
            self.0.count()
        }
        pub fn room(&self, w: bool) -> Option<usize> {
            self.0.room(w)
        }
        pub fn push(
            &mut self,
            k: RecordType,
            g: A,
            s: impl Iterator<Item = A>,
            cost: Option<Cost>,
        ) -> bool {
            self.0.push(k, v4(g), s.map(v4), cost)
        }
        pub fn finish(self) -> usize {
            self.0.finish()
        }
    }
}

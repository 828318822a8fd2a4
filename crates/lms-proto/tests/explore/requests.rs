//! The way of a request and of its repair through the network, once everything has settled.

use core::net::Ipv4Addr;

use lms_proto::endpoint::Answer;
use lms_proto::router::Verdict;
use lms_proto::wire::ipv4;
use lms_proto::wire::udp::Ports;
use lms_proto::{Family as _, Instant, LmsOption, NextHop};

use crate::network::{HOSTS, KEY, LOWER, Site, UP, UPPER, above, address, meta};
use netsim::explore::Nodes as _;

/// More routers than any way has, there and back.
const MAX_HOPS: usize = 4;

impl Site {
    /// A request of `host` comes to the source, or to another host that answers, whose repair comes to `host`.
    pub(crate) fn request(&mut self, now: Instant, host: usize) -> Result<(), String> {
        let mut packet = self.request_packet(host);
        let ((mut router, mut iface), mut from) = (above(host), host);
        for _ in 0..MAX_HOPS {
            let verdict = self.routers[router].forward(now, &meta(iface, from), &mut packet);
            let Verdict::Forward { output, .. } = verdict else {
                return Err(format!("request of {host}: {verdict:?} at router {router}"));
            };
            (router, iface, from) = match (router, output.iface, output.next_hop) {
                (UPPER, UP, _) => return Ok(()),
                (_, UP, _) => (UPPER, above(router).1, router),
                (_, _, NextHop::Neighbour { addr, .. }) if addr == address(LOWER) => {
                    (LOWER, UP, UPPER)
                }
                (_, _, NextHop::Neighbour { addr, .. }) => {
                    return self.answer(now, host, addr, &packet);
                }
                (_, _, NextHop::Group | NextHop::Routed) => {
                    return Err(format!("request of {host} to no neighbour"));
                }
            };
        }
        Err(format!("the request of {host} goes around"))
    }

    fn request_packet(&self, host: usize) -> Vec<u8> {
        let mut packet = vec![0; ipv4::MAX_HEADER_LEN];
        let option = &mut packet[ipv4::HEADER_LEN..];
        let len = self.host(host).request_option(KEY, option).expect("room");
        let header_len = ipv4::HEADER_LEN + len;
        packet.truncate(header_len);
        packet[0] = 0x40 | (header_len / 4) as u8;
        packet[2..4].copy_from_slice(&(header_len as u16).to_be_bytes());
        packet[8..10].copy_from_slice(&[64, ipv4::PROTOCOL_UDP]);
        packet[12..16].copy_from_slice(&address(host).octets());
        packet[16..20].copy_from_slice(&KEY.group.octets());
        ipv4::fill_checksum(&mut packet);
        packet
    }

    fn answer(
        &mut self,
        now: Instant,
        host: usize,
        to: Ipv4Addr,
        request: &[u8],
    ) -> Result<(), String> {
        let mut others = HOSTS.into_iter().filter(|&other| other != host);
        let replier = others.find(|&other| address(other) == to && self.is_alive(other));
        let Some(replier) = replier else {
            return Err(format!(
                "request of {host} to {to}, which is dead or itself"
            ));
        };
        let option =
            Ipv4Addr::find_option(&request[ipv4::HEADER_LEN..]).expect("the request's option");
        match self.host(replier).should_answer(&option) {
            Answer::AsReplier => self.repair(now, host, replier, &option),
            other => Err(format!("request of {host} to {replier}: {other:?}")),
        }
    }

    /// The repair goes up from the replier to the turning point.
    fn repair(
        &mut self,
        now: Instant,
        host: usize,
        replier: usize,
        option: &LmsOption,
    ) -> Result<(), String> {
        let point = option.turning_point.expect("should_answer checks it");
        let ports = Ports {
            source: 4000,
            group: 5000,
        };
        let mut packet = [0; 200];
        let composed = self
            .host(replier)
            .dmcast(KEY, point, ports, b"repair", &mut packet);
        let packet = &mut packet[..composed.expect("room")];
        let ((mut router, mut iface), mut from) = (above(replier), replier);
        // The links that the request came over.
        let is_on_way = |link: (usize, _)| {
            link == above(host) || above(host).0 == LOWER && link == above(LOWER)
        };
        loop {
            match self.routers[router].forward(now, &meta(iface, from), packet) {
                Verdict::Multicast { iface, .. } if is_on_way((router, iface)) => return Ok(()),
                Verdict::Pass if router == LOWER => {
                    ((router, iface), from) = (above(LOWER), LOWER);
                }
                verdict => {
                    return Err(format!(
                        "repair of {replier} for {host}: {verdict:?} at {router}"
                    ));
                }
            }
        }
    }
}

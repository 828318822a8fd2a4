//! MLD with the Linux kernel at the other end: a host that answers our querier, and a bridge that reads our member's
//! reports (MLD snooping, RFC 4541). Needs network namespaces.

#![allow(
    unsafe_code,
    reason = "the standard library cannot join source-specific groups"
)]

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Duration;

use igmp::wire::{Message, RecordType};
use igmp::{Config, Family, FilterMode, Iface, InterfaceConfig, LinkAddr, Meta, datagram};
use igmp::{Instant, Member, Querier, Storage};
use netlab::host::{Host, eventually, wire, with_namespaces};
use pnet_datalink::{Channel, DataLinkReceiver, DataLinkSender, NetworkInterface};

const ANY_SOURCE_GROUP: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 1);
const SSM_GROUP: Ipv6Addr = Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0, 1);
const SOURCE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const OTHER_SOURCE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// An interface of a host, with its frames.
struct Link {
    interface: NetworkInterface,
    address: Ipv6Addr,
    sender: Box<dyn DataLinkSender>,
    receiver: Box<dyn DataLinkReceiver>,
    start: std::time::Instant,
}

impl Link {
    fn new(host: &Host, name: &str) -> Link {
        let (interface, address) = eventually("a link-local address", || {
            host.run(|| {
                let all = pnet_datalink::interfaces();
                let interface = all.into_iter().find(|interface| interface.name == name)?;
                let address = interface
                    .ips
                    .iter()
                    .find_map(|network| match network.ip() {
                        std::net::IpAddr::V6(address) => Some(address),
                        std::net::IpAddr::V4(_) => None,
                    })?;
                Some((interface, address))
            })
        });
        let config = pnet_datalink::Config {
            read_timeout: Some(Duration::from_millis(20)),
            ..Default::default()
        };
        let channel = host.run(|| pnet_datalink::channel(&interface, config));
        let Channel::Ethernet(sender, receiver) = channel.expect("a packet socket") else {
            panic!("an Ethernet channel");
        };
        Link {
            interface,
            address,
            sender,
            receiver,
            start: std::time::Instant::now(),
        }
    }

    fn config(&self) -> Config<Ipv6Addr> {
        let interface = InterfaceConfig::ipv6(self.address, 64, self.address);
        let mut config = Config::new(Iface(0), interface);
        config.query_interval = igmp::Duration::from_secs(2);
        config.query_response = igmp::Duration::from_secs(1);
        config
    }

    fn now(&self) -> Instant {
        Instant::from_micros(self.start.elapsed().as_micros() as i64)
    }

    fn send(&mut self, packet: &[u8]) {
        let mut frame = vec![0x33, 0x33];
        frame.extend_from_slice(&packet[36..40]);
        frame.extend_from_slice(&self.interface.mac.expect("an address").octets());
        frame.extend_from_slice(&[0x86, 0xdd]);
        frame.extend_from_slice(packet);
        self.sender
            .send_to(&frame, None)
            .expect("open")
            .expect("sent");
    }

    /// The next MLD packet, if one comes soon.
    fn receive(&mut self) -> Option<(Meta, Vec<u8>)> {
        let frame = match self.receiver.next() {
            Ok(frame) => frame,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return None,
            Err(error) => panic!("{error}"),
        };
        let (header, packet) = frame.split_first_chunk::<14>()?;
        datagram::parse::<Ipv6Addr>(packet, Ipv6Addr::PROTOCOL)?;
        let meta = Meta {
            iface: Iface(0),
            link_source: header[6..].first_chunk().copied().map(LinkAddr),
        };
        Some((meta, packet.to_vec()))
    }
}

/// A socket of this thread's network that receives a group from one source.
fn join_source(index: u32, source: Ipv6Addr, group: Ipv6Addr) -> UdpSocket {
    let socket = UdpSocket::bind("[::]:0").expect("socket");
    // SAFETY: all fields are integers, for which zero is a value.
    let mut request: libc::group_source_req = unsafe { std::mem::zeroed() };
    request.gsr_interface = index;
    for (place, address) in [
        (&mut request.gsr_group, group),
        (&mut request.gsr_source, source),
    ] {
        // SAFETY: as above.
        let mut named: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
        named.sin6_family = libc::AF_INET6 as libc::sa_family_t;
        named.sin6_addr.s6_addr = address.octets();
        // SAFETY: sockaddr_storage is at least as large and as aligned as sockaddr_in6.
        unsafe {
            std::ptr::from_mut(place)
                .cast::<libc::sockaddr_in6>()
                .write(named);
        };
    }
    // SAFETY: the kernel reads as many bytes as `request` has.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            libc::MCAST_JOIN_SOURCE_GROUP,
            std::ptr::from_ref(&request).cast(),
            size_of::<libc::group_source_req>() as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    socket
}

/// Passes packets between the querier and its link; whether one had a record of that kind for the group.
fn exchange(
    querier: &mut Querier<'_, Ipv6Addr>,
    link: &mut Link,
    (kind, group): (RecordType, Ipv6Addr),
) -> bool {
    let mut buffer = [0; 1280];
    querier.handle_timeout(link.now());
    while let Some(transmit) = querier.poll_transmit(link.now(), &mut buffer) {
        link.send(&buffer[..transmit.len]);
    }
    let Some((meta, packet)) = link.receive() else {
        return false;
    };
    let result = querier.handle_packet(link.now(), &meta, &packet);
    let ip = datagram::parse::<Ipv6Addr>(&packet, Ipv6Addr::PROTOCOL).expect("MLD");
    match Message::of(&ip) {
        Ok(Message::V3Report(records)) if result.is_ok() => records
            .iter()
            .any(|record| (record.kind, record.group) == (kind, group)),
        _ => false,
    }
}

#[test]
fn a_linux_host_answers_our_queries_and_its_reports_are_understood() {
    with_namespaces(|| {
        let (router, host) = (Host::new(), Host::new());
        wire([
            (&router, "r", Ipv4Addr::new(10, 0, 0, 1)),
            (&host, "eth", Ipv4Addr::new(10, 0, 0, 2)),
        ]);
        let mut link = Link::new(&router, "r");
        let index = host.index("eth");
        let sockets = host.run(|| {
            let any = UdpSocket::bind("[::]:0").expect("socket");
            any.join_multicast_v6(&ANY_SOURCE_GROUP, index)
                .expect("join");
            [any, join_source(index, SOURCE, SSM_GROUP)]
        });
        let mut querier = Querier::new(link.config(), Storage::owned(16, 16), [1; 32], link.now());
        // Current-state records answer queries, and come for no other reason.
        for group in [ANY_SOURCE_GROUP, SSM_GROUP] {
            let kind = match group {
                SSM_GROUP => RecordType::ModeIsInclude,
                _ => RecordType::ModeIsExclude,
            };
            eventually("an answer", || {
                exchange(&mut querier, &mut link, (kind, group)).then_some(())
            });
        }
        assert_eq!(querier.mode(ANY_SOURCE_GROUP), FilterMode::Exclude);
        assert!(querier.wants(SOURCE, SSM_GROUP) && !querier.wants(OTHER_SOURCE, SSM_GROUP));
        drop(sockets);
        eventually("both groups are left", || {
            exchange(
                &mut querier,
                &mut link,
                (RecordType::ChangeToInclude, ANY_SOURCE_GROUP),
            );
            while querier.poll_event().is_some() {}
            (querier.group_count() == 0).then_some(())
        });
    });
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.expect("iproute2").success(), "ip {arguments}");
}

#[test]
fn a_linux_bridge_reads_our_reports() {
    if Command::new("bridge").arg("-V").output().is_err() {
        return netlab::skip("a_linux_bridge_reads_our_reports", "no iproute2 here");
    }
    with_namespaces(|| {
        let (switch, host) = (Host::new(), Host::new());
        wire([
            (&switch, "port", Ipv4Addr::new(10, 0, 0, 1)),
            (&host, "eth", Ipv4Addr::new(10, 0, 0, 2)),
        ]);
        switch.run(|| {
            ip("link add name bridge0 type bridge mcast_snooping 1 mcast_querier 1 mcast_mld_version 2 mcast_query_response_interval 100 mcast_query_interval 200 mcast_startup_query_interval 100");
            ip("link set dev port master bridge0");
            ip("link set dev bridge0 up");
        });
        let mut link = Link::new(&host, "eth");
        let now = link.now();
        let mut member = Member::new(link.config(), Storage::owned(4, 4), [1; 32], now);
        member.join(now, ANY_SOURCE_GROUP).expect("room");
        let sources = core::iter::once(SOURCE);
        let joined = member.set(now, SSM_GROUP, FilterMode::Include, sources);
        joined.expect("room");
        let mut pass = |member: &mut Member<'_, Ipv6Addr>| {
            let mut buffer = [0; 1280];
            while let Some(transmit) = member.poll_transmit(link.now(), &mut buffer) {
                link.send(&buffer[..transmit.len]);
            }
            if let Some((meta, packet)) = link.receive() {
                // Its own packets come back from the packet socket, and are refused.
                let _ = member.handle_packet(link.now(), &meta, &packet);
            }
            let output = switch.run(|| {
                let command = Command::new("bridge").args(["-d", "mdb", "show"]).output();
                command.expect("iproute2").stdout
            });
            (link.now(), String::from_utf8_lossy(&output).into_owned())
        };
        eventually(
            "the bridge knows both groups, and answers were asked for",
            || {
                let (_, known) = pass(&mut member);
                let line = |what: &str| known.lines().find(|line| line.contains(what));
                let any = line("grp ff15::1 ")?.contains("filter_mode exclude");
                let one = line("grp ff3e::1 ")?;
                let one = one.contains("filter_mode include") && one.contains("2001:db8::1");
                (any && one && member.stats().queries_received > 0).then_some(())
            },
        );
        let (now, _) = pass(&mut member);
        member.leave(now, ANY_SOURCE_GROUP);
        member.leave(now, SSM_GROUP);
        eventually("the bridge forgets both", || {
            let (_, known) = pass(&mut member);
            (!known.contains("ff15::1") && !known.contains("ff3e::1")).then_some(())
        });
    });
}

//! Listens to a group and prints what comes: data, and LMS requests with their option.
//!
//! ```text
//! cargo run -p linux-net --example listen -- 239.1.2.3:5004 [INTERFACE [SOURCE]]
//! cargo run -p linux-net --example listen -- [ff15::1234]:5004 [INTERFACE [SOURCE]]
//! ```
//!
//! With a source the membership is source-specific; requests then come from a packet socket,
//! which needs CAP_NET_RAW.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use linux_net::link;
use linux_net::packet::RequestTap;
use linux_net::poll::{self, Watch};
use linux_net::udp::{
    Batch, Config, GroupSocket, Membership, OptionBuffer, OptionDatagram, OptionSocket, Options,
};
use linux_net::{Endpoint, Family};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let group: SocketAddr = arguments
        .next()
        .ok_or("usage: listen GROUP:PORT [INTERFACE [SOURCE]]")?
        .parse()?;
    let interface = match arguments.next() {
        Some(name) => link::find(&name)?.index,
        None => 0,
    };
    let source = arguments.next();
    let source = source.as_deref();
    match group {
        SocketAddr::V4(group) => listen(group, interface, source.map(str::parse).transpose()?),
        SocketAddr::V6(group) => listen(group, interface, source.map(str::parse).transpose()?),
    }
}

/// Listens to a group of either version of IP.
fn listen<S: Endpoint>(
    group: S,
    interface: u32,
    source: Option<S::Address>,
) -> Result<(), Box<dyn std::error::Error>> {
    // Data and requests share the port: the kernel sorts them by whether there are options.
    let membership = Membership {
        group: group.address(),
        source,
        interface,
    };
    let config = Config {
        interface,
        options: Options::Refuse,
        ..Config::new(group)
    };
    let data = GroupSocket::open(&config)?;
    data.join(&membership)?;
    let requests = OptionSocket::open(&config)?;
    requests.join(&membership)?;
    let mut tap = match source {
        Some(_) => Some(RequestTap::open(interface, group.address(), group.port())?),
        None => None,
    };

    let mut batch = Batch::new(Batch::MAX);
    let mut buffer = OptionBuffer::new(1500);
    loop {
        let mut watches = vec![
            Watch::readable(data.as_fd()),
            Watch::readable(requests.as_fd()),
        ];
        watches.extend(tap.as_ref().map(|tap| Watch::readable(tap.as_fd())));
        poll::wait(&mut watches, None)?;

        while data.receive(&mut batch)? > 0 {
            for datagram in batch.received() {
                println!(
                    "data     {} bytes from {}",
                    datagram.payload.len(),
                    datagram.source
                );
            }
        }
        while let Some(request) = requests.receive(&mut buffer)? {
            print(&request);
        }
        if let Some(tap) = &mut tap {
            while let Some(request) = tap.receive(&mut buffer)? {
                print(&request);
            }
        }
    }
}

fn print<A: Family>(request: &OptionDatagram<'_, A>) {
    let source: SocketAddr = request.source.into();
    println!(
        "request  {} bytes from {}, options {:02x?}",
        request.payload.len(),
        source,
        request.options,
    );
}

//! Speed of the engine and its sockets alone: from memory, with the data discarded.
//!
//! ```text
//! cargo run --release -p tcpxm-tokio --example nowhere -- receive 10.0.0.2:5000 &
//! cargo run --release -p tcpxm-tokio --example nowhere -- receive 10.0.0.3:5000 &
//! cargo run --release -p tcpxm-tokio --example nowhere -- send 10.0.0.1 1024 5000 10.0.0.2 10.0.0.3
//! ```
//!
//! The sender prints the time and Mbit/s per receiver from the first byte until all have acknowledged the last,
//! and the counters of its machine. A receiver prints how many bytes it received.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use linux_net::link;
use tcpxm_tokio::{Config, GroupConfig, XmEndpoint};

/// Time that a receiver waits for the sender to acknowledge its end.
const GOODBYE: Duration = Duration::from_secs(1);
const BLOCK: usize = 256 << 10;
const SEND_BUFFER: usize = 16 << 20;
const RECEIVE_BUFFER: usize = 8 << 20;

fn usage() -> io::Error {
    io::Error::other(
        "nowhere receive ADDRESS:PORT, or nowhere send OWN-ADDRESS MIB PORT RECEIVER...",
    )
}

fn open(bind: SocketAddr) -> io::Result<XmEndpoint> {
    let mut config = Config::new(bind);
    config.machine.send_buffer = SEND_BUFFER;
    config.machine.receive_buffer = RECEIVE_BUFFER;
    let found = link::find(&bind.ip().to_string()).map_err(io::Error::other)?;
    config.interface = found.index;
    XmEndpoint::open(&config)
}

fn receive(address: SocketAddr) -> io::Result<()> {
    let mut stream = open(address)?.listen()?.wait(None)?;
    let mut block = vec![0; BLOCK];
    let mut total = 0;
    loop {
        match stream.read(&mut block)? {
            0 => break,
            len => total += len,
        }
    }
    println!("{total} bytes");
    // A program's sockets end with it: the sender must learn first that everything arrived. It may have ended
    // already.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let goodbye = tokio::io::AsyncWriteExt::shutdown(&mut stream);
    runtime
        .block_on(async { tokio::time::timeout(GOODBYE, goodbye).await })
        .unwrap_or(Ok(()))
}

fn send(own: IpAddr, mib: usize, port: u16, receivers: Vec<IpAddr>) -> io::Result<()> {
    let endpoint = open(SocketAddr::new(own, 0))?;
    let count = receivers.len();
    let config = GroupConfig::new(endpoint.local_address(), receivers, port);
    let block = vec![0x5a; BLOCK];
    let start = Instant::now();
    let mut group = endpoint.open_group(config)?;
    for _ in 0..mib * ((1 << 20) / BLOCK) {
        group.write_all(&block)?;
    }
    group.finish()?;
    let delivered = group.wait_delivered()?;
    let seconds = start.elapsed().as_secs_f64();
    let mbps = (mib << 20) as f64 * 8.0 / seconds / 1e6;
    println!("{delivered} of {count}: {seconds:.3} s, {mbps:.0} Mbit/s to each");
    println!("{:?}", endpoint.stats().machine);
    Ok(())
}

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["receive", address] => receive(address.parse().map_err(|_| usage())?),
        ["send", own, mib, port, ref receivers @ ..] => {
            let parsed: Result<_, _> = receivers.iter().map(|text| text.parse()).collect();
            let own = own.parse().map_err(|_| usage())?;
            let mib = mib.parse().map_err(|_| usage())?;
            let port = port.parse().map_err(|_| usage())?;
            send(own, mib, port, parsed.map_err(|_| usage())?)
        }
        _ => Err(usage()),
    }
}

//! A content goes from a sender to three receivers through a lossy "network" in memory.
//!
//! `cargo run -p ltp --example in_memory`
//!
//! The loop is what any driver does; a real one sends packets where [`Destination`] says and
//! waits for sockets until `poll_timeout`.

use std::net::SocketAddr;

use ltp::store::HeapRing;
use ltp::{
    Destination, Instant, Meta, Receiver, ReceiverConfig, ReceiverEvent, Sender, SenderConfig,
    SenderEvent,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let group: SocketAddr = "239.1.2.3:5000".parse()?;
    let source: SocketAddr = "10.0.0.1:4000".parse()?;
    let hosts: Vec<SocketAddr> = ["10.0.0.2:4000", "10.0.0.3:4000", "10.0.0.4:4000"]
        .map(str::parse)
        .into_iter()
        .collect::<Result<_, _>>()?;
    let content: Vec<u8> = (0..5_000_000u32)
        .map(|n| (n.wrapping_mul(n) >> 7) as u8)
        .collect();

    let mut config = SenderConfig::new(group);
    config.length = Some(content.len() as u64);
    config.rate_bps = Some(1_000_000_000);
    config.receivers = Some(hosts.len() as u32);
    let mut now = Instant::ZERO;
    let mut sender = Sender::new(config, HeapRing::whole(content.clone()), [1; 32], now)?;
    let mut receivers: Vec<_> = (0..hosts.len())
        .map(|index| {
            let store = HeapRing::new(content.len().next_multiple_of(1 << 16));
            Receiver::new(
                ReceiverConfig::new(group),
                store,
                [index as u8 + 2; 32],
                now,
            )
        })
        .collect();

    let mut buffer = vec![0; 2048];
    let mut count = 0u32;
    'session: loop {
        while let Some(transmit) = sender.poll_transmit(now, &mut buffer) {
            for (receiver, &host) in receivers.iter_mut().zip(&hosts) {
                // Every hundredth copy is lost.
                count += 1;
                let meta = match transmit.destination {
                    _ if count.is_multiple_of(100) => continue,
                    Destination::Unicast(to) if to != host => continue,
                    Destination::Unicast(_) => Meta::unicast(source),
                    _ => Meta::group(source),
                };
                // Drops are counted in the machine's statistics.
                let _ = receiver.handle_packet(now, &meta, &buffer[..transmit.len]);
            }
        }
        for (receiver, &host) in receivers.iter_mut().zip(&hosts) {
            while let Some(transmit) = receiver.poll_transmit(now, &mut buffer) {
                let _ = sender.handle_packet(now, &Meta::unicast(host), &buffer[..transmit.len]);
            }
            while let Some(event) = receiver.poll_event() {
                if let ReceiverEvent::Complete { length, .. } = event {
                    println!("{now} {host}: {length} bytes, {:?}", receiver.round_trip());
                }
            }
            receiver.handle_timeout(now);
        }
        while let Some(event) = sender.poll_event() {
            if event == SenderEvent::Complete {
                break 'session;
            }
        }
        let timeouts = receivers
            .iter()
            .filter_map(|receiver| receiver.poll_timeout());
        now = timeouts
            .chain(sender.poll_timeout())
            .min()
            .unwrap_or(now)
            .max(now);
        sender.handle_timeout(now);
    }
    let stats = sender.stats();
    println!(
        "{now} all have everything: {} packets, {} repairs, {} bytes in frames",
        stats.data_packets,
        stats.repairs_group + stats.repairs_unicast,
        stats.frame_bytes
    );
    Ok(())
}

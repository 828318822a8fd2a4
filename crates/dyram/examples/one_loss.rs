//! A source, a relay, two receivers; one of them loses a packet and gets it from the other.
//!
//! `cargo run -p dyram --example one_loss`

use std::net::SocketAddr;

use dyram::storage::{Limits, Storage};
use dyram::wire::{Body, Nack, Role};
use dyram::{
    Attachment, AttachmentConfig, Config, Duration, Instant, Meta, Relay, RelayId, Seq, SessionKey,
    Verdict,
};

const SESSION: u32 = 7;

/// Joins an end to the relay: its first JOIN gets a token for its address, its second shows the token.
fn join(
    relay: &mut Relay<'_>,
    at_relay: SocketAddr,
    end: &mut Attachment,
    address: SocketAddr,
    now: Instant,
) {
    let mut buffer = [0; 2048];
    while end.relay().is_none() {
        let join = end.poll_transmit(now, &mut buffer).expect("a JOIN");
        let _ = relay.forward(now, &Meta::unicast(address), &mut buffer[..join.len]);
        while let Some(answer) = relay.poll_transmit(now, &mut buffer) {
            end.handle_packet(now, &Meta::unicast(at_relay), &buffer[..answer.len])
                .expect("an answer");
        }
    }
}

/// Hands a packet of the relay to an end. Returns the sequence number that it asks for, if it is a NACK.
fn requested(
    end: &mut Attachment,
    at_relay: SocketAddr,
    now: Instant,
    packet: &[u8],
) -> Option<Seq> {
    let input = end.handle_packet(now, &Meta::unicast(at_relay), packet);
    let request = input.ok().flatten()?;
    matches!(request.body, Body::Nack(_)).then_some(request.sequence)
}

fn main() {
    let mut now = Instant::ZERO;
    let storage = Storage::owned(Limits::default()).expect("limits within bounds");
    let config = Config::new(RelayId(1));
    let mut relay = Relay::new(config, storage, [1; 32], now).expect("a valid configuration");
    let at_relay: SocketAddr = "10.0.0.9:4143".parse().expect("an address");

    let ip = |text: &str| text.parse().expect("an address");
    let key = SessionKey::new(ip("10.0.0.1"), ip("239.1.2.3")).expect("one family");
    let addresses = ["10.0.0.1:5000", "10.0.0.2:5000", "10.0.0.3:5000"]
        .map(|text| text.parse::<SocketAddr>().expect("an address"));
    let roles = [Role::Source, Role::Receiver, Role::Receiver];
    let mut ends: Vec<Attachment> = roles
        .iter()
        .enumerate()
        .map(|(number, &role)| {
            let relays = [at_relay].into_iter().collect();
            let config = AttachmentConfig { key, role, relays };
            Attachment::new(config, [number as u8 + 2; 32], now)
        })
        .collect();

    let mut buffer = [0; 2048];
    for (end, address) in ends.iter_mut().zip(addresses) {
        join(&mut relay, at_relay, end, address, now);
    }

    // Two packets go down; the second receiver loses the first of them.
    for (seq, payload) in [(Seq(0), b"one"), (Seq(1), b"two")] {
        let sent = ends[0]
            .send(SESSION, seq, Body::Data(payload), &mut buffer)
            .expect("a relay");
        let down = relay.forward(now, &Meta::unicast(addresses[0]), &mut buffer[..sent.len]);
        let Verdict::Send(fanout) = down else {
            panic!("{down:?}")
        };
        println!(
            "packet {} goes to {} receivers",
            seq.0,
            relay.targets(&fanout).count()
        );
    }
    let nack = Nack {
        mask: 0,
        ack: Some(Seq(0)),
        repeats: 0,
    };
    let sent = ends[2]
        .send(SESSION, Seq(0), Body::Nack(nack), &mut buffer)
        .expect("a relay");
    let _ = relay.forward(now, &Meta::unicast(addresses[2]), &mut buffer[..sent.len]);

    // The relay waits for further losers, then asks the receiver that it elects.
    let (asked, request) = loop {
        if let Some(transmit) = relay.poll_transmit(now, &mut buffer) {
            let asked = addresses
                .iter()
                .position(|&address| address == transmit.destination)
                .expect("one of us");
            if let Some(request) =
                requested(&mut ends[asked], at_relay, now, &buffer[..transmit.len])
            {
                break (asked, request);
            }
        } else {
            now += Duration::from_millis(1);
            relay.handle_timeout(now);
        }
    };
    println!(
        "after {now} {} is asked for packet {}",
        addresses[asked], request.0
    );

    // Its repair goes only to the receiver that lost the packet.
    let sent = ends[asked]
        .send(SESSION, request, Body::Repair(b"one"), &mut buffer)
        .expect("a relay");
    let repaired = relay.forward(
        now,
        &Meta::unicast(addresses[asked]),
        &mut buffer[..sent.len],
    );
    let Verdict::Send(fanout) = repaired else {
        panic!("{repaired:?}")
    };
    let targets: Vec<SocketAddr> = relay.targets(&fanout).collect();
    println!("the repair goes to {targets:?}");
    assert_eq!((asked, targets), (1, vec![addresses[2]]));
}

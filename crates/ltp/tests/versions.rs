//! Peers that speak another version of LTP, or of DyRAM ("How formats evolve" in `docs/wire.md`).

mod common;

use common::packets::report;
use common::{content, files, group, receiver_config, sender_config, source};
use dyram::wire::Body;
use dyram::{Seq, SessionKey};
use ltp::relayed::{Parents, Receiver, version};
use ltp::store::HeapRing;
use ltp::wire::report::{REPORT_LEN, Status};
use ltp::{Assist, Duration, Error, Instant, Meta, ReceiverEvent};

const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn a_receiver_refuses_a_source_of_another_version_and_the_others_get_everything() {
    let bytes = content(200_000, 1);
    let mut sender = sender_config(bytes.len());
    sender.receivers = Some(2);
    let mut group = files(&bytes, 2, 1, sender, &receiver_config());
    group.change(0, |packet| packet[0] = 0x20 | packet[0] & 0xf);
    group.run_until(LIMIT, |group| group.sender().is_ended());
    let refused = group.receiver(0);
    assert!(refused.stats().drops.get(Error::Version) > 100);
    assert_eq!(
        refused.stats().drops.get(Error::Version),
        refused.stats().drops.total(),
    );
    assert_eq!(refused.source(), None);
    assert!(!group.events(0).iter().any(|event| matches!(
        event,
        ReceiverEvent::Opened { .. } | ReceiverEvent::Complete { .. }
    )));
    assert!(group.receiver(1).is_complete());
    assert!(common::has_content(group.receiver(1), &bytes));
}

#[test]
fn a_source_refuses_a_report_of_another_version() {
    let bytes = content(10_000, 2);
    let mut group = files(&bytes, 1, 2, sender_config(bytes.len()), &receiver_config());
    group.run_for(Duration::from_millis(1));
    let session = group.sender().session();
    let report = report(session, 7, Status::Joined, 0, 0);
    let mut packet = [0; REPORT_LEN];
    report.emit(&mut packet);
    packet[0] = 0x26;
    let from = Meta::unicast(common::host(5));
    let refused = group.inject_to_sender(&from, &packet);
    assert_eq!(refused, Err(Error::Version));
    assert_eq!(group.sender().stats().drops.get(Error::Version), 1);
}

#[test]
fn a_receiver_below_a_relay_names_the_protocol_that_differs() {
    let now = Instant::ZERO;
    let mut config = receiver_config();
    config.assist = Assist::Dyram;
    let receiver = ltp::Receiver::new(config, HeapRing::new(1 << 20), [1; 32], now);
    let (source, relay) = (source(), common::host(9));
    let relays = Parents::from_slice(&[relay]).unwrap();
    let mut leaf =
        Receiver::new(receiver, source.ip(), group().ip(), relays, [2; 32], now).unwrap();
    let repr = dyram::wire::Repr {
        key: SessionKey::new(source.ip(), group().ip()).unwrap(),
        session: 1,
        child: dyram::wire::NO_CHILD,
        sequence: Seq(0),
        body: Body::Data(&[0x21, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 7]),
    };
    let mut packet = vec![0; repr.buffer_len()];
    repr.emit(&mut packet);
    let from_relay = Meta::unicast(relay);
    assert_eq!(
        leaf.handle_packet(now, &from_relay, &packet),
        Err(Error::Version)
    );
    assert_eq!(version(&packet), Some(2));
    packet[3] += 1;
    assert_eq!(
        leaf.handle_packet(now, &from_relay, &packet),
        Err(Error::RelayVersion)
    );
    assert_eq!(
        version(&packet),
        None,
        "what another DyRAM carries is not known"
    );
    assert_eq!(dyram::wire::version(&packet), Some(2));
    // By unicast from the source.
    assert_eq!(version(&[0x23]), Some(2));
    assert_eq!(
        leaf.handle_packet(now, &Meta::unicast(source), &[0x23]),
        Err(Error::Version)
    );
}

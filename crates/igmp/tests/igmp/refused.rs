//! Packets in unlucky order and with odd settings.

use igmp::wire::RecordType;
use igmp::{Duration, Role, Storage};

use super::common::*;

fn hear(q: &mut Querier<'_>, at: u64, kind: RecordType, sources: &[u8]) {
    let packet = v3_report(host(1, 77), kind, sources);
    q.handle_packet(ms(at), &meta(1), &packet).unwrap();
}

/// A group with an EXCLUDE member and a member of source 1.
fn listening() -> Querier<'static> {
    let mut q = querier(1);
    run_querier(&mut q, ms(100));
    hear(&mut q, 100, RecordType::ModeIsExclude, &[]);
    hear(&mut q, 100, RecordType::AllowNewSources, &[1]);
    q
}

#[test]
fn queries_that_wait_to_be_sent_are_not_lost_to_later_ones() {
    let mut q = listening();
    // Before the driver comes to send: the source is blocked, then the group is left.
    hear(&mut q, 200, RecordType::BlockOldSources, &[1]);
    hear(&mut q, 200, RecordType::ChangeToInclude, &[]);
    let asked: Vec<_> = ask(&mut q, ms(200))
        .into_iter()
        .map(|(group, sources, ..)| (group, sources))
        .collect();
    assert!(asked.contains(&(GROUP, vec![])), "{asked:?}");
    assert!(asked.contains(&(GROUP, vec![source(1)])), "{asked:?}");
}

#[test]
fn who_is_no_longer_the_querier_sends_no_query_that_waited() {
    let mut q = listening();
    hear(&mut q, 200, RecordType::ChangeToInclude, &[]);
    let rival = v3_query(host(1, 2), ANY, 100, &[]);
    q.handle_packet(ms(200), &meta(1), &rival).unwrap();
    assert!(matches!(q.role(), Role::NonQuerier { .. }));
    assert_eq!(ask(&mut q, ms(200)), []);
    assert!(q.poll_timeout().unwrap() > ms(200), "nothing waits");
}

#[test]
fn endless_report_interval_is_bounded() {
    let mut config = config_of(1);
    config.unsolicited_report = Duration::MAX;
    let mut m = Member::new(config, Storage::owned(1, 0), [3; 32], ms(0));
    m.join(ms(0), GROUP).unwrap();
    let mut buffer = [0; 1500];
    assert!(m.poll_transmit(ms(0), &mut buffer).is_some());
    let again = m.poll_timeout().unwrap();
    assert!(again <= ms(0) + config.query_interval, "{again}");
}

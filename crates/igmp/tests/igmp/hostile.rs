//! Hostile packets, well-formed ones among them, at every machine: no panic, bounds hold, every
//! machine falls silent when left alone.

use igmp::{Duration, FilterMode, Storage};
use proptest::prelude::*;

use super::Addr;
use super::common::*;
use crate::packets::packet;

fn steps() -> impl Strategy<Value = Vec<(u16, Vec<u8>, u64)>> {
    prop::collection::vec((0u16..5, packet::<Addr>(), 0u64..4_000), 0..80)
}

proptest! {
    #[test]
    fn querier_survives(steps in steps()) {
        let mut q = Querier::new(config_of(1), Storage::owned(3, 7), [5; 32], ms(0));
        let mut now = ms(0);
        for (iface, packet, wait) in steps {
            let _ = q.handle_packet(now, &meta(iface), &packet);
            prop_assert!(q.group_count() <= 3);
            now += Duration::from_millis(wait);
            run_querier(&mut q, now);
            while q.poll_event().is_some() {}
        }
        // The querier of that other address may have said 31,744 s.
        run_querier(&mut q, now + Duration::from_secs(8 * 31_744));
        while q.poll_event().is_some() {}
        prop_assert_eq!(q.group_count(), 0);
    }

    #[test]
    fn member_survives(steps in steps()) {
        let mut m = Member::new(config_of(1), Storage::owned(3, 7), [5; 32], ms(0));
        let mut now = ms(0);
        let mut buffer = [0; 1500];
        for (at, (iface, packet, wait)) in steps.into_iter().enumerate() {
            let _ = m.handle_packet(now, &meta(iface), &packet);
            let list = (0..at as u8 % 4).map(source);
            let mode = if at % 3 == 0 { FilterMode::Exclude } else { FilterMode::Include };
            let _ = m.set(now, GROUP, mode, list);
            now += Duration::from_millis(wait);
            while let Some(due) = m.poll_timeout().filter(|due| *due <= now) {
                while m.poll_transmit(due, &mut buffer).is_some() {}
            }
        }
        m.leave(now, GROUP);
        while let Some(due) = m.poll_timeout() {
            while m.poll_transmit(due, &mut buffer).is_some() {}
        }
        prop_assert_eq!(m.group_count(), 0);
    }
}

//! The forwarding path allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use lms_proto::router::{Config, Policy, Verdict};
use lms_proto::wire::encap::Placement;
use lms_proto::{Duration, Form};

use crate::common::*;

/// The system's allocator, counting the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is handed to the system's allocator as it is.
#[expect(unsafe_code, reason = "a counting allocator is the proof")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above, thus from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// A dmcast from far away, which may come by any interface.
fn repair(placement: Placement) -> Vec<u8> {
    edit(dmcast(KEY, placement), 0, |p| {
        p[12..16].copy_from_slice(&[198, 51, 100, 7]);
    })
}

#[test]
fn forwarding_allocates_nothing() {
    let policies = [
        Policy::Hierarchy,
        Policy::Static,
        Policy::Random {
            redraw: Duration::from_secs(1),
        },
        Policy::SearchParty { copies: 2, up: 128 },
    ];
    let good = [
        request(KEY, None, Form::Classic),
        request(KEY, None, Form::Own),
        repair(Placement::Outer),
        repair(Placement::Inner),
        inner(KEY),
        request(KEY, None, Form::Classic)[..30].to_vec(),
    ];
    for policy in policies {
        let mut router = router(Config {
            policy,
            ..Config::default()
        });
        // Without a hierarchy's neighbours the replier is set by hand.
        router.set_replier(NOW, KEY, Some(replier())).unwrap();
        let mut buffer = [0; 256];
        let mut sent = 0;
        let before = allocations();
        for round in 0..200u64 {
            let now = NOW + Duration::from_millis(40 * round);
            for packet in &good {
                buffer[..packet.len()].copy_from_slice(packet);
                let bytes = &mut buffer[..packet.len()];
                match router.forward(now, &meta(DOWN), bytes) {
                    Verdict::Forward { second, .. } => {
                        sent += 1;
                        if let Some(second) = second {
                            let _ = router.second_copy(second, bytes);
                        }
                    }
                    Verdict::Multicast { .. } => sent += 1,
                    Verdict::Drop(_) | Verdict::Pass => {}
                }
            }
        }
        assert_eq!(allocations(), before, "{policy:?}");
        assert_eq!(sent, 800, "{policy:?}");
    }
    drop(vec![0u8; 3]);
    assert!(allocations() > 0, "the counter counts");
}

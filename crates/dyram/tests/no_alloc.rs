//! The services allocate nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};

use dyram::storage::{Limits, Storage};
use dyram::wire::{Body, Nack, Repr, Role};
use dyram::{
    Attachment, AttachmentConfig, Config, Duration, Instant, Meta, Relay, RelayId, Seq, SessionKey,
    Verdict,
};

struct Counting;

thread_local! {
    /// Counts this thread only: the thread that runs the tests may allocate at any time.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

#[expect(
    unsafe_code,
    reason = "counts what the system's allocator is asked for"
)]
// SAFETY: everything is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn nothing_is_allocated_once_the_tables_are_there() {
    let relay_address: SocketAddr = "10.0.0.9:4143".parse().unwrap();
    let source: SocketAddr = "10.0.0.1:5000".parse().unwrap();
    let child: SocketAddr = "10.0.0.2:5000".parse().unwrap();
    let key = SessionKey::new(source.ip(), IpAddr::from([239, 1, 2, 3])).unwrap();
    let storage = Storage::owned(Limits::default()).unwrap();
    let mut now = Instant::ZERO;
    let before = COUNT.get();

    let mut relay = Relay::new(Config::new(RelayId(1)), storage, [1; 32], now).unwrap();
    let mut buffer = [0; 256];
    let mut ends = [(Role::Source, source), (Role::Receiver, child)].map(|(role, address)| {
        let relays = [relay_address].into_iter().collect();
        let mut end = Attachment::new(AttachmentConfig { key, role, relays }, [2; 32], now);
        while end.relay().is_none() {
            let join = end.poll_transmit(now, &mut buffer).unwrap();
            let _ = relay.forward(now, &Meta::unicast(address), &mut buffer[..join.len]);
            while let Some(answer) = relay.poll_transmit(now, &mut buffer) {
                let from = Meta::unicast(relay_address);
                let _ = end.handle_packet(now, &from, &buffer[..answer.len]);
            }
        }
        end
    });
    let mut sent = 0;
    for seq in (0..10_000).filter(|seq| seq % 25 != 24) {
        now += Duration::from_millis(1);
        let transmit = ends[0]
            .send(7, Seq(seq), Body::Data(b"data"), &mut buffer)
            .unwrap();
        let verdict = relay.forward(now, &Meta::unicast(source), &mut buffer[..transmit.len]);
        if let Verdict::Send(fanout) = verdict {
            sent += relay.targets(&fanout).count();
        }
        let repr = Repr {
            key,
            session: 7,
            child: 0,
            sequence: Seq(seq),
            body: Body::Nack(Nack::default()),
        };
        let len = repr.emit(&mut buffer);
        let _ = relay.forward(now, &Meta::unicast(child), &mut buffer[..len]);
        relay.handle_timeout(now);
        while relay.poll_transmit(now, &mut buffer).is_some() {}
        while relay.poll_event().is_some() {}
        if let Some(transmit) = ends[1].poll_transmit(now, &mut buffer) {
            let _ = relay.forward(now, &Meta::unicast(child), &mut buffer[..transmit.len]);
        }
    }
    assert_eq!(COUNT.get(), before);
    assert!(sent > 5_000, "{sent}");
}

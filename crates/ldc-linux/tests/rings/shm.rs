//! A ring between two processes: the test program starts itself again as the other one.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{connection, message, numbers};
use ldc_linux::{
    Attributes, InitError, Receiver, SendError, Sender, Shape, WaitError, Wake, shm, tcp,
};

const PLAIN: Attributes = Attributes {
    deadline: None,
    priority: 0,
};
const LONG: Option<Duration> = Some(Duration::from_secs(30));
const ROLE: &str = "LDC_TEST_ROLE";
const DOOR: &str = "LDC_TEST_DOOR";
const MOST: usize = 64 << 20;

fn shape() -> Shape {
    Shape::new(16, 256).unwrap()
}

/// Where the two processes meet.
struct Door {
    path: PathBuf,
    listener: UnixListener,
}

impl Door {
    fn new(name: &str) -> Door {
        let file = format!("ldc-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let listener = UnixListener::bind(&path).unwrap();
        Door { path, listener }
    }

    /// Starts this program again in a role.
    fn start(&self, role: &str) -> (Child, UnixStream) {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "shm::the_other_process", "--nocapture"])
            .env(ROLE, role)
            .env(DOOR, &self.path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        (child, self.listener.accept().unwrap().0)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// No test of its own: what the other process does.
#[test]
fn the_other_process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let socket = UnixStream::connect(std::env::var_os(DOOR).unwrap()).unwrap();
    match role.as_str() {
        "take all" => {
            let mut ring = shm::attach(socket.try_clone().unwrap(), MOST).unwrap();
            // Its account goes over a connection of its own.
            let mut account = UnixStream::connect(std::env::var_os(DOOR).unwrap()).unwrap();
            take(&mut ring, |number| {
                account.write_all(&number.to_be_bytes()).unwrap();
            });
        }
        "claim two and hang" => {
            let mut ring = shm::attach(socket, MOST).unwrap();
            let mut claimed = Vec::new();
            while claimed.len() < 2 {
                ring.wait(None);
                claimed.extend(ring.claim(None).unwrap());
            }
            loop {
                std::thread::park();
            }
        }
        "free sixteen and hang" => {
            let mut ring = shm::attach(socket, MOST).unwrap();
            for _ in 0..16 {
                let message = loop {
                    if let Some(message) = ring.claim(None).unwrap() {
                        break message;
                    }
                    ring.wait(None);
                };
                ring.complete(message);
            }
            loop {
                std::thread::park();
            }
        }
        "send ten, hold two back and hang" => {
            let mut ldc = shm::init(socket, shape()).unwrap();
            for number in 0..12u32 {
                ldc.send(number.into(), &message(number, 100), PLAIN)
                    .unwrap();
                if number == 10 {
                    ldc.ring().hold_back(10);
                }
            }
            ldc.notify();
            loop {
                std::thread::park();
            }
        }
        role => panic!("no role {role}"),
    }
}

/// Takes messages until the ring ends; each must be whole.
fn take(ring: &mut Receiver, mut each: impl FnMut(u32)) -> Wake {
    loop {
        while let Some(message) = ring.claim(None).unwrap() {
            let mut bytes = vec![0; message.len()];
            ring.ring().read(&message, 0, &mut bytes);
            ring.complete(message);
            numbers(&bytes[..]).into_iter().for_each(&mut each);
        }
        match ring.wait(LONG) {
            Wake::Ready => {}
            end => return end,
        }
    }
}

/// Splitmix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// One random operation; what may no longer arrive is taken out of `expected`.
fn operate(ldc: &mut Sender, seed: &mut u64, next: &mut u32, expected: &mut Vec<u32>) {
    let back = random(seed) % 24;
    let seq = u64::from(*next).saturating_sub(back);
    match random(seed) % 10 {
        0..=5 => {
            let len = 8 + (random(seed) % 600) as usize;
            match ldc.send(u64::from(*next), &message(*next, len), PLAIN) {
                Ok(()) => {
                    expected.push(*next);
                    *next += 1;
                }
                Err(SendError::Full) => {
                    ldc.ring().release();
                    ldc.wait_room(8, LONG).unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        }
        6 => {
            if ldc.cancel(seq).changed > 0 {
                expected.retain(|number| u64::from(*number) != seq);
            }
        }
        7 => {
            // Shorter, and still a whole message.
            let _ = ldc.ring().modify(seq, |payload| {
                let len = payload.len() - 1;
                if payload.len() > 8 && payload.resize(len) {
                    payload.write(0, &message(seq as u32, len));
                }
            });
        }
        8 => {
            ldc.ring().hold_back(seq);
        }
        _ => {
            ldc.ring().release();
            ldc.notify();
        }
    }
}

#[test]
fn random_changes_of_mind_across_two_processes() {
    for seed in 1..=4u64 {
        let door = Door::new(&format!("random-{seed}"));
        let (mut child, socket) = door.start("take all");
        let mut ldc = shm::init(socket, shape()).unwrap();
        let account = door.listener.accept().unwrap().0;
        let reader = std::thread::spawn(move || words(account));
        let (mut state, mut next, mut expected) = (seed, 0, Vec::new());
        for _ in 0..5_000 {
            operate(&mut ldc, &mut state, &mut next, &mut expected);
        }
        ldc.ring().release();
        drop(ldc);
        assert!(child.wait().unwrap().success(), "seed {seed}");
        assert_eq!(reader.join().unwrap(), expected, "seed {seed}");
    }
}

fn words(mut from: impl std::io::Read) -> Vec<u32> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).unwrap();
    let word = |four: &[u8]| u32::from_be_bytes(four.try_into().unwrap());
    bytes.chunks(4).map(word).collect()
}

#[test]
fn a_receiver_that_dies_is_noticed_and_another_takes_over() {
    let door = Door::new("receiver");
    let (mut child, socket) = door.start("claim two and hang");
    let mut ldc = shm::init(socket, shape()).unwrap();
    for number in 0..4u32 {
        ldc.send(number.into(), &message(number, 100), PLAIN)
            .unwrap();
    }
    ldc.notify();
    while ldc.ring().pending().count() > 2 {
        std::thread::yield_now();
    }
    assert!(ldc.is_attached());
    let (second, ours) = UnixStream::pair().unwrap();
    assert!(matches!(ldc.pass(ours), Err(InitError::InUse)));
    drop(second);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(ldc.wait_room(16, LONG), Err(WaitError::Gone));
    assert!(!ldc.is_attached());
    while ldc.send(9, &message(9, 100), PLAIN).is_ok() {}
    let waited = ldc.send_wait(9, &message(9, 100), PLAIN, LONG);
    assert_eq!(waited, Err(SendError::Gone));

    let (theirs, ours) = UnixStream::pair().unwrap();
    ldc.pass(ours).unwrap();
    let mut ring = shm::attach(theirs, MOST).unwrap();
    drop(ldc);
    let mut seen = Vec::new();
    assert_eq!(take(&mut ring, |number| seen.push(number)), Wake::Closed);
    // What the dead one had claimed and not completed is there again.
    assert_eq!(seen[..4], [0, 1, 2, 3]);
    assert!(seen.len() == 16 && seen[4..].iter().all(|number| *number == 9));
}

#[test]
fn a_receiver_that_dies_after_a_wake_up_is_gone() {
    let door = Door::new("wake-up");
    let (mut child, socket) = door.start("free sixteen and hang");
    let mut ldc = shm::init(socket, shape()).unwrap();
    for number in 0..16u32 {
        ldc.send(number.into(), &message(number, 100), PLAIN)
            .unwrap();
    }
    let room = ldc.wait_room(16, Some(Duration::ZERO));
    assert_eq!(room, Err(WaitError::TimedOut));
    while ldc.ring().free_slots() < 16 {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!ldc.is_attached());
    let (_theirs, ours) = UnixStream::pair().unwrap();
    ldc.pass(ours).unwrap();
}

#[test]
fn a_sender_that_dies_is_noticed_and_what_it_sent_arrives() {
    let door = Door::new("sender");
    let (mut child, socket) = door.start("send ten, hold two back and hang");
    let mut ring = shm::attach(socket, MOST).unwrap();
    let mut seen = Vec::new();
    while seen.len() < 10 {
        assert_eq!(ring.wait(LONG), Wake::Ready);
        while let Some(message) = ring.claim(None).unwrap() {
            seen.push(message.user_seq());
            ring.complete(message);
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(take(&mut ring, |_| panic!("held back")), Wake::Gone);
    assert!(seen.into_iter().eq(0..10));
    assert!(!ring.is_ended());
}

#[test]
fn a_ring_of_another_process_drains_into_our_socket_and_its_death_ends_that() {
    for acks in [false, true] {
        let door = Door::new(&format!("drain-{acks}"));
        let (mut child, socket) = door.start("send ten, hold two back and hang");
        let ring = shm::attach(socket, MOST).unwrap();
        let (near, far) = connection();
        let config = tcp::Config {
            acks,
            ..tcp::Config::default()
        };
        let drain = tcp::Drain::new(ring, near, config).unwrap();
        let reader = std::thread::spawn(move || numbers(far));
        let drain = std::thread::spawn(move || drain.run());
        std::thread::sleep(Duration::from_millis(100));
        child.kill().unwrap();
        child.wait().unwrap();
        let ended = drain.join().unwrap();
        assert!(matches!(ended, Err(tcp::Error::ProducerDied)), "{ended:?}");
        assert!(reader.join().unwrap().into_iter().eq(0..10));
    }
}

#[test]
fn golden_offer() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let shape = Shape::new(16, 256).unwrap();
    let _ldc = shm::init(near, shape).unwrap();
    let mut bytes = [0; 16];
    far.read_exact(&mut bytes).unwrap();
    let mut expected = *b"LDCm............";
    expected[4..8].copy_from_slice(&1u32.to_ne_bytes());
    expected[8..].copy_from_slice(&(shape.block_len() as u64 + 64).to_ne_bytes());
    assert_eq!(bytes, expected);
}

#[test]
fn an_offer_that_is_none_is_refused() {
    // No descriptor.
    let (mut near, far) = UnixStream::pair().unwrap();
    near.write_all(&[0; 16]).unwrap();
    let refused = shm::attach(far, MOST);
    assert!(matches!(refused, Err(InitError::NoOffer)));
    // Another version, whatever comes with it.
    let (mut near, far) = UnixStream::pair().unwrap();
    let mut newer = [0; 16];
    newer[..4].copy_from_slice(b"LDCm");
    newer[4..8].copy_from_slice(&2u32.to_ne_bytes());
    near.write_all(&newer).unwrap();
    let refused = shm::attach(far, MOST).err().unwrap();
    assert!(matches!(refused, InitError::OtherVersion(2)));
    let text = refused.to_string();
    assert!(
        text.contains("offers version 2 of a ring, this process takes version 1"),
        "{text}"
    );
    // Nothing at all.
    let (near, far) = UnixStream::pair().unwrap();
    drop(near);
    assert!(matches!(shm::attach(far, MOST), Err(InitError::Gone)));
    // Nothing for too long.
    let (_near, far) = UnixStream::pair().unwrap();
    far.set_read_timeout(Some(Duration::from_millis(10)))
        .unwrap();
    assert!(matches!(shm::attach(far, MOST), Err(InitError::Io { .. })));
    // More than we want to map.
    let (near, far) = UnixStream::pair().unwrap();
    let _ldc = shm::init(near, shape()).unwrap();
    let refused = shm::attach(far, 4096);
    assert!(matches!(refused, Err(InitError::TooLarge { .. })));
}

#[test]
fn a_peer_that_rings_without_end_is_only_a_nuisance() {
    let (near, far) = UnixStream::pair().unwrap();
    let noise = far.try_clone().unwrap();
    noise.set_nonblocking(true).unwrap();
    let mut ldc = shm::init(near, shape()).unwrap();
    let mut ring = shm::attach(far, MOST).unwrap();
    while (&noise).write(&[0; 4096]).is_ok() {}
    assert!(noise.as_raw_fd() >= 0 && ldc.is_attached());
    let late = ldc.send_wait(1, &vec![1; 16 * 256 + 1], PLAIN, LONG);
    assert_eq!(late, Err(SendError::TooLong));
    for number in 0..16u32 {
        ldc.send(number.into(), &message(number, 10), PLAIN)
            .unwrap();
    }
    let short = Some(Duration::from_millis(30));
    assert_eq!(ldc.wait_room(1, short), Err(WaitError::TimedOut));
    drop(ldc);
    let mut count = 0;
    assert_eq!(take(&mut ring, |_| count += 1), Wake::Closed);
    assert_eq!(count, 16);
}

//! The ring between two processes in shared memory: the lists of operations of `oracle.rs`, step by step; both sides at
//! full speed, also as two threads, which a sanitizer can watch; and a consumer that is killed.
//!
//! This program is both processes: with the arguments `consumer FD` it is the consumer, which obeys commands on its
//! standard input.

mod oracle_list;
mod random_list;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::ptr::NonNull;

use ldc_ring::{Attributes, Changed, Claimed, Consumer, Entry, Producer, SendError, Shape};
use oracle_list::{Here, SLOT_BYTES, Takes};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use random_list::{compare, step};

/// A mapped memory file.
struct Shared {
    file: OwnedFd,
    memory: NonNull<u8>,
    len: usize,
}

impl Shared {
    fn new(len: usize) -> Shared {
        // SAFETY: the name ends with a zero; this code owns the new descriptor.
        let file = unsafe {
            let fd = libc::memfd_create(c"ldc-ring".as_ptr(), 0);
            assert!(fd >= 0, "memfd_create");
            assert_eq!(libc::ftruncate(fd, len as libc::off_t), 0);
            OwnedFd::from_raw_fd(fd)
        };
        Shared::map(file, len)
    }

    fn map(file: OwnedFd, len: usize) -> Shared {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let memory = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len,
                access,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(memory, libc::MAP_FAILED);
        Shared {
            file,
            memory: NonNull::new(memory).unwrap().cast(),
            len,
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`; all users of the mapping are gone.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.len) };
    }
}

type P = Producer<(), Vec<Entry>>;

/// A ring in new shared memory. The memory outlives the producer, which is declared after it.
fn ring(slots: u32) -> (Shared, P) {
    let shape = Shape::new(slots, SLOT_BYTES).unwrap();
    let shared = Shared::new(shape.block_len());
    let index = vec![Entry::EMPTY; slots as usize];
    // SAFETY: new memory that no other code in this process accesses.
    let producer = unsafe { Producer::create(shared.memory, shared.len, shape, (), index) };
    (shared, producer.unwrap())
}

/// The consumer in another process.
struct There {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl There {
    fn start(shared: &Shared) -> There {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["consumer", &shared.file.as_raw_fd().to_string()])
            .arg(shared.len.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        There {
            child,
            orders,
            answers,
        }
    }

    fn ask(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }
}

impl Drop for There {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Takes for There {
    fn claim(&mut self, now: i64) -> Option<(u64, Vec<u8>)> {
        let answer = self.ask(&format!("claim {now}"));
        let mut words = answer.split(' ').map(|word| word.parse::<u64>().unwrap());
        let seq = words.next().filter(|_| answer != "0 0")?;
        let bytes = words.skip(1).map(|byte| byte as u8).collect();
        Some((seq, bytes))
    }

    fn skip(&mut self) -> u32 {
        self.ask("skip").parse().unwrap()
    }

    fn complete(&mut self, nth: usize) {
        self.ask(&format!("complete {nth}"));
    }

    fn ack(&mut self, nth: usize) -> bool {
        self.ask(&format!("ack {nth}")) == "true"
    }

    fn idle(&mut self) -> bool {
        self.ask("idle") == "true"
    }
}

/// The consumer process: executes each line of its input and answers with a line.
fn obey(fd: RawFd, len: usize) {
    // SAFETY: inherited for this purpose.
    let shared = Shared::map(unsafe { OwnedFd::from_raw_fd(fd) }, len);
    // Enough for any ring of these tests.
    let completed = vec![0; 64];
    // SAFETY: the mapping outlives the consumer.
    let consumer = unsafe { Consumer::attach(shared.memory, len, (), completed) }.unwrap();
    let mut here = Here {
        consumer,
        claimed: Vec::new(),
    };
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (verb, number) = line.split_once(' ').unwrap_or((&line, "0"));
        let answer = match verb {
            "claim" => match here.claim(number.parse().unwrap()) {
                Some((seq, bytes)) => {
                    let bytes = bytes.iter().map(|byte| format!(" {byte}"));
                    format!("{seq} 1{}", bytes.collect::<String>())
                }
                None => "0 0".to_owned(),
            },
            "skip" => here.skip().to_string(),
            "complete" => {
                here.complete(number.parse().unwrap());
                String::new()
            }
            "ack" => here.ack(number.parse().unwrap()).to_string(),
            "idle" => here.idle().to_string(),
            "take" => {
                let keep = number.parse().unwrap();
                take_all(&mut here.consumer, keep, &mut std::io::stdout().lock());
                "done".to_owned()
            }
            _ => unreachable!("{line}"),
        };
        println!("{answer}");
    }
}

/// Claims until the ring is closed and empty, and prints each message; completes only the first `keep` messages.
fn take_all(consumer: &mut Consumer<(), Vec<u32>>, keep: u64, out: &mut impl Write) {
    let mut kept: Vec<Claimed> = Vec::new();
    let mut taken = 0;
    let mut bytes = [0; 4 * SLOT_BYTES as usize];
    loop {
        let closed = consumer.is_closed();
        match consumer.claim(None).unwrap() {
            Some(message) => {
                let bytes = &mut bytes[..message.len()];
                consumer.read(&message, 0, bytes);
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "torn");
                writeln!(out, "{} {}", message.user_seq(), bytes[0]).unwrap();
                if taken < keep {
                    consumer.complete(message);
                } else {
                    kept.push(message);
                }
                taken += 1;
            }
            None if closed || !kept.is_empty() => return,
            None => std::thread::yield_now(),
        }
    }
}

/// The lists of `oracle.rs`; each process executes its own steps.
fn the_same_lists_step_by_step() {
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(60)
    });
    let lists = (0..5u32, prop::collection::vec(step(), 1..200));
    let result = runner.run(&lists, |(slots_log2, steps)| {
        let (shared, mut producer) = ring(1 << slots_log2);
        compare(steps, &mut producer, &mut There::start(&shared))
    });
    result.unwrap();
}

/// The messages sent and not cancelled, with their fill byte.
type Log = VecDeque<(u64, u8)>;

/// Sends `count` messages, and cancels, modifies or holds back many of them.
fn send_all(producer: &mut P, count: u64) -> Log {
    let mut log = Log::new();
    let mut seq = 0;
    while seq < count {
        let len = 1 + (seq * 37) as usize % (3 * SLOT_BYTES as usize);
        match producer.send(seq, &[seq as u8; 4 * 64][..len], Attributes::default()) {
            Ok(()) => {
                log.push_back((seq, seq as u8));
                seq += 1;
            }
            Err(SendError::Full) => {
                producer.release();
                std::thread::yield_now();
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        // The newest message, the previous one, or one that may have left.
        let target = seq.saturating_sub(1 + seq % 5);
        match seq % 7 {
            1 if producer.cancel(target).changed == 1 => log.retain(|sent| sent.0 != target),
            2 => {
                let change = producer.modify(target, |payload| {
                    let len = payload.len();
                    payload.write(0, &[0xee; 4 * 64][..len]);
                });
                if change.is_ok() {
                    let sent = log.iter_mut().rev().find(|sent| sent.0 == target);
                    sent.expect("what can be modified was sent").1 = 0xee;
                }
            }
            3 => {
                producer.hold_back(target);
            }
            4 | 5 => producer.release(),
            _ => {}
        }
    }
    producer.release();
    producer.close();
    log
}

fn parse(line: &str) -> (u64, u8) {
    let (seq, byte) = line.split_once(' ').expect(line);
    (seq.parse().unwrap(), byte.parse().unwrap())
}

/// Both sides at full speed: the messages that arrive agree with the results that the producer got.
fn both_at_full_speed() {
    for slots in [4, 8, 128] {
        let (shared, mut producer) = ring(slots);
        let mut there = There::start(&shared);
        writeln!(there.orders, "take {}", u64::MAX).unwrap();
        let receiver = std::thread::spawn(move || {
            let lines = core::iter::from_fn(|| Some(there.answer()).filter(|line| line != "done"));
            lines.map(|line| parse(&line)).collect::<Log>()
        });
        let sent = send_all(&mut producer, 20_000);
        let received = receiver.join().unwrap();
        assert_eq!(received.len(), sent.len());
        assert_eq!(received, sent);
        assert_eq!(producer.free_slots(), slots);
    }
}

/// The same in two threads of one process.
fn two_threads_at_full_speed() {
    for slots in [4, 8, 128] {
        let (shared, mut producer) = ring(slots);
        // SAFETY: the only consumer, in memory that stays mapped to the end of the process.
        let consumer = unsafe { Consumer::attach(shared.memory, shared.len, (), vec![0; 64]) };
        std::mem::forget(shared);
        let mut consumer = consumer.unwrap();
        let receiver = std::thread::spawn(move || {
            let mut lines = Vec::new();
            take_all(&mut consumer, u64::MAX, &mut lines);
            lines
        });
        let sent = send_all(&mut producer, 20_000);
        let lines = receiver.join().unwrap();
        let received: Log = lines.lines().map(|line| parse(&line.unwrap())).collect();
        assert_eq!(received, sent);
        assert_eq!(producer.free_slots(), slots);
    }
}

/// A consumer is killed while it holds messages: its successor gets them again, and no other message twice.
fn a_consumer_that_is_killed() {
    for completed in [0, 3, 40] {
        let (shared, mut producer) = ring(64);
        for seq in 0..64 {
            producer
                .send(seq, &[seq as u8], Attributes::default())
                .unwrap();
        }
        let mut first = There::start(&shared);
        writeln!(first.orders, "take {completed}").unwrap();
        for seq in 0..64 {
            assert_eq!(parse(&first.answer()), (seq, seq as u8));
        }
        assert_eq!(first.answer(), "done");
        drop(first);
        assert_eq!(producer.free_slots(), completed as u32);
        let late = Changed {
            changed: 0,
            too_late: 1,
        };
        assert_eq!(producer.cancel(63), late);
        producer.close();
        let mut second = There::start(&shared);
        writeln!(second.orders, "take {}", u64::MAX).unwrap();
        for seq in completed..64 {
            assert_eq!(parse(&second.answer()), (seq, seq as u8));
        }
        assert_eq!(second.answer(), "done");
        assert_eq!(producer.free_slots(), 64);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, fd, len] = &arguments[..]
        && role == "consumer"
    {
        return obey(fd.parse().unwrap(), len.parse().unwrap());
    }
    // The test filter of `cargo test` applies here too.
    let chosen = |name: &str| {
        let mut filters = arguments[1..].iter().filter(|word| !word.starts_with('-'));
        let first = filters.next();
        first.is_none_or(|first| name.contains(first.as_str()))
    };
    let tests: [(&str, fn()); 4] = [
        ("the_same_lists_step_by_step", the_same_lists_step_by_step),
        ("both_at_full_speed", both_at_full_speed),
        ("two_threads_at_full_speed", two_threads_at_full_speed),
        ("a_consumer_that_is_killed", a_consumer_that_is_killed),
    ];
    for (name, test) in tests.into_iter().filter(|(name, _)| chosen(name)) {
        test();
        println!("test {name} ... ok");
    }
}

//! A feeder and its child over loopback, and ends that break the rules.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mcp_control::limits::BLOCK_LEN;
use mcp_control::wire::link::{
    ACCEPT_LEN, Accept, BlockHeader, Keys, PREFACE_LEN, Preface, REQUEST_LEN, Want,
};
use mcp_control::wire::relay::{LinkId, LinkSecret};
use mcp_control::{Entry, Kind, Manifest, RelPath, Timestamp};
use mcp_relay::child::{self, Answer};
use mcp_relay::feeder::{self, Availability, Source};
use mcp_relay::{Closer, Terms};

const SECRET: LinkSecret = LinkSecret([2; 32]);

fn terms(sealed: bool) -> Terms {
    Terms {
        link: LinkId([1; 16]),
        secret: SECRET,
        sealed,
    }
}

/// Forty blocks and a part of one.
fn manifest() -> Arc<Manifest> {
    let file = Entry {
        path: RelPath::new(b"f").expect("a path"),
        kind: Kind::File {
            len: 40 * BLOCK_LEN + 5,
        },
        mode: 0o644,
        modified: Timestamp::default(),
    };
    Arc::new(Manifest::new(vec![file]).expect("a manifest"))
}

/// Blocks filled with their numbers; block 7 is gone.
#[derive(Default)]
struct Numbers(AtomicUsize);

impl Source for Numbers {
    fn wait(&self, block: u64, _: Duration) -> Availability {
        match block {
            7 => Availability::Gone,
            _ => Availability::Ready,
        }
    }

    fn read(&self, block: u64) -> Option<Arc<Vec<u8>>> {
        let len = manifest().locate(block)?.len;
        Some(Arc::new(vec![block as u8; len as usize]))
    }

    fn served(&self, len: usize) {
        self.0.fetch_add(len, Ordering::Relaxed);
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// A feeder in a thread of its own; how it ended.
fn feed(terms: Terms, child: SocketAddr) -> JoinHandle<std::io::Result<()>> {
    thread::spawn(move || feeder::connect(&terms, child)?.serve(&manifest(), &Numbers::default()))
}

fn preface(stream: &mut TcpStream) -> Preface {
    let mut bytes = [0; PREFACE_LEN];
    stream.read_exact(&mut bytes).expect("a preface");
    Preface::parse(&bytes).expect("a preface")
}

fn linked(terms: &Terms, listener: &TcpListener) -> (child::Link, Arc<AtomicU64>) {
    let (mut stream, _) = listener.accept().expect("the feeder");
    let preface = preface(&mut stream);
    let arrived = Arc::new(AtomicU64::new(0));
    let link = child::accept(stream, &preface, terms, manifest(), Arc::clone(&arrived));
    (link.expect("a link"), arrived)
}

#[test]
fn blocks_are_served_in_the_order_of_the_requests() {
    for sealed in [false, true] {
        let terms = terms(sealed);
        let (listener, address) = listen();
        let feeder = feed(terms, address);
        let (mut link, arrived) = linked(&terms, &listener);
        for (first, count) in [(39, 2), (3, 1), (7, 1)] {
            link.asker.ask(Want { first, count }).expect("asked");
        }
        for expected in [39, 40, 3] {
            let Answer::Block(block, bytes) = link.blocks.read().expect("an answer") else {
                panic!("{expected} is there")
            };
            assert_eq!(block, expected);
            let len = if expected == 40 {
                5
            } else {
                BLOCK_LEN as usize
            };
            assert!(bytes == vec![expected as u8; len]);
        }
        assert!(matches!(link.blocks.read(), Ok(Answer::Gone(7))));
        assert_eq!(arrived.load(Ordering::Relaxed), 2 * BLOCK_LEN + 5);
        link.asker.closer().close();
        drop(link);
        feeder.join().expect("ended").expect("without an error");
    }
}

#[test]
fn neither_end_takes_one_that_does_not_know_the_secret() {
    let known = terms(true);
    let other = Terms {
        secret: LinkSecret([3; 32]),
        ..known
    };
    for (feeder_terms, child_terms) in [(known, other), (other, known)] {
        let (listener, address) = listen();
        let feeder = feed(feeder_terms, address);
        let (mut stream, _) = listener.accept().expect("the feeder");
        let preface = preface(&mut stream);
        let link = child::accept(stream, &preface, &child_terms, manifest(), Arc::default());
        assert!(link.is_err());
        assert!(feeder.join().expect("ended").is_err());
    }
    // An attacker who reflects the proof of the child proves nothing.
    let (listener, address) = listen();
    let child = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the feeder");
        let preface = preface(&mut stream);
        child::accept(stream, &preface, &terms(true), manifest(), Arc::default()).map(drop)
    });
    let mut stream = TcpStream::connect(address).expect("connected");
    let preface = Preface {
        sealed: true,
        link: LinkId([1; 16]),
        nonce: [9; 32],
    };
    stream.write_all(&preface.emit()).expect("sent");
    let mut accept = [0; ACCEPT_LEN];
    stream.read_exact(&mut accept).expect("an answer");
    stream
        .write_all(&Accept::parse(&accept).proof)
        .expect("sent");
    assert!(child.join().expect("ended").is_err());
}

/// An end that sends a byte now and then would hold the thread of the other for minutes: this one needs 32 s to send what
/// the handshake wants.
#[test]
fn a_handshake_that_drips_ends() {
    let drip = |mut stream: TcpStream| {
        for _ in 0..ACCEPT_LEN {
            if stream.write_all(&[0]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(500));
        }
    };
    let (listener, address) = listen();
    let feeder = feed(terms(false), address);
    let (stream, _) = listener.accept().expect("the feeder");
    thread::spawn(move || drip(stream));
    let (listener, address) = listen();
    thread::spawn(move || drip(TcpStream::connect(address).expect("connected")));
    let (stream, _) = listener.accept().expect("the feeder");
    let preface = Preface {
        sealed: false,
        link: LinkId([1; 16]),
        nonce: [9; 32],
    };
    let link = child::accept(stream, &preface, &terms(false), manifest(), Arc::default());
    let timed_out = std::io::ErrorKind::TimedOut;
    assert_eq!(link.err().map(|error| error.kind()), Some(timed_out));
    let ended = feeder.join().expect("ended");
    assert_eq!(ended.expect_err("no proof").kind(), timed_out);
}

#[test]
fn an_unsealed_link_is_refused_where_a_sealed_one_was_arranged() {
    let (listener, address) = listen();
    let feeder = feed(terms(false), address);
    let (mut stream, _) = listener.accept().expect("the feeder");
    let preface = preface(&mut stream);
    let link = child::accept(stream, &preface, &terms(true), manifest(), Arc::default());
    assert!(link.is_err());
    assert!(feeder.join().expect("ended").is_err());
}

/// The child's end, in the clear.
fn raw_child(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().expect("the feeder");
    let preface = preface(&mut stream);
    let keys = Keys::derive(&SECRET, &preface.nonce, &[8; 32]);
    let accept = Accept {
        nonce: [8; 32],
        proof: keys.child_proof,
    };
    stream.write_all(&accept.emit()).expect("sent");
    let mut proof = [0; 32];
    stream.read_exact(&mut proof).expect("confirmed");
    assert_eq!(proof, keys.feeder_proof);
    stream
}

#[test]
fn a_child_that_asks_for_more_than_its_share_is_disconnected() {
    // Sockets hold a few blocks of those that are not read.
    let greedy = vec![(0, 16), (16, 16), (0, 16), (16, 16)];
    for wants in [greedy, vec![(0, 17)], vec![(41, 1)], vec![(u64::MAX, 1)]] {
        let (listener, address) = listen();
        let feeder = feed(terms(false), address);
        let mut stream = raw_child(&listener);
        let mut requests = Vec::new();
        for (first, count) in wants {
            Want { first, count }.emit(&mut requests);
        }
        stream.write_all(&requests).expect("sent");
        // Nothing is read meanwhile: what was asked for stays due.
        let ended = feeder.join().expect("ended");
        assert_eq!(
            ended.expect_err("refused").kind(),
            std::io::ErrorKind::InvalidData
        );
    }
}

#[test]
fn a_feeder_that_sends_what_was_not_asked_for_is_refused() {
    let header = |block, len| BlockHeader { block, len }.emit();
    let answers: [[u8; REQUEST_LEN]; 3] = [header(4, 9), header(3, 9), [0xff; REQUEST_LEN]];
    for answer in answers {
        let (listener, address) = listen();
        let liar = thread::spawn(move || {
            let mut stream = TcpStream::connect(address).expect("connected");
            let nonce = [9; 32];
            let preface = Preface {
                sealed: false,
                link: LinkId([1; 16]),
                nonce,
            };
            stream.write_all(&preface.emit()).expect("sent");
            let mut accept = [0; ACCEPT_LEN];
            stream.read_exact(&mut accept).expect("an answer");
            let keys = Keys::derive(&SECRET, &nonce, &Accept::parse(&accept).nonce);
            stream.write_all(&keys.feeder_proof).expect("sent");
            let mut request = [0; REQUEST_LEN];
            stream.read_exact(&mut request).expect("a request");
            stream.write_all(&answer).expect("sent");
            stream
        });
        let (mut link, _) = linked(&terms(false), &listener);
        link.asker.ask(Want { first: 3, count: 1 }).expect("asked");
        assert!(link.blocks.read().is_err());
        liar.join().expect("ended");
    }
}

#[test]
fn a_link_is_closed_from_outside() {
    let (listener, address) = listen();
    let terms = terms(false);
    let feeder = thread::spawn(move || {
        let link = feeder::connect(&terms, address).expect("connected");
        let closer: Closer = link.closer();
        let serving = thread::spawn(move || link.serve(&manifest(), &Numbers::default()));
        closer.close();
        serving.join().expect("ended")
    });
    let (mut link, _) = linked(&terms, &listener);
    assert!(link.blocks.read().is_err());
    let _ = feeder.join().expect("ended");
}

/// Returns an address that passes on what a feeder sends to the child, in pieces and with pauses.
fn dripping(child: SocketAddr) -> SocketAddr {
    let (listener, address) = listen();
    thread::spawn(move || {
        let (mut feeder, _) = listener.accept().expect("the feeder");
        let mut child = TcpStream::connect(child).expect("the child");
        let mut from_child = child.try_clone().expect("a stream");
        let mut to_feeder = feeder.try_clone().expect("a stream");
        thread::spawn(move || {
            let _ = std::io::copy(&mut from_child, &mut to_feeder);
            to_feeder.shutdown(Shutdown::Both)
        });
        let mut piece = [0; 10_000];
        while let Ok(read) = feeder.read(&mut piece)
            && read > 0
            && child.write_all(&piece[..read]).is_ok()
        {
            thread::sleep(Duration::from_millis(1));
        }
    });
    address
}

/// A read that waits for more than what is on its way would never end.
#[test]
fn a_block_that_nothing_follows_is_read_to_its_end() {
    for sealed in [false, true] {
        let terms = terms(sealed);
        let (listener, address) = listen();
        let feeder = feed(terms, dripping(address));
        let (mut link, arrived) = linked(&terms, &listener);
        let mut bytes_so_far = 0;
        for block in [3, 40, 0, 39] {
            let want = Want {
                first: block,
                count: 1,
            };
            link.asker.ask(want).expect("asked");
            let Answer::Block(got, bytes) = link.blocks.read().expect("an answer") else {
                panic!("block {block} is gone");
            };
            assert_eq!(got, block);
            assert!(bytes.iter().all(|&byte| byte == block as u8));
            bytes_so_far += bytes.len() as u64;
            assert_eq!(arrived.load(Ordering::Relaxed), bytes_so_far);
        }
        link.asker.closer().close();
        drop(link);
        // The connection was closed in the middle, as far as the feeder can tell.
        let _ = feeder.join().expect("ends");
    }
}

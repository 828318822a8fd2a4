//! Bytes that move through pipes from one stream to another.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use linux_net::pipe::Pipe;
use linux_net::poll::{self, Watch};
use std::os::fd::AsFd;
use std::time::Duration;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    far.set_nonblocking(true).unwrap();
    (near, far)
}

fn await_bytes(stream: &TcpStream) {
    let timeout = Some(Duration::from_secs(10));
    poll::wait(&mut [Watch::readable(stream.as_fd())], timeout).unwrap();
}

#[test]
fn a_header_is_replaced_and_the_payload_is_not_read() {
    let ((mut source, input), (output, mut sink)) = (pair(), pair());
    sink.set_nonblocking(false).unwrap();
    let payload: Vec<u8> = (0..50_000u32).map(|n| (n % 251) as u8).collect();
    source.write_all(b"old!").unwrap();
    source.write_all(&payload).unwrap();
    let (mut first, mut second) = (Pipe::new(1 << 18).unwrap(), Pipe::new(1 << 18).unwrap());
    let mut heading = Pipe::new(4096).unwrap();
    assert_eq!(heading.write(b"new header").unwrap(), 10);
    while first.len() < 4 + payload.len() {
        await_bytes(&input);
        first.fill(&input, 1 << 18).unwrap();
    }
    let mut header = [0; 4];
    assert_eq!(first.read(&mut header).unwrap(), 4);
    assert_eq!(&header, b"old!");
    assert_eq!(heading.duplicate(&mut second, 10).unwrap(), 10);
    while !first.is_empty() {
        first.transfer(&mut second, usize::MAX >> 1).unwrap();
    }
    assert_eq!((heading.len(), second.len()), (10, 10 + payload.len()));
    while !second.is_empty() {
        second.drain(&output, usize::MAX >> 1).unwrap();
    }
    output.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    sink.read_to_end(&mut got).unwrap();
    assert_eq!(&got[..10], b"new header");
    assert!(got[10..] == payload[..]);
}

#[test]
fn a_full_pipe_and_an_empty_stream_would_block_and_an_ended_one_gives_nothing() {
    let (mut source, input) = pair();
    let mut pipe = Pipe::new(4096).unwrap();
    let error = pipe.fill(&input, 100).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    source.write_all(&[7; 10_000]).unwrap();
    await_bytes(&input);
    // One piece fills a pipe of one page.
    assert!(pipe.fill(&input, 3).unwrap() <= 3);
    let error = pipe.fill(&input, 100).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let mut rest = vec![0; 20_000];
    let mut got = pipe.read(&mut rest).unwrap();
    source.shutdown(Shutdown::Write).unwrap();
    loop {
        await_bytes(&input);
        if pipe.fill(&input, 20_000).unwrap() == 0 {
            break;
        }
        got += pipe.read(&mut rest[got..]).unwrap();
    }
    assert_eq!(got, 10_000);
    assert!(rest[..got].iter().all(|byte| *byte == 7));
    assert_eq!(pipe.len(), 0);
}

#[test]
fn a_closed_receiver_is_an_error_and_the_bytes_stay_countable() {
    let (output, sink) = pair();
    output.set_nonblocking(true).unwrap();
    drop(sink);
    let mut pipe = Pipe::new(1 << 16).unwrap();
    let mut failed = None;
    for _ in 0..1000 {
        let written = pipe.write(&[1; 1000]).unwrap();
        assert_eq!(pipe.len(), written);
        match pipe.drain(&output, written) {
            Ok(_) => {}
            Err(error) => {
                failed = Some(error.kind());
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let failed = failed.unwrap();
    assert!(matches!(
        failed,
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
    ));
    assert_eq!(pipe.len(), 1000);
    let mut discarded = [0; 2000];
    assert_eq!(pipe.read(&mut discarded).unwrap(), 1000);
}

#[test]
fn a_full_receiver_takes_a_part_and_the_rest_stays() {
    let (output, sink) = pair();
    output.set_nonblocking(true).unwrap();
    let mut pipe = Pipe::new(1 << 20).unwrap();
    let mut passed = 0;
    loop {
        pipe.write(&vec![3; 64 << 10]).unwrap();
        match pipe.drain(&output, 1 << 20) {
            Ok(moved) => passed += moved,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                break;
            }
        }
        assert!(passed < 100 << 20, "the receiver has no bound");
    }
    let mut left = vec![0; 2 << 20];
    let left = pipe.read(&mut left).unwrap();
    assert!(left > 0 && passed > 0);
    drop((sink, output));
}

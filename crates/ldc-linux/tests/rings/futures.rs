//! The drain as a future.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::{connection, message};
use ldc_linux::tcp::{self, Config, Error};
use ldc_linux::{Attributes, SendError, Sender, Shape, WaitError};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

const PLAIN: Attributes = Attributes {
    deadline: None,
    priority: 0,
};

fn shape(slots: u32) -> Shape {
    Shape::new(slots, 1024).unwrap()
}

fn far_end(far: std::net::TcpStream) -> TcpStream {
    far.set_nonblocking(true).unwrap();
    TcpStream::from_std(far).unwrap()
}

async fn send(ldc: &mut Sender, number: u32) -> Result<(), WaitError> {
    while ldc.send(number.into(), &message(number, 1000), PLAIN) == Err(SendError::Full) {
        ldc.room(1).await?;
    }
    ldc.notify();
    Ok(())
}

/// As in a program: everything on one thread.
#[tokio::test]
async fn every_message_arrives_whole_and_in_order() {
    let (near, far) = connection();
    for acks in [false, true] {
        let near = near.try_clone().unwrap();
        let mut far = far_end(far.try_clone().unwrap());
        let config = Config {
            acks,
            ..Config::default()
        };
        let (mut ldc, drain) = tcp::init_tokio(near, shape(8), config).unwrap();
        let drain = tokio::spawn(drain);
        let sender = async {
            for number in 0..3_000 {
                send(&mut ldc, number).await.unwrap();
            }
            drop(ldc);
        };
        let reader = async {
            let mut bytes = vec![0; 3_000 * 1000];
            far.read_exact(&mut bytes).await.unwrap();
            let whole = bytes.chunks(1000).zip(0..);
            whole.for_each(|(one, number)| assert_eq!(one, message(number, 1000)));
        };
        tokio::join!(sender, reader);
        let stats = drain.await.unwrap().unwrap().stats;
        assert_eq!(stats.messages, 3_000);
        assert_eq!(stats.acked + stats.acks_lost, if acks { 3_000 } else { 0 });
    }
}

#[tokio::test]
async fn a_pause_neither_hangs_nor_loses_anything() {
    let (near, far) = connection();
    let mut far = far_end(far);
    let (mut ldc, drain) = tcp::init_tokio(near, shape(8), Config::default()).unwrap();
    let drain = tokio::spawn(drain);
    let mut bytes = vec![0; 1000];
    for number in 0..20 {
        send(&mut ldc, number).await.unwrap();
        far.read_exact(&mut bytes).await.unwrap();
        assert_eq!(bytes, message(number, 1000));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    drop(ldc);
    let stats = drain.await.unwrap().unwrap().stats;
    assert!(stats.idles >= 10, "{stats:?}");
}

#[tokio::test]
async fn a_slow_reader_fills_the_ring_and_then_everything_arrives() {
    let (near, far) = connection();
    let mut far = far_end(far);
    let (mut ldc, drain) = tcp::init_tokio(near, shape(8), Config::default()).unwrap();
    let drain = tokio::spawn(drain);
    let sent = Arc::new(AtomicU32::new(0));
    let counter = sent.clone();
    let sender = tokio::spawn(async move {
        for number in 0..20_000 {
            send(&mut ldc, number).await.unwrap();
            counter.store(number + 1, Ordering::Relaxed);
        }
    });
    // Every buffer on the way is full when the sender has stood still in several rounds of the runtime.
    let (mut before, mut still) = (0, 0);
    while still < 3 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = sent.load(Ordering::Relaxed);
        still = if now == before && now > 0 {
            still + 1
        } else {
            0
        };
        before = now;
    }
    assert!(!sender.is_finished());
    let mut total = 0;
    let mut bytes = vec![0; 1 << 16];
    while let count @ 1.. = far.read(&mut bytes).await.unwrap() {
        total += count;
        if total == 20_000_000 {
            break;
        }
    }
    sender.await.unwrap();
    let stats = drain.await.unwrap().unwrap().stats;
    assert!(stats.waits > 0 && stats.messages == 20_000);
}

#[tokio::test]
async fn a_reset_ends_the_drain_and_the_waiting() {
    let (near, far) = connection();
    let (mut ldc, drain) = tcp::init_tokio(near, shape(8), Config::default()).unwrap();
    let drain = tokio::spawn(drain);
    send(&mut ldc, 0).await.unwrap();
    // Closed with something unread.
    let far = far_end(far);
    far.readable().await.unwrap();
    tokio::task::yield_now().await;
    drop(far);
    // While the drain is idle.
    let ended = drain.await.unwrap();
    assert!(matches!(ended, Err(Error::PeerClosed)), "{ended:?}");
    let ended = loop {
        if let Err(error) = send(&mut ldc, 1).await {
            break error;
        }
        if let Err(SendError::Closed) = ldc.send(1, &message(1, 1000), PLAIN) {
            break WaitError::Closed;
        }
    };
    assert_eq!(ended, WaitError::Closed);
}

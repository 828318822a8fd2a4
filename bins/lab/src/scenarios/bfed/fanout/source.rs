//! The source: publishes the film at a server, in real time, on a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use moq_net::Timestamp;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::film::{self, PICTURES, Sent};
use super::servers::Place;
use super::{SESSION, confined};
use crate::prelude::*;
use crate::scenarios::bfed::moq::{Connector, Publisher};

/// Time for a server to start.
const START: Duration = Duration::from_secs(20);
/// Time between attempts to connect.
const AGAIN: Duration = Duration::from_millis(200);

/// A running source. It ends when dropped.
pub(super) struct Source {
    sent: Arc<Mutex<Sent>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Source {
    /// Starts it in the calling thread's namespace, on these cores.
    pub(super) fn start(place: Place, cores: &[usize]) -> Source {
        let (sent, stop) = (Arc::default(), Arc::default());
        let (record, over, cores) = (Arc::clone(&sent), Arc::clone(&stop), cores.to_vec());
        let publish =
            move || confined(&cores)?.block_on(async { publish(&place, &record, &over).await });
        Source {
            sent,
            stop,
            thread: Some(std::thread::spawn(publish)),
        }
    }

    /// What has been sent.
    pub(super) fn sent(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until pictures are sent.
    pub(super) fn wait(&mut self) -> Result<()> {
        while self.sent().at(0).is_none() {
            if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                self.end()?;
                bail!("the source has ended");
            }
            std::thread::sleep(AGAIN);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(_)) => bail!("the source has panicked"),
            None => Ok(()),
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

async fn publish(place: &Place, sent: &Mutex<Sent>, over: &AtomicBool) -> Result<()> {
    let connector = Connector::open(&place.certificate)?;
    let until = Instant::now() + START;
    let publisher = loop {
        match Publisher::connect(&connector, &place.url, SESSION).await {
            Ok(publisher) => break publisher,
            Err(error) if Instant::now() > until => return Err(error.context("connect the source")),
            Err(_) => sleep(AGAIN).await,
        }
    };
    let (header, mut pictures) = (film::header(), 0..);
    let mut clock = interval(Duration::from_nanos(1_000_000_000 / PICTURES));
    clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while !over.load(Ordering::Relaxed) {
        let mut group = publisher.track.append_group()?;
        let pictures = pictures.by_ref().take(PICTURES as usize);
        for (at, picture) in pictures.enumerate() {
            clock.tick().await;
            let time = Timestamp::from_millis(picture * 1000 / PICTURES)?;
            if at == 0 {
                group.write_frame(time, header.clone())?;
            }
            group.write_frame(time, film::picture(picture))?;
            let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
            sent.push(Instant::now());
        }
        group.finish()?;
    }
    Ok(())
}

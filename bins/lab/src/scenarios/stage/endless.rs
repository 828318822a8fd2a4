//! A kernel TCP flow that runs until it is stopped.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use nix::sys::socket::{setsockopt, sockopt};

use crate::prelude::*;

const BLOCK: usize = 16 * 1024;

/// A kernel TCP flow from memory to nowhere. Dropping it stops it too.
pub(crate) struct Flow {
    delivered: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Flow {
    /// Starts one between two nodes with this congestion control, to a port of the second.
    pub(crate) fn start(
        network: &Network,
        (from, to): (NodeId, NodeId),
        port: u16,
        control: &str,
    ) -> Result<Flow> {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let listener = network.within(to, || Ok(TcpListener::bind(any)?))?;
        let address = SocketAddr::from((network.plan().address(to), port));
        let mut source = network.within(from, || Ok(TcpStream::connect(address)?))?;
        setsockopt(&source, sockopt::TcpCongestion, &control.into())
            .with_context(|| format!("congestion control {control}"))?;
        let (mut sink, _) = listener.accept()?;
        let (delivered, over) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let stop = Arc::clone(&over);
        let pour = std::thread::spawn(move || {
            let block = vec![0x5a; BLOCK];
            while !stop.load(Ordering::Relaxed) {
                source.write_all(&block)?;
            }
            source.shutdown(Shutdown::Both)?;
            Ok(())
        });
        let count = Arc::clone(&delivered);
        let drain = std::thread::spawn(move || {
            let mut block = vec![0; BLOCK];
            loop {
                let len = sink.read(&mut block)?;
                if len == 0 {
                    return Ok(());
                }
                count.fetch_add(len as u64, Ordering::Relaxed);
            }
        });
        Ok(Flow {
            delivered,
            over,
            threads: vec![pour, drain],
        })
    }

    /// Bytes that have arrived.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Stops it, and waits until the last byte has arrived.
    pub(crate) fn end(mut self) -> Result<()> {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread
                .join()
                .map_err(|_| anyhow!("the TCP flow panicked"))??;
        }
        Ok(())
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

//! The stage that every tool plays on: one sender and its receivers on one shared link, one file.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::net::{LinkId, Network, NodeId, Plan, Shape};
use crate::sandbox::SCRATCH;
use crate::transfer::{same, write_file};

/// A sender's link of so many bits a second: what waits for it, and what passes at once.
const BUCKET_BURST: u32 = 16 * 1024;
const BUCKET_QUEUE: u32 = 1 << 20;

/// One network and one file.
pub(super) struct Stage {
    pub(super) network: Network,
    pub(super) sender: NodeId,
    pub(super) receivers: Vec<NodeId>,
    link: LinkId,
    /// The file to send.
    pub(super) file: PathBuf,
    /// Its length.
    pub(super) bytes: u64,
}

/// What the stage is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) receivers: usize,
    pub(super) bytes: u64,
    /// Segmentation offloads and GRO on all links.
    pub(super) offloads: bool,
    /// The sender's link, 0 for no limit.
    pub(super) rate_bps: u64,
    /// Loss at each receiver: of what comes to it.
    pub(super) loss: f64,
    /// And of what it sends too.
    pub(super) loss_both_ways: bool,
}

impl Stage {
    pub(super) fn build(setting: Setting) -> Result<Stage> {
        let mut plan = Plan::default();
        let sender = plan.host("sender");
        let receivers: Vec<NodeId> = (1..=setting.receivers)
            .map(|number| plan.host(&format!("h{number}")))
            .collect();
        let mut ports = vec![(sender, Shape::default())];
        let lossy = Shape {
            inbound_only: setting.loss > 0.0 && !setting.loss_both_ways,
            ..Shape::lossy(setting.loss)
        };
        ports.extend(receivers.iter().map(|node| (*node, lossy)));
        let link = plan.shared(&ports);
        let mut network = Network::build(plan, 5)?;
        if setting.loss == 0.0 {
            network.offloads(setting.offloads)?;
        }
        if setting.rate_bps > 0 {
            let index = network.index(sender, link)?;
            network.editor(sender).set_token_bucket(
                index,
                setting.rate_bps,
                BUCKET_BURST,
                BUCKET_QUEUE,
            )?;
        }
        let file = Path::new(SCRATCH).join("original.bin");
        write_file(&file, setting.bytes)?;
        Ok(Stage {
            network,
            sender,
            receivers,
            link,
            file,
            bytes: setting.bytes,
        })
    }

    /// Ethernet bytes that the sender has put on its wire so far.
    pub(super) fn wire_bytes(&mut self) -> Result<u64> {
        let index = self.network.index(self.sender, self.link)?;
        Ok(self.network.editor(self.sender).counters(index)?.tx_bytes)
    }

    /// Where a receiver's copy goes: into an empty folder of its own.
    pub(super) fn copy(&self, receiver: usize) -> Result<PathBuf> {
        let folder = Path::new(SCRATCH).join(format!("h{receiver}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let name = self.file.file_name().context("a file without a name")?;
        Ok(folder.join(name))
    }

    /// Takes copies away: the next transfer needs their room.
    pub(super) fn discard(&self, copies: &[PathBuf]) -> Result<()> {
        for copy in copies.iter().filter(|copy| copy.exists()) {
            fs::remove_file(copy)?;
        }
        Ok(())
    }

    /// Fails unless each of these files is the original.
    pub(super) fn compare(&self, copies: &[PathBuf]) -> Result<()> {
        for copy in copies {
            if !same(&self.file, copy)? {
                bail!("{} is not the file that was sent", copy.display());
            }
        }
        Ok(())
    }

    /// The longest that a transfer may take before it counts as failed.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs(40 + self.bytes / 2_000_000)
    }
}

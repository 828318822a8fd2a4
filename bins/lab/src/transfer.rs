//! Transfers one file with the real programs over a session, and collects the results.

use std::fs::File;
use std::io::{Read as _, Write as _};

use crate::prelude::*;
use crate::session::Session;

/// A transfer in progress.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// `lms-send`.
    pub(crate) sender: Process,
    /// `lms-recv`, one a receiver.
    pub(crate) receivers: Vec<Receiver>,
    file: PathBuf,
    /// Length of the file.
    pub(crate) bytes: u64,
}

/// One receiver's end.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// Where it runs.
    pub(crate) node: NodeId,
    pub(crate) name: String,
    pub(crate) process: Process,
    /// Killed on purpose: no result is expected.
    pub(crate) given_up: bool,
}

/// The result of a transfer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    /// From the sender's start to its end.
    pub(crate) seconds: f64,
    /// The sender's `sent` event.
    pub(crate) sent: Value,
    /// The sender's `end` event.
    pub(crate) sender: Value,
    /// The final report of each receiver that was not killed.
    pub(crate) receivers: Vec<Ending>,
}

/// A receiver's result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ending {
    pub(crate) name: String,
    /// BLAKE3 digest of its copy, in hexadecimal.
    pub(crate) digest: String,
    /// Whether its copy is the file, byte by byte.
    pub(crate) whole: bool,
    pub(crate) exit_code: i32,
    /// Its `complete` event.
    pub(crate) complete: Value,
    /// Its `end` event.
    pub(crate) end: Value,
}

impl Transfer {
    /// Starts all receivers, waits until they listen, then starts the sender: it waits until all have
    /// joined; with its first packet they know the source and offer to be repliers.
    pub(crate) fn start(session: &Session, file: &Path, send: &[&str]) -> Result<Transfer> {
        let mut receivers = Vec::new();
        for node in session.receivers.clone() {
            let process = session.receive(node, &[])?;
            let name = session.network.plan().name(node).to_owned();
            receivers.push(Receiver {
                node,
                name,
                process,
                given_up: false,
            });
        }
        for receiver in &mut receivers {
            receiver
                .process
                .wait_event("waiting", Duration::from_secs(10))?;
        }
        let count = receivers.len().to_string();
        let args: Vec<&str> = ["--receivers", &count]
            .into_iter()
            .chain(send.iter().copied())
            .collect();
        let sender = session.send(file, &args)?;
        let bytes = file.metadata()?.len();
        Ok(Transfer {
            sender,
            receivers,
            file: file.to_owned(),
            bytes,
        })
    }

    /// Waits until the sender and every receiver have ended; `show` is called often meanwhile.
    pub(crate) fn watch(&mut self, limit: Duration, show: impl FnMut(&mut Transfer)) -> Result<()> {
        self.follow(limit, true, show)
    }

    /// As [`Transfer::watch`], where receivers may be killed: the sender then ends with exit code 3.
    pub(crate) fn watch_all(
        &mut self,
        limit: Duration,
        show: impl FnMut(&mut Transfer),
    ) -> Result<()> {
        self.follow(limit, false, show)
    }

    fn follow(
        &mut self,
        limit: Duration,
        sender_too: bool,
        mut show: impl FnMut(&mut Transfer),
    ) -> Result<()> {
        let end = Instant::now() + limit;
        loop {
            show(self);
            self.fail_early(sender_too)?;
            if self.ended() {
                return Ok(());
            }
            if Instant::now() > end {
                let late: Vec<&str> = self
                    .receivers
                    .iter_mut()
                    .filter_map(|r| r.process.ended().is_none().then_some(r.name.as_str()))
                    .collect();
                bail!(
                    "not done within {limit:?}; still running: {}{}\n{}",
                    if self.sender.ended().is_none() {
                        "lms-send, "
                    } else {
                        ""
                    },
                    late.join(", "),
                    self.sender.tail()
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Whether all programs have ended.
    pub(crate) fn ended(&mut self) -> bool {
        let mut receivers = self.receivers.iter_mut();
        self.sender.ended().is_some()
            && receivers.all(|r| r.given_up || r.process.ended().is_some())
    }

    fn fail_early(&mut self, sender_too: bool) -> Result<()> {
        let processes = self
            .receivers
            .iter_mut()
            .filter(|receiver| !receiver.given_up)
            .map(|receiver| &mut receiver.process)
            .chain(sender_too.then_some(&mut self.sender));
        for process in processes {
            if let Some(status) = process.ended()
                && !status.success()
            {
                let said = process
                    .last("end")
                    .map_or(String::new(), |end| format!(": {}", text(&end, "message")));
                bail!(
                    "{} failed, {status}{said}\n{}",
                    process.name(),
                    process.tail()
                );
            }
        }
        Ok(())
    }

    /// The result, once all programs have ended.
    pub(crate) fn finish(mut self, session: &Session, limit: Duration) -> Result<Outcome> {
        self.sender.succeed(limit)?;
        self.finish_all(session, limit)
    }

    /// As [`Transfer::finish`], whatever the sender's exit code.
    pub(crate) fn finish_all(mut self, session: &Session, limit: Duration) -> Result<Outcome> {
        let (_, took) = self.sender.wait(limit)?;
        let told = |process: &Process, event: &str| {
            process
                .last(event)
                .with_context(|| format!("{} told no `{event}`", process.name()))
        };
        let mut receivers = Vec::new();
        for receiver in self
            .receivers
            .iter_mut()
            .filter(|receiver| !receiver.given_up)
        {
            let (status, _) = receiver.process.wait(limit)?;
            let complete = told(&receiver.process, "complete")?;
            let name = self.file.file_name().context("a file without a name")?;
            let copy = session.folder(receiver.node).join(name);
            receivers.push(Ending {
                name: receiver.name.clone(),
                digest: text(&complete, "digest").to_owned(),
                whole: same(&self.file, &copy)?,
                exit_code: status.code().unwrap_or(-1),
                complete,
                end: told(&receiver.process, "end")?,
            });
        }
        let sender = told(&self.sender, "end")?;
        let sent = told(&self.sender, "sent")?;
        Ok(Outcome {
            seconds: took.as_secs_f64(),
            sent,
            sender,
            receivers,
        })
    }
}

/// A counter of an `end` event.
pub(crate) fn count(end: &Value, name: &str) -> u64 {
    end[name].as_u64().unwrap_or(0)
}

impl Outcome {
    /// The file's digest, as the sender computed it.
    pub(crate) fn digest(&self) -> &str {
        text(&self.sent, "digest")
    }

    /// Whether every receiver has received the file, and the sender's digest.
    pub(crate) fn whole(&self) -> bool {
        let digest = self.digest();
        let good = |r: &Ending| {
            let came = r.complete["existing"] == false;
            came && r.whole && r.digest == digest && r.exit_code == 0
        };
        !digest.is_empty() && self.receivers.iter().all(good)
    }

    /// A sum over all receivers.
    pub(crate) fn sum(&self, counter: &str) -> u64 {
        self.receivers
            .iter()
            .map(|receiver| count(&receiver.end, counter))
            .sum()
    }

    /// Repairs that were dmcasts, all repairs.
    pub(crate) fn repairs(&self) -> (u64, u64) {
        let dmcasts = self.sum("repairs_sent");
        let source = count(&self.sender, "repairs_group") + count(&self.sender, "repairs_unicast");
        (dmcasts, dmcasts + source)
    }

    /// One line a receiver, and the sender.
    pub(crate) fn receiver_table(&self) -> Table {
        let columns =
            "host | BLAKE3 | lost | requests | to source | answered | repairs in | unneeded | s";
        let mut table = Table::with_header("receivers", columns);
        for receiver in &self.receivers {
            let end = |name: &str| Cell::Count(count(&receiver.end, name));
            table.row([
                receiver.name.as_str().into(),
                receiver.digest.get(..16).unwrap_or(&receiver.digest).into(),
                end("lost_packets"),
                end("requests_group"),
                end("requests_source"),
                end("repairs_sent"),
                end("repairs"),
                end("unneeded_repairs"),
                Cell::number(receiver.complete["seconds"].as_f64().unwrap_or(f64::NAN), 2),
            ]);
        }
        let end = |name: &str| Cell::Count(count(&self.sender, name));
        let answered =
            count(&self.sender, "repairs_group") + count(&self.sender, "repairs_unicast");
        table.row([
            "source".into(),
            self.digest().get(..16).unwrap_or("-").into(),
            "-".into(),
            "-".into(),
            end("requests_unicast"),
            answered.into(),
            "-".into(),
            "-".into(),
            Cell::number(self.seconds, 2),
        ]);
        table
    }
}

/// Counters of each router; `repliers` were recorded during the run.
pub(crate) fn router_table(session: &Session, repliers: &[(String, String)]) -> Result<Table> {
    let columns = "router | replier | requests turned | to parent | to replier | dmcasts | dropped";
    let mut table = Table::with_header("routers", columns);
    for router in &session.routers {
        let counters = router.counters()?;
        let packets = &counters["packets"];
        let replier = repliers.iter().find(|(name, _)| *name == router.name);
        let replier = replier.map_or("-", |(_, who)| who.as_str());
        let drops = counters["drops"].as_object().into_iter().flatten();
        let dropped: u64 = drops.filter_map(|(_, count)| count.as_u64()).sum();
        table.row([
            router.name.as_str().into(),
            replier.into(),
            Cell::Count(count(packets, "request_turned")),
            Cell::Count(count(packets, "request_to_parent")),
            Cell::Count(count(packets, "request_to_replier")),
            Cell::Count(count(packets, "dmcast")),
            dropped.into(),
        ]);
    }
    Ok(table)
}

/// Writes a file that neither compresses nor repeats.
pub(crate) fn write_file(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    let mut state = 0x6c61_625fu64;
    let mut block = vec![0u8; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            // xorshift64*
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            word.copy_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_ne_bytes());
        }
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        file.write_all(&block[..part])
            .context("write the file to send")?;
        left -= part as u64;
    }
    Ok(())
}

/// Whether two files are the same.
pub(crate) fn same(a: &Path, b: &Path) -> Result<bool> {
    let (mut a, mut b) = (
        File::open(a)?,
        File::open(b).with_context(|| b.display().to_string())?,
    );
    if a.metadata()?.len() != b.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let count = a.read(&mut left)?;
        if count == 0 {
            return Ok(true);
        }
        b.read_exact(&mut right[..count])?;
        if left[..count] != right[..count] {
            return Ok(false);
        }
    }
}

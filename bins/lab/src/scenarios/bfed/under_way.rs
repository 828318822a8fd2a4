//! Running sessions while something fails: sources in one island, viewers in others, and the pauses that they saw

use super::federation::{Federation, SOON, Seen, Viewer, Watch};
use crate::prelude::*;

/// Shorter pauses are caused by scheduling and by the network.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
/// Length of a source's content: longer than any run.
const SUPPLY: Duration = Duration::from_secs(300);

/// Sessions that flow.
pub(super) struct Load {
    pub(super) sessions: Vec<String>,
    sources: Vec<Process>,
    /// Viewers of the first session in each island, then of the second, and so on.
    pub(super) viewers: Vec<Viewer>,
    watch: Watch,
}

/// What one viewer of a session saw.
pub(super) struct ViewerOutcome<'l> {
    pub(super) session: &'l str,
    pub(super) island: usize,
    pub(super) seen: Seen,
}

impl ViewerOutcome<'_> {
    /// Milliseconds until data came again.
    pub(super) fn again_ms(&self) -> Option<f64> {
        self.seen.again.map(millis)
    }
}

/// The names of `count` sessions of network 1, bulk data and real-time in turn.
pub(super) fn sessions(count: usize) -> Vec<String> {
    let name = |number: usize| {
        let content = ["bulk-data", "real-time"][number % 2];
        format!(
            "bfed://1/239.1.2.{}/5004/?content={content}&framing=numbered",
            number + 1
        )
    };
    (0..count).map(name).collect()
}

impl Load {
    /// Starts viewers in these islands and sources in the first, each at this rate; returns once all sessions flow.
    pub(super) fn start(
        federation: &Federation,
        sessions: Vec<String>,
        islands: &[usize],
        rate_bps: u64,
    ) -> Result<Load> {
        let file = Path::new(SCRATCH).join("supply.bin");
        write_file(&file, rate_bps / 8 * SUPPLY.as_secs())?;
        let mut viewers = Vec::new();
        for session in &sessions {
            for &at in islands {
                viewers.push(federation.view(
                    at,
                    session,
                    &["--late", "--connect-timeout", "20s"],
                )?);
            }
        }
        viewers.iter_mut().try_for_each(Viewer::joined)?;
        let files = viewers.iter().map(|viewer| viewer.file.clone());
        let watch = Watch::start(files, PAUSE);
        let rate = rate_bps.to_string();
        let source = |session: &String| federation.send(0, session, &file, &rate);
        let sources = sessions.iter().map(source).collect::<Result<_>>()?;
        ensure!(watch.until_all_flow(SOON), "sessions do not flow");
        // Viewers report their counters once a second: frames lost until now are no result of a failure.
        std::thread::sleep(Duration::from_millis(1100));
        Ok(Load {
            sessions,
            sources,
            viewers,
            watch,
        })
    }

    /// Waits until all sessions have flowed for half a second; returns whether they do.
    pub(super) fn flows_again(&self) -> bool {
        self.watch.until_all_flow(SOON)
    }

    /// What each viewer saw since an action at this time.
    pub(super) fn since(&self, then: Instant) -> Vec<ViewerOutcome<'_>> {
        let islands = self.viewers.len() / self.sessions.len().max(1);
        let seen = self.watch.since(then);
        let outcome = |(number, seen): (usize, Seen)| ViewerOutcome {
            session: &self.sessions[number / islands],
            island: self.viewers[number].at,
            seen,
        };
        seen.into_iter().enumerate().map(outcome).collect()
    }

    /// Frames that each viewer misses so far.
    pub(super) fn lost(&self) -> Vec<u64> {
        self.viewers.iter().map(Viewer::lost).collect()
    }

    /// Ends sources, then viewers; frames that each viewer missed.
    pub(super) fn stop(mut self) -> Result<Vec<u64>> {
        for source in &mut self.sources {
            let _ = source.stop(SOON)?;
        }
        // Data in flight arrives.
        std::thread::sleep(Duration::from_millis(500));
        for viewer in &mut self.viewers {
            let _ = viewer.process.stop(SOON)?;
        }
        Ok(self.lost())
    }
}

/// Milliseconds, for tables.
pub(super) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

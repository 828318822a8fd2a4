//! `mcp` and `mcpd`: the control protocol, TCP-XM, and sealed records.

use super::super::stage::copy::{Copying, Running};
use super::super::stage::{Setting, Stage};
use super::{Outcome, Sides, judge, still_running};
use crate::prelude::*;

/// Time for a copy, or for a refusal.
const LIMIT: Duration = Duration::from_secs(60);

/// Without a key.
pub(super) fn plain(sides: &Sides) -> Result<Outcome> {
    copy(sides, false)
}

/// With a key: TLS on the control connection, sealed records on that of the data.
pub(super) fn sealed(sides: &Sides) -> Result<Outcome> {
    copy(sides, true)
}

fn copy(sides: &Sides, sealed: bool) -> Result<Outcome> {
    let bytes = sides.file.metadata()?.len();
    let mut stage = Stage::build(&Setting::plain(2, bytes))?;
    let (sender, receivers) = (stage.sender, stage.receivers.clone());
    sides.first(&mut stage.network, &[sender]);
    sides.second(&mut stage.network, &receivers);
    let copying = Copying {
        sealed,
        ..Copying::default()
    };
    let mut running = Running::start(&mut stage, &copying)?;
    let late = still_running([&mut running.sender], LIMIT);
    for daemon in &mut running.daemons {
        // One that was refused waits for the next copy.
        daemon.process.stop(Duration::from_secs(10))?;
    }
    let is_whole = |copy: &PathBuf| Ok(copy.exists() && same(&stage.file, copy)?);
    let copies = running.daemons.iter().map(|daemon| is_whole(&daemon.copy));
    let all = copies.collect::<Result<Vec<bool>>>()?;
    let arrived = all.iter().all(|is_whole| *is_whole);
    let succeeded = running
        .sender
        .ended()
        .is_some_and(|status| status.success());
    let arrived = match late {
        Some(late) => Err(late),
        None if succeeded && !arrived => Err("mcp reports success for what did not arrive".into()),
        None => Ok(arrived),
    };
    let daemons = running.daemons.iter_mut().map(|daemon| &mut daemon.process);
    let processes = [&mut running.sender].into_iter().chain(daemons).collect();
    Ok(judge(processes, arrived, true))
}

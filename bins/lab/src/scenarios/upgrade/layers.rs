//! `ldc-stream`.

use super::{Outcome, Sides, judge, still_running};
use crate::prelude::*;

const PORT: u16 = 5_000;
/// Length of the stream in seconds.
const SECONDS: &str = "2s";
/// Time for the stream, or for a refusal.
const LIMIT: Duration = Duration::from_secs(30);

/// Generated layers, whose bytes the receiver checks.
pub(super) fn stream(sides: &Sides) -> Result<Outcome> {
    let mut plan = Plan::default();
    let [from, to] = ["source", "h1"].map(|name| plan.host(name));
    plan.link(from, to, Shape::default());
    let mut network = Network::build(plan, 1)?;
    sides.first(&mut network, &[from]);
    sides.second(&mut network, &[to]);
    let recv = Launch::carried("ldc-stream")
        .named("ldc-stream recv")
        .args(["recv", "--json", "--quiet"])
        .arg(PORT.to_string());
    let mut receiver = network.start(to, recv)?;
    receiver.wait_event("waiting", LIMIT)?;
    let target = SocketAddr::from((network.plan().address(to), PORT));
    let send = Launch::carried("ldc-stream")
        .named("ldc-stream send")
        .args([
            "send",
            "--json",
            "--quiet",
            "--linger",
            "5s",
            "--duration",
            SECONDS,
        ])
        .arg(target.to_string());
    let mut sender = network.start(from, send)?;
    let late = still_running([&mut sender], LIMIT);
    if receiver.last("started").is_none() {
        // It waits for another sender.
        receiver.stop(Duration::from_secs(10))?;
    }
    let late = late.or_else(|| still_running([&mut receiver], LIMIT));
    let end = receiver.last("end").unwrap_or_default();
    let is_whole = text(&end, "result") == "complete" && count(&end, "corrupt") == 0;
    let arrived = is_whole && count(&end, "bytes") > 0;
    let succeeded = sender.ended().is_some_and(|status| status.success());
    let arrived = match late {
        Some(late) => Err(late),
        None if count(&end, "corrupt") > 0 => Err("the layers arrived with other bytes".into()),
        None if succeeded && !arrived => {
            Err("ldc-stream send reports success for what did not arrive".into())
        }
        None => Ok(arrived),
    };
    Ok(judge(vec![&mut sender, &mut receiver], arrived, true))
}

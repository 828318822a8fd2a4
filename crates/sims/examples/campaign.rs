//! `lab run campaign` without the rest of the lab, which takes longer to build.
//!
//! ```text
//! cargo run --release -p sims --example campaign -- --transport bfed,ldc --seeds 2000 --out DIR
//! ```

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use sims::Campaign;
use sims::report::Verdict;
use sims::scenario::{Context, Scenario};

/// Thousands of simulated sessions over bad networks
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    campaign: Campaign,
    #[command(flatten)]
    context: Context,
}

fn main() -> anyhow::Result<ExitCode> {
    let Arguments { campaign, context } = Arguments::parse();
    let report = campaign.run(&context)?;
    std::io::stdout().write_all(report.text().as_bytes())?;
    if let Some(folder) = &context.out {
        report.write(folder)?;
    }
    Ok(match report.verdict(context.untimed) {
        Verdict::Missed => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

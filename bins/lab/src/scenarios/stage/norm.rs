//! NORM, by a small program around its library: distributions ship the library alone, so the program is
//! compiled here when there is a compiler.

use std::fs;
use std::process::Command;

use super::Stage;
use super::play::{Outcome, Tool, play};
use crate::prelude::*;
use netlab::OverTime;

const SOURCE: &str = include_str!("norm.cpp");
const COMPILER: &str = "c++";

pub(crate) struct Norm<'a> {
    pub(crate) program: &'a Path,
    /// Bits a second; 0: congestion control finds the rate.
    pub(crate) rate_bps: u64,
    /// Parity segments that are sent with each block of 64 before a receiver requests them.
    pub(crate) parity: u8,
}

impl Norm<'_> {
    /// At a fixed rate; parity on request alone.
    pub(crate) fn at(program: &Path, rate_bps: u64) -> Norm<'_> {
        Norm {
            program,
            rate_bps,
            parity: 0,
        }
    }
}

/// Compiles the program; why that does not work here.
pub(crate) fn compile() -> Result<Result<PathBuf, String>> {
    let (source, program) = (
        Path::new(SCRATCH).join("norm.cpp"),
        Path::new(SCRATCH).join("norm"),
    );
    let Some(compiler) = installed(COMPILER) else {
        return Ok(Err(format!("{COMPILER} is not installed")));
    };
    fs::write(&source, SOURCE)?;
    let output = Command::new(compiler)
        .args(["-O2", "-o"])
        .arg(&program)
        .arg(&source)
        .arg("-lnorm")
        .output()
        .context("start the compiler")?;
    if output.status.success() {
        return Ok(Ok(program));
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let why = words.lines().find(|line| line.contains("error"));
    Ok(Err(format!(
        "its library (libnorm-dev) is not installed or not usable: {}",
        why.unwrap_or("the compiler fails").trim()
    )))
}

/// Rates that are tried where nothing limits the sender, in Mbit/s.
const TRIED_MBPS: [u64; 6] = [80, 120, 170, 240, 340, 500];

/// The rate at which NORM carries the stage's file fastest.
pub(crate) fn best_rate(program: &Path, stage: &mut Stage) -> Result<(u64, Vec<Outcome>)> {
    let mut trials: Vec<(u64, Outcome)> = Vec::new();
    let mut failure = None;
    for rate_bps in TRIED_MBPS.map(|mbps| mbps * 1_000_000) {
        match play(&Norm::at(program, rate_bps), stage) {
            Ok(outcome) => trials.push((rate_bps, outcome)),
            Err(error) => {
                let over_time = error.is::<OverTime>();
                failure = Some(error);
                if over_time {
                    break;
                }
            }
        }
    }
    let fastest = trials
        .iter()
        .max_by(|(_, a), (_, b)| a.goodput_bps.total_cmp(&b.goodput_bps));
    match (fastest, failure) {
        (Some((rate_bps, _)), _) => {
            let rate_bps = *rate_bps;
            Ok((
                rate_bps,
                trials.into_iter().map(|(_, outcome)| outcome).collect(),
            ))
        }
        (None, Some(error)) => Err(error),
        (None, None) => anyhow::bail!("no rate was tried"),
    }
}

const GROUP: [&str; 3] = ["eth0", "239.9.3.1", "6003"];

impl Tool for Norm<'_> {
    fn name(&self) -> String {
        let rate = match self.rate_bps {
            0 => "with congestion control".to_owned(),
            rate_bps => format!("at {} Mbit/s", rate_bps / 1_000_000),
        };
        let parity = match self.parity {
            0 => String::new(),
            parity => format!(", {parity} parity segments a block in advance"),
        };
        format!("NORM {rate}{parity}")
    }

    fn receiver(&self, number: usize, copy: &Path) -> Result<Launch> {
        let mut parts = copy.as_os_str().to_owned();
        parts.push(".part");
        fs::create_dir_all(parts)?;
        Ok(Launch::external(self.program, &format!("norm {number}"))
            .arg("recv")
            .args(GROUP)
            .arg(copy)
            .arg(number.to_string()))
    }

    fn ready(&self) -> Option<&'static str> {
        Some("waiting")
    }

    fn sender(&self, stage: &Stage) -> Result<Launch> {
        Ok(Launch::external(self.program, "norm")
            .arg("send")
            .args(GROUP)
            .arg(&stage.file)
            .args([self.rate_bps.to_string(), stage.receivers.len().to_string()])
            .arg(self.parity.to_string()))
    }

    fn receivers_end(&self) -> bool {
        false
    }
}

//! Several tools carry the same file on the same stage; the best of some rounds of each counts.

use super::norm::{self, Norm};
use super::play::{Outcome, Tool, best, missing, play, reason};
use super::strongest::strongest;
use super::{Setting, Stage};
use crate::prelude::*;

/// A comparison in progress.
pub(crate) struct Contest<'a> {
    pub(crate) context: &'a Context,
    pub(crate) report: Report,
    rounds: usize,
    /// The program around NORM's library, when it could be made.
    norm: Option<PathBuf>,
    /// Other tools that failed in the current setting: rows of its table.
    failed: Vec<String>,
}

impl<'a> Contest<'a> {
    /// A comparison with that many rounds of each tool.
    pub(crate) fn new(
        context: &'a Context,
        mut report: Report,
        rounds: usize,
    ) -> Result<Contest<'a>> {
        report.note(match rounds {
            1 => "one transfer of each tool".to_owned(),
            rounds => {
                format!(
                    "the best of {rounds} transfers of each tool, after one that does not count"
                )
            }
        });
        let norm = norm::compile()?;
        if let Err(reason) = &norm {
            report.skip("NORM", reason);
        }
        Ok(Contest {
            context,
            report,
            rounds,
            norm: norm.ok(),
            failed: Vec::new(),
        })
    }

    /// Runs these tools, and NORM at a rate if it could be made; returns the best outcome of each that is
    /// installed. Fails when a tool of ours fails; the failure of another tool is a result.
    pub(crate) fn compare(
        &mut self,
        title: &str,
        stage: &mut Stage,
        tools: &[&dyn Tool],
        norm_bps: Option<u64>,
    ) -> Result<Vec<Outcome>> {
        let program = self.norm.clone();
        let norm = program.as_deref().zip(norm_bps);
        let norm = norm.map(|(program, rate_bps)| Norm::at(program, rate_bps));
        let norm = norm.as_ref().map(|norm| norm as &dyn Tool);
        let mut outcomes = Vec::new();
        for tool in tools.iter().copied().chain(norm) {
            if let Some(reason) = missing(tool) {
                self.report.skip(tool.name(), reason);
                continue;
            }
            self.context.note(format!("{title}: {}", tool.name()));
            match self.best(|| play(tool, stage)) {
                Ok(best) => outcomes.push(best),
                Err(error) if tool.is_ours() => return Err(error),
                Err(error) => self.fail(title, &tool.name(), &error),
            }
        }
        Ok(outcomes)
    }

    /// The fastest round; an error when none succeeds.
    pub(crate) fn best(&self, round: impl FnMut() -> Result<Outcome>) -> Result<Outcome> {
        best(self.rounds, round, |outcome| outcome.seconds)
    }

    /// The best outcome of each program that carries the file, or as many bytes of memory, over kernel TCP; the fastest
    /// first.
    pub(crate) fn strongest(&mut self, stage: &mut Stage, is_file: bool) -> Result<Vec<Outcome>> {
        strongest(self.context, &mut self.report, stage, is_file, self.rounds)
    }

    /// The rate that serves NORM best, found with an eighth of the file.
    pub(crate) fn norm_rate(&mut self, title: &str, setting: &Setting) -> Result<Option<u64>> {
        let Some(program) = &self.norm else {
            return Ok(None);
        };
        self.context
            .note(format!("{title}: the best rate for NORM"));
        let mut stage = Stage::build(&Setting {
            bytes: (setting.bytes / 8).max(1 << 20),
            ..setting.clone()
        })?;
        match norm::best_rate(program, &mut stage) {
            Ok((rate_bps, trials)) => {
                self.report.datum("rates tried for NORM", trials);
                Ok(Some(rate_bps))
            }
            Err(error) => {
                self.fail(title, "NORM", &error);
                Ok(None)
            }
        }
    }

    fn fail(&mut self, title: &str, tool: &str, error: &anyhow::Error) {
        let reason = format!("failed: {}", reason(error));
        self.report.skip(format!("{title}: {tool}"), reason);
        self.failed.push(tool.to_owned());
    }

    /// The tools that failed since the last call.
    pub(crate) fn failed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.failed)
    }
}

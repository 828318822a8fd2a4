//! Runs disturbances: each lane has a list, which it repeats, one disturbance after the other. Lanes run side by
//! side, so what one of them does happens to the transfers of all.

use super::world::{COMES_UP, World};
use crate::prelude::*;

/// A transfer of a disturbance that takes longer hangs.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Time for events to be read after the end of the transfer.
const EVENTS: Duration = Duration::from_secs(2);

/// A disturbance: what is started for it, what is done, and what must be reported then.
pub(super) struct Disturbance {
    pub(super) name: &'static str,
    /// The transfer that it is about, beside those that run all the time.
    pub(super) start: fn(&World) -> Result<Vec<Process>>,
    pub(super) act: Act,
    /// Every program of `start` is in it.
    pub(super) expected: &'static [Expected],
}

/// What is done. Programs are named as [`Process::name`] does.
#[derive(Clone, Copy)]
pub(super) enum Act {
    Nothing,
    /// A signal that ends a daemon, which is then started again.
    Restart(&'static str, Signal),
    /// SIGSTOP, and SIGCONT that many seconds later.
    Freeze {
        who: &'static str,
        /// A program and its event that is waited for.
        after: Option<(&'static str, &'static str)>,
        seconds: u64,
    },
}

/// What a program must report.
pub(super) struct Expected {
    pub(super) who: &'static str,
    /// Its exit code; `None`: it still runs.
    pub(super) code: Option<i32>,
    /// Words of its events and messages, alternatives with `|` between them; `{victim}` is the address of the host that
    /// is disturbed.
    pub(super) says: &'static [&'static str],
}

/// A list of disturbances, and how far it is.
pub(super) struct Lane {
    list: &'static [Disturbance],
    next: usize,
    begins: Instant,
    trial: Option<Trial>,
    pub(super) tally: Vec<Tally>,
}

/// How often a disturbance was made, and how often everything was as expected.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) made: u64,
    pub(super) as_expected: u64,
}

/// A disturbance that is being made.
struct Trial {
    begun: Instant,
    processes: Vec<Process>,
    step: Step,
    over: Option<Instant>,
    faults: Vec<String>,
}

enum Step {
    Begun,
    Ending(&'static str),
    Frozen(&'static str, Instant, Duration),
    Done,
}

impl Lane {
    pub(super) fn new(list: &'static [Disturbance]) -> Lane {
        Lane {
            list,
            next: 0,
            begins: Instant::now(),
            trial: None,
            tally: vec![Tally::default(); list.len()],
        }
    }

    /// Whether each disturbance was made.
    fn is_through(&self) -> bool {
        self.tally.iter().all(|tally| tally.made > 0)
    }

    /// Whether a disturbance is being made, or one was never made.
    pub(super) fn is_busy(&self) -> bool {
        self.trial.is_some() || !self.is_through()
    }

    /// Names and counts of its disturbances.
    pub(super) fn tallies(&self) -> impl Iterator<Item = (&'static str, Tally)> {
        self.list
            .iter()
            .zip(&self.tally)
            .map(|(one, tally)| (one.name, *tally))
    }

    /// Performs the next step, at least `pause` between two disturbances; at the end only those are begun that were
    /// never made. Returns the faults.
    pub(super) fn turn(
        &mut self,
        world: &mut World,
        pause: Duration,
        ends: bool,
    ) -> Result<Vec<String>> {
        let disturbance = &self.list[self.next];
        let stays = ends && self.is_through();
        let Some(trial) = &mut self.trial else {
            if Instant::now() >= self.begins && !stays {
                self.trial = Some(Trial {
                    begun: Instant::now(),
                    processes: (disturbance.start)(world)?,
                    step: Step::Begun,
                    over: None,
                    faults: Vec::new(),
                });
            }
            return Ok(Vec::new());
        };
        trial.act(disturbance.act, world)?;
        if !trial.is_over() {
            return Ok(Vec::new());
        }
        let over = *trial.over.get_or_insert_with(Instant::now);
        let judged = disturbance.expected.iter();
        let mut faults: Vec<String> = judged
            .filter_map(|expected| trial.judge(expected, world))
            .collect();
        if !faults.is_empty() && over.elapsed() < EVENTS {
            return Ok(Vec::new());
        }
        faults.append(&mut trial.faults);
        let tally = &mut self.tally[self.next];
        tally.made += 1;
        tally.as_expected += u64::from(faults.is_empty());
        self.trial = None;
        self.next = (self.next + 1) % self.list.len();
        self.begins = Instant::now() + pause;
        let named = faults.into_iter();
        Ok(named
            .map(|fault| format!("{}: {fault}", disturbance.name))
            .collect())
    }
}

impl Trial {
    /// Whether everything has ended, or hangs.
    fn is_over(&mut self) -> bool {
        let ended = |process: &mut Process| process.ended().is_some();
        let is_done = matches!(self.step, Step::Done);
        (is_done && self.processes.iter_mut().all(ended)) || self.begun.elapsed() > TIMEOUT
    }

    fn act(&mut self, act: Act, world: &mut World) -> Result<()> {
        let step = match (&self.step, act) {
            (Step::Begun, Act::Nothing) => Step::Done,
            (Step::Begun, Act::Restart(who, signal)) => {
                world.process(who)?.signal(signal)?;
                Step::Ending(who)
            }
            (
                Step::Begun,
                Act::Freeze {
                    who,
                    after,
                    seconds,
                },
            ) => {
                if let Some((program, event)) = after
                    && self.waits_for(program, event, world)?
                {
                    return Ok(());
                }
                find(&mut self.processes, world, who)?.signal(Signal::SIGSTOP)?;
                Step::Frozen(who, Instant::now(), Duration::from_secs(seconds))
            }
            (&Step::Ending(who), _) => {
                if world.process(who)?.ended().is_none() {
                    return Ok(());
                }
                world.restart(who)?;
                Step::Done
            }
            (&Step::Frozen(who, since, time), _) => {
                if since.elapsed() < time {
                    return Ok(());
                }
                find(&mut self.processes, world, who)?.signal(Signal::SIGCONT)?;
                let answer = world.answers(who, COMES_UP);
                self.faults
                    .extend(answer.err().map(|why| format!("{why:#}")));
                Step::Done
            }
            (Step::Done, _) => return Ok(()),
        };
        self.step = step;
        Ok(())
    }

    /// Whether a program still runs and has not reported an event.
    fn waits_for(&mut self, program: &str, event: &str, world: &mut World) -> Result<bool> {
        let begun = self.begun;
        let process = find(&mut self.processes, world, program)?;
        let is_there = events(process, begun).any(|one| one["event"] == event);
        Ok(!is_there && process.ended().is_none())
    }

    /// Compares what a program reported with what was expected.
    fn judge(&mut self, expected: &Expected, world: &mut World) -> Option<String> {
        let begun = self.begun;
        let victim = world.victim().to_string();
        let own = self.processes.iter().any(|one| one.name() == expected.who);
        let process = match find(&mut self.processes, world, expected.who) {
            Ok(process) => process,
            Err(error) => return Some(error.to_string()),
        };
        let code = process.ended().and_then(|status| status.code());
        let mut words: Vec<String> = events(process, begun).map(|one| one.to_string()).collect();
        if own {
            words.extend(process.log());
        }
        let words = words.join("\n");
        let lacks = |says: &&&str| {
            let says = says.replace("{victim}", &victim);
            !says.split('|').any(|one| words.contains(one))
        };
        let lacking: Vec<_> = expected.says.iter().filter(lacks).collect();
        if code == expected.code && lacking.is_empty() {
            return None;
        }
        let last: Vec<&str> = words.lines().rev().take(8).collect();
        Some(format!(
            "{}: exit code {code:?} instead of {:?}, does not say {lacking:?}:\n{}",
            expected.who,
            expected.code,
            last.into_iter().rev().collect::<Vec<_>>().join("\n")
        ))
    }
}

/// A program of a disturbance, or of those that run all the time.
fn find<'a>(
    processes: &'a mut [Process],
    world: &'a mut World,
    who: &str,
) -> Result<&'a mut Process> {
    match processes.iter_mut().find(|process| process.name() == who) {
        Some(process) => Ok(process),
        None => world.process(who),
    }
}

/// The events of a program since a time, except those of progress.
fn events(process: &Process, since: Instant) -> impl Iterator<Item = Value> {
    let all = process.events().into_iter();
    all.filter(move |event| event.at >= since && event.value["event"] != "progress")
        .map(|event| event.value)
}

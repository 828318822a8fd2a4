//! Joins a session and runs the program that receives it.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use bfed_client::{Cancel, Error, GroupAddress, JoinOptions, Place, Session, Sink};
use cli::events::Events;
use cli::{exit, interrupt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::args::Exec;
use crate::events::emit;
use crate::receive::{NO_ANSWER, REFUSED};

/// Time between looks at the program.
const TICK: Duration = Duration::from_millis(50);
/// Time that the program has to end by itself after a signal: a terminal's Ctrl-C reaches both.
const SIGNAL_TIMEOUT: Duration = Duration::from_millis(500);
/// Time between attempts to join again while the program runs.
const REJOIN: Duration = Duration::from_secs(5);

/// Notes where the session is.
struct Watcher<'a> {
    events: &'a Events,
    place: Option<Place>,
}

impl Sink for Watcher<'_> {
    fn data(&mut self, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }

    fn event(&mut self, event: bfed_client::Event) {
        if let bfed_client::Event::Joined { place, .. } = &event {
            self.place = Some(place.clone());
        }
        emit(self.events, event);
    }
}

/// Returns the group of a place.
fn group(place: &Place) -> Option<GroupAddress> {
    match place {
        Place::Group(group) | Place::Ltp(group) => Some(*group),
        Place::Http(_) => None,
    }
}

/// Fills in the place of the session: addresses of groups alone, in which a mediator can hide nothing from a shell.
fn filled(argument: &OsString, place: &Place) -> Result<OsString, String> {
    let Some(text) = argument.to_str() else {
        return Ok(argument.clone());
    };
    let mut filled = text.to_owned();
    let group = group(place);
    let values = [
        ("{address}", group.map(|_| place.to_string())),
        ("{group}", group.map(|group| group.group.to_string())),
        (
            "{source}",
            group.and_then(|group| Some(group.source?.to_string())),
        ),
    ];
    for (mark, value) in values {
        if !text.contains(mark) {
            continue;
        }
        let value = value.ok_or_else(|| {
            format!("{mark} is not known: the session is at {place}; leave it out")
        })?;
        filled = filled.replace(mark, &value);
    }
    Ok(filled.into())
}

fn started(program: &[OsString], place: &Place) -> Result<Child, String> {
    let filled: Result<Vec<_>, _> = program.iter().map(|one| filled(one, place)).collect();
    let filled = filled?;
    let (name, arguments) = filled.split_first().ok_or("there is no program")?;
    let child = Command::new(name).args(arguments).spawn();
    child.map_err(|error| format!("cannot run {}: {error}", name.display()))
}

/// Keeps the session while the program runs.
struct Keeper<'a> {
    options: JoinOptions,
    cancel: &'a Cancel,
    session: Option<Session>,
    /// When to join again, after the session was lost.
    rejoin_at: Instant,
}

impl Keeper<'_> {
    fn step(&mut self, watcher: &mut Watcher<'_>) -> Result<(), Error> {
        if let Some(session) = &mut self.session {
            return session.step(TICK, watcher).map(drop);
        }
        std::thread::sleep(TICK);
        if self.rejoin_at <= Instant::now() {
            self.rejoin_at = Instant::now() + REJOIN;
            self.session = Some(Session::join(self.options.clone(), self.cancel, watcher)?);
        }
        Ok(())
    }

    /// Joins again later: the program may still have data.
    fn lost(&mut self, error: &Error) {
        cli::print_message!("warning: {error}; joining again");
        self.session = None;
        self.rejoin_at = Instant::now() + REJOIN;
    }

    fn leave(self) {
        if let Some(session) = self.session {
            session.leave();
        }
    }
}

/// Runs `exec`; returns the exit code.
pub(crate) fn run(args: &Exec) -> Result<u8, String> {
    let events = Events::new(args.common.json, true);
    let cancel = Cancel::new().map_err(|error| error.to_string())?;
    let mut options = args.joining.options(&args.common)?;
    options.membership_only = true;
    let mut watcher = Watcher {
        events: &events,
        place: None,
    };
    let mut keeper = Keeper {
        options,
        cancel: &cancel,
        session: None,
        rejoin_at: Instant::now(),
    };
    let place = loop {
        if interrupt::raised() {
            keeper.leave();
            return Ok(exit::INTERRUPTED);
        }
        if let Err(error) = keeper.step(&mut watcher) {
            cli::print_message!("error: {error}");
            return Ok(match error {
                Error::Refused(_) => REFUSED,
                Error::NoAnswer(_) => NO_ANSWER,
                _ => exit::FAILED,
            });
        }
        if let Some(place) = watcher.place.take() {
            break place;
        }
    };
    let ended = started(&args.program, &place)
        .and_then(|child| wait(child, &mut keeper, &mut watcher).map_err(|e| e.to_string()));
    keeper.leave();
    ended.map(code)
}

/// Waits for the end of the program.
fn wait(
    mut child: Child,
    keeper: &mut Keeper<'_>,
    watcher: &mut Watcher<'_>,
) -> std::io::Result<ExitStatus> {
    let mut raised: Option<Instant> = None;
    let mut is_told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if interrupt::raised() {
            let since = raised.get_or_insert_with(Instant::now).elapsed();
            if since >= SIGNAL_TIMEOUT && !std::mem::replace(&mut is_told, true) {
                // It may have ended meanwhile.
                let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
            }
        }
        if let Err(error) = keeper.step(watcher) {
            keeper.lost(&error);
        }
    }
}

/// Returns the exit code of the program, 128 and the signal if one ended it.
fn code(status: ExitStatus) -> u8 {
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, signal) => 128 + signal.unwrap_or(0),
    };
    u8::try_from(code).unwrap_or(exit::FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(argument: &str, place: &str) -> Result<String, String> {
        let place = place.parse::<Place>().expect("a place");
        let filled = filled(&argument.into(), &place)?;
        Ok(filled.to_string_lossy().into_owned())
    }

    #[test]
    fn the_place_is_filled_in() {
        let ltp = "ltp://10.0.0.1@239.255.0.0:5004";
        assert_eq!(fill("{group}", ltp).as_deref(), Ok("239.255.0.0:5004"));
        assert_eq!(
            fill("--source={source}", ltp).as_deref(),
            Ok("--source=10.0.0.1")
        );
        assert_eq!(fill("{address}", ltp).as_deref(), Ok(ltp));
        assert_eq!(fill("file", ltp).as_deref(), Ok("file"));
        let group = "239.1.2.3:5004";
        assert_eq!(
            fill("udp://{group}", group).as_deref(),
            Ok("udp://239.1.2.3:5004")
        );
        let wrong = fill("{source}", group).expect_err("no source");
        assert!(wrong.contains("leave it out"), "{wrong}");
        for mark in ["{group}", "{source}", "{address}"] {
            assert!(fill(mark, "http://host:80/x$(id)").is_err(), "{mark}");
        }
    }
}

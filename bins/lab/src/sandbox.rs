//! The sandbox of `lab`: everything a scenario makes disappears with its processes.
//!
//! ```text
//! lab run NAME            the process that was started: waits, forwards signals, passes on the exit code
//!  `- lab __inside run NAME    first process of its own process namespace, in mount and network
//!      |                       namespaces of its own (and a user namespace when it was not root)
//!      |- lab lms-send ...
//!      `- lab emulator ...
//! ```
//!
//! When the first process of a process namespace ends, for any reason, the kernel kills all others
//! in it; when the outer process ends, even by SIGKILL, the inner one is killed by its parent-death
//! signal. The networks are namespaces without a name, and every file lies on a tmpfs that only the
//! sandbox sees, so nothing is left to clean up.

use std::ffi::OsString;
use std::fs;
use std::process::{Command, ExitCode, Stdio};

use crate::prelude::*;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, kill};
use nix::unistd::{Pid, getegid, geteuid};

/// First argument of the process inside.
pub(crate) const INSIDE: &str = "__inside";
/// What [`permitted`] runs inside: nothing, successfully.
pub(crate) const PROBE: &str = "__probe";

/// Folders that the sandbox covers with its own file systems: files written there are lost with it.
const COVERED: [&str; 2] = ["/run", "/proc"];

/// The folder of [`COVERED`] that a folder lies in, if any.
pub(crate) fn covers(folder: &Path) -> Option<&'static str> {
    let real = folder.canonicalize().ok()?;
    COVERED
        .into_iter()
        .find(|covered| real.starts_with(covered))
}

/// Whether namespaces are permitted here; if not, why.
pub(crate) fn permitted() -> Result<()> {
    let output = Command::new("/proc/self/exe")
        .arg0_lab()
        .arg(PROBE)
        .stdin(Stdio::null())
        .output()
        .context("start lab again")?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    bail!("{}", words.trim().trim_start_matches("lab: ").to_owned())
}

/// Runs `lab ARGS` inside a fresh sandbox and returns its exit code. Call it from a process with one
/// thread: this process becomes unable to start threads.
pub(crate) fn run(args: &[OsString]) -> Result<ExitCode> {
    let signals = waited_for();
    signals.thread_block()?;
    separate()?;
    let mut child = Command::new("/proc/self/exe")
        .arg0_lab()
        .arg(INSIDE)
        .args(args)
        .spawn()
        .context("start lab in its process namespace")?;
    let pid = Pid::from_raw(child.id().cast_signed());
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(code_of(status));
        }
        match signals.wait()? {
            Signal::SIGCHLD => {}
            // From the terminal the child has it too; a second one does no harm.
            signal => match kill(pid, signal) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(error.into()),
            },
        }
    }
}

/// The signals that the outer process waits for; they stay blocked across the start of the inner one,
/// so none is lost before its handler is installed.
fn waited_for() -> SigSet {
    [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGCHLD,
    ]
    .into_iter()
    .collect()
}

/// An exit status as an exit code: 128 + signal for a killed process, as shells do.
pub(crate) fn code_of(status: std::process::ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status
        .code()
        .or(status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// Leaves the machine's namespaces: as root directly, else through a user namespace.
fn separate() -> Result<()> {
    let flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID;
    let (user, group) = (geteuid(), getegid());
    if user.is_root() && unshare(flags).is_ok() {
        return Ok(());
    }
    unshare(flags | CloneFlags::CLONE_NEWUSER)
        .map_err(|error| anyhow!("namespaces are not permitted here: unshare: {error}"))?;
    // A process without privileges may map its own user and group, and must give up setgroups first.
    fs::write("/proc/self/setgroups", "deny").context("setgroups")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1")).context("map the user")?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1")).context("map the group")?;
    Ok(())
}

/// Prepares the inner process: it is killed when the outer one ends, has private mounts, and loopback is up.
pub(crate) fn prepare() -> Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).context("parent-death signal")?;
    let denied = |what: &'static str| {
        move |error: Errno| anyhow!("namespaces are not permitted here: {what}: {error}")
    };
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(denied("private mounts"))?;
    mount(
        Some("lab"),
        "/run",
        Some("tmpfs"),
        MsFlags::MS_NOSUID,
        Some("mode=0755,size=80%"),
    )
    .map_err(denied("tmpfs on /run"))?;
    // A /proc of the own process namespace; containers with masked paths refuse it; the old one
    // shows nearly the same.
    let _ = mount(
        Some("proc"),
        "/proc",
        Some("proc"),
        MsFlags::MS_NOSUID,
        none,
    );
    for folder in [SCRATCH, "/run/lock", "/run/netns"] {
        fs::create_dir_all(folder).with_context(|| format!("create {folder}"))?;
    }
    ctrlc::set_handler(|| {
        let terminal = console::Term::stderr();
        if terminal.is_term() {
            let _ = terminal.show_cursor();
        }
        cli::print_message!("\nlab: interrupted");
        std::process::exit(130);
    })
    .context("interrupt handler")?;
    waited_for().thread_unblock()?;
    Ok(())
}

/// Gives a command its first argument, so that messages say `lab` and not `exe`.
pub(crate) trait Arg0 {
    fn arg0_lab(&mut self) -> &mut Self;
}

impl Arg0 for Command {
    fn arg0_lab(&mut self) -> &mut Command {
        std::os::unix::process::CommandExt::arg0(self, "lab")
    }
}

//! Limits processes to a share of processor time: control groups of version 1 (`cpu`) or
//! of version 2.

use crate::prelude::*;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// How often the kernel hands out the share: often enough that buffers bridge the pauses.
const PERIOD_US: u64 = 20_000;
/// Name prefix of this program's control groups.
const PREFIX: &str = "polycast-lab-";
/// An empty group of this age is stale: groups are filled as soon as they are made.
const LEFT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Where groups can be made.
#[derive(Clone, Debug)]
pub(crate) struct Hierarchy {
    version: Version,
    parent: PathBuf,
}

impl Hierarchy {
    /// Finds where this process may make groups.
    pub(crate) fn find() -> Result<Hierarchy> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut why = Vec::new();
        for (version, mounts) in [
            (
                Version::One,
                &["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"][..],
            ),
            (
                Version::Two,
                &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"][..],
            ),
        ] {
            for mount in mounts {
                match Hierarchy::at(version, Path::new(mount), &own) {
                    Ok(found) => return Ok(found),
                    Err(error) => why.push(format!("{error:#}")),
                }
            }
        }
        Err(anyhow!(
            "no processor shares: neither version 1 nor version 2 of control groups lets this process \
             make a group ({})",
            why.join("; ")
        ))
    }

    fn at(version: Version, mount: &Path, own: &str) -> Result<Hierarchy> {
        let marker = match version {
            Version::One => "cgroup.procs",
            Version::Two => "cgroup.controllers",
        };
        if !mount.join(marker).exists() {
            return Err(anyhow!("{} is not there", mount.display()));
        }
        let parent = own_group(version, own)
            .map(|group| mount.join(group))
            .filter(|group| group.is_dir())
            .unwrap_or_else(|| mount.to_owned());
        let found = Hierarchy { version, parent };
        found.sweep();
        // Only an attempt shows whether it works.
        found.share(0.5).map(|_| found)
    }

    /// Groups that were left by a run that was killed.
    fn sweep(&self) {
        for entry in fs::read_dir(&self.parent).into_iter().flatten().flatten() {
            let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
            let made = entry.metadata().and_then(|about| about.modified());
            let old = made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > LEFT));
            if ours && old {
                // One that has processes stays.
                let _ = fs::remove_dir(entry.path());
            }
        }
    }

    /// A control group that may use this many cores, a tenth for 0.1.
    pub(crate) fn share(&self, cores: f64) -> Result<Share> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Processes of several sandboxes have the same identifiers.
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
        let name = format!("{PREFIX}{now:x}-{number}");
        let put = |path: PathBuf, text: String| {
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))
        };
        if self.version == Version::Two {
            put(self.parent.join("cgroup.subtree_control"), "+cpu".into())?;
        }
        let folder = self.parent.join(name);
        fs::create_dir(&folder).with_context(|| format!("create {}", folder.display()))?;
        let share = Share { folder };
        let quota_us = (cores * PERIOD_US as f64).round().max(1000.0) as u64;
        match self.version {
            Version::One => {
                put(
                    share.folder.join("cpu.cfs_period_us"),
                    PERIOD_US.to_string(),
                )?;
                put(share.folder.join("cpu.cfs_quota_us"), quota_us.to_string())?;
            }
            Version::Two => put(
                share.folder.join("cpu.max"),
                format!("{quota_us} {PERIOD_US}"),
            )?,
        }
        Ok(share)
    }
}

/// This process's group, without the slash in front.
fn own_group(version: Version, own: &str) -> Option<&str> {
    own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let fits = match version {
            Version::One => controllers.split(',').any(|name| name == "cpu"),
            Version::Two => controllers.is_empty(),
        };
        fits.then(|| path.trim_start_matches('/'))
    })
}

/// A control group. Dropping the value removes it if its processes have ended.
#[derive(Debug)]
pub(crate) struct Share {
    folder: PathBuf,
}

impl Share {
    /// Limits a process, with all of its threads, to the share.
    pub(crate) fn hold(&self, process: u32) -> Result<()> {
        let path = self.folder.join("cgroup.procs");
        fs::write(&path, process.to_string()).with_context(|| format!("write {}", path.display()))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        for _ in 0..50 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            // The kernel removes ended processes after a moment.
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_in_either_version() {
        let own = "7:cpuset:/\n3:cpu,cpuacct:/user/1000\n0::/user.slice/a.scope\n";
        assert_eq!(own_group(Version::One, own), Some("user/1000"));
        assert_eq!(own_group(Version::Two, own), Some("user.slice/a.scope"));
        assert_eq!(own_group(Version::One, "0::/\n"), None);
        assert_eq!(own_group(Version::Two, "0::/\n"), Some(""));
    }
}

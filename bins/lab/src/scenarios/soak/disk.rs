//! A small disk that can be full.

use std::fs;

use nix::mount::{MsFlags, mount};

use crate::prelude::*;

const BYTES: u64 = 16 << 20;
/// What is left of a full disk: less than any transfer of the soak.
const LEFT: u64 = 256 << 10;

/// A file system of its own, in memory.
pub(super) struct Disk(PathBuf);

impl Disk {
    pub(super) fn mount(name: &str) -> Result<Disk> {
        let folder = Path::new(SCRATCH).join(format!("disk-{name}"));
        fs::create_dir_all(&folder)?;
        let size = format!("size={BYTES}");
        let kind = Some("tmpfs");
        mount(kind, &folder, kind, MsFlags::MS_NOSUID, Some(size.as_str()))
            .with_context(|| format!("mount {}", folder.display()))?;
        Ok(Disk(folder))
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// Removes everything.
    pub(super) fn free(&self) -> Result<()> {
        for entry in fs::read_dir(&self.0)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }

    /// Leaves little room.
    pub(super) fn fill(&self) -> Result<()> {
        self.free()?;
        write_file(&self.0.join("filling"), BYTES - LEFT)
    }
}

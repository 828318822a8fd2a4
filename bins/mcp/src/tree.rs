//! The data to copy: a file, or a folder and its contents.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use mcp_control::path::{check_target, is_part};
use mcp_control::{Entry, Kind, Manifest, RelPath, Timestamp};
use nix::libc;

/// A manifest, and the sources of its entries.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) manifest: Arc<Manifest>,
    /// Path of the top, as the user gave it.
    base: PathBuf,
    /// Metadata of each file when the tree was read.
    looks: Vec<Look>,
    /// Entries that are not copied, and why.
    pub(crate) skipped: Vec<(PathBuf, &'static str)>,
}

/// Metadata that changes when a file is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Look {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Look {
    /// Length by its metadata, in bytes.
    pub(crate) fn len(self) -> u64 {
        self.len
    }

    pub(crate) fn of(metadata: &Metadata) -> Look {
        Look {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Tree {
    /// Reads the tree at `base`, which is named as `to` says, or else keeps its name.
    pub(crate) fn read(base: &Path, to: Option<&str>) -> anyhow::Result<Tree> {
        let shown = base.display();
        let metadata = std::fs::metadata(base).with_context(|| format!("cannot read {shown}"))?;
        let name = destination(base, to)?;
        let mut tree = Tree {
            manifest: Arc::default(),
            base: base.to_owned(),
            looks: Vec::new(),
            skipped: Vec::new(),
        };
        if metadata.is_file() {
            tree.file(name, base, &metadata)?;
        } else if metadata.is_dir() {
            tree.folder(name, base, &metadata)?;
        } else {
            bail!("{shown} is neither a file nor a folder");
        }
        Ok(tree)
    }

    fn push(&mut self, path: RelPath, kind: Kind, metadata: &Metadata) -> anyhow::Result<()> {
        let shown = path.to_string();
        let is_link = matches!(kind, Kind::Link { .. });
        let entry = Entry {
            path,
            kind,
            mode: if is_link {
                0o777
            } else {
                (metadata.mode() & 0o777) as u16
            },
            modified: Timestamp {
                seconds: metadata.mtime(),
                nanos: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
            },
        };
        // The manifest is not shared yet.
        let pushed = Arc::make_mut(&mut self.manifest).push(entry);
        pushed.map_err(|error| anyhow!("{shown}: {error}"))?;
        self.looks.push(Look::of(metadata));
        Ok(())
    }

    fn file(&mut self, path: RelPath, at: &Path, metadata: &Metadata) -> anyhow::Result<()> {
        // Unreadable files are found before anything is sent.
        let top = self.manifest.is_empty();
        let unreadable = || format!("cannot read {}", at.display());
        let file = open(at, top).with_context(unreadable)?;
        let len = metadata.len();
        // Files in /proc report a length of zero, so their content cannot be announced.
        if len == 0 && has_more(&file, 0).with_context(unreadable)? {
            if top {
                bail!("{} {UNTRUE_LENGTH}", at.display());
            }
            self.skipped.push((at.to_owned(), UNTRUE_LENGTH));
            return Ok(());
        }
        self.push(path, Kind::File { len }, metadata)
    }

    fn folder(&mut self, path: RelPath, at: &Path, metadata: &Metadata) -> anyhow::Result<()> {
        self.push(path.clone(), Kind::Folder, metadata)?;
        let shown = at.display();
        let unreadable = || format!("cannot read {shown}");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(at).with_context(unreadable)? {
            names.push(entry.with_context(unreadable)?.file_name());
        }
        names.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        for name in names {
            let at = at.join(&name);
            let Ok(path) = path.join(name.as_bytes()) else {
                let why = if is_part(name.as_bytes()) {
                    "the unfinished file of a copy"
                } else {
                    "its path is too long or too deep"
                };
                self.skipped.push((at, why));
                continue;
            };
            self.entry(path, &at)?;
        }
        Ok(())
    }

    fn entry(&mut self, path: RelPath, at: &Path) -> anyhow::Result<()> {
        let metadata = match std::fs::symlink_metadata(at) {
            Ok(metadata) => metadata,
            // It was removed after its folder was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error).context(format!("cannot read {}", at.display())),
        };
        let kind = metadata.file_type();
        if kind.is_dir() {
            return self.folder(path, at, &metadata);
        }
        if kind.is_file() {
            return self.file(path, at, &metadata);
        }
        if kind.is_symlink() {
            let target = std::fs::read_link(at)
                .with_context(|| format!("cannot read {}", at.display()))?
                .into_os_string()
                .into_vec();
            let top = self.manifest.entries().first();
            let depth = top.map_or(0, |top| path.depth() - top.path.depth() - 1);
            if check_target(&target, depth).is_err() {
                self.skipped
                    .push((at.to_owned(), "a link that leads out of the folder"));
                return Ok(());
            }
            let target = target.into();
            return self.push(path, Kind::Link { target }, &metadata);
        }
        self.skipped
            .push((at.to_owned(), "a device, socket or pipe"));
        Ok(())
    }

    /// Returns the local path of entry `index`.
    pub(crate) fn source(&self, index: usize) -> PathBuf {
        let entries = self.manifest.entries();
        let top = entries.first().map_or(0, |top| top.path.as_bytes().len());
        match entries[index].path.as_bytes().get(top + 1..) {
            Some(rest) => self.base.join(std::ffi::OsStr::from_bytes(rest)),
            None => self.base.clone(),
        }
    }

    /// Opens the file of entry `index`; `None` if it has changed since the tree was read.
    pub(crate) fn open(&self, index: usize) -> io::Result<Option<File>> {
        let file = match open(&self.source(index), index == 0) {
            Ok(file) => file,
            // Links have no content.
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let look = Look::of(&file.metadata()?);
        Ok((look == self.look(index)).then_some(file))
    }

    /// Returns the metadata of entry `index` when the tree was read.
    pub(crate) fn look(&self, index: usize) -> Look {
        self.looks[index]
    }
}

/// The reason why a file of unknown length is not copied.
const UNTRUE_LENGTH: &str =
    "holds more than its length says (a file of /proc?): copy it to an ordinary file first";

/// Whether a file has bytes from `offset` on, whatever its length.
pub(crate) fn has_more(file: &File, offset: u64) -> io::Result<bool> {
    match file.read_at(&mut [0], offset) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => has_more(file, offset),
        read => read.map(|len| len > 0),
    }
}

/// Opens a file for reading. A pipe in its place does not block, and a link in its place is not followed,
/// except for the top (`follow`).
fn open(path: &Path, follow: bool) -> io::Result<File> {
    let links = if follow { 0 } else { libc::O_NOFOLLOW };
    let flags = libc::O_NONBLOCK | links;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Checks `--to`: a path below the folder of mcpd; a trailing slash means a folder.
pub(crate) fn check_place(to: &str) -> Result<(), String> {
    let path = to.strip_suffix('/').unwrap_or(to);
    RelPath::new(path.as_bytes())
        .map(|_| ())
        .map_err(|error| format!("{to:?} is no place below the folder of mcpd: {error}"))
}

/// Returns the path of the top on the hosts.
fn destination(base: &Path, to: Option<&str>) -> anyhow::Result<RelPath> {
    let own = || -> anyhow::Result<Vec<u8>> {
        let real = std::fs::canonicalize(base)?;
        // Returns the name that the user gave, unless it is `.` or `..`.
        let name = base.file_name().or_else(|| real.file_name());
        let name =
            name.ok_or_else(|| anyhow!("the root folder has no name: give one with --to"))?;
        Ok(name.as_bytes().to_vec())
    };
    let bytes = match to {
        None => own()?,
        Some(folder) if folder.ends_with('/') => {
            let mut path = folder.as_bytes().to_vec();
            path.extend_from_slice(&own()?);
            path
        }
        Some(path) => path.as_bytes().to_vec(),
    };
    RelPath::new(&bytes).map_err(|error| {
        let shown = String::from_utf8_lossy(&bytes);
        anyhow!("{shown:?} is no place below the folder of mcpd: {error}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(tree: &Tree) -> Vec<String> {
        let entries = tree.manifest.entries().iter();
        entries.map(|entry| entry.path.to_string()).collect()
    }

    #[test]
    fn a_tree_with_odd_things_in_it() {
        let folder = tempfile::tempdir().expect("folder");
        let top = folder.path().join("top");
        std::fs::create_dir_all(top.join("sub")).expect("made");
        std::fs::write(top.join("sub/f"), b"x").expect("written");
        std::fs::write(top.join("sub-a"), b"").expect("written");
        std::fs::write(top.join(".y.mcp-part"), b"").expect("written");
        std::os::unix::fs::symlink("../sub-a", top.join("sub/in")).expect("link");
        std::os::unix::fs::symlink("/etc/passwd", top.join("out")).expect("link");
        let _socket = std::os::unix::net::UnixListener::bind(top.join("s")).expect("socket");
        let tree = Tree::read(&top, None).expect("a tree");
        assert_eq!(
            paths(&tree),
            ["top", "top/sub", "top/sub/f", "top/sub/in", "top/sub-a"]
        );
        assert_eq!(tree.source(2), top.join("sub/f"));
        assert_eq!(tree.source(0), top);
        let skipped: Vec<_> = tree.skipped.iter().map(|(path, _)| path.clone()).collect();
        assert_eq!(
            skipped,
            [top.join(".y.mcp-part"), top.join("out"), top.join("s")]
        );
    }

    #[test]
    fn places_at_the_other_end() {
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("f");
        std::fs::write(&file, b"x").expect("written");
        let place = |to| paths(&Tree::read(&file, to).expect("a tree"));
        assert_eq!(place(None), ["f"]);
        assert_eq!(place(Some("a/b/")), ["a/b/f"]);
        assert_eq!(place(Some("a/b")), ["a/b"]);
        for wrong in ["/abs", "../x", "a/../b", "", "/"] {
            assert!(Tree::read(&file, Some(wrong)).is_err(), "{wrong}");
        }
    }
}

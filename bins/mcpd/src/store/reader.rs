//! Reads blocks of a copy that is being stored, from files that are unfinished or have their names.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use mcp_control::path::part_name;
use mcp_control::{BlockPlace, Manifest};

use super::folder::Folder;
use super::trouble::Trouble;

/// Opens the files by their places, as often as they are asked for.
#[derive(Debug)]
pub(crate) struct BlockReader {
    root: Folder,
    manifest: Arc<Manifest>,
}

impl BlockReader {
    /// Reads below the folder `root`.
    pub(crate) fn new(root: &Path, manifest: Arc<Manifest>) -> Result<BlockReader, Trouble> {
        let root = Folder::open(root).map_err(Trouble::of)?;
        Ok(BlockReader { root, manifest })
    }

    /// Passes the bytes of a block to `accept`, from the unfinished file first, then from that under the final name.
    /// Returns those that it accepts.
    pub(crate) fn read(
        &self,
        place: &BlockPlace,
        accept: impl Fn(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let entry = &self.manifest.entries()[place.entry];
        let folder = self.root.parent(&entry.path).ok().flatten()?;
        let name = entry.path.name();
        [part_name(name), name.to_vec()].iter().find_map(|name| {
            let file = folder.file(name).ok().flatten()?;
            read_block(&file, place).filter(|bytes| accept(bytes))
        })
    }
}

fn read_block(file: &File, place: &BlockPlace) -> Option<Vec<u8>> {
    let mut bytes = vec![0; place.len as usize];
    file.read_exact_at(&mut bytes, place.offset).ok()?;
    Some(bytes)
}

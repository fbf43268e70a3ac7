//! Files that are written as a whole or not at all: a full disk leaves what was there before.
//!
//! The new contents go into a file beside the old one, which takes its place once all of it is written. What is no file (a pipe, a device), and a
//! file in a folder that takes no new ones, is written as it is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// Writes a file that holds these bytes one after another, in the place of one that was there.
///
/// # Errors
/// What the system says; the old file is there then.
pub fn write_whole(path: impl AsRef<Path>, parts: &[&[u8]]) -> io::Result<()> {
    let (file, folder) = place(path.as_ref());
    let old = fs::metadata(&file).ok();
    let write = |mut to: &File| parts.iter().try_for_each(|part| to.write_all(part));
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return write(&File::create(&file)?);
    }
    let new = match beside(&folder) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied && old.is_some() => return write(&File::create(&file)?),
        new => new?,
    };
    write(new.as_file())?;
    if let Some(old) = old {
        // As of one that is written over: who may not write it cannot, and who may read it stays as it was.
        OpenOptions::new().write(true).open(&file)?;
        new.as_file().set_permissions(old.permissions())?;
    }
    new.persist(&file).map(drop).map_err(|error| error.error)
}

/// Where a path leads, and the folder that the file is in. What a link leads to is replaced, and not the link.
pub(crate) fn place(path: &Path) -> (PathBuf, PathBuf) {
    let folder_of = |path: &Path| match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    };
    // Of a link to a file that is not there yet, the system knows only the link.
    let file = fs::canonicalize(path).or_else(|_| fs::read_link(path).map(|to| folder_of(path).join(to)));
    let file = file.unwrap_or_else(|_| path.to_path_buf());
    let folder = folder_of(&file);
    (file, folder)
}

/// A new file in a folder, which is gone with its handle.
pub(crate) fn beside(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    // Others read it too: what a file is made with, less what the user keeps from them.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

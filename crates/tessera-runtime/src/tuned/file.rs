//! Lockfiles on disk.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use tessera_ir::{Diagnostic, SourceMap, Span};
use tessera_launch::Report;
use tessera_lock::Lockfile;

use crate::kernel::KernelError;

fn io(path: &Path, error: std::io::Error) -> KernelError {
    KernelError::Io { path: path.display().to_string(), error }
}

/// What a file holds; `None` where there is none.
pub(super) fn read(path: &Path) -> Result<Option<Lockfile>, KernelError> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| io(path, error))?,
    };
    Lockfile::parse(&text).map(Some).map_err(|wrong| {
        let mut sources = SourceMap::default();
        let file = sources.add(path.display().to_string(), text.as_str());
        let span = Span { source: file, start: wrong.bytes.start as u32, end: wrong.bytes.end as u32 };
        let diagnostics = vec![Diagnostic::error("lockfile", span, wrong.message).help(wrong.help)];
        KernelError::Rejected(Report { diagnostics, sources })
    })
}

/// Where a path leads, and the folder that the file is in. What a link leads to is replaced, and not the link.
fn place(path: &Path) -> (PathBuf, PathBuf) {
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

/// A new file in a folder, which is made.
fn beside(folder: &Path) -> std::io::Result<NamedTempFile> {
    fs::create_dir_all(folder)?;
    let mut builder = tempfile::Builder::new();
    // Others read it too: what a file is made with, less what the user keeps from them.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

/// Refuses a path to which [`update`] could write nothing.
pub(super) fn accepts(path: &Path) -> Result<(), KernelError> {
    beside(&place(path).1).map(drop).map_err(|error| io(path, error))
}

/// Puts entries into a file. Whoever else does the same waits: the folder is locked meanwhile.
pub(super) fn update(path: &Path, entries: Lockfile) -> Result<(), KernelError> {
    let (file, folder) = place(path);
    fs::create_dir_all(&folder).map_err(|error| io(&folder, error))?;
    let held = File::open(&folder).map_err(|error| io(&folder, error))?;
    held.lock().map_err(|error| io(&folder, error))?;
    let mut all = read(path)?.unwrap_or_default();
    all.merge(entries);
    let written = beside(&folder).and_then(|mut new| {
        new.write_all(all.to_text().as_bytes())?;
        new.persist(&file).map_err(|error| error.error)
    });
    written.map(drop).map_err(|error| io(path, error))
}

//! Lockfiles on disk.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

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

/// Puts entries into a file. Whoever else does the same waits: the folder is locked meanwhile.
pub(super) fn update(path: &Path, entries: Lockfile) -> Result<(), KernelError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder).map_err(|error| io(folder, error))?;
    let held = File::open(folder).map_err(|error| io(folder, error))?;
    held.lock().map_err(|error| io(folder, error))?;
    let mut all = read(path)?.unwrap_or_default();
    all.merge(entries);
    let mut builder = tempfile::Builder::new();
    // Others read it too: what a file is made with, less what the user keeps from them.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let written = builder.tempfile_in(folder).and_then(|mut file| {
        file.write_all(all.to_text().as_bytes())?;
        file.persist(path).map_err(|error| error.error)
    });
    written.map(drop).map_err(|error| io(path, error))
}

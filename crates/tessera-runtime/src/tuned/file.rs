//! Lockfiles on disk.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use tessera_ir::{Diagnostic, SourceMap, Span};
use tessera_launch::Report;
use tessera_lock::{Key, Lockfile};

use crate::kernel::KernelError;
use crate::whole_file::{beside, place, write_whole};

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

/// Says what is wrong with the entry of a key, at its place in the file.
pub(super) fn refused(path: &Path, key: &Key, what: &str) -> KernelError {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        // The choices are a program's own.
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return io(path, error),
    };
    let id = key.id();
    let message = format!("`{}.{id}` {what}", key.kernel);
    let mut sources = SourceMap::default();
    let mut start = 0;
    let mut lines = text.split_inclusive('\n').map(|line| {
        let at = start;
        start += line.len();
        (at, line.trim_end())
    });
    let diagnostic = match lines.find(|(_, line)| line.starts_with('[') && line.contains(&id)) {
        Some((at, line)) => {
            let source = sources.add(path.display().to_string(), text.as_str());
            let span = Span { source, start: at as u32, end: (at + line.len()) as u32 };
            Diagnostic::error("lockfile", span, message)
        }
        // They may be of another product of the target.
        None => Diagnostic::bare("lockfile", format!("{}: {message}", path.display())),
    };
    let diagnostics = vec![diagnostic.help("delete the table; `tessera tune` makes it again")];
    KernelError::Rejected(Report { diagnostics, sources })
}

/// Refuses a path to which [`update`] could write nothing.
pub(super) fn accepts(path: &Path) -> Result<(), KernelError> {
    let (_, folder) = place(path);
    fs::create_dir_all(&folder).and_then(|()| beside(&folder)).map(drop).map_err(|error| io(path, error))
}

/// Puts entries into a file. Whoever else does the same waits: the folder is locked meanwhile.
pub(super) fn update(path: &Path, entries: Lockfile) -> Result<(), KernelError> {
    let (_, folder) = place(path);
    fs::create_dir_all(&folder).map_err(|error| io(&folder, error))?;
    let held = File::open(&folder).map_err(|error| io(&folder, error))?;
    held.lock().map_err(|error| io(&folder, error))?;
    let mut all = read(path)?.unwrap_or_default();
    all.merge(entries);
    write_whole(path, &[all.to_text().as_bytes()]).map_err(|error| io(path, error))
}

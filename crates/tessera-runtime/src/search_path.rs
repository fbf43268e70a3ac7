//! Where modules that a kernel file imports are looked for, as Python would from there.
//!
//! | import | is looked for in |
//! |---|---|
//! | `from .a import b` | the folder of the file that imports; one folder further out for each dot more |
//! | `import p.a` | the folder of the kernel's file; the folder around the outermost package that it lies in; then `--path` and `TESSERA_PATH` in order |
//!
//! A module `a` is `a.py`, or a package: a folder `a`, with or without an `__init__.py`. Nothing is executed, and installed packages are not
//! looked at.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tessera_lang::{ModuleText, Modules, Wanted};

/// Folders named by `--path` and `TESSERA_PATH`.
static FOLDERS: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Where the modules of one kernel file lie.
#[derive(Debug)]
pub(crate) struct SearchPath {
    /// Folders for absolute imports.
    roots: Vec<PathBuf>,
    /// By what is on the disk, the name that messages show: one file has one name, however it is reached.
    names: RefCell<BTreeMap<PathBuf, String>>,
}

/// Sets the folders in which absolute imports are looked for, behind those of the file itself; once, before any kernel is read. False when
/// it comes too late.
pub fn set_module_folders(folders: Vec<PathBuf>) -> bool {
    FOLDERS.set(folders).is_ok()
}

impl SearchPath {
    /// For a kernel's file.
    pub(crate) fn of(file: &Path) -> SearchPath {
        let folder = file.parent().unwrap_or(Path::new("")).to_path_buf();
        // A file inside a package imports its package by name from the folder around it.
        let mut around = std::path::absolute(Path::new(".").join(&folder)).unwrap_or_else(|_| folder.clone());
        let mut outer = None;
        while around.join("__init__.py").is_file() {
            let Some(parent) = around.parent().map(Path::to_path_buf) else { break };
            around = parent;
            outer = Some(around.clone());
        }
        let named = FOLDERS.get().into_iter().flatten().cloned();
        let roots = std::iter::once(folder).chain(outer).chain(named).collect();
        let path = SearchPath { roots, names: RefCell::default() };
        path.name(file);
        path
    }

    /// The name that a file goes by.
    fn name(&self, path: &Path) -> String {
        let on_disk = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        self.names.borrow_mut().entry(on_disk).or_insert_with(|| path.display().to_string()).clone()
    }

    fn read(&self, path: &Path) -> Result<ModuleText, String> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(ModuleText::of_file(self.name(path), String::from_utf8_lossy(&bytes))),
            Err(error) => Err(format!("`{}` ({error})", path.display())),
        }
    }
}

impl Modules for SearchPath {
    fn find(&self, wanted: Wanted<'_>) -> Result<ModuleText, Vec<String>> {
        let relative: PathBuf = wanted.path.split('.').collect();
        let bases = if wanted.level == 0 {
            self.roots.clone()
        } else {
            let mut folder = Path::new(wanted.from).parent().unwrap_or(Path::new("")).to_path_buf();
            for _ in 1..wanted.level {
                folder = match folder.parent() {
                    Some(parent) if folder.file_name().is_some() => parent.to_path_buf(),
                    _ => folder.join(".."),
                };
            }
            vec![folder]
        };
        let mut looked = Vec::new();
        let mut folder = None;
        for base in bases {
            let at = if wanted.path.is_empty() { base } else { base.join(&relative) };
            let mut files = vec![at.join("__init__.py")];
            if !wanted.path.is_empty() {
                files.push(at.with_extension("py"));
            }
            for file in files {
                if file.is_file() {
                    return self.read(&file).map_err(|why| vec![why]);
                }
                looked.push(format!("`{}`", file.display()));
            }
            if folder.is_none() && (at.is_dir() || at.as_os_str().is_empty()) {
                folder = Some(at);
            }
        }
        // A package without a file of its own.
        match folder {
            Some(folder) => Ok(ModuleText::of_file(self.name(&folder), "")),
            None => Err(looked),
        }
    }
}

//! Where NCCL's library may be, beside where the loader looks: Python's packages bring it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Files that are NCCL, the one to try first in front: that of `TESSERA_NCCL`, then those in packages of Python environments
/// (`VIRTUAL_ENV`, `CONDA_PREFIX`, the Pythons of `PATH`, the user's own), then the names that the loader knows. Where
/// `TESSERA_NCCL` is set, nothing else is tried.
pub fn nccl_places(lookup: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let get = |name: &str| lookup(name).filter(|value| !value.is_empty());
    if let Some(own) = get("TESSERA_NCCL") {
        return vec![PathBuf::from(own)];
    }
    let mut prefixes: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|name| get(name).map(PathBuf::from)).collect();
    let path = get("PATH").unwrap_or_default();
    for folder in std::env::split_paths(&path) {
        // A Python that is a link stands where its packages are.
        if let Ok(python) = folder.join("python3").canonicalize()
            && let Some(prefix) = python.parent().and_then(Path::parent)
        {
            prefixes.push(prefix.to_path_buf());
            prefixes.push(prefix.join("local"));
        }
    }
    prefixes.extend(get("HOME").map(|home| PathBuf::from(home).join(".local")));
    let mut found = Vec::new();
    for prefix in prefixes {
        for packages in package_folders(&prefix) {
            for inside in ["nvidia/nccl/lib/libnccl.so.2", "torch/lib/libnccl.so.2"] {
                let file = packages.join(inside);
                if file.is_file() && !found.contains(&file) {
                    found.push(file);
                }
            }
        }
    }
    found.extend(BY_LOADER.map(PathBuf::from));
    found
}

/// How the loader knows the library.
const BY_LOADER: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// The folders of packages below a prefix, newest Python first.
fn package_folders(prefix: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for lib in ["lib", "lib64"] {
        let Ok(entries) = std::fs::read_dir(prefix.join(lib)) else { continue };
        let is_python = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3"));
        let mut pythons: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_python).collect();
        pythons.sort_by_key(|path| std::cmp::Reverse((path.as_os_str().len(), path.clone())));
        folders.extend(pythons.iter().flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name))));
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_of_a_python_environment_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("lib/python3.12/site-packages/nvidia/nccl/lib");
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::write(inside.join("libnccl.so.2"), "").unwrap();
        let prefix = folder.path().as_os_str().to_os_string();
        let places = nccl_places(|name| (name == "VIRTUAL_ENV").then(|| prefix.clone()));
        let by_loader = BY_LOADER.map(PathBuf::from);
        assert_eq!(places[0], inside.join("libnccl.so.2"));
        assert_eq!(places[1..], by_loader);
        let own = nccl_places(|name| (name == "TESSERA_NCCL" || name == "VIRTUAL_ENV").then(|| "/own".into()));
        assert_eq!(own, [PathBuf::from("/own")]);
        assert_eq!(nccl_places(|_| None), by_loader);
    }
}

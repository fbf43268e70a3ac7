//! PTX that nvcc and Triton made from sources of our own (`cuda/`, `triton_kernels.py`; `make.sh` made `ptx/`): every file parses,
//! prints and parses again, every kernel runs under several schedules with all sanitizers silent, and its results are those of
//! arithmetic in Rust.

mod blocks;
mod functions;
mod machine;
mod numbers;
mod products;
mod triton;

use std::path::PathBuf;

use tessera_emu::{EmuError, EmuOptions, Emulator, LaunchOptions};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/ptx")
}

fn files() -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn every_file_prints_back_and_every_kernel_is_translated() {
    let files = files();
    assert!(files.len() >= 45, "{} files", files.len());
    for (name, text) in files {
        let module = tessera_ptx::parse(&text).unwrap_or_else(|error| panic!("{name}: {}", error.render(&text)));
        assert_eq!(tessera_ptx::check(&module), [], "{name}");
        let printed = tessera_ptx::print(&module);
        let again = tessera_ptx::parse(&printed).unwrap_or_else(|error| panic!("{name}: {}", error.render(&printed)));
        assert_eq!(again, module, "{name}");
        let emulator = Emulator::new(&EmuOptions::default()).unwrap();
        let module = emulator.load(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        for kernel in module.kernels() {
            let no_arguments = emulator.launch(
                &module,
                kernel,
                tessera_driver::Dim3::ONE,
                tessera_driver::Dim3::ONE,
                &tessera_driver::Params::new(),
                &LaunchOptions::default(),
            );
            assert!(!matches!(no_arguments, Err(EmuError::Unsupported { .. })), "{name}: {no_arguments:?}");
        }
    }
}

/// A file that no test names would only be parsed.
#[test]
fn every_file_is_run() {
    let tests = [
        include_str!("blocks.rs"),
        include_str!("functions.rs"),
        include_str!("numbers.rs"),
        include_str!("products.rs"),
        include_str!("triton.rs"),
    ]
    .concat();
    let forgotten: Vec<String> =
        files().into_iter().map(|(name, _)| name).filter(|name| !tests.contains(&format!("\"{name}\""))).collect();
    assert!(forgotten.is_empty(), "{forgotten:?}");
}

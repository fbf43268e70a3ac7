//! Tells the program which commit and compiler it was built from, where that can be found out; results files record it.

use std::path::Path;
use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    tell("TESSERA_RUSTC", &rustc, &["--version"]);
    let commit = tell("TESSERA_GIT", "git", &["describe", "--always", "--tags"]);
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let version = if commit.is_empty() { version } else { format!("{version} ({commit})") };
    println!("cargo:rustc-env=TESSERA_VERSION={version}");
    let log = "../../.git/logs/HEAD";
    println!("cargo:rerun-if-changed={}", if Path::new(log).exists() { log } else { "build.rs" });
}

/// Keeps what a program prints, or nothing where it fails.
fn tell(name: &str, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok().filter(|o| o.status.success());
    let text = output.and_then(|o| String::from_utf8(o.stdout).ok()).unwrap_or_default();
    println!("cargo:rustc-env={name}={}", text.trim());
    text.trim().to_string()
}

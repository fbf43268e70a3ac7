//! Why a bundle cannot be read, or has nothing for a launch: each names what was found and what was wanted.

use tessera_ir::Diagnostic;
use tessera_launch::DeviceError;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The file cannot be read.
    #[error("can't read `{path}`: {error}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// The bytes are something else.
    #[error("{}; `tessera bundle` makes bundles", if *bytes == 0 { "the file is empty" } else { "the file is no bundle" })]
    NotABundle {
        /// How many bytes there are.
        bytes: usize,
    },
    /// The file is of a later version.
    #[error("the bundle has version {found}, this program reads version {known}; use a newer one, or pack the kernels again")]
    Version {
        /// The file's version.
        found: u32,
        /// What can be read.
        known: u32,
    },
    /// The file ends too soon, or goes on too long.
    #[error("the bundle has {found} bytes, its header says {expected}: it was cut off, or something was added")]
    Truncated {
        /// Bytes that the header announces.
        expected: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// A checksum does not match.
    #[error("the bundle is damaged: the checksum of {part} does not match")]
    Damaged {
        /// What is damaged: the header, the index, or a variant's code.
        part: String,
    },
    /// The contents are not what a bundle holds, though the checksums match.
    #[error("the bundle is not usable: {why}")]
    Invalid {
        /// What is wrong.
        why: String,
    },
    /// There is no kernel of that name.
    #[error("the bundle has no kernel `{kernel}`; {}", kernels(known))]
    NoKernel {
        /// The name.
        kernel: String,
        /// Names that there are.
        known: Vec<String>,
    },
    /// The kernel is there, but not for the device.
    #[error("no variant of `{kernel}` runs on {device} ({target}); there are variants for {}", known.join(", "))]
    NoTarget {
        /// The kernel.
        kernel: String,
        /// The device's name.
        device: String,
        /// What it runs.
        target: String,
        /// Targets that there are.
        known: Vec<String>,
    },
    /// The kernel's only variant for the device does not take the arguments.
    #[error("`{kernel}` does not take these arguments: {}", lines(diagnostics))]
    Arguments {
        /// The kernel.
        kernel: String,
        /// Everything that is wrong.
        diagnostics: Vec<Diagnostic>,
    },
    /// None of several variants takes the arguments.
    #[error("no variant of `{kernel}` takes {asked}; there are{}", variants(refusals))]
    NoVariant {
        /// The kernel.
        kernel: String,
        /// The arguments.
        asked: String,
        /// Each variant, with the first thing that is wrong.
        refusals: Vec<(String, String)>,
    },
    /// Several variants take the arguments and differ in a constant that was left out.
    #[error("`{kernel}` was compiled for several values of `{constant}` ({}); give the one that is wanted", values.join(", "))]
    Ambiguous {
        /// The kernel.
        kernel: String,
        /// The constant.
        constant: String,
        /// Its values.
        values: Vec<String>,
    },
    /// The device refused the kernel, or stopped it.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

fn kernels(known: &[String]) -> String {
    if known.is_empty() { "it has none at all".to_owned() } else { format!("it has {}", known.join(", ")) }
}

/// A diagnostic in one line, with its way out.
pub(crate) fn line(diagnostic: &Diagnostic) -> String {
    let mut text = format!("{} [{}]", diagnostic.message, diagnostic.id);
    for help in &diagnostic.help {
        text.push_str(&format!("; {help}"));
    }
    text
}

fn lines(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn variants(refusals: &[(String, String)]) -> String {
    refusals.iter().map(|(variant, why)| format!("\n  {variant}\n    {why}")).collect()
}

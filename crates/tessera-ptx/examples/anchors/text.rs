//! Lines of PTX under construction.

use std::fmt::Write;

/// PTX text, one statement a line.
#[derive(Default)]
pub(crate) struct Text {
    out: String,
    labels: u32,
}

impl Text {
    /// Appends a statement.
    pub(crate) fn op(&mut self, statement: impl AsRef<str>) {
        let _ = writeln!(self.out, "    {};", statement.as_ref());
    }

    /// Appends a comment.
    pub(crate) fn note(&mut self, comment: &str) {
        let _ = writeln!(self.out, "    // {comment}");
    }

    /// Appends a label.
    pub(crate) fn label(&mut self, name: &str) {
        let _ = writeln!(self.out, "{name}:");
    }

    /// Appends a line as it is.
    pub(crate) fn raw(&mut self, line: &str) {
        let _ = writeln!(self.out, "{line}");
    }

    /// Waits until the barrier at `address` has left the phase of `parity`.
    pub(crate) fn wait(&mut self, address: &str, parity: &str) {
        self.labels += 1;
        let label = format!("wait_{}", self.labels);
        self.label(&label);
        self.op(format!("mbarrier.try_wait.parity.shared::cta.b64 %waited, [{address}], {parity}"));
        self.op(format!("@!%waited bra {label}"));
    }

    /// The text.
    pub(crate) fn finish(self) -> String {
        self.out
    }
}

/// `{%f0, %f1, ...}`
pub(crate) fn vector(prefix: &str, range: std::ops::Range<u32>) -> String {
    let names: Vec<String> = range.map(|index| format!("{prefix}{index}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// The constant part of a shared-memory matrix descriptor with the 128-byte swizzle: byte distances to the next atom along
/// the leading and the stride dimension.
pub(crate) fn descriptor(leading_bytes: u64, stride_bytes: u64) -> u64 {
    (1 << 62) | (stride_bytes >> 4) << 32 | (leading_bytes >> 4) << 16
}

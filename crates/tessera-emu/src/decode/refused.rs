//! Instructions that are read and not executed, each with its reason.

/// What an instruction's name begins with, and why it is refused.
const REFUSED: &[(&str, &str)] = &[
    ("multimem.", "multicast memory joins several devices, and one is emulated"),
    ("tex.", "there are no textures"),
    ("tld4.", "there are no textures"),
    ("txq.", "there are no textures"),
    ("istypep.", "there are no textures"),
    ("suld.", "there are no surfaces"),
    ("sust.", "there are no surfaces"),
    ("sured.", "there are no surfaces"),
    ("suq.", "there are no surfaces"),
];

/// Parts of instructions that are not executed.
const REFUSED_PARTS: &[(&str, &str)] = &[(".im2col", "tensor copies are tiled"), (".im2col_no_offs", "tensor copies are tiled")];

/// Why an instruction is not executed; none for those that are.
pub(super) fn reason(name: &str) -> Option<&'static str> {
    let whole = REFUSED.iter().find(|(start, _)| name.starts_with(start));
    whole.or_else(|| REFUSED_PARTS.iter().find(|(part, _)| name.contains(part))).map(|(_, reason)| *reason)
}

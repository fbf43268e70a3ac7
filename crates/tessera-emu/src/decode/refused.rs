//! Instructions that are read and not executed, each with its reason.

/// What an instruction's name begins with, and why it is refused.
const REFUSED: &[(&str, &str)] = &[("multimem.", "multicast memory joins several devices, and one is emulated")];

/// Parts of instructions that are not executed.
const REFUSED_PARTS: &[(&str, &str)] =
    &[(".2dms", "images have one sample a texel"), (".a2dms", "images have one sample a texel")];

/// Why an instruction is not executed; none for those that are.
pub(super) fn reason(name: &str) -> Option<&'static str> {
    let whole = REFUSED.iter().find(|(start, _)| name.starts_with(start));
    whole.or_else(|| REFUSED_PARTS.iter().find(|(part, _)| name.contains(part))).map(|(_, reason)| *reason)
}

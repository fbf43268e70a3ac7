//! What a target has is asked for by name: outside of `tessera-types`, whose tables say it, no source compares an architecture or its number.
//!
//! ```text
//! if arch.has_wgmma() { .. }                                asks
//! let (major, minor) = arch.compute_capability();           refused
//! if arch == Arch::Sm90a { .. }                             refused
//! ```
//!
//! Tests may name what they are about, and so may a default (`unwrap_or(Arch::Sm90a)`).

/// Files that need the number for what it is, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("crates/tessera-cli/src/command/emulation.rs", "finds a chip by its name"),
    ("crates/tessera-emu/src/driver.rs", "reports it, as a driver does"),
    ("crates/tessera-emu/src/emulator.rs", "decides by it which code a chip runs, as a driver does"),
];

/// What compares, next to a name of an architecture.
const COMPARES: [&str; 5] = ["==", "!=", ">=", "<=", "matches!"];

/// Names the lines of a file that compare architectures.
pub(crate) fn check(file: &str, text: &str, problems: &mut Vec<String>) {
    let looked_at = file.starts_with("crates/") && file.contains("/src/") && file.ends_with(".rs");
    if !looked_at || file.starts_with("crates/tessera-types/") || EXCEPTIONS.iter().any(|(exception, _)| *exception == file) {
        return;
    }
    for (number, line) in text.lines().enumerate().take_while(|(_, line)| line.trim() != "#[cfg(test)]") {
        if !line.trim_start().starts_with("//") && compares(line) {
            let help = "ask `Arch` for what is meant by name, and add it to the tables of `tessera-types` where it is missing";
            problems.push(format!("{file}:{}: an architecture is compared: {help}", number + 1));
        }
    }
}

fn compares(line: &str) -> bool {
    let named = |part: &str| part.contains("Arch::Sm") || part.contains("\"sm_");
    let number = line.contains("compute_capability()") || compared_to_a_number(line);
    let arm = line.split_once("=>").is_some_and(|(pattern, _)| named(pattern)) || line.trim_start().starts_with("| Arch::Sm");
    number || arm || named(line) && COMPARES.iter().any(|word| line.contains(word))
}

/// `capability >= 80` and the like.
fn compared_to_a_number(line: &str) -> bool {
    line.split("capability ").skip(1).any(|rest| {
        let number = rest.trim_start_matches(['<', '>', '=', '!']);
        number.len() < rest.len() && number.trim_start().starts_with(|c: char| c.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str) -> usize {
        let mut problems = Vec::new();
        check(file, text, &mut problems);
        problems.len()
    }

    #[test]
    fn comparisons_are_seen() {
        let file = "crates/tessera-compile/src/a.rs";
        for line in [
            "let (major, minor) = arch.compute_capability();",
            "if units.capability >= 90 {",
            "if arch == Arch::Sm90a {",
            "    Arch::Sm80 | Arch::Sm86 => 3,",
            "        | Arch::Sm89",
            "matches!(arch, Arch::Sm100a)",
            "if arch.name() == \"sm_80\" {",
        ] {
            assert_eq!(found(file, line), 1, "{line}");
            assert_eq!(found("crates/tessera-types/src/arch.rs", line), 0, "{line}");
            assert_eq!(found("crates/tessera-compile/tests/a.rs", line), 0, "{line}");
            assert_eq!(found(file, &format!("#[cfg(test)]\n{line}")), 0, "{line}");
        }
        for line in [
            "if arch.has_wgmma() {",
            ".unwrap_or(Arch::Sm90a)",
            "None => Arch::Sm90a,",
            "// arch == Arch::Sm90a",
            "units.capability",
        ] {
            assert_eq!(found(file, line), 0, "{line}");
        }
    }
}

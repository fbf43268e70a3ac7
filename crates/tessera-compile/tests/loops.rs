//! What the loops of the library's kernels do beside their work: instructions beside those of tensor cores, and for every 16 bytes that threads
//! move to or from the device's memory. `loops.txt` has the counts; a kernel that needs more is a regression. `UPDATE_EXPECT=1` writes them anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use tessera_compile::{OptLevel, compile_for};
use tessera_types::Arch;

use crate::library::{self, Case};

/// What a stretch of PTX holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    instructions: usize,
    /// Products of tensor cores.
    products: usize,
    /// Copies by the copy engine.
    bulk: usize,
    /// Bytes that a thread moves to or from global memory.
    bytes: usize,
}

impl Count {
    fn of(lines: &[&str]) -> Count {
        let mut count = Count::default();
        for line in lines {
            let line = line.trim();
            if !line.ends_with(';') || line.starts_with('.') {
                continue;
            }
            // A guard stands before the instruction.
            let text = if line.starts_with('@') { line.split_once(' ').map_or(line, |(_, rest)| rest) } else { line };
            count.instructions += 1;
            count.products += usize::from(text.starts_with("wgmma.mma_async") || text.starts_with("mma."));
            count.bulk += usize::from(text.starts_with("cp.async.bulk.tensor"));
            count.bytes += moved(text);
        }
        count
    }

    fn is_work(self) -> bool {
        self.products + self.bulk + self.bytes > 0
    }

    /// Instructions beside the work, in words; the number is what must not grow.
    fn told(self) -> (String, usize) {
        let beside = self.instructions - self.products - self.bulk;
        match self {
            Count { products: 1.., .. } => (format!("beside {} products", self.products), beside),
            Count { bulk: 1.., .. } => (format!("beside {} copies of boxes", self.bulk), beside),
            _ => (format!("for {} bytes", self.bytes), beside),
        }
    }
}

/// Bytes that an instruction moves to or from global memory.
fn moved(text: &str) -> usize {
    let Some(mnemonic) = text.split(' ').next() else { return 0 };
    if ["cp.async.ca.", "cp.async.cg."].iter().any(|copy| mnemonic.starts_with(copy)) {
        // The destination, the source, and how much is copied.
        return text.trim_end_matches(';').split(", ").nth(2).and_then(|size| size.parse().ok()).expect("a size");
    }
    if !mnemonic.contains(".global") || !["ld.", "st."].iter().any(|kind| mnemonic.starts_with(kind)) {
        return 0;
    }
    let parts = || mnemonic.split('.');
    let elements = parts().find_map(|part| part.strip_prefix('v')?.parse::<usize>().ok()).unwrap_or(1);
    let bits = parts().next_back().and_then(|ty| ty[1..].parse::<usize>().ok()).expect("a type with its bits");
    elements * bits / 8
}

/// The innermost loops that do work, in order; all of a kernel that has none.
fn loops(ptx: &str) -> Vec<Count> {
    let lines: Vec<&str> = ptx.lines().skip_while(|line| *line != "{").collect();
    let labels: BTreeMap<&str, usize> =
        lines.iter().enumerate().filter_map(|(at, line)| Some((line.trim().strip_suffix(':')?, at))).collect();
    let mut found: Vec<(usize, usize, Count)> = Vec::new();
    for (end, line) in lines.iter().enumerate() {
        let target = line.split_once("bra ").map(|(_, target)| target.trim_end_matches(';'));
        if let Some(&start) = target.and_then(|target| labels.get(target)).filter(|start| **start <= end) {
            let count = Count::of(&lines[start..=end]);
            if count.is_work() {
                found.push((start, end, count));
            }
        }
    }
    let is_innermost = |&&(start, end, _): &&(usize, usize, Count)| {
        !found.iter().any(|&(from, to, _)| start <= from && to <= end && (from, to) != (start, end))
    };
    let innermost: Vec<Count> = found.iter().filter(is_innermost).map(|(_, _, count)| *count).collect();
    if innermost.is_empty() { vec![Count::of(&lines)] } else { innermost }
}

/// One case of each kernel in each precision, that of the largest problem.
fn cases() -> Vec<Case> {
    let mut largest: BTreeMap<(&str, &str, &str), Case> = BTreeMap::new();
    for case in library::cases(Arch::Sm90a) {
        largest.insert((case.operator, case.kernel, case.policy), case);
    }
    largest.into_values().collect()
}

#[test]
fn loops_of_the_library_do_little_beside_their_work() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/loops.txt");
    let mut text = String::new();
    let mut now: BTreeMap<String, usize> = BTreeMap::new();
    for case in cases() {
        let made = compile_for(&case.compiled(), Arch::Sm90a, OptLevel::default()).expect("a kernel");
        for (at, count) in loops(&made.kernel.ptx()).into_iter().enumerate() {
            let (work, beside) = count.told();
            let name = format!("{} {} loop {at}, {work}", case.kernel, case.policy);
            writeln!(text, "{beside:5} {name}").expect("text");
            now.insert(name, beside);
        }
    }
    assert!(now.len() >= 60, "only {} loops", now.len());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, text).expect("a file of the tree");
        return;
    }
    let known = std::fs::read_to_string(&path).expect("a file of the tree");
    let known: BTreeMap<&str, usize> = known
        .lines()
        .filter_map(|line| line.trim_start().split_once(' '))
        .map(|(n, name)| (name, n.parse().expect("a count")))
        .collect();
    let mut wrong: Vec<String> = Vec::new();
    for (name, beside) in &now {
        match known.get(name.as_str()) {
            Some(most) if beside <= most => {}
            Some(most) => wrong.push(format!("{name}: {beside} instead of {most}")),
            None => wrong.push(format!("{name}: {beside}, not in the list")),
        }
    }
    wrong.extend(known.keys().filter(|name| !now.contains_key(**name)).map(|name| format!("{name}: no more")));
    assert!(wrong.is_empty(), "UPDATE_EXPECT=1 writes the list anew:\n{}", wrong.join("\n"));
}

#[test]
fn counts_are_those_of_the_innermost_loops() {
    let ptx = ".visible .entry k(.param .u64 a)\n{\n    mov.u32 %r0, 0;\nL1:\n    add.u32 %r0, %r0, 1;\nL2:\n    \
               @%p0 ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d0];\n    cp.async.cg.shared.global [%r1], [%d1], 16;\n    @%p1 bra L2;\nL3:\n    \
               mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1], %r2;\n    @!%p3 bra L3;\n    @%p2 bra L1;\n}\n";
    assert_eq!(loops(ptx), [Count { instructions: 3, products: 0, bulk: 0, bytes: 32 }]);
    let straight = "{\n    st.global.b16 [%d0], %h0;\n    ret;\n}\n";
    assert_eq!(loops(straight), [Count { instructions: 2, products: 0, bulk: 0, bytes: 2 }]);
}

//! Names the first instruction of a program that gives something else on the chip, from what the traced program wrote down on both.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::generator::{Program, RECORD, RECORDS};
use crate::values::{THREADS, registers, word};

/// An instruction and what a thread's registers in it held before.
pub(crate) fn operands(text: &str, registers: &BTreeMap<String, u64>) -> String {
    let mut shown = text.to_owned();
    for (name, value) in registers {
        let held = format!("{name}({value:x})");
        shown = shown.replace(name.as_str(), &held);
    }
    shown
}

/// A thread's records: the step's number from one, and the value.
fn records<'o>(program: &Program, out: &'o [u8], thread: usize) -> impl Iterator<Item = (usize, u64)> + use<'o> {
    let end = (thread + 1) * program.bytes;
    let log = &out[end - RECORD * RECORDS..end];
    log.chunks_exact(RECORD).map(|record| (word(&record[..4]) as usize, word(&record[8..]))).take_while(|&(step, _)| step > 0)
}

/// The first difference of the first thread that has one.
pub(crate) fn first_difference(program: &Program, outs: [&[u8]; 2], input: &[u8]) -> Option<String> {
    (0..THREADS).find_map(|thread| {
        let mut registers = registers(input, thread);
        let [mut chip, mut emulated] = outs.map(|out| records(program, out, thread));
        let mut last = String::from("the start");
        loop {
            let (a, b) = match (chip.next(), emulated.next()) {
                (Some(a), Some(b)) if a.0 == b.0 => (a, b.1),
                (None, None) => return None,
                _ => return Some(format!("thread {thread}: another way after {last}")),
            };
            let step = program.steps.get(a.0 - 1)?;
            if step.form.canonical(a.1) != step.form.canonical(b) {
                let mut line = format!("thread {thread}: {}", operands(&step.text, &registers));
                let _ = write!(line, " gives {}={:x} on the chip, {b:x} emulated", step.register, a.1);
                return Some(line);
            }
            registers.insert(step.register.clone(), b);
            last.clone_from(&step.text);
        }
    })
}

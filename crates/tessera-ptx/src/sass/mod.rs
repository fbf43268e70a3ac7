//! Machine code as data: instructions with what they are for, the source line of each, and loops.
//!
//! [`Listing::read`] takes what `nvdisasm --print-code --print-line-info` prints. An address counts bytes from the entry on:
//! ```text
//! .text.scale:
//!         //## File "scale.py", line 7
//!         /*0000*/                   LDG.E.128 R4, [R2] ;
//! .L_x_1:
//!         /*0010*/              @!P0 BRA `(.L_x_1) ;
//! ```
//! A line holds for the instructions behind it, until the next. The assembler gives products of warpgroups none: theirs is that of the
//! `WARPGROUP.ARRIVE` before them, which a product begins with.

mod flow;
mod kind;

use std::collections::BTreeMap;
use std::ops::Range;

pub use flow::Loop;
pub use kind::{Kind, Memory, Width};

/// A source line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// The file's name, as `.file` has it.
    pub file: String,
    /// From 1 on.
    pub number: u32,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Bytes from the entry.
    pub address: u32,
    /// `@!P0 BRA 0x40`: guard, operation and operands, with addresses for labels.
    pub text: String,
    /// What it is for.
    pub kind: Kind,
    /// The source line that it came from.
    pub line: Option<Line>,
    /// Where it may go on but behind itself.
    target: Option<u32>,
    /// Whether it always leaves.
    leaves: bool,
}

/// The machine code of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// In the order of addresses, without what fills up the end.
    pub instructions: Vec<Instruction>,
    /// Positions of instructions that always run one after another.
    pub blocks: Vec<Range<usize>>,
    /// From the first on; an inner loop stands behind the one around it.
    pub loops: Vec<Loop>,
}

/// How many instructions of each kind.
pub type Counts = BTreeMap<Kind, usize>;

impl Listing {
    /// Reads what the disassembler printed for an entry; `None` where there is no such entry, or a line that is none of its.
    pub fn read(text: &str, entry: &str) -> Option<Listing> {
        let start = format!(".text.{entry}:");
        let section = text.lines().skip_while(|line| line.trim() != start).skip(1);
        let lines: Vec<&str> =
            section.map(str::trim).take_while(|line| !line.starts_with("//-") && !line.starts_with(".section")).collect();
        let (mut labels, mut waiting) = (Vec::new(), Vec::new());
        for line in &lines {
            if let Some(label) = line.strip_suffix(':') {
                waiting.push(label);
            } else if let Some((address, _)) = code(line) {
                labels.extend(waiting.drain(..).map(|label| (label, address)));
            }
        }
        let mut instructions: Vec<Instruction> = Vec::new();
        let (mut here, mut product) = (None, None);
        for line in lines {
            if let Some(place) = line.strip_prefix("//## File \"") {
                let (file, rest) = place.split_once("\", line ")?;
                let number = rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
                here = Some(Line { file: file.to_owned(), number });
            } else if let Some((address, code)) = code(line) {
                let mut instruction = Instruction::read(address, code, &labels);
                let operation = operation(&instruction.text);
                if operation == "WARPGROUP.ARRIVE" {
                    product.clone_from(&here);
                }
                instruction.line.clone_from(if kind::is_of_warpgroup(operation) { &product } else { &here });
                instructions.push(instruction);
            }
        }
        if instructions.is_empty() {
            return None;
        }
        let (blocks, loops) = flow::blocks_and_loops(&mut instructions);
        Some(Listing { instructions, blocks, loops })
    }

    /// What instructions at some positions are for.
    pub fn count(&self, positions: impl IntoIterator<Item = usize>) -> Counts {
        let mut counts = Counts::new();
        positions.into_iter().for_each(|at| *counts.entry(self.instructions[at].kind).or_default() += 1);
        counts
    }

    /// Positions of instructions by their source line, among those at some positions; the line that comes first first.
    pub fn by_line(&self, positions: impl IntoIterator<Item = usize>) -> Vec<(Option<&Line>, Vec<usize>)> {
        let mut groups: Vec<(Option<&Line>, Vec<usize>)> = Vec::new();
        for at in positions {
            let line = self.instructions[at].line.as_ref();
            match groups.iter_mut().find(|(own, _)| *own == line) {
                Some((_, group)) => group.push(at),
                None => groups.push((line, vec![at])),
            }
        }
        groups
    }
}

impl Instruction {
    fn read(address: u32, code: &str, labels: &[(&str, u32)]) -> Instruction {
        let mut text = code.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut target = None;
        while let Some((before, label, behind)) = reference(&text) {
            let Some(&(_, to)) = labels.iter().find(|(own, _)| *own == label) else { break };
            target = Some(to);
            text = format!("{before}0x{to:x}{behind}");
        }
        let name = operation(&text);
        let base = name.split('.').next().unwrap_or(name);
        // A thread comes back from a call, and goes on behind where it waits for others.
        let target = target.filter(|_| !matches!(base, "BSSY" | "CALL"));
        let operands = text.split_once(name).map_or("", |(_, operands)| operands);
        let leaves = !text.starts_with('@')
            && match base {
                // Operands before the target are conditions.
                "BRA" | "JMP" => name == base && !operands.contains(','),
                "EXIT" | "RET" | "BRX" | "JMX" | "BRXU" | "JMXU" => {
                    !operands.trim_start_matches([' ', '!', 'U']).starts_with('P')
                }
                _ => false,
            };
        Instruction { address, kind: Kind::of(name), text, line: None, target, leaves }
    }

    /// Whether it stands for nothing: the assembler fills up with such.
    fn is_filler(&self) -> bool {
        self.text == "NOP" || self.leaves && self.target == Some(self.address)
    }
}

/// The address and the text of an instruction's line.
fn code(line: &str) -> Option<(u32, &str)> {
    let (address, rest) = line.strip_prefix("/*")?.split_once("*/")?;
    Some((u32::from_str_radix(address, 16).ok()?, rest.split(';').next()?.trim()))
}

/// What stands before, in and behind a `` `(.L_x_1) ``.
fn reference(text: &str) -> Option<(String, &str, &str)> {
    let (before, rest) = text.split_once("`(")?;
    let (label, behind) = rest.split_once(')')?;
    Some((before.to_owned(), label, behind))
}

/// The operation with its modifiers: what stands behind the guard.
fn operation(text: &str) -> &str {
    text.split(' ').find(|word| !word.starts_with('@')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop with a wait in it whose slow way stands at the end, and a product.
    const PRODUCT: &str = "
\t.target\tsm_90a

//--------------------- .text.other             --------------------------
.text.other:
        /*0000*/                   EXIT ;

//--------------------- .text.product             --------------------------
product:
.text.product:
\t//## File \"k.py\", line 4
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2 ;
        /*0020*/              @!P0 BRA `(.L_x_3) ;
.L_x_2:
\t//## File \"k.py\", line 6
        /*0030*/                   WARPGROUP.ARRIVE ;
\t//## File \"k.py\", line 5
        /*0040*/                   UIADD3 UR4, UR4, 0x1, URZ ;
        /*0050*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR16], R24, gsb0 ;
        /*0060*/                   LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0070*/               @P1 BRA `(.L_x_1) ;
\t//## File \"k.py\", line 7
        /*0080*/                   EXIT ;
.L_x_3:
\t//## File \"k.py\", line 4
        /*0090*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2 ;
        /*00a0*/               @P0 BRA `(.L_x_2) ;
        /*00b0*/                   BRA `(.L_x_3) ;
.L_x_4:
        /*00c0*/                   BRA `(.L_x_4);
        /*00d0*/                   NOP;
.L_x_5:


//--------------------- .text.third             --------------------------
.text.third:
        /*0000*/                   EXIT ;
";

    #[test]
    fn lines_hold_until_the_next_and_products_have_that_of_their_fence() {
        let listing = Listing::read(PRODUCT, "product").expect("an entry");
        let line = |address: u32| {
            let found = listing.instructions.iter().find(|instruction| instruction.address == address).expect("an instruction");
            (found.line.as_ref().map(|line| line.number), found.text.as_str())
        };
        assert_eq!(line(0x20), (Some(4), "@!P0 BRA 0x90"));
        assert_eq!(line(0x40), (Some(5), "UIADD3 UR4, UR4, 0x1, URZ"));
        assert_eq!(line(0x50), (Some(6), "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR16], R24, gsb0"));
        assert_eq!(line(0x60).0, Some(5));
        assert_eq!(listing.instructions.last().map(|last| last.address), Some(0xb0), "what fills up is no code");
        assert!(Listing::read(PRODUCT, "produc").is_none() && Listing::read("", "product").is_none());
        // Without lines there are none.
        let bare: String = PRODUCT.lines().filter(|line| !line.contains("//## File")).map(|line| format!("{line}\n")).collect();
        assert!(
            Listing::read(&bare, "product").expect("an entry").instructions.iter().all(|instruction| instruction.line.is_none())
        );
    }

    #[test]
    fn a_loop_is_what_leads_back_and_waiting_is_none() {
        let listing = Listing::read(PRODUCT, "product").expect("an entry");
        let addresses = |one: &Loop| one.members.iter().map(|&at| listing.instructions[at].address).collect::<Vec<_>>();
        assert_eq!(listing.loops.iter().map(|one| one.depth).collect::<Vec<_>>(), [1]);
        assert_eq!(addresses(&listing.loops[0]), [0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x90, 0xa0, 0xb0]);
        let nested = "
.text.k:
.L_0:
 /*0000*/ MOV R0, R1 ;
.L_1:
 /*0010*/ STG.E [R2], R3 ;
 /*0020*/ @P0 BRA `(.L_1) ;
 /*0030*/ @P1 BRA `(.L_0) ;
 /*0040*/ EXIT ;
";
        let listing = Listing::read(nested, "k").expect("an entry");
        let told: Vec<_> = listing.loops.iter().map(|one| (one.depth, one.members.clone())).collect();
        assert_eq!(told, [(1, vec![0, 3]), (2, vec![1, 2])]);
    }
}

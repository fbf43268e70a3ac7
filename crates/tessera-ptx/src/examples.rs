//! Instructions written out from the table's rows: each choice of each place, so that assemblers and the emulator can be asked about all of them.
//!
//! Where a row has more than [`WHOLE`] combinations of its modifiers, each pair of choices is written once with the others at their
//! first choice. Optional operands are written and left out.

use std::collections::BTreeSet;

use crate::form::{Form, RowId, form, lanes_of, short_enough, types_of};
use crate::fragment::Count;
use crate::mnemonic::Mnemonic;
use crate::operand_rule::{OperandRule, Presence, What};
use crate::target::{PtxVersion, Target};
use crate::types::{Kind, Type};
use crate::word::{Modifier, Word};

/// A row with no more combinations than this is written out whole.
const WHOLE: usize = 384;

/// An instruction of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// The row.
    pub row: RowId,
    /// Its modifiers in the row's order.
    pub modifiers: Vec<Modifier>,
    /// The instruction with its semicolon; it stands in a kernel that [`kernel`] makes.
    pub text: String,
}

/// The instructions of a row.
pub fn examples(row: RowId) -> Vec<Example> {
    let form = form(row);
    let mut list = Vec::new();
    for modifiers in combinations(form) {
        let mut seen = BTreeSet::new();
        for with in 0..4 {
            let text = instruction(row, &modifiers, with);
            if seen.insert(text.clone()) {
                list.push(Example { row, modifiers: modifiers.clone(), text });
            }
        }
    }
    list
}

/// A kernel in which each of the instructions stands on a line of its own, the first on line [`FIRST_LINE`].
pub fn kernel<'a>(version: PtxVersion, target: Target, instructions: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = format!(".version {version}\n.target {target}\n.address_size 64\n{DECLARATIONS}");
    for instruction in instructions {
        text.push_str(instruction);
        text.push('\n');
    }
    text.push_str("there:\n    ret;\n}\n");
    text
}

/// The line of [`kernel`]'s first instruction.
pub const FIRST_LINE: u32 = 3 + 17 + 1;

const DECLARATIONS: &str = ".global .align 128 .b8 words[4096];
.const .align 128 .b8 constants[256];
.visible .func forget(.param .b32 value) { ret; }
.visible .func (.param .b32 result) twice(.param .b32 value) { ret; }
.visible .func nothing() { ret; }
.visible .func (.param .align 16 .b8 filled[256]) fill() { ret; }
.visible .entry k(.param .align 64 .b8 args[256])
{
    .reg .pred %p<8>; .reg .b8 %c<16>; .reg .b16 %h<16>; .reg .b32 %r<256>; .reg .b64 %d<16>;
    .reg .f32 %f<256>; .reg .f64 %g<32>; .reg .b128 %q<8>;
    .shared .align 128 .b8 tile[1024]; .shared .align 8 .b64 bar;
    .local .align 16 .b8 stack[256];
    .param .align 16 .b8 slot[256]; .param .b32 passed; .param .b32 back; .param .align 16 .b8 given[256];
    ways: .branchtargets there;
    taking: .callprototype _ (.param .b32 _);
    giving: .callprototype (.param .b32 _) _ (.param .b32 _);
    plain: .callprototype _ (); bare: .callprototype (.param .b32 _) _ ();
";

/// Each way to fill the slots, or each pair of choices.
fn combinations(form: &Form) -> Vec<Vec<Modifier>> {
    let slots = &form.slots;
    let options: Vec<Vec<Option<Modifier>>> = slots
        .iter()
        .map(|slot| {
            let none = slot.optional.then_some(None);
            none.into_iter().chain(slot.choices.iter().copied().map(Some)).collect()
        })
        .collect();
    let all = options.iter().try_fold(1usize, |product, list| product.checked_mul(list.len()));
    let mut picks: Vec<Vec<usize>> = vec![vec![0; options.len()]];
    if all.is_some_and(|all| all <= WHOLE) {
        for (at, list) in options.iter().enumerate() {
            let more = picks.iter().flat_map(|pick| {
                (0..list.len()).map(|choice| {
                    let mut pick = pick.clone();
                    pick[at] = choice;
                    pick
                })
            });
            picks = more.collect();
        }
    } else {
        for first in 0..options.len() {
            for second in first + 1..options.len() {
                for (a, b) in (0..options[first].len()).flat_map(|a| (0..options[second].len()).map(move |b| (a, b))) {
                    let mut pick = vec![0; options.len()];
                    (pick[first], pick[second]) = (a, b);
                    picks.push(pick);
                }
            }
        }
    }
    let mut seen = BTreeSet::new();
    let filled = picks.into_iter().map(|pick| {
        let list = pick.iter().zip(&options).filter_map(|(&choice, list)| list[choice]);
        list.collect::<Vec<Modifier>>()
    });
    filled.filter(|modifiers| form.takes(modifiers) && short_enough(modifiers) && seen.insert(modifiers.clone())).collect()
}

/// The instruction; bits of `with` say whether the optional operands and the second destinations are there.
fn instruction(row: RowId, modifiers: &[Modifier], with: u32) -> String {
    let mnemonic = row.mnemonic();
    let name = modifiers.iter().fold(mnemonic.to_string(), |text, modifier| format!("{text}.{modifier}"));
    let mut writer =
        Writer { mnemonic, modifiers, second: with & 1 == 0, optional: with & 2 == 0, spaces: 0, count: 0, immediates: 0 };
    let operands: Vec<String> = form(row).operands.iter().filter_map(|rule| writer.operand(rule)).collect();
    if mnemonic == Mnemonic::Call {
        return format!("{name} {};", call(row.row().operands, writer.optional));
    }
    let plain = format!("{name} {};", operands.join(", "));
    // What a function gives back is read behind its call.
    match mnemonic == Mnemonic::Ld && writer.has(Word::ParamFunc) {
        true => format!("{{ call (given), fill; {plain} }}"),
        false => plain,
    }
}

fn call(operands: &str, optional: bool) -> &'static str {
    match (operands, optional) {
        ("L l L?", true) => "(back), twice, (passed)",
        ("L l L?", false) => "(given), fill",
        ("l L?", true) => "forget, (passed)",
        ("l L?", false) => "nothing",
        ("L r:b64 L? l", true) => "(back), %d0, (passed), giving",
        ("L r:b64 L? l", false) => "(back), %d0, bare",
        (_, true) => "%d0, (passed), taking",
        (_, false) => "%d0, plain",
    }
}

struct Writer<'a> {
    mnemonic: Mnemonic,
    modifiers: &'a [Modifier],
    second: bool,
    optional: bool,
    /// How many spaces are used up by addresses.
    spaces: usize,
    /// How many registers are written.
    count: usize,
    /// How many immediates are.
    immediates: usize,
}

impl Writer<'_> {
    fn has(&self, word: Word) -> bool {
        self.modifiers.contains(&Modifier::Word(word))
    }

    fn operand(&mut self, rule: &OperandRule) -> Option<String> {
        match &rule.presence {
            Presence::Always => {}
            Presence::Optional if self.optional => {}
            Presence::With(words) if words.iter().any(|word| self.modifiers.contains(word)) => {}
            Presence::Optional | Presence::With(_) => return None,
        }
        let ty = rule.wanted(self.modifiers);
        let lanes = lanes_of(self.modifiers) as usize;
        Some(match rule.what {
            What::Destination | What::Source | What::Register => self.register(ty),
            What::NoResult => "_".to_owned(),
            What::Immediate(Some(only)) => only.to_string(),
            What::Immediate(None) => self.immediate(),
            What::Predicate if self.second => "%p1".to_owned(),
            What::Predicate => "!%p1".to_owned(),
            What::PredicateOrBit => "%p1".to_owned(),
            What::PredicateDestination => "%p0".to_owned(),
            What::Address => self.address(),
            What::TensorAddress => {
                let list = self.vector(Count::Coordinates.of(self.modifiers).unwrap_or(1), Some(Type::B32));
                format!("[%d2, {list}]")
            }
            What::TextureAddress => self.texture(),
            What::Symbol if self.mnemonic == Mnemonic::Brx => "ways".to_owned(),
            What::Symbol => "there".to_owned(),
            What::Vector(count) => {
                let bits = types_of(self.modifiers).next().map_or(32, Type::bits);
                let ty = ty.or_else(|| self.half());
                self.vector(count.of(self.modifiers).unwrap_or(2), ty.or(if bits == 128 { Some(Type::B64) } else { None }))
            }
            What::DestinationOrVector | What::SourceOrVector if lanes > 1 => self.vector(lanes, ty),
            What::DestinationOrVector | What::SourceOrVector => self.register(ty),
            What::List => "()".to_owned(),
            What::DestinationAndPredicate => self.pair(|own| own.register(ty)),
            What::BothDestinations => format!("{}|%p0", self.register(ty)),
            What::VectorAndPredicate(count) => self.pair(|own| own.vector(count as usize, ty)),
            What::TwoPredicates if self.second => "%p0|%p2".to_owned(),
            What::TwoPredicates => "%p0".to_owned(),
            What::Selected(lanes, negatable) => self.selected(lanes, negatable, true),
            What::SelectedDestination(lanes) => self.selected(lanes, false, false),
        })
    }

    fn pair(&mut self, first: impl Fn(&mut Self) -> String) -> String {
        let first = first(self);
        if self.second { format!("{first}|%p0") } else { first }
    }

    fn register(&mut self, ty: Option<Type>) -> String {
        let bank = match ty {
            None => "%d",
            Some(Type::F32) => "%f",
            Some(Type::F64) => "%g",
            Some(ty) => match (ty.kind(), ty.bits()) {
                (Kind::Predicate, _) => "%p",
                (_, ..=8) => "%c",
                (_, 16) => "%h",
                (_, 32) => "%r",
                (_, 64) => "%d",
                _ => "%q",
            },
        };
        self.count += 1;
        let most = match bank {
            "%p" | "%q" => 8,
            "%c" | "%h" | "%d" => 16,
            "%g" => 32,
            _ => 256,
        };
        format!("{bank}{}", self.count % most)
    }

    fn vector(&mut self, count: usize, ty: Option<Type>) -> String {
        let list: Vec<String> = (0..count).map(|_| self.register(ty)).collect();
        format!("{{{}}}", list.join(", "))
    }

    /// The type of an element where the row does not say it.
    fn half(&self) -> Option<Type> {
        let ty = types_of(self.modifiers).next_back()?;
        if self.mnemonic == Mnemonic::Mov {
            return Some(match ty.bits() {
                16 => Type::B8,
                32 => Type::B16,
                64 => Type::B32,
                _ => Type::B64,
            });
        }
        // Accumulators: halves travel in pairs.
        let first = types_of(self.modifiers).next()?;
        let ty = if self.count == 0 || self.has(Word::MmaAsync) { first } else { ty };
        Some(if ty == Type::F16 { Type::B32 } else { ty })
    }

    fn immediate(&mut self) -> String {
        let first = self.immediates == 0;
        self.immediates += 1;
        match self.mnemonic {
            Mnemonic::Lop3 => "0x96",
            Mnemonic::Discard | Mnemonic::Applypriority => "128",
            Mnemonic::Setmaxnreg => "40",
            Mnemonic::Alloca => "16",
            Mnemonic::Cp if self.has(Word::Ca) => "8",
            // Which threads hold the positions of a sparse factor; then signs and transpositions.
            Mnemonic::Wgmma if self.has(Word::Sp) && first => "0",
            Mnemonic::Wgmma if self.has(Word::MmaAsync) => "1",
            Mnemonic::Tensormap if self.has(Word::GlobalStride) => "1",
            Mnemonic::Mov => "1",
            _ => "0",
        }
        .to_owned()
    }

    fn address(&mut self) -> String {
        let spaces: Vec<Word> = self
            .modifiers
            .iter()
            .filter_map(|modifier| match modifier {
                Modifier::Word(
                    word @ (Word::Global
                    | Word::Shared
                    | Word::SharedCta
                    | Word::SharedCluster
                    | Word::Local
                    | Word::Const
                    | Word::Param
                    | Word::ParamEntry
                    | Word::ParamFunc),
                ) => Some(*word),
                _ => None,
            })
            .collect();
        let space = spaces.get(self.spaces).copied();
        self.spaces += 1;
        match space {
            None if self.mnemonic == Mnemonic::Cp => "[bar]",
            Some(Word::Shared | Word::SharedCta) if self.mnemonic == Mnemonic::Mbarrier || self.has(Word::Mbarrier) => "[bar]",
            None if self.mnemonic == Mnemonic::Mbarrier => "[%d3]",
            Some(Word::Shared | Word::SharedCta) => "[tile+64]",
            Some(Word::Local) => "[stack+16]",
            Some(Word::Const) => "[constants+128]",
            Some(Word::Param | Word::ParamEntry) if self.mnemonic == Mnemonic::St => "[slot+16]",
            Some(Word::ParamFunc) if self.mnemonic == Mnemonic::Ld => "[given+16]",
            Some(Word::ParamFunc) => "[slot+16]",
            Some(Word::Param | Word::ParamEntry) => "[args+64]",
            Some(Word::Global) => "[%d1+128]",
            _ => "[%d2]",
        }
        .to_owned()
    }

    fn texture(&mut self) -> String {
        let count = Count::TextureCoordinates.of(self.modifiers).unwrap_or(4);
        let surface = matches!(self.mnemonic, Mnemonic::Suld | Mnemonic::Sust | Mnemonic::Sured);
        let ty = match types_of(self.modifiers).next_back() {
            Some(ty) if !surface => ty,
            _ => Type::B32,
        };
        let array = [Word::A1d, Word::A2d, Word::Acube].into_iter().any(|word| self.has(word));
        let list: Vec<String> = (0..count).map(|at| self.register(Some(if array && at == 0 { Type::B32 } else { ty }))).collect();
        // Assemblers take a sampler of its own for these alone.
        let plain = [Word::D1, Word::D2, Word::D3].into_iter().any(|word| self.has(word));
        let sampler = if surface || self.second || !plain { "" } else { "%d3, " };
        format!("[%d2, {sampler}{{{}}}]", list.join(", "))
    }

    fn selected(&mut self, lanes: u8, negatable: bool, source: bool) -> String {
        let part = match (lanes, source) {
            (0, _) => "",
            _ if !self.optional => "",
            (1, true) => ".h1",
            (1, false) => ".b2",
            (2, true) => ".h30",
            (2, false) => ".h1",
            (_, true) => ".b0716",
            (_, false) => ".b31",
        };
        let part = if lanes == 1 && !source && part.is_empty() { ".h0" } else { part };
        let sign = if negatable && self.second { "-" } else { "" };
        format!("{sign}{}{part}", self.register(Some(Type::B32)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::rows;
    use crate::{check, parse, print};

    #[test]
    fn the_first_instruction_stands_on_its_line() {
        let text = kernel(PtxVersion::new(8, 7), Target::SM_90A, ["exit;"]);
        assert_eq!(text.lines().nth(FIRST_LINE as usize - 1), Some("exit;"));
    }

    /// Every example is read as an instruction of its row, or of one before it, and printed back.
    #[test]
    fn every_example_is_read_and_printed_back() {
        let mut count = 0;
        for row in (0..rows().len() as u16).map(RowId) {
            let list = examples(row);
            assert!(!list.is_empty(), "{}", row.row().form);
            count += list.len();
            let text = kernel(PtxVersion::new(8, 7), Target::SM_90A, list.iter().map(|example| example.text.as_str()));
            let module = parse(&text).unwrap_or_else(|error| panic!("{}: {}", row.row().form, error.render(&text)));
            let printed = print(&module);
            assert_eq!(parse(&printed).unwrap_or_else(|error| panic!("{}", error.render(&printed))), module);
            assert_eq!(check(&module), [], "{}", row.row().form);
        }
        println!("{count} instructions of {} rows", rows().len());
    }
}

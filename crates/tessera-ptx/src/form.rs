//! Rows of the instruction table and how a mnemonic is matched against them.
//!
//! A row's **form** is written like the PTX manual writes it:
//!
//! ```text
//! add.(rn|rz|rm|rp)?.ftz?.sat?.f32        a choice in parentheses, `?` for a part that may be left out
//! add.INT                                 a class in capitals stands for its members
//! mul.(lo|hi)/.INT                        what stands before `/` is the opcode
//! mbarrier.init/[.relaxed.(cta|cluster)]? parts that are there together or not at all
//! ```
//!
//! **Order.** Assemblers take the opcode's parts in their order, in front, and the other modifiers in any order, but for those of
//! one kind, which mean different operands by their places: types, spaces, layouts, priorities of caches, logical operations. That is the rule
//! here ([`Form::arrange`]); an instruction of the model has its modifiers in the row's order.
//!
//! Operands are described in `operand_rule`. Forms are compiled once, on first use; a test compiles them all.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::mnemonic::Mnemonic;
use crate::operand_rule::OperandRule;
use crate::table::ROWS;
use crate::target::{Needs, PtxVersion};
use crate::types::Type;
use crate::word::{Modifier, Word};

/// One instruction form of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Under which heading the coverage page lists it.
    pub section: &'static str,
    /// Mnemonic and modifiers; see the module's head.
    pub form: &'static str,
    /// Operand pattern.
    pub operands: &'static str,
    /// The first PTX version that has it.
    pub ptx: PtxVersion,
    /// The target that it needs.
    pub needs: Needs,
}

impl Row {
    /// The form as messages show it.
    pub fn shown(&self) -> String {
        self.form.replace('/', "")
    }
}

/// The number of a row in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(
    /// Into [`rows`].
    pub u16,
);

impl RowId {
    /// The row.
    pub fn row(self) -> &'static Row {
        &ROWS[self.0 as usize]
    }

    /// What its form begins with.
    pub fn mnemonic(self) -> Mnemonic {
        form(self).mnemonic
    }
}

/// Every row of the table, in its order.
pub fn rows() -> &'static [Row] {
    &ROWS
}

/// A place of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) choices: Vec<Modifier>,
    pub(crate) optional: bool,
    /// Slots of one group are all filled or all left out.
    pub(crate) group: Option<u8>,
}

/// A compiled row.
#[derive(Debug)]
pub(crate) struct Form {
    mnemonic: Mnemonic,
    pub(crate) slots: Vec<Slot>,
    /// How many slots belong to the opcode.
    opcode: usize,
    pub(crate) operands: Vec<OperandRule>,
}

struct Compiled {
    forms: Vec<Form>,
    by_mnemonic: BTreeMap<Mnemonic, Vec<RowId>>,
}

static COMPILED: LazyLock<Compiled> = LazyLock::new(|| {
    let compiled = |row: &Row| compile(row).unwrap_or_else(|problem| panic!("{}: {problem}", row.form));
    let forms: Vec<Form> = ROWS.iter().map(compiled).collect();
    let mut by_mnemonic: BTreeMap<Mnemonic, Vec<RowId>> = BTreeMap::new();
    for (index, form) in forms.iter().enumerate() {
        by_mnemonic.entry(form.mnemonic).or_default().push(RowId(index as u16));
    }
    Compiled { forms, by_mnemonic }
});

pub(crate) fn form(row: RowId) -> &'static Form {
    &COMPILED.forms[row.0 as usize]
}

/// The rows of a mnemonic, in table order.
pub(crate) fn rows_of(mnemonic: Mnemonic) -> &'static [RowId] {
    COMPILED.by_mnemonic.get(&mnemonic).map_or(&[], Vec::as_slice)
}

/// Modifiers of one kind keep their order: what each means is said by its place among them.
fn kind(modifier: Modifier) -> u32 {
    match modifier {
        Modifier::Type(_) => 0,
        Modifier::Word(Word::Row | Word::Col) => 1,
        Modifier::Word(
            Word::Param
            | Word::ParamEntry
            | Word::ParamFunc
            | Word::Global
            | Word::Shared
            | Word::SharedCta
            | Word::SharedCluster
            | Word::Local
            | Word::Const,
        ) => 2,
        Modifier::Word(Word::L2EvictLast | Word::L2EvictNormal | Word::L2EvictFirst | Word::L2EvictUnchanged) => 3,
        Modifier::Word(Word::And | Word::Or | Word::Xor | Word::Popc) => 4,
        Modifier::Shape { .. } => 5,
        Modifier::Word(word) => 6 + word as u32,
    }
}

impl Form {
    /// Whether the modifiers fill the slots, in order, each mandatory one exactly once.
    pub(crate) fn takes(&self, modifiers: &[Modifier]) -> bool {
        fn fill(slots: &[Slot], modifiers: &[Modifier], filled: &mut Vec<bool>) -> bool {
            let Some((slot, later)) = slots.split_first() else { return modifiers.is_empty() };
            if let Some((modifier, rest)) = modifiers.split_first()
                && slot.choices.contains(modifier)
            {
                filled.push(true);
                if fill(later, rest, filled) {
                    return true;
                }
                filled.pop();
            }
            if slot.optional {
                filled.push(false);
                if fill(later, modifiers, filled) {
                    return true;
                }
                filled.pop();
            }
            false
        }
        let mut filled = Vec::with_capacity(self.slots.len());
        fill(&self.slots, modifiers, &mut filled) && self.whole_groups(&filled) && short_enough(modifiers)
    }

    fn whole_groups(&self, filled: &[bool]) -> bool {
        let mut groups: [Option<bool>; 4] = [None; 4];
        self.slots.iter().zip(filled).all(|(slot, &filled)| match slot.group {
            Some(group) => *groups[usize::from(group) % 4].get_or_insert(filled) == filled,
            None => true,
        })
    }

    /// The modifiers in the slots' order, where they fill the row in an order that assemblers take.
    pub(crate) fn arrange(&self, modifiers: &[Modifier]) -> Option<Vec<Modifier>> {
        if modifiers.len() > self.slots.len() {
            return None;
        }
        if self.takes(modifiers) {
            return Some(modifiers.to_vec());
        }
        let mut search = Search { form: self, written: modifiers, free: vec![true; modifiers.len()], order: Vec::new() };
        search.fill(0).then(|| search.order.iter().flatten().map(|&index| modifiers[index]).collect())
    }
}

/// Which of the written modifiers fills which slot.
struct Search<'a> {
    form: &'a Form,
    written: &'a [Modifier],
    free: Vec<bool>,
    order: Vec<Option<usize>>,
}

impl Search<'_> {
    fn fill(&mut self, at: usize) -> bool {
        let Some(slot) = self.form.slots.get(at) else {
            let filled: Vec<bool> = self.order.iter().map(Option::is_some).collect();
            let ordered: Vec<Modifier> = self.order.iter().flatten().map(|&index| self.written[index]).collect();
            return !self.free.contains(&true) && self.form.whole_groups(&filled) && short_enough(&ordered);
        };
        let in_opcode = at < self.form.opcode;
        for index in 0..self.written.len() {
            let modifier = self.written[index];
            if !self.free[index] || !slot.choices.contains(&modifier) {
                continue;
            }
            // A part of the opcode is the next one that is written; any other the first of its kind that is left.
            let overtakes = |other: usize| self.free[other] && (in_opcode || kind(self.written[other]) == kind(modifier));
            if (0..index).any(overtakes) {
                continue;
            }
            self.free[index] = false;
            self.order.push(Some(index));
            if self.fill(at + 1) {
                return true;
            }
            self.order.pop();
            self.free[index] = true;
        }
        if slot.optional {
            self.order.push(None);
            if self.fill(at + 1) {
                return true;
            }
            self.order.pop();
        }
        false
    }
}

/// Vectors of elements have at most 128 bits.
pub(crate) fn short_enough(modifiers: &[Modifier]) -> bool {
    let lanes = lanes_of(modifiers);
    lanes == 1 || types_of(modifiers).next().is_none_or(|ty| lanes * ty.bits() <= 128)
}

/// How many elements `.v2`, `.v4` or `.v8` asks for.
pub(crate) fn lanes_of(modifiers: &[Modifier]) -> u32 {
    let lanes = modifiers.iter().find_map(|modifier| match modifier {
        Modifier::Word(Word::V2) => Some(2),
        Modifier::Word(Word::V4) => Some(4),
        Modifier::Word(Word::V8) => Some(8),
        _ => None,
    });
    lanes.unwrap_or(1)
}

fn compile(row: &Row) -> Result<Form, String> {
    let mut slots = Vec::new();
    let (text, mut rest) = row.form.split_at(row.form.find('.').unwrap_or(row.form.len()));
    let mnemonic = Mnemonic::parse(text).ok_or_else(|| format!("`{text}` is no mnemonic"))?;
    let (mut opcode, mut group, mut groups) = (0, None, 0);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('/') {
            opcode = slots.len();
            rest = after;
        } else if let Some(after) = rest.strip_prefix('[') {
            group = Some(groups);
            groups += 1;
            rest = after;
        } else if let Some(after) = rest.strip_prefix("]?") {
            group = None;
            rest = after;
        } else {
            let (slot, after) = part(rest, group)?;
            slots.push(slot);
            rest = after;
        }
    }
    let operands = row.operands.split_whitespace().map(OperandRule::parse).collect::<Result<_, _>>()?;
    Ok(Form { mnemonic, slots, opcode, operands })
}

/// One dotted part of a form, and what stands behind it.
fn part(text: &str, group: Option<u8>) -> Result<(Slot, &str), String> {
    let tail = text.strip_prefix('.').ok_or_else(|| format!("`{text}` is left over"))?;
    let (inside, after) = match tail.strip_prefix('(') {
        Some(tail) => tail.split_once(')').ok_or("a choice is not closed")?,
        None => tail.split_at(tail.find(['.', '?', '/', '[', ']']).unwrap_or(tail.len())),
    };
    let optional = after.starts_with('?');
    let slot = Slot { choices: choices(inside)?, optional: optional || group.is_some(), group };
    Ok((slot, if optional { &after[1..] } else { after }))
}

/// The modifiers that a list of words and classes stands for.
pub(crate) fn choices(list: &str) -> Result<Vec<Modifier>, String> {
    let mut found = Vec::new();
    for word in list.split('|') {
        let members = class(word);
        let names = members.as_deref().unwrap_or(word).split_whitespace();
        for name in names {
            found.push(Modifier::parse(name).ok_or_else(|| format!("`{name}` is no modifier"))?);
        }
    }
    Ok(found)
}

/// The members of a class.
fn class(name: &str) -> Option<std::borrow::Cow<'static, str>> {
    let shapes =
        |k: u32, widths: &mut dyn Iterator<Item = u32>| widths.map(|n| format!("m64n{n}k{k}")).collect::<Vec<_>>().join(" ");
    // Integer products have no width of 8 times an odd number but 8 and 24.
    let integer = || (8..=256).step_by(8).filter(|n| n % 16 == 0 || *n <= 24);
    let members = match name {
        "INT" => "u16 u32 u64 s16 s32 s64",
        "BITS" => "b16 b32 b64",
        "MEM" => "b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64",
        "RND" => "rn rz rm rp",
        "IRND" => "rni rzi rmi rpi",
        "SCOPE" => "cta cluster gpu sys",
        "CTA" => "shared shared::cta",
        "SHARED" => "shared shared::cta shared::cluster",
        "COORD" => "1d 2d 3d 4d 5d",
        "CMP" => "eq ne lt le gt ge equ neu ltu leu gtu geu num nan",
        "BOOL" => "and or xor",
        "VEC" => "v2 v4",
        "LDCOP" => "ca cg cs lu cv",
        "STCOP" => "wb cg cs wt",
        "EVICT" => "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate",
        "PREFETCH" => "L2::64B L2::128B L2::256B",
        "M64NK8" => return Some(shapes(8, &mut (8..=256).step_by(8)).into()),
        "M64NK16" => return Some(shapes(16, &mut (8..=256).step_by(8)).into()),
        "M64NK32" => return Some(shapes(32, &mut (8..=256).step_by(8)).into()),
        "M64NK64" => return Some(shapes(64, &mut (8..=256).step_by(8)).into()),
        "M64IK32" => return Some(shapes(32, &mut integer()).into()),
        "M64IK64" => return Some(shapes(64, &mut integer()).into()),
        "M64IK256" => return Some(shapes(256, &mut integer()).into()),
        _ => return None,
    };
    Some(members.into())
}

/// The types among an instruction's modifiers, in order.
pub(crate) fn types_of(modifiers: &[Modifier]) -> impl DoubleEndedIterator<Item = Type> + '_ {
    modifiers.iter().filter_map(|modifier| match modifier {
        Modifier::Type(ty) => Some(*ty),
        Modifier::Shape { .. } | Modifier::Word(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modifiers(text: &str) -> Vec<Modifier> {
        text.split('.').skip(1).map(|part| Modifier::parse(part).unwrap()).collect()
    }

    /// The text in the order of the first row that takes it.
    fn arranged(text: &str) -> Option<String> {
        let mnemonic = text.split('.').next().unwrap();
        let found = rows_of(Mnemonic::parse(mnemonic).unwrap()).iter().find_map(|&row| form(row).arrange(&modifiers(text)))?;
        Some(found.iter().fold(mnemonic.to_owned(), |text, modifier| format!("{text}.{modifier}")))
    }

    #[test]
    fn every_row_compiles_and_every_mnemonic_has_rows() {
        assert_eq!(COMPILED.forms.len(), rows().len());
        for &mnemonic in Mnemonic::ALL {
            assert!(!rows_of(mnemonic).is_empty(), "{mnemonic}");
        }
    }

    #[test]
    fn every_word_is_used_by_a_row() {
        let used = |word: Word| {
            COMPILED.forms.iter().flat_map(|form| &form.slots).any(|slot| slot.choices.contains(&Modifier::Word(word)))
        };
        let unused: Vec<_> = Word::ALL.iter().filter(|&&word| !used(word)).collect();
        assert!(unused.is_empty(), "{unused:?}");
    }

    #[test]
    fn modifiers_may_be_reordered_where_places_mean_nothing() {
        for (written, wanted) in [
            ("add.f32.ftz.rn", "add.rn.ftz.f32"),
            ("ldmatrix.sync.aligned.x4.m8n8.shared.b16", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
            ("vote.ballot.sync.b32", "vote.sync.ballot.b32"),
            ("ld.global.gpu.acquire.b32", "ld.acquire.gpu.global.b32"),
            ("mbarrier.arrive.b64.shared.cta.release", "mbarrier.arrive.release.cta.shared.b64"),
        ] {
            assert_eq!(arranged(written).as_deref(), Some(wanted));
        }
        for refused in [
            "mul.u32.lo",
            "cvt.f32.rn.f16.s32",
            "cp.async.bulk.global.shared::cluster.mbarrier::complete_tx::bytes",
            "mbarrier.arrive.release.b64",
            "mbarrier.parity.test_wait.b64",
            "ld.v4.f64",
            "add.rn.ftz",
        ] {
            assert_eq!(arranged(refused), None);
        }
    }
}

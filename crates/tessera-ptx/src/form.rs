//! Rows of the instruction table and how a mnemonic is matched against them.
//!
//! A row's **form** is written like the PTX manual writes it:
//!
//! ```text
//! add.(rn|rz|rm|rp)?.ftz?.sat?.f32        a choice in parentheses, `?` for a part that may be left out
//! add.INT                                 a class in capitals stands for its members
//! wgmma.mma_async.sync.aligned.SHAPE...   SHAPE is any mMnNkK
//! ```
//!
//! Its **operands** are described in `operand_rule`. Forms are compiled once, on first use; a test compiles them all.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::operand_rule::OperandRule;
use crate::table::ROWS;
use crate::target::{Needs, PtxVersion};
use crate::types::Type;
use crate::word::Modifier;

/// One instruction form of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
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
    /// The mnemonic: the form up to its first dot.
    pub fn mnemonic(&self) -> &'static str {
        self.form.split('.').next().unwrap_or(self.form)
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
}

/// Every row of the table, in its order.
pub fn rows() -> &'static [Row] {
    ROWS
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Choice {
    One(Modifier),
    AnyShape,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    choices: Vec<Choice>,
    optional: bool,
}

impl Slot {
    fn takes(&self, modifier: Modifier) -> bool {
        self.choices.iter().any(|choice| match choice {
            Choice::One(one) => *one == modifier,
            Choice::AnyShape => matches!(modifier, Modifier::Shape { .. }),
        })
    }
}

/// A compiled row.
#[derive(Debug)]
pub(crate) struct Form {
    slots: Vec<Slot>,
    pub(crate) operands: Vec<OperandRule>,
}

struct Compiled {
    forms: Vec<Form>,
    by_mnemonic: BTreeMap<&'static str, Vec<RowId>>,
}

static COMPILED: LazyLock<Compiled> = LazyLock::new(|| {
    let forms = ROWS.iter().map(|row| compile(row).unwrap_or_else(|problem| panic!("{}: {problem}", row.form)));
    let mut by_mnemonic: BTreeMap<&'static str, Vec<RowId>> = BTreeMap::new();
    for (index, row) in ROWS.iter().enumerate() {
        by_mnemonic.entry(row.mnemonic()).or_default().push(RowId(index as u16));
    }
    Compiled { forms: forms.collect(), by_mnemonic }
});

pub(crate) fn form(row: RowId) -> &'static Form {
    &COMPILED.forms[row.0 as usize]
}

/// The rows of a mnemonic, in table order; none for an unknown one.
pub(crate) fn rows_of(mnemonic: &str) -> &'static [RowId] {
    COMPILED.by_mnemonic.get(mnemonic).map_or(&[], Vec::as_slice)
}

impl Form {
    /// Whether the modifiers fill the slots, in order, each mandatory one exactly once.
    pub(crate) fn takes(&self, modifiers: &[Modifier]) -> bool {
        fits(&self.slots, modifiers)
    }

    /// The modifiers in the slots' order, where each finds a slot of its own. For instructions whose modifiers compilers
    /// write in several orders and the assembler takes in any.
    pub(crate) fn arranged(&self, modifiers: &[Modifier]) -> Option<Vec<Modifier>> {
        let mut left = modifiers.to_vec();
        let mut ordered = Vec::with_capacity(left.len());
        for slot in &self.slots {
            match left.iter().position(|&modifier| slot.takes(modifier)) {
                Some(index) => ordered.push(left.remove(index)),
                None if slot.optional => {}
                None => return None,
            }
        }
        left.is_empty().then_some(ordered)
    }
}

fn fits(slots: &[Slot], modifiers: &[Modifier]) -> bool {
    let Some((slot, later)) = slots.split_first() else { return modifiers.is_empty() };
    if let Some((&modifier, rest)) = modifiers.split_first()
        && slot.takes(modifier)
        && fits(later, rest)
    {
        return true;
    }
    slot.optional && fits(later, modifiers)
}

fn compile(row: &Row) -> Result<Form, String> {
    let mut slots = Vec::new();
    let mut rest = &row.form[row.mnemonic().len()..];
    while let Some(tail) = rest.strip_prefix('.') {
        let (inside, after) = match tail.strip_prefix('(') {
            Some(tail) => tail.split_once(')').ok_or("a choice is not closed")?,
            None => tail.split_at(tail.find(['.', '?']).unwrap_or(tail.len())),
        };
        let mut choices = Vec::new();
        for part in inside.split('|') {
            choose(part, &mut choices)?;
        }
        let optional = after.starts_with('?');
        rest = if optional { &after[1..] } else { after };
        slots.push(Slot { choices, optional });
    }
    if !rest.is_empty() {
        return Err(format!("`{rest}` is left over"));
    }
    let operands = row.operands.split_whitespace().map(OperandRule::parse).collect::<Result<_, _>>()?;
    Ok(Form { slots, operands })
}

fn choose(part: &str, choices: &mut Vec<Choice>) -> Result<(), String> {
    let class: &[&str] = match part {
        "SHAPE" => {
            choices.push(Choice::AnyShape);
            return Ok(());
        }
        "INT" => &["u16", "u32", "u64", "s16", "s32", "s64"],
        "BITS" => &["b16", "b32", "b64"],
        "MEM" => &["b8", "b16", "b32", "b64", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f32", "f64"],
        "RND" => &["rn", "rz", "rm", "rp"],
        "SCOPE" => &["cta", "cluster", "gpu", "sys"],
        "SHARED" => &["shared", "shared::cta"],
        "COORD" => &["1d", "2d", "3d", "4d", "5d"],
        _ => &[],
    };
    if class.is_empty() {
        choices.push(Choice::One(Modifier::parse(part).ok_or_else(|| format!("`{part}` is no modifier"))?));
    }
    for member in class {
        choices.push(Choice::One(Modifier::parse(member).ok_or_else(|| format!("`{member}` is no modifier"))?));
    }
    Ok(())
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
    use crate::word::Word;

    fn modifiers(text: &str) -> Vec<Modifier> {
        text.split('.').skip(1).map(|part| Modifier::parse(part).unwrap()).collect()
    }

    #[test]
    fn every_row_compiles_and_every_mnemonic_is_found() {
        assert_eq!(COMPILED.forms.len(), rows().len());
        for row in rows() {
            assert!(!rows_of(row.mnemonic()).is_empty());
        }
        assert!(rows_of("frobnicate").is_empty());
    }

    #[test]
    fn every_word_is_used_by_a_row() {
        let used = |word: Word| COMPILED.forms.iter().flat_map(|form| &form.slots).any(|slot| slot.takes(Modifier::Word(word)));
        let unused: Vec<_> = Word::ALL.iter().filter(|&&word| !used(word)).collect();
        assert!(unused.is_empty(), "{unused:?}");
    }

    #[test]
    fn optional_parts_may_be_left_out_but_not_reordered() {
        let row = rows_of("add").iter().copied().find(|row| row.row().form.ends_with("f32")).unwrap();
        assert!(form(row).takes(&modifiers("add.rn.ftz.f32")));
        assert!(form(row).takes(&modifiers("add.f32")));
        assert!(!form(row).takes(&modifiers("add.ftz.rn.f32")));
        assert!(!form(row).takes(&modifiers("add.rn.ftz")));
    }
}

//! Operations: a row of the table with its modifiers, kept once a kernel, found by their text.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::code::Code;
use super::effects::{Effects, effects};
use crate::form::{RowId, form, rows_of};
use crate::mnemonic::Mnemonic;
use crate::types::Type;
use crate::word::{Modifier, Word};

/// An operation of a kernel: a row and modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Op(pub(crate) u32);

/// What an operation is.
#[derive(Clone, Debug, PartialEq)]
pub struct OpData {
    /// The row.
    pub row: RowId,
    /// The dotted parts.
    pub modifiers: Vec<Modifier>,
    /// Mnemonic and modifiers as they are printed.
    pub text: Box<str>,
    /// What it computes, where it is scalar arithmetic.
    pub code: Option<Code>,
    /// What it may do beside computing its results.
    pub effects: Effects,
}

impl OpData {
    /// The mnemonic.
    pub fn mnemonic(&self) -> Mnemonic {
        self.row.mnemonic()
    }

    /// Whether a word is among its modifiers.
    pub(crate) fn has(&self, word: Word) -> bool {
        self.modifiers.contains(&Modifier::Word(word))
    }

    /// The last type among its modifiers, which says what an element is.
    pub(crate) fn element(&self) -> Option<Type> {
        self.modifiers.iter().rev().find_map(|modifier| match modifier {
            Modifier::Type(ty) => Some(*ty),
            Modifier::Word(_) | Modifier::Shape { .. } => None,
        })
    }
}

/// The operations that a kernel uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpTable {
    ops: Vec<OpData>,
    /// The operations of each text that was asked for, in table order.
    by_text: FxHashMap<Box<str>, Arc<[Op]>>,
}

impl OpTable {
    pub(crate) fn get(&self, op: Op) -> &OpData {
        &self.ops[op.0 as usize]
    }

    /// The operations that a text such as `add.rn.f32` may mean; which one, the operands decide.
    pub(crate) fn find(&mut self, text: &str) -> Result<Arc<[Op]>, String> {
        if let Some(found) = self.by_text.get(text) {
            return Ok(found.clone());
        }
        let found: Arc<[Op]> = self.resolve(text)?.into();
        self.by_text.insert(text.into(), found.clone());
        Ok(found)
    }

    fn resolve(&mut self, text: &str) -> Result<Vec<Op>, String> {
        let unknown = || format!("`{text}` is no instruction of the table");
        let mut parts = text.split('.');
        let mnemonic = parts.next().and_then(Mnemonic::parse).ok_or_else(unknown)?;
        let modifiers: Vec<Modifier> = parts
            .map(|part| Modifier::parse(part).ok_or_else(|| format!("`.{part}` is no modifier: `{text}`")))
            .collect::<Result<_, _>>()?;
        let mut found = Vec::new();
        let (code, effects) = (Code::of(mnemonic, &modifiers), effects(mnemonic, &modifiers));
        for &row in rows_of(mnemonic).iter().filter(|&&row| form(row).takes(&modifiers)) {
            found.push(Op(self.ops.len() as u32));
            self.ops.push(OpData { row, modifiers: modifiers.clone(), text: text.into(), code, effects });
        }
        if found.is_empty() { Err(unknown()) } else { Ok(found) }
    }
}

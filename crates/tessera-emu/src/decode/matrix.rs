//! Matrix instructions of a warp and of a warpgroup.

use smallvec::SmallVec;
use tessera_ptx::{Operand, Type, Word};

use super::modifiers::Mods;
use super::operands::space;
use super::{Builder, Result};
use crate::ops::round::Directed;
use crate::program::{Metadata, Mma, Op, Piece, Reg, Wgmma, WgmmaA};

/// Whether single bits are compared rather than joined, before they are counted.
fn reduction(mods: Mods<'_>) -> bool {
    let words: SmallVec<[Word; 2]> =
        mods.each(|word| matches!(word, Word::Xor | Word::And | Word::Popc).then_some(word)).collect();
    words.first() == Some(&Word::Xor)
}

/// Whether A and B are spread by rows.
fn by_rows(mods: Mods<'_>) -> [bool; 2] {
    let words: SmallVec<[Word; 2]> = mods.each(|word| matches!(word, Word::Row | Word::Col).then_some(word)).collect();
    [words.first() == Some(&Word::Row), words.get(1) == Some(&Word::Row)]
}

impl Builder<'_> {
    pub(super) fn matrix(&mut self, mnemonic: &str, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let transpose = mods.has(Word::Trans);
        match mnemonic {
            "ldmatrix" => {
                let addr = self.address(&operands[1], space(mods))?;
                let to = self.results(&operands[0])?.into();
                self.emit(Op::LoadMatrix { to, addr, transpose });
                Ok(true)
            }
            "stmatrix" => {
                let addr = self.address(&operands[0], space(mods))?;
                let from = self.sources(&operands[1], false)?;
                self.emit(Op::StoreMatrix { from, addr, transpose });
                Ok(true)
            }
            "movmatrix" => {
                let from = self.value(&operands[1], false)?;
                let to = self.destination(&operands[0], false)?;
                self.emit(Op::MoveMatrix { to, from });
                Ok(true)
            }
            "mma" => self.mma(mods, operands),
            "wmma" => self.wmma(mods, operands),
            _ => self.wgmma(mods, operands),
        }
    }

    fn results(&mut self, operand: &Operand) -> Result<Vec<Reg>> {
        let parts = Self::parts(operand);
        parts
            .iter()
            .map(|part| match self.target(part)? {
                Some(reg) => Ok(reg),
                None => Ok(self.scratch(false)),
            })
            .collect()
    }

    fn mma(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let Some(shape) = mods.shape() else { return Ok(false) };
        let types: SmallVec<[Type; 4]> = mods.types().collect();
        let &[d_ty, a_ty, b_ty, c_ty] = &types[..] else { return Ok(false) };
        let wide = a_ty == Type::F64;
        let [d, a, b, c, rest @ ..] = operands else { return Ok(false) };
        let a = self.sources(a, wide)?.to_vec();
        let b = self.sources(b, wide)?.to_vec();
        let c = self.sources(c, wide)?.to_vec();
        let sparse = match rest {
            [] => None,
            [metadata, Operand::Int(selector)] => {
                let ordered = match mods.any(&[Word::Sp, Word::SpOrdered]) {
                    Some(Word::SpOrdered) => true,
                    Some(_) => false,
                    None => return Ok(false),
                };
                Some(self.metadata(metadata, *selector, ordered, (a_ty, shape.2))?)
            }
            _ => return Ok(false),
        };
        let d = self.results(d)?;
        let mma = Mma {
            shape,
            types: [d_ty, a_ty, b_ty, c_ty],
            d,
            a,
            b,
            c,
            saturate: mods.has(Word::Satfinite),
            xor: reduction(mods),
            sparse,
            directed: mods.pick(Directed::of),
            by_rows: by_rows(mods),
        };
        self.emit(Op::Mma(Box::new(mma)));
        Ok(true)
    }

    /// The operands that say where the stored half of A stood.
    fn metadata(&mut self, register: &Operand, selector: i64, ordered: bool, (ty, k): (Type, u16)) -> Result<Metadata> {
        let selectors = crate::exec::sparse::selectors(ty, usize::from(k));
        match u32::try_from(selector) {
            Ok(selector) if selector < selectors => Ok(Metadata { reg: self.value(register, false)?, selector, ordered }),
            _ => Err(format!("the metadata of this product is chosen by a number below {selectors}, not {selector}")),
        }
    }

    fn wmma(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let Some((m, n, k)) = mods.shape() else { return Ok(false) };
        if mods.has(Word::Mma) {
            let types: SmallVec<[Type; 4]> = mods.types().collect();
            let types = match types[..] {
                // Factors without a type are f16.
                [d, c] => [d, Type::F16, Type::F16, c],
                [d, a, b, c] => [d, a, b, c],
                _ => return Ok(false),
            };
            let [d, a, b, c] = operands else { return Ok(false) };
            let wide = types[1] == Type::F64;
            let (a, b, c) = (self.sources(a, wide)?.to_vec(), self.sources(b, wide)?.to_vec(), self.sources(c, wide)?.to_vec());
            let d = self.results(d)?;
            let mma = Mma {
                shape: (m, n, k),
                types,
                d,
                a,
                b,
                c,
                saturate: mods.has(Word::Satfinite),
                xor: reduction(mods),
                sparse: None,
                directed: mods.pick(Directed::of),
                // How the pieces lie in memory, their loads have said.
                by_rows: by_rows(mods),
            };
            self.emit(Op::Wmma(Box::new(mma)));
            return Ok(true);
        }
        let (rows, columns) = match mods.any(&[Word::MatrixA, Word::MatrixB]) {
            Some(Word::MatrixA) => (m, k),
            Some(_) => (k, n),
            None => (m, n),
        };
        let piece = Piece { rows, columns, by_rows: mods.has(Word::Row), ty: mods.ty()? };
        let stride = operands.get(2).map(|operand| self.value(operand, false)).transpose()?;
        if mods.has(Word::Load) {
            let addr = self.address(&operands[1], space(mods))?;
            let to = self.results(&operands[0])?;
            self.emit(Op::WmmaLoad { to, addr, stride, piece });
        } else {
            let addr = self.address(&operands[0], space(mods))?;
            let from = self.sources(&operands[1], piece.ty.bits() == 64)?.to_vec();
            self.emit(Op::WmmaStore { from, addr, stride, piece });
        }
        Ok(true)
    }

    fn wgmma(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        if mods.has(Word::Fence) {
            self.emit(Op::WgmmaFence);
            return Ok(true);
        }
        if mods.has(Word::CommitGroup) {
            self.emit(Op::WgmmaCommit);
            return Ok(true);
        }
        if mods.has(Word::WaitGroup) {
            let Some(Operand::Int(left)) = operands.first() else { return Ok(false) };
            self.emit(Op::WgmmaWait { left: *left as u32 });
            return Ok(true);
        }
        let Some((_, n, k)) = mods.shape() else { return Ok(false) };
        let types: SmallVec<[Type; 3]> = mods.types().collect();
        let (&[d_ty, a_ty, b_ty], [d, a, b, rest @ ..]) = (&types[..], operands) else { return Ok(false) };
        let (sparse, rest) = match (mods.has(Word::Sp), rest) {
            (true, [metadata, Operand::Int(selector), rest @ ..]) => {
                (Some(self.metadata(metadata, *selector, false, (types[1], k))?), rest)
            }
            (true, _) => return Ok(false),
            (false, rest) => (None, rest),
        };
        let [scale, rest @ ..] = rest else { return Ok(false) };
        let in_registers = matches!(a, Operand::Vector(_));
        let a = match in_registers {
            true => WgmmaA::Registers(self.sources(a, false)?.to_vec()),
            false => WgmmaA::Descriptor(self.value(a, true)?),
        };
        let b = self.value(b, true)?;
        let accumulate = self.predicate(scale)?;
        let numbers: SmallVec<[i64; 4]> =
            rest.iter().filter_map(|operand| if let Operand::Int(value) = operand { Some(*value) } else { None }).collect();
        let at = |index: usize| numbers.get(index).copied().unwrap_or(0);
        let (transpose_a, transpose_b) = match (in_registers, numbers.len()) {
            (true, 3..) => (false, at(2) == 1),
            (false, 4..) => (at(2) == 1, at(3) == 1),
            _ => (false, false),
        };
        let (negate_a, negate_b) = (at(0) == -1, at(1) == -1);
        let d = self.results(d)?;
        let wgmma = Wgmma {
            n,
            k,
            types: [d_ty, a_ty, b_ty],
            d,
            a,
            b,
            accumulate,
            negate_a,
            negate_b,
            transpose_a,
            transpose_b,
            saturate: mods.has(Word::Satfinite),
            sparse,
        };
        // Single bits have no other operation.
        if a_ty == Type::B1 && reduction(mods) {
            return Ok(false);
        }
        crate::exec::wgmma::supported(&wgmma)?;
        self.emit(Op::Wgmma(Box::new(wgmma)));
        Ok(true)
    }
}

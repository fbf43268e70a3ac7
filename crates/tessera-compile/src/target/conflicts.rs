//! What accesses to shared memory cost: the bank conflicts of the instructions that move tiles.
//!
//! The first instruction of a move is looked at as its first warp executes it; the others differ by a constant. A degree of 4 means that
//! the busiest bank is asked four times.

use tessera_ir::Span;
use tessera_layout::{Distribution, WARP, wavefronts};

use super::bound::Buffer;
use super::lowering::Lowering;

/// One move between registers and shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedAccess {
    /// The operation that it is made for.
    pub span: Span,
    /// It writes.
    pub stores: bool,
    /// Bytes that a lane moves with an instruction.
    pub bytes: u32,
    /// Instructions of a warp.
    pub instructions: u32,
    /// How often the busiest bank is asked by one phase of an instruction; 1 is free of conflicts.
    pub degree: u32,
}

impl Lowering<'_> {
    /// Notes a move of a tile: `registers` are those of the first instruction, `count` the instructions.
    pub(super) fn note_access(
        &mut self,
        buffer: &Buffer,
        layout: &Distribution,
        registers: &[usize],
        count: usize,
        stores: bool,
    ) {
        let Some(&first) = registers.first() else { return };
        let bytes = (registers.len() * buffer.elem.unpacked_bytes()) as u64;
        let mut addresses = [None; WARP as usize];
        for (lane, address) in addresses.iter_mut().enumerate() {
            *address = layout.element(first as u64, lane as u64).map(|element| {
                let offset = buffer.offset(&element);
                let mask = ((1u64 << buffer.swizzle.bits) - 1) << buffer.swizzle.base;
                offset ^ (offset >> buffer.swizzle.shift & mask)
            });
        }
        let degree = wavefronts(&addresses, bytes).into_iter().max().unwrap_or(0);
        let (bytes, instructions) = (bytes as u32, count as u32);
        self.accesses.push(SharedAccess { span: self.span, stores, bytes, instructions, degree });
    }
}

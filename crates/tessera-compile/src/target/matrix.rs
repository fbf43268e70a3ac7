//! Tiles out of shared memory by `ldmatrix`: rows of 16 bytes, eight of them a matrix, handed out to a warp as fragments.

use smallvec::SmallVec;
use tessera_ir::Elem;
use tessera_layout::{Axis, Distribution, MatrixAccess};
use tessera_ptx::ssa::Value as Reg;

use super::bound::{Buffer, Regs};
use super::lowering::Lowering;

impl Lowering<'_> {
    /// A buffer's elements as a tile by matrix loads; `None` where they do not lie that way.
    pub(super) fn load_matrices(&mut self, buffer: &Buffer, layout: &Distribution) -> Option<Regs> {
        let access = buffer.matrix_access(layout).filter(|_| self.arch.has_ldmatrix())?;
        let elem = Elem::Num(buffer.elem);
        let zero = self.bits(elem, 0);
        let mut regs: Regs = std::iter::repeat_n(zero, layout.registers() as usize).collect();
        let corner = self.row_address(layout, &access);
        let per_word = 4 / buffer.elem.unpacked_bytes() as u64;
        for base in access.registers.bases(layout) {
            let address = self.moved_row(buffer, layout, base, &corner);
            let words = self.b.ldmatrix(access.matrices as usize, access.transposed, address);
            for (word, &reg) in words.iter().enumerate() {
                let parts = self.split(elem, &[reg], per_word as usize);
                for (i, part) in parts.into_iter().enumerate() {
                    let register = access.registers.register(base, word as u64 * per_word + i as u64);
                    regs[register as usize] = part;
                }
            }
        }
        Some(regs)
    }

    /// The part of the row's coordinates that a lane's address takes from the thread's number.
    fn row_address(&mut self, layout: &Distribution, access: &MatrixAccess) -> SmallVec<[(Reg, u64); 4]> {
        let core = layout.core();
        (0..layout.rank())
            .map(|dim| {
                let lanes = (0..access.rows.bits(Axis::Lane)).map(|bit| (bit, access.rows.basis(Axis::Lane, bit)[dim]));
                let warps = (0..core.bits(Axis::Warp)).map(|bit| (5 + bit, core.basis(Axis::Warp, bit)[dim]));
                let bases: Vec<(usize, u64)> = lanes.chain(warps).collect();
                let bits = bases.iter().fold(0, |all, (_, basis)| all | basis);
                (self.scatter_bits(&bases), bits)
            })
            .collect()
    }

    /// The address of the row that a lane names in the instruction that begins at a register.
    fn moved_row(
        &mut self,
        buffer: &Buffer,
        layout: &Distribution,
        base: u64,
        corner: &[(Reg, u64)],
    ) -> tessera_ptx::ssa::Address {
        let position = layout.position(base, 0).unwrap_or_default();
        let plain = buffer.swizzle.bits == 0 && buffer.slabs.is_none();
        let mut address = buffer.base;
        let mut constant = 0;
        for (axis, &(thread, bits)) in corner.iter().enumerate() {
            if plain && position[axis] & bits == 0 {
                address = self.along(buffer, axis, thread, address);
                constant += position[axis] * buffer.strides[axis] * buffer.elem.unpacked_bytes() as u64;
                continue;
            }
            let start = self.b.u32(position[axis] as u32);
            let coordinate = if position[axis] & bits == 0 { self.b.or(thread, start) } else { self.b.xor(thread, start) };
            address = self.along(buffer, axis, coordinate, address);
        }
        if plain {
            return self.b.at(address, constant as i64);
        }
        self.mixed(buffer.swizzle, address).into()
    }
}

//! Tiles out of shared memory by `ldmatrix` and into it by `stmatrix`: rows of 16 bytes, eight of them a matrix, handed out to a warp as
//! fragments.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::{Elem, bug};
use tessera_layout::{Axis, Distribution, MatrixAccess};
use tessera_ptx::Type as Ty;
use tessera_ptx::ssa::{Address, Value as Reg};

use super::bound::{Buffer, Regs};
use super::lowering::Lowering;

/// The rows that a lane addresses.
struct Rows {
    /// What each coordinate takes from the thread's number, and which bits of it that may be.
    corner: SmallVec<[(Reg, u64); 4]>,
    /// Mixed addresses by how far, within the span of the buffer's pattern, they are from the lane's first row.
    mixed: FxHashMap<u64, Reg>,
}

impl Lowering<'_> {
    /// A buffer's elements as a tile by matrix loads; `None` where they do not lie that way.
    pub(super) fn load_matrices(&mut self, buffer: &Buffer, layout: &Distribution) -> Option<Regs> {
        let access = buffer.matrix_access(layout).filter(|_| self.arch.has_ldmatrix())?;
        let elem = Elem::Num(buffer.elem);
        let zero = self.bits(elem, 0);
        let mut regs: Regs = std::iter::repeat_n(zero, layout.registers() as usize).collect();
        let mut rows = self.rows(layout, &access);
        let per_word = 4 / buffer.elem.unpacked_bytes() as u64;
        for base in access.registers.bases(layout) {
            let address = self.row(buffer, layout, base, &mut rows);
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

    /// Writes a tile to a buffer, or so many bytes behind it (whole spans of its swizzle), by matrix stores, where that is better than by
    /// vectors; whether it is.
    pub(super) fn store_matrices(&mut self, buffer: &Buffer, bytes: u64, layout: &Distribution, regs: &Regs) -> bool {
        let access = if self.arch.has_stmatrix() { buffer.matrix_store(layout) } else { None };
        let Some(access) = access else { return false };
        let elem = Elem::Num(buffer.elem);
        let mut rows = self.rows(layout, &access);
        let per_word = 4 / buffer.elem.unpacked_bytes() as u64;
        for base in access.registers.bases(layout) {
            let mut address = self.row(buffer, layout, base, &mut rows);
            address.offset += bytes as i64;
            let mut words = Vec::new();
            for word in 0..access.matrices {
                let register = |i| access.registers.register(base, word * per_word + i) as usize;
                let parts: Vec<Reg> = (0..per_word).map(|i| regs[register(i)]).collect();
                words.extend(self.joined(elem, &parts));
            }
            self.b.stmatrix(access.transposed, address, &words);
        }
        true
    }

    /// The part of the rows' coordinates that a lane's address takes from the thread's number.
    fn rows(&mut self, layout: &Distribution, access: &MatrixAccess) -> Rows {
        let core = layout.core();
        let mut corner = SmallVec::new();
        for dim in 0..layout.rank() {
            let lanes = (0..access.rows.bits(Axis::Lane)).map(|bit| (bit, access.rows.basis(Axis::Lane, bit)[dim]));
            let warps = (0..core.bits(Axis::Warp)).map(|bit| (5 + bit, core.basis(Axis::Warp, bit)[dim]));
            let bases: Vec<(usize, u64)> = lanes.chain(warps).collect();
            let bits = bases.iter().fold(0, |all, (_, basis)| all | basis);
            corner.push((self.scatter_bits(&bases), bits));
        }
        Rows { corner, mixed: FxHashMap::default() }
    }

    /// The address of the row that a lane names in the instruction that begins at a register.
    fn row(&mut self, buffer: &Buffer, layout: &Distribution, base: u64, rows: &mut Rows) -> Address {
        let position = layout.position(base, 0).unwrap_or_else(|| bug!("a register that the layout has not"));
        let apart = rows.corner.iter().zip(&position).all(|(&(_, bits), &start)| start & bits == 0);
        let mut address = buffer.base;
        if !apart {
            for (axis, &(thread, _)) in rows.corner.iter().enumerate() {
                let start = self.b.u32(position[axis] as u32);
                let coordinate = self.b.xor(thread, start);
                address = self.along(buffer, axis, coordinate, address);
            }
            return self.mixed(buffer.swizzle, address).into();
        }
        // Without carries between the thread's part and the register's the two are added, and whole spans of the pattern behind the mixing.
        let offset = buffer.offset(&position);
        let pattern = buffer.swizzle;
        let within = offset % pattern.span();
        let mixed = match rows.mixed.get(&within) {
            Some(&mixed) => mixed,
            None => {
                for (axis, &(thread, _)) in rows.corner.iter().enumerate() {
                    address = self.along(buffer, axis, thread, address);
                }
                let start = self.b.u32(within as u32);
                let address = self.b.add(Ty::U32, address, start);
                let mixed = self.mixed(pattern, address);
                rows.mixed.insert(within, mixed);
                mixed
            }
        };
        self.b.at(mixed, (offset - within) as i64)
    }
}

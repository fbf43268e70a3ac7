//! Undefined elements of matrices. A product's element is undefined where its row of A, its column of B or its summand is,
//! wholly or in part: rows that a kernel pads with whatever is there spoil those rows alone.

use tessera_ptx::Type;

use super::{NOWHERE_YET, Origin, Who};
use crate::exec::access::Target;
use crate::exec::matrix::{fragment, operand, place, width};
use crate::exec::{Cluster, Warp, quad_pairs, sparse};
use crate::lanes::{LANES, lanes};
use crate::program::{Metadata, Mma, Reg};

/// Rows of an operand A, or columns of an operand B, in which something is undefined, and where the first of it comes from.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::exec) struct Lack {
    rows: [u64; 4],
    origin: Option<Origin>,
}

impl Lack {
    fn of(flags: impl Iterator<Item = bool>, k: usize, origin: Option<Origin>) -> Lack {
        let mut lack = Lack { rows: [0; 4], origin };
        for (at, flag) in flags.enumerate() {
            let row = at / k.max(1);
            lack.rows[row / 64 % 4] |= u64::from(flag) << (row % 64);
        }
        lack
    }

    fn has(&self, row: usize) -> bool {
        self.rows[row / 64 % 4] >> (row % 64) & 1 == 1
    }

    pub(in crate::exec) fn is_none(&self) -> bool {
        self.rows == [0; 4]
    }

    /// What either lacks.
    pub(in crate::exec) fn or(&self, other: &Lack) -> Lack {
        let rows = std::array::from_fn(|word| self.rows[word] | other.rows[word]);
        Lack { rows, origin: if self.is_none() { other.origin } else { self.origin } }
    }
}

/// An element of a product: its row and column, and where it stands.
#[derive(Clone, Copy, Debug)]
pub(in crate::exec) struct Element {
    pub(in crate::exec) row: usize,
    pub(in crate::exec) column: usize,
    pub(in crate::exec) reg: Reg,
    pub(in crate::exec) lane: usize,
    /// The first of its bits, and how many it has.
    pub(in crate::exec) shift: u32,
    pub(in crate::exec) bits: u32,
}

impl Cluster<'_> {
    /// The rows of an operand in registers that lack something; `gather` makes rows of K codes of what a register holds.
    pub(in crate::exec) fn lack_of_registers(
        &mut self,
        warp: &Warp,
        pc: u32,
        regs: &[Reg],
        k: usize,
        gather: impl FnOnce(&dyn Fn(Reg, usize) -> u64) -> Vec<u64>,
    ) -> Lack {
        let Some(undefined) = &warp.undefined else { return Lack::default() };
        let Some(first) = regs.iter().find(|reg| undefined.lanes(reg.slot) != 0) else { return Lack::default() };
        let codes = gather(&|reg, lane| undefined.bits(reg.slot, reg.wide, lane));
        let lane = undefined.lanes(first.slot).trailing_zeros() as usize;
        let origin = self.origin_of(undefined, Who::lane(warp, lane, pc), first.slot, lane);
        Lack::of(codes.into_iter().map(|code| code != 0), k, Some(origin))
    }

    /// The rows of a sparse operand whose places lack something.
    pub(in crate::exec) fn lack_of_places(
        &mut self,
        warp: &Warp,
        pc: u32,
        metadata: Option<Metadata>,
        ty: Type,
        k: usize,
    ) -> Lack {
        let Some(metadata) = metadata else { return Lack::default() };
        self.lack_of_registers(warp, pc, &[metadata.reg], 1, |read| sparse::words(read, metadata, ty, k).to_vec())
    }

    /// The rows of an operand in the own block's shared memory that lack something. `chunks` are the places that it is read
    /// from; `gather` makes rows of K flags of their undefined bits.
    pub(in crate::exec) fn lack_of_memory(
        &mut self,
        warp: &Warp,
        pc: u32,
        chunks: &[(u32, u32)],
        k: usize,
        gather: impl FnOnce(&[u8]) -> Vec<bool>,
    ) -> Lack {
        let shadow = &self.blocks[warp.rank].undefined;
        let missing = chunks.iter().find(|(at, bytes)| !shadow.is_defined(*at as usize, *bytes as usize));
        let Some(&(offset, bytes)) = missing else { return Lack::default() };
        let flags = gather(shadow.bytes());
        let target = Target::Shared { rank: warp.rank, offset };
        let origin = self.undefined_bytes(Some(warp), target, bytes, Who::lane(warp, 0, pc)).first();
        Lack::of(flags.into_iter(), k, origin)
    }

    /// Says which elements of a product are undefined. `before` are the undefined bits of each summand.
    pub(in crate::exec) fn spread_product(
        &mut self,
        warp: &mut Warp,
        (a, b): (&Lack, &Lack),
        elements: impl Iterator<Item = (Element, u64)>,
        summand: Option<Origin>,
    ) {
        let Some(undefined) = &mut warp.undefined else { return };
        for (Element { row, column, reg, lane, shift, bits }, before) in elements {
            let (lacks_a, lacks_b) = (a.has(row), b.has(column));
            let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
            let own = if lacks_a || lacks_b || before & mask != 0 { mask << shift } else { 0 };
            // The other half of a packed register stays as it is.
            let all = (undefined.bits(reg.slot, reg.wide, lane) & !(mask << shift)) | own;
            let origin = match (lacks_a, lacks_b) {
                (true, _) => a.origin,
                (_, true) => b.origin,
                _ => summand,
            };
            undefined.set(reg.slot, reg.wide, lane, all, origin.unwrap_or(NOWHERE_YET));
        }
    }

    /// Where the undefined bits of accumulators come from.
    pub(in crate::exec) fn origin_of_any(&mut self, warp: &Warp, pc: u32, regs: &[Reg]) -> Option<Origin> {
        let undefined = warp.undefined.as_ref()?;
        let reg = regs.iter().find(|reg| undefined.lanes(reg.slot) != 0)?;
        let lane = lanes(undefined.lanes(reg.slot)).next()?;
        Some(self.origin_of(undefined, Who::lane(warp, lane, pc), reg.slot, lane))
    }

    /// `ldmatrix`: one register of the matrix whose rows lie at eight places.
    pub(in crate::exec) fn follow_fragments(
        &mut self,
        warp: &mut Warp,
        pc: u32,
        rows: &[(usize, u32)],
        transpose: bool,
        to: Reg,
    ) {
        if warp.undefined.is_none() {
            return;
        }
        let lacks = |&&(rank, offset): &&(usize, u32)| !self.blocks[rank].undefined.is_defined(offset as usize, 16);
        let Some(&(rank, offset)) = rows.iter().find(lacks) else { return };
        let who = Who::lane(warp, 0, pc);
        let origin = self.undefined_bytes(Some(warp), Target::Shared { rank, offset }, 16, who).first();
        let Some(undefined) = &mut warp.undefined else { return };
        for lane in 0..LANES {
            let bits = fragment(rows, transpose, lane, |(rank, at)| &self.blocks[rank].undefined.bytes()[at..]);
            undefined.set(to.slot, to.wide, lane, u64::from(bits), origin.unwrap_or(NOWHERE_YET));
        }
    }

    /// `mma.sync`
    pub(in crate::exec) fn follow_mma(&mut self, warp: &mut Warp, pc: u32, mma: &Mma) {
        let Some(undefined) = &warp.undefined else { return };
        let sparse = mma.sparse.as_ref().map(|metadata| &metadata.reg);
        let mut regs = mma.a.iter().chain(&mma.b).chain(&mma.c).chain(sparse);
        if regs.all(|reg| undefined.lanes(reg.slot) == 0) {
            return;
        }
        let (m, n, k) = (usize::from(mma.shape.0), usize::from(mma.shape.1), usize::from(mma.shape.2));
        let [d_ty, a_ty, b_ty, c_ty] = mma.types;
        if quad_pairs::is_one(mma) {
            let regs: Vec<Reg> = mma.a.iter().chain(&mma.b).chain(&mma.c).copied().collect();
            let origin = self.origin_of_any(warp, pc, &regs).unwrap_or(NOWHERE_YET);
            if let Some(undefined) = &mut warp.undefined {
                quad_pairs::follow(undefined, origin, mma);
            }
            return;
        }
        let stored = if mma.sparse.is_some() { k / 2 } else { k };
        let a = self.lack_of_registers(warp, pc, &mma.a, stored, |read| operand(read, &mma.a, a_ty, m, stored, true));
        let a = a.or(&self.lack_of_places(warp, pc, mma.sparse, a_ty, k));
        let b = self.lack_of_registers(warp, pc, &mma.b, k, |read| operand(read, &mma.b, b_ty, n, k, false));
        let summand = self.origin_of_any(warp, pc, &mma.c);
        let element = |row: usize, column: usize, ty: Type, regs: &[Reg]| {
            let packed = ty == Type::F16;
            let (reg, lane, shift) = place(row, column, packed);
            Element { row, column, reg: regs[reg], lane, shift, bits: if packed { 16 } else { width(ty) } }
        };
        let places: Vec<(usize, usize)> = (0..m).flat_map(|row| (0..n).map(move |column| (row, column))).collect();
        let Some(undefined) = &warp.undefined else { return };
        let before = |row: usize, column: usize| {
            let Element { reg, lane, shift, .. } = element(row, column, c_ty, &mma.c);
            undefined.bits(reg.slot, reg.wide, lane) >> shift
        };
        let elements: Vec<(Element, u64)> =
            places.into_iter().map(|(row, column)| (element(row, column, d_ty, &mma.d), before(row, column))).collect();
        self.spread_product(warp, (&a, &b), elements.into_iter(), summand);
    }
}

//! Tiles of sums that warps send to memory: through a staging buffer of their own, by the copy engine or by their lanes.
//!
//! ```text
//! for each part of the columns, 128 bytes of a line wide, or 64 or 32 where the tile has no such parts:
//!     the first lane waits until the engine has read what this half of the staging buffer held
//!     the warp meets; writes its 16 rows of the part; meets again
//!     the first lane hands them to the engine, or the lanes read them line by line and store them
//! ```
//!
//! A staging buffer has two halves, so that one is written while the engine reads the other one. No warp waits for another one: a warpgroup's
//! sums lie in its warps by rows. Where lanes store, those of an instruction write neighbours: of lines that begin anywhere, each sector of memory
//! is written by one or two instructions, where fragments take eight.

use tessera_analysis::views::{ViewFacts, step_of};
use tessera_ir::attrs::{CacheHint, MemoryOrder};
use tessera_ir::{Elem, Func, Op, OpData, OpKind, SharedType, Swizzle, TensorMapPlan, TileOp, bug};
use tessera_ptx::ssa::Value as Reg;
use tessera_ptx::{Type as Ty, Word};
use tessera_types::{Arch, DType, L2Promotion, OutOfBounds};

use super::bound::{Buffer, Regs};
use super::engine::swizzle_mode;
use super::lowering::{Lowered, Lowering};
use super::memory::access_words;
use super::view::Ends;
use tessera_analysis::arrangement::engine_swizzle;
use tessera_analysis::arrays::own_array;
use tessera_analysis::sent::{HALF_BYTES, HALVES, Part, ROWS, WARP_ROWS, box_of_rows, lines, parts};

/// The function has tiles that warpgroups send.
pub(super) fn sends(func: &Func) -> bool {
    func.linked_ops().into_iter().any(|op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::SendTile {})))
}

/// How lines of parts are mixed.
fn swizzle(dtype: DType, columns: u64) -> Swizzle {
    engine_swizzle(columns as u32 * dtype.bits() / 8).unwrap_or_else(|| bug!("a part of {columns} columns of `{dtype}`"))
}

/// A part as it lies in a staging buffer.
fn staged((dtype, columns): (DType, u64), base: Reg) -> Buffer {
    let ty = SharedType { swizzle: swizzle(dtype, columns), ..SharedType::new(vec![ROWS as u32, columns as u32], dtype) };
    Buffer::whole(base, &ty)
}

impl Lowering<'_> {
    pub(super) fn send_tile(&mut self, op: Op, data: &OpData) -> Lowered<()> {
        let (value, view) = (data.one(0), data.one(1));
        let (layout, dtype, regs) = (self.layout(value)?, self.dtype(value)?, self.regs(value)?);
        let ty = self.tile_view(view)?.clone();
        let refused = || self.unsupported("the copy engine needs a view of an array argument with its own sizes and strides");
        let param = own_array(self.func, view).ok_or_else(refused)?;
        let shape = parts(&layout, dtype).ok_or_else(|| self.broken("a tile that is no warpgroups' sums"))?;
        // Where the warp's rows begin, the contiguous axis first.
        let rank = ty.tile.len();
        let order: Vec<usize> = (0..rank).rev().collect();
        let own = box_of_rows(&ty.tile).ok_or_else(|| self.unsupported("a warp's rows are no box of the view's tile"))?;
        let tile = std::iter::once(shape.columns as u32).chain(own.iter().rev().copied()).collect();
        let map = self.map_of(TensorMapPlan {
            param,
            axes: order.iter().map(|&axis| ty.dim_map[axis] as usize).collect(),
            tile,
            dtype: None,
            swizzle: swizzle_mode(swizzle(dtype, shape.columns))
                .ok_or_else(|| self.broken("lines that the engine does not mix"))?,
            l2: L2Promotion::B128,
            outside: OutOfBounds::Zero,
        });
        let mut corner = Vec::new();
        for &axis in &order {
            let index = self.index_in_shared(data.group(2)[axis])?;
            let step = self.b.u32(step_of(&ty, axis) as u32);
            corner.push(self.b.mul(Ty::S32, index, step));
        }
        let (warp, rows) = (self.warp(), self.b.u32(WARP_ROWS as u32));
        let along: Vec<usize> = (1..rank).filter(|&place| ty.tile[order[place]] != 1).collect();
        let straight = if let &[place] = &along[..] { Some(place) } else { None };
        if let Some(place) = straight {
            corner[place] = self.b.mad(Ty::S32, warp, rows, corner[place]);
        }

        let (base, within) = (self.staging(op)?, self.b.u32(3));
        let rows_of_a_warp = WARP_ROWS * shape.columns * u64::from(dtype.bits()) / 8;
        let (within, own) = (self.b.and(warp, within), self.b.u32(rows_of_a_warp as u32));
        let sent = self.b.mad(Ty::U32, within, own, base);
        let leader = self.leads_warp();
        let even = (shape.parts.len() as u64).is_multiple_of(HALVES);
        for (number, part) in shape.parts.iter().enumerate() {
            // The half that this part takes was handed over two parts ago; where parts are odd, the first one takes the last one's half.
            let pending = if number == 0 && !even { 0 } else { HALVES as u32 - 1 };
            self.b.when(leader, |b| b.bulk_wait_read(pending));
            self.b.warp_sync();
            let half = number as u64 % HALVES * HALF_BYTES;
            self.stage(part, (dtype, shape.columns), (base, half), &regs)?;
            self.b.fence("proxy.async.shared::cta");
            self.b.warp_sync();
            let half = self.b.u32(half as u32);
            let sent = self.b.add(Ty::U32, sent, half);
            let mut coordinates = corner.clone();
            let (column, row) = (self.b.u32(part.column as u32), self.b.u32(part.row as u32));
            coordinates[0] = self.b.add(Ty::S32, coordinates[0], column);
            if let Some(place) = straight {
                coordinates[place] = self.b.add(Ty::S32, coordinates[place], row);
            } else {
                let row = self.b.mad(Ty::U32, warp, rows, row);
                let extents: Vec<u32> = along.iter().map(|&place| ty.tile[order[place]]).collect();
                for (&place, moved) in along.iter().zip(self.place_of_row(row, &extents)) {
                    coordinates[place] = self.b.add(Ty::S32, coordinates[place], moved);
                }
            }
            self.b.when(leader, |b| {
                b.tensor_store(map, &coordinates, sent);
                b.bulk_commit();
            });
        }
        Ok(())
    }

    /// Where a row lies along the axes that rows go through, the first of these axes first; all are powers of two.
    fn place_of_row(&mut self, row: Reg, extents: &[u32]) -> Vec<Reg> {
        let (mut places, mut passed) = (Vec::new(), 0);
        for (number, extent) in extents.iter().enumerate() {
            let by = self.b.u32(passed);
            let mut place = if passed == 0 { row } else { self.b.shr(Ty::U32, row, by) };
            // Nothing is left of the row behind the last axis.
            if number + 1 < extents.len() {
                let mask = self.b.u32(extent - 1);
                place = self.b.and(place, mask);
            }
            places.push(place);
            passed += extent.trailing_zeros();
        }
        places
    }

    /// Stores a tile of sums line by line: what the copy engine cannot address.
    pub(super) fn store_lines(&mut self, op: Op, data: &OpData) -> Lowered<()> {
        let (value, view) = (data.one(0), data.one(1));
        let (layout, dtype, regs) = (self.layout(value)?, self.dtype(value)?, self.regs(value)?);
        let ty = self.tile_view(view)?.clone();
        let shape = parts(&layout, dtype).ok_or_else(|| self.broken("a tile that is no warpgroups' sums"))?;
        let (elem, rank) = (Elem::Num(dtype), ty.tile.len());
        let neighbours = ViewFacts::of(self.func, &self.facts, view, &ty).neighbours(ty.dim_map[rank - 1] as usize, elem.bytes());
        let refused = || self.broken("lines that no lanes take");
        let own = lines(shape.columns, neighbours).ok_or_else(refused)?;
        let mut of_view = own.clone();
        for _ in 2..rank {
            of_view = of_view.expand(0).map_err(|_| self.broken("lines of a tile with more axes"))?;
        }
        let words = access_words(self.space(view), MemoryOrder::Weak, None, CacheHint::Normal);
        let (base, group, rows) = (self.staging(op)?, self.warpgroup(), self.b.u32(ROWS as u32));
        let first = self.b.mul(Ty::U32, group, rows);
        if !(shape.parts.len() as u64).is_multiple_of(HALVES) {
            // The first part takes the half of a loop's last one.
            self.b.warp_sync();
        }
        for (number, part) in shape.parts.iter().enumerate() {
            let half = number as u64 % HALVES * HALF_BYTES;
            // Each half is read before the warp meets for the other one.
            self.stage(part, (dtype, shape.columns), (base, half), &regs)?;
            self.b.warp_sync();
            let half = self.b.u32(half as u32);
            let half = self.b.add(Ty::U32, base, half);
            let held = self.load_buffer(&staged((dtype, shape.columns), half), &own);
            let (row, column, zero) = (self.b.u32(part.row as u32), self.b.u32(part.column as u32), self.b.u32(0));
            let mut begins = vec![(zero, 0); rank - 2];
            begins.extend([(self.b.add(Ty::U32, first, row), ROWS), (column, shape.columns)]);
            let mut window = self.window_of_part(view, data.group(2), &of_view, &begins)?;
            for run in self.runs(&mut window, Ends::Apart) {
                let values: Vec<Reg> = run.registers.iter().map(|&register| held[register]).collect();
                self.store_run(&words, elem, &run, &values, false);
            }
        }
        Ok(())
    }

    /// The staging buffer of the thread's warpgroup.
    fn staging(&mut self, op: Op) -> Lowered<Reg> {
        let base = self.reserved(op)?;
        let (group, own) = (self.warpgroup(), self.b.u32((HALVES * HALF_BYTES) as u32));
        Ok(self.b.mad(Ty::U32, group, own, base))
    }

    /// Writes a warpgroup's part of a tile to a half of its staging buffer.
    fn stage(&mut self, part: &Part, (dtype, columns): (DType, u64), (base, half): (Reg, u64), regs: &Regs) -> Lowered<()> {
        let buffer = staged((dtype, columns), base);
        let own: Regs = part.registers.iter().map(|&register| regs[register]).collect();
        if self.store_matrices(&buffer, half, &part.layout, &own) {
            return Ok(());
        }
        let spread = part.spread().ok_or_else(|| self.broken("a part whose rows meet in banks"))?;
        // Threads of odd rows exchange what they hold of columns that lie two blocks of eight apart.
        let (thread, row, zero) = (self.thread(), self.b.u32(4), self.b.u32(0));
        let odd = self.b.and(thread, row);
        let odd = self.b.setp(Word::Ne, Ty::U32, odd, zero);
        let own: Regs = (0..own.len())
            .map(|register| {
                let (even, other) = (own[register], own[spread.partner(register)]);
                self.b.select(odd, other, even)
            })
            .collect();
        self.store_further(&buffer, half, &spread.layout, &own);
        Ok(())
    }

    /// The first lane of each warp.
    fn leads_warp(&mut self) -> Reg {
        let (thread, mask, zero) = (self.thread(), self.b.u32(Arch::WARP - 1), self.b.u32(0));
        let lane = self.b.and(thread, mask);
        self.b.setp(Word::Eq, Ty::U32, lane, zero)
    }

    /// The warp's number in its team, the same in all of its lanes.
    fn warp(&mut self) -> Reg {
        let (thread, five, zero) = (self.thread(), self.b.u32(5), self.b.u32(0));
        let warp = self.b.shr(Ty::U32, thread, five);
        self.b.shfl(Word::Idx, warp, zero, 31)
    }
}

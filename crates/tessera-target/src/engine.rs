//! Copies by the tensor memory accelerator. A map of the array is a hidden parameter, made at launch from the array argument; one
//! thread of the team issues the copies, one for each slab of the buffer.

use smallvec::SmallVec;
use tessera_ir::{HiddenParam, Op, OpData, Swizzle, TensorMapPlan, TileOp, Value};
use tessera_ptx::ssa::{self, Class, CopyOptions, Value as Reg};
use tessera_ptx::{Special, Type as Ty, Word};
use tessera_types::{AsyncCopy, L2Promotion, OutOfBounds};

use super::bound::Buffer;
use super::lowering::{Lowered, Lowering};
use super::operation::astray;
use tessera_analysis::arrangement::engine_span;
use tessera_analysis::arrays::own_array;
use tessera_analysis::views::step_of;

/// Elements of a box along one dimension.
const MOST: u32 = AsyncCopy::TENSOR.extent;

/// One copy of a box: where it lies in the buffer and how far it is from the tile's corner along the map's first dimension.
struct Piece {
    offset: u64,
    moved: u64,
}

/// How a tile is copied.
struct Boxes {
    map: Reg,
    /// Where the first one lies in shared memory.
    base: Reg,
    /// Its corner in the array, the contiguous axis first.
    corner: Vec<Reg>,
    pieces: Vec<Piece>,
}

/// The engine's mode for how a buffer's bytes are mixed; `None` where it has none.
pub(super) fn swizzle_mode(swizzle: Swizzle) -> Option<tessera_types::Swizzle> {
    match engine_span(swizzle) {
        Some(32) => Some(tessera_types::Swizzle::B32),
        Some(64) => Some(tessera_types::Swizzle::B64),
        Some(_) => Some(tessera_types::Swizzle::B128),
        None => (swizzle == Swizzle::NONE || swizzle.bits == 0).then_some(tessera_types::Swizzle::None),
    }
}

impl Lowering<'_> {
    /// Lowers a copy by the accelerator.
    pub(super) fn engine(&mut self, op: Op, data: &OpData, kind: &TileOp) -> Lowered<()> {
        match kind {
            TileOp::TmaLoad { blocks } => {
                let buffer = self.buffer(data.one(2))?;
                let boxes = self.boxes(data.one(0), data.group(1), &buffer, *blocks)?;
                let barrier = self.full_barrier(data.one(3), data.one(4))?;
                let first = self.is_first_thread();
                let copies = self.placed(&boxes);
                let multicast = blocks.map(|blocks| self.b.constant(Class::B16, (1 << blocks) - 1));
                let options = CopyOptions { multicast, ..CopyOptions::default() };
                self.b.when(first, |b| {
                    for (to, coordinates) in &copies {
                        b.tensor_load(*to, boxes.map, coordinates, barrier.clone(), options);
                    }
                });
            }
            TileOp::TmaStore {} => {
                let buffer = self.buffer(data.one(0))?;
                let boxes = self.boxes(data.one(1), data.group(2), &buffer, None)?;
                let first = self.is_first_thread();
                let copies = self.placed(&boxes);
                self.b.when(first, |b| {
                    for (from, coordinates) in &copies {
                        b.tensor_store(boxes.map, coordinates, *from);
                    }
                    b.bulk_commit();
                });
            }
            TileOp::SendTile {} => self.send_tile(op, data)?,
            TileOp::TmaStoreWait { pending, read } => {
                let wait = |b: &mut ssa::Builder| if *read { b.bulk_wait_read(*pending) } else { b.bulk_wait(*pending) };
                // Each warpgroup that sends has a thread that waits; who has sent nothing waits for nothing.
                if self.sends {
                    wait(&mut self.b);
                } else {
                    let first = self.is_first_thread();
                    self.b.when(first, wait);
                }
            }
            _ => astray(kind),
        }
        Ok(())
    }

    /// Address and coordinates of every copy.
    fn placed(&mut self, boxes: &Boxes) -> Vec<(Reg, Vec<Reg>)> {
        let mut copies = Vec::new();
        for piece in &boxes.pieces {
            let (offset, moved) = (self.b.u32(piece.offset as u32), self.b.u32(piece.moved as u32));
            let address = self.b.add(Ty::U32, boxes.base, offset);
            let mut coordinates = boxes.corner.clone();
            coordinates[0] = self.b.add(Ty::S32, coordinates[0], moved);
            copies.push((address, coordinates));
        }
        copies
    }

    /// The boxes of a view's tile. Where blocks of a cluster copy it together, each copies some of its lines.
    fn boxes(&mut self, view: Value, index: &[Value], buffer: &Buffer, blocks: Option<u32>) -> Lowered<Boxes> {
        if !self.arch.has_tma() {
            return Err(self.unsupported("there is no copy engine"));
        }
        let ty = self.tile_view(view)?.clone();
        let refused = || self.unsupported("the copy engine needs a view of an array argument with its own sizes and strides");
        let param = own_array(self.func, view).ok_or_else(refused)?;
        let mut order: Vec<usize> = (0..ty.tile.len()).collect();
        order.sort_by_key(|&axis| (buffer.strides[axis], usize::from(buffer.shape[axis] != 1)));
        if let Some(slabs) = buffer.slabs
            && let Some(at) = order.iter().position(|&axis| axis == slabs.axis)
        {
            let fastest = order.remove(at);
            order.insert(0, fastest);
        }
        let fastest = order[0];
        let line = u64::from(ty.tile[fastest]);
        let part = buffer.slabs.map_or(line.min(u64::from(MOST)), |slabs| slabs.elements);
        let mut tile: Vec<u32> = order.iter().map(|&axis| if axis == fastest { part as u32 } else { ty.tile[axis] }).collect();
        if tile.iter().any(|&extent| extent > MOST) || line % part != 0 {
            return Err(self.unsupported(format!("the copy engine moves at most {MOST} elements along an axis")));
        }
        let unknown = || self.unsupported("the copy engine does not know this swizzle");
        let swizzle = swizzle_mode(buffer.swizzle).ok_or_else(unknown)?;
        let shared = match blocks {
            Some(blocks) => Some(self.lines_of(&mut tile, blocks)?),
            None => None,
        };
        let plan = TensorMapPlan {
            param,
            axes: order.iter().map(|&axis| ty.dim_map[axis] as usize).collect(),
            tile,
            dtype: None,
            swizzle,
            l2: L2Promotion::B128,
            outside: OutOfBounds::Zero,
        };
        let map = self.map_of(plan);
        let mut coordinates = Vec::new();
        for &axis in &order {
            let index = self.index_in_shared(index[axis])?;
            let step = self.b.u32(step_of(&ty, axis) as u32);
            coordinates.push(self.b.mul(Ty::S32, index, step));
        }
        let mut base = buffer.base;
        if let Some((place, lines)) = shared {
            let mut corner: SmallVec<[u64; 4]> = SmallVec::from_elem(0, ty.tile.len());
            corner[order[place]] = u64::from(lines);
            let rank = self.b.special(Special::ClusterCtarank);
            let (lines, bytes) = (self.b.u32(lines), self.b.u32(buffer.offset(&corner) as u32));
            coordinates[place] = self.b.mad(Ty::S32, rank, lines, coordinates[place]);
            base = self.b.mad(Ty::U32, rank, bytes, base);
        }
        let pieces = (0..line / part)
            .map(|piece| {
                let mut corner: SmallVec<[u64; 4]> = SmallVec::from_elem(0, ty.tile.len());
                corner[fastest] = piece * part;
                Piece { offset: buffer.offset(&corner), moved: piece * part }
            })
            .collect();
        Ok(Boxes { map, base, corner: coordinates, pieces })
    }

    /// Cuts a box's lines in as many parts as blocks bring it: the place of its dimension, and the lines of a part.
    fn lines_of(&self, tile: &mut [u32], blocks: u32) -> Lowered<(usize, u32)> {
        let place = (1..tile.len()).find(|&place| tile[place] > 1);
        let place = place.filter(|&place| tile[place].is_multiple_of(blocks));
        let place = place.ok_or_else(|| self.broken("a tile whose lines blocks cannot share"))?;
        tile[place] /= blocks;
        Ok((place, tile[place]))
    }

    /// The address of a map, one hidden parameter for all copies that agree on it.
    pub(super) fn map_of(&mut self, plan: TensorMapPlan) -> Reg {
        let plan = HiddenParam::TensorMap(plan);
        if let Some(known) = self.hidden.iter().position(|known| *known == plan) {
            return self.maps[known];
        }
        let map = self.b.tensor_map_param(&format!("tensor_map_{}", self.hidden.len()));
        self.hidden.push(plan);
        self.maps.push(map);
        map
    }

    /// Has one thread fetch all maps when it starts: they are on their way while barriers are made.
    pub(super) fn fetch_maps(&mut self) {
        let maps: Vec<Reg> = std::iter::zip(&self.hidden, &self.maps)
            .filter(|(hidden, _)| matches!(hidden, HiddenParam::TensorMap(_)))
            .map(|(_, &map)| map)
            .collect();
        if maps.is_empty() {
            return;
        }
        self.b.at_first(|b| {
            let (thread, zero) = (b.special(Special::TidX), b.u32(0));
            let first = b.setp(Word::Eq, Ty::U32, thread, zero);
            b.guarded(first, |b| maps.iter().for_each(|&map| b.prefetch_tensor_map(map)));
        });
    }
}

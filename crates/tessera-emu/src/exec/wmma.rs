//! `wmma`: matrices whose spread over a warp is the machine's own affair.
//!
//! Here element `e` of a piece, counted by rows, stands in lane `e / p` at place `e mod p`, with `p` elements a lane. Where the
//! instruction has more registers than that takes, they repeat the elements: what a kernel does to each register alone (a
//! scale, a conversion) stays right. Products are those of `mma`.

use tessera_ptx::Type;

use super::access::{Kind, addresses};
use super::matrix::{dot, width};
use super::undefined::{Lacking, Who};
use super::{Cluster, Fault, Warp};
use crate::finding::FindingKind;
use crate::lanes::LANES;
use crate::program::{Addr, Mma, Order, Piece, Reg, Scope};

/// Elements of a type in one register.
fn each(ty: Type) -> usize {
    (32 / width(ty) as usize).max(1)
}

fn elements(read: &dyn Fn(Reg, usize) -> u64, regs: &[Reg], ty: Type, count: usize) -> Vec<u64> {
    let (bits, each, own) = (width(ty), each(ty), count / LANES);
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    (0..count)
        .map(|element| {
            let (lane, place) = (element / own, element % own);
            regs.get(place / each).map_or(0, |reg| read(*reg, lane) >> ((place % each) as u32 * bits) & mask)
        })
        .collect()
}

/// Writes elements to registers by `write`.
fn put(regs: &[Reg], ty: Type, codes: &[u64], mut write: impl FnMut(Reg, usize, u64)) {
    let (bits, each, own) = (width(ty), each(ty), codes.len() / LANES);
    for lane in 0..LANES {
        for (index, reg) in regs.iter().enumerate() {
            let parts = (0..each).map(|part| codes[lane * own + (index * each + part) % own] << (part as u32 * bits));
            write(*reg, lane, parts.fold(0, |value, part| value | part));
        }
    }
}

fn multiply(warp: &mut Warp, mma: &Mma) {
    let (m, n, k) = (usize::from(mma.shape.0), usize::from(mma.shape.1), usize::from(mma.shape.2));
    let [d_ty, a_ty, b_ty, c_ty] = mma.types;
    let read = |reg: Reg, lane: usize| warp.value(reg, lane);
    let a = elements(&read, &mma.a, a_ty, m * k);
    let b = elements(&read, &mma.b, b_ty, k * n);
    let c = elements(&read, &mma.c, c_ty, m * n);
    let results: Vec<u64> = (0..m * n)
        .map(|at| {
            let (row, column) = (at / n, at % n);
            dot(mma, a[row * k..][..k].iter().zip(b[column..].iter().step_by(n)), c[at])
        })
        .collect();
    put(&mma.d, d_ty, &results, |reg, lane, value| warp.set(reg, lane, value));
}

/// How many bits behind the first element each one stands, by rows.
fn offsets(warp: &Warp, stride: Option<Reg>, piece: Piece) -> Vec<u64> {
    let (rows, columns) = (u64::from(piece.rows), u64::from(piece.columns));
    let stride = match stride {
        Some(reg) => warp.value(reg, 0) & 0xffff_ffff,
        None if piece.by_rows => columns,
        None => rows,
    };
    let bits = u64::from(width(piece.ty));
    let place = |element: u64| {
        let (row, column) = (element / columns, element % columns);
        bits * if piece.by_rows { row * stride + column } else { column * stride + row }
    };
    (0..rows * columns).map(place).collect()
}

impl Cluster<'_> {
    /// `wmma.mma`
    pub(super) fn multiply_pieces(&mut self, warp: &mut Warp, pc: u32, mma: &Mma) {
        self.follow_pieces(warp, pc, mma);
        multiply(warp, mma);
    }

    /// Which elements of a product are undefined.
    fn follow_pieces(&mut self, warp: &mut Warp, pc: u32, mma: &Mma) {
        let Some(undefined) = &warp.undefined else { return };
        if mma.a.iter().chain(&mma.b).chain(&mma.c).all(|reg| undefined.lanes(reg.slot) == 0) {
            return;
        }
        let (m, n, k) = (usize::from(mma.shape.0), usize::from(mma.shape.1), usize::from(mma.shape.2));
        let [d_ty, a_ty, b_ty, c_ty] = mma.types;
        let read = |reg: Reg, lane: usize| undefined.bits(reg.slot, reg.wide, lane);
        let a = elements(&read, &mma.a, a_ty, m * k);
        let b = elements(&read, &mma.b, b_ty, k * n);
        let c = elements(&read, &mma.c, c_ty, m * n);
        let all = if width(d_ty) == 64 { u64::MAX } else { (1 << width(d_ty)) - 1 };
        let flags: Vec<u64> = (0..m * n)
            .map(|at| {
                let (row, column) = (at / n, at % n);
                let mut terms = a[row * k..][..k].iter().chain(b[column..].iter().step_by(n)).chain([&c[at]]);
                if terms.any(|bits| *bits != 0) { all } else { 0 }
            })
            .collect();
        let regs: Vec<Reg> = mma.a.iter().chain(&mma.b).chain(&mma.c).copied().collect();
        let origin = self.origin_of_any(warp, pc, &regs).unwrap_or_default();
        if let Some(own) = &mut warp.undefined {
            put(&mma.d, d_ty, &flags, |reg, lane, bits| own.set(reg.slot, reg.wide, lane, bits, origin));
        }
    }

    fn piece_kind(write: bool) -> Kind {
        Kind::plain(write, 4, Order::Weak, Scope::Cta)
    }

    fn piece_start(warp: &Warp, addr: Addr) -> Result<u64, Fault> {
        let at = addresses(warp, addr);
        match at.iter().position(|other| *other != at[0]) {
            Some(lane) => {
                Err(Fault::new(FindingKind::Matrix, lane, "the lanes of a `wmma` instruction give different addresses"))
            }
            None => Ok(at[0]),
        }
    }

    pub(super) fn load_piece(
        &mut self,
        warp: &mut Warp,
        pc: u32,
        to: &[Reg],
        addr: Addr,
        stride: Option<Reg>,
        piece: Piece,
    ) -> Result<(), Fault> {
        let start = Self::piece_start(warp, addr)?;
        // Elements below a byte are taken from theirs.
        let bits = width(piece.ty);
        let bytes = (bits / 8).max(1);
        let own = usize::from(piece.rows) * usize::from(piece.columns) / LANES;
        let (mut codes, mut undefined, mut from) = (Vec::new(), Vec::new(), None);
        for (element, offset) in offsets(warp, stride, piece).into_iter().enumerate() {
            let lane = element / own.max(1);
            let target = match self.resolve(warp, addr.space, start.wrapping_add(offset / 8), bytes, bytes, lane) {
                Ok(target) => target,
                Err(fault) => {
                    self.pass(warp, pc, fault)?;
                    codes.push(0);
                    undefined.push(0);
                    continue;
                }
            };
            if self.sanitizer.is_some() {
                self.observe(warp, target, bytes, lane, Self::piece_kind(false), pc);
            }
            let piece_of = |word: u64| if bits < 8 { word >> (offset % 8) & ((1 << bits) - 1) } else { word };
            codes.push(piece_of(self.read(warp, target, bytes, lane)));
            if warp.undefined.is_some() {
                let lacking = self.undefined_bytes(Some(warp), target, bytes, Who::lane(warp, lane, pc));
                undefined.push(piece_of(lacking.bits.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))));
                from = from.or(lacking.first());
            }
        }
        put(to, piece.ty, &codes, |reg, lane, value| warp.set(reg, lane, value));
        if let (Some(own), Some(origin)) = (&mut warp.undefined, from) {
            put(to, piece.ty, &undefined, |reg, lane, bits| own.set(reg.slot, reg.wide, lane, bits, origin));
        }
        Ok(())
    }

    pub(super) fn store_piece(
        &mut self,
        warp: &mut Warp,
        pc: u32,
        from: &[Reg],
        addr: Addr,
        stride: Option<Reg>,
        piece: Piece,
    ) -> Result<(), Fault> {
        self.progress += 1;
        let start = Self::piece_start(warp, addr)?;
        let bytes = width(piece.ty) / 8;
        let count = usize::from(piece.rows) * usize::from(piece.columns);
        let codes = elements(&|reg, lane| warp.value(reg, lane), from, piece.ty, count);
        let origin = self.origin_of_any(warp, pc, from);
        let undefined = match &warp.undefined {
            Some(undefined) => elements(&|reg, lane| undefined.bits(reg.slot, reg.wide, lane), from, piece.ty, count),
            None => Vec::new(),
        };
        let own = codes.len() / LANES;
        for (element, (offset, code)) in offsets(warp, stride, piece).into_iter().zip(codes).enumerate() {
            let lane = element / own.max(1);
            let target = match self.resolve(warp, addr.space, start.wrapping_add(offset / 8), bytes, bytes, lane) {
                Ok(target) => target,
                Err(fault) => {
                    self.pass(warp, pc, fault)?;
                    continue;
                }
            };
            if self.sanitizer.is_some() {
                self.observe(warp, target, bytes, lane, Self::piece_kind(true), pc);
            }
            if let Some(bits) = undefined.get(element) {
                let (lacking, who) =
                    (Lacking::from_one(&bits.to_le_bytes()[..bytes as usize], origin), Who::lane(warp, lane, pc));
                self.store_undefined(Some(warp), target, (bytes, &lacking), who, "an element");
            }
            self.write(warp, target, bytes, lane, code)?;
        }
        Ok(())
    }
}

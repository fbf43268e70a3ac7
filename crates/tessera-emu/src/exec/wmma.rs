//! `wmma`: matrices whose spread over a warp is the machine's own affair.
//!
//! Here element `e` of a piece, counted by rows, stands in lane `e / p` at place `e mod p`, with `p` elements a lane. Where the
//! instruction has more registers than that takes, they repeat the elements: what a kernel does to each register alone (a
//! scale, a conversion) stays right. Products are those of `mma`.

use tessera_ptx::Type;

use super::access::{Kind, addresses};
use super::matrix::{dot, width};
use super::{Cluster, Fault, Warp};
use crate::finding::FindingKind;
use crate::lanes::LANES;
use crate::program::{Addr, Mma, Order, Piece, Reg, Scope};

/// Elements of a type in one register.
fn each(ty: Type) -> usize {
    (32 / width(ty) as usize).max(1)
}

fn elements(warp: &Warp, regs: &[Reg], ty: Type, count: usize) -> Vec<u64> {
    let (bits, each, own) = (width(ty), each(ty), count / LANES);
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    (0..count)
        .map(|element| {
            let (lane, place) = (element / own, element % own);
            regs.get(place / each).map_or(0, |reg| warp.value(*reg, lane) >> ((place % each) as u32 * bits) & mask)
        })
        .collect()
}

fn put(warp: &mut Warp, regs: &[Reg], ty: Type, codes: &[u64]) {
    let (bits, each, own) = (width(ty), each(ty), codes.len() / LANES);
    for lane in 0..LANES {
        for (index, reg) in regs.iter().enumerate() {
            let parts = (0..each).map(|part| codes[lane * own + (index * each + part) % own] << (part as u32 * bits));
            warp.set(*reg, lane, parts.fold(0, |value, part| value | part));
        }
    }
}

pub(super) fn multiply(warp: &mut Warp, mma: &Mma) {
    let (m, n, k) = (usize::from(mma.shape.0), usize::from(mma.shape.1), usize::from(mma.shape.2));
    let [d_ty, a_ty, b_ty, c_ty] = mma.types;
    let a = elements(warp, &mma.a, a_ty, m * k);
    let b = elements(warp, &mma.b, b_ty, k * n);
    let c = elements(warp, &mma.c, c_ty, m * n);
    let results: Vec<u64> = (0..m * n)
        .map(|at| {
            let (row, column) = (at / n, at % n);
            dot(mma, a[row * k..][..k].iter().zip(b[column..].iter().step_by(n)), c[at])
        })
        .collect();
    put(warp, &mma.d, d_ty, &results);
}

/// How many bytes behind the first element each one stands, by rows.
fn offsets(warp: &Warp, stride: Option<Reg>, piece: Piece) -> Vec<u64> {
    let (rows, columns) = (u64::from(piece.rows), u64::from(piece.columns));
    let stride = match stride {
        Some(reg) => warp.value(reg, 0) & 0xffff_ffff,
        None if piece.by_rows => columns,
        None => rows,
    };
    let bytes = u64::from(width(piece.ty) / 8);
    let place = |element: u64| {
        let (row, column) = (element / columns, element % columns);
        bytes * if piece.by_rows { row * stride + column } else { column * stride + row }
    };
    (0..rows * columns).map(place).collect()
}

impl Cluster<'_> {
    fn piece_kind(write: bool) -> Kind {
        Kind { write, atomic: false, updates: false, same: false, order: Order::Weak, scope: Scope::Cta }
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
        let bytes = width(piece.ty) / 8;
        let own = usize::from(piece.rows) * usize::from(piece.columns) / LANES;
        let mut codes = Vec::new();
        for (element, offset) in offsets(warp, stride, piece).into_iter().enumerate() {
            let lane = element / own.max(1);
            let target = self.resolve(warp, addr.space, start.wrapping_add(offset), bytes, bytes, lane)?;
            if self.sanitizer.is_some() {
                self.observe(warp, target, bytes, lane, Self::piece_kind(false), pc);
            }
            codes.push(self.read(warp, target, bytes, lane));
        }
        put(warp, to, piece.ty, &codes);
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
        let codes = elements(warp, from, piece.ty, usize::from(piece.rows) * usize::from(piece.columns));
        let own = codes.len() / LANES;
        for (element, (offset, code)) in offsets(warp, stride, piece).into_iter().zip(codes).enumerate() {
            let lane = element / own.max(1);
            let target = self.resolve(warp, addr.space, start.wrapping_add(offset), bytes, bytes, lane)?;
            if self.sanitizer.is_some() {
                self.observe(warp, target, bytes, lane, Self::piece_kind(true), pc);
            }
            self.write(warp, target, bytes, lane, code)?;
        }
        Ok(())
    }
}

//! `mbarrier`, the asynchronous copies and tensor maps in memory.

use smallvec::SmallVec;
use tessera_ptx::{Address, Operand, Type, Word};

use super::memory::change;
use super::modifiers::Mods;
use super::operands::order;
use super::{Builder, Result};
use crate::program::{Bulk, BulkEnd, MbarrierOp, Op, Order, Reg, Signal, Space, Window};

impl Builder<'_> {
    pub(super) fn asynchronous(&mut self, mnemonic: &str, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        match mnemonic {
            "mbarrier" => self.mbarrier(mods, operands),
            "tensormap" => self.tensor_map(mods, operands),
            "cp" if mods.has(Word::Bulk) => self.bulk(mods, operands),
            _ => self.cp_async(mods, operands),
        }
    }

    /// Where a predicate says to ignore the source: the bytes that are read all the same, none or all.
    fn ignoring(&mut self, operand: &Operand, bytes: i64) -> Result<Option<Reg>> {
        let (Operand::Register(id) | Operand::Not(id)) = operand else { return Ok(None) };
        if self.predicate_of(*id).is_err() {
            return Ok(None);
        }
        let by = self.predicate(operand)?;
        let (none, all) = (self.constant(0, false), self.constant(bytes as u64, false));
        let to = self.scratch(false);
        self.prepare(Op::Select { to, a: none, b: all, by });
        Ok(Some(to))
    }

    fn narrow(&mut self, operand: &Operand) -> Result<Reg> {
        Ok(Reg { slot: self.source(operand, false)?, wide: false })
    }

    fn mbarrier(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let what = mods.any(&[
            Word::Init,
            Word::Inval,
            Word::Arrive,
            Word::ArriveDrop,
            Word::ExpectTx,
            Word::CompleteTx,
            Word::TestWait,
            Word::TryWait,
            Word::PendingCount,
        ]);
        // Without a space the address is generic.
        let space = mods.pick(super::operands::space_of).unwrap_or(Space::Generic);
        let (order, scope) = order(mods, Order::AcqRel);
        let relaxed = order == Order::Relaxed;
        let send = |builder: &mut Self, at: usize, op: MbarrierOp| -> Result<bool> {
            let addr = builder.address(&operands[at], space)?;
            builder.emit(Op::Mbarrier { addr, op, scope, relaxed });
            Ok(true)
        };
        match what {
            Some(Word::Init) => {
                let count = self.narrow(&operands[1])?;
                send(self, 0, MbarrierOp::Init { count })
            }
            Some(Word::Inval) => send(self, 0, MbarrierOp::Invalidate),
            Some(Word::ExpectTx) => {
                let bytes = self.narrow(&operands[1])?;
                send(self, 0, MbarrierOp::ExpectTx { bytes })
            }
            Some(Word::CompleteTx) => {
                let bytes = self.narrow(&operands[1])?;
                send(self, 0, MbarrierOp::CompleteTx { bytes })
            }
            Some(word @ (Word::Arrive | Word::ArriveDrop)) => {
                let operand = operands.get(2).map(|operand| self.narrow(operand)).transpose()?;
                let expects = mods.has(Word::ExpectTx);
                let state = self.target(&operands[0])?;
                let op = MbarrierOp::Arrive {
                    count: if expects { None } else { operand },
                    expect: if expects { operand } else { None },
                    drop: word == Word::ArriveDrop,
                    state,
                };
                send(self, 1, op)
            }
            Some(word @ (Word::TestWait | Word::TryWait)) => {
                let parity = mods.has(Word::Parity);
                let state = Reg { slot: self.source(&operands[2], !parity)?, wide: !parity };
                let Some(to) = self.flag(&operands[0])? else { return Ok(false) };
                send(self, 1, MbarrierOp::Test { to, state, parity, blocking: word == Word::TryWait })
            }
            Some(Word::PendingCount) => {
                let from = self.value(&operands[1], true)?;
                let to = self.destination(&operands[0], false)?;
                self.emit(Op::PendingCount { to, from });
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn cp_async(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        if mods.has(Word::CommitGroup) {
            self.emit(Op::CpCommit);
            return Ok(true);
        }
        if mods.has(Word::WaitAll) {
            self.emit(Op::CpWait { left: 0 });
            return Ok(true);
        }
        if mods.has(Word::WaitGroup) {
            let Some(Operand::Int(left)) = operands.first() else { return Ok(false) };
            self.emit(Op::CpWait { left: *left as u32 });
            return Ok(true);
        }
        if mods.has(Word::Arrive) {
            let addr = self.address(&operands[0], Space::Shared)?;
            self.emit(Op::CpArrive { addr, counted: !mods.has(Word::Noinc) });
            return Ok(true);
        }
        let [to, from, Operand::Int(bytes), rest @ ..] = operands else { return Ok(false) };
        let to = self.address(to, Space::Shared)?;
        let from = self.address(from, Space::Global)?;
        // A 64-bit fourth operand is a cache policy, a predicate says to ignore the source.
        let mut source = None;
        if let Some(operand) = rest.first() {
            let policy = mods.has(Word::L2CacheHint) && rest.len() == 1;
            if !policy {
                source = Some(match self.ignoring(operand, *bytes)? {
                    Some(size) => size,
                    None => self.narrow(operand)?,
                });
            }
        }
        self.emit(Op::CpAsync { to, from, bytes: *bytes as u32, source });
        Ok(true)
    }

    fn end(&mut self, operand: &Operand, space: Space) -> Result<BulkEnd> {
        let Operand::Address(address) = operand else { return Err("an address is needed".to_owned()) };
        match &address.coordinates {
            None => Ok(BulkEnd::Line(self.address_of(address, space)?)),
            Some(coordinates) => {
                let plain = Address { coordinates: None, ..address.clone() };
                let map = self.address_of(&plain, Space::Generic)?;
                let at: SmallVec<[Reg; 5]> = coordinates.iter().map(|operand| self.narrow(operand)).collect::<Result<_>>()?;
                Ok(BulkEnd::Tensor { map, at, window: Window::Tiled })
            }
        }
    }

    fn bulk(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        if mods.has(Word::CommitGroup) {
            self.emit(Op::BulkCommit);
            return Ok(true);
        }
        if mods.has(Word::WaitGroup) {
            let Some(Operand::Int(left)) = operands.first() else { return Ok(false) };
            self.emit(Op::BulkWait { left: *left as u32, read: mods.has(Word::Read) });
            return Ok(true);
        }
        let im2col = mods.any(&[Word::Im2col, Word::Im2colNoOffs]);
        if mods.has(Word::Prefetch) {
            self.emit(Op::Nop);
            return Ok(true);
        }
        let tensor = mods.has(Word::Tensor);
        let reduce = match (mods.has(Word::Reduce), change(mods)) {
            (true, Some(how)) => Some((how, mods.types().next_back())),
            (true, None) => return Ok(false),
            (false, _) => None,
        };
        let spaces: SmallVec<[Space; 4]> = mods.each(super::operands::space_of).collect();
        let [to_space, from_space, ..] = spaces[..] else { return Ok(false) };
        let mut to = self.end(&operands[0], to_space)?;
        let mut from = self.end(&operands[1], from_space)?;
        let mut rest = &operands[2..];
        let mut bytes = None;
        if !tensor {
            let Some((first, later)) = rest.split_first() else { return Ok(false) };
            bytes = Some(self.narrow(first)?);
            rest = later;
        }
        let mut signal = Signal::Group;
        if !mods.has(Word::BulkGroup) {
            let Some((first, later)) = rest.split_first() else { return Ok(false) };
            signal = Signal::Mbarrier(self.address(first, Space::Cluster)?);
            rest = later;
        }
        let mut offsets = SmallVec::new();
        if im2col == Some(Word::Im2col) {
            let Some((first, later)) = rest.split_first() else { return Ok(false) };
            offsets = Self::parts(first).iter().map(|part| self.narrow(part)).collect::<Result<_>>()?;
            rest = later;
        }
        let mut multicast = None;
        if mods.has(Word::MulticastCluster) {
            let Some((first, _)) = rest.split_first() else { return Ok(false) };
            multicast = Some(self.narrow(first)?);
        }
        for end in [&mut to, &mut from] {
            if let (BulkEnd::Tensor { window, .. }, true) = (end, im2col.is_some()) {
                *window = Window::Im2col { offsets: offsets.clone() };
            }
        }
        self.emit(Op::Bulk(Box::new(Bulk { to, from, bytes, signal, multicast, reduce })));
        Ok(true)
    }

    fn tensor_map(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        if mods.has(Word::CpFenceproxy) {
            let to = self.address(&operands[0], Space::Global)?;
            let from = self.address(&operands[1], Space::Shared)?;
            self.emit(Op::TensorMapCopy { to, from });
            return Ok(true);
        }
        let field = mods.any(&[
            Word::GlobalAddress,
            Word::Rank,
            Word::BoxDim,
            Word::GlobalDim,
            Word::GlobalStride,
            Word::ElementStride,
            Word::Elemtype,
            Word::InterleaveLayout,
            Word::SwizzleMode,
            Word::FillMode,
        ]);
        let Some(field) = field else { return Ok(false) };
        let addr = self.address(&operands[0], super::operands::space(mods))?;
        let (index, value) = match &operands[1..] {
            [Operand::Int(index), value] => (*index as u32, value),
            [value] => (0, value),
            _ => return Ok(false),
        };
        let wide = mods.ty()? == Type::B64;
        let value = Reg { slot: self.source(value, wide)?, wide };
        self.emit(Op::TensorMapReplace { addr, field, index, value });
        Ok(true)
    }
}

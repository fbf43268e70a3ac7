//! What threads do together: shuffles, votes, barriers, fences.

use tessera_ptx::{Operand, Type, Word};

use super::modifiers::Mods;
use super::operands::order;
use super::{Builder, Result};
use crate::program::{BarrierKind, Op, Order, Pred, Scope, Shuffle, Vote};

impl Builder<'_> {
    pub(super) fn warp(&mut self, mnemonic: &str, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        match mnemonic {
            "shfl" => self.shuffle(mods, operands),
            "vote" => self.vote(mods, operands),
            "match" => self.match_lanes(mods, operands),
            "redux" => self.redux(mods, operands),
            "activemask" => {
                let to = self.destination(&operands[0], false)?;
                self.emit(Op::ActiveMask { to });
                Ok(true)
            }
            "elect" => {
                let members = self.source(&operands[1], false)?;
                let (to, flag) = self.register_and_flag(&operands[0])?;
                self.emit(Op::Elect { to, flag, members });
                Ok(true)
            }
            "bar" if mods.has(Word::Warp) => {
                let members = self.source(&operands[0], false)?;
                self.emit(Op::WarpBarrier { members });
                Ok(true)
            }
            "barrier" if mods.has(Word::Cluster) => {
                let op =
                    if mods.has(Word::Wait) { Op::ClusterWait } else { Op::ClusterArrive { relaxed: mods.has(Word::Relaxed) } };
                self.emit(op);
                Ok(true)
            }
            "bar" | "barrier" => self.block_barrier(mnemonic, mods, operands),
            "membar" => {
                let (_, scope) = order(mods, Order::Sc);
                self.emit(Op::Fence { scope });
                Ok(true)
            }
            "fence" => self.fence(mods),
            "nanosleep" => {
                self.emit(Op::Sleep);
                Ok(true)
            }
            "griddepcontrol" => {
                self.emit(if mods.has(Word::Wait) { Op::GridWait } else { Op::GridLaunch });
                Ok(true)
            }
            "setmaxnreg" => {
                let Operand::Int(count) = operands[0] else { return Ok(false) };
                let count = u32::try_from(count).ok().filter(|count| (24..=256).contains(count) && count.is_multiple_of(8));
                let count = count.ok_or("`setmaxnreg` takes a multiple of 8 from 24 to 256")?;
                self.emit(Op::SetMaxRegisters { count, more: mods.has(Word::Inc) });
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn register_and_flag(&mut self, operand: &Operand) -> Result<(Option<crate::program::Reg>, Option<u32>)> {
        match operand {
            Operand::Pair(pair) => Ok((self.target(&pair.0)?, self.flag(&pair.1)?)),
            other => Ok((self.target(other)?, None)),
        }
    }

    fn shuffle(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let [to, value, lane, clamp, members] = operands else { return Ok(false) };
        let how = match mods.any(&[Word::Up, Word::Down, Word::Bfly, Word::Idx]) {
            Some(Word::Up) => Shuffle::Up,
            Some(Word::Down) => Shuffle::Down,
            Some(Word::Bfly) => Shuffle::Butterfly,
            _ => Shuffle::Index,
        };
        let value = self.source(value, false)?;
        let (lane, clamp, members) = (self.source(lane, false)?, self.source(clamp, false)?, self.source(members, false)?);
        let (to, valid) = self.register_and_flag(to)?;
        self.emit(Op::Shuffle { how, to, valid, value, lane, clamp, members });
        Ok(true)
    }

    fn vote(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let [to, by, members] = operands else { return Ok(false) };
        let how = match mods.any(&[Word::All, Word::Any, Word::Uni, Word::Ballot]) {
            Some(Word::All) => Vote::All,
            Some(Word::Any) => Vote::Any,
            Some(Word::Uni) => Vote::Uniform,
            _ => Vote::Ballot,
        };
        let by = self.predicate(by)?;
        let members = self.source(members, false)?;
        let (to, flag) = if how == Vote::Ballot { (self.target(to)?, None) } else { (None, self.flag(to)?) };
        self.emit(Op::Vote { how, to, flag, by, members });
        Ok(true)
    }

    fn match_lanes(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let [to, value, members] = operands else { return Ok(false) };
        let value = self.value(value, mods.ty()? == Type::B64)?;
        let members = self.source(members, false)?;
        let (to, flag) = self.register_and_flag(to)?;
        self.emit(Op::Match { all: mods.has(Word::All), to, flag, value, members });
        Ok(true)
    }

    fn redux(&mut self, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let [to, value, members] = operands else { return Ok(false) };
        let Some(how) = super::memory::change(mods) else { return Ok(false) };
        let (value, members) = (self.source(value, false)?, self.source(members, false)?);
        let to = self.destination(to, false)?;
        self.emit(Op::Redux { how, signed: mods.ty()? == Type::S32, to, value, members });
        Ok(true)
    }

    fn block_barrier(&mut self, mnemonic: &str, mods: Mods<'_>, operands: &[Operand]) -> Result<bool> {
        let aligned = mnemonic == "bar" || mods.has(Word::Aligned);
        let mut rest = operands;
        let mut by = Pred::TRUE;
        let mut kind = if mods.has(Word::Arrive) { BarrierKind::Arrive } else { BarrierKind::Sync };
        if mods.has(Word::Red) {
            let [to, middle @ .., last] = operands else { return Ok(false) };
            by = self.predicate(last)?;
            kind = match mods.any(&[Word::Popc, Word::And, Word::Or]) {
                Some(Word::Popc) => BarrierKind::Popc(self.destination(to, false)?),
                Some(how) => {
                    let Some(to) = self.flag(to)? else { return Ok(false) };
                    if how == Word::And { BarrierKind::And(to) } else { BarrierKind::Or(to) }
                }
                None => return Ok(false),
            };
            rest = middle;
        }
        let Some(id) = rest.first() else { return Ok(false) };
        let id = self.source(id, false)?;
        let count = rest.get(1).map(|operand| self.source(operand, false)).transpose()?;
        self.emit(Op::Barrier { kind, id, count, aligned, by });
        Ok(true)
    }

    fn fence(&mut self, mods: Mods<'_>) -> Result<bool> {
        let op = if mods.has(Word::MbarrierInit) {
            Op::FenceMbarrierInit
        } else if mods.has(Word::GenericProxy) {
            Op::FenceTensorMap
        } else if mods.has(Word::Proxy) {
            if mods.has(Word::Async) || mods.has(Word::AsyncGeneric) {
                Op::FenceProxy
            } else {
                Op::Fence { scope: Scope::System }
            }
        } else {
            let (_, scope) = order(mods, Order::Sc);
            Op::Fence { scope }
        };
        self.emit(op);
        Ok(true)
    }
}

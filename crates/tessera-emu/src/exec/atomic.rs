//! Atomic read-modify-writes.

use smallvec::SmallVec;
use tessera_ptx::Type;
use tessera_types::element;

use super::access::{Kind, Target, addresses, shifted};
use super::undefined::Who;
use super::{Cluster, Fault, Warp};
use crate::lanes::lanes;
use crate::ops::float::{least, most};
use crate::ops::half::{to_bf16, to_f16};
use crate::program::{Addr, Change, Reg};

/// The new value of a cell; for `cas`, `operand` is what it must hold and `second` what it becomes.
pub(crate) fn apply(how: Change, ty: Type, old: u64, operand: u64, second: u64) -> u64 {
    if let Some(sum) = floating(how, ty, old, operand) {
        return sum;
    }
    let bits = ty.bits();
    let cut = |value: u64| if bits >= 64 { value } else { value & ((1 << bits) - 1) };
    let signed = matches!(ty, Type::S32 | Type::S64);
    let extend = |value: u64| (value << (64 - bits.min(64))) as i64 >> (64 - bits.min(64));
    let (old, operand) = (cut(old), cut(operand));
    cut(match how {
        Change::Add => old.wrapping_add(operand),
        Change::Inc => {
            if old >= operand {
                0
            } else {
                old + 1
            }
        }
        Change::Dec => {
            if old == 0 || old > operand {
                operand
            } else {
                old - 1
            }
        }
        Change::Min if signed => extend(old).min(extend(operand)) as u64,
        Change::Max if signed => extend(old).max(extend(operand)) as u64,
        Change::Min => old.min(operand),
        Change::Max => old.max(operand),
        Change::And => old & operand,
        Change::Or => old | operand,
        Change::Xor => old ^ operand,
        Change::Exchange => operand,
        Change::Compare => {
            if old == operand {
                second
            } else {
                old
            }
        }
    })
}

fn floating(how: Change, ty: Type, old: u64, operand: u64) -> Option<u64> {
    let half = |from: fn(u16) -> f32, to: fn(f32) -> u16, old: u64, operand: u64| {
        let (a, b) = (from(old as u16), from(operand as u16));
        u64::from(to(match how {
            Change::Min => least(a, b),
            Change::Max => most(a, b),
            _ => a + b,
        }))
    };
    Some(match ty {
        Type::F32 => {
            let (a, b) = (f32::from_bits(old as u32), f32::from_bits(operand as u32));
            let result = match how {
                Change::Min => least(a, b),
                Change::Max => most(a, b),
                _ => a + b,
            };
            u64::from(result.to_bits())
        }
        Type::F64 => (f64::from_bits(old) + f64::from_bits(operand)).to_bits(),
        Type::F16 => half(element::f16_to_f32, to_f16, old, operand),
        Type::Bf16 => half(element::bf16_to_f32, to_bf16, old, operand),
        Type::F16x2 => {
            half(element::f16_to_f32, to_f16, old, operand) | half(element::f16_to_f32, to_f16, old >> 16, operand >> 16) << 16
        }
        Type::Bf16x2 => {
            half(element::bf16_to_f32, to_bf16, old, operand)
                | half(element::bf16_to_f32, to_bf16, old >> 16, operand >> 16) << 16
        }
        _ => return None,
    })
}

impl Cluster<'_> {
    /// Changes a cell; gives its old value.
    pub(crate) fn update(&mut self, target: Target, bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> u64 {
        match target {
            Target::Global { allocation, address } => {
                self.launch.heap.get(allocation).map_or(0, |found| found.update(address, u64::from(bytes), change))
            }
            Target::Shared { rank, offset } => {
                let at = offset as usize;
                let memory = &mut self.blocks[rank].shared[at..at + bytes as usize];
                let mut word = [0; 8];
                word[..bytes as usize].copy_from_slice(memory);
                let old = u64::from_le_bytes(word);
                memory.copy_from_slice(&change(old).to_le_bytes()[..bytes as usize]);
                old
            }
            Target::Local { .. } | Target::Param { .. } => 0,
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the operands of one instruction")]
    pub(super) fn atomic(
        &mut self,
        warp: &mut Warp,
        mask: u32,
        pc: u32,
        to: &[Option<Reg>],
        (how, ty): (Change, Type),
        addr: Addr,
        value: &[Reg],
        second: &[Reg],
        kind: Kind,
    ) -> Result<(), Fault> {
        let mut changed = false;
        let follows = self.follows_undefined();
        let at = addresses(warp, addr);
        let bytes = (ty.bits() / 8).min(8);
        let total = bytes * value.len() as u32;
        for lane in lanes(mask) {
            let target = match self.resolve(warp, addr.space, at[lane], total, total, lane) {
                Ok(target) => target,
                Err(fault) => {
                    self.pass(warp, pc, fault)?;
                    to.iter().flatten().for_each(|to| warp.set(*to, lane, 0));
                    continue;
                }
            };
            if follows {
                let who = Who::lane(warp, lane, pc);
                self.change_undefined(warp, target, (how, bytes), to, [value, second], who);
            }
            if self.sanitizer.is_some() {
                self.observe(warp, target, total, lane, kind, pc);
            }
            let operands: SmallVec<[u64; 4]> = value.iter().map(|reg| warp.value(*reg, lane)).collect();
            let others: SmallVec<[u64; 2]> = second.iter().map(|reg| warp.value(*reg, lane)).collect();
            // Two values that are one element: what is compared is both.
            let whole = ty == Type::B128 && how == Change::Compare;
            let found = |cluster: &Self, index: usize| cluster.read(warp, shifted(target, index as u32 * bytes), bytes, lane);
            let differs = whole && (0..operands.len()).any(|index| found(self, index) != operands[index]);
            for (index, operand) in operands.into_iter().enumerate() {
                let cell = shifted(target, index as u32 * bytes);
                let other = others.get(index).copied().unwrap_or(0);
                let old = self.update(cell, bytes, &mut |old| {
                    let new = if differs { old } else { apply(how, ty, old, operand, other) };
                    changed |= new != old;
                    new
                });
                if let Some(Some(to)) = to.get(index) {
                    warp.set(*to, lane, old);
                }
            }
            self.observe_found(warp, target, lane, kind, pc);
        }
        // One that found what it did not want is no progress: a loop around it may wait for ever.
        self.progress += u64::from(changed);
        Ok(())
    }
}

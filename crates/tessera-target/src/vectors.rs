//! A thread's accesses to neighbouring elements: one instruction of up to 16 bytes, as long as the elements lie side by side.
//!
//! ```text
//! %a, %b, %c, %d = tile.load_vector %p, []        ld.global.v4.b32 {%1, %2, %3, %4}, [%5]
//! ```

use tessera_ir::attrs::{CacheHint, MemoryOrder};
use tessera_ir::{Elem, OpData, TileOp};
use tessera_ptx::Type as Ty;
use tessera_ptx::ssa::{Address, Value as Reg};

use super::lowering::{Lowered, Lowering};
use super::memory::access_words;
use super::operation::astray;
use super::view::Run;

impl Lowering<'_> {
    /// Lowers an access to neighbouring elements, or a hint about one.
    pub(super) fn vectors(&mut self, data: &OpData, kind: &TileOp) -> Lowered<()> {
        match kind {
            TileOp::LoadVector { cache } => {
                let mut regs = Vec::new();
                for (words, elem, run) in self.vector_runs(data, 0, data.results.len(), *cache)? {
                    let zero = self.bits(elem, 0);
                    regs.extend(self.load_run(&words, elem, &run, zero, false));
                }
                for (&result, reg) in data.results.iter().zip(regs) {
                    self.bind_regs(result, [reg]);
                }
            }
            TileOp::StoreVector { cache } => {
                let values = data.group(0).iter().map(|&value| self.reg(value)).collect::<Lowered<Vec<Reg>>>()?;
                let once = !self.per_thread && self.func.ty(data.one(1)).is_scalar();
                let first = if once { Some(self.is_first_thread()) } else { None };
                for (words, elem, mut run) in self.vector_runs(data, 1, values.len(), *cache)? {
                    run.when = first;
                    let values: Vec<Reg> = run.registers.iter().map(|&at| values[at]).collect();
                    self.store_run(&words, elem, &run, &values, false);
                }
            }
            TileOp::Prefetch {} => {
                let address = self.reg(data.one(0))?;
                self.b.effect("prefetch.global.L2", &[Address::from(address).into()]);
            }
            _ => astray(kind),
        }
        Ok(())
    }

    /// The instructions that an access to neighbours takes: one, unless the buffer lies so that its elements come apart.
    fn vector_runs(&mut self, data: &OpData, at: usize, count: usize, cache: CacheHint) -> Lowered<Vec<(String, Elem, Run)>> {
        let source = data.one(at);
        if self.func.ty(source).is_scalar() {
            let address = self.reg(source)?.into();
            let run = Run { registers: (0..count).collect(), address, when: None, cut: None };
            return Ok(vec![(access_words(self.space(source), MemoryOrder::Weak, None, cache), self.pointee(source)?, run)]);
        }
        let (buffer, address) = self.chosen(source, data.group(at + 1))?;
        let bytes = buffer.elem.unpacked_bytes();
        let granule = if buffer.swizzle.bits == 0 { 16 } else { 1 << buffer.swizzle.base };
        let lines = buffer.strides.iter().filter(|&&stride| stride != 1).map(|&stride| stride as usize * bytes);
        let power = |bytes: usize| bytes & bytes.wrapping_neg();
        let whole = lines.chain([buffer.align as usize]).map(power).fold(power(granule), usize::min);
        let width = (whole / bytes).clamp(1, count);
        let mut runs = Vec::new();
        for first in (0..count).step_by(width) {
            // What a swizzle mixes by less than this access is found element by element.
            let address = match first {
                0 => address.clone(),
                _ if buffer.swizzle.bits == 0 => self.b.at(address.base, address.offset + (first * bytes) as i64),
                _ => {
                    let (_, plain) = self.unmixed(source, data.group(at + 1))?;
                    let moved = self.b.u32((first * bytes) as u32);
                    let moved = self.b.add(Ty::U32, plain, moved);
                    self.mixed(buffer.swizzle, moved).into()
                }
            };
            let run = Run { registers: (first..first + width).collect(), address, when: None, cut: None };
            runs.push(("shared".to_string(), Elem::Num(buffer.elem), run));
        }
        Ok(runs)
    }
}

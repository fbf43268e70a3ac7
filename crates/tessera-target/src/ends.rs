//! Vectors among whose elements an array ends: threads that have one take its elements one by one, all others pass by.
//!
//! ```text
//! @%whole ld.global.v4.b32 {...}, [%p]      every vector that lies in the array, before anything waits
//! @!%cut bra past
//! @%first ld.global.b16 ...                 the elements of one that does not, each by its own condition
//! past:
//! ```

use tessera_ir::Elem;
use tessera_ptx::ssa::Value as Reg;

use super::lowering::Lowering;
use super::view::{Run, Window};

impl Lowering<'_> {
    /// Loads the elements of runs among which the array ends, in the place of what is there.
    pub(super) fn load_ends(&mut self, words: &str, window: &mut Window, parts: &mut [(Run, Vec<Reg>)], padding: Reg) {
        let elem = Elem::Num(window.dtype);
        let Some(any) = self.any_cut(parts) else { return };
        let cut: Vec<usize> = (0..parts.len()).filter(|&part| parts[part].0.cut.is_some()).collect();
        let before: Vec<Reg> = cut.iter().flat_map(|&part| self.joined(elem, &parts[part].1)).collect();
        let classes: Vec<_> = before.iter().map(|&reg| self.class(reg)).collect();
        let (ends, past) = (self.b.new_block(&[]), self.b.new_block(&classes));
        self.b.branch(any, (ends, &[]), (past, &before));
        self.b.switch_to(ends);
        // What is found out here is not known past it.
        let mut inner = window.clone();
        let mut after = Vec::new();
        for &part in &cut {
            let (run, loaded) = &parts[part];
            let Some(cut) = run.cut else { continue };
            let mut values = Vec::new();
            for at in 0..run.registers.len() {
                let one = self.one_of(&mut inner, run, at, cut);
                values.extend(self.load_run(words, elem, &one, padding, false));
            }
            let (new, old) = (self.joined(elem, &values), self.joined(elem, loaded));
            after.extend(new.into_iter().zip(old).map(|(new, old)| self.b.select(cut, new, old)));
        }
        self.b.jump(past, &after);
        self.b.switch_to(past);
        let mut moved = self.b.block_params(past).into_iter();
        for part in cut {
            let (run, loaded) = &mut parts[part];
            let count = run.registers.len();
            let width = (elem.bytes() as usize * count).div_ceil(if elem.bytes() == 8 { 8 } else { 4 });
            let raw: Vec<Reg> = moved.by_ref().take(width).collect();
            *loaded = self.split(elem, &raw, count);
        }
    }

    /// Stores the elements of runs among which the array ends.
    pub(super) fn store_ends(&mut self, words: &str, window: &mut Window, parts: &[(Run, Vec<Reg>)]) {
        let elem = Elem::Num(window.dtype);
        let Some(any) = self.any_cut(parts) else { return };
        let (ends, past) = (self.b.new_block(&[]), self.b.new_block(&[]));
        self.b.branch(any, (ends, &[]), (past, &[]));
        self.b.switch_to(ends);
        let mut inner = window.clone();
        for (run, values) in parts {
            let Some(cut) = run.cut else { continue };
            for (at, &value) in values.iter().enumerate() {
                let one = self.one_of(&mut inner, run, at, cut);
                self.store_run(words, elem, &one, &[value], false);
            }
        }
        self.b.jump(past, &[]);
        self.b.switch_to(past);
    }

    /// Whether the array ends among the elements of any run; `None` where that cannot be.
    fn any_cut(&mut self, parts: &[(Run, Vec<Reg>)]) -> Option<Reg> {
        let cuts: Vec<Reg> = parts.iter().filter_map(|(run, _)| run.cut).collect();
        cuts.into_iter().reduce(|all, cut| self.b.or(all, cut))
    }

    /// An element of a run that is cut.
    fn one_of(&mut self, window: &mut Window, run: &Run, at: usize, cut: Reg) -> Run {
        let register = run.registers[at];
        let within = self.in_array(window, register);
        let mut address = run.address.clone();
        address.offset += at as i64 * window.dtype.unpacked_bytes() as i64;
        Run { registers: vec![register], address, when: self.both(Some(cut), within), cut: None }
    }
}

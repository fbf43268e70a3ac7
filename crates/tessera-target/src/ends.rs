//! Vectors among whose elements an array ends: threads that have one take its elements one by one, all others pass by.
//!
//! ```text
//! @!%cut bra past
//! @%first ld.global.b16 %h0, [%p]           the elements of a vector that is cut, each by its own condition
//! past:                                     {%r0, ..}: they, or what stands for elements outside of the array
//! @%whole ld.global.v4.b32 {%r0, ..}, [%p]  every vector that lies in the array
//! ```
//!
//! A tile of one line that begins between two vectors is read by both that have a thread's elements; those are shifted into their places by as
//! many steps of 4, 2 and 1 as they are off.

use tessera_ir::Elem;
use tessera_ptx::ssa::{Address, Value as Reg};
use tessera_ptx::{Type as Ty, Word};

use super::lowering::Lowering;
use super::memory::run_type;
use super::view::{Astray, Run, Window};

impl Lowering<'_> {
    /// Loads the elements of runs among which the array ends, in the threads where it does; gives what these runs are then, as it is moved. `before` is
    /// what they are elsewhere, if anything was read there.
    pub(super) fn load_ends(
        &mut self,
        words: &str,
        window: &Window,
        runs: &[Run],
        padding: Reg,
        before: Option<&[Vec<Reg>]>,
    ) -> Vec<Option<Vec<Reg>>> {
        let elem = Elem::Num(window.dtype);
        let Some(any) = self.any_cut(runs.iter()) else { return vec![None; runs.len()] };
        let cut: Vec<(usize, Reg)> = runs.iter().enumerate().filter_map(|(at, run)| Some((at, run.cut?))).collect();
        let old: Vec<Vec<Reg>> = cut
            .iter()
            .map(|&(at, _)| match before {
                Some(before) => before[at].clone(),
                None => self.joined(elem, &vec![padding; runs[at].registers.len()]),
            })
            .collect();
        let (ends, past) = (self.b.new_block(&[]), {
            let classes: Vec<_> = old.iter().flatten().map(|&reg| self.class(reg)).collect();
            self.b.new_block(&classes)
        });
        self.b.branch(any, (ends, &[]), (past, &old.concat()));
        self.b.switch_to(ends);
        // What is found out here is not known past it.
        let mut inner = window.clone();
        let mut found = Vec::new();
        for (&(at, cut), old) in cut.iter().zip(&old) {
            let mut values = Vec::new();
            for element in 0..runs[at].registers.len() {
                let one = self.one_of(&mut inner, &runs[at], element, cut);
                values.extend(self.load_run(words, elem, &one, padding, false));
            }
            let new = self.joined(elem, &values);
            let choose = |(new, &old)| if before.is_some() { self.b.select(cut, new, old) } else { new };
            found.extend(new.into_iter().zip(old).map(choose));
        }
        self.b.jump(past, &found);
        self.b.switch_to(past);
        let mut moved = self.b.block_params(past).into_iter();
        let width = |run: &Run| run_type(elem, run.registers.len()).1;
        runs.iter().map(|run| run.cut.map(|_| moved.by_ref().take(width(run)).collect())).collect()
    }

    /// Loads runs that begin between two vectors, before it is looked for those among which the array ends.
    pub(super) fn load_astray(
        &mut self,
        words: &str,
        window: &Window,
        runs: &[Run],
        astray: &Astray,
        padding: Reg,
    ) -> Vec<Vec<Reg>> {
        let elem = Elem::Num(window.dtype);
        let read: Vec<Vec<Reg>> = runs
            .iter()
            .zip(&astray.firsts)
            .map(|(run, &first)| self.shifted(words, elem, run, (astray, first), padding))
            .collect();
        let ends = self.load_ends(words, window, runs, padding, Some(&read));
        let all = read.into_iter().zip(ends).map(|(read, end)| end.unwrap_or(read));
        all.map(|all| self.split(elem, &all, astray.width as usize)).collect()
    }

    /// A run of which two vectors have parts, as it is moved; the first of them is read under a condition of its own.
    fn shifted(&mut self, words: &str, elem: Elem, run: &Run, (astray, first): (&Astray, Option<Reg>), padding: Reg) -> Vec<Reg> {
        let bytes = elem.bytes() as u32;
        let off = self.b.u32(bytes);
        let off = self.b.mul(Ty::U32, astray.elements, off);
        let off = self.b.cvt(Ty::U64, Ty::U32, off);
        let base = self.b.sub(Ty::S64, run.address.base, off);
        let address = self.b.at(base, run.address.offset);
        let next = self.b.at(base, run.address.offset + 16);
        let filler = vec![padding; astray.width as usize];
        let filler = self.joined(elem, &filler);
        let mut read = |at: Address, when: Option<Reg>| match when {
            Some(when) => self.b.ld_vector_if(when, words, Ty::B32, at, &filler),
            None => self.b.ld_vector(words, Ty::B32, 4, at),
        };
        let mut all = read(address, first);
        all.extend(read(next, run.when));
        // Whole words first, then what is left within them.
        let per_word = 4 / bytes;
        for (step, left) in [(2, 6), (1, 5)] {
            let mask = self.b.u32(step * per_word);
            let zero = self.b.u32(0);
            let bit = self.b.and(astray.elements, mask);
            let moves = self.b.setp(Word::Ne, Ty::U32, bit, zero);
            let far = step as usize;
            all = (0..left).map(|at| self.b.select(moves, all[at + far], all[at])).collect();
        }
        if per_word > 1 {
            let (most, bits) = (self.b.u32(per_word - 1), self.b.u32(8 * bytes));
            let within = self.b.and(astray.elements, most);
            let within = self.b.mul(Ty::U32, within, bits);
            all = (0..4).map(|at| self.b.shf_right(all[at], all[at + 1], within)).collect();
        }
        all.truncate(4);
        all
    }

    /// Stores the elements of runs among which the array ends.
    pub(super) fn store_ends(&mut self, words: &str, window: &Window, parts: &[(Run, Vec<Reg>)]) {
        let elem = Elem::Num(window.dtype);
        let Some(any) = self.any_cut(parts.iter().map(|(run, _)| run)) else { return };
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
    fn any_cut<'r>(&mut self, runs: impl Iterator<Item = &'r Run>) -> Option<Reg> {
        let cuts: Vec<Reg> = runs.filter_map(|run| run.cut).collect();
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

//! Vectors among whose elements an array ends: threads that have one take its elements one by one, all others pass by.
//!
//! ```text
//! @%read ld.global.v4.b32 {%r0, ..}, [%p]   every vector that lies in the array, and where lines follow each other those of two lines
//! @!%cut bra past
//! selp %h0, %h0, padding, %first            the elements of a vector that is cut, each by its own condition
//! past:
//! ```
//!
//! Where what lies beside a line is not the array's, or somebody writes it meanwhile, the elements of such a vector are read one by one. So are those that are
//! stored.

use tessera_ir::Elem;
use tessera_ptx::ssa::Value as Reg;
use tessera_ptx::{Type as Ty, Word};

use super::lowering::Lowering;
use super::view::{Run, Side, Window, contiguous};

impl Lowering<'_> {
    /// What runs are, as they are moved, after vectors of them were read: of those among which the array ends the elements that it has, and else what
    /// stands for elements outside of it. `beside` says whether the vectors of these were read, too.
    pub(super) fn load_ends(
        &mut self,
        words: &str,
        window: &Window,
        runs: &[Run],
        padding: Reg,
        (mut read, beside): (Vec<Vec<Reg>>, Option<Reg>),
    ) -> Vec<Vec<Reg>> {
        let cut: Vec<(usize, Reg)> = runs.iter().enumerate().filter_map(|(at, run)| Some((at, run.cut?))).collect();
        self.where_any(cut.iter().map(|&(_, cut)| cut), (&mut read, &cut), |this, read| match beside {
            Some(beside) => {
                let beyond = this.b.not(beside);
                let mut left = Vec::new();
                for &(at, cut) in &cut {
                    let whole = this.b.and(cut, beside);
                    this.where_any(std::iter::once(whole), (read, &[(at, cut)]), |this, read| {
                        read[at] = this.padded(window, &runs[at], padding, &read[at]);
                    });
                    left.push((at, this.b.and(cut, beyond)));
                }
                this.where_any(left.iter().map(|&(_, cut)| cut), (read, &left), |this, read| {
                    this.load_apart(words, window, (runs, &left), padding, read);
                });
            }
            None => this.load_apart(words, window, (runs, &cut), padding, read),
        });
        read
    }

    /// Does something to runs, as they are moved, in threads where one of some conditions holds.
    fn where_any(
        &mut self,
        conditions: impl Iterator<Item = Reg>,
        (read, of): (&mut [Vec<Reg>], &[(usize, Reg)]),
        make: impl FnOnce(&mut Self, &mut [Vec<Reg>]),
    ) {
        let Some(any) = conditions.reduce(|all, one| self.b.or(all, one)) else { return };
        let all = |read: &[Vec<Reg>]| of.iter().flat_map(|&(at, _)| read[at].clone()).collect::<Vec<Reg>>();
        let old = all(read);
        let classes: Vec<_> = old.iter().map(|&reg| self.class(reg)).collect();
        let (ends, past) = (self.b.new_block(&[]), self.b.new_block(&classes));
        self.b.branch(any, (ends, &[]), (past, &old));
        self.b.switch_to(ends);
        make(self, read);
        let new = all(read);
        self.b.jump(past, &new);
        self.b.switch_to(past);
        let mut moved = self.b.block_params(past).into_iter();
        for &(at, _) in of {
            read[at].iter_mut().zip(moved.by_ref()).for_each(|(word, moved)| *word = moved);
        }
    }

    /// Loads the elements of runs one by one, each run in threads with a condition.
    fn load_apart(
        &mut self,
        words: &str,
        window: &Window,
        (runs, of): (&[Run], &[(usize, Reg)]),
        padding: Reg,
        read: &mut [Vec<Reg>],
    ) {
        let elem = Elem::Num(window.dtype);
        // What is found out here is not known past it.
        let mut inner = window.clone();
        for &(at, cut) in of {
            let mut values = Vec::new();
            for element in 0..runs[at].registers.len() {
                let one = self.one_of(&mut inner, &runs[at], element, Some(cut));
                values.extend(self.load_run(words, elem, &one, padding, false));
            }
            let new = self.joined(elem, &values);
            // Elsewhere they are the padding, as what was to be there may be.
            let is_padding = |this: &Self, word: Reg| this.b.kernel().constant(word).is_some();
            let choose = |(new, &old): (Reg, &Reg)| if is_padding(self, old) { new } else { self.b.select(cut, new, old) };
            read[at] = new.into_iter().zip(&read[at]).map(choose).collect();
        }
    }

    /// Whether all vectors of a tile lie in an array whose lines follow each other, wherever lines end among them; `None` where they do not, or there is one line.
    pub(super) fn beside(&mut self, window: &Window) -> Option<Reg> {
        let mut order: Vec<&Side> = window.axes.iter().collect();
        order.sort_by_key(|side| std::cmp::Reverse(side.dim));
        let inner = *order.first()?;
        let is_one = |side: &&Side| self.b.kernel().constant(side.size) == Some(1);
        let one_line = order[1..].iter().all(is_one);
        if one_line
            || inner.known != Some(1)
            || !window.has_all_axes
            || window.packed.is_some()
            || order.iter().any(|side| side.gathered.is_some())
        {
            return None;
        }
        let (ty, size_ty) = if window.wide { (Ty::S64, Ty::U64) } else { (Ty::S32, Ty::U32) };
        let like = |this: &mut Self, number: Reg| if window.wide { this.widen(number) } else { number };
        let mut total = like(self, inner.size);
        let mut follow: Option<Reg> = None;
        let mut end = self.b.u64(inner.extent * window.unit);
        for side in &order[1..] {
            let stride = like(self, side.stride);
            if side.known.is_some()
                && self.b.kernel().constant(total).is_some()
                && self.b.kernel().constant(total) != self.b.kernel().constant(stride)
            {
                return None;
            }
            let follows = self.b.setp(Word::Eq, size_ty, stride, total);
            follow = self.both(follow, Some(follows));
            let size = like(self, side.size);
            total = self.b.mul(ty, total, size);
            let lines = self.b.constant(self.class(stride), (side.extent - 1) * window.unit);
            end = if window.wide { self.b.mad(ty, stride, lines, end) } else { self.b.mad_wide(ty, stride, lines, end) };
        }
        let bytes = self.b.constant(self.class(total), window.unit);
        let last =
            if window.wide { self.b.mad(ty, total, bytes, window.base) } else { self.b.mad_wide(ty, total, bytes, window.base) };
        let shift = self.b.s64(window.shift);
        let corner = self.b.add(Ty::S64, window.corner, shift);
        let end = self.b.add(Ty::S64, corner, end);
        let ends = self.b.setp(Word::Le, Ty::U64, end, last);
        let begins = order.iter().any(|side| side.starts.0 < 0).then(|| self.b.setp(Word::Ge, Ty::U64, corner, window.base));
        let lies = self.both(Some(ends), begins);
        self.both(follow, lies)
    }

    /// A run that was read whole, with what stands for elements outside of its line in their place.
    fn padded(&mut self, window: &Window, run: &Run, padding: Reg, read: &[Reg]) -> Vec<Reg> {
        let elem = Elem::Num(window.dtype);
        let mut inner = window.clone();
        let values = self.split(elem, read, run.registers.len());
        let own = values.into_iter().zip(&run.registers).map(|(value, &register)| match self.in_line(&mut inner, register) {
            Some(within) => self.b.select(within, value, padding),
            None => value,
        });
        let own: Vec<Reg> = own.collect();
        self.joined(elem, &own)
    }

    /// Stores the elements of runs among which the array ends, in the threads that have such a run.
    pub(super) fn store_ends(&mut self, words: &str, window: &Window, parts: &[(Run, Vec<Reg>)]) {
        let elem = Elem::Num(window.dtype);
        let cut: Vec<Reg> = parts.iter().filter_map(|(run, _)| run.cut).collect();
        self.where_any(cut.into_iter(), (&mut [], &[]), |this, _| {
            for (run, values) in parts {
                let Some(cut) = run.cut else { continue };
                this.where_any(std::iter::once(cut), (&mut [], &[]), |this, _| {
                    let mut inner = window.clone();
                    for (at, &value) in values.iter().enumerate() {
                        let one = this.one_of(&mut inner, run, at, None);
                        this.store_run(words, elem, &one, &[value], false);
                    }
                });
            }
        });
    }

    /// Whether an element of a run that is cut lies in its line; the run lies in the array along other axes.
    fn in_line(&mut self, window: &mut Window, register: usize) -> Option<Reg> {
        let dim = contiguous(window)?;
        self.in_array_along(window, register, dim, 0)
    }

    /// An element of a run that is cut.
    pub(super) fn one_of(&mut self, window: &mut Window, run: &Run, at: usize, cut: Option<Reg>) -> Run {
        let register = run.registers[at];
        let within = self.in_line(window, register);
        let mut address = run.address.clone();
        address.offset += at as i64 * window.dtype.unpacked_bytes() as i64;
        Run { registers: vec![register], address, when: self.both(cut, within), cut: None }
    }
}

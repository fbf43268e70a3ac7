//! Tiles whose lines begin between two whole vectors of memory.
//!
//! ```text
//! memory   |.......|.......|.......|.......|    vectors of 16 bytes
//! line        |0123456789..                     begins 3 elements behind one
//! threads     |---0---|---1---|---2---|         have as many elements as a vector has
//! ```
//!
//! A load reads both vectors that have a thread's elements, and shifts these into their places by as many steps of 4, 2 and 1 as they are off.
//! A store writes the vector in which a thread's elements begin: the last ones of the lane before stand in front of its own, shifted the same way. What no
//! vector has, at the ends of a line of lanes and of the array, is stored one by one.

use std::ops::Range;

use tessera_ir::Elem;
use tessera_layout::{Axis, Distribution};
use tessera_ptx::ssa::{Address, Guard, Value as Reg};
use tessera_ptx::{Type as Ty, Word};

use super::lowering::Lowering;
use super::view::{Begin, Ends, Run, Window, contiguous};

/// Bytes of a vector.
const VECTOR_BYTES: u64 = 16;

/// Words of a vector.
const WORDS: usize = 4;

/// Lanes along a line from which on vectors of several lanes are worth it: of fewer most would store one by one.
const LEAST_LANES: u32 = 8;

/// How a load reads runs of a vector's length that begin between two.
pub(super) struct Reads {
    /// Elements of a vector.
    width: u64,
    /// Elements between the last whole vector and each run.
    off: Vec<Reg>,
    /// Where the first vector of each run is read; the second one is where the run is.
    pub(super) firsts: Vec<Option<Reg>>,
}

/// How a store writes them.
pub(super) struct Writes {
    width: u64,
    /// Lanes that follow each other along a line.
    lanes: u32,
}

/// A run that is stored, its elements, where it begins, and which vectors are written: that in which it begins, and the one behind.
struct Stored<'r> {
    run: &'r Run,
    values: &'r [Reg],
    off: Reg,
    vector: Reg,
    behind: Reg,
}

impl Lowering<'_> {
    /// The register bits that count along lines that begin between vectors, and the axis along which they are, where a thread has as many neighbours as a
    /// vector has elements.
    fn bits_between(&self, window: &Window) -> Option<(Vec<usize>, usize)> {
        let (width, dim) = (VECTOR_BYTES / window.unit, contiguous(window)?);
        if window.packed.is_some() || !(4..=16).contains(&width) || window.axes.iter().any(|side| side.gathered.is_some()) {
            return None;
        }
        let bits = self.neighbours_of(window, Ends::Among, Begin::Anywhere);
        let known = self.neighbours_of(window, Ends::Among, Begin::Known).len();
        // Parts of vectors that several lines have take less than to shift each line's own way.
        let one_line = window.axes.iter().enumerate().all(|(other, side)| other == dim || side.extent == 1);
        let pays = known < bits.len() && (one_line || known == 0);
        (1 << bits.len() == width && pays).then_some((bits, dim))
    }

    /// Elements that a load of such a tile may read on both sides of its lines.
    pub(super) fn read_beside(&self, window: &Window) -> u64 {
        if self.bits_between(window).is_some() { VECTOR_BYTES / window.unit } else { 0 }
    }

    /// Their runs.
    fn runs_between(&mut self, window: &mut Window) -> Option<(Vec<Run>, usize)> {
        let (bits, dim) = self.bits_between(window)?;
        Some((self.grouped(window, &bits, Some(dim)), dim))
    }

    /// Elements between the last whole vector and a run.
    fn off(&mut self, window: &Window, run: &Run) -> Reg {
        let alike = window.axes.iter().all(|side| side.extent == 1 || side.known == Some(1) || window.whole_lines_along(side));
        if let Some(behind) = window.behind.filter(|_| alike) {
            return self.b.u32(behind as u32);
        }
        let (base, offset) = match alike {
            true => (window.corner, window.shift.rem_euclid(VECTOR_BYTES as i64)),
            false => (run.address.base, run.address.offset.rem_euclid(VECTOR_BYTES as i64)),
        };
        let place = self.b.cvt(Ty::U32, Ty::U64, base);
        let more = self.b.u32(offset as u32);
        let place = self.b.add(Ty::U32, place, more);
        let (shift, most) = (self.b.u32(window.unit.trailing_zeros()), self.b.u32((VECTOR_BYTES / window.unit) as u32 - 1));
        let place = self.b.shr(Ty::U32, place, shift);
        self.b.and(place, most)
    }

    /// What a load reads of such a tile.
    pub(super) fn reads_between(&mut self, window: &mut Window) -> Option<(Vec<Run>, Reads)> {
        if !window.base_align.is_multiple_of(VECTOR_BYTES) {
            return None;
        }
        let (mut runs, dim) = self.runs_between(window)?;
        let width = VECTOR_BYTES / window.unit;
        // A line that begins at a whole vector begins at the second one of a run, if it begins within a run.
        let whole_lines = window.axes.iter().enumerate().all(|(other, side)| other == dim || window.whole_lines_along(side));
        // A shorter one may lie between a run's ends.
        let is_long = window.axes[dim].least_size >= width as i64;
        let (mut off, mut firsts) = (Vec::new(), Vec::new());
        for run in &mut runs {
            off.push(self.off(window, run));
            let (first, last) = (run.registers[0], run.registers[width as usize - 1]);
            let inside = [(first, 0), (last, 0), (last, width)];
            let [first, last, beyond] = inside.map(|(register, more)| self.in_array_along(window, register, dim, more));
            let others = run.when;
            // The second vector lies in the array where the element behind it does, and what it has of the run lies there, too; the first one where
            // the run's first element does. Of a vector before the array nothing is read.
            let later = self.both(last, beyond);
            let all = self.both(first, later);
            let along = if whole_lines { later } else { all };
            run.when = self.both(others, along);
            firsts.push(self.both(run.when, first));
            let some = match (first, last) {
                (Some(first), Some(last)) if is_long => Some(self.b.or(first, last)),
                _ => None,
            };
            let ends = if whole_lines { beyond } else { along }.map(|along| self.b.not(along));
            run.cut = ends.and_then(|ends| {
                let cut = self.both(Some(ends), some);
                self.both(cut, others)
            });
        }
        Some((runs, Reads { width, off, firsts }))
    }

    /// Loads runs that begin between two vectors, before it is looked for those among which the array ends.
    pub(super) fn load_between(
        &mut self,
        words: &str,
        window: &Window,
        runs: &[Run],
        reads: &Reads,
        padding: Reg,
    ) -> Vec<Vec<Reg>> {
        let elem = Elem::Num(window.dtype);
        let places = reads.off.iter().zip(&reads.firsts);
        let read = |(run, (&off, &first)): (&Run, (&Reg, &Option<Reg>))| self.read_both(words, elem, run, (off, first), padding);
        let read: Vec<Vec<Reg>> = runs.iter().zip(places).map(read).collect();
        let all = self.load_ends(words, window, runs, padding, (read, None));
        all.into_iter().map(|all| self.split(elem, &all, reads.width as usize)).collect()
    }

    /// A run of which two vectors have parts, as it is moved; the first of them is read under a condition of its own.
    fn read_both(&mut self, words: &str, elem: Elem, run: &Run, (off, first): (Reg, Option<Reg>), padding: Reg) -> Vec<Reg> {
        let address = self.vector_before(elem, run, off);
        let next = self.b.at(address.base, address.offset + VECTOR_BYTES as i64);
        let filler = vec![padding; run.registers.len()];
        let filler = self.joined(elem, &filler);
        let mut all = self.read_words(words, (address, first), self.used(elem, off, 0), &filler);
        all.extend(self.read_words(words, (next, run.when), self.used(elem, off, 1), &filler));
        self.up_to(elem, all, off)
    }

    /// Which words of the first or the second of two vectors what begins so many elements behind the first one's begin has.
    fn used(&self, elem: Elem, off: Reg, vector: usize) -> Range<usize> {
        let Some(off) = self.b.kernel().constant(off) else { return 0..WORDS };
        let begin = off as usize * elem.bytes() as usize;
        let [first, end] = [begin / 4, (begin + VECTOR_BYTES as usize).div_ceil(4)];
        if vector == 0 { first..WORDS } else { 0..end - WORDS }
    }

    /// Words of a vector, by an access of no more than holds them; the others stay as they are.
    fn read_words(&mut self, words: &str, (at, when): (Address, Option<Reg>), used: Range<usize>, filler: &[Reg]) -> Vec<Reg> {
        let width = used.len().next_power_of_two();
        let begin = if width == WORDS { 0 } else { used.start };
        let mut all = filler.to_vec();
        if used.is_empty() {
            return all;
        }
        let at = self.b.at(at.base, at.offset + 4 * begin as i64);
        let own = begin..begin + width;
        let read = match when {
            Some(when) => self.b.ld_vector_if(when, words, Ty::B32, at, &filler[own.clone()]),
            None => self.b.ld_vector(words, Ty::B32, width, at),
        };
        all[own].copy_from_slice(&read);
        all
    }

    /// The vector in which a run begins.
    fn vector_before(&mut self, elem: Elem, run: &Run, off: Reg) -> Address {
        let bytes = self.b.u32(elem.bytes() as u32);
        let off = self.b.mul(Ty::U32, off, bytes);
        let off = self.b.cvt(Ty::U64, Ty::U32, off);
        let base = self.b.sub(Ty::S64, run.address.base, off);
        self.b.at(base, run.address.offset)
    }

    /// Of two vectors what is so many elements behind the first one's begin: whole words first, then what is left within them.
    fn up_to(&mut self, elem: Elem, mut all: Vec<Reg>, off: Reg) -> Vec<Reg> {
        let bytes = elem.bytes() as u32;
        let known = self.b.kernel().constant(off).map(|off| off as u32 * bytes);
        match known {
            Some(known) => drop(all.drain(..known as usize / 4)),
            None => {
                for (step, left) in [(2, 6), (1, 5)] {
                    let moves = self.has(off, step * 4 / bytes);
                    let far = step as usize;
                    all = (0..left).map(|at| self.b.select(moves, all[at + far], all[at])).collect();
                }
            }
        }
        if bytes < 4 && known.is_none_or(|known| known % 4 > 0) {
            let within = match known {
                Some(known) => self.b.u32(known % 4 * 8),
                None => self.bits_within(elem, off),
            };
            all = (0..WORDS).map(|at| self.b.shf_right(all[at], all[at + 1], within)).collect();
        }
        all.truncate(WORDS);
        all
    }

    /// Of two vectors what begins so many elements before the second one.
    fn back_by(&mut self, elem: Elem, mut all: Vec<Reg>, off: Reg) -> Vec<Reg> {
        let per_word = 4 / elem.bytes() as u32;
        for step in [2, 1] {
            let moves = self.has(off, step * per_word);
            let far = step as usize;
            all = (far..all.len()).map(|at| self.b.select(moves, all[at - far], all[at])).collect();
        }
        if per_word > 1 {
            let within = self.bits_within(elem, off);
            all = (1..all.len()).map(|at| self.b.shf_left(all[at - 1], all[at], within)).collect();
        }
        all.split_off(all.len() - WORDS)
    }

    /// Whether a number has a bit.
    fn has(&mut self, number: Reg, bit: u32) -> Reg {
        let (bit, zero) = (self.b.u32(bit), self.b.u32(0));
        let own = self.b.and(number, bit);
        self.b.setp(Word::Ne, Ty::U32, own, zero)
    }

    /// Bits that a vector is off within its words.
    fn bits_within(&mut self, elem: Elem, off: Reg) -> Reg {
        let bytes = elem.bytes() as u32;
        let (most, bits) = (self.b.u32(4 / bytes - 1), self.b.u32(8 * bytes));
        let within = self.b.and(off, most);
        self.b.mul(Ty::U32, within, bits)
    }

    /// What a store writes of such a tile: runs whose neighbours along their lines are the neighbouring lanes'.
    pub(super) fn writes_between(&mut self, window: &mut Window) -> Option<(Vec<Run>, Writes)> {
        let width = VECTOR_BYTES / window.unit;
        let lanes = lanes_along(&window.layout, contiguous(window)?, width);
        if lanes < LEAST_LANES {
            return None;
        }
        let (mut runs, dim) = self.runs_between(window)?;
        for run in &mut runs {
            let (along, cut) = self.parted(window, &run.registers, dim);
            (run.cut, run.when) = (cut.and_then(|cut| self.both(Some(cut), run.when)), self.both(run.when, along));
        }
        Some((runs, Writes { width, lanes }))
    }

    /// Stores runs that begin between two vectors.
    pub(super) fn store_between(&mut self, words: &str, window: &Window, writes: &Writes, parts: &[(Run, Vec<Reg>)]) {
        let elem = Elem::Num(window.dtype);
        let mut stored = Vec::new();
        for (run, values) in parts {
            let off = self.off(window, run);
            let (vector, behind) = self.vectors_of(run, off, writes.lanes);
            let own = self.joined(elem, values);
            let (one, address) = (self.b.u32(1), self.vector_before(elem, run, off));
            let mut all: Vec<Reg> = own.iter().map(|&word| self.b.shfl(Word::Up, word, one, 0)).collect();
            all.extend(own);
            let all = self.back_by(elem, all, off);
            self.b.under(Guard { value: vector, negated: false }, |b| b.st_vector(words, Ty::B32, address, &all));
            stored.push(Stored { run, values, off, vector, behind });
        }
        self.store_rests(words, window, writes.width, &stored);
    }

    /// Whether this lane writes the vector in which its run begins, and whether the vector behind it is written, in which the run ends.
    fn vectors_of(&mut self, run: &Run, off: Reg, lanes: u32) -> (Reg, Reg) {
        let (one, zero, most) = (self.b.u32(1), self.b.u32(0), self.b.u32(lanes - 1));
        let lane = self.lane();
        let lane = self.b.and(lane, most);
        let inner = self.b.setp(Word::Ne, Ty::U32, lane, zero);
        let exact = self.b.setp(Word::Eq, Ty::U32, off, zero);
        let before = match run.when {
            Some(whole) => {
                let whole = self.b.select(whole, one, zero);
                let before = self.b.shfl(Word::Up, whole, one, 0);
                let before = self.b.setp(Word::Ne, Ty::U32, before, zero);
                self.b.and(inner, before)
            }
            None => inner,
        };
        let vector = self.b.or(exact, before);
        let vector = self.both(run.when, Some(vector)).unwrap_or(vector);
        let written = self.b.select(vector, one, zero);
        let behind = self.b.shfl(Word::Down, written, one, 31);
        let behind = self.b.setp(Word::Ne, Ty::U32, behind, zero);
        let before_last = self.b.setp(Word::Lt, Ty::U32, lane, most);
        (vector, self.b.and(behind, before_last))
    }

    /// Stores what no vector has, in the threads that have such elements.
    fn store_rests(&mut self, words: &str, window: &Window, width: u64, stored: &[Stored<'_>]) {
        let elem = Elem::Num(window.dtype);
        let rests: Vec<Reg> = stored.iter().map(|stored| self.rest_of(stored)).collect();
        let Some(any) = rests.iter().copied().reduce(|all, rest| self.b.or(all, rest)) else { return };
        let (ends, past) = (self.b.new_block(&[]), self.b.new_block(&[]));
        self.b.branch(any, (ends, &[]), (past, &[]));
        self.b.switch_to(ends);
        let mut inner = window.clone();
        for (stored, &rest) in stored.iter().zip(&rests) {
            for (place, &value) in stored.values.iter().enumerate() {
                // The last elements, as many as the line is off, are the next vector's.
                let least = self.b.u32((width - place as u64) as u32);
                let first = self.b.setp(Word::Lt, Ty::U32, stored.off, least);
                let written = self.b.select(first, stored.vector, stored.behind);
                let open = self.b.not(written);
                let open = self.b.and(rest, open);
                let one = self.one_of(&mut inner, stored.run, place, Some(open));
                self.store_run(words, elem, &one, &[value], false);
            }
        }
        self.b.jump(past, &[]);
        self.b.switch_to(past);
    }

    /// Whether a thread has elements of a run that no vector has.
    fn rest_of(&mut self, stored: &Stored<'_>) -> Reg {
        let zero = self.b.u32(0);
        let exact = self.b.setp(Word::Eq, Ty::U32, stored.off, zero);
        let behind = self.b.or(exact, stored.behind);
        let all = self.b.and(stored.vector, behind);
        let rest = self.b.not(all);
        let some = match (stored.run.when, stored.run.cut) {
            (Some(whole), Some(cut)) => Some(self.b.or(whole, cut)),
            (whole, _) => whole,
        };
        self.both(some, Some(rest)).unwrap_or(rest)
    }
}

/// Lanes that follow each other along an axis, each so many elements behind the one before.
fn lanes_along(layout: &Distribution, dim: usize, width: u64) -> u32 {
    let core = layout.core();
    let follows = |bit: &usize| {
        let basis = core.basis(Axis::Lane, *bit);
        basis.iter().enumerate().all(|(axis, &value)| value == if axis == dim { width << bit } else { 0 })
    };
    1 << (0..core.bits(Axis::Lane)).take_while(follows).count()
}

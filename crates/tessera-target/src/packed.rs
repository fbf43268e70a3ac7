//! Elements of less than a byte in memory: neighbours come as the words that they fill, others one by one.
//!
//! | elements | bits | neighbours that fill words | come as |
//! |---|---|---|---|
//! | `f4e2m1` | 4 | 2, 4, 8, 16, 32 | 1, 2, 4, 8, 16 bytes |
//! | `f6e2m3`, `f6e3m2` | 6 | 4, 8, 16 | three pieces of 1, 2, 4 bytes |
//!
//! Invariant: a code stands in the low bits of its register; those above mean nothing. What is stored changes no bits of neighbours.

use tessera_ir::Elem;
use tessera_ptx::ssa::{Address, Class, Value as Reg};
use tessera_ptx::{Type as Ty, Word};

use super::lowering::{Lowered, Lowering};
use super::view::Run;

/// The most bits of neighbours that are read at once.
const MOST: u64 = 128;

/// Whether so many neighbours can be read at once: they fill whole bytes, in words or in three pieces of one.
pub(super) fn fills_words(bits: u64, count: u64) -> bool {
    let bytes = bits * count / 8;
    (bits * count).is_multiple_of(8)
        && bits * count <= MOST
        && (bytes.is_power_of_two() || bytes.is_multiple_of(3) && bytes <= 12)
}

impl Lowering<'_> {
    /// The byte that an element's code starts in, and the bit where it does.
    fn packed_place(&mut self, base: Reg, elem: Elem, address: &Address) -> (Reg, Reg) {
        let bits = elem.bits();
        let offset = self.b.s64(address.offset);
        let number = self.b.add(Ty::S64, address.base, offset);
        let width = self.b.u64(bits);
        let position = self.b.mul(Ty::S64, number, width);
        let three = self.b.u32(3);
        let byte = self.b.shr(Ty::S64, position, three);
        let low = self.b.cvt(Ty::U32, Ty::U64, position);
        let seven = self.b.u32(7);
        let shift = self.b.and(low, seven);
        (self.b.add(Ty::S64, base, byte), shift)
    }

    /// The byte that neighbours start. So does what lies a multiple of them further.
    fn packed_start(&mut self, base: Reg, elem: Elem, run: &Run) -> Address {
        let (bits, count) = (elem.bits() as i64, run.registers.len() as i64);
        let ahead = run.address.offset.rem_euclid(count);
        let first = self.b.at(run.address.base, ahead);
        let (start, _) = self.packed_place(base, elem, &first);
        self.b.at(start, (run.address.offset - ahead) * bits / 8)
    }

    /// The codes of neighbours.
    pub(super) fn load_packed(&mut self, base: Reg, elem: Elem, run: &Run, padding: Reg) -> Lowered<Vec<Reg>> {
        if run.registers.len() == 1 {
            return Ok(vec![self.load_code(base, elem, run, padding)]);
        }
        let (bits, count) = (elem.bits(), run.registers.len() as u64);
        let start = self.packed_start(base, elem, run);
        let bytes = bits * count / 8;
        let piece = 1 << bytes.trailing_zeros();
        let code = self.b.kernel().constant(padding).ok_or_else(|| self.broken("padding that is no constant"))?;
        let filler = (0..count).fold(0u128, |all, at| all | u128::from(code & ((1 << bits) - 1)) << (at * bits));
        let mut words = Vec::new();
        for at in (0..bytes).step_by(piece as usize) {
            let (ty, each) = match piece {
                1 => (Ty::U8, 1),
                2 => (Ty::U16, 2),
                _ => (Ty::B32, 4),
            };
            let address = self.b.at(start.base, start.offset + at as i64);
            let loaded = match run.when {
                None => self.b.ld_vector("global", ty, (piece / each) as usize, address),
                Some(when) => {
                    let fillers = (at..at + piece).step_by(each as usize);
                    let part = |at: u64| (filler >> (8 * at)) as u64 & ((1 << (8 * each)) - 1);
                    let fillers: Vec<Reg> = fillers.map(|at| self.b.constant(Class::of(ty), part(at))).collect();
                    self.b.ld_vector_if(when, "global", ty, address, &fillers)
                }
            };
            words.extend(loaded.into_iter().map(|word| self.fitted(word, Class::B32)).collect::<Vec<_>>());
        }
        if piece < 4 {
            words = self.in_words(&words, piece as u32);
        }
        Ok(self.codes(&words, bits as u32, count as u32))
    }

    /// Pieces of one or two bytes joined to words.
    fn in_words(&mut self, pieces: &[Reg], bytes: u32) -> Vec<Reg> {
        let mut words = Vec::new();
        for chunk in pieces.chunks((4 / bytes) as usize) {
            let mut word = chunk[0];
            for (at, &next) in (1u32..).zip(&chunk[1..]) {
                let count = self.b.u32(8 * bytes * at);
                let next = self.b.shl(next, count);
                word = self.b.or(word, next);
            }
            words.push(word);
        }
        words
    }

    /// The codes that stand side by side in words.
    fn codes(&mut self, words: &[Reg], bits: u32, count: u32) -> Vec<Reg> {
        let mut codes = Vec::new();
        for at in 0..count {
            let (word, shift) = ((at * bits / 32) as usize, at * bits % 32);
            let amount = self.b.u32(shift);
            codes.push(match (shift, words.get(word + 1)) {
                (0, _) => words[word],
                (_, Some(&next)) if shift + bits > 32 => self.b.shf_right(words[word], next, amount),
                _ => self.b.shr(Ty::U32, words[word], amount),
            });
        }
        if bits == 4 {
            for (codes, &word) in codes.chunks_exact(8).zip(words) {
                self.words.insert(codes.into(), word);
            }
        }
        codes
    }

    fn load_code(&mut self, base: Reg, elem: Elem, run: &Run, padding: Reg) -> Reg {
        let (address, shift) = self.packed_place(base, elem, &run.address);
        let bits = elem.bits() as u32;
        let zero = self.b.u32(0);
        let always = self.b.bool(true);
        let when = run.when.unwrap_or(always);
        let first = self.b.ld_if(when, "global", Ty::U8, address, zero);
        let mut word = first;
        if 8 % bits != 0 {
            // The second byte is read only where the code reaches into it.
            let last = self.b.u32(8 - bits);
            let reaches = self.b.setp(Word::Gt, Ty::U32, shift, last);
            let reaches = self.b.and(reaches, when);
            let second = self.b.ld_if(reaches, "global", Ty::U8, (address, 1), zero);
            let eight = self.b.u32(8);
            let second = self.b.shl(second, eight);
            word = self.b.or(word, second);
        }
        let code = self.b.shr(Ty::U32, word, shift);
        match run.when {
            None => code,
            Some(when) => self.b.select(when, code, padding),
        }
    }

    /// Stores the codes of neighbours, one by one.
    pub(super) fn store_packed(&mut self, base: Reg, elem: Elem, run: &Run, values: &[Reg]) {
        for (at, &value) in (0i64..).zip(values) {
            let address = self.b.at(run.address.base, run.address.offset + at);
            let one = Run { registers: vec![run.registers[at as usize]], address, when: run.when, cut: None };
            self.store_code(base, elem, &one, value);
        }
    }

    /// Neighbours in a byte may belong to other threads: their bits are kept whatever those do.
    fn store_code(&mut self, base: Reg, elem: Elem, run: &Run, value: Reg) {
        let (address, shift) = self.packed_place(base, elem, &run.address);
        let bits = elem.bits() as u32;
        // The code lies in one or two aligned half words; each is changed by taking its bits out and putting the new ones in.
        let one = self.b.u64(1);
        let within = self.b.and(address, one);
        let start = self.b.sub(Ty::S64, address, within);
        let within = self.b.cvt(Ty::U32, Ty::U64, within);
        let eight = self.b.u32(8);
        let shift = self.b.mad(Ty::U32, within, eight, shift);
        let mask = self.b.u32((1 << bits) - 1);
        let code = self.b.and(value, mask);
        let (code, mask) = (self.b.shl(code, shift), self.b.shl(mask, shift));
        let (code, mask) = (self.b.unpack(code, Class::B16), self.b.unpack(mask, Class::B16));
        let zero = self.b.b16(0);
        let always = self.b.bool(true);
        let mut when = run.when.unwrap_or(always);
        for part in 0..2 {
            if part == 1 {
                if 8 % bits == 0 {
                    break;
                }
                let touched = self.b.setp(Word::Ne, Ty::U16, mask[1], zero);
                when = self.b.and(when, touched);
            }
            let (code, mask) = (code[part], mask[part]);
            let address = self.b.at(start, 2 * part as i64);
            self.b.when(when, |b| {
                let old = b.ld("relaxed.gpu.global", Ty::B16, address.clone());
                b.repeat_while(&[old], |b, carried| {
                    let kept = b.not(mask);
                    let kept = b.and(carried[0], kept);
                    let new = b.or(kept, code);
                    let found = b.atom_cas("relaxed.gpu.global", Ty::B16, address.clone(), carried[0], new);
                    let again = b.setp(Word::Ne, Ty::U16, found, carried[0]);
                    (again, vec![found])
                });
            });
        }
    }
}

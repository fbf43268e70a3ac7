//! Optimised programs compute what they computed before, bit for bit: random programs with branches, loops, guarded and
//! vector accesses, run in SSA form and as PTX.

use std::collections::BTreeMap;

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use tessera_ptx::ssa::{Builder, Class, Kernel, Level, Value, module, optimize, verify};
use tessera_ptx::{Limit, Special, Target, Type, Word, check, parse, print};

use crate::ssa::interpret::{MEMORY, Machine};

const BYTES: usize = 288;

/// Builds a random program. What is a constant in one way of building is a parameter in the other, where nothing can be
/// folded; the choices are the same.
struct Writer<'u, 'a> {
    u: &'u mut Unstructured<'a>,
    constants_are_params: bool,
    params: BTreeMap<String, u64>,
    known: BTreeMap<(Class, u64), Value>,
    base: Value,
    statements: u32,
}

#[derive(Clone, Default)]
struct Scope {
    words: Vec<Value>,
    longs: Vec<Value>,
    predicates: Vec<Value>,
}

impl Writer<'_, '_> {
    fn constant(&mut self, b: &mut Builder, class: Class, bits: u64) -> Value {
        if !self.constants_are_params {
            return b.constant(class, bits);
        }
        if let Some(&known) = self.known.get(&(class, bits)) {
            return known;
        }
        let name = format!("c{}", self.params.len());
        let ty = if class == Class::B64 { Type::U64 } else { Type::U32 };
        self.params.insert(name.clone(), bits);
        let value = b.scalar_param(&name, ty);
        self.known.insert((class, bits), value);
        value
    }

    fn number(&mut self) -> Result<u32> {
        Ok(match self.u.int_in_range(0..=8)? {
            0 => 0,
            8 => 0x7FC0_0000,
            1 => 1,
            2 => 1 << self.u.int_in_range(0..=31)?,
            3 => u32::MAX,
            4 => self.u.arbitrary()?,
            5 => self.u.int_in_range(0..=100)?,
            6 => 0x8000_0000,
            _ => self.u.int_in_range(2..=12)?,
        })
    }

    fn word(&mut self, b: &mut Builder, scope: &Scope) -> Result<Value> {
        if self.u.ratio(1, 4)? {
            let number = self.number()?;
            return Ok(self.constant(b, Class::B32, number.into()));
        }
        Ok(*self.u.choose(&scope.words)?)
    }

    fn long(&mut self, b: &mut Builder, scope: &Scope) -> Result<Value> {
        if scope.longs.is_empty() || self.u.ratio(1, 5)? {
            let number = u64::from(self.number()?) << (8 * self.u.int_in_range(0..=4)?);
            return Ok(self.constant(b, Class::B64, number));
        }
        Ok(*self.u.choose(&scope.longs)?)
    }

    fn predicate(&mut self, b: &mut Builder, scope: &Scope) -> Result<Value> {
        if scope.predicates.is_empty() || self.u.ratio(1, 2)? {
            let (x, y) = (self.word(b, scope)?, self.word(b, scope)?);
            let compare = *self.u.choose(&[Word::Eq, Word::Ne, Word::Lt, Word::Le, Word::Gt, Word::Ge])?;
            let ty = *self.u.choose(&[Type::S32, Type::U32, Type::F32])?;
            return Ok(b.setp(compare, ty, x, y));
        }
        Ok(*self.u.choose(&scope.predicates)?)
    }

    /// An address inside the memory, a multiple of `align`, at least 16 bytes before its end.
    fn address(&mut self, b: &mut Builder, scope: &Scope, align: u64) -> Result<(Value, i64)> {
        let offset = (self.u.int_in_range(0..=3u64)? * align).min(16 - align) as i64;
        // Mostly a place that was used before, so that accesses meet.
        if align == 4 && self.u.ratio(1, 2)? {
            let slot = b.u64(self.u.int_in_range(0..=3u64)? * 4);
            return Ok((b.add(Type::U64, self.base, slot), offset));
        }
        let slot = if self.u.ratio(1, 3)? {
            b.constant(Class::B32, self.u.int_in_range(0..=7u64)? * 16)
        } else {
            let word = self.word(b, scope)?;
            let limit = b.u32(7);
            let slot = b.and(word, limit);
            let sixteen = b.u32(16);
            b.mul(Type::U32, slot, sixteen)
        };
        let slot = b.cvt(Type::U64, Type::U32, slot);
        let at = b.add(Type::U64, self.base, slot);
        if self.u.ratio(1, 2)? {
            return Ok((at, offset));
        }
        let offset = b.u64(offset as u64);
        Ok((b.add(Type::S64, at, offset), 0))
    }

    fn expression(&mut self, b: &mut Builder, scope: &mut Scope) -> Result<()> {
        let (x, y, z) = (self.word(b, scope)?, self.word(b, scope)?, self.word(b, scope)?);
        let ty = *self.u.choose(&[Type::U32, Type::S32])?;
        let word = match self.u.int_in_range(0..=27)? {
            0..=2 => b.add(ty, x, y),
            3 => b.sub(ty, x, y),
            4 | 5 => b.mul(ty, x, y),
            6 => b.mul_hi(ty, x, y),
            7 | 8 => b.mad(ty, x, y, z),
            9 => b.and(x, y),
            10 => b.or(x, y),
            11 => b.xor(x, y),
            12 => b.not(x),
            13 => b.shl(x, y),
            14 => b.shr(ty, x, y),
            15 => b.min(ty, x, y),
            16 => b.max(ty, x, y),
            17 | 18 => {
                // A divisor is neither zero nor the one that overflows.
                let number = self.number()?.max(2);
                let number = if number == u32::MAX { 7 } else { number };
                let divisor = self.constant(b, Class::B32, number.into());
                if self.u.ratio(1, 2)? { b.div(ty, x, divisor) } else { b.rem(ty, x, divisor) }
            }
            19 => {
                let predicate = self.predicate(b, scope)?;
                b.select(predicate, x, y)
            }
            20 => b.add(Type::F32, x, y),
            21 => b.fma(Type::F32, x, y, z),
            22 => {
                let (p, q) = (self.predicate(b, scope)?, self.predicate(b, scope)?);
                let p = if self.u.ratio(1, 2)? { b.not(p) } else { b.and(p, q) };
                scope.predicates.push(p);
                return Ok(());
            }
            23 => {
                let long = self.long(b, scope)?;
                b.cvt(*self.u.choose(&[Type::U32, Type::S32])?, *self.u.choose(&[Type::U64, Type::S64])?, long)
            }
            _ => return self.long_expression(b, scope, x, y),
        };
        scope.words.push(word);
        Ok(())
    }

    fn long_expression(&mut self, b: &mut Builder, scope: &mut Scope, x: Value, y: Value) -> Result<()> {
        let (p, q) = (self.long(b, scope)?, self.long(b, scope)?);
        let (ty, short) = *self.u.choose(&[(Type::U64, Type::U32), (Type::S64, Type::S32)])?;
        let long = match self.u.int_in_range(0..=9)? {
            0 => b.cvt(ty, short, x),
            1 => b.mul_wide(short, x, y),
            2 => b.mad_wide(short, x, y, p),
            3 | 4 => b.add(ty, p, q),
            5 => b.sub(ty, p, q),
            6 => b.mul(ty, p, q),
            7 if self.u.ratio(1, 2)? => {
                let (a, c) = (b.cvt(ty, short, x), b.cvt(ty, short, y));
                let compare = *self.u.choose(&[Word::Eq, Word::Lt, Word::Ge])?;
                let compared = *self.u.choose(&[Type::U64, Type::S64])?;
                scope.predicates.push(b.setp(compare, compared, a, c));
                return Ok(());
            }
            7 => {
                let amount = b.u32(self.u.int_in_range(0..=64)?);
                b.shl(p, amount)
            }
            8 => {
                let number = self.number()?.max(2);
                let divisor = self.constant(b, Class::B64, number.into());
                if self.u.ratio(1, 2)? { b.div(ty, p, divisor) } else { b.rem(ty, p, divisor) }
            }
            _ => {
                let compare = *self.u.choose(&[Word::Eq, Word::Lt, Word::Ge])?;
                let predicate = b.setp(compare, ty, p, q);
                scope.predicates.push(predicate);
                return Ok(());
            }
        };
        scope.longs.push(long);
        Ok(())
    }

    fn memory(&mut self, b: &mut Builder, scope: &mut Scope) -> Result<()> {
        match self.u.int_in_range(0..=6)? {
            6 => {
                let at = self.address(b, scope, 16)?;
                let values = self.pick(b, scope, 4)?;
                b.st_vector("global", Type::U32, at, &values);
            }
            0 => {
                let at = self.address(b, scope, 4)?;
                scope.words.push(b.ld("global", Type::U32, at));
            }
            1 => {
                let at = self.address(b, scope, 4)?;
                let value = self.word(b, scope)?;
                b.st("global", Type::U32, at, value);
            }
            2 => {
                let predicate = self.predicate(b, scope)?;
                let at = self.address(b, scope, 8)?;
                let defaults = [self.word(b, scope)?, self.word(b, scope)?];
                scope.words.extend(b.ld_vector_if(predicate, "global", Type::B32, at, &defaults));
            }
            3 => {
                let predicate = self.predicate(b, scope)?;
                let at = self.address(b, scope, 4)?;
                let value = self.word(b, scope)?;
                b.guarded(predicate, |b| b.st("global", Type::B32, at, value));
            }
            4 => {
                // Neighbours, in any order; of a base that is a multiple of 16 or only of 4.
                let align = *self.u.choose(&[4, 16])?;
                let (at, _) = self.address(b, scope, align)?;
                let mut offsets = [0, 4, 8, 12];
                offsets.swap(self.u.int_in_range(0..=3)?, self.u.int_in_range(0..=3)?);
                for offset in offsets {
                    if self.u.ratio(1, 2)? {
                        scope.words.push(b.ld("global", Type::U32, (at, offset)));
                    } else {
                        let value = self.word(b, scope)?;
                        b.st("global", Type::U32, (at, offset), value);
                    }
                }
            }
            _ => {
                let (at, _) = self.address(b, scope, 16)?;
                let values = [self.word(b, scope)?, self.word(b, scope)?, self.word(b, scope)?, self.word(b, scope)?];
                (0..4).for_each(|index| b.st("global", Type::U32, (at, 4 * index), values[index as usize]));
            }
        }
        Ok(())
    }

    fn pick(&mut self, b: &mut Builder, scope: &Scope, count: usize) -> Result<Vec<Value>> {
        (0..count).map(|_| self.word(b, scope)).collect()
    }

    fn block(&mut self, b: &mut Builder, scope: &mut Scope, depth: u32) -> Result<()> {
        for _ in 0..self.u.int_in_range(1..=8)? {
            if self.statements == 0 {
                return Ok(());
            }
            self.statements -= 1;
            match self.u.int_in_range(0..=9)? {
                0 | 1 => self.memory(b, scope)?,
                2 if depth > 0 => self.choice(b, scope, depth)?,
                3 if depth > 0 => self.count(b, scope, depth)?,
                4 if depth > 0 => self.repeat(b, scope, depth)?,
                _ => self.expression(b, scope)?,
            }
        }
        Ok(())
    }

    fn choice(&mut self, b: &mut Builder, scope: &mut Scope, depth: u32) -> Result<()> {
        let condition = self.predicate(b, scope)?;
        let count = self.u.int_in_range(0..=2)?;
        // Both arms need the writer: one after the other, through a cell.
        let writer = std::cell::RefCell::new(&mut *self);
        let arm = |b: &mut Builder| {
            let mut writer = writer.borrow_mut();
            let mut inner = scope.clone();
            let values = writer.block(b, &mut inner, depth - 1).and_then(|()| writer.pick(b, &inner, count));
            values.unwrap_or_else(|_| vec![scope.words[0]; count])
        };
        let joined = b.if_(condition, arm, arm);
        scope.words.extend(joined);
        Ok(())
    }

    fn count(&mut self, b: &mut Builder, scope: &mut Scope, depth: u32) -> Result<()> {
        let (ty, lowest) = *self.u.choose(&[(Type::S32, -4), (Type::U32, 0)])?;
        let low = self.u.int_in_range(lowest..=3)?;
        let high = self.u.int_in_range(lowest..=6)?;
        let lo = self.constant(b, Class::B32, low as u32 as u64);
        let hi = self.constant(b, Class::B32, high as u32 as u64);
        let step = b.u32(self.u.int_in_range(1..=3)?);
        let stride = self.long(b, scope)?;
        let carried = self.pick(b, scope, 2)?;
        let words = b.for_(ty, (lo, hi, step), &carried, |b, index, carried| {
            let mut inner = scope.clone();
            inner.words.extend([index, index, carried[0], carried[1]]);
            let wide = if ty == Type::S32 { Type::S64 } else { Type::U64 };
            let long = b.cvt(wide, ty, index);
            inner.longs.extend([long, b.mul(wide, long, stride)]);
            let values = self.block(b, &mut inner, depth - 1).and_then(|()| self.pick(b, &inner, 2));
            values.unwrap_or_else(|_| carried.to_vec())
        });
        scope.words.extend(words);
        Ok(())
    }

    fn repeat(&mut self, b: &mut Builder, scope: &mut Scope, depth: u32) -> Result<()> {
        let rounds = self.u.int_in_range(1..=4u32)?;
        let (zero, one, limit) = (b.u32(0), b.u32(1), b.u32(rounds));
        let carried = [vec![zero], self.pick(b, scope, 2)?].concat();
        let words = b.repeat_while(&carried, |b, carried| {
            let mut inner = scope.clone();
            inner.words.extend(carried);
            let values = self.block(b, &mut inner, depth - 1).and_then(|()| self.pick(b, &inner, 2));
            let values = values.unwrap_or_else(|_| carried[1..].to_vec());
            let count = b.add(Type::U32, carried[0], one);
            let again = b.setp(Word::Lt, Type::U32, count, limit);
            (again, [vec![count], values].concat())
        });
        scope.words.extend(words);
        Ok(())
    }
}

/// A random program and its parameters.
fn program(u: &mut Unstructured<'_>, constants_are_params: bool) -> Result<(Kernel, BTreeMap<String, u64>)> {
    let mut b = Builder::new("random");
    let base = b.pointer_param("x", 16);
    let n = b.scalar_param("n", Type::U32);
    let thread = b.special(Special::TidX);
    let params = BTreeMap::from([("x".to_owned(), MEMORY), ("n".to_owned(), 0)]);
    let mut writer = Writer { u, constants_are_params, params, known: BTreeMap::new(), base, statements: 60 };
    let number = writer.number()?;
    writer.params.insert("n".to_owned(), number.into());
    let loaded = b.ld("global", Type::U32, base);
    let mut scope = Scope { words: vec![n, thread, loaded], ..Scope::default() };
    writer.block(&mut b, &mut scope, 3)?;
    let count = scope.words.len();
    for (index, &value) in scope.words[count.saturating_sub(16)..].iter().enumerate() {
        b.st("global", Type::U32, (base, 192 + 4 * index as i64), value);
    }
    for (index, &value) in scope.longs.iter().rev().take(4).enumerate() {
        b.st("global", Type::U64, (base, 144 + 8 * index as i64), value);
    }
    b.ret();
    let params = writer.params;
    Ok((b.finish().unwrap(), params))
}

/// Bytes that follow from a seed: enough for a program of every size.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(3000).collect()
}

fn machine(params: &BTreeMap<String, u64>) -> Machine {
    let memory = (0..BYTES).map(|index| (index * 37 + 11) as u8).collect();
    Machine { memory, params: params.clone(), thread: 5 }
}

fn run_ptx(kernel: &Kernel, params: &BTreeMap<String, u64>) -> (Vec<u8>, String) {
    let (module, _) = module(std::slice::from_ref(kernel), Target::SM_90A, &[]);
    let text = print(&module);
    assert_eq!(check(&module), [], "{text}");
    assert_eq!(parse(&text).unwrap(), module, "{text}");
    let mut machine = machine(params);
    machine.run_ptx(module.functions().next().unwrap());
    (machine.memory, text)
}

#[test]
fn optimised_programs_compute_the_same() {
    arbtest(|u| {
        let bytes = noise(u.arbitrary()?);
        // The reference: nothing folded, run in SSA form.
        let Ok((plain, params)) = program(&mut Unstructured::new(&bytes), true) else { return Ok(()) };
        assert_eq!(verify(&plain), Vec::<String>::new());
        let mut reference = machine(&params);
        reference.run_ssa(&plain);

        let (memory, text) = run_ptx(&plain, &params);
        assert!(memory == reference.memory, "out of SSA:\n{text}");
        for constants_are_params in [true, false] {
            let (kernel, params) = program(&mut Unstructured::new(&bytes), constants_are_params).unwrap();
            // With few registers, blocks are computed piece by piece.
            let few = [Limit::MaxRegisters(26)];
            for (level, limits) in [(Level::O0, &[][..]), (Level::O1, &[]), (Level::O2, &[]), (Level::O2, &few)] {
                let mut kernel = kernel.clone();
                kernel.limits.extend(limits);
                optimize(&mut kernel, level);
                assert_eq!(verify(&kernel), Vec::<String>::new());
                let (memory, text) = run_ptx(&kernel, &params);
                assert!(
                    memory == reference.memory,
                    "{level:?}, constants as parameters: {constants_are_params}\n{text}\nfrom\n{}",
                    run_ptx(&plain, &params).1
                );
            }
        }
        Ok(())
    })
    .budget_ms(3000);
}

/// Elements that do not fit into the registers all at once are loaded and computed in pieces, between which the warp meets.
#[test]
fn much_is_computed_in_pieces() {
    let build = |registers: u32| {
        let mut b = Builder::new("pieces");
        let (base, one) = (b.pointer_param("x", 16), b.u32(1));
        let loaded: Vec<Value> = (0..128).map(|at| b.ld("global", Type::U32, (base, 4 * at))).collect();
        let sums: Vec<Value> = (0..64).map(|at| b.add(Type::U32, loaded[at], loaded[64 + at])).collect();
        let threads = b.special(Special::TidX);
        let some = b.setp(Word::Lt, Type::U32, threads, one);
        let stored = |b: &mut Builder| {
            sums.iter().zip(0..).for_each(|(&sum, at)| b.st("global", Type::U32, (base, 4 * at), sum));
            Vec::new()
        };
        b.if_(some, stored, |_| Vec::new());
        b.ret();
        let mut kernel = b.finish().unwrap();
        kernel.limits.push(Limit::MaxRegisters(registers));
        optimize(&mut kernel, Level::O2);
        let (module, _) = module(std::slice::from_ref(&kernel), Target::SM_90A, &[]);
        let text = print(&module);
        assert_eq!(check(&module), [], "{text}");
        text
    };
    assert!(!build(160).contains("bar.warp.sync"));
    let text = build(96);
    // 128 registers in pieces of 16.
    assert_eq!(text.matches("bar.warp.sync").count(), 8, "{text}");
    // With more registers beside the sums a piece loads more.
    assert!(build(136).matches("bar.warp.sync").count() < 8);
    let place = |word: &str| text.find(word).unwrap();
    assert!(place("add.u32") < text.rfind("ld.global").unwrap() && place("activemask") < place("bar.warp"), "{text}");
}

/// What only some rounds of a loop need stands before it where registers are left, and where it is needed where they are scarce.
#[test]
fn loops_without_registers_keep_what_few_rounds_need() {
    let stands_before_the_loop = |held: u32| {
        let mut b = Builder::new("rounds");
        let base = b.pointer_param("x", 16);
        let loaded: Vec<Value> = (0..held).map(|at| b.ld("global", Type::U32, (base, 4 * i64::from(at)))).collect();
        let (zero, one, seven) = (b.u32(0), b.u32(1), b.u32(7));
        let (head, exit) = (b.new_block(&[Class::B32]), b.new_block(&[]));
        b.jump(head, &[zero]);
        b.switch_to(head);
        let round = b.block_params(head)[0];
        let rare = b.setp(Word::Eq, Type::U32, round, one);
        let product = |b: &mut Builder| {
            let product = b.mul(Type::U32, loaded[0], loaded[1]);
            b.st("global", Type::U32, (base, 4096), product);
            Vec::new()
        };
        b.if_(rare, product, |_| Vec::new());
        let next = b.add(Type::U32, round, one);
        let goes_on = b.setp(Word::Lt, Type::U32, next, seven);
        b.branch(goes_on, (head, &[next]), (exit, &[]));
        b.switch_to(exit);
        (0..).zip(&loaded).for_each(|(at, &value)| b.st("global", Type::U32, (base, 8192 + 4 * at), value));
        b.ret();
        let mut kernel = b.finish().unwrap();
        optimize(&mut kernel, Level::O2);
        let (module, _) = module(std::slice::from_ref(&kernel), Target::SM_90A, &[]);
        let text = print(&module);
        let place = |word: &str| text.find(word).unwrap_or_else(|| panic!("no `{word}`\n{text}"));
        place("mul.lo") < place("setp.eq")
    };
    assert!(stands_before_the_loop(16));
    assert!(!stands_before_the_loop(160));
}

/// A load that no thread does, and what becomes of the constant that stands for it: ptxas converts the high half of one wrongly.
#[test]
fn no_part_of_a_constant_is_left_to_the_assembler() {
    for (word, halves) in [(0u32, [0, 0]), (0x3840_4438, [0x4200_3c00, 0x3c00_4000])] {
        let mut b = Builder::new("parts");
        let base = b.pointer_param("x", 16);
        let thread = b.special(Special::TidX);
        let (mask, limit, word) = (b.u32(31), b.u32(64), b.u32(word));
        let lane = b.and(thread, mask);
        let never = b.setp(Word::Ge, Type::U32, lane, limit);
        let loaded = b.ld_vector_if(never, "global", Type::B32, (base, 64), &[word]);
        let parts = b.unpack(loaded[0], Class::B16);
        for (at, part) in (0..).zip(parts) {
            let pair = b.cvt_with("rn", Type::F16x2, Type::E4m3x2, part);
            b.st("global", Type::B32, (base, 4 * at), pair);
        }
        b.ret();
        let mut kernel = b.finish().unwrap();
        optimize(&mut kernel, Level::O2);
        let (module, _) = module(std::slice::from_ref(&kernel), Target::SM_90A, &[]);
        let text = print(&module);
        assert!(!text.contains("cvt") && !text.contains("ld.global") && !text.contains("{%"), "{text}");
        halves.iter().for_each(|half: &u32| assert!(text.contains(&half.to_string()), "{half}: {text}"));
    }
}

/// Divisors and dividends around every edge of the multipliers.
#[test]
fn division_by_constants_is_division() {
    let divisors =
        [1u32, 2, 3, 5, 6, 7, 9, 10, 11, 12, 14, 16, 25, 28, 60, 100, 125, 127, 128, 625, 641, 1000, 1 << 16, 65537, 1 << 30]
            .into_iter()
            .flat_map(|divisor| [divisor, divisor.wrapping_neg()])
            .chain([0x7FFF_FFFF, 0x8000_0001]);
    let edges =
        [0u32, 1, 2, 3, 6, 7, 99, 100, 0x7FFF_FFFE, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, u32::MAX - 1, u32::MAX, 123_456_789];
    for divisor in divisors {
        let mut b = Builder::new("divide");
        let base = b.pointer_param("x", 16);
        let n = b.scalar_param("n", Type::U32);
        let constant = b.u32(divisor);
        let results = [
            b.div(Type::U32, n, constant),
            b.rem(Type::U32, n, constant),
            b.div(Type::S32, n, constant),
            b.rem(Type::S32, n, constant),
        ];
        results.iter().zip(0..).for_each(|(&value, index)| b.st("global", Type::U32, (base, 4 * index), value));
        b.ret();
        let mut kernel = b.finish().unwrap();
        optimize(&mut kernel, Level::O2);
        let around = (-2..=2i64).map(|near| (i64::from(divisor) * 5 + near) as u32);
        for x in edges.into_iter().chain(around).filter(|&x| (x as i32, divisor as i32) != (i32::MIN, -1)) {
            let params = BTreeMap::from([("x".to_owned(), MEMORY), ("n".to_owned(), u64::from(x))]);
            let (memory, text) = run_ptx(&kernel, &params);
            let signed = divisor as i32;
            let expected = [x / divisor, x % divisor, (x as i32 / signed) as u32, (x as i32 % signed) as u32];
            let found: Vec<u32> = memory[..16].chunks(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap())).collect();
            assert_eq!(found, expected, "{x} by {divisor}:\n{text}");
        }
    }
}

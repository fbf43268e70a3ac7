//! Facts hold: on random integer programs, every value that occurs lies in its range and is a multiple of its divisor.
//!
//! The programs are built together with what they compute for one launch: scalars that wrap to their width, tiles of four
//! elements, counted loops (every round is followed) and branches. A fact speaks of all launches, so it must hold for each.

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use tessera_compile::facts::Facts;
use tessera_ir::attrs::{Assumption, GridAxis, Overflow, Rounding, Signedness};
use tessera_ir::text::print_func;
use tessera_ir::{Abi, AbiParam, Builder, Const, Extent, Func, IndexType, Level, ParamKind, ScheduleOp, Shape, Span};
use tessera_ir::{Type, Value};
use tessera_types::DType;

const TILE: u32 = 4;
const WRAPS: Overflow = Overflow::Wraps;

/// A value with its elements in one launch; a scalar has one.
#[derive(Clone, Debug)]
struct Known {
    value: Value,
    dtype: DType,
    elements: Vec<i64>,
}

struct Program<'u, 'a> {
    u: &'u mut Unstructured<'a>,
    func: Func,
    /// Every value that occurred, with what it was: values inside a loop occur once a round.
    seen: Vec<Known>,
}

/// A number as a signed integer of the type's width.
fn wrap(dtype: DType, value: i128) -> i64 {
    match dtype {
        DType::I8 => value as i8 as i64,
        DType::I16 => value as i16 as i64,
        DType::I32 => value as i32 as i64,
        DType::B1 => (value & 1) as i64,
        _ => value as i64,
    }
}

fn unsigned(dtype: DType, value: i64) -> i128 {
    i128::from(value as u64 & (u64::MAX >> (64 - dtype.bits())))
}

impl Program<'_, '_> {
    /// Adds an operation and notes its value.
    fn add(&mut self, kind: ScheduleOp, operands: &[&Known], dtype: DType, elements: Vec<i64>) -> Known {
        let shape = if elements.len() == 1 { Shape::new() } else { Shape::from_slice(&[TILE]) };
        let values: Vec<[Value; 1]> = operands.iter().map(|operand| [operand.value]).collect();
        let groups: Vec<&[Value]> = values.iter().map(|value| &value[..]).collect();
        let value = Builder::new(&mut self.func).value(kind, &groups, Type::tile(shape, dtype));
        self.note(Known { value, dtype, elements })
    }

    fn note(&mut self, known: Known) -> Known {
        self.seen.push(known.clone());
        known
    }

    fn constant(&mut self, dtype: DType, value: i64) -> Known {
        let value = wrap(dtype, i128::from(value));
        let constant = Builder::new(&mut self.func).constant(Const::int(dtype, value), Shape::new());
        self.note(Known { value: constant, dtype, elements: vec![value] })
    }

    fn interesting(&mut self) -> Result<i64> {
        Ok(match self.u.int_in_range(0..=5)? {
            0 => i64::from(self.u.int_in_range(-9..=9i8)?),
            1 => 1 << self.u.int_in_range(0..=31)?,
            2 => 24 * i64::from(self.u.int_in_range(0..=40u8)?),
            3 => i64::from(i32::MAX) - i64::from(self.u.int_in_range(0..=3u8)?),
            4 => -(1 << self.u.int_in_range(0..=31)?),
            _ => i64::from(self.u.arbitrary::<i32>()?),
        })
    }

    /// One more value from those of the pool.
    fn step(&mut self, pool: &mut Vec<Known>) -> Result<()> {
        let a = self.u.choose(pool)?.clone();
        let partners: Vec<Known> =
            pool.iter().filter(|b| b.dtype == a.dtype && b.elements.len() == a.elements.len()).cloned().collect();
        let b = self.u.choose(&partners)?.clone();
        let signedness = if self.u.arbitrary()? { Signedness::Signed } else { Signedness::Unsigned };
        let both = |f: &dyn Fn(i128, i128) -> i128| -> Vec<i64> {
            let read = |value: i64| match signedness {
                Signedness::Signed => i128::from(value),
                Signedness::Unsigned => unsigned(a.dtype, value),
            };
            a.elements.iter().zip(&b.elements).map(|(&x, &y)| wrap(a.dtype, f(read(x), read(y)))).collect()
        };
        let rounding = *self.u.choose(&[Rounding::Zero, Rounding::NegativeInf, Rounding::PositiveInf])?;
        let made = match self.u.int_in_range(0..=16)? {
            0 => self.add(ScheduleOp::AddI { overflow: WRAPS }, &[&a, &b], a.dtype, both(&|x, y| x + y)),
            1 => self.add(ScheduleOp::SubI { overflow: WRAPS }, &[&a, &b], a.dtype, both(&|x, y| x - y)),
            2 => self.add(ScheduleOp::MulI { overflow: WRAPS }, &[&a, &b], a.dtype, both(&|x, y| x.wrapping_mul(y))),
            3 if b.elements.iter().all(|&y| y != 0) => {
                let elements = both(&|x, y| match rounding {
                    Rounding::NegativeInf => x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0),
                    Rounding::PositiveInf => -((-x).div_euclid(y) - i128::from(y < 0 && (-x).rem_euclid(y) != 0)),
                    _ => x / y,
                });
                self.add(ScheduleOp::DivI { signedness, rounding }, &[&a, &b], a.dtype, elements)
            }
            4 if b.elements.iter().all(|&y| y != 0) => {
                self.add(ScheduleOp::RemI { signedness }, &[&a, &b], a.dtype, both(&|x, y| x % y))
            }
            5 => self.add(ScheduleOp::MinI { signedness }, &[&a, &b], a.dtype, both(&|x, y| x.min(y))),
            6 => self.add(ScheduleOp::MaxI { signedness }, &[&a, &b], a.dtype, both(&|x, y| x.max(y))),
            7 => self.add(ScheduleOp::AndI {}, &[&a, &b], a.dtype, both(&|x, y| x & y)),
            8 | 9 => {
                let count = i64::from(self.u.int_in_range(0..=a.dtype.bits() as u8 - 1)?);
                let by = self.constant(a.dtype, count);
                if a.elements.len() > 1 {
                    return Ok(());
                }
                let left = self.u.arbitrary()?;
                if left {
                    let shifted = a.elements.iter().map(|&x| wrap(a.dtype, i128::from(x) << count)).collect();
                    self.add(ScheduleOp::ShlI { overflow: WRAPS }, &[&a, &by], a.dtype, shifted)
                } else {
                    let shifted = a.elements.iter().map(|&x| match signedness {
                        Signedness::Signed => x >> count,
                        Signedness::Unsigned => wrap(a.dtype, unsigned(a.dtype, x) >> count),
                    });
                    let shifted = shifted.collect();
                    self.add(ScheduleOp::ShrI { signedness }, &[&a, &by], a.dtype, shifted)
                }
            }
            10 if a.dtype == DType::I32 => {
                let wide = a.elements.iter().map(|&x| match signedness {
                    Signedness::Signed => x,
                    Signedness::Unsigned => unsigned(DType::I32, x) as i64,
                });
                let wide = wide.collect();
                self.add(ScheduleOp::ExtI { signedness }, &[&a], DType::I64, wide)
            }
            11 if a.dtype == DType::I64 => {
                let narrow = a.elements.iter().map(|&x| wrap(DType::I32, i128::from(x))).collect();
                self.add(ScheduleOp::TruncI { overflow: WRAPS }, &[&a], DType::I32, narrow)
            }
            12 if a.elements.len() == 1 => {
                let one = Builder::new(&mut self.func).value(
                    ScheduleOp::Reshape {},
                    &[&[a.value]],
                    Type::tile(Shape::from_slice(&[1]), a.dtype),
                );
                let one = Known { value: one, ..a.clone() };
                self.add(ScheduleOp::Broadcast {}, &[&one], a.dtype, vec![a.elements[0]; TILE as usize])
            }
            13 => self.add(ScheduleOp::Iota {}, &[], DType::I32, (0..i64::from(TILE)).collect()),
            14 => {
                // A promise that holds in this launch.
                let by = (a.elements.iter().fold(0, |g, &x| gcd(g, x.unsigned_abs()))).max(1);
                let by = 1 << by.trailing_zeros().min(5);
                let predicate = if self.u.arbitrary()? {
                    Assumption::DivisibleBy(by)
                } else {
                    let (low, high) = (a.elements.iter().min().copied(), a.elements.iter().max().copied());
                    Assumption::Bounded { least: low.filter(|_| signedness == Signedness::Signed), greatest: high }
                };
                let elements = a.elements.clone();
                self.add(ScheduleOp::Assume { predicate }, &[&a], a.dtype, elements)
            }
            _ => {
                let dtype = if self.u.arbitrary()? { DType::I32 } else { DType::I64 };
                let value = self.interesting()?;
                self.constant(dtype, value)
            }
        };
        pool.push(made);
        Ok(())
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Checks every value that occurred against the facts.
fn check(program: &Program<'_, '_>) {
    let facts = Facts::of(&program.func);
    for known in &program.seen {
        let fact = facts.fact(known.value);
        for &element in &known.elements {
            let divides = if fact.divisor == 0 { element == 0 } else { element.unsigned_abs().is_multiple_of(fact.divisor) };
            assert!(
                fact.least <= element && element <= fact.greatest && divides,
                "{element} of {:?} does not fit {fact:?}\n{}",
                known.value,
                print_func(&program.func)
            );
            assert!(!facts.is_divisible(known.value, 48) || element % 48 == 0);
        }
    }
}

/// A function with an array of a known size and two run-time scalars, and their values in one launch.
fn start<'u, 'a>(u: &'u mut Unstructured<'a>) -> Result<(Program<'u, 'a>, Vec<Known>)> {
    let mut sources = tessera_ir::SourceMap::default();
    let source = sources.add("<facts>", "");
    let mut func = Func::new("facts", Level::Schedule, Span { source, start: 0, end: 0 });
    let index = Type::scalar(DType::I32);
    let known_size = i64::from(u.int_in_range(0..=100u8)?) * 8;
    func.add_arg(func.body, Type::pointers(Shape::new(), DType::F32), Some("x"));
    let sizes: Vec<Value> = (0..4).map(|_| func.add_arg(func.body, index.clone(), None)).collect();
    let kind = ParamKind::Array {
        dtype: DType::F32,
        shape: [Extent::Dynamic, Extent::Static(known_size)].into_iter().collect(),
        strides: [Extent::Dynamic, Extent::Static(1)].into_iter().collect(),
        index: IndexType::I32,
        align: 16,
        lines: 16,
        disjoint: true,
    };
    let n = func.add_arg(func.body, index.clone(), Some("n"));
    let Abi { params, .. } = &mut func.abi;
    params.push(AbiParam { name: "x".into(), kind });
    params.push(AbiParam { name: "n".into(), kind: ParamKind::Scalar { dtype: DType::I32 } });
    let mut program = Program { u, func, seen: Vec::new() };
    let open = i64::from(program.u.arbitrary::<i32>()?.unsigned_abs() / 2);
    // An open stride of `f32` in an array aligned to 16 bytes.
    let stride = i64::from(program.u.arbitrary::<i32>()?) & !3;
    let elements = [open, known_size, stride, 1];
    let mut pool = Vec::new();
    for (value, element) in sizes.into_iter().zip(elements) {
        pool.push(program.note(Known { value, dtype: DType::I32, elements: vec![element] }));
    }
    let element = program.interesting()?;
    let element = wrap(DType::I32, i128::from(element));
    pool.push(program.note(Known { value: n, dtype: DType::I32, elements: vec![element] }));
    let block = i64::from(program.u.int_in_range(0..=1_000_000u32)?);
    pool.push(program.add(ScheduleOp::GetTileBlockId { axis: GridAxis::X }, &[], DType::I32, vec![block]));
    for dtype in [DType::I32, DType::I64] {
        let value = program.interesting()?;
        pool.push(program.constant(dtype, value));
    }
    Ok((program, pool))
}

#[test]
fn facts_hold_for_every_value_of_straight_programs() {
    arbtest(|u| {
        let (mut program, mut pool) = start(u)?;
        for _ in 0..40 {
            program.step(&mut pool)?;
        }
        check(&program);
        Ok(())
    })
    .budget_ms(1_500);
}

#[test]
fn the_counter_of_a_loop_fits_its_fact_in_every_round() {
    arbtest(|u| {
        let (mut program, mut pool) = start(u)?;
        for _ in 0..8 {
            program.step(&mut pool)?;
        }
        let scalars: Vec<Known> =
            pool.iter().filter(|known| known.dtype == DType::I32 && known.elements.len() == 1).cloned().collect();
        let (lower, upper) = (program.u.choose(&scalars)?.clone(), program.u.choose(&scalars)?.clone());
        let step = i64::from(program.u.int_in_range(1..=64u8)?);
        let by = program.constant(DType::I32, step);
        let region = program.func.new_block();
        let counter = program.func.add_arg(region, Type::scalar(DType::I32), Some("k"));
        let span = program.func.span;
        let mut body = Builder { func: &mut program.func, block: region, span };
        let doubled = body.value(ScheduleOp::AddI { overflow: WRAPS }, &[&[counter], &[counter]], Type::scalar(DType::I32));
        body.op(ScheduleOp::Continue {}, &[&[]], []);
        let kind = ScheduleOp::For { unsigned: false, unroll: None };
        let groups: [&[Value]; 4] = [&[lower.value], &[upper.value], &[by.value], &[]];
        Builder::new(&mut program.func).op_with_regions(kind, &groups, [], [region]);
        // The first rounds and the last ones.
        let (first, end) = (lower.elements[0], upper.elements[0]);
        let rounds = if first < end { (end - first - 1) / step + 1 } else { 0 };
        for round in (0..rounds.min(20)).chain((rounds - 20).max(0)..rounds) {
            let k = first + round * step;
            for (value, element) in [(counter, k), (doubled, wrap(DType::I32, i128::from(2 * k)))] {
                program.note(Known { value, dtype: DType::I32, elements: vec![element] });
            }
        }
        check(&program);
        Ok(())
    })
    .budget_ms(1_000);
}

#[test]
fn facts_are_not_empty() {
    let mut bytes = arbtest::arbitrary::Unstructured::new(&[7; 256]);
    let (mut program, pool) = start(&mut bytes).expect("enough bytes");
    let tile = program.constant(DType::I32, 64);
    let block = pool.iter().find(|known| known.value == pool[5].value).expect("the block's number").clone();
    let first = program.add(ScheduleOp::MulI { overflow: WRAPS }, &[&block, &tile], DType::I32, vec![0]);
    let facts = Facts::of(&program.func);
    assert!(facts.is_divisible(first.value, 64) && !facts.is_divisible(first.value, 128));
    assert_eq!(facts.fact(block.value).least, 0);
    assert_eq!(facts.fact(tile.value).value(), Some(64));
}

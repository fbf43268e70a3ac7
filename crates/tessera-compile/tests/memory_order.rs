//! Memory is read and written in the order of the program, on every executor and at every level: random programs that update arrays in
//! place, against what they mean.

#![allow(unsafe_code, reason = "the executors take raw memory; every call owns what it passes")]

use arbtest::arbtest;
use tessera_compile::{CompileOptions, Compiled, OptLevel, compile};
use tessera_cpu::{Arg, Program, RunOptions, lockstep};
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType, FloatFormat, Overflow, Rounding};

use crate::devices::{ARCHS, Data, Launch, on_emulator, tiled};
use crate::memory::{self, ROUNDS};

/// A kernel with its arrays, and the numbers that they hold afterwards.
struct Case {
    text: String,
    types: Vec<DType>,
    sizes: [usize; 2],
    /// The second array is the first one's memory from this element on.
    shared: Option<usize>,
    rounds: i64,
    start: Vec<Vec<i64>>,
    meant: Vec<Vec<i64>>,
}

impl From<&memory::Program> for Case {
    fn from(program: &memory::Program) -> Case {
        let (start, meant) = (program.arrays(), program.run());
        let (types, sizes) = (program.arrays.clone(), [program.rows, program.columns]);
        Case { text: program.text(), types, sizes, shared: program.shared, rounds: ROUNDS, start, meant }
    }
}

impl From<&memory::Product> for Case {
    fn from(product: &memory::Product) -> Case {
        let (start, meant) = (product.arrays(), product.run());
        let (types, sizes) = (vec![product.dtype; product.count], [product.side; 2]);
        Case { text: product.text(), types, sizes, shared: None, rounds: product.rounds as i64, start, meant }
    }
}

/// Where a case is run.
#[derive(Clone, Copy)]
enum Where {
    /// On the CPU at every level, checked and not.
    Cpu,
    /// Once everywhere, with the units and the target of a number.
    Devices(usize),
}

impl Case {
    fn compiled(&self, level: OptLevel) -> Compiled {
        let file = parse_file("memory.py", &self.text);
        let array = |dtype: DType| match ArgType::array(dtype, 2) {
            ArgType::Array { dtype, shape, strides, index, .. } if self.shared.is_some() => {
                let align = dtype.unpacked_bytes() as u32;
                ArgType::Array { dtype, shape, strides, index, align, lines: align, disjoint: false }
            }
            own => own,
        };
        let arrays = ["a", "b", "c"].iter().zip(&self.types).map(|(name, &dtype)| (name.to_string(), array(dtype)));
        let args: Vec<(String, ArgType)> = arrays.chain([("n".to_string(), ArgType::Scalar(DType::I32))]).collect();
        let options = CompileOptions { level, verify_each: true, ..CompileOptions::default() };
        compile(&file, "kernel", &args, &options)
            .unwrap_or_else(|found| panic!("{}\n{}", found[0].render(&file.sources, false), self.text))
    }

    fn data(&self) -> Vec<Data> {
        let arrays = self.types.iter().zip(&self.start).map(|(&dtype, numbers)| {
            Data::codes(dtype, &[numbers.len() as i64], |i| match FloatFormat::of(dtype) {
                Some(format) => format.encode(numbers[i] as f64, Rounding::NearestEven, Overflow::Ieee),
                None => numbers[i] as u64,
            })
        });
        let mut data: Vec<Data> = arrays.chain([Data::Scalar((self.rounds as i32).to_le_bytes().to_vec())]).collect();
        let whole = self.sizes.map(|size| size as i64);
        for item in &mut data {
            if let Data::Array { sizes, .. } = item {
                *sizes = whole.to_vec();
            }
        }
        data
    }

    /// Arguments for the executors of this process.
    fn args(&self, data: &mut [Data]) -> Vec<Arg> {
        let mut args = Vec::new();
        let mut first = (std::ptr::null_mut(), 0);
        for (position, item) in data.iter_mut().enumerate() {
            match item {
                Data::Array { dtype, bytes, sizes } => {
                    let (mut base, mut length) = (bytes.as_mut_ptr(), bytes.len());
                    let skipped = self.shared.map_or(0, |offset| offset * dtype.unpacked_bytes());
                    match (position, self.shared) {
                        (0, Some(_)) => {
                            first = (base, length);
                            length -= skipped;
                        }
                        (1, Some(_)) => (base, length) = (first.0.wrapping_add(skipped), first.1 - skipped),
                        _ => {}
                    }
                    args.push(Arg::Pointer { base, bytes: length });
                    args.extend([sizes[0], sizes[1], sizes[1], 1].map(|value| Arg::Scalar(value as u64)));
                }
                Data::Scalar(bytes) => {
                    let mut word = [0; 8];
                    word[..bytes.len()].copy_from_slice(bytes);
                    args.push(Arg::Scalar(u64::from_le_bytes(word)));
                }
            }
        }
        args
    }

    fn on_cpu(&self, compiled: &Compiled, options: &RunOptions<'_>, data: &mut [Data]) -> Result<(), String> {
        let program = Program::prepare(&compiled.module, compiled.func()).map_err(|diagnostic| diagnostic.message)?;
        let args = self.args(data);
        // SAFETY: the pointers are to vectors that live and are used by nothing else while the launch runs.
        unsafe { program.run([1, 1, 1], &args, options) }.map_err(|fault| fault.to_string())
    }

    fn in_lockstep(&self, compiled: &Compiled, arch: Arch, data: &mut [Data]) -> Result<(), String> {
        let module = tiled(&compiled.module, arch)?;
        let program = lockstep::Program::prepare(&module, &module.funcs[0]).map_err(|diagnostic| diagnostic.message)?;
        let args = self.args(data);
        let options = RunOptions { checked: true, ..RunOptions::default() };
        // SAFETY: as above.
        unsafe { program.run([1, 1, 1], &args, &options) }.map_err(|fault| fault.to_string())
    }

    /// The first element that is not what the program means.
    fn wrong(&self, data: &[Data]) -> Option<String> {
        for (array, (item, meant)) in data.iter().zip(&self.meant).enumerate() {
            let Data::Array { dtype, bytes, .. } = item else { continue };
            let width = dtype.unpacked_bytes();
            for (i, (element, &meant)) in bytes.chunks(width).zip(meant).enumerate() {
                let mut word = [0; 8];
                word[..width].copy_from_slice(element);
                let code = u64::from_le_bytes(word);
                let found = match FloatFormat::of(*dtype) {
                    Some(format) => format.decode(code),
                    None => (((code << (64 - 8 * width)) as i64) >> (64 - 8 * width)) as f64,
                };
                if found != meant as f64 {
                    let (row, column) = (i / self.sizes[1], i % self.sizes[1]);
                    return Some(format!("array {array} ({dtype}), row {row}, column {column}: {found} where {meant} is meant"));
                }
            }
        }
        None
    }

    /// Where the kernel does something else than it means.
    fn disagreements(&self, places: Where) -> Vec<String> {
        let start = self.data();
        let mut found = Vec::new();
        let mut check = |place: String, run: &mut dyn FnMut(&mut [Data]) -> Result<(), String>| {
            let mut data = start.clone();
            let outcome = run(&mut data).err().or_else(|| self.wrong(&data));
            found.extend(outcome.map(|wrong| format!("{place}: {wrong}")));
        };
        for level in OptLevel::ALL {
            if matches!(places, Where::Devices(_)) && level != OptLevel::O2 {
                continue;
            }
            let compiled = self.compiled(level);
            let launch = Launch { compiled: &compiled, grid: [1, 1, 1] };
            check(format!("CPU -{level}"), &mut |data| self.on_cpu(&compiled, &RunOptions::default(), data));
            let Where::Devices(number) = places else {
                let options = RunOptions { checked: true, ..RunOptions::default() };
                check(format!("CPU -{level}, checked"), &mut |data| self.on_cpu(&compiled, &options, data));
                continue;
            };
            let (stepped, arch) = (ARCHS[number % 2], ARCHS[number / 2 % 2]);
            check(format!("lock-step {stepped}"), &mut |data| self.in_lockstep(&compiled, stepped, data));
            // The emulator's launches of this test know no memory that two arguments share.
            if self.shared.is_some() {
                continue;
            }
            check(format!("emulated {arch}"), &mut |data| on_emulator(&launch, arch, data));
        }
        found
    }
}

/// Runs random cases for so long, and thirty times as long where everything is to be tested.
fn for_a_while(budget_ms: u64, mut check: impl FnMut(&mut memory::Choose<'_>)) {
    let budget_ms = if std::env::var_os("TESSERA_TEST_ALL").is_some() { 30 * budget_ms } else { budget_ms };
    let mut count = 0;
    arbtest(|u| {
        check(&mut |below| u.int_in_range(0..=below - 1).unwrap_or(0));
        count += 1;
        Ok(())
    })
    .size_min(500)
    .budget_ms(budget_ms);
    println!("{count} programs");
}

fn programs(size: std::ops::RangeInclusive<usize>, devices: bool, budget_ms: u64) {
    for_a_while(budget_ms, |choose| {
        let places = if devices { Where::Devices(choose(4)) } else { Where::Cpu };
        let size = size.start() + choose(size.end() - size.start());
        let program = memory::program(size, choose);
        let wrong = |program: &memory::Program| Case::from(program).disagreements(places);
        if !wrong(&program).is_empty() {
            let small = program.shrunk(|program| !wrong(program).is_empty());
            panic!("{}\n{}", wrong(&small).join("\n"), small.text());
        }
    });
}

#[test]
fn updates_in_place_follow_the_program_on_the_cpu() {
    programs(3..=25, false, 4_000);
}

#[test]
fn updates_in_place_follow_the_program_on_devices() {
    programs(3..=14, true, 4_000);
}

#[test]
fn products_in_place_follow_the_program() {
    for_a_while(6_000, |choose| {
        let places = Where::Devices(choose(4));
        let product = memory::product(choose);
        let wrong = |product: &memory::Product| Case::from(product).disagreements(places);
        if !wrong(&product).is_empty() {
            let small = product.shrunk(|product| !wrong(product).is_empty());
            panic!("{}\n{}", wrong(&small).join("\n"), small.text());
        }
    });
}

//! Kernels through the whole road to PTX, executed by the emulator, against the CPU executor; and assembled without spills.

#![allow(unsafe_code, reason = "the executor takes raw memory; every call owns what it passes")]

mod devices;

use arbtest::arbtest;
use devices::{Data, Launch, assembles, on_cpu, on_emulator, same};
use tessera_compile::{CompileOptions, Compiled, OptLevel, compile, compile_module, generate};
use tessera_ir::text::print_module;
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType};

/// Runs a kernel of the language on both and compares every array.
fn agrees(source: &str, args: &[(&str, ArgType)], data: &[Data], grid: [u32; 3]) {
    let compiled = compiled(source, args);
    let launch = Launch { compiled: &compiled, grid };
    let mut cpu = data.to_vec();
    on_cpu(&launch, &mut cpu).unwrap_or_else(|error| panic!("{error}"));
    for arch in [Arch::Sm80, Arch::Sm90a] {
        let mut emulated = data.to_vec();
        on_emulator(&launch, arch, &mut emulated)
            .unwrap_or_else(|error| panic!("{arch}: {error}\n{}", print_module(&compiled.module)));
        for (position, (cpu, emulated)) in cpu.iter().zip(&emulated).enumerate() {
            if let Err(difference) = same(cpu, emulated) {
                panic!("{arch}: argument {position}: {difference}\n{}", print_module(&compiled.module));
            }
        }
    }
    assembles(&compiled);
}

fn compiled(source: &str, args: &[(&str, ArgType)]) -> Compiled {
    let file = parse_file("kernel.py", source);
    let args: Vec<(String, ArgType)> = args.iter().map(|(name, ty)| (name.to_string(), ty.clone())).collect();
    compile(&file, "kernel", &args, &CompileOptions::default())
        .unwrap_or_else(|found| panic!("{}", found[0].render(&file.sources, false)))
}

const HEAD: &str = "import cuda.tile as ct\n\n";

#[test]
fn elementwise_arithmetic_of_every_float() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        let source = format!(
            "{HEAD}@ct.kernel\ndef kernel(x, y, out):\n    i = ct.bid(0)\n    a = ct.load(x, (i,), (64,))\n    b = ct.load(y, (i,), (64,))\n\
             \x20   r = ct.where(a > b, a * b + a, a / b - b) + ct.maximum(a, -b) - ct.sqrt(ct.abs(a)) + ct.floor(b)\n    ct.store(out, (i,), r)\n"
        );
        let array = ArgType::array(dtype, 1);
        let data = [Data::floats(dtype, &[200], 1), Data::floats(dtype, &[200], 2), Data::zeros(dtype, &[200])];
        agrees(&source, &[("x", array.clone()), ("y", array.clone()), ("out", array)], &data, [4, 1, 1]);
    }
}

#[test]
fn random_programs_give_what_the_cpu_gives() {
    arbtest(|u| {
        let size = u.int_in_range(5..=60usize)?;
        let module = generate::program(size, &mut |below| u.int_in_range(0..=below - 1).unwrap_or(0));
        let options = CompileOptions { level: OptLevel::O2, ..CompileOptions::default() };
        let compiled = compile_module(module.clone(), &[], &options).unwrap_or_else(|found| panic!("{}", found[0].message));
        let data = [
            Data::floats(DType::F32, &[21], 1),
            Data::ints(DType::I32, &[21], 2),
            Data::floats(DType::F32, &[21], 3),
            Data::ints(DType::I32, &[21], 4),
            Data::Scalar(1.5f32.to_bits().to_le_bytes().to_vec()),
            Data::Scalar(3i32.to_le_bytes().to_vec()),
        ];
        let launch = Launch { compiled: &compiled, grid: [1, 1, 1] };
        let (mut cpu, mut emulated) = (data.to_vec(), data.to_vec());
        on_cpu(&launch, &mut cpu).unwrap_or_else(|error| panic!("{error}\n{}", print_module(&module)));
        on_emulator(&launch, Arch::Sm90a, &mut emulated).unwrap_or_else(|error| panic!("{error}\n{}", print_module(&compiled.module)));
        for (position, (cpu, emulated)) in cpu.iter().zip(&emulated).enumerate() {
            if let Err(difference) = same(cpu, emulated) {
                panic!("argument {position}: {difference}\n{}", print_module(&compiled.module));
            }
        }
        Ok(())
    })
    .budget_ms(3_000);
}

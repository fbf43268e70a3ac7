//! Quotients by one divisor are those that division has, to the last bit, whatever the numbers are.

use tessera_compile::{CompileOptions, OptLevel, compile, compile_for};
use tessera_emu::Schedule;
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType};

use crate::devices::{Data, Launch, on_cpu, run_under, same};

const ROWS: &str = "import cuda.tile as ct
import tessera

@tessera.kernel
def kernel(x, d, y):
    i = ct.bid(0)
    ct.store(y, (i, 0), ct.load(x, (i, 0), (1, 2048)) / ct.load(d, (i,), (1,)))
";

/// Numbers whose quotients take each of the ways: ends of the range, no numbers, zeros of both signs, subnormal ones.
fn numerators(seed: u32) -> impl Fn(usize) -> u64 {
    let ends: [u32; 10] =
        [0, 0x8000_0000, 1, 0x8000_0001, 0x007f_ffff, 0x0080_0000, 0x7f7f_ffff, 0xff7f_ffff, 0x3f80_0000, 0x4b7f_ffff];
    let specials: [u32; 3] = [0x7f80_0000, 0xff80_0000, 0x7fc0_0000];
    move |at| {
        let (row, column) = (at / 2048, at % 2048);
        // In one row of two threads meet what takes the long way.
        if row % 2 == 1 && column % 97 == 0 {
            return u64::from(specials[column % 3]);
        }
        if column % 5 == 0 {
            let end = ends[(column / 5 + row) % ends.len()];
            // The short way takes no more than 2^78.
            return u64::from(if row % 2 == 0 && end & 0x7fff_ffff > 0x6680_0000 { 0x6680_0000 } else { end });
        }
        let random = (at as u32 ^ seed).wrapping_mul(0x9e37_79b1).rotate_left(13).wrapping_mul(0x85eb_ca6b);
        let exponent = random >> 9 & 0xff;
        u64::from(random & 0x807f_ffff | exponent.min(if row % 2 == 0 { 204 } else { 254 }) << 23)
    }
}

#[test]
fn quotients_of_rows_are_divisions() {
    let divisors: [u32; 16] = [
        0x3f80_0000,
        0x3f80_0001,
        0x3fff_ffff,
        0x4049_0fdb,
        0x2b80_0000,
        0x2b80_0001,
        0x6580_0000,
        0x657f_ffff,
        0x2b00_0000,
        0x6600_0000,
        0xbf80_0001,
        0x0000_0000,
        0x8000_0000,
        0x7f80_0000,
        0x7fc0_0000,
        0x0000_0003,
    ];
    let file = parse_file("quotients.py", ROWS);
    let args: Vec<(String, ArgType)> =
        [("x", 2), ("d", 1), ("y", 2)].map(|(name, rank)| (name.to_string(), ArgType::array(DType::F32, rank))).into();
    let compiled = compile(&file, "kernel", &args, &CompileOptions::default()).expect("the kernel compiles");
    for arch in [Arch::Sm80, Arch::Sm90a] {
        let device = compile_for(&compiled, arch, OptLevel::O3).expect("the kernel is lowered");
        assert_eq!(device.kernel.ptx().matches("rcp.rn.f32").count(), 1, "one inverse for all");
        for seed in 0..8 {
            let count = divisors.len() as i64 * 2;
            let divisor = |at: usize| u64::from(divisors[at / 2]);
            let data = vec![
                Data::codes(DType::F32, &[count, 2048], numerators(seed)),
                Data::codes(DType::F32, &[count], divisor),
                Data::codes(DType::F32, &[count, 2048], |_| 0),
            ];
            let grid = [count as u32, 1, 1];
            let (mut wanted, mut found) = (data.clone(), data);
            on_cpu(&Launch { compiled: &compiled, grid }, &mut wanted).expect("it runs");
            run_under(Schedule::Eager, &device.kernel, grid, &mut found).expect("it runs");
            same(&wanted[2], &found[2], 0.0).unwrap_or_else(|error| panic!("{arch}, {seed}: {error}"));
        }
    }
}

//! Products whose factors go through less shared memory than they take: some steps of the contraction at a time, with the sums that they have
//! at once, bit by bit.

use tessera_compile::{CompileOptions, OptLevel, compile, compile_for};
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType, FloatFormat, Overflow, Rounding};

use crate::devices::{Data, run, same};

/// Bytes of shared memory in which no pair of factors fits.
const FEW: u32 = 1024;

/// What is multiplied: 32 x 64 by 64 x 32, and the element types of the arrays, the result's last.
const CASES: [(&str, &[DType]); 7] = [
    (PLAIN, &[DType::F16, DType::F16, DType::F16]),
    (PLAIN, &[DType::BF16, DType::BF16, DType::F32]),
    (PLAIN, &[DType::F32, DType::F32, DType::F32]),
    (PLAIN, &[DType::F64, DType::F64, DType::F64]),
    (PLAIN, &[DType::I8, DType::I8, DType::I32]),
    (BATCH, &[DType::F16, DType::F16, DType::F32]),
    (SCALED, &[DType::F8E4M3, DType::F8E4M3, DType::E8M0, DType::E8M0, DType::F32]),
];

const PLAIN: &str = "
def kernel(x, y, out):
    a, b = ct.load(x, (0, 0), (32, 64)), ct.load(y, (0, 0), (64, 32))
    ct.store(out, (0, 0), ct.mma(a, b, ct.full((32, 32), 1, out.dtype)))
";
const BATCH: &str = "
def kernel(x, y, out):
    a, b = ct.load(x, (0, 0), (32, 64)).reshape((2, 16, 64)), ct.load(y, (0, 0), (64, 32)).reshape((2, 64, 16))
    ct.store(out, (0, 0), ct.mma(a, b, ct.full((2, 16, 16), 1, out.dtype)).reshape((16, 32)))
";
const SCALED: &str = "
def kernel(x, y, of_x, of_y, out):
    a, b = ct.load(x, (0, 0), (32, 64)), ct.load(y, (0, 0), (64, 32))
    left, right = ct.load(of_x, (0, 0), (32, 2)), ct.load(of_y, (0, 0), (2, 32))
    ct.store(out, (0, 0), ct.mma_scaled(a, left, b, right, ct.full((32, 32), 1, out.dtype)))
";

/// A number of one digit, which the type has not exactly.
fn code(dtype: DType, number: i64) -> u64 {
    match FloatFormat::of(dtype) {
        Some(format) => format.encode(number as f64 / 7.0, Rounding::NearestEven, Overflow::Ieee),
        None => number as u64,
    }
}

#[test]
fn sums_have_the_same_bits_whatever_the_parts() {
    for (body, dtypes) in CASES {
        let file = parse_file("kernel.py", &format!("import cuda.tile as ct\n\n@ct.kernel{body}"));
        let names = if dtypes.len() == 3 { &["x", "y", "out"][..] } else { &["x", "y", "of_x", "of_y", "out"] };
        let args: Vec<(String, ArgType)> =
            names.iter().zip(dtypes).map(|(name, &dtype)| (name.to_string(), ArgType::array(dtype, 2))).collect();
        let whole = compile(&file, "kernel", &args, &CompileOptions::default())
            .unwrap_or_else(|found| panic!("{}", found[0].render(&file.sources, false)));
        let mut parts = whole.clone();
        parts.module.funcs[0].hints.exchange_bytes = Some(FEW);
        let sizes: &[[i64; 2]] = &[[32, 64], [64, 32], [32, 2], [2, 32]];
        let data: Vec<Data> = (0..dtypes.len())
            .map(|at| match dtypes[at] {
                dtype if at + 1 == dtypes.len() => Data::zeros(dtype, &[32, 32]),
                DType::E8M0 => Data::codes(DType::E8M0, &sizes[at], |at| 126 + at as u64 % 3),
                dtype => Data::codes(dtype, &sizes[at], |element| code(dtype, (element * (37 + at)) as i64 % 101 - 50)),
            })
            .collect();
        let mut results = Vec::new();
        for compiled in [&whole, &parts] {
            let made = compile_for(compiled, Arch::Sm75, OptLevel::default())
                .unwrap_or_else(|found| panic!("{dtypes:?}: {}", found[0].render(&compiled.module.sources, false)));
            let mut run_on = data.clone();
            run(&made.kernel, [1, 1, 1], &mut run_on).unwrap_or_else(|error| panic!("{dtypes:?}: {error}"));
            results.push((made.kernel.image.launch.shared_bytes, run_on));
        }
        let [(all, whole), (few, parts)] = &results[..] else { unreachable!("two kernels were made") };
        assert!(few < all, "{dtypes:?}: {few} bytes instead of {all}");
        let (whole, parts) = (&whole[dtypes.len() - 1], &parts[dtypes.len() - 1]);
        same(whole, parts, 0.0).unwrap_or_else(|error| panic!("{dtypes:?}: {error}"));
        assert!((0..32 * 16).any(|at| whole.number(at) != 1.0), "{dtypes:?}: nothing was multiplied");
    }
}

//! In-range conversions to nearest even, and every decoded value, against NumPy and ml_dtypes.
//!
//! Skips, saying so, where `TESSERA_PYTHON` does not name an interpreter that has them.

use std::io::Write;
use std::process::{Command, Stdio};

use tessera_types::FloatFormat;

const FORMATS: [FloatFormat; 8] = [
    FloatFormat::F16,
    FloatFormat::BF16,
    FloatFormat::F8E4M3,
    FloatFormat::F8E5M2,
    FloatFormat::E8M0,
    FloatFormat::F6E2M3,
    FloatFormat::F6E3M2,
    FloatFormat::F4E2M1,
];

/// Each finite value, each midpoint, and the `f32` numbers next to them, of both signs, within the format's range.
fn in_range(format: &FloatFormat) -> Vec<f32> {
    let mut values: Vec<f64> = (0..=format.max_finite_code()).map(|code| format.decode(code)).collect();
    values.sort_by(f64::total_cmp);
    let mut numbers = Vec::new();
    for pair in values.windows(2) {
        for x in [pair[0], pair[0] + (pair[1] - pair[0]) / 2.0, pair[1]] {
            let x = x as f32;
            numbers.extend([x.next_down(), x, x.next_up()]);
        }
    }
    if format.signed {
        numbers.extend(numbers.clone().iter().map(|x| -x));
    }
    // ml_dtypes rounds subnormal f32 up to the next scale, however near the lower one they are.
    let smallest = if format.signed { 0.0 } else { f64::from(f32::MIN_POSITIVE) };
    numbers.retain(|&x| (smallest..=format.max_finite()).contains(&f64::from(x.abs())));
    numbers
}

#[test]
fn in_range_bits_and_values_are_ml_dtypes() {
    let Some(python) = std::env::var_os("TESSERA_PYTHON") else {
        println!("skipped: TESSERA_PYTHON names no Python interpreter with numpy and ml_dtypes");
        return;
    };
    let inputs = FORMATS.map(|format| in_range(&format));
    let mut child = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ml_dtypes_bits.py"))
        .args(FORMATS.iter().zip(&inputs).flat_map(|(f, xs)| [f.dtype.to_string(), xs.len().to_string()]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the interpreter that TESSERA_PYTHON names starts");
    let bytes: Vec<u8> = inputs.iter().flatten().flat_map(|x| x.to_le_bytes()).collect();
    // Dropping the handle ends the script's input.
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the script fails");

    let mut rest = output.stdout.as_slice();
    for (format, xs) in FORMATS.iter().zip(&inputs) {
        let (codes, tail) = rest.split_at(xs.len() * 2);
        let (values, tail) = tail.split_at(8 << format.bits());
        rest = tail;
        for (&x, code) in xs.iter().zip(codes.as_chunks().0) {
            let want = u64::from(u16::from_le_bytes(*code));
            assert_eq!(format.encode_nearest(x), want, "{} {x:e}", format.dtype);
        }
        for (code, value) in values.as_chunks().0.iter().enumerate() {
            let (got, want) = (format.decode(code as u64), f64::from_le_bytes(*value));
            let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
            assert!(same, "{} {code:#x}: {got:e} {want:e}", format.dtype);
        }
        println!("{}: {} conversions, {} values", format.dtype, xs.len(), 1 << format.bits());
    }
    assert!(rest.is_empty());
}

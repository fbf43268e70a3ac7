//! Arithmetic instructions, one class after the other, against the same operation in Rust on random and special values.

use tessera_driver::{Dim3, Params};
use tessera_emu::{EmuOptions, Emulator, LaunchOptions};
use tessera_types::element;

const COUNT: usize = 1024;

/// Runs `instruction` on lanes that hold `a`, `b`, `c`; registers are `%x` (result), `%a`, `%b`, `%c`, and `%p`, `%t` to use.
fn run(result: &str, operands: &str, instruction: &str, inputs: [&[u64]; 3]) -> Vec<u64> {
    let bits = |ty: &str| ty[1..].parse::<u32>().unwrap();
    let cvt = |ty: &str, from: &str, to: &str| match bits(ty) {
        64 => format!("mov.b64 {to}, {from};"),
        width => format!("cvt.u{width}.u64 %n{width}, {from};\n    mov.b{width} {to}, %n{width};"),
    };
    let back = match bits(result) {
        64 => "mov.b64 %w, %x;".to_owned(),
        width => format!("mov.b{width} %n{width}, %x;\n    cvt.u64.u{width} %w, %n{width};"),
    };
    let text = format!(
        ".version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 data)
{{
    .reg .pred %p;
    .reg .b16 %n16;
    .reg .b32 %n32, %i, %blk, %t, %u;
    .reg .b64 %g, %o, %w, %ia, %ib, %ic;
    .reg .{operands} %a, %b, %c;
    .reg .{result} %x;
    ld.param.u64 %g, [data];
    mov.u32 %i, %tid.x;
    mov.u32 %blk, %ctaid.x;
    mad.lo.u32 %i, %blk, 128, %i;
    mul.wide.u32 %o, %i, 32;
    add.u64 %g, %g, %o;
    ld.global.u64 %ia, [%g];
    ld.global.u64 %ib, [%g+8];
    ld.global.u64 %ic, [%g+16];
    {}
    {}
    {}
    {instruction}
    {back}
    st.global.u64 [%g+24], %w;
    ret;
}}",
        cvt(operands, "%ia", "%a"),
        cvt(operands, "%ib", "%b"),
        cvt(operands, "%ic", "%c")
    );
    let emulator = Emulator::new(&EmuOptions::default()).unwrap();
    let module = emulator.load(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut bytes = Vec::new();
    for index in 0..COUNT {
        for list in inputs {
            bytes.extend(list[index].to_le_bytes());
        }
        bytes.extend([0; 8]);
    }
    let data = emulator.alloc(bytes.len() as u64).unwrap();
    emulator.write(data, &bytes).unwrap();
    let options = LaunchOptions::default();
    let launched =
        emulator.launch(&module, "k", Dim3::from(COUNT as u32 / 128), Dim3::from(128), &Params::new().pointer(data), &options);
    launched.unwrap_or_else(|error| panic!("{error}\n{text}"));
    emulator.read(data, &mut bytes).unwrap();
    bytes.chunks_exact(32).map(|row| u64::from_le_bytes(*row[24..].first_chunk().unwrap())).collect()
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// Random words among which special ones are frequent.
    fn words(&mut self, special: &[u64]) -> Vec<u64> {
        (0..COUNT)
            .map(|_| {
                let word = self.next();
                if word.is_multiple_of(5) { special[(word >> 8) as usize % special.len()] } else { self.next() }
            })
            .collect()
    }
}

const INTEGERS: [u64; 10] = [0, 1, 2, 31, 32, 33, u64::MAX, 0x8000_0000, 0x7fff_ffff, 1 << 63];
const SINGLES: [u64; 12] = [
    0,
    0x8000_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x0000_0001,
    0x807f_ffff,
    0x0080_0000,
    0x7f7f_ffff,
    0x3f00_0000,
];

#[test]
fn integers_of_32_bits() {
    type Op = fn(u32, u32, u32) -> u32;
    let cases: &[(&str, Op)] = &[
        ("add.u32 %x, %a, %b;", |a, b, _| a.wrapping_add(b)),
        ("sub.s32 %x, %a, %b;", |a, b, _| a.wrapping_sub(b)),
        ("add.sat.s32 %x, %a, %b;", |a, b, _| (a as i32).saturating_add(b as i32) as u32),
        ("mul.lo.s32 %x, %a, %b;", |a, b, _| a.wrapping_mul(b)),
        ("mul.hi.u32 %x, %a, %b;", |a, b, _| ((u64::from(a) * u64::from(b)) >> 32) as u32),
        ("mul.hi.s32 %x, %a, %b;", |a, b, _| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32),
        ("mad.lo.u32 %x, %a, %b, %c;", |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("mul24.lo.u32 %x, %a, %b;", |a, b, _| (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff)),
        ("sad.s32 %x, %a, %b, %c;", |a, b, c| c.wrapping_add((a as i32).abs_diff(b as i32))),
        ("div.u32 %x, %a, %b;", |a, b, _| a.checked_div(b).unwrap_or(u32::MAX)),
        ("div.s32 %x, %a, %b;", |a, b, _| if b == 0 { u32::MAX } else { (a as i32).wrapping_div(b as i32) as u32 }),
        ("rem.s32 %x, %a, %b;", |a, b, _| if b == 0 { u32::MAX } else { (a as i32).wrapping_rem(b as i32) as u32 }),
        ("min.s32 %x, %a, %b;", |a, b, _| (a as i32).min(b as i32) as u32),
        ("max.u32 %x, %a, %b;", |a, b, _| a.max(b)),
        ("abs.s32 %x, %a;", |a, _, _| (a as i32).wrapping_abs() as u32),
        ("neg.s32 %x, %a;", |a, _, _| a.wrapping_neg()),
        ("not.b32 %x, %a;", |a, _, _| !a),
        ("cnot.b32 %x, %a;", |a, _, _| u32::from(a == 0)),
        ("popc.b32 %x, %a;", |a, _, _| a.count_ones()),
        ("clz.b32 %x, %a;", |a, _, _| a.leading_zeros()),
        ("brev.b32 %x, %a;", |a, _, _| a.reverse_bits()),
        ("bfind.u32 %x, %a;", |a, _, _| if a == 0 { u32::MAX } else { 31 - a.leading_zeros() }),
        ("bfind.shiftamt.s32 %x, %a;", |a, _, _| {
            let flipped = if a as i32 >= 0 { a } else { !a };
            if flipped == 0 { u32::MAX } else { flipped.leading_zeros() }
        }),
        ("shl.b32 %x, %a, %b;", |a, b, _| a.checked_shl(b).unwrap_or(0)),
        ("shr.u32 %x, %a, %b;", |a, b, _| a.checked_shr(b).unwrap_or(0)),
        ("shr.s32 %x, %a, %b;", |a, b, _| ((a as i32) >> b.min(31)) as u32),
        ("shf.l.wrap.b32 %x, %a, %b, %c;", |a, b, c| ((u64::from(b) << 32 | u64::from(a)) << (c & 31) >> 32) as u32),
        ("shf.r.clamp.b32 %x, %a, %b, %c;", |a, b, c| ((u64::from(b) << 32 | u64::from(a)) >> c.min(32)) as u32),
        ("bfe.u32 %x, %a, 5, 9;", |a, _, _| a >> 5 & 0x1ff),
        ("bfe.s32 %x, %a, 20, 20;", |a, _, _| ((a as i32) >> 20) as u32),
        ("bfe.s32 %x, %a, 3, 6;", |a, _, _| ((a << 23) as i32 >> 26) as u32),
        ("bfi.b32 %x, %a, %b, 8, 12;", |a, b, _| (b & !(0xfff << 8)) | (a & 0xfff) << 8),
        ("lop3.b32 %x, %a, %b, %c, 0xCA;", |a, b, c| (a & b) | (!a & c)),
        ("lop3.b32 %x, %a, %b, %c, 0x96;", |a, b, c| a ^ b ^ c),
        ("prmt.b32 %x, %a, %b, 0x5410;", |a, b, _| (a & 0xffff) | (b & 0xffff) << 16),
        ("prmt.b32 %x, %a, %b, 0x7BA4;", |a, b, _| {
            let [a, b] = [a.to_le_bytes(), b.to_le_bytes()];
            let sign = |byte: u8| if byte & 0x80 != 0 { 0xff } else { 0 };
            u32::from_le_bytes([b[0], sign(a[2]), sign(a[3]), b[3]])
        }),
        ("dp4a.s32.s32 %x, %a, %b, %c;", |a, b, c| {
            let products = a.to_le_bytes().into_iter().zip(b.to_le_bytes()).map(|(a, b)| i32::from(a as i8) * i32::from(b as i8));
            c.wrapping_add(products.sum::<i32>() as u32)
        }),
        ("setp.lt.s32 %p, %a, %b;\n    selp.u32 %x, %a, %c, %p;", |a, b, c| if (a as i32) < b as i32 { a } else { c }),
        ("setp.hi.u32 %p, %a, %b;\n    selp.u32 %x, %a, %c, %p;", |a, b, c| if a > b { a } else { c }),
        ("set.ge.u32.s32 %x, %a, %b;", |a, b, _| if a as i32 >= b as i32 { u32::MAX } else { 0 }),
        ("add.cc.u32 %t, %a, %b;\n    addc.u32 %x, %c, 0;", |a, b, c| c.wrapping_add(u32::from(a.checked_add(b).is_none()))),
        ("sub.cc.u32 %t, %a, %b;\n    subc.u32 %x, %c, 0;", |a, b, c| c.wrapping_sub(u32::from(a < b))),
        ("cvt.s8.u8 %x, %a;", |a, _, _| a as i8 as u32),
        ("cvt.u8.s8 %x, %a;", |a, _, _| a & 0xff),
        ("cvt.pack.sat.u8.s32.b32 %x, %a, %b, %c;", |a, b, c| {
            let byte = |v: u32| (v as i32).clamp(0, 255) as u32;
            c << 16 | byte(a) << 8 | byte(b)
        }),
        ("cvt.pack.sat.s16.s32 %x, %a, %b;", |a, b, _| {
            let half = |v: u32| u32::from((v as i32).clamp(-0x8000, 0x7fff) as u16);
            half(a) << 16 | half(b)
        }),
        ("vadd2.s32.s32.s32.sat %x, %a, %b, %c;", |a, b, _| {
            let half = |at: u32| u32::from(((a >> at) as i16).saturating_add((b >> at) as i16) as u16) << at;
            half(0) | half(16)
        }),
        ("vabsdiff4.u32.u32.u32.add %x, %a, %b, %c;", |a, b, c| {
            let parts = a.to_le_bytes().into_iter().zip(b.to_le_bytes()).map(|(a, b)| u32::from(a.abs_diff(b)));
            c.wrapping_add(parts.sum())
        }),
        ("vavrg4.s32.s32.s32 %x, %a, %b, %c;", |a, b, _| {
            // Half rounds towards positive infinity, of a negative sum down.
            let one = |a: u8, b: u8| {
                let sum = i32::from(a as i8) + i32::from(b as i8);
                ((sum + i32::from(sum >= 0)) >> 1) as u8
            };
            let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
            u32::from_le_bytes([0, 1, 2, 3].map(|k| one(a[k], b[k])))
        }),
        ("vset4.u32.s32.lt %x, %a, %b, %c;", |a, b, _| {
            // Signed is the second side alone.
            let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
            u32::from_le_bytes([0, 1, 2, 3].map(|k| u8::from(i32::from(a[k]) < i32::from(b[k] as i8))))
        }),
        ("cvt.s32.s8 %x, %a;", |a, _, _| a as i8 as u32),
        ("cvt.u32.u16 %x, %a;", |a, _, _| a & 0xffff),
        ("cvt.sat.s8.s32 %x, %a;", |a, _, _| (a as i32).clamp(-128, 127) as u32),
        ("add.s16x2 %x, %a, %b;", |a, b, _| {
            let high = (a >> 16).wrapping_add(b >> 16) << 16;
            high | (a.wrapping_add(b) & 0xffff)
        }),
    ];
    let mut random = Random(1);
    for (instruction, op) in cases {
        let [a, b, c] = [0; 3].map(|_| random.words(&INTEGERS));
        let found = run("b32", "b32", instruction, [&a, &b, &c]);
        for index in 0..COUNT {
            let [a, b, c] = [a[index], b[index], c[index]].map(|word| word as u32);
            assert_eq!(found[index] as u32, op(a, b, c), "{instruction} a = {a:#x}, b = {b:#x}, c = {c:#x}");
        }
    }
}

#[test]
fn integers_of_64_and_16_bits() {
    type Op = fn(u64, u64, u64) -> u64;
    let wide: &[(&str, Op)] = &[
        ("add.u64 %x, %a, %b;", |a, b, _| a.wrapping_add(b)),
        ("mul.lo.u64 %x, %a, %b;", |a, b, _| a.wrapping_mul(b)),
        ("mul.hi.s64 %x, %a, %b;", |a, b, _| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64),
        ("div.s64 %x, %a, %b;", |a, b, _| if b == 0 { u64::MAX } else { (a as i64).wrapping_div(b as i64) as u64 }),
        ("rem.u64 %x, %a, %b;", |a, b, _| a.checked_rem(b).unwrap_or(u64::MAX)),
        ("shl.b64 %x, %a, 13;", |a, _, _| a << 13),
        ("shr.s64 %x, %a, 70;", |a, _, _| (a as i64 >> 63) as u64),
        ("bfe.s64 %x, %a, 30, 21;", |a, _, _| ((a << 13) as i64 >> 43) as u64),
        ("cvt.u32.u64 %t, %a;\n    mul.wide.s32 %x, %t, -7;", |a, _, _| (i64::from(a as i32) * -7) as u64),
        ("cvt.u32.u64 %t, %a;\n    mad.wide.u32 %x, %t, 9, %b;", |a, b, _| (u64::from(a as u32) * 9).wrapping_add(b)),
        ("cvt.u32.u64 %t, %a;\n    cvt.s64.s32 %x, %t;", |a, _, _| a as i32 as u64),
        ("cvt.s64.s8 %x, %a;", |a, _, _| a as i8 as u64),
        ("mov.b64 {%t, %u}, %a;\n    mov.b64 %x, {%u, %t};", |a, _, _| a.rotate_left(32)),
    ];
    let mut random = Random(2);
    for (instruction, op) in wide {
        let [a, b, c] = [0; 3].map(|_| random.words(&INTEGERS));
        let found = run("b64", "b64", instruction, [&a, &b, &c]);
        for index in 0..COUNT {
            let (a, b, c) = (a[index], b[index], c[index]);
            assert_eq!(found[index], op(a, b, c), "{instruction} a = {a:#x}, b = {b:#x}");
        }
    }
    type Narrow = fn(u16, u16, u16) -> u16;
    let narrow: &[(&str, Narrow)] = &[
        ("add.s16 %x, %a, %b;", |a, b, _| a.wrapping_add(b)),
        ("mul.hi.u16 %x, %a, %b;", |a, b, _| ((u32::from(a) * u32::from(b)) >> 16) as u16),
        ("min.s16 %x, %a, %b;", |a, b, _| (a as i16).min(b as i16) as u16),
        ("shr.s16 %x, %a, 3;", |a, _, _| (a as i16 >> 3) as u16),
        ("setp.lt.s16 %p, %a, %b;\n    selp.b16 %x, %a, %c, %p;", |a, b, c| if (a as i16) < b as i16 { a } else { c }),
    ];
    for (instruction, op) in narrow {
        let [a, b, c] = [0; 3].map(|_| random.words(&INTEGERS));
        let found = run("b16", "b16", instruction, [&a, &b, &c]);
        for index in 0..COUNT {
            let [a, b, c] = [a[index], b[index], c[index]].map(|word| word as u16);
            assert_eq!(found[index] as u16, op(a, b, c), "{instruction} a = {a:#x}, b = {b:#x}");
        }
    }
}

fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}

#[test]
fn single_precision() {
    type Op = fn(f32, f32, f32) -> f32;
    let cases: &[(&str, Op)] = &[
        ("add.f32 %x, %a, %b;", |a, b, _| a + b),
        ("sub.rn.f32 %x, %a, %b;", |a, b, _| a - b),
        ("mul.f32 %x, %a, %b;", |a, b, _| a * b),
        ("fma.rn.f32 %x, %a, %b, %c;", f32::mul_add),
        ("fma.rn.ftz.f32 %x, %a, %b, %c;", |a, b, c| flush(flush(a).mul_add(flush(b), flush(c)))),
        ("mul.ftz.f32 %x, %a, %b;", |a, b, _| flush(flush(a) * flush(b))),
        ("add.sat.f32 %x, %a, %b;", |a, b, _| if (a + b).is_nan() { 0.0 } else { (a + b).clamp(0.0, 1.0) + 0.0 }),
        ("div.rn.f32 %x, %a, %b;", |a, b, _| a / b),
        ("sqrt.rn.f32 %x, %a;", |a, _, _| a.sqrt()),
        ("rcp.rn.f32 %x, %a;", |a, _, _| 1.0 / a),
        ("min.f32 %x, %a, %b;", |a, b, _| {
            let smaller = if a < b || (a == b && a.is_sign_negative()) || b.is_nan() { a } else { b };
            if a.is_nan() { b } else { smaller }
        }),
        ("max.NaN.f32 %x, %a, %b;", |a, b, _| {
            let larger = if a > b || (a == b && a.is_sign_positive()) { a } else { b };
            if a.is_nan() || b.is_nan() { f32::NAN } else { larger }
        }),
        ("neg.f32 %x, %a;", |a, _, _| -a),
        ("abs.f32 %x, %a;", |a, _, _| a.abs()),
        (
            "setp.ltu.f32 %p, %a, %b;\n    selp.f32 %x, %a, %c, %p;",
            |a, b, c| if a < b || a.is_nan() || b.is_nan() { a } else { c },
        ),
        (
            "setp.ne.f32 %p, %a, %b;\n    selp.f32 %x, %a, %c, %p;",
            |a, b, c| if a != b && !a.is_nan() && !b.is_nan() { a } else { c },
        ),
        ("cvt.rni.f32.f32 %x, %a;", |a, _, _| a.round_ties_even()),
        ("cvt.rmi.f32.f32 %x, %a;", |a, _, _| a.floor()),
        ("cvt.rn.bf16.f32 %n16, %a;\n    cvt.f32.bf16 %x, %n16;", |a, _, _| {
            let bits = a.to_bits();
            f32::from_bits(bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
        }),
        // Between the halves without a rounding: to the nearest.
        (
            "cvt.rn.f16.f32 %n16, %a;\n    cvt.bf16.f16 %n16, %n16;\n    cvt.f16.bf16 %n16, %n16;\n    cvt.f32.f16 %x, %n16;",
            |a, _, _| {
                let held = element::f16_to_f32(element::f32_to_f16(a));
                let rounded = element::bf16_to_f32(element::f32_to_bf16(held));
                element::f16_to_f32(element::f32_to_f16(rounded))
            },
        ),
    ];
    let mut random = Random(3);
    for (instruction, op) in cases {
        let [mut a, mut b, mut c] = [0; 3].map(|_| random.words(&SINGLES));
        // Half of the cases have exponents near each other, where sums cancel and round.
        for list in [&mut a, &mut b, &mut c] {
            for word in list.iter_mut().step_by(2).filter(|word| **word > u64::from(u32::MAX)) {
                *word = (*word & 0x80ff_ffff) | 0x3e00_0000;
            }
        }
        let found = run("b32", "f32", instruction, [&a, &b, &c]);
        for index in 0..COUNT {
            let [a, b, c] = [a[index], b[index], c[index]].map(|word| f32::from_bits(word as u32));
            let (found, wanted) = (f32::from_bits(found[index] as u32), op(a, b, c));
            // A negation or magnitude of NaN keeps it; payloads are not compared.
            let same = found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan());
            assert!(same, "{instruction} a = {a:e}, b = {b:e}, c = {c:e}: {found:e} for {wanted:e}");
        }
    }
}

/// Directed roundings bracket the exact value, which `f64` holds for these operands.
#[test]
fn what_the_chip_does_at_the_edges() {
    let one = |instruction: &str, operands: &str, a: u64, b: u64| {
        let inputs = [vec![a; COUNT], vec![b; COUNT]];
        run("b32", operands, instruction, [&inputs[0], &inputs[1], &inputs[1]])[0] as u32
    };
    // Zeros count as normal numbers.
    assert_eq!(one("testp.normal.f32 %p, %a;\n    selp.u32 %x, 1, 0, %p;", "f32", 0x8000_0000, 0), 1);
    // Rounding to tf32 cuts what is not finite.
    assert_eq!(one("cvt.rna.tf32.f32 %x, %a;", "f32", 0x7f80_0007, 0), 0x7f80_0000);
    assert_eq!(one("cvt.rna.tf32.f32 %x, %a;", "f32", 0x3f80_1000, 0), 0x3f80_2000);
    // `.ftz` of halves: operands of sums that saturate, of extremes, of comparisons, and of the sign's instructions.
    assert_eq!(one("fma.rn.ftz.sat.f16x2 %x, %a, %a, %b;", "b32", 0x3c00_0020, 0x0000_0020), 0x3c00_0000);
    assert_eq!(one("max.ftz.f16x2 %x, %a, %b;", "b32", 0x0001_3c00, 0x0000_0000), 0x0000_3c00);
    assert_eq!(one("abs.ftz.f16x2 %x, %a;", "b32", 0x82c3_bc00, 0), 0x0000_3c00);
    assert_eq!(one("set.eq.ftz.f16x2.f16x2 %x, %a, %b;", "b32", 0x0001_3c00, 0x0000_3c00), 0x3c00_3c00);
    // What rounds up to the least normal number is not flushed.
    assert_eq!(one("mul.rn.ftz.f16x2 %x, %a, %b;", "b32", 0x0400_3bff, 0x3bff_0400), 0x0400_0400);
}

#[test]
fn directed_rounding() {
    type Exact = fn(f64, f64, f64) -> f64;
    let cases: &[(&str, Exact)] =
        &[("add", |a, b, _| a + b), ("sub", |a, b, _| a - b), ("mul", |a, b, _| a * b), ("fma", |a, b, c| a * b + c)];
    let mut random = Random(4);
    for (mnemonic, exact) in cases {
        // Few bits in c keep the sum of a product exact.
        let [a, b] = [0; 2]
            .map(|_| random.words(&[0x3f80_0000]).iter().map(|word| (word & 0x807f_ffff) | 0x3f00_0000).collect::<Vec<_>>());
        let c: Vec<u64> = random.words(&[0x3f80_0000]).iter().map(|word| (word & 0x8070_0000) | 0x3f00_0000).collect();
        for mode in ["rn", "rz", "rm", "rp"] {
            let operands = if *mnemonic == "fma" { "%a, %b, %c" } else { "%a, %b" };
            let found = run("b32", "f32", &format!("{mnemonic}.{mode}.f32 %x, {operands};"), [&a, &b, &c]);
            for index in 0..COUNT {
                let [a, b, c] = [a[index], b[index], c[index]].map(|word| f64::from(f32::from_bits(word as u32)));
                let (exact, found) = (exact(a, b, c), f32::from_bits(found[index] as u32));
                let (below, above) = (f64::from(found.next_down()), f64::from(found.next_up()));
                let value = f64::from(found);
                let right = match mode {
                    "rm" => value <= exact && exact < above,
                    "rp" => value >= exact && exact > below,
                    "rz" => value.abs() <= exact.abs() && exact > below && exact < above,
                    _ => (value - exact).abs() <= (above - exact).abs().min((below - exact).abs()),
                };
                assert!(right, "{mnemonic}.{mode} a = {a:e}, b = {b:e}: {value:e} for {exact:e}");
            }
        }
    }
    let a: Vec<u64> = random.words(&SINGLES).iter().map(|word| word & 0x7fff_ffff).collect();
    for (mode, low) in [("rm", true), ("rz", true), ("rp", false)] {
        let found = run("b32", "f32", &format!("sqrt.{mode}.f32 %x, %a;"), [&a, &a, &a]);
        for index in 0..COUNT {
            let (x, root) = (f64::from(f32::from_bits(a[index] as u32)), f32::from_bits(found[index] as u32));
            if x.is_finite() {
                // Squares of 24-bit numbers are exact.
                let other = f64::from(if low { root.next_up() } else { root.next_down() });
                let square = f64::from(root) * f64::from(root);
                let right =
                    if low { square <= x && other * other > x } else { square >= x && (other < 0.0 || other * other < x) };
                assert!(right || x == 0.0, "sqrt.{mode} {x:e}: {root:e}");
            }
        }
    }
}

#[test]
fn double_precision_and_conversions() {
    type Op = fn(f64, f64, f64) -> f64;
    let cases: &[(&str, Op)] = &[
        ("add.f64 %x, %a, %b;", |a, b, _| a + b),
        ("mul.rn.f64 %x, %a, %b;", |a, b, _| a * b),
        ("fma.rn.f64 %x, %a, %b, %c;", f64::mul_add),
        ("div.rn.f64 %x, %a, %b;", |a, b, _| a / b),
        ("sqrt.rn.f64 %x, %a;", |a, _, _| a.sqrt()),
        ("cvt.rzi.f64.f64 %x, %a;", |a, _, _| a.trunc()),
    ];
    let special = [0, 1 << 63, 0x3ff0_0000_0000_0000, 0x7ff0_0000_0000_0000, 1, 0x7fef_ffff_ffff_ffff];
    let mut random = Random(5);
    for (instruction, op) in cases {
        let [a, b, c] = [0; 3].map(|_| random.words(&special));
        let found = run("b64", "f64", instruction, [&a, &b, &c]);
        for index in 0..COUNT {
            let [a, b, c] = [a[index], b[index], c[index]].map(f64::from_bits);
            let (found, wanted) = (f64::from_bits(found[index]), op(a, b, c));
            let same = found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan());
            assert!(same, "{instruction} a = {a:e}, b = {b:e}: {found:e} for {wanted:e}");
        }
    }
    type Cast = fn(f32) -> u32;
    let casts: &[(&str, Cast)] = &[
        ("cvt.rzi.s32.f32 %x, %a;", |a| a as i32 as u32),
        ("cvt.rni.u32.f32 %x, %a;", |a| a.round_ties_even() as u32),
        ("cvt.rpi.s32.f32 %x, %a;", |a| a.ceil() as i32 as u32),
        ("mov.b32 %t, %a;\n    cvt.rn.f32.s32 %a, %t;\n    mov.b32 %x, %a;", |a| (a.to_bits() as i32 as f32).to_bits()),
        ("mov.b32 %t, %a;\n    cvt.rz.f32.u32 %a, %t;\n    mov.b32 %x, %a;", |a| {
            let bits = a.to_bits();
            let cut = (32 - bits.leading_zeros()).saturating_sub(24);
            ((bits >> cut << cut) as f32).to_bits()
        }),
        ("cvt.rn.f16x2.f32 %t, %a, %b;\n    mov.b32 %x, %t;", |a| half(f64::from(a)) << 16 | half(f64::from(a))),
    ];
    for (instruction, op) in casts {
        let a: Vec<u64> = random
            .words(&SINGLES)
            .iter()
            .map(|word| if word.is_multiple_of(3) { *word } else { (word & 0x80ff_ffff) | (0x4400_0000 + (word & 0x0800_0000)) })
            .collect();
        let found = run("b32", "f32", instruction, [&a, &a, &a]);
        for index in 0..COUNT {
            let x = f32::from_bits(a[index] as u32);
            if !(x.is_nan() && instruction.contains("f16x2")) {
                assert_eq!(found[index] as u32, op(x), "{instruction} a = {x:e} ({:#x})", a[index] as u32);
            }
        }
    }
}

#[test]
fn approximations_are_within_the_manual() {
    type Op = fn(f64) -> f64;
    // Relative or absolute error as the PTX manual bounds it.
    let cases: &[(&str, Op, f64, f64)] = &[
        ("ex2.approx.ftz.f32 %x, %a;", f64::exp2, 2.0f64.powi(-22), 0.0),
        ("lg2.approx.f32 %x, %a;", f64::log2, 2.0f64.powi(-22), 2.0f64.powi(-22)),
        ("rcp.approx.ftz.f32 %x, %a;", f64::recip, 2.0f64.powi(-23), 0.0),
        ("rsqrt.approx.f32 %x, %a;", |a| a.sqrt().recip(), 2.0f64.powf(-22.9), 0.0),
        ("sqrt.approx.f32 %x, %a;", f64::sqrt, 2.0f64.powi(-23), 0.0),
        ("sin.approx.f32 %x, %a;", f64::sin, 0.0, 2.0f64.powf(-20.5)),
        ("cos.approx.f32 %x, %a;", f64::cos, 0.0, 2.0f64.powf(-20.5)),
        ("tanh.approx.f32 %x, %a;", f64::tanh, 2.0f64.powi(-11), 0.0),
    ];
    let a: Vec<u64> = (0..COUNT).map(|i| u64::from(((i as f32 + 0.5) / 340.0).to_bits())).collect();
    for (instruction, op, relative, absolute) in cases {
        let found = run("b32", "f32", instruction, [&a, &a, &a]);
        for index in 0..COUNT {
            let x = f64::from(f32::from_bits(a[index] as u32));
            let (found, wanted) = (f64::from(f32::from_bits(found[index] as u32)), op(x));
            assert!((found - wanted).abs() <= relative * wanted.abs() + absolute, "{instruction} {x}: {found} for {wanted}");
        }
    }
    let infinite = vec![0x7f80_0000; COUNT];
    assert_eq!(run("b32", "f32", "ex2.approx.f32 %x, %a;", [&infinite; 3])[0], 0x7f80_0000);
    let negative = vec![0xff80_0000; COUNT];
    assert_eq!(run("b32", "f32", "ex2.approx.f32 %x, %a;", [&negative; 3])[0], 0);
}

/// Packed 16-bit arithmetic: exact in `f64`, then rounded once.
#[test]
fn half_precision() {
    let mut random = Random(6);
    let word = |random: &mut Random| {
        // Numbers between 2^-4 and 2^4, and some subnormal ones.
        let bits = random.next();
        u64::from((bits as u32 & 0x83ff) | (if bits >> 32 & 7 == 0 { 0 } else { (11 + (bits >> 40) as u32 % 8) << 10 }))
    };
    let [a, b, c] = [0; 3].map(|_| (0..COUNT).map(|_| word(&mut random) | word(&mut random) << 16).collect::<Vec<_>>());
    let number = |bits: u64| {
        let bits = bits as u32 & 0xffff;
        let (exponent, mantissa) = ((bits >> 10 & 31) as i32, f64::from(bits & 0x3ff));
        let magnitude = if exponent == 0 { mantissa * 2f64.powi(-24) } else { (1024.0 + mantissa) * 2f64.powi(exponent - 25) };
        if bits & 0x8000 != 0 { -magnitude } else { magnitude }
    };
    type Op = fn(f64, f64, f64) -> f64;
    let cases: &[(&str, Op)] = &[
        ("add.f16x2 %x, %a, %b;", |a, b, _| a + b),
        ("mul.f16x2 %x, %a, %b;", |a, b, _| a * b),
        ("fma.rn.f16x2 %x, %a, %b, %c;", |a, b, c| a * b + c),
        ("min.f16x2 %x, %a, %b;", |a, b, _| a.min(b)),
    ];
    for (instruction, op) in cases {
        let found = run("b32", "b32", instruction, [&a, &b, &c]);
        for index in 0..COUNT {
            for shift in [0, 16] {
                let [a, b, c] = [a[index], b[index], c[index]].map(|word| number(word >> shift));
                // 11-bit operands: the exact result fits f64, so there is one rounding.
                let (found, wanted) = (number(found[index] >> shift), number(u64::from(half(op(a, b, c)))));
                assert_eq!(found, wanted, "{instruction} a = {a}, b = {b}, c = {c}");
            }
        }
    }
}

/// To `f16`, to nearest even, by scaling to places of the result.
fn half(x: f64) -> u32 {
    let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
    let magnitude = x.abs();
    if magnitude >= 65520.0 {
        return sign | 0x7c00;
    }
    let exponent = if magnitude == 0.0 { -14 } else { ((magnitude.to_bits() >> 52) as i32 - 1023).max(-14) };
    let places = (magnitude * 2f64.powi(10 - exponent)).round_ties_even() as u32;
    sign | ((((exponent + 14) as u32) << 10) + places)
}

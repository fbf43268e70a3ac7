//! Each function against `f64` over numbers of every exponent and sign.

use super::super::dispatch::simd;

simd! {
    fn map[F: Fn(f32) -> f32](f: F, dst: &mut [f32], src: &[f32]) {
        for (to, &x) in dst.iter_mut().zip(src) {
            *to = f(x);
        }
    }
}

/// Every exponent of both signs with fractions spread evenly and some special ones.
fn numbers() -> Vec<f32> {
    let fractions =
        (0..256u32).map(|i| (i << 15 | (i.wrapping_mul(40_503) & 0x7fff)) & 0x007f_ffff).chain([0, 1, 2, 0x007f_ffff]);
    let mut all: Vec<f32> =
        fractions.flat_map(|fraction| (0..512u32).map(move |exponent| f32::from_bits(exponent << 23 | fraction))).collect();
    // Arguments where results are neither 0, 1 nor infinite, densely.
    all.extend((0..400_000).map(|i| (i - 200_000) as f32 * 0.000_553_7));
    all
}

/// Distance in places, of finite results; infinity counts as the next number.
fn places(result: f32, exact: f64) -> f64 {
    let nearest = exact as f32;
    if result.is_nan() || exact.is_nan() {
        return if result.is_nan() && exact.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if result == nearest {
        return if result == 0.0 && exact == 0.0 && result.is_sign_negative() != exact.is_sign_negative() {
            f64::INFINITY
        } else {
            0.0
        };
    }
    if !result.is_finite() || !nearest.is_finite() {
        let bound = f64::from(f32::MAX);
        let (result, exact) = (f64::from(result).clamp(-bound * 1.01, bound * 1.01), exact.clamp(-bound * 1.01, bound * 1.01));
        return (result - exact).abs() / 2f64.powi(104);
    }
    let place = (f32::from_bits(nearest.abs().to_bits().min(0x7f7f_fffe) + 1) - nearest.abs().min(3.4e38)).max(f32::from_bits(1));
    (f64::from(result) - exact).abs() / f64::from(place)
}

fn check(name: &str, bound: f64, src: &[f32], results: &[f32], exact: impl Fn(f64) -> f64) {
    let mut worst = (0.0, 0.0f32, 0.0f32);
    for (&x, &result) in src.iter().zip(results) {
        let error = places(result, exact(f64::from(x)));
        if error > worst.0 {
            worst = (error, x, result);
        }
    }
    println!("{name}: {:.3} places at {:e}", worst.0, worst.1);
    assert!(worst.0 <= bound, "{name}({:e}) = {:e}, not {:e}: {} places", worst.1, worst.2, exact(f64::from(worst.1)), worst.0);
}

macro_rules! within {
    ($($name:ident $bound:literal $exact:expr;)*) => {$(
        #[test]
        fn $name() {
            let src = numbers();
            let mut dst = vec![0.0; src.len()];
            map(|x| super::$name(x), &mut dst, &src);
            check(stringify!($name), $bound, &src, &dst, $exact);
        }
    )*};
}

within! {
    exp 1.2 f64::exp;
    exp2 1.2 f64::exp2;
    tanh 1.5 f64::tanh;
    log 0.51 f64::ln;
    log2 0.51 f64::log2;
    sinh 0.51 f64::sinh;
    cosh 0.51 f64::cosh;
    rsqrt 1.5 |x: f64| 1.0 / x.sqrt();
}

#[test]
fn circular_functions() {
    let src = numbers();
    let mut dst = vec![0.0; src.len()];
    super::sin(&mut dst, &src);
    check("sin", 0.51, &src, &dst, f64::sin);
    super::cos(&mut dst, &src);
    check("cos", 0.51, &src, &dst, f64::cos);
    super::tan(&mut dst, &src);
    check("tan", 0.51, &src, &dst, f64::tan);
}

/// Numbers of all sizes, and the special ones.
fn few() -> Vec<f32> {
    let mut all: Vec<f32> = numbers().into_iter().step_by(1031).collect();
    let specials =
        [0.0, 1.0, 0.5, 2.0, 3.0, 7.0, 1.5, 16_777_215.0, 16_777_216.0, 1e-45, 3e38, f32::INFINITY, 1.000_000_1, 0.999_999_94];
    all.extend(specials.iter().flat_map(|&x| [x, -x]));
    all.push(f32::NAN);
    all
}

#[test]
fn powers() {
    let all = few();
    for &y in &all {
        let mut dst = vec![0.0; all.len()];
        map(|x| super::pow(x, y), &mut dst, &all);
        check(&format!("pow(_, {y:e})"), 0.51, &all, &dst, |x| x.powf(f64::from(y)));
    }
}

#[test]
fn angles_of_points() {
    let all = few();
    for &x in &all {
        let mut dst = vec![0.0; all.len()];
        map(|y| super::atan2(y, x), &mut dst, &all);
        check(&format!("atan2(_, {x:e})"), 0.51, &all, &dst, |y| y.atan2(f64::from(x)));
    }
}

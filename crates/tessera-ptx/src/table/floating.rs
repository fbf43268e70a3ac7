//! Floating point: single, double and half precision.

#[rustfmt::skip]
super::rows! {
    "Floating-point" {
        "testp.(finite|infinite|number|notanumber|normal|subnormal).(f32|f64)" "q a" 2 0 Sm 20
        "copysign.(f32|f64)" "d a a" 2 0 Sm 20
        "add.RND?.ftz?.sat?.f32" "d a a" 1 0 Sm 20
        "add.RND?.f64" "d a a" 1 0 Sm 20
        "sub.RND?.ftz?.sat?.f32" "d a a" 1 0 Sm 20
        "sub.RND?.f64" "d a a" 1 0 Sm 20
        "mul.RND?.ftz?.sat?.f32" "d a a" 1 0 Sm 20
        "mul.RND?.f64" "d a a" 1 0 Sm 20
        "fma.RND.ftz?.sat?.f32" "d a a a" 2 0 Sm 20
        "fma.RND.f64" "d a a a" 1 4 Sm 20
        "mad.RND.ftz?.sat?.f32" "d a a a" 2 0 Sm 20
        "mad.RND.f64" "d a a a" 1 4 Sm 20
        "div.full/.ftz?.f32" "d a a" 1 4 Sm 20
        "div.(approx|rn|rz|rm|rp).ftz?.f32" "d a a" 1 4 Sm 20
        "div.RND.f64" "d a a" 1 4 Sm 20
        "abs.ftz?.f32" "d a" 1 0 Sm 20
        "abs.f64" "d a" 1 0 Sm 20
        "neg.ftz?.f32" "d a" 1 0 Sm 20
        "neg.f64" "d a" 1 0 Sm 20
        "min.ftz?.f32" "d a a" 1 0 Sm 20
        "min.ftz?.NaN.f32" "d a a" 7 0 Sm 80
        "min.ftz?.NaN?.xorsign.abs.f32" "d a a" 7 2 Sm 86
        "min.f64" "d a a" 1 0 Sm 20
        "max.ftz?.f32" "d a a" 1 0 Sm 20
        "max.ftz?.NaN.f32" "d a a" 7 0 Sm 80
        "max.ftz?.NaN?.xorsign.abs.f32" "d a a" 7 2 Sm 86
        "max.f64" "d a a" 1 0 Sm 20
        "rcp.(approx|rn|rz|rm|rp).ftz?.f32" "d a" 1 4 Sm 20
        "rcp.RND.f64" "d a" 1 4 Sm 20
        "rcp.approx.ftz.f64" "d a" 2 1 Sm 20
        "sqrt.(approx|rn|rz|rm|rp).ftz?.f32" "d a" 1 4 Sm 20
        "sqrt.RND.f64" "d a" 1 4 Sm 20
        "rsqrt.approx.ftz?.(f32|f64)" "d a" 1 4 Sm 20
        "sin.approx.ftz?.f32" "d a" 1 4 Sm 20
        "cos.approx.ftz?.f32" "d a" 1 4 Sm 20
        "lg2.approx.ftz?.f32" "d a" 1 4 Sm 20
        "ex2.approx.ftz?.f32" "d a" 1 4 Sm 20
        "tanh.approx.f32" "d a" 7 0 Sm 75
    }
    "Half precision floating-point" {
        "add.rn?.ftz?.sat?.(f16|f16x2)" "d a a" 4 2 Sm 53
        "add.rn?.(bf16|bf16x2)" "d a a" 7 8 Sm 90
        "sub.rn?.ftz?.sat?.(f16|f16x2)" "d a a" 4 2 Sm 53
        "sub.rn?.(bf16|bf16x2)" "d a a" 7 8 Sm 90
        "mul.rn?.ftz?.sat?.(f16|f16x2)" "d a a" 4 2 Sm 53
        "mul.rn?.(bf16|bf16x2)" "d a a" 7 8 Sm 90
        "fma.rn.ftz?.sat?.(f16|f16x2)" "d a a a" 4 2 Sm 53
        "fma.rn.ftz?.relu.(f16|f16x2)" "d a a a" 7 0 Sm 80
        "fma.rn.relu?.(bf16|bf16x2)" "d a a a" 7 0 Sm 80
        "fma.rn.oob.relu?.(f16|f16x2|bf16|bf16x2)" "d a a a" 8 1 Sm 90
        "neg.ftz?.(f16|f16x2)" "d a" 6 0 Sm 53
        "neg.(bf16|bf16x2)" "d a" 7 0 Sm 80
        "abs.ftz?.(f16|f16x2)" "d a" 6 5 Sm 53
        "abs.(bf16|bf16x2)" "d a" 7 0 Sm 80
        "min.ftz?.NaN?.(f16|f16x2)" "d a a" 7 0 Sm 80
        "min.ftz?.NaN?.xorsign.abs.(f16|f16x2)" "d a a" 7 2 Sm 86
        "min.NaN?.(bf16|bf16x2)" "d a a" 7 0 Sm 80
        "min.NaN?.xorsign.abs.(bf16|bf16x2)" "d a a" 7 2 Sm 86
        "max.ftz?.NaN?.(f16|f16x2)" "d a a" 7 0 Sm 80
        "max.ftz?.NaN?.xorsign.abs.(f16|f16x2)" "d a a" 7 2 Sm 86
        "max.NaN?.(bf16|bf16x2)" "d a a" 7 0 Sm 80
        "max.NaN?.xorsign.abs.(bf16|bf16x2)" "d a a" 7 2 Sm 86
        "tanh.approx.(f16|f16x2)" "d a" 7 0 Sm 75
        "tanh.approx.(bf16|bf16x2)" "d a" 7 8 Sm 90
        "ex2.approx.(f16|f16x2)" "d a" 7 0 Sm 75
        "ex2.approx.ftz.(bf16|bf16x2)" "d a" 7 8 Sm 90
    }
    "Conversion" {
        "cvt.(INT|u8|s8).(INT|u8|s8)" "d:t0~ a:t~" 1 0 Sm 20
        "cvt.sat.u8.(INT|s8)" "d:t0~ a:t~" 1 0 Sm 20
        "cvt.sat.s8.(INT|u8)" "d:t0~ a:t~" 1 0 Sm 20
        "cvt.sat.u16.(s8|s16|u32|s32|u64|s64)" "d:t0~ a:t~" 1 0 Sm 20
        "cvt.sat.s16.(u16|u32|s32|u64|s64)" "d:t0~ a:t~" 1 0 Sm 20
        "cvt.sat.u32.(s8|s16|s32|u64|s64)" "d:t0~ a:t~" 1 0 Sm 20
        "cvt.sat.s32.(u32|u64|s64)" "d:t0~ a:t~" 1 0 Sm 20
        "cvt.sat.u64.(s8|s16|s32|s64)" "d:t0~ a:t~" 1 0 Sm 20
        "cvt.sat.s64.u64" "d:t0~ a:t~" 1 0 Sm 20
        "cvt.IRND.ftz?.sat?.(INT|u8|s8).f32" "d:t0~ a" 1 0 Sm 20
        "cvt.IRND.sat?.(INT|u8|s8).f64" "d:t0~ a" 1 0 Sm 20
        "cvt.IRND.sat?.(INT|u8|s8).f16" "d:t0~ a" 1 0 Sm 20
        "cvt.RND.ftz?.sat?.f32.(INT|u8|s8)" "d:t0 a:t~" 1 0 Sm 20
        "cvt.RND.sat?.f64.(INT|u8|s8)" "d:t0 a:t~" 1 0 Sm 20
        "cvt.RND.sat?.f16.(INT|u8|s8)" "d:t0 a:t~" 1 0 Sm 20
        "cvt.RND.ftz?.sat?.f16.f32" "d:t0 a" 1 0 Sm 20
        "cvt.RND.sat?.f16.f64" "d:t0 a" 1 0 Sm 20
        "cvt.ftz?.sat?.f32.f16" "d:t0 a" 1 0 Sm 20
        "cvt.sat?.f64.f16" "d:t0 a" 1 0 Sm 20
        "cvt.RND.ftz?.sat?.f32.f64" "d:t0 a" 1 0 Sm 20
        "cvt.ftz?.sat?.f64.f32" "d:t0 a" 1 0 Sm 20
        "cvt.IRND?.ftz?.sat?.f32.f32" "d:t0 a" 1 0 Sm 20
        "cvt.IRND?.sat?.f64.f64" "d:t0 a" 1 0 Sm 20
        "cvt.IRND?.sat?.f16.f16" "d:t0 a" 1 0 Sm 20
        "cvt.RND.bf16.(INT|u8|s8|f16|f64)" "d:t0 a:t~" 7 8 Sm 90
        "cvt.bf16.f16" "d:t0 a" 7 8 Sm 90
        "cvt.(rm|rp).bf16.f32" "d:t0 a" 7 8 Sm 80
        "cvt.(rn|rz).relu?.satfinite?.bf16.f32" "d:t0 a" 7 0 Sm 80
        "cvt.IRND?.bf16.bf16" "d:t0 a" 7 8 Sm 90
        "cvt.IRND.(INT|u8|s8).bf16" "d:t0~ a" 7 8 Sm 90
        "cvt.RND.f16.bf16" "d:t0 a" 7 8 Sm 90
        "cvt.f16.bf16" "d:t0 a" 7 8 Sm 90
        "cvt.f32.bf16" "d:t0 a" 7 1 Sm 80
        "cvt.f64.bf16" "d:t0 a" 7 8 Sm 90
        "cvt.(rn|rz).relu?.satfinite?.f16.f32" "d:t0 a" 7 0 Sm 80
        "cvt.(rn|rz).relu?.satfinite?.(f16x2|bf16x2).f32" "d:t0 a a" 7 0 Sm 80
        "cvt.rna.satfinite?.tf32.f32" "d:b32 a" 7 0 Sm 80
        "cvt.(rn|rz).relu?.tf32.f32" "d:b32 a" 7 8 Sm 90
        "cvt.rn.satfinite.relu?.(e4m3x2|e5m2x2).f32" "d:b16 a a" 7 8 Sm 89
        "cvt.rn.satfinite.relu?.(e4m3x2|e5m2x2).f16x2" "d:b16 a" 7 8 Sm 89
        "cvt.rn.relu?.f16x2.(e4m3x2|e5m2x2)" "d:b32 a:b16" 7 8 Sm 89
        "cvt.pack/.sat.(u16|s16).s32" "d:b32 a a" 6 5 Sm 72
        "cvt.pack/.sat.(u8|s8).s32.b32" "d:b32 a:s32 a:s32 a:b32" 6 5 Sm 72
        "cvt.pack/.sat.(u4|s4|u2|s2).s32.b32" "d:b32 a:s32 a:s32 a:b32" 6 5 Sm 75
    }
}

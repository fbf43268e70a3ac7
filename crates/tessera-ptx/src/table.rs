//! The instruction table: one row an instruction form. See `form` for how forms are written and `operand_rule` for operands.
//!
//! Rows of one mnemonic are tried in order; the first whose form and operands fit is the instruction's row.

use crate::form::Row;
use crate::target::{Needs, PtxVersion};

macro_rules! rows {
    ($($form:literal $operands:literal $major:literal $minor:literal $need:ident $sm:literal)*) => {
        pub(crate) const ROWS: &[Row] = &[$(Row {
            form: $form,
            operands: $operands,
            ptx: PtxVersion::new($major, $minor),
            needs: Needs::$need($sm),
        }),*];
    };
}

#[rustfmt::skip]
rows! {
    // Moving values
    "mov.pred" "q p" 1 0 Sm 20
    "mov.pred" "q i" 1 0 Sm 20
    "mov.(b16|b32|b64|b128)" "d v" 1 0 Sm 20
    "mov.(b16|b32|b64|b128)" "v a" 1 0 Sm 20
    "mov.(b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64)" "d a" 1 0 Sm 20
    "cvta.(global|shared|local|const|param|shared::cta|shared::cluster).(u32|u64)" "d a" 2 0 Sm 20
    "cvta.to.(global|shared|local|const|param|shared::cta|shared::cluster).(u32|u64)" "d a" 2 0 Sm 20
    "isspacep.(global|shared|local|const|param|shared::cta|shared::cluster|param::entry)" "q a:-" 2 0 Sm 20
    "mapa.(shared::cluster)?.(u32|u64)" "d a a:u32" 7 8 Sm 90
    "getctarank.(shared::cluster)?.(u32|u64)" "d:u32 a" 7 8 Sm 90
    "selp.(BITS|INT|f32|f64)" "d a a p" 1 0 Sm 20
    "prmt.b32.(f4e|b4e|rc8|ecl|ecr|rc16)?" "d:b32 a:b32 a:b32 a:b32" 2 0 Sm 20

    // Integers
    "add.(u16x2|s16x2)" "d a a" 8 0 Sm 90
    "add.sat?.s32" "d a a" 1 0 Sm 20
    "add.INT" "d a a" 1 0 Sm 20
    "add.cc.(u32|s32|u64|s64)" "d a a" 1 2 Sm 20
    "addc.cc?.(u32|s32|u64|s64)" "d a a" 1 2 Sm 20
    "sub.sat?.s32" "d a a" 1 0 Sm 20
    "sub.INT" "d a a" 1 0 Sm 20
    "sub.cc.(u32|s32|u64|s64)" "d a a" 1 2 Sm 20
    "subc.cc?.(u32|s32|u64|s64)" "d a a" 1 2 Sm 20
    "mul.(lo|hi).INT" "d a a" 1 0 Sm 20
    "mul.wide.(u16|s16|u32|s32)" "d:w a a" 1 0 Sm 20
    "mad.(lo|hi).INT" "d a a a" 1 0 Sm 20
    "mad.hi.sat.s32" "d a a a" 1 0 Sm 20
    "mad.wide.(u16|s16|u32|s32)" "d:w a a a:w" 1 0 Sm 20
    "mad.(lo|hi).cc.(u32|s32|u64|s64)" "d a a a" 3 0 Sm 20
    "madc.(lo|hi).cc?.(u32|s32|u64|s64)" "d a a a" 3 0 Sm 20
    "mul24.(lo|hi).(u32|s32)" "d a a" 1 0 Sm 20
    "mad24.(lo|hi).(u32|s32)" "d a a a" 1 0 Sm 20
    "mad24.hi.sat.s32" "d a a a" 1 0 Sm 20
    "sad.INT" "d a a a" 1 0 Sm 20
    "div.INT" "d a a" 1 0 Sm 20
    "rem.INT" "d a a" 1 0 Sm 20
    "abs.(s16|s32|s64)" "d a" 1 0 Sm 20
    "neg.(s16|s32|s64)" "d a" 1 0 Sm 20
    "min.(u16x2|s16x2)" "d a a" 8 0 Sm 90
    "min.INT" "d a a" 1 0 Sm 20
    "min.relu.(s16x2|s32)" "d a a" 8 0 Sm 90
    "max.(u16x2|s16x2)" "d a a" 8 0 Sm 90
    "max.INT" "d a a" 1 0 Sm 20
    "max.relu.(s16x2|s32)" "d a a" 8 0 Sm 90
    "popc.(b32|b64)" "d:u32 a" 2 0 Sm 20
    "clz.(b32|b64)" "d:u32 a" 2 0 Sm 20
    "bfind.shiftamt?.(u32|u64|s32|s64)" "d:u32 a" 2 0 Sm 20
    "brev.(b32|b64)" "d a" 2 0 Sm 20
    "bfe.(u32|u64|s32|s64)" "d a a:u32 a:u32" 2 0 Sm 20
    "bfi.(b32|b64)" "d a a a:u32 a:u32" 2 0 Sm 20
    "bmsk.(clamp|wrap).b32" "d a:u32 a:u32" 7 6 Sm 70
    "fns.b32" "d a:u32 a:u32 a:s32" 6 0 Sm 30
    "szext.(clamp|wrap).(u32|s32)" "d a a:u32" 7 6 Sm 70
    "vadd2.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "d:b32 a:b32 a:b32 a:b32" 3 0 Sm 30
    "vadd4.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "d:b32 a:b32 a:b32 a:b32" 3 0 Sm 30
    "vsub2.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "d:b32 a:b32 a:b32 a:b32" 3 0 Sm 30
    "vsub4.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "d:b32 a:b32 a:b32 a:b32" 3 0 Sm 30
    "vavrg2.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "d:b32 a:b32 a:b32 a:b32" 3 0 Sm 30
    "vavrg4.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "d:b32 a:b32 a:b32 a:b32" 3 0 Sm 30
    "vabsdiff2.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "d:b32 a:b32 a:b32 a:b32" 3 0 Sm 30
    "vabsdiff4.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "d:b32 a:b32 a:b32 a:b32" 3 0 Sm 30
    "vmin2.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "d:b32 a:b32 a:b32 a:b32" 3 0 Sm 30
    "vmin4.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "d:b32 a:b32 a:b32 a:b32" 3 0 Sm 30
    "vmax2.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "d:b32 a:b32 a:b32 a:b32" 3 0 Sm 30
    "vmax4.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "d:b32 a:b32 a:b32 a:b32" 3 0 Sm 30
    "vset2.(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge).add?" "d:b32 a:b32 a:b32 a:b32" 3 0 Sm 30
    "vset4.(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge).add?" "d:b32 a:b32 a:b32 a:b32" 3 0 Sm 30
    "dp4a.(u32|s32).(u32|s32)" "d a:b32 a:b32 a" 5 0 Sm 61
    "dp2a.(lo|hi).(u32|s32).(u32|s32)" "d a:b32 a:b32 a" 5 0 Sm 61

    // Bits
    "and.pred" "q p p" 1 0 Sm 20
    "and.BITS" "d a a" 1 0 Sm 20
    "or.pred" "q p p" 1 0 Sm 20
    "or.BITS" "d a a" 1 0 Sm 20
    "xor.pred" "q p p" 1 0 Sm 20
    "xor.BITS" "d a a" 1 0 Sm 20
    "not.pred" "q p" 1 0 Sm 20
    "not.BITS" "d a" 1 0 Sm 20
    "cnot.BITS" "d a" 1 0 Sm 20
    "lop3.b32" "d a a a i" 4 3 Sm 50
    "lop3.(or|and).b32" "d|q a a a i p" 8 2 Sm 70
    "shl.BITS" "d a a:u32" 1 0 Sm 20
    "shr.(BITS|INT)" "d a a:u32" 1 0 Sm 20
    "shf.(l|r).(clamp|wrap).b32" "d a a a:u32" 3 1 Sm 32

    // Floating point
    "add.RND?.ftz?.sat?.f32" "d a a" 1 0 Sm 20
    "add.RND?.f64" "d a a" 1 0 Sm 20
    "add.rn?.ftz?.sat?.(f16|f16x2)" "d a a" 4 2 Sm 53
    "add.rn?.(bf16|bf16x2)" "d a a" 7 8 Sm 90
    "sub.RND?.ftz?.sat?.f32" "d a a" 1 0 Sm 20
    "sub.RND?.f64" "d a a" 1 0 Sm 20
    "sub.rn?.ftz?.sat?.(f16|f16x2)" "d a a" 4 2 Sm 53
    "sub.rn?.(bf16|bf16x2)" "d a a" 7 8 Sm 90
    "mul.RND?.ftz?.sat?.f32" "d a a" 1 0 Sm 20
    "mul.RND?.f64" "d a a" 1 0 Sm 20
    "mul.rn?.ftz?.sat?.(f16|f16x2)" "d a a" 4 2 Sm 53
    "mul.rn?.(bf16|bf16x2)" "d a a" 7 8 Sm 90
    "fma.RND.ftz?.sat?.f32" "d a a a" 2 0 Sm 20
    "fma.RND.f64" "d a a a" 1 4 Sm 20
    "fma.rn.ftz?.(sat|relu)?.(f16|f16x2)" "d a a a" 4 2 Sm 53
    "fma.rn.relu?.(bf16|bf16x2)" "d a a a" 7 0 Sm 80
    "mad.RND.ftz?.sat?.f32" "d a a a" 2 0 Sm 20
    "mad.RND.f64" "d a a a" 1 4 Sm 20
    "div.(approx|full|rn|rz|rm|rp).ftz?.f32" "d a a" 1 4 Sm 20
    "div.RND.f64" "d a a" 1 4 Sm 20
    "abs.ftz?.(f32|f16|f16x2)" "d a" 1 0 Sm 20
    "abs.f64" "d a" 1 0 Sm 20
    "abs.(bf16|bf16x2)" "d a" 7 0 Sm 80
    "neg.ftz?.(f32|f16|f16x2)" "d a" 1 0 Sm 20
    "neg.f64" "d a" 1 0 Sm 20
    "neg.(bf16|bf16x2)" "d a" 7 0 Sm 80
    "min.ftz?.NaN?.(xorsign)?.abs?.f32" "d a a" 1 0 Sm 20
    "min.f64" "d a a" 1 0 Sm 20
    "min.ftz?.NaN?.(f16|f16x2)" "d a a" 7 0 Sm 80
    "min.NaN?.(bf16|bf16x2)" "d a a" 7 0 Sm 80
    "max.ftz?.NaN?.(xorsign)?.abs?.f32" "d a a" 1 0 Sm 20
    "max.f64" "d a a" 1 0 Sm 20
    "max.ftz?.NaN?.(f16|f16x2)" "d a a" 7 0 Sm 80
    "max.NaN?.(bf16|bf16x2)" "d a a" 7 0 Sm 80
    "copysign.(f32|f64)" "d a a" 2 0 Sm 20
    "testp.(finite|infinite|number|notanumber|normal|subnormal).(f32|f64)" "q a" 2 0 Sm 20
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
    "ex2.approx.(f16|f16x2)" "d a" 7 0 Sm 75
    "ex2.approx.ftz.(bf16|bf16x2)" "d a" 7 8 Sm 90
    "tanh.approx.f32" "d a" 7 0 Sm 75
    "tanh.approx.(f16|f16x2)" "d a" 7 0 Sm 75
    "tanh.approx.(bf16|bf16x2)" "d a" 7 8 Sm 90

    // Comparison
    "setp.(eq|ne|lt|le|gt|ge|ls|hs|lo|hi).(BITS|INT)" "q|q a a" 1 0 Sm 20
    "setp.(eq|ne|lt|le|gt|ge|ls|hs|lo|hi).(and|or|xor).(BITS|INT)" "q|q a a p" 1 0 Sm 20
    "setp.(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan).ftz?.(f32|f64|f16)" "q|q a a" 1 0 Sm 20
    "setp.(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan).(and|or|xor).ftz?.(f32|f64|f16)" "q|q a a p" 1 0 Sm 20
    "setp.(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan).ftz?.(f16x2|bf16|bf16x2)" "q|q a a" 7 8 Sm 53
    "setp.(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan).(and|or|xor).ftz?.(f16x2|bf16|bf16x2)" "q|q a a p" 7 8 Sm 53
    "set.(eq|ne|lt|le|gt|ge|ls|hs|lo|hi|equ|neu|ltu|leu|gtu|geu|num|nan).ftz?.(u32|s32|f32).(BITS|INT|f32|f64)" "d:t0 a a" 1 0 Sm 20
    "set.(eq|ne|lt|le|gt|ge|ls|hs|lo|hi|equ|neu|ltu|leu|gtu|geu|num|nan).(and|or|xor).ftz?.(u32|s32|f32).(BITS|INT|f32|f64)" "d:t0 a a p" 1 0 Sm 20
    "set.(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan).ftz?.(f16|bf16|f16x2|bf16x2|u16|s16|u32|s32).(f16|bf16|f16x2|bf16x2)" "d:t0 a a" 4 2 Sm 53
    "set.(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan).(and|or|xor).ftz?.(f16|bf16|f16x2|bf16x2|u16|s16|u32|s32).(f16|bf16|f16x2|bf16x2)" "d:t0 a a p" 4 2 Sm 53
    "slct.ftz?.(BITS|INT|f32|f64).(s32|f32)" "d:t0 a:t0 a:t0 a:t1" 1 0 Sm 20

    // Conversions
    "cvt.(rn|rz|rm|rp|rni|rzi|rmi|rpi)?.ftz?.sat?.(u8|u16|u32|u64|s8|s16|s32|s64|f16|f32|f64).(u8|u16|u32|u64|s8|s16|s32|s64|f16|f32|f64)" "d:t0~ a:t~" 1 0 Sm 20
    "cvt.(rn|rz).relu?.satfinite?.(f16|bf16).f32" "d:t0 a" 7 0 Sm 80
    "cvt.(rn|rz).relu?.satfinite?.(f16x2|bf16x2).f32" "d:t0 a a" 7 0 Sm 80
    "cvt.(rn|rz|rm|rp|rni|rzi|rmi|rpi)?.sat?.bf16.(u8|u16|u32|u64|s8|s16|s32|s64|f16|f64|bf16)" "d:t0 a:t~" 7 8 Sm 90
    "cvt.(rn|rz|rm|rp|rni|rzi|rmi|rpi)?.ftz?.sat?.(u8|u16|u32|u64|s8|s16|s32|s64|f16|f64).bf16" "d:t0~ a" 7 8 Sm 90
    "cvt.f32.bf16" "d:f32 a" 7 1 Sm 80
    "cvt.rna.satfinite?.tf32.f32" "d:b32 a" 7 0 Sm 80
    "cvt.(rn|rz).relu?.satfinite?.tf32.f32" "d:b32 a" 7 8 Sm 90
    "cvt.rn.satfinite.relu?.(e4m3x2|e5m2x2).f32" "d:b16 a a" 7 8 Sm 89
    "cvt.rn.satfinite.relu?.(e4m3x2|e5m2x2).f16x2" "d:b16 a" 7 8 Sm 89
    "cvt.rn.relu?.f16x2.(e4m3x2|e5m2x2)" "d:b32 a:b16" 7 8 Sm 89

    "cvt.pack.sat.(u16|s16).s32" "d:b32 a a" 6 5 Sm 72
    "cvt.pack.sat.(u8|s8).s32.b32" "d:b32 a:s32 a:s32 a:b32" 6 5 Sm 72

    // Memory
    "ld.(weak|volatile)?.(param|param::entry|param::func|global|shared|shared::cta|shared::cluster|local|const)?.(ca|cg|cs|lu|cv)?.(L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate)?.(L2::cache_hint)?.(L2::64B|L2::128B|L2::256B)?.(v2|v4)?.MEM" "D:t~ m a:b64?" 1 0 Sm 20
    "ld.(relaxed|acquire).SCOPE.(global|shared|shared::cta|shared::cluster)?.(L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate)?.(L2::cache_hint)?.(L2::64B|L2::128B|L2::256B)?.(v2|v4)?.MEM" "D:t~ m a:b64?" 6 0 Sm 70
    "ld.global.(ca|cg|cs)?.nc.(L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate)?.(L2::cache_hint)?.(L2::64B|L2::128B|L2::256B)?.(v2|v4)?.MEM" "D:t~ m a:b64?" 3 1 Sm 32
    "ld.mmio.relaxed.sys.global?.MEM" "d:t~ m" 8 2 Sm 70
    "ld.(weak|volatile|relaxed|acquire)?.SCOPE?.(param|global|shared|shared::cta|shared::cluster|local|const)?.(ca|cg|cs|lu|cv)?.nc?.(L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate)?.(L2::64B|L2::128B|L2::256B)?.b128" "d m" 8 3 Sm 70
    "ldu.global?.(v2|v4)?.MEM" "D:t~ m" 2 0 Sm 20
    "st.(weak|volatile)?.(param|param::func|global|shared|shared::cta|shared::cluster|local)?.(wb|cg|cs|wt)?.(L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate)?.(L2::cache_hint)?.(v2|v4)?.MEM" "m V:t~ a:b64?" 1 0 Sm 20
    "st.(relaxed|release).SCOPE.(global|shared|shared::cta|shared::cluster)?.(L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate)?.(L2::cache_hint)?.(v2|v4)?.MEM" "m V:t~ a:b64?" 6 0 Sm 70
    "st.mmio.relaxed.sys.global?.MEM" "m a:t~" 8 2 Sm 70
    "st.(weak|volatile|relaxed|release)?.SCOPE?.(global|shared|shared::cta|shared::cluster|local)?.(wb|cg|cs|wt)?.(L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate)?.b128" "m a" 8 3 Sm 70
    "st.async.weak?.(shared::cluster)?.mbarrier::complete_tx::bytes.(v2|v4)?.(b32|b64|u32|u64|s32|s64|f32|f64)" "m V m" 8 1 Sm 90
    "red.async.relaxed.cluster.(shared::cluster)?.mbarrier::complete_tx::bytes.(inc|dec|min|max|add|and|or|xor).(u32|s32|b32|u64)" "m a m" 8 1 Sm 90
    "prefetch.(global|local)?.(L1|L2)" "m" 2 0 Sm 20
    "prefetch.global.(L2::evict_last|L2::evict_normal)" "m" 7 4 Sm 80
    "prefetch.(param|const)?.tensormap" "m" 8 0 Sm 90
    "prefetchu.L1" "m" 2 0 Sm 20
    "applypriority.global?.(L2::evict_normal)" "m i" 7 4 Sm 80
    "discard.global?.L2" "m i" 7 4 Sm 80
    "createpolicy.fractional.(L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged).(L2::evict_first|L2::evict_unchanged)?.b64" "d a:f32?" 7 4 Sm 80
    "createpolicy.range.global?.(L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged).(L2::evict_first|L2::evict_unchanged)?.b64" "d m a:u32 a:u32" 7 4 Sm 80
    "createpolicy.cvt.L2.b64" "d a:b32" 7 4 Sm 80
    "alloca.(u32|u64)" "d a i?" 7 3 Sm 52
    "stacksave.(u32|u64)" "d" 7 3 Sm 52
    "stackrestore.(u32|u64)" "a" 7 3 Sm 52
    "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.(global|shared|shared::cta|shared::cluster)?.(and|or|xor|exch).(L2::cache_hint)?.(b32|b64)" "d m a a:b64?" 1 1 Sm 20
    "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.(global|shared|shared::cta|shared::cluster)?.cas.(L2::cache_hint)?.(b16|b32|b64)" "d m a a a:b64?" 1 1 Sm 20
    "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.(global|shared|shared::cta|shared::cluster)?.(add|inc|dec|min|max).(L2::cache_hint)?.(u32|s32|u64|s64|f32|f64)" "d m a a:b64?" 1 1 Sm 20
    "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.(global|shared|shared::cta|shared::cluster)?.add.noftz.(L2::cache_hint)?.(f16|f16x2|bf16|bf16x2)" "d m a a:b64?" 6 3 Sm 70
    "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.(global|shared|shared::cta|shared::cluster)?.exch.(L2::cache_hint)?.b128" "d m a a:b64?" 8 3 Sm 90
    "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.(global|shared|shared::cta|shared::cluster)?.cas.(L2::cache_hint)?.b128" "d m a a a:b64?" 8 3 Sm 90
    "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.global.(add|min|max).noftz?.(L2::cache_hint)?.(v2|v4|v8).(f32|f16|f16x2|bf16|bf16x2)" "D m V a:b64?" 8 1 Sm 90
    "red.(relaxed|release)?.SCOPE?.(global|shared|shared::cta|shared::cluster)?.(and|or|xor).(L2::cache_hint)?.(b32|b64)" "m a a:b64?" 1 2 Sm 20
    "red.(relaxed|release)?.SCOPE?.(global|shared|shared::cta|shared::cluster)?.(add|inc|dec|min|max).(L2::cache_hint)?.(u32|s32|u64|s64|f32|f64)" "m a a:b64?" 1 2 Sm 20
    "red.(relaxed|release)?.SCOPE?.(global|shared|shared::cta|shared::cluster)?.add.noftz.(L2::cache_hint)?.(f16|f16x2|bf16|bf16x2)" "m a a:b64?" 6 3 Sm 70
    "red.(relaxed|release)?.SCOPE?.global.(add|min|max).noftz?.(L2::cache_hint)?.(v2|v4|v8).(f32|f16|f16x2|bf16|bf16x2)" "m v a:b64?" 8 1 Sm 90

    // Warp
    "shfl.sync.(up|down|bfly|idx).b32" "d|q a a:u32 a:u32 a:u32" 6 0 Sm 30
    "vote.sync.(all|any|uni).pred" "q p a:u32" 6 0 Sm 30
    "vote.sync.ballot.b32" "d p a:u32" 6 0 Sm 30
    "match.any.sync.(b32|b64)" "d:u32 a a:u32" 6 0 Sm 70
    "match.all.sync.(b32|b64)" "d|q:u32 a a:u32" 6 0 Sm 70
    "redux.sync.(add|min|max).(u32|s32)" "d a a:u32" 7 0 Sm 80
    "redux.sync.(and|or|xor).b32" "d a a:u32" 7 0 Sm 80
    "activemask.b32" "d" 6 2 Sm 30
    "elect.sync" "d|q:u32 a:u32" 8 0 Sm 90

    // Barriers and fences
    "bar.cta?.sync" "a:u32 a:u32?" 1 0 Sm 20
    "bar.cta?.arrive" "a:u32 a:u32" 2 0 Sm 20
    "bar.cta?.red.popc.u32" "d a a? p" 2 0 Sm 20
    "bar.cta?.red.(and|or).pred" "q a:u32 a:u32? p" 2 0 Sm 20
    "bar.warp.sync" "a:u32" 6 0 Sm 30
    "barrier.cta?.sync.aligned?" "a:u32 a:u32?" 6 0 Sm 30
    "barrier.cta?.arrive.aligned?" "a:u32 a:u32" 6 0 Sm 30
    "barrier.cta?.red.popc.aligned?.u32" "d a a? p" 6 0 Sm 30
    "barrier.cta?.red.(and|or).aligned?.pred" "q a:u32 a:u32? p" 6 0 Sm 30
    "barrier.cluster.arrive.(release|relaxed)?.aligned?" "" 7 8 Sm 90
    "barrier.cluster.wait.acquire?.aligned?" "" 7 8 Sm 90
    "membar.(cta|gl|sys)" "" 1 4 Sm 20
    "fence.(sc|acq_rel).SCOPE" "" 6 0 Sm 70
    "fence.(acquire|release).SCOPE" "" 8 6 Sm 70
    "fence.(acquire|release).(sync_restrict::shared::cta|sync_restrict::shared::cluster).cluster" "" 8 6 Sm 90
    "fence.mbarrier_init.release.cluster" "" 8 0 Sm 90
    "fence.proxy.alias" "" 7 5 Sm 70
    "fence.proxy.async.(global|shared::cta|shared::cluster)?" "" 8 0 Sm 90
    "fence.proxy.async::generic.(acquire|release).(sync_restrict::shared::cta|sync_restrict::shared::cluster).cluster" "" 8 6 Sm 90
    "fence.proxy.tensormap::generic.release.SCOPE" "" 8 3 Sm 90
    "fence.proxy.tensormap::generic.acquire.SCOPE" "m i" 8 3 Sm 90
    "nanosleep.u32" "a" 6 3 Sm 70
    "mbarrier.init.SHARED?.b64" "m a:u32" 7 0 Sm 80
    "mbarrier.inval.SHARED?.b64" "m" 7 0 Sm 80
    "mbarrier.expect_tx.relaxed?.(cta|cluster)?.(shared|shared::cta|shared::cluster)?.b64" "m a:u32" 8 0 Sm 90
    "mbarrier.complete_tx.relaxed?.(cta|cluster)?.(shared|shared::cta|shared::cluster)?.b64" "m a:u32" 8 0 Sm 90
    "mbarrier.arrive.(release|relaxed)?.(cta|cluster)?.(shared|shared::cta|shared::cluster)?.b64" "d m a:u32?" 7 0 Sm 80
    "mbarrier.arrive.expect_tx.(release|relaxed)?.(cta|cluster)?.(shared|shared::cta|shared::cluster)?.b64" "d m a:u32" 8 0 Sm 90
    "mbarrier.arrive.noComplete.release?.cta?.SHARED?.b64" "d m a:u32" 7 0 Sm 80
    "mbarrier.arrive_drop.(release|relaxed)?.(cta|cluster)?.(shared|shared::cta|shared::cluster)?.b64" "d m a:u32?" 7 0 Sm 80
    "mbarrier.test_wait.(acquire|relaxed)?.(cta|cluster)?.SHARED?.b64" "q m a:b64" 7 0 Sm 80
    "mbarrier.test_wait.parity.(acquire|relaxed)?.(cta|cluster)?.SHARED?.b64" "q m a:u32" 7 1 Sm 80
    "mbarrier.try_wait.(acquire|relaxed)?.(cta|cluster)?.SHARED?.b64" "q m a:b64 a:u32?" 7 8 Sm 90
    "mbarrier.try_wait.parity.(acquire|relaxed)?.(cta|cluster)?.SHARED?.b64" "q m a:u32 a:u32?" 7 8 Sm 90
    "mbarrier.pending_count.b64" "d:u32 a" 7 0 Sm 80

    // Asynchronous copies
    "cp.async.ca.SHARED.global.(L2::cache_hint)?.(L2::64B|L2::128B|L2::256B)?" "m m i a:-? a:b64?" 7 0 Sm 80
    "cp.async.cg.SHARED.global.(L2::cache_hint)?.(L2::64B|L2::128B|L2::256B)?" "m m i a:-? a:b64?" 7 0 Sm 80
    "cp.async.commit_group" "" 7 0 Sm 80
    "cp.async.wait_group" "i" 7 0 Sm 80
    "cp.async.wait_all" "" 7 0 Sm 80
    "cp.async.mbarrier.arrive.noinc?.SHARED?.b64" "m" 7 0 Sm 80
    "cp.async.bulk.(shared::cluster|shared::cta).global.mbarrier::complete_tx::bytes.(multicast::cluster)?.(L2::cache_hint)?" "m m a:u32 m a:u16? a:b64?" 8 0 Sm 90
    "cp.async.bulk.(shared::cluster).shared::cta.mbarrier::complete_tx::bytes" "m m a:u32 m" 8 0 Sm 90
    "cp.async.bulk.global.shared::cta.bulk_group.(L2::cache_hint)?" "m m a:u32 a:b64?" 8 0 Sm 90
    "cp.async.bulk.prefetch.L2.global.(L2::cache_hint)?" "m a:u32 a:b64?" 8 0 Sm 90
    "cp.async.bulk.tensor.COORD.(shared::cluster|shared::cta).global.tile?.mbarrier::complete_tx::bytes.(multicast::cluster)?.(L2::cache_hint)?" "m T m a:u16? a:b64?" 8 0 Sm 90
    "cp.async.bulk.tensor.(3d|4d|5d).(shared::cluster|shared::cta).global.im2col.mbarrier::complete_tx::bytes.(multicast::cluster)?.(L2::cache_hint)?" "m T m v:u16 a:u16? a:b64?" 8 0 Sm 90
    "cp.async.bulk.tensor.COORD.global.shared::cta.(tile|im2col_no_offs)?.bulk_group.(L2::cache_hint)?" "T m a:b64?" 8 0 Sm 90
    "cp.async.bulk.prefetch.tensor.COORD.L2.global.tile?.(L2::cache_hint)?" "T a:b64?" 8 0 Sm 90
    "cp.async.bulk.commit_group" "" 8 0 Sm 90
    "cp.async.bulk.wait_group.read?" "i" 8 0 Sm 90
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.(L2::cache_hint)?.(add|min|max|inc|dec|and|or|xor).noftz?.(f16|bf16|f32|f64|u32|s32|u64|s64|b32|b64)" "m m a:u32 a:b64?" 8 0 Sm 90
    "cp.reduce.async.bulk.(shared::cluster).shared::cta.mbarrier::complete_tx::bytes.(add|min|max|inc|dec|and|or|xor).(u32|s32|u64|b32)" "m m a:u32 m" 8 0 Sm 90
    "cp.reduce.async.bulk.tensor.COORD.global.shared::cta.(add|min|max|inc|dec|and|or|xor).(tile|im2col_no_offs)?.bulk_group.(L2::cache_hint)?" "T m a:b64?" 8 0 Sm 90
    "tensormap.replace.tile.global_address.(global|shared::cta)?.b1024.b64" "m a:b64" 8 3 Exactly 90
    "tensormap.replace.tile.(rank|elemtype|interleave_layout|swizzle_mode|fill_mode).(global|shared::cta)?.b1024.b32" "m a:b32" 8 3 Exactly 90
    "tensormap.replace.tile.(box_dim|global_dim|element_stride).(global|shared::cta)?.b1024.b32" "m i a:b32" 8 3 Exactly 90
    "tensormap.replace.tile.global_stride.(global|shared::cta)?.b1024.b64" "m i a:b64" 8 3 Exactly 90
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.SCOPE.sync.aligned" "m m i" 8 3 Sm 90

    // Matrices
    "ldmatrix.sync.aligned.m8n8.(x1|x2|x4).trans?.SHARED?.b16" "v:b32 m" 6 5 Sm 75
    "stmatrix.sync.aligned.m8n8.(x1|x2|x4).trans?.SHARED?.b16" "m v:b32" 7 8 Sm 90
    "movmatrix.sync.aligned.m8n8.trans.b16" "d:b32 a:b32" 7 8 Sm 75
    "mma.sync.aligned.SHAPE.row.col.(f16|f32).f16.f16.(f16|f32)" "v v:b32 v:b32 v" 6 5 Sm 70
    "mma.sync.aligned.SHAPE.row.col.f32.(bf16|tf32).(bf16|tf32).f32" "v:f32 v:b32 v:b32 v:f32" 7 0 Sm 80
    "mma.sync.aligned.SHAPE.row.col.(f32|f16).(e4m3|e5m2).(e4m3|e5m2).(f32|f16)" "v v:b32 v:b32 v" 8 4 Sm 89
    "mma.sync.aligned.SHAPE.row.col.f64.f64.f64.f64" "v:f64 v:f64 v:f64 v:f64" 7 0 Sm 80
    "mma.sync.aligned.SHAPE.row.col.satfinite?.s32.(u8|s8|u4|s4).(u8|s8|u4|s4).s32" "v:b32 v:b32 v:b32 v:b32" 6 5 Sm 75
    "mma.sync.aligned.SHAPE.row.col.s32.b1.b1.s32.(and|xor).popc" "v:b32 v:b32 v:b32 v:b32" 7 0 Sm 75
    "mma.(sp|sp::ordered_metadata).sync.aligned.SHAPE.row.col.(f16|f32).(f16|bf16|tf32).(f16|bf16|tf32).(f16|f32)" "v v:b32 v:b32 v a:b32 i" 7 1 Sm 80
    "wmma.load.(a|b|c).sync.aligned.(row|col).SHAPE.(global|shared|shared::cta)?.(f16|bf16|tf32|f32|f64|s8|u8|s32)" "v m a:u32?" 6 0 Sm 70
    "wmma.store.d.sync.aligned.(row|col).SHAPE.(global|shared|shared::cta)?.(f16|f32|f64|s32)" "m v a:u32?" 6 0 Sm 70
    "wmma.mma.sync.aligned.(row|col).(row|col).SHAPE.(f16|f32).(f16|f32)" "v v:b32 v:b32 v" 6 0 Sm 70
    "wmma.mma.sync.aligned.(row|col).(row|col).SHAPE.f32.(bf16|tf32).(bf16|tf32).f32" "v:f32 v:b32 v:b32 v:f32" 7 0 Sm 80
    "wmma.mma.sync.aligned.(row|col).(row|col).SHAPE.f64.f64.f64.f64.rn?" "v:f64 v:f64 v:f64 v:f64" 7 0 Sm 80
    "wmma.mma.sync.aligned.(row|col).(row|col).SHAPE.s32.(u8|s8).(u8|s8).s32.satfinite?" "v:b32 v:b32 v:b32 v:b32" 6 3 Sm 72
    "wgmma.fence.sync.aligned" "" 8 0 Exactly 90
    "wgmma.commit_group.sync.aligned" "" 8 0 Exactly 90
    "wgmma.wait_group.sync.aligned" "i" 8 0 Exactly 90
    "wgmma.mma_async.sync.aligned.SHAPE.(f16|f32).f16.f16" "v r:b64 r:b64 b i i i i" 8 0 Exactly 90
    "wgmma.mma_async.sync.aligned.SHAPE.(f16|f32).f16.f16" "v v:b32 r:b64 b i i i" 8 0 Exactly 90
    "wgmma.mma_async.sync.aligned.SHAPE.f32.bf16.bf16" "v:f32 r:b64 r:b64 b i i i i" 8 0 Exactly 90
    "wgmma.mma_async.sync.aligned.SHAPE.f32.bf16.bf16" "v:f32 v:b32 r:b64 b i i i" 8 0 Exactly 90
    "wgmma.mma_async.sync.aligned.SHAPE.f32.tf32.tf32" "v:f32 r:b64 r:b64 b i i" 8 0 Exactly 90
    "wgmma.mma_async.sync.aligned.SHAPE.f32.tf32.tf32" "v:f32 v:b32 r:b64 b i i" 8 0 Exactly 90
    "wgmma.mma_async.sync.aligned.SHAPE.(f16|f32).(e4m3|e5m2).(e4m3|e5m2)" "v r:b64 r:b64 b i i" 8 0 Exactly 90
    "wgmma.mma_async.sync.aligned.SHAPE.(f16|f32).(e4m3|e5m2).(e4m3|e5m2)" "v v:b32 r:b64 b i i" 8 0 Exactly 90
    "wgmma.mma_async.sync.aligned.SHAPE.satfinite?.s32.(s8|u8).(s8|u8)" "v:b32 r:b64 r:b64 b" 8 0 Exactly 90
    "wgmma.mma_async.sync.aligned.SHAPE.satfinite?.s32.(s8|u8).(s8|u8)" "v:b32 v:b32 r:b64 b" 8 0 Exactly 90
    "wgmma.mma_async.sync.aligned.SHAPE.s32.b1.b1.and.popc" "v:b32 r:b64 r:b64 b" 8 0 Exactly 90

    // Control
    "bra.uni?" "l" 1 0 Sm 20
    "brx.idx.uni?" "a:u32 l" 6 0 Sm 30
    "call.uni?" "L l L" 1 0 Sm 20
    "call.uni?" "l L?" 1 0 Sm 20
    "call.uni?" "L r:b64 L l" 2 1 Sm 20
    "call.uni?" "r:b64 L? l" 2 1 Sm 20
    "ret.uni?" "" 1 0 Sm 20
    "exit" "" 1 0 Sm 20
    "trap" "" 1 0 Sm 20
    "brkpt" "" 1 0 Sm 20
    "pmevent.mask?" "i" 1 4 Sm 20
    "setmaxnreg.(inc|dec).sync.aligned.u32" "i" 8 0 Exactly 90
    "griddepcontrol.(launch_dependents|wait)" "" 7 8 Sm 90
}

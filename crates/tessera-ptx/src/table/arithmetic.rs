//! Integers, comparison, selection, logic and shifts.

#[rustfmt::skip]
super::rows! {
    "Integer arithmetic" {
        "add.(INT|u16x2|s16x2)" "d a a" 1 0 Sm 20
        "add.sat.s32" "d a a" 1 0 Sm 20
        "sub.INT" "d a a" 1 0 Sm 20
        "sub.sat.s32" "d a a" 1 0 Sm 20
        "mul.(lo|hi)/.INT" "d a a" 1 0 Sm 20
        "mul.wide/.(u16|s16|u32|s32)" "d:w a a" 1 0 Sm 20
        "mad.(lo|hi)/.INT" "d a a a" 1 0 Sm 20
        "mad.wide/.(u16|s16|u32|s32)" "d:w a a a:w" 1 0 Sm 20
        "mad.hi/.sat.s32" "d a a a" 1 0 Sm 20
        "mul24.(lo|hi)/.(u32|s32)" "d a a" 1 0 Sm 20
        "mad24.(lo|hi)/.(u32|s32)" "d a a a" 1 0 Sm 20
        "mad24.hi/.sat.s32" "d a a a" 1 0 Sm 20
        "sad.INT" "d a a a" 1 0 Sm 20
        "div.INT" "d a a" 1 0 Sm 20
        "rem.INT" "d a a" 1 0 Sm 20
        "abs.(s16|s32|s64)" "d a" 1 0 Sm 20
        "neg.(s16|s32|s64)" "d a" 1 0 Sm 20
        "min.INT" "d a a" 1 0 Sm 20
        "min.u16x2" "d a a" 8 0 Sm 90
        "min.relu?.s16x2" "d a a" 8 0 Sm 90
        "min.relu.s32" "d a a" 8 0 Sm 90
        "max.INT" "d a a" 1 0 Sm 20
        "max.u16x2" "d a a" 8 0 Sm 90
        "max.relu?.s16x2" "d a a" 8 0 Sm 90
        "max.relu.s32" "d a a" 8 0 Sm 90
        "popc.(b32|b64)" "d:u32 a" 2 0 Sm 20
        "clz.(b32|b64)" "d:u32 a" 2 0 Sm 20
        "bfind.shiftamt?.(u32|u64|s32|s64)" "d:u32 a" 2 0 Sm 20
        "fns.b32" "d a:b32 a:b32 a:s32" 6 0 Sm 30
        "brev.(b32|b64)" "d a" 2 0 Sm 20
        "bfe.(u32|u64|s32|s64)" "d a a:u32 a:u32" 2 0 Sm 20
        "bfi.(b32|b64)" "d a a a:u32 a:u32" 2 0 Sm 20
        "szext.(clamp|wrap).(u32|s32)" "d a a:u32" 7 6 Sm 70
        "bmsk.(clamp|wrap).b32" "d a:u32 a:u32" 7 6 Sm 70
        "dp4a.(u32|s32).(u32|s32)" "d a:b32 a:b32 a" 5 0 Sm 61
        "dp2a.(lo|hi)/.(u32|s32).(u32|s32)" "d a:b32 a:b32 a" 5 0 Sm 61
    }
    "Extended-precision integer arithmetic" {
        "add.cc.(u32|s32|u64|s64)" "d a a" 1 2 Sm 20
        "addc.cc?.(u32|s32|u64|s64)" "d a a" 1 2 Sm 20
        "sub.cc.(u32|s32|u64|s64)" "d a a" 1 2 Sm 20
        "subc.cc?.(u32|s32|u64|s64)" "d a a" 1 2 Sm 20
        "mad.(lo|hi)/.cc.(u32|s32|u64|s64)" "d a a a" 3 0 Sm 20
        "madc.(lo|hi)/.cc?.(u32|s32|u64|s64)" "d a a a" 3 0 Sm 20
    }
    "Comparison and selection" {
        "set.CMP.BOOL?.ftz?.(u32|s32|f32).f32" "d:t0 a a p@BOOL" 1 0 Sm 20
        "set.(eq|ne).BOOL?.(u32|s32|f32).BITS" "d:t0 a a p@BOOL" 1 0 Sm 20
        "set.(eq|ne|lt|le|gt|ge|lo|ls|hi|hs).BOOL?.(u32|s32|f32).(u16|u32|u64)" "d:t0 a a p@BOOL" 1 0 Sm 20
        "set.(eq|ne|lt|le|gt|ge).BOOL?.(u32|s32|f32).(s16|s32|s64)" "d:t0 a a p@BOOL" 1 0 Sm 20
        "set.CMP.BOOL?.(u32|s32|f32).f64" "d:t0 a a p@BOOL" 1 0 Sm 20
        "setp.CMP.BOOL?.ftz?.f32" "q|q a a p@BOOL" 1 0 Sm 20
        "setp.CMP.BOOL?.f64" "q|q a a p@BOOL" 1 0 Sm 20
        "setp.(eq|ne).BOOL?.BITS" "q|q a a p@BOOL" 1 0 Sm 20
        "setp.(eq|ne|lt|le|gt|ge|lo|ls|hi|hs).BOOL?.(u16|u32|u64)" "q|q a a p@BOOL" 1 0 Sm 20
        "setp.(eq|ne|lt|le|gt|ge).BOOL?.(s16|s32|s64)" "q|q a a p@BOOL" 1 0 Sm 20
        "selp.(BITS|INT|f32|f64)" "d a a p" 1 0 Sm 20
        "slct.(BITS|INT|f32|f64).s32" "d:t0 a:t0 a:t0 a:t1" 1 0 Sm 20
        "slct.ftz?.(BITS|INT|f32|f64).f32" "d:t0 a:t0 a:t0 a:t1" 1 0 Sm 20
    }
    "Half precision comparison" {
        "set.CMP.BOOL?.ftz?.f16.(f16|f32)" "d:t0 a a p@BOOL" 4 2 Sm 53
        "set.(eq|ne).BOOL?.f16.BITS" "d:t0 a a p@BOOL" 4 2 Sm 53
        "set.(eq|ne|lt|le|gt|ge|lo|ls|hi|hs).BOOL?.f16.(u16|u32|u64)" "d:t0 a a p@BOOL" 4 2 Sm 53
        "set.(eq|ne|lt|le|gt|ge).BOOL?.f16.(s16|s32|s64)" "d:t0 a a p@BOOL" 4 2 Sm 53
        "set.CMP.BOOL?.f16.f64" "d:t0 a a p@BOOL" 4 2 Sm 53
        "set.CMP.BOOL?.bf16.(bf16|f32|f64)" "d:t0 a a p@BOOL" 7 8 Sm 90
        "set.(eq|ne).BOOL?.bf16.BITS" "d:t0 a a p@BOOL" 7 8 Sm 90
        "set.(eq|ne|lt|le|gt|ge|lo|ls|hi|hs).BOOL?.bf16.(u16|u32|u64)" "d:t0 a a p@BOOL" 7 8 Sm 90
        "set.(eq|ne|lt|le|gt|ge).BOOL?.bf16.(s16|s32|s64)" "d:t0 a a p@BOOL" 7 8 Sm 90
        "set.CMP.BOOL?.ftz?.(u16|s16|u32|s32).f16" "d:t0 a a p@BOOL" 6 5 Sm 53
        "set.CMP.BOOL?.(u16|s16|u32|s32).bf16" "d:t0 a a p@BOOL" 7 8 Sm 90
        "set.CMP.BOOL?.ftz?.(f16x2|u32|s32).f16x2" "d:t0 a a p@BOOL" 4 2 Sm 53
        "set.CMP.BOOL?.(bf16x2|u32|s32).bf16x2" "d:t0 a a p@BOOL" 7 8 Sm 90
        "setp.CMP.BOOL?.ftz?.f16" "q a a p@BOOL" 4 2 Sm 53
        "setp.CMP.BOOL?.ftz?.f16x2" "q|q a a p@BOOL" 4 2 Sm 53
        "setp.CMP.BOOL?.bf16" "q a a p@BOOL" 7 8 Sm 90
        "setp.CMP.BOOL?.bf16x2" "q|q a a p@BOOL" 7 8 Sm 90
    }
    "Logic and shift" {
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
        "lop3.(or|and).b32" "d+q a a a i p" 8 2 Sm 70
        "shf.(l|r)/.(clamp|wrap).b32" "d a a a:u32" 3 1 Sm 32
        "shl.BITS" "d a a:u32" 1 0 Sm 20
        "shr.(BITS|INT)" "d a a:u32" 1 0 Sm 20
    }
}

//! Matrix instructions of warps and warpgroups.

#[rustfmt::skip]
super::rows! {
    "Matrix fragments (wmma)" {
        "wmma.load.(a|b)/.sync.aligned.(row|col).(m16n16k16|m8n32k16|m32n8k16).(global|CTA)?.(f16|s8|u8)" "vF:b32 m a:u32?" 6 0 Sm 70
        "wmma.load.(a|b)/.sync.aligned.(row|col).(m16n16k16|m8n32k16|m32n8k16).(global|CTA)?.bf16" "vF:b32 m a:u32?" 7 0 Sm 80
        "wmma.load.(a|b)/.sync.aligned.(row|col).m16n16k8.(global|CTA)?.tf32" "vF:b32 m a:u32?" 7 0 Sm 80
        "wmma.load.(a|b)/.sync.aligned.(row|col).m8n8k4.(global|CTA)?.f64" "vF:f64 m a:u32?" 7 0 Sm 80
        "wmma.load.a/.sync.aligned.row.m8n8k32.(global|CTA)?.(s4|u4)" "vF:b32 m a:u32?" 6 3 Sm 75
        "wmma.load.b/.sync.aligned.col.m8n8k32.(global|CTA)?.(s4|u4)" "vF:b32 m a:u32?" 6 3 Sm 75
        "wmma.load.a/.sync.aligned.row.m8n8k128.(global|CTA)?.b1" "vF:b32 m a:u32?" 6 3 Sm 75
        "wmma.load.b/.sync.aligned.col.m8n8k128.(global|CTA)?.b1" "vF:b32 m a:u32?" 6 3 Sm 75
        "wmma.load.c/.sync.aligned.(row|col).(m16n16k16|m8n32k16|m32n8k16).(global|CTA)?.f16" "vF:b32 m a:u32?" 6 0 Sm 70
        "wmma.load.c/.sync.aligned.(row|col).(m16n16k16|m8n32k16|m32n8k16).(global|CTA)?.(f32|s32)" "vF:t m a:u32?" 6 0 Sm 70
        "wmma.load.c/.sync.aligned.(row|col).m16n16k8.(global|CTA)?.f32" "vF:t m a:u32?" 7 0 Sm 80
        "wmma.load.c/.sync.aligned.(row|col).m8n8k4.(global|CTA)?.f64" "vF:t m a:u32?" 7 0 Sm 80
        "wmma.load.c/.sync.aligned.(row|col).(m8n8k32|m8n8k128).(global|CTA)?.s32" "vF:t m a:u32?" 6 3 Sm 75
        "wmma.store.d/.sync.aligned.(row|col).(m16n16k16|m8n32k16|m32n8k16).(global|CTA)?.f16" "m vF:b32 a:u32?" 6 0 Sm 70
        "wmma.store.d/.sync.aligned.(row|col).(m16n16k16|m8n32k16|m32n8k16).(global|CTA)?.(f32|s32)" "m vF:t a:u32?" 6 0 Sm 70
        "wmma.store.d/.sync.aligned.(row|col).m16n16k8.(global|CTA)?.f32" "m vF:t a:u32?" 7 0 Sm 80
        "wmma.store.d/.sync.aligned.(row|col).m8n8k4.(global|CTA)?.f64" "m vF:t a:u32?" 7 0 Sm 80
        "wmma.store.d/.sync.aligned.(row|col).(m8n8k32|m8n8k128).(global|CTA)?.s32" "m vF:t a:u32?" 6 3 Sm 75
        "wmma.mma/.sync.aligned.(row|col).(row|col).(m16n16k16|m8n32k16|m32n8k16).f16.f16" "vD:b32 vA:b32 vB:b32 vC:b32" 6 0 Sm 70
        "wmma.mma/.sync.aligned.(row|col).(row|col).(m16n16k16|m8n32k16|m32n8k16).f16.f32" "vD:b32 vA:b32 vB:b32 vC:f32" 6 0 Sm 70
        "wmma.mma/.sync.aligned.(row|col).(row|col).(m16n16k16|m8n32k16|m32n8k16).f32.f16" "vD:f32 vA:b32 vB:b32 vC:b32" 6 0 Sm 70
        "wmma.mma/.sync.aligned.(row|col).(row|col).(m16n16k16|m8n32k16|m32n8k16).f32.f32" "vD:f32 vA:b32 vB:b32 vC:f32" 6 0 Sm 70
        "wmma.mma/.sync.aligned.(row|col).(row|col).(m16n16k16|m8n32k16|m32n8k16).s32.s8.s8.s32.satfinite?" "vD:b32 vA:b32 vB:b32 vC:b32" 6 3 Sm 72
        "wmma.mma/.sync.aligned.(row|col).(row|col).(m16n16k16|m8n32k16|m32n8k16).s32.u8.u8.s32.satfinite?" "vD:b32 vA:b32 vB:b32 vC:b32" 6 3 Sm 72
        "wmma.mma/.sync.aligned.(row|col).(row|col).(m16n16k16|m8n32k16|m32n8k16).f32.bf16.bf16.f32" "vD:f32 vA:b32 vB:b32 vC:f32" 7 0 Sm 80
        "wmma.mma/.sync.aligned.(row|col).(row|col).m16n16k8.f32.tf32.tf32.f32" "vD:f32 vA:b32 vB:b32 vC:f32" 7 0 Sm 80
        "wmma.mma/.sync.aligned.(row|col).(row|col).m8n8k4.RND?.f64.f64.f64.f64" "vD:f64 vA:f64 vB:f64 vC:f64" 7 0 Sm 80
        "wmma.mma/.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32.satfinite?" "vD:b32 vA:b32 vB:b32 vC:b32" 6 3 Sm 75
        "wmma.mma/.sync.aligned.row.col.m8n8k32.s32.u4.u4.s32.satfinite?" "vD:b32 vA:b32 vB:b32 vC:b32" 6 3 Sm 75
        "wmma.mma/.(xor|and).popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32" "vD:b32 vA:b32 vB:b32 vC:b32" 6 3 Sm 75
    }
    "Matrix products of a warp" {
        "mma.sync.aligned.m8n8k4.(row|col).(row|col).(f16|f32).f16.f16.f16" "vD vA:b32 vB:b32 vC" 6 4 Sm 70
        "mma.sync.aligned.m8n8k4.(row|col).(row|col).f32.f16.f16.f32" "vD vA:b32 vB:b32 vC" 6 4 Sm 70
        "mma.sync.aligned.(m16n8k8|m16n8k16).row.col.f16.f16.f16.f16" "vD vA:b32 vB:b32 vC" 6 5 Sm 75
        "mma.sync.aligned.(m16n8k8|m16n8k16).row.col.f32.f16.f16.f32" "vD vA:b32 vB:b32 vC" 6 5 Sm 75
        "mma.sync.aligned.(m16n8k8|m16n8k16).row.col.f32.bf16.bf16.f32" "vD:f32 vA:b32 vB:b32 vC:f32" 7 0 Sm 80
        "mma.sync.aligned.(m16n8k4|m16n8k8).row.col.f32.tf32.tf32.f32" "vD:f32 vA:b32 vB:b32 vC:f32" 7 0 Sm 80
        "mma.sync.aligned.m16n8k32.row.col.f32.(e4m3|e5m2).(e4m3|e5m2).f32" "vD vA:b32 vB:b32 vC" 8 4 Sm 89
        "mma.sync.aligned.m16n8k32.row.col.f16.(e4m3|e5m2).(e4m3|e5m2).f16" "vD vA:b32 vB:b32 vC" 8 7 Sm 89
        "mma.sync.aligned.m16n8k16.row.col.f32.(e4m3|e5m2).(e4m3|e5m2).f32" "vD vA:b32 vB:b32 vC" 8 7 Sm 89
        "mma.sync.aligned.m16n8k16.row.col.f16.(e4m3|e5m2).(e4m3|e5m2).f16" "vD vA:b32 vB:b32 vC" 8 7 Sm 89
        "mma.sync.aligned.m8n8k4.row.col.RND?.f64.f64.f64.f64" "vD:f64 vA:f64 vB:f64 vC:f64" 7 0 Sm 80
        "mma.sync.aligned.(m16n8k4|m16n8k8|m16n8k16).row.col.RND?.f64.f64.f64.f64" "vD:f64 vA:f64 vB:f64 vC:f64" 7 8 Sm 90
        "mma.sync.aligned.(m8n8k16|m16n8k16|m16n8k32).row.col.satfinite?.s32.(u8|s8).(u8|s8).s32" "vD:b32 vA:b32 vB:b32 vC:b32" 6 5 Sm 75
        "mma.sync.aligned.(m8n8k32|m16n8k32|m16n8k64).row.col.satfinite?.s32.(u4|s4).(u4|s4).s32" "vD:b32 vA:b32 vB:b32 vC:b32" 6 5 Sm 75
        "mma.sync.aligned.(m8n8k128|m16n8k128|m16n8k256).row.col.s32.b1.b1.s32.(xor|and).popc" "vD:b32 vA:b32 vB:b32 vC:b32" 7 0 Sm 75
    }
    "Sparse matrix products of a warp" {
        "mma.sp.sync.aligned.(m16n8k16|m16n8k32).row.col.f16.f16.f16.f16" "vD vA:b32 vB:b32 vC a:b32 i" 7 1 Sm 80
        "mma.sp.sync.aligned.(m16n8k16|m16n8k32).row.col.f32.f16.f16.f32" "vD vA:b32 vB:b32 vC a:b32 i" 7 1 Sm 80
        "mma.sp.sync.aligned.(m16n8k16|m16n8k32).row.col.f32.bf16.bf16.f32" "vD vA:b32 vB:b32 vC a:b32 i" 7 1 Sm 80
        "mma.sp.sync.aligned.(m16n8k8|m16n8k16).row.col.f32.tf32.tf32.f32" "vD vA:b32 vB:b32 vC a:b32 i" 7 1 Sm 80
        "mma.sp.sync.aligned.m16n8k64.row.col.f32.(e4m3|e5m2).(e4m3|e5m2).f32" "vD vA:b32 vB:b32 vC a:b32 i" 8 4 Sm 89
        "mma.sp.sync.aligned.(m16n8k32|m16n8k64).row.col.satfinite?.s32.(u8|s8).(u8|s8).s32" "vD vA:b32 vB:b32 vC a:b32 i" 7 1 Sm 80
        "mma.sp.sync.aligned.(m16n8k64|m16n8k128).row.col.satfinite?.s32.(u4|s4).(u4|s4).s32" "vD vA:b32 vB:b32 vC a:b32 i" 7 1 Sm 80
        "mma.sp::ordered_metadata.sync.aligned.(m16n8k16|m16n8k32).row.col.f16.f16.f16.f16" "vD vA:b32 vB:b32 vC a:b32 i" 8 5 Sm 80
        "mma.sp::ordered_metadata.sync.aligned.(m16n8k16|m16n8k32).row.col.f32.f16.f16.f32" "vD vA:b32 vB:b32 vC a:b32 i" 8 5 Sm 80
        "mma.sp::ordered_metadata.sync.aligned.(m16n8k16|m16n8k32).row.col.f32.bf16.bf16.f32" "vD vA:b32 vB:b32 vC a:b32 i" 8 5 Sm 80
        "mma.sp::ordered_metadata.sync.aligned.(m16n8k8|m16n8k16).row.col.f32.tf32.tf32.f32" "vD vA:b32 vB:b32 vC a:b32 i" 8 5 Sm 80
        "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.(e4m3|e5m2).(e4m3|e5m2).f32" "vD vA:b32 vB:b32 vC a:b32 i" 8 5 Sm 89
        "mma.sp::ordered_metadata.sync.aligned.(m16n8k32|m16n8k64).row.col.satfinite?.s32.(u8|s8).(u8|s8).s32" "vD vA:b32 vB:b32 vC a:b32 i" 8 5 Sm 80
        "mma.sp::ordered_metadata.sync.aligned.(m16n8k64|m16n8k128).row.col.satfinite?.s32.(u4|s4).(u4|s4).s32" "vD vA:b32 vB:b32 vC a:b32 i" 8 5 Sm 80
    }
    "Moving matrices" {
        "ldmatrix.sync.aligned.m8n8.(x1|x2|x4).trans?.CTA?.b16" "vN:b32 m" 6 5 Sm 75
        "stmatrix.sync.aligned.m8n8.(x1|x2|x4).trans?.CTA?.b16" "m vN:b32" 7 8 Sm 90
        "movmatrix.sync.aligned.m8n8.trans.b16" "d:b32 a:b32" 7 8 Sm 75
    }
    "Matrix products of a warpgroup (wgmma)" {
        "wgmma.fence/.sync.aligned" "" 8 0 Exactly 90
        "wgmma.commit_group/.sync.aligned" "" 8 0 Exactly 90
        "wgmma.wait_group/.sync.aligned" "i" 8 0 Exactly 90
        "wgmma.mma_async/.sync.aligned.M64NK16.(f16|f32).f16.f16" "vD r:b64 r:b64 b i i i i" 8 0 Exactly 90
        "wgmma.mma_async/.sync.aligned.M64NK16.(f16|f32).f16.f16" "vD vA:b32 r:b64 b i i i" 8 0 Exactly 90
        "wgmma.mma_async/.sync.aligned.M64NK16.f32.bf16.bf16" "vD r:b64 r:b64 b i i i i" 8 0 Exactly 90
        "wgmma.mma_async/.sync.aligned.M64NK16.f32.bf16.bf16" "vD vA:b32 r:b64 b i i i" 8 0 Exactly 90
        "wgmma.mma_async/.sync.aligned.M64NK8.f32.tf32.tf32" "vD r:b64 r:b64 b i i" 8 0 Exactly 90
        "wgmma.mma_async/.sync.aligned.M64NK8.f32.tf32.tf32" "vD vA:b32 r:b64 b i i" 8 0 Exactly 90
        "wgmma.mma_async/.sync.aligned.M64NK32.(f16|f32).(e4m3|e5m2).(e4m3|e5m2)" "vD r:b64 r:b64 b i i" 8 0 Exactly 90
        "wgmma.mma_async/.sync.aligned.M64NK32.(f16|f32).(e4m3|e5m2).(e4m3|e5m2)" "vD vA:b32 r:b64 b i i" 8 0 Exactly 90
        "wgmma.mma_async/.sync.aligned.M64IK32.satfinite?.s32.(s8|u8).(s8|u8)" "vD r:b64 r:b64 b" 8 0 Exactly 90
        "wgmma.mma_async/.sync.aligned.M64IK32.satfinite?.s32.(s8|u8).(s8|u8)" "vD vA:b32 r:b64 b" 8 0 Exactly 90
        "wgmma.mma_async/.sync.aligned.M64IK256.s32.b1.b1.and.popc" "vD r:b64 r:b64 b" 8 0 Exactly 90
        "wgmma.mma_async/.sync.aligned.M64IK256.s32.b1.b1.and.popc" "vD vA:b32 r:b64 b" 8 0 Exactly 90
        "wgmma.mma_async.sp/.sync.aligned.M64NK32.(f16|f32).f16.f16" "vD r:b64 r:b64 a:b32 i b i i i i" 8 2 Exactly 90
        "wgmma.mma_async.sp/.sync.aligned.M64NK32.(f16|f32).f16.f16" "vD vA:b32 r:b64 a:b32 i b i i i" 8 2 Exactly 90
        "wgmma.mma_async.sp/.sync.aligned.M64NK32.f32.bf16.bf16" "vD r:b64 r:b64 a:b32 i b i i i i" 8 2 Exactly 90
        "wgmma.mma_async.sp/.sync.aligned.M64NK32.f32.bf16.bf16" "vD vA:b32 r:b64 a:b32 i b i i i" 8 2 Exactly 90
        "wgmma.mma_async.sp/.sync.aligned.M64NK16.f32.tf32.tf32" "vD r:b64 r:b64 a:b32 i b i i" 8 2 Exactly 90
        "wgmma.mma_async.sp/.sync.aligned.M64NK16.f32.tf32.tf32" "vD vA:b32 r:b64 a:b32 i b i i" 8 2 Exactly 90
        "wgmma.mma_async.sp/.sync.aligned.M64NK64.(f16|f32).(e4m3|e5m2).(e4m3|e5m2)" "vD r:b64 r:b64 a:b32 i b i i" 8 2 Exactly 90
        "wgmma.mma_async.sp/.sync.aligned.M64NK64.(f16|f32).(e4m3|e5m2).(e4m3|e5m2)" "vD vA:b32 r:b64 a:b32 i b i i" 8 2 Exactly 90
        "wgmma.mma_async.sp/.sync.aligned.M64IK64.satfinite?.s32.(s8|u8).(s8|u8)" "vD r:b64 r:b64 a:b32 i b" 8 2 Exactly 90
        "wgmma.mma_async.sp/.sync.aligned.M64IK64.satfinite?.s32.(s8|u8).(s8|u8)" "vD vA:b32 r:b64 a:b32 i b" 8 2 Exactly 90
    }
}

//! Moving values between registers and memory, addresses, atomics, stack.

#[rustfmt::skip]
super::rows! {
    "Data movement" {
        "mov.pred" "q p" 1 0 Sm 20
        "mov.pred" "q i" 1 0 Sm 20
        "mov.(b16|b32|b64|b128)" "d v" 1 0 Sm 20
        "mov.(b16|b32|b64|b128)" "v a" 1 0 Sm 20
        "mov.b128" "d r" 8 3 Sm 70
        "mov.(BITS|INT|f32|f64)" "d a" 1 0 Sm 20
        "mov.(v2|v4).(BITS|INT|f32|f64)" "D V" 1 0 Sm 20
        "shfl.sync.(up|down|bfly|idx).b32" "d|q a a:u32 a:u32 a:u32" 6 0 Sm 30
        "prmt.b32.(f4e|b4e|rc8|ecl|ecr|rc16)?" "d:b32 a:b32 a:b32 a:b32" 2 0 Sm 20
        "cvta.(const|global|local|param|param::entry|SHARED).u64" "d a" 2 0 Sm 20
        "cvta.to/.(const|global|local|param|param::entry|SHARED).u64" "d a" 2 0 Sm 20
        "isspacep.(const|global|local|param|param::entry|SHARED)" "q a:b64" 2 0 Sm 20
        "mapa.shared::cluster?.(u32|u64)" "d a a:u32" 7 8 Sm 90
        "getctarank.shared::cluster?.(u32|u64)" "d:u32 a" 7 8 Sm 90
    }
    "Loads and stores" {
        "ld.weak?.global?.LDCOP?.L2::cache_hint?.PREFETCH?.VEC?.MEM" "D:t~ m a:b64@L2::cache_hint" 1 0 Sm 20
        "ld.weak?.global?.EVICT.L2::cache_hint?.PREFETCH?.VEC?.MEM" "D:t~ m a:b64@L2::cache_hint" 7 4 Sm 70
        "ld.weak?.(const|local|param|param::entry|param::func|SHARED).LDCOP?.VEC?.MEM" "D:t~ m" 1 0 Sm 20
        "ld.volatile.global?.PREFETCH?.VEC?.MEM" "D:t~ m" 1 1 Sm 20
        "ld.volatile.SHARED.VEC?.MEM" "D:t~ m" 1 1 Sm 20
        "ld.(relaxed|acquire).SCOPE.global?.EVICT?.L2::cache_hint?.PREFETCH?.VEC?.MEM" "D:t~ m a:b64@L2::cache_hint" 6 0 Sm 70
        "ld.(relaxed|acquire).SCOPE.SHARED.VEC?.MEM" "D:t~ m" 6 0 Sm 70
        "ld.mmio.relaxed.sys.global?.MEM" "d:t~ m" 8 2 Sm 70
        "ld.global.(ca|cg|cs)?.nc.L2::cache_hint?.PREFETCH?.VEC?.MEM" "D:t~ m a:b64@L2::cache_hint" 3 1 Sm 32
        "ld.global.nc.EVICT.L2::cache_hint?.PREFETCH?.VEC?.MEM" "D:t~ m a:b64@L2::cache_hint" 7 4 Sm 70
        "ldu.global?.VEC?.MEM" "D:t~ m" 2 0 Sm 20
        "st.weak?.global?.STCOP?.L2::cache_hint?.VEC?.MEM" "m V:t~ a:b64@L2::cache_hint" 1 0 Sm 20
        "st.weak?.global?.EVICT.L2::cache_hint?.VEC?.MEM" "m V:t~ a:b64@L2::cache_hint" 7 4 Sm 70
        "st.weak?.(local|param|param::func|SHARED).STCOP?.VEC?.MEM" "m V:t~" 1 0 Sm 20
        "st.volatile.(global|SHARED)?.VEC?.MEM" "m V:t~" 1 1 Sm 20
        "st.(relaxed|release).SCOPE.global?.EVICT?.L2::cache_hint?.VEC?.MEM" "m V:t~ a:b64@L2::cache_hint" 6 0 Sm 70
        "st.(relaxed|release).SCOPE.SHARED.VEC?.MEM" "m V:t~" 6 0 Sm 70
        "st.mmio.relaxed.sys.global?.MEM" "m a:t~" 8 2 Sm 70
        "st.async/.weak?.shared::cluster?.mbarrier::complete_tx::bytes.VEC?.(b32|b64|u32|u64|s32|s64|f32|f64)" "m V m" 8 1 Sm 90
    }
    "Multimem" {
        "multimem.ld_reduce/.weak?.global?.(min|max).(u32|s32|u64|s64|f16x2|bf16x2)" "d m" 8 1 Sm 90
        "multimem.ld_reduce/.weak?.global?.add.(u32|s32|u64|f32|f64)" "d m" 8 1 Sm 90
        "multimem.ld_reduce/.weak?.global?.(and|or|xor).(b32|b64)" "d m" 8 1 Sm 90
        "multimem.ld_reduce/.weak?.global?.(min|max).(v2|v4|v8).(f16|bf16)" "D m" 8 1 Sm 90
        "multimem.ld_reduce/.weak?.global?.(min|max).(v2|v4).(f16x2|bf16x2)" "D m" 8 1 Sm 90
        "multimem.ld_reduce/.weak?.global?.add.acc::f32?.(v2|v4|v8).(f16|bf16)" "D m" 8 1 Sm 90
        "multimem.ld_reduce/.weak?.global?.add.acc::f32?.VEC?.(f16x2|bf16x2)" "D m" 8 1 Sm 90
        "multimem.ld_reduce/.weak?.global?.add.VEC.f32" "D m" 8 1 Sm 90
        "multimem.ld_reduce/.(relaxed|acquire).SCOPE.global?.(min|max).(u32|s32|u64|s64|f16x2|bf16x2)" "d m" 8 1 Sm 90
        "multimem.ld_reduce/.(relaxed|acquire).SCOPE.global?.add.(u32|s32|u64|f32|f64)" "d m" 8 1 Sm 90
        "multimem.ld_reduce/.(relaxed|acquire).SCOPE.global?.(and|or|xor).(b32|b64)" "d m" 8 1 Sm 90
        "multimem.ld_reduce/.(relaxed|acquire).SCOPE.global?.(min|max).(v2|v4|v8).(f16|bf16)" "D m" 8 1 Sm 90
        "multimem.ld_reduce/.(relaxed|acquire).SCOPE.global?.(min|max).(v2|v4).(f16x2|bf16x2)" "D m" 8 1 Sm 90
        "multimem.ld_reduce/.(relaxed|acquire).SCOPE.global?.add.acc::f32?.(v2|v4|v8).(f16|bf16)" "D m" 8 1 Sm 90
        "multimem.ld_reduce/.(relaxed|acquire).SCOPE.global?.add.acc::f32?.VEC?.(f16x2|bf16x2)" "D m" 8 1 Sm 90
        "multimem.ld_reduce/.(relaxed|acquire).SCOPE.global?.add.VEC.f32" "D m" 8 1 Sm 90
        "multimem.st/.weak?.global?.(b32|b64|u32|s32|u64|s64|f32|f64|f16x2|bf16x2)" "m a" 8 1 Sm 90
        "multimem.st/.weak?.global?.(v2|v4|v8).(f16|bf16)" "m V" 8 1 Sm 90
        "multimem.st/.weak?.global?.VEC.(f32|f16x2|bf16x2)" "m V" 8 1 Sm 90
        "multimem.st/.(relaxed|release).SCOPE.global?.(b32|b64|u32|s32|u64|s64|f32|f64|f16x2|bf16x2)" "m a" 8 1 Sm 90
        "multimem.st/.(relaxed|release).SCOPE.global?.(v2|v4|v8).(f16|bf16)" "m V" 8 1 Sm 90
        "multimem.st/.(relaxed|release).SCOPE.global?.VEC.(f32|f16x2|bf16x2)" "m V" 8 1 Sm 90
        "multimem.red/[.(relaxed|release).SCOPE]?.global?.(min|max).(u32|s32|u64|s64)" "m a" 8 1 Sm 90
        "multimem.red/[.(relaxed|release).SCOPE]?.global?.(and|or|xor).(b32|b64)" "m a" 8 1 Sm 90
        "multimem.red/[.(relaxed|release).SCOPE]?.global?.add.(u32|s32|u64|f32|f64|f16x2|bf16x2)" "m a" 8 1 Sm 90
        "multimem.red/[.(relaxed|release).SCOPE]?.global?.add.(v2|v4|v8).(f16|bf16)" "m V" 8 1 Sm 90
        "multimem.red/[.(relaxed|release).SCOPE]?.global?.add.VEC.(f32|f16x2|bf16x2)" "m V" 8 1 Sm 90
    }
    "Caches" {
        "prefetch.(global|local)?.(L1|L2)" "m" 2 0 Sm 20
        "prefetch.global?.(L2::evict_last|L2::evict_normal)" "m" 7 4 Sm 80
        "prefetch.(param|const)?.tensormap" "m" 8 0 Sm 90
        "prefetchu.L1" "m" 2 0 Sm 20
        "applypriority.global?.L2::evict_normal" "m i" 7 4 Sm 80
        "discard.global?.L2" "m i" 7 4 Sm 80
        "createpolicy.fractional/.(L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged).(L2::evict_first|L2::evict_unchanged)?.b64" "d a:f32?" 7 4 Sm 80
        "createpolicy.range/.global?.(L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged).(L2::evict_first|L2::evict_unchanged)?.b64" "d m a:u32 a:u32" 7 4 Sm 80
        "createpolicy.cvt/.L2.b64" "d a" 7 4 Sm 80
    }
    "Stack" {
        "alloca.u64" "d a i?" 7 3 Sm 52
        "stacksave.u64" "d" 7 3 Sm 52
        "stackrestore.u64" "a" 7 3 Sm 52
    }
    "Atomics" {
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.SHARED.(and|or|xor|exch).(b32|b64)" "d m a" 1 2 Sm 20
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.global?.(and|or|xor|exch).L2::cache_hint?.(b32|b64)" "d m a a:b64@L2::cache_hint" 1 1 Sm 20
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.(global|SHARED)?.cas.(b32|b64)" "d m a a" 1 1 Sm 20
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.(global|SHARED)?.cas.b16" "d m a a" 6 3 Sm 70
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.SHARED.add.(u32|s32|u64|f32|f64)" "d m a" 1 2 Sm 20
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.global?.add.L2::cache_hint?.(u32|s32|u64|f32|f64)" "d m a a:b64@L2::cache_hint" 1 1 Sm 20
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.SHARED.(inc|dec).u32" "d m a" 1 2 Sm 20
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.global?.(inc|dec).L2::cache_hint?.u32" "d m a a:b64@L2::cache_hint" 1 1 Sm 20
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.SHARED.(min|max).(u32|s32|u64|s64)" "d m a" 1 2 Sm 20
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.global?.(min|max).L2::cache_hint?.(u32|s32|u64|s64)" "d m a a:b64@L2::cache_hint" 1 1 Sm 20
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.SHARED.add.noftz.(f16|f16x2)" "d m a" 6 2 Sm 70
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.global?.add.noftz.L2::cache_hint?.(f16|f16x2)" "d m a a:b64@L2::cache_hint" 6 2 Sm 70
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.SHARED.add.noftz.(bf16|bf16x2)" "d m a" 7 8 Sm 90
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.global?.add.noftz.L2::cache_hint?.(bf16|bf16x2)" "d m a a:b64@L2::cache_hint" 7 8 Sm 90
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.SHARED.exch.b128" "d m r" 8 3 Sm 90
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.global?.exch.L2::cache_hint?.b128" "d m r a:b64@L2::cache_hint" 8 3 Sm 90
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.(global|SHARED)?.cas.b128" "d m r r" 8 3 Sm 90
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.global?.add.L2::cache_hint?.VEC.f32" "D m V a:b64@L2::cache_hint" 8 1 Sm 90
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.global?.(add|min|max).noftz.L2::cache_hint?.(v2|v4|v8).(f16|bf16)" "D m V a:b64@L2::cache_hint" 8 1 Sm 90
        "atom.(relaxed|acquire|release|acq_rel)?.SCOPE?.global?.(add|min|max).noftz.L2::cache_hint?.VEC.(f16x2|bf16x2)" "D m V a:b64@L2::cache_hint" 8 1 Sm 90
        "red.(relaxed|release)?.SCOPE?.SHARED.(and|or|xor).(b32|b64)" "m a" 1 2 Sm 20
        "red.(relaxed|release)?.SCOPE?.global?.(and|or|xor).L2::cache_hint?.(b32|b64)" "m a a:b64@L2::cache_hint" 1 2 Sm 20
        "red.(relaxed|release)?.SCOPE?.SHARED.add.(u32|s32|u64|f32|f64)" "m a" 1 2 Sm 20
        "red.(relaxed|release)?.SCOPE?.global?.add.L2::cache_hint?.(u32|s32|u64|f32|f64)" "m a a:b64@L2::cache_hint" 1 2 Sm 20
        "red.(relaxed|release)?.SCOPE?.SHARED.(inc|dec).u32" "m a" 1 2 Sm 20
        "red.(relaxed|release)?.SCOPE?.global?.(inc|dec).L2::cache_hint?.u32" "m a a:b64@L2::cache_hint" 1 2 Sm 20
        "red.(relaxed|release)?.SCOPE?.SHARED.(min|max).(u32|s32|u64|s64)" "m a" 1 2 Sm 20
        "red.(relaxed|release)?.SCOPE?.global?.(min|max).L2::cache_hint?.(u32|s32|u64|s64)" "m a a:b64@L2::cache_hint" 1 2 Sm 20
        "red.(relaxed|release)?.SCOPE?.SHARED.add.noftz.(f16|f16x2)" "m a" 6 2 Sm 70
        "red.(relaxed|release)?.SCOPE?.global?.add.noftz.L2::cache_hint?.(f16|f16x2)" "m a a:b64@L2::cache_hint" 6 2 Sm 70
        "red.(relaxed|release)?.SCOPE?.SHARED.add.noftz.(bf16|bf16x2)" "m a" 7 8 Sm 90
        "red.(relaxed|release)?.SCOPE?.global?.add.noftz.L2::cache_hint?.(bf16|bf16x2)" "m a a:b64@L2::cache_hint" 7 8 Sm 90
        "red.(relaxed|release)?.SCOPE?.global?.add.L2::cache_hint?.VEC.f32" "m V a:b64@L2::cache_hint" 8 1 Sm 90
        "red.(relaxed|release)?.SCOPE?.global?.(add|min|max).noftz.L2::cache_hint?.(v2|v4|v8).(f16|bf16)" "m V a:b64@L2::cache_hint" 8 1 Sm 90
        "red.(relaxed|release)?.SCOPE?.global?.(add|min|max).noftz.L2::cache_hint?.VEC.(f16x2|bf16x2)" "m V a:b64@L2::cache_hint" 8 1 Sm 90
        "red.async/.relaxed.cluster.shared::cluster?.mbarrier::complete_tx::bytes.(inc|dec).u32" "m a m" 8 1 Sm 90
        "red.async/.relaxed.cluster.shared::cluster?.mbarrier::complete_tx::bytes.(min|max).(u32|s32)" "m a m" 8 1 Sm 90
        "red.async/.relaxed.cluster.shared::cluster?.mbarrier::complete_tx::bytes.add.(u32|s32|u64)" "m a m" 8 1 Sm 90
        "red.async/.relaxed.cluster.shared::cluster?.mbarrier::complete_tx::bytes.(and|or|xor).b32" "m a m" 8 1 Sm 90
    }
}

//! Asynchronous copies and tensor maps.

#[rustfmt::skip]
super::rows! {
    "Asynchronous copies" {
        "cp.async/.ca.CTA.global.L2::cache_hint?.PREFETCH?" "m m i a:u32? a:b64@L2::cache_hint" 7 0 Sm 80
        "cp.async/.ca.CTA.global.L2::cache_hint?.PREFETCH?" "m m i p a:b64@L2::cache_hint" 8 0 Sm 80
        "cp.async/.cg.CTA.global.L2::cache_hint?.PREFETCH?" "m m i16 a:u32? a:b64@L2::cache_hint" 7 0 Sm 80
        "cp.async/.cg.CTA.global.L2::cache_hint?.PREFETCH?" "m m i16 p a:b64@L2::cache_hint" 8 0 Sm 80
        "cp.async.commit_group/" "" 7 0 Sm 80
        "cp.async.wait_group/" "i" 7 0 Sm 80
        "cp.async.wait_all/" "" 7 0 Sm 80
        "cp.async.mbarrier.arrive/.noinc?.CTA?.b64" "m" 7 0 Sm 80
    }
    "Bulk copies" {
        "cp.async.bulk/.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint?" "m m a:u32 m a:b64@L2::cache_hint" 8 6 Sm 90
        "cp.async.bulk/.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster?.L2::cache_hint?" "m m a:u32 m a:u16@multicast::cluster a:b64@L2::cache_hint" 8 0 Sm 90
        "cp.async.bulk/.shared::cluster.shared::cta.mbarrier::complete_tx::bytes" "m m a:u32 m" 8 0 Sm 90
        "cp.async.bulk/.global.shared::cta.bulk_group.L2::cache_hint?" "m m a:u32 a:b64@L2::cache_hint" 8 0 Sm 90
        "cp.async.bulk.prefetch/.L2.global.L2::cache_hint?" "m a:u32 a:b64@L2::cache_hint" 8 0 Sm 90
        "cp.async.bulk.commit_group/" "" 8 0 Sm 90
        "cp.async.bulk.wait_group/.read?" "i" 8 0 Sm 90
        "cp.reduce.async.bulk/.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.(and|or|xor).b32" "m m a:u32 m" 8 0 Sm 90
        "cp.reduce.async.bulk/.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.(u32|s32|u64)" "m m a:u32 m" 8 0 Sm 90
        "cp.reduce.async.bulk/.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.(inc|dec).u32" "m m a:u32 m" 8 0 Sm 90
        "cp.reduce.async.bulk/.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.(min|max).(u32|s32)" "m m a:u32 m" 8 0 Sm 90
        "cp.reduce.async.bulk/.global.shared::cta.bulk_group.L2::cache_hint?.(and|or|xor).(b32|b64)" "m m a:u32 a:b64@L2::cache_hint" 8 0 Sm 90
        "cp.reduce.async.bulk/.global.shared::cta.bulk_group.L2::cache_hint?.add.(u32|s32|u64|f32|f64)" "m m a:u32 a:b64@L2::cache_hint" 8 0 Sm 90
        "cp.reduce.async.bulk/.global.shared::cta.bulk_group.L2::cache_hint?.add.noftz.(f16|bf16)" "m m a:u32 a:b64@L2::cache_hint" 8 0 Sm 90
        "cp.reduce.async.bulk/.global.shared::cta.bulk_group.L2::cache_hint?.(inc|dec).u32" "m m a:u32 a:b64@L2::cache_hint" 8 0 Sm 90
        "cp.reduce.async.bulk/.global.shared::cta.bulk_group.L2::cache_hint?.(min|max).(u32|s32|u64|s64|f16|bf16)" "m m a:u32 a:b64@L2::cache_hint" 8 0 Sm 90
    }
    "Tensor copies" {
        "cp.async.bulk.tensor/.COORD.shared::cta.global.tile?.mbarrier::complete_tx::bytes.L2::cache_hint?" "m T m a:b64@L2::cache_hint" 8 6 Sm 90
        "cp.async.bulk.tensor/.COORD.shared::cluster.global.tile?.mbarrier::complete_tx::bytes.multicast::cluster?.L2::cache_hint?" "m T m a:u16@multicast::cluster a:b64@L2::cache_hint" 8 0 Sm 90
        "cp.async.bulk.tensor/.(3d|4d|5d).shared::cta.global.im2col.mbarrier::complete_tx::bytes.L2::cache_hint?" "m T m vO:u16 a:b64@L2::cache_hint" 8 6 Sm 90
        "cp.async.bulk.tensor/.(3d|4d|5d).shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster?.L2::cache_hint?" "m T m vO:u16 a:u16@multicast::cluster a:b64@L2::cache_hint" 8 0 Sm 90
        "cp.async.bulk.tensor/.COORD.global.shared::cta.tile?.bulk_group.L2::cache_hint?" "T m a:b64@L2::cache_hint" 8 0 Sm 90
        "cp.async.bulk.tensor/.(3d|4d|5d).global.shared::cta.im2col_no_offs.bulk_group.L2::cache_hint?" "T m a:b64@L2::cache_hint" 8 0 Sm 90
        "cp.async.bulk.prefetch.tensor/.COORD.L2.global.tile?.L2::cache_hint?" "T a:b64@L2::cache_hint" 8 0 Sm 90
        "cp.async.bulk.prefetch.tensor/.(3d|4d|5d).L2.global.im2col.L2::cache_hint?" "T vO:u16 a:b64@L2::cache_hint" 8 0 Sm 90
        "cp.reduce.async.bulk.tensor/.COORD.global.shared::cta.(add|min|max|inc|dec|and|or|xor).tile?.bulk_group.L2::cache_hint?" "T m a:b64@L2::cache_hint" 8 0 Sm 90
        "cp.reduce.async.bulk.tensor/.(3d|4d|5d).global.shared::cta.(add|min|max|inc|dec|and|or|xor).im2col_no_offs.bulk_group.L2::cache_hint?" "T m a:b64@L2::cache_hint" 8 0 Sm 90
    }
    "Tensor maps" {
        "tensormap.replace/.tile.global_address.(global|shared::cta)?.b1024.b64" "m a:b64" 8 3 Exactly 90
        "tensormap.replace/.tile.rank.(global|shared::cta)?.b1024.b32" "m a:b32" 8 3 Exactly 90
        "tensormap.replace/.tile.(elemtype|interleave_layout|swizzle_mode|fill_mode).(global|shared::cta)?.b1024.b32" "m i" 8 3 Exactly 90
        "tensormap.replace/.tile.(box_dim|global_dim|element_stride).(global|shared::cta)?.b1024.b32" "m i a:b32" 8 3 Exactly 90
        "tensormap.replace/.tile.global_stride.(global|shared::cta)?.b1024.b64" "m i a:b64" 8 3 Exactly 90
        "tensormap.cp_fenceproxy/.global.shared::cta.tensormap::generic.release.SCOPE.sync.aligned" "m m i128" 8 3 Sm 90
    }
}

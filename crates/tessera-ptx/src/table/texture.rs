//! Textures and surfaces.

#[rustfmt::skip]
super::rows! {
    "Textures" {
        "tex.base?.(1d|2d|3d|a1d|a2d).v4.(u32|s32|f32|f16).s32" "w4:t0|q X vG:s32?" 1 5 Sm 20
        "tex.base?.(1d|2d|a1d|a2d).v4.(u32|s32|f32|f16).f32" "w4:t0|q X vG:s32? a:f32?" 1 5 Sm 20
        "tex.base?.3d.v4.(u32|s32|f32|f16).f32" "w4:t0|q X vG:s32?" 1 5 Sm 20
        "tex.base?.(cube|acube).v4.(u32|s32|f32|f16).f32" "w4:t0|q X a:f32?" 1 5 Sm 20
        "tex.base?.(2dms|a2dms).v4.(u32|s32|f32|f16).s32" "w4:t0|q X vG:s32?" 1 5 Sm 20
        "tex.level.(1d|2d|3d|a1d|a2d).v4.(u32|s32|f32|f16).s32" "w4:t0|q X a vG:s32?" 1 5 Sm 20
        "tex.level.(1d|2d|a1d|a2d).v4.(u32|s32|f32|f16).f32" "w4:t0|q X a vG:s32? a:f32?" 1 5 Sm 20
        "tex.level.3d.v4.(u32|s32|f32|f16).f32" "w4:t0|q X a vG:s32?" 1 5 Sm 20
        "tex.level.(cube|acube).v4.(u32|s32|f32|f16).f32" "w4:t0|q X a a:f32?" 1 5 Sm 20
        "tex.grad.(1d|2d|a1d|a2d).v4.(u32|s32|f32|f16).f32" "w4:t0|q X vG:f32 vG:f32 vG:s32? a:f32?" 1 5 Sm 20
        "tex.grad.3d.v4.(u32|s32|f32|f16).f32" "w4:t0|q X vG:f32 vG:f32 vG:s32?" 1 5 Sm 20
        "tex.grad.(cube|acube).v4.(u32|s32|f32|f16).f32" "w4:t0|q X vG:f32 vG:f32 a:f32?" 4 3 Sm 20
        "tex.base?.(1d|2d|3d|a1d|a2d).v2.f16x2.s32" "w2:t0|q X vG:s32?" 4 2 Sm 53
        "tex.base?.(1d|2d|a1d|a2d).v2.f16x2.f32" "w2:t0|q X vG:s32? a:f32?" 4 2 Sm 53
        "tex.base?.3d.v2.f16x2.f32" "w2:t0|q X vG:s32?" 4 2 Sm 53
        "tex.base?.(cube|acube).v2.f16x2.f32" "w2:t0|q X a:f32?" 4 2 Sm 53
        "tex.base?.(2dms|a2dms).v2.f16x2.s32" "w2:t0|q X vG:s32?" 4 2 Sm 53
        "tex.level.(1d|2d|3d|a1d|a2d).v2.f16x2.s32" "w2:t0|q X a vG:s32?" 4 2 Sm 53
        "tex.level.(1d|2d|a1d|a2d).v2.f16x2.f32" "w2:t0|q X a vG:s32? a:f32?" 4 2 Sm 53
        "tex.level.3d.v2.f16x2.f32" "w2:t0|q X a vG:s32?" 4 2 Sm 53
        "tex.level.(cube|acube).v2.f16x2.f32" "w2:t0|q X a a:f32?" 4 2 Sm 53
        "tex.grad.(1d|2d|a1d|a2d).v2.f16x2.f32" "w2:t0|q X vG:f32 vG:f32 vG:s32? a:f32?" 4 2 Sm 53
        "tex.grad.3d.v2.f16x2.f32" "w2:t0|q X vG:f32 vG:f32 vG:s32?" 4 2 Sm 53
        "tex.grad.(cube|acube).v2.f16x2.f32" "w2:t0|q X vG:f32 vG:f32 a:f32?" 4 3 Sm 53
        "tld4.(r|g|b|a).(2d|a2d).v4.(u32|s32|f32).f32" "w4:t0|q X vG:s32? a:f32?" 2 2 Sm 20
        "tld4.(r|g|b|a).(cube|acube).v4.(u32|s32|f32).f32" "w4:t0|q X a:f32?" 4 3 Sm 20
        "txq.(width|height|depth|channel_data_type|channel_order|normalized_coords|array_size|num_mipmap_levels|num_samples).b32" "d m" 1 5 Sm 20
        "txq.level.(width|height|depth).b32" "d m a" 4 3 Sm 30
        "txq.(force_unnormalized_coords|filter_mode|addr_mode_0|addr_mode_1|addr_mode_2).b32" "d m" 1 5 Sm 20
        "istypep.(texref|samplerref|surfref)" "q r:b64" 4 0 Sm 30
    }
    "Surfaces" {
        "suld.b/.(1d|2d|3d|a1d|a2d).(ca|cg|cs|cv)?.VEC?.(b8|b16|b32|b64).(trap|clamp|zero)" "D X" 1 5 Sm 20
        "sust.b/.(1d|2d|3d|a1d|a2d).STCOP?.VEC?.(b8|b16|b32|b64).(trap|clamp|zero)" "X V" 1 5 Sm 20
        "sust.p/.(1d|2d|3d).VEC?.b32.(trap|clamp|zero)" "X V" 2 0 Sm 20
        "sured.b/.add.(1d|2d|3d).(u32|u64|s32).(trap|clamp|zero)" "X a" 2 0 Sm 20
        "sured.b/.(min|max).(1d|2d|3d).(u32|s32|u64|s64).(trap|clamp|zero)" "X a" 2 0 Sm 20
        "sured.b/.(and|or).(1d|2d|3d).b32.(trap|clamp|zero)" "X a" 2 0 Sm 20
        "sured.p/.(add|min|max|and|or).(1d|2d|3d).b32.(trap|clamp|zero)" "X a" 2 0 Sm 20
        "sured.p/.(min|max).(1d|2d|3d).b64.(trap|clamp|zero)" "X a" 8 1 Sm 50
        "suq.(width|height|depth|channel_data_type|channel_order|array_size|memory_layout).b32" "d m" 1 5 Sm 20
    }
}

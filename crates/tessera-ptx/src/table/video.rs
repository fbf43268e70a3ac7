//! Video: operations on bytes and halves of registers, and on several of them at once.

#[rustfmt::skip]
super::rows! {
    "Scalar video" {
        "vadd.(u32|s32).(u32|s32).(u32|s32).sat?" "d:b32 s s" 2 0 Sm 20
        "vadd.(u32|s32).(u32|s32).(u32|s32).sat?" "x s s a:b32" 2 0 Sm 20
        "vadd.(u32|s32).(u32|s32).(u32|s32).sat?.(add|min|max)" "d:b32 s s a:b32" 2 0 Sm 20
        "vsub.(u32|s32).(u32|s32).(u32|s32).sat?" "d:b32 s s" 2 0 Sm 20
        "vsub.(u32|s32).(u32|s32).(u32|s32).sat?" "x s s a:b32" 2 0 Sm 20
        "vsub.(u32|s32).(u32|s32).(u32|s32).sat?.(add|min|max)" "d:b32 s s a:b32" 2 0 Sm 20
        "vabsdiff.(u32|s32).(u32|s32).(u32|s32).sat?" "d:b32 s s" 2 0 Sm 20
        "vabsdiff.(u32|s32).(u32|s32).(u32|s32).sat?" "x s s a:b32" 2 0 Sm 20
        "vabsdiff.(u32|s32).(u32|s32).(u32|s32).sat?.(add|min|max)" "d:b32 s s a:b32" 2 0 Sm 20
        "vmin.(u32|s32).(u32|s32).(u32|s32).sat?" "d:b32 s s" 2 0 Sm 20
        "vmin.(u32|s32).(u32|s32).(u32|s32).sat?" "x s s a:b32" 2 0 Sm 20
        "vmin.(u32|s32).(u32|s32).(u32|s32).sat?.(add|min|max)" "d:b32 s s a:b32" 2 0 Sm 20
        "vmax.(u32|s32).(u32|s32).(u32|s32).sat?" "d:b32 s s" 2 0 Sm 20
        "vmax.(u32|s32).(u32|s32).(u32|s32).sat?" "x s s a:b32" 2 0 Sm 20
        "vmax.(u32|s32).(u32|s32).(u32|s32).sat?.(add|min|max)" "d:b32 s s a:b32" 2 0 Sm 20
        "vshl.(u32|s32).(u32|s32).u32.sat?.(clamp|wrap)" "d:b32 s s" 2 0 Sm 20
        "vshl.(u32|s32).(u32|s32).u32.sat?.(clamp|wrap)" "x s s a:b32" 2 0 Sm 20
        "vshl.(u32|s32).(u32|s32).u32.sat?.(clamp|wrap).(add|min|max)" "d:b32 s s a:b32" 2 0 Sm 20
        "vshr.(u32|s32).(u32|s32).u32.sat?.(clamp|wrap)" "d:b32 s s" 2 0 Sm 20
        "vshr.(u32|s32).(u32|s32).u32.sat?.(clamp|wrap)" "x s s a:b32" 2 0 Sm 20
        "vshr.(u32|s32).(u32|s32).u32.sat?.(clamp|wrap).(add|min|max)" "d:b32 s s a:b32" 2 0 Sm 20
        "vmad.(u32|s32).(u32|s32).(u32|s32).sat?.(shr7|shr15)?" "d:b32 n n n0" 2 0 Sm 20
        "vmad.(u32|s32).(u32|s32).(u32|s32).po.sat?.(shr7|shr15)?" "d:b32 s s a:b32" 2 0 Sm 20
        "vset.(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge)" "d:b32 s s" 2 0 Sm 20
        "vset.(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge)" "x s s a:b32" 2 0 Sm 20
        "vset.(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge).(add|min|max)" "d:b32 s s a:b32" 2 0 Sm 20
    }
    "SIMD video" {
        "vadd2.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "x2 s2 s2 a:b32" 3 0 Sm 30
        "vsub2.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "x2 s2 s2 a:b32" 3 0 Sm 30
        "vavrg2.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "x2 s2 s2 a:b32" 3 0 Sm 30
        "vabsdiff2.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "x2 s2 s2 a:b32" 3 0 Sm 30
        "vmin2.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "x2 s2 s2 a:b32" 3 0 Sm 30
        "vmax2.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "x2 s2 s2 a:b32" 3 0 Sm 30
        "vset2.(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge).add?" "x2 s2 s2 a:b32" 3 0 Sm 30
        "vadd4.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "x4 s4 s4 a:b32" 3 0 Sm 30
        "vsub4.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "x4 s4 s4 a:b32" 3 0 Sm 30
        "vavrg4.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "x4 s4 s4 a:b32" 3 0 Sm 30
        "vabsdiff4.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "x4 s4 s4 a:b32" 3 0 Sm 30
        "vmin4.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "x4 s4 s4 a:b32" 3 0 Sm 30
        "vmax4.(u32|s32).(u32|s32).(u32|s32).(sat|add)?" "x4 s4 s4 a:b32" 3 0 Sm 30
        "vset4.(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge).add?" "x4 s4 s4 a:b32" 3 0 Sm 30
    }
}

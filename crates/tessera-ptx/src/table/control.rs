//! Control flow and what belongs to nothing else.

#[rustfmt::skip]
super::rows! {
    "Control flow" {
        "bra.uni?" "l" 1 0 Sm 20
        "brx.idx.uni?" "a:u32 l" 6 0 Sm 30
        "call.uni?" "L l L?" 1 0 Sm 20
        "call.uni?" "l L?" 1 0 Sm 20
        "call.uni?" "L r:b64 L? l" 2 1 Sm 20
        "call.uni?" "r:b64 L? l" 2 1 Sm 20
        "ret.uni?" "" 1 0 Sm 20
        "exit" "" 1 0 Sm 20
    }
    "Miscellaneous" {
        "brkpt" "" 1 0 Sm 20
        "nanosleep.u32" "a" 6 3 Sm 70
        "pmevent.mask?" "i" 1 4 Sm 20
        "trap" "" 1 0 Sm 20
        "setmaxnreg.(inc|dec)/.sync.aligned.u32" "i" 8 0 Exactly 90
    }
}

//! What threads do together: barriers, fences, votes, mbarriers.

#[rustfmt::skip]
super::rows! {
    "Barriers" {
        "bar.cta?.sync" "a:u32 a:u32?" 1 0 Sm 20
        "bar.cta?.arrive" "a:u32 a:u32" 2 0 Sm 20
        "bar.cta?.red/.popc.u32" "d a a? p" 2 0 Sm 20
        "bar.cta?.red/.(and|or).pred" "q a:u32 a:u32? p" 2 0 Sm 20
        "bar.warp/.sync" "a:u32" 6 0 Sm 30
        "barrier.cta?.sync.aligned?" "a:u32 a:u32?" 6 0 Sm 30
        "barrier.cta?.arrive.aligned?" "a:u32 a:u32" 6 0 Sm 30
        "barrier.cta?.red/.popc.aligned?.u32" "d a a? p" 6 0 Sm 30
        "barrier.cta?.red/.(and|or).aligned?.pred" "q a:u32 a:u32? p" 6 0 Sm 30
        "barrier.cluster.arrive/.(release|relaxed)?.aligned?" "" 7 8 Sm 90
        "barrier.cluster.wait/.acquire?.aligned?" "" 7 8 Sm 90
        "griddepcontrol.(launch_dependents|wait)" "" 7 8 Sm 90
    }
    "Fences" {
        "membar.(cta|gl|sys)" "" 1 4 Sm 20
        "membar.proxy/.alias" "" 7 5 Sm 70
        "membar.proxy/.async" "" 8 0 Sm 90
        "fence.(sc|acq_rel)?.SCOPE" "" 6 0 Sm 70
        "fence.(acquire|release).SCOPE" "" 8 6 Sm 90
        "fence.acquire.sync_restrict::shared::cluster.cluster" "" 8 6 Sm 90
        "fence.release.sync_restrict::shared::cta.cluster" "" 8 6 Sm 90
        "fence.mbarrier_init.release.cluster" "" 8 0 Sm 90
        "fence.proxy/.alias" "" 7 5 Sm 70
        "fence.proxy/.async.(global|shared::cta|shared::cluster)?" "" 8 0 Sm 90
        "fence.proxy/.async::generic.acquire.sync_restrict::shared::cluster.cluster" "" 8 6 Sm 90
        "fence.proxy/.async::generic.release.sync_restrict::shared::cta.cluster" "" 8 6 Sm 90
        "fence.proxy/.tensormap::generic.release.SCOPE" "" 8 3 Sm 90
        "fence.proxy/.tensormap::generic.acquire.SCOPE" "m i128" 8 3 Sm 90
    }
    "Warps" {
        "vote.sync.(all|any|uni).pred" "q p a:u32" 6 0 Sm 30
        "vote.sync.ballot.b32" "d p a:u32" 6 0 Sm 30
        "match.any.sync.(b32|b64)" "d:u32 a a:u32" 6 0 Sm 70
        "match.all.sync.(b32|b64)" "d|q:u32 a a:u32" 6 0 Sm 70
        "activemask.b32" "d" 6 2 Sm 30
        "redux.sync.(add|min|max).(u32|s32)" "d a a:u32" 7 0 Sm 80
        "redux.sync.(and|or|xor).b32" "d a a:u32" 7 0 Sm 80
        "elect.sync" "d+q:u32 a:u32" 8 0 Sm 90
    }
    "Mbarriers" {
        "mbarrier.init/.CTA?.b64" "m a:u32" 7 0 Sm 80
        "mbarrier.inval/.CTA?.b64" "m" 7 0 Sm 80
        "mbarrier.expect_tx/[.relaxed.(cta|cluster)]?.SHARED?.b64" "m a:u32" 8 0 Sm 90
        "mbarrier.complete_tx/[.relaxed.(cta|cluster)]?.SHARED?.b64" "m a:u32" 8 0 Sm 90
        "mbarrier.arrive/[.release.cta]?.CTA?.b64" "d m" 7 0 Sm 80
        "mbarrier.arrive/[.(release|relaxed).(cta|cluster)]?.CTA?.b64" "d m a:u32?" 8 0 Sm 90
        "mbarrier.arrive/[.(release|relaxed).(cta|cluster)]?.shared::cluster.b64" "_ m a:u32?" 8 0 Sm 90
        "mbarrier.arrive.expect_tx/[.(release|relaxed).(cta|cluster)]?.CTA?.b64" "d m a:u32" 8 0 Sm 90
        "mbarrier.arrive.expect_tx/[.(release|relaxed).(cta|cluster)]?.shared::cluster.b64" "_ m a:u32" 8 0 Sm 90
        "mbarrier.arrive/.noComplete[.release.cta]?.CTA?.b64" "d m a:u32" 7 0 Sm 80
        "mbarrier.arrive_drop/[.release.cta]?.CTA?.b64" "d m" 7 0 Sm 80
        "mbarrier.arrive_drop/[.(release|relaxed).(cta|cluster)]?.CTA?.b64" "d m a:u32?" 8 0 Sm 90
        "mbarrier.arrive_drop/[.(release|relaxed).(cta|cluster)]?.shared::cluster.b64" "_ m a:u32?" 8 0 Sm 90
        "mbarrier.arrive_drop.expect_tx/[.(release|relaxed).(cta|cluster)]?.CTA?.b64" "d m a:u32" 8 0 Sm 90
        "mbarrier.arrive_drop.expect_tx/[.(release|relaxed).(cta|cluster)]?.shared::cluster.b64" "_ m a:u32" 8 0 Sm 90
        "mbarrier.arrive_drop/.noComplete[.release.cta]?.CTA?.b64" "d m a:u32" 7 0 Sm 80
        "mbarrier.test_wait/[.acquire.cta]?.CTA?.b64" "q m a:b64" 7 0 Sm 80
        "mbarrier.test_wait/[.(acquire|relaxed).(cta|cluster)]?.CTA?.b64" "q m a:b64" 8 0 Sm 90
        "mbarrier.test_wait.parity/[.acquire.cta]?.CTA?.b64" "q m a:u32" 7 1 Sm 80
        "mbarrier.test_wait.parity/[.(acquire|relaxed).(cta|cluster)]?.CTA?.b64" "q m a:u32" 8 0 Sm 90
        "mbarrier.try_wait/[.(acquire|relaxed).(cta|cluster)]?.CTA?.b64" "q m a:b64 a:u32?" 7 8 Sm 90
        "mbarrier.try_wait.parity/[.(acquire|relaxed).(cta|cluster)]?.CTA?.b64" "q m a:u32 a:u32?" 7 8 Sm 90
        "mbarrier.pending_count/.b64" "d:u32 a" 7 0 Sm 80
    }
}

//! Addresses of shared memory in a cluster, as an H200 gives them: a block's rank stands from bit 24 on, in addresses of its own
//! variables too, and `.shared` reaches the own block alone.

use tessera_driver::{Dim3, Params};
use tessera_emu::{EmuError, EmuOptions, Emulator, FindingKind, LaunchOptions, Sanitize, Schedule};

/// Blocks of a cluster of four write eight words each.
fn run(body: &str, sanitize: Sanitize) -> Result<Vec<u32>, EmuError> {
    let text = format!(
        ".version 8.0
.target sm_90a
.address_size 64
.shared .align 16 .b32 own[64];
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(.param .u64 out)
{{
    .reg .pred %p;
    .reg .b32 %r<16>, %rank, %s, %d, %t;
    .reg .b64 %g, %at, %far, %o;
    ld.param.u64 %g, [out];
    mov.u32 %rank, %cluster_ctarank;
    mov.u32 %t, %tid.x;
    mul.wide.u32 %o, %rank, 32;
    add.u64 %g, %g, %o;
    mov.u32 %s, own;
    mov.u32 %d, dynamic;
    add.u32 %r0, %rank, 100;
    st.shared.u32 [%s], %r0;
    st.shared.u32 [own+4], %r0;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
{body}
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ret;
}}"
    );
    let emulator = Emulator::new(&EmuOptions::default()).unwrap();
    let module = emulator.load(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let out = emulator.alloc(128).unwrap();
    emulator.write(out, &[0; 128]).unwrap();
    let options = LaunchOptions {
        cluster: Some(Dim3::from(4)),
        shared_bytes: 64,
        sanitize,
        schedule: Schedule::Random,
        ..LaunchOptions::default()
    };
    emulator.launch(&module, "k", Dim3::from(4), Dim3::ONE, &Params::new().pointer(out), &options)?;
    let mut bytes = [0; 128];
    emulator.read(out, &mut bytes).unwrap();
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
}

/// For each block the words that `body` left there.
fn words(body: &str) -> Vec<Vec<u32>> {
    let run = |sanitize| run(body, sanitize).unwrap_or_else(|error| panic!("{error}"));
    let found = run(Sanitize::NONE);
    assert_eq!(found, run(Sanitize::ALL));
    found.chunks_exact(8).map(<[u32]>::to_vec).collect()
}

#[test]
fn the_rank_stands_from_bit_24_on() {
    let body = "mapa.shared::cluster.u32 %r1, %s, 2;
        sub.u32 %r2, %d, %s;
        shr.u32 %r3, %s, 24;
        getctarank.shared::cluster.u32 %r4, %s;
        cvt.u64.u32 %at, %s;
        cvta.shared.u64 %at, %at;
        isspacep.shared::cta %p, %at;
        selp.u32 %r5, 1, 0, %p;
        mapa.u64 %far, %at, 2;
        isspacep.shared::cta %p, %far;
        selp.u32 %r6, 1, 0, %p;
        isspacep.shared::cluster %p, %far;
        selp.u32 %r7, %r6, 7, %p;
        st.global.v4.u32 [%g], {%s, %r1, %r2, %r3};
        st.global.v4.u32 [%g+16], {%r4, %r5, %r6, %r7};";
    let own = 0x400;
    for (rank, words) in words(body).into_iter().enumerate() {
        let rank = rank as u32;
        let second = u32::from(rank == 2);
        assert_eq!(words, [own | rank << 24, own | 2 << 24, 256, rank, rank, 1, second, second]);
    }
}

#[test]
fn code_may_put_the_rank_together_itself() {
    // Without its rank the address is block 0's; with another's, that block's. The generic window has the same bits.
    let body = "and.b32 %r1, %s, 0xffffff;
        ld.shared::cluster.u32 %r2, [%r1];
        xor.b32 %r3, %s, 0x1000000;
        ld.shared::cluster.u32 %r4, [%r3];
        ld.shared.u32 %r5, [%s];
        ld.shared::cluster.u32 %r6, [own+4];
        cvt.u64.u32 %at, %s;
        cvta.shared.u64 %at, %at;
        and.b64 %far, %at, 0xffffffff00ffffff;
        ld.u32 %r7, [%far];
        cvta.to.shared.u64 %far, %at;
        cvt.u32.u64 %r8, %far;
        ld.shared.u32 %r8, [%r8];
        st.global.v4.u32 [%g], {%r2, %r4, %r5, %r6};
        st.global.v2.u32 [%g+16], {%r7, %r8};";
    for (rank, words) in words(body).into_iter().enumerate() {
        let rank = 100 + rank as u32;
        assert_eq!(words[..6], [100, 100 + ((rank - 100) ^ 1), rank, rank, 100, rank]);
    }
}

#[test]
fn the_own_window_reaches_the_own_block_alone() {
    let fault = |body: &str| match run(body, Sanitize::NONE) {
        Err(EmuError::Fault { finding, .. }) => finding,
        other => panic!("{other:?}"),
    };
    let found = fault("mapa.shared::cluster.u32 %r1, %s, 3;\n ld.shared.u32 %r2, [%r1];\n st.global.u32 [%g], %r2;");
    assert_eq!(found.kind, FindingKind::OutOfBounds);
    assert!(found.message.contains("block 3's") && found.message.contains("`.shared::cluster`"), "{found}");
    let found = fault("or.b32 %r1, %s, 0x4000000;\n ld.shared::cluster.u32 %r2, [%r1];\n st.global.u32 [%g], %r2;");
    assert!(found.message.contains("no block"), "{found}");
}

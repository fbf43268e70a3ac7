//! Protocol mutants: mistakes planted into the anchor product, each of which a sanitizer must report as it is declared here,
//! and nothing on the original. The two places of a finding bracket the mutated one.

use std::sync::Arc;

use tessera_driver::{DevicePtr, Dim3, L2Promotion, OutOfBounds, Params, Swizzle, TensorMapSpec};
use tessera_emu::{EmuError, EmuOptions, Emulator, FindingKind, LaunchOptions, Sanitize, Schedule};
use tessera_types::DType;

use FindingKind::{Deadlock, InFlight, Mbarrier, ProxyFence, Race};

/// What is planted: the n-th occurrence of a text becomes another one.
struct Mutant {
    what: &'static str,
    from: &'static str,
    nth: usize,
    to: &'static str,
    /// One of these is reported, or the result is wrong where the list is empty.
    reported: &'static [FindingKind],
}

const fn mutant(
    what: &'static str,
    from: &'static str,
    nth: usize,
    to: &'static str,
    reported: &'static [FindingKind],
) -> Mutant {
    Mutant { what, from, nth, to, reported }
}

const PRODUCER_WAIT: &str = "mbarrier.try_wait.parity.shared::cta.b64 %waited, [%empty], %phase;";
const CONSUMER_WAIT: &str = "mbarrier.try_wait.parity.shared::cta.b64 %waited, [%full], %phase;";

const MUTANTS: &[Mutant] = &[
    mutant("no fence behind the barriers' initialisation", "fence.mbarrier_init.release.cluster;", 0, "", &[ProxyFence]),
    mutant("no barrier behind the initialisation", "bar.sync 0;", 0, "", &[Mbarrier, Race, ProxyFence]),
    mutant("too few bytes expected", "[%full], 49152;", 0, "[%full], 49136;", &[Mbarrier, Race, Deadlock]),
    mutant("too many bytes expected", "[%full], 49152;", 0, "[%full], 65536;", &[Deadlock]),
    mutant("the producer starts in the wrong phase", "mov.u32 %phase, 1;", 0, "mov.u32 %phase, 0;", &[Deadlock]),
    mutant(
        "the consumer starts in the wrong phase",
        "mov.u32 %phase, 0;",
        0,
        "mov.u32 %phase, 1;",
        &[Race, Deadlock, ProxyFence],
    ),
    mutant("the producer's phase does not flip", "@%p xor.b32 %phase, %phase, 1;", 0, "", &[Race, Deadlock, Mbarrier]),
    mutant("the consumer's phase does not flip", "@%p xor.b32 %phase, %phase, 1;", 1, "", &[Race, Deadlock, Mbarrier]),
    mutant("the producer does not wait for the slot", PRODUCER_WAIT, 0, "mov.pred %waited, 1;", &[Race, Mbarrier]),
    mutant("the consumer does not wait for the data", CONSUMER_WAIT, 0, "mov.pred %waited, 1;", &[Race]),
    mutant("no wgmma.fence", "wgmma.fence.sync.aligned;", 0, "", &[InFlight]),
    mutant("no commit", "wgmma.commit_group.sync.aligned;", 0, "", &[InFlight, Race]),
    mutant(
        "the wait leaves two groups",
        "wgmma.wait_group.sync.aligned 1;",
        0,
        "wgmma.wait_group.sync.aligned 2;",
        &[Race, InFlight],
    ),
    mutant("no last wait", "wgmma.wait_group.sync.aligned 0;", 0, "", &[InFlight, Race]),
    mutant("a slot is never released", "@%releases mbarrier.arrive.shared::cta.b64 _, [%last];", 0, "", &[Deadlock]),
    mutant(
        "both warpgroups' every thread releases",
        "@%releases mbarrier.arrive",
        0,
        "@%later mbarrier.arrive",
        &[Mbarrier, Deadlock],
    ),
    mutant("no proxy fence before the store", "fence.proxy.async.shared::cta;", 0, "", &[ProxyFence]),
    mutant("no barrier between rows and the store", "bar.sync %x, 128;", 1, "", &[Race, ProxyFence]),
    mutant("the staging buffer is reused too early", "@%leader cp.async.bulk.wait_group.read 0;", 1, "", &[Race]),
    mutant("no barrier behind the store's wait", "bar.sync %x, 128;", 2, "", &[Race]),
    mutant("a store that nobody waits for", "@%leader cp.async.bulk.wait_group 0;", 0, "", &[InFlight]),
    mutant("a barrier for too many threads", "bar.sync %x, 128;", 0, "bar.sync %x, 160;", &[Deadlock, FindingKind::Barrier]),
    mutant(
        "registers that the block has not",
        "setmaxnreg.inc.sync.aligned.u32 232;",
        0,
        "setmaxnreg.inc.sync.aligned.u32 240;",
        &[Deadlock],
    ),
    mutant("the wrong stage's A", "mad.lo.u32 %to_a, %stage, 16384, %base;", 0, "mov.u32 %to_a, %base;", &[Race]),
    mutant("a descriptor's stride", "or.b64 %b, %b, 0x4000004000010000;", 0, "or.b64 %b, %b, 0x4000002000010000;", &[]),
    mutant("a descriptor's swizzle", "or.b64 %a, %a, 0x4000004000010000;", 0, "or.b64 %a, %a, 0x8000004000010000;", &[]),
    mutant("one step along K twice", "add.u64 %a3, %a0, 6;", 0, "add.u64 %a3, %a0, 4;", &[]),
    mutant(
        "the sum is not cleared",
        "%a0, %b0, %later, 1, 1, 0, 0;",
        0,
        "%a0, %b0, %always, 1, 1, 0, 0;",
        &[FindingKind::Uninitialized],
    ),
    mutant("rows of the result swapped", "xor.b32 %q3, %q3, %q1;", 0, "", &[Race, FindingKind::Uninitialized]),
];

fn random(count: usize, seed: u64) -> Vec<u16> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (((state >> 40) as f32 / (1 << 24) as f32 * 4.0 - 2.0).to_bits() >> 16) as u16
        })
        .collect()
}

/// Two tiles on one block, a ring that wraps twice, ragged rows. The findings, and whether the result is right.
fn run(text: &str, schedule: Schedule) -> (Vec<FindingKind>, Option<Vec<u8>>) {
    let (m, n, k) = (250u64, 256u64, 520u64);
    let emulator = Emulator::new(&EmuOptions::default()).unwrap();
    let put = |count: u64, seed: u64| {
        let bytes: Vec<u8> = random(count as usize, seed).iter().flat_map(|value| value.to_le_bytes()).collect();
        let at = emulator.alloc(count * 2).unwrap();
        emulator.write(at, &bytes).unwrap();
        at
    };
    let (a, b, c) = (put(m * k, 11), put(n * k, 13), put(m * n, 1));
    let table = tessera_emu::driver(&EmuOptions::default()).unwrap();
    let map = |address: DevicePtr, width: u64, rows: u64, tile: u32| {
        let spec = TensorMapSpec {
            dtype: DType::BF16,
            address,
            extents: vec![width, rows],
            strides: vec![width * 2],
            tile: vec![64, tile],
            swizzle: Swizzle::B128,
            l2: L2Promotion::None,
            outside: OutOfBounds::Zero,
        };
        table.tensor_map_encode(&spec).unwrap()
    };
    let params = Params::new().tensor_map(&map(a, k, m, 128)).tensor_map(&map(b, k, n, 256)).tensor_map(&map(c, n, m, 64));
    let params = params.u32(2).u32(1).u32(k.div_ceil(64) as u32);
    let options = LaunchOptions {
        schedule,
        sanitize: Sanitize::ALL,
        shared_bytes: 4 * (49152 + 16) + 4 * 8192,
        patience: 1 << 22,
        ..LaunchOptions::default()
    };
    let module = emulator.load(text).unwrap_or_else(|error| panic!("{error}"));
    let findings = match emulator.launch(&module, "gemm_nt", Dim3::ONE, Dim3::from(384), &params, &options) {
        Ok(report) => report.findings,
        Err(EmuError::Fault { report, .. }) => report.findings,
        Err(error) => panic!("{error}"),
    };
    let mut bytes = vec![0; (m * n * 2) as usize];
    emulator.read(c, &mut bytes).unwrap();
    let clean = findings.is_empty();
    (findings.iter().map(|finding| finding.kind).collect(), clean.then_some(bytes))
}

#[test]
fn every_mutant_is_caught() {
    let path = format!("{}/../../kernels/anchors/gemm_nt.ptx", env!("CARGO_MANIFEST_DIR"));
    let original: Arc<str> = std::fs::read_to_string(path).unwrap().into();
    let (findings, right) = run(&original, Schedule::Lazy);
    assert_eq!(findings, []);
    let right = right.unwrap();
    assert_eq!(run(&original, Schedule::Random), (vec![], Some(right.clone())));
    let mut missed = Vec::new();
    for mutant in MUTANTS {
        let (at, _) =
            original.match_indices(mutant.from).nth(mutant.nth).unwrap_or_else(|| panic!("`{}` is not there", mutant.from));
        let text = format!("{}{}{}", &original[..at], mutant.to, &original[at + mutant.from.len()..]);
        let mut seen = Vec::new();
        // Some show only where a wait runs into its time limit.
        let caught = [Schedule::Lazy, Schedule::Random].into_iter().any(|schedule| {
            let (findings, result) = run(&text, schedule);
            let caught = match mutant.reported {
                [] => findings.is_empty() && result.is_none_or(|bytes| bytes != right),
                kinds => findings.iter().any(|kind| kinds.contains(kind)),
            };
            seen.push(findings);
            caught
        });
        if !caught {
            missed.push((mutant.what, seen));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

//! Several devices behind one driver table, and launches that run at the same time.

use std::sync::Arc;
use std::time::Duration;

use tessera_driver::{Context, DeviceOrdinal, DevicePtr, Dim3, DriverCode, DriverError, DriverTable, Params, SharedHandle};
use tessera_emu::{EmuOptions, Emulator, FindingKind, LaunchOptions, Queued, Sanitize, Schedule, run_together};
use tessera_types::TimeLimit;

fn table(devices: u32) -> Arc<DriverTable> {
    let options = EmuOptions { devices, multiprocessors: Some(2), ..EmuOptions::default() };
    Arc::new(tessera_emu::driver(&options).expect("the emulator"))
}

fn code<T: std::fmt::Debug>(outcome: Result<T, DriverError>) -> Option<DriverCode> {
    outcome.expect_err("an error").code()
}

#[test]
fn devices_have_their_own_memory_and_one_address_space() {
    let table = table(2);
    assert_eq!(table.device_count().expect("a count"), 2);
    let contexts: Vec<Context> =
        (0..2).map(|device| Context::open(Arc::clone(&table), DeviceOrdinal(device)).expect("a context")).collect();
    assert!(matches!(Context::open(Arc::clone(&table), DeviceOrdinal(2)), Err(DriverError::NoSuchDevice { count: 2, .. })));
    let (all, _) = contexts[1].memory().expect("memory");
    let buffer = contexts[0].buffer(1 << 20).expect("a buffer");
    assert_eq!(contexts[1].memory().expect("memory").0, all, "the other device lost nothing");
    assert!(contexts[0].memory().expect("memory").0 < all);
    let other = contexts[1].buffer(1 << 20).expect("a buffer");
    assert_ne!(buffer.pointer(), other.pointer());
}

#[test]
fn a_context_is_let_in_once_and_not_into_itself() {
    let table = table(3);
    let contexts: Vec<Context> =
        (0..3).map(|device| Context::open(Arc::clone(&table), DeviceOrdinal(device)).expect("a context")).collect();
    contexts[0].table().expect("a table").peer_enable(contexts[1].handle()).expect("let in");
    assert_eq!(code(table.peer_enable(contexts[1].handle())), Some(DriverCode::PEER_ALREADY_ENABLED));
    assert_eq!(code(table.peer_enable(contexts[0].handle())), Some(DriverCode::INVALID_VALUE));
    // The other way round is another matter.
    contexts[1].table().expect("a table").peer_enable(contexts[0].handle()).expect("let in");
    assert!(contexts[2].enable_peer(&contexts[0]).expect("an answer") && contexts[2].enable_peer(&contexts[0]).expect("twice"));
}

#[test]
fn what_is_shared_is_opened_while_it_lives() {
    let table = table(2);
    let contexts: Vec<Context> =
        (0..2).map(|device| Context::open(Arc::clone(&table), DeviceOrdinal(device)).expect("a context")).collect();
    let buffer = contexts[0].buffer(4096).expect("a buffer");
    let handle = buffer.share().expect("a handle");
    let opened = contexts[1].table().expect("a table").mem_open(handle).expect("memory");
    assert_eq!(opened, buffer.pointer());
    table.mem_close(opened).expect("closed");
    drop(buffer);
    assert_eq!(code(contexts[1].table().expect("a table").mem_open(handle)), Some(DriverCode::INVALID_VALUE));
    assert_eq!(code(table.mem_open(SharedHandle([7; 64]))), Some(DriverCode::INVALID_VALUE));
}

/// One device writes a word and then a flag of the other one, which waits for the flag and reads the word.
fn message(store: &str, load: &str) -> String {
    format!(
        ".version 8.0
.target sm_90
.address_size 64
.visible .entry sends(.param .u64 word, .param .u64 flag)
{{
    .reg .b64 %d<2>;
    ld.param.u64 %d0, [word];
    ld.param.u64 %d1, [flag];
    st.global.b32 [%d0], 7;
    {store}.global.b32 [%d1], 1;
    ret;
}}
.visible .entry receives(.param .u64 word, .param .u64 flag, .param .u64 result)
{{
    .reg .b64 %d<3>;
    .reg .b32 %r<2>;
    .reg .pred %p;
    ld.param.u64 %d0, [word];
    ld.param.u64 %d1, [flag];
    ld.param.u64 %d2, [result];
again:
    {load}.global.b32 %r0, [%d1];
    setp.eq.b32 %p, %r0, 0;
    @%p bra again;
    ld.global.b32 %r1, [%d0];
    st.global.b32 [%d2], %r1;
    ret;
}}
"
    )
}

/// The races that are found, and what is received.
fn deliver(store: &str, load: &str, schedule: Schedule, seed: u64) -> (usize, u32) {
    let devices = Emulator::group(&EmuOptions::default(), 2).expect("devices");
    assert!(devices[0].let_in(1) && !devices[0].let_in(1) && !devices[0].let_in(0));
    let ptx = message(store, load);
    let modules: Vec<_> = devices.iter().map(|device| device.load(&ptx).expect("a module")).collect();
    let memory: Vec<DevicePtr> = (0..3).map(|_| devices[1].alloc(4).expect("memory")).collect();
    memory.iter().for_each(|&at| devices[1].write(at, &[0; 4]).expect("a write"));
    let [word, flag, result] = memory[..] else { unreachable!("three words") };
    let sends = Params::new().pointer(word).pointer(flag);
    let receives = Params::new().pointer(word).pointer(flag).pointer(result);
    let one = Dim3::ONE;
    let queued = |module, kernel, args| vec![Queued { module, kernel, grid: one, block: one, args }];
    // Who waits comes first.
    let streams =
        [(&devices[1], queued(&modules[1], "receives", &receives)), (&devices[0], queued(&modules[0], "sends", &sends))];
    let sanitize = Sanitize { races: true, ..Sanitize::NONE };
    let options = LaunchOptions { schedule, seed, sanitize, ..LaunchOptions::default() };
    let report = run_together(&streams, &options).unwrap_or_else(|error| panic!("{store}, {load}: {error}"));
    let mut got = [0; 4];
    devices[1].read(result, &mut got).expect("a read");
    let races = report.findings.iter().filter(|finding| finding.kind == FindingKind::Race);
    (races.count(), u32::from_le_bytes(got))
}

#[test]
fn only_the_system_orders_devices() {
    for (schedule, seed) in [(Schedule::Eager, 0), (Schedule::Lazy, 0), (Schedule::Random, 1), (Schedule::Random, 2)] {
        assert_eq!(deliver("st.release.sys", "ld.acquire.sys", schedule, seed), (0, 7), "{schedule:?}");
        for (store, load) in [
            ("st.release.gpu", "ld.acquire.sys"),
            ("st.release.sys", "ld.acquire.gpu"),
            ("st.relaxed.sys", "ld.acquire.sys"),
            ("st.release.sys", "ld.relaxed.sys"),
        ] {
            let (races, _) = deliver(store, load, schedule, seed);
            assert!(races > 0, "{schedule:?}: {store} and {load} order nothing");
        }
    }
}

#[test]
fn a_fence_of_the_system_makes_relaxed_accesses_order_devices() {
    let fenced = |scope: &str| deliver(&format!("fence.acq_rel.{scope}; st.relaxed.sys"), "ld.acquire.sys", Schedule::Eager, 0);
    assert_eq!(fenced("sys"), (0, 7));
    assert!(fenced("gpu").0 > 0, "a fence of the device orders nothing elsewhere");
}

#[test]
fn a_list_of_launches_comes_one_behind_the_other() {
    let devices = Emulator::group(&EmuOptions::default(), 1).expect("a device");
    let ptx = message("st.release.sys", "ld.acquire.sys");
    let module = devices[0].load(&ptx).expect("a module");
    let at = |_| devices[0].alloc(4).expect("memory");
    let memory: Vec<DevicePtr> = (0..3).map(at).collect();
    memory.iter().for_each(|&at| devices[0].write(at, &[0; 4]).expect("a write"));
    let sends = Params::new().pointer(memory[0]).pointer(memory[1]);
    let receives = Params::new().pointer(memory[0]).pointer(memory[1]).pointer(memory[2]);
    let queued = |kernel, args| Queued { module: &module, kernel, grid: Dim3::ONE, block: Dim3::ONE, args };
    let sanitize = Sanitize { races: true, ..Sanitize::NONE };
    let options = LaunchOptions { sanitize, ..LaunchOptions::default() };
    let streams = [(&devices[0], vec![queued("sends", &sends), queued("receives", &receives)])];
    let report = run_together(&streams, &options).expect("both");
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // The other way round nobody ever writes the flag: that is told, not waited for.
    devices[0].write(memory[1], &[0; 4]).expect("a write");
    let streams = [(&devices[0], vec![queued("receives", &receives), queued("sends", &sends)])];
    let message = run_together(&streams, &options).expect_err("stuck").to_string();
    assert!(message.contains("no thread can go on"), "{message}");
}

/// Many blocks that are each short take long, too.
#[test]
fn launches_of_several_devices_keep_their_time() {
    let devices = Emulator::group(&EmuOptions::default(), 2).expect("devices");
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n ret;\n}";
    let module = devices[0].load(text).expect("a module");
    let args = Params::new();
    let run = |blocks: u32, milliseconds: u64| {
        let limit = TimeLimit::within(Duration::from_millis(milliseconds));
        let options = LaunchOptions { limit, ..LaunchOptions::default() };
        let queued = |grid| Queued { module: &module, kernel: "k", grid, block: Dim3::ONE, args: &args };
        let streams = [(&devices[0], vec![queued(Dim3::from(blocks))]), (&devices[1], vec![queued(Dim3::ONE)])];
        run_together(&streams, &options).map_err(|error| error.to_string())
    };
    assert!(run(100, 60_000).is_ok());
    let message = run(i32::MAX as u32, 200).expect_err("it has ended");
    assert!(message.contains("has not ended after 0.2 s"), "{message}");
}

//! Builder methods: warps, barriers, fences, mbarriers, clusters.
//!
//! An mbarrier is 8 bytes of shared memory; its address is 32 bits.

use super::builder::{Builder, Results};
use super::inst::{Address, Arg};
use super::kernel::Value;
use crate::types::Type;
use crate::word::Word;

/// Every lane of a warp.
const ALL_LANES: u32 = u32::MAX;

impl Builder {
    // --- warps

    /// A value of another lane: `mode` is `Idx`, `Up`, `Down` or `Bfly`, `clamp` as PTX has it (31 for a whole warp; 0 for
    /// `Up`).
    pub fn shfl(&mut self, mode: Word, value: Value, lane: Value, clamp: u32) -> Value {
        let (clamp, all) = (self.u32(clamp), self.u32(ALL_LANES));
        self.value(&format!("shfl.sync.{mode}.b32"), &[value.into(), lane.into(), clamp.into(), all.into()])
    }

    /// The value of the lane whose number differs by these bits.
    pub fn shfl_xor(&mut self, value: Value, bits: u32) -> Value {
        let bits = self.u32(bits);
        self.shfl(Word::Bfly, value, bits, 31)
    }

    /// A vote of the warp: `mode` is `All`, `Any` or `Uni`.
    pub fn vote(&mut self, mode: Word, predicate: Value) -> Value {
        let all = self.u32(ALL_LANES);
        self.value(&format!("vote.sync.{mode}.pred"), &[predicate.into(), all.into()])
    }

    /// The lanes where the predicate is true.
    pub fn ballot(&mut self, predicate: Value) -> Value {
        let all = self.u32(ALL_LANES);
        self.value("vote.sync.ballot.b32", &[predicate.into(), all.into()])
    }

    /// A warp's sum, minimum, ... of 32-bit integers: `redux(Word::Add, Type::S32, a)`.
    pub fn redux(&mut self, operation: Word, ty: Type, value: Value) -> Value {
        let all = self.u32(ALL_LANES);
        self.value(&format!("redux.sync.{operation}.{ty}"), &[value.into(), all.into()])
    }

    /// Whether all lanes have the same 64-bit value: the same answer in each.
    pub fn match_all(&mut self, value: Value) -> Value {
        let all = self.u32(ALL_LANES);
        let results = self.instruction("match.all.sync.b64", Results::Pair, &[value.into(), all.into()]);
        results[1]
    }

    /// True in exactly one lane of the warp.
    pub fn elect(&mut self) -> Value {
        let all = self.u32(ALL_LANES);
        let results = self.instruction("elect.sync", Results::Pair, &[all.into()]);
        results[1]
    }

    /// All lanes of the warp meet.
    pub fn warp_sync(&mut self) {
        let all = self.u32(ALL_LANES);
        self.effect("bar.warp.sync", &[all.into()]);
    }

    // --- barriers of the block

    /// All threads of the block meet.
    pub fn bar_sync_all(&mut self) {
        let zero = self.u32(0);
        self.effect("bar.sync", &[zero.into()]);
    }

    /// `threads` threads meet at named barrier `id` (0 to 15).
    pub fn bar_sync(&mut self, id: Value, threads: u32) {
        let threads = self.u32(threads);
        self.effect("bar.sync", &[id.into(), threads.into()]);
    }

    /// Counts at a named barrier without waiting.
    pub fn bar_arrive(&mut self, id: Value, threads: u32) {
        let threads = self.u32(threads);
        self.effect("bar.arrive", &[id.into(), threads.into()]);
    }

    // --- fences

    /// A memory fence: `fence("acq_rel.gpu")`, `fence("proxy.async.shared::cta")`, `fence("mbarrier_init.release.cluster")`.
    pub fn fence(&mut self, kind: &str) {
        self.effect(&format!("fence.{kind}"), &[]);
    }

    // --- mbarriers

    /// Prepares an mbarrier for so many arrivals a phase.
    pub fn mbarrier_init(&mut self, barrier: impl Into<Address>, count: u32) {
        let (barrier, count) = (barrier.into(), self.u32(count));
        self.effect("mbarrier.init.shared::cta.b64", &[barrier.into(), count.into()]);
    }

    /// Arrives once.
    pub fn mbarrier_arrive(&mut self, barrier: impl Into<Address>) {
        let barrier = barrier.into();
        self.instruction("mbarrier.arrive.shared::cta.b64", Results::Sink, &[barrier.into()]);
    }

    /// Arrives once and announces so many bytes of asynchronous copies.
    pub fn mbarrier_arrive_expect(&mut self, barrier: impl Into<Address>, bytes: Value) {
        let barrier = barrier.into();
        self.instruction("mbarrier.arrive.expect_tx.shared::cta.b64", Results::Sink, &[barrier.into(), bytes.into()]);
    }

    /// Arrives at a barrier of another block of the cluster; the address comes from [`Builder::mapa`]. What was read before has been read; what
    /// was written is not said to be seen there: with `.release.cluster` the assembler puts a fence of the whole device before each arrival, which
    /// made products by clusters take 1.5 times as long (`results/clusters-h200.txt`).
    pub fn mbarrier_arrive_remote(&mut self, barrier: impl Into<Address>) {
        let barrier = barrier.into();
        self.instruction("mbarrier.arrive.shared::cluster.b64", Results::Sink, &[barrier.into()]);
    }

    /// Whether the phase of this parity is over, after a while of waiting.
    pub fn mbarrier_try_wait(&mut self, barrier: impl Into<Address>, parity: Value) -> Value {
        let barrier = barrier.into();
        self.value("mbarrier.try_wait.parity.shared::cta.b64", &[barrier.into(), parity.into()])
    }

    /// Waits until the phase of this parity is over. `sm_80` has only the test, which does not suspend.
    pub fn mbarrier_wait(&mut self, barrier: impl Into<Address>, parity: Value) {
        self.spin("mbarrier.try_wait.parity.shared::cta.b64", barrier.into(), parity);
    }

    /// [`Builder::mbarrier_wait`] for targets before `sm_90`.
    pub fn mbarrier_wait_by_test(&mut self, barrier: impl Into<Address>, parity: Value) {
        self.spin("mbarrier.test_wait.parity.shared::cta.b64", barrier.into(), parity);
    }

    fn spin(&mut self, text: &str, barrier: Address, parity: Value) {
        self.repeat_while(&[], |b, _| {
            let done = b.value(text, &[Arg::Address(barrier.clone()), parity.into()]);
            (b.not(done), Vec::new())
        });
    }

    // --- clusters and grids

    /// The address of a shared variable in another block of the cluster.
    pub fn mapa(&mut self, address: Value, rank: Value) -> Value {
        self.value("mapa.shared::cluster.u32", &[address.into(), rank.into()])
    }

    /// Arrives at the cluster's barrier; `relaxed` orders no memory.
    pub fn cluster_arrive(&mut self, relaxed: bool) {
        let order = if relaxed { ".relaxed" } else { "" };
        self.effect(&format!("barrier.cluster.arrive{order}.aligned"), &[]);
    }

    /// Waits at the cluster's barrier.
    pub fn cluster_wait(&mut self) {
        self.effect("barrier.cluster.wait.aligned", &[]);
    }

    /// Waits until the grids before this one are done and their memory is visible.
    pub fn grid_wait(&mut self) {
        self.effect("griddepcontrol.wait", &[]);
    }

    /// Lets the next grid start.
    pub fn grid_launch_dependents(&mut self) {
        self.effect("griddepcontrol.launch_dependents", &[]);
    }

    /// A warpgroup takes registers from the pool: a multiple of 8, at most 256.
    pub fn setmaxnreg_inc(&mut self, registers: u32) {
        self.effect("setmaxnreg.inc.sync.aligned.u32", &[i64::from(registers).into()]);
    }

    /// A warpgroup gives registers to the pool: a multiple of 8, at least 24.
    pub fn setmaxnreg_dec(&mut self, registers: u32) {
        self.effect("setmaxnreg.dec.sync.aligned.u32", &[i64::from(registers).into()]);
    }
}

//! Builder methods: asynchronous copies: `cp.async`, bulk copies, tensor copies.

use super::builder::Builder;
use super::inst::{Address, Arg};
use super::kernel::Value;
use crate::types::Type;

/// What a bulk or tensor copy may say beside its addresses.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyOptions {
    /// The blocks of the cluster that receive it: a 16-bit mask.
    pub multicast: Option<Value>,
    /// An L2 policy, 64 bits.
    pub policy: Option<Value>,
}

/// What a `cp.async` may say to the caches.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheOptions {
    /// Whole 16 bytes do not stay in L1.
    pub bypass_l1: bool,
    /// L2 gets the whole line of 128 bytes.
    pub lines: bool,
    /// An L2 policy, 64 bits.
    pub policy: Option<Value>,
}

impl CopyOptions {
    fn modifiers(self) -> String {
        let multicast = if self.multicast.is_some() { ".multicast::cluster" } else { "" };
        let policy = if self.policy.is_some() { ".L2::cache_hint" } else { "" };
        format!("{multicast}{policy}")
    }

    fn operands(self) -> impl Iterator<Item = Arg> {
        self.multicast.into_iter().chain(self.policy).map(Arg::Use)
    }
}

fn tensor(map: Value, coordinates: &[Value]) -> Arg {
    Arg::Address(Address { base: map, offset: 0, coordinates: Some(coordinates.to_vec()) })
}

impl Builder {
    /// How L2 treats what an access brings there: `evict_first`, `evict_last`.
    pub fn cache_policy(&mut self, priority: &str) -> Value {
        self.value(&format!("createpolicy.fractional.L2::{priority}.b64"), &[])
    }

    /// Copies 4, 8 or 16 bytes from global to shared memory. Only `source_bytes` of them are read, the rest is zero.
    pub fn cp_async(
        &mut self,
        to: impl Into<Address>,
        from: impl Into<Address>,
        bytes: u32,
        source_bytes: Option<Value>,
        options: CacheOptions,
    ) {
        let cache = if bytes == 16 && options.bypass_l1 { "cg" } else { "ca" };
        let hint = if options.policy.is_some() { ".L2::cache_hint" } else { "" };
        let lines = if options.lines { ".L2::128B" } else { "" };
        let mut args: Vec<Arg> = vec![to.into().into(), from.into().into(), i64::from(bytes).into()];
        args.extend(source_bytes.into_iter().chain(options.policy).map(Arg::Use));
        self.effect(&format!("cp.async.{cache}.shared.global{hint}{lines}"), &args);
    }

    /// Closes a group of copies.
    pub fn cp_async_commit(&mut self) {
        self.effect("cp.async.commit_group", &[]);
    }

    /// Waits until at most `pending` groups are under way.
    pub fn cp_async_wait(&mut self, pending: u32) {
        self.effect("cp.async.wait_group", &[i64::from(pending).into()]);
    }

    /// Arrives at an mbarrier when this thread's copies are done; the barrier's count includes this arrival.
    pub fn cp_async_arrive(&mut self, barrier: impl Into<Address>) {
        let barrier = barrier.into();
        self.effect("cp.async.mbarrier.arrive.noinc.shared::cta.b64", &[barrier.into()]);
    }

    /// Bytes from global to shared memory, counted at an mbarrier; addresses and size are multiples of 16.
    pub fn bulk_load(
        &mut self,
        to: impl Into<Address>,
        from: impl Into<Address>,
        bytes: Value,
        barrier: impl Into<Address>,
        options: CopyOptions,
    ) {
        let text = format!("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes{}", options.modifiers());
        let mut args: Vec<Arg> = vec![to.into().into(), from.into().into(), bytes.into(), barrier.into().into()];
        args.extend(options.operands());
        self.effect(&text, &args);
    }

    /// Bytes from shared to global memory, in the thread's current group.
    pub fn bulk_store(&mut self, to: impl Into<Address>, from: impl Into<Address>, bytes: Value) {
        let args = [to.into().into(), from.into().into(), bytes.into()];
        self.effect("cp.async.bulk.global.shared::cta.bulk_group", &args);
    }

    /// One value of 32 or 64 bits, or four of 32, to the shared memory of another block of the cluster, counted in bytes at an mbarrier there; both addresses
    /// come from [`Builder::mapa`].
    pub fn store_async(&mut self, ty: Type, to: impl Into<Address>, values: &[Value], barrier: impl Into<Address>) {
        let (vector, values) = match values {
            [value] => ("", Arg::Use(*value)),
            [_, _] => (".v2", Arg::sources(values)),
            _ => (".v4", Arg::sources(values)),
        };
        let text = format!("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes{vector}.{ty}");
        self.effect(&text, &[to.into().into(), values, barrier.into().into()]);
    }

    /// A tensor's box to shared memory, counted at an mbarrier. Coordinates: innermost first.
    pub fn tensor_load(
        &mut self,
        to: impl Into<Address>,
        map: Value,
        coordinates: &[Value],
        barrier: impl Into<Address>,
        options: CopyOptions,
    ) {
        let rank = coordinates.len();
        let modifiers = options.modifiers();
        let text = format!("cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{modifiers}");
        let mut args: Vec<Arg> = vec![to.into().into(), tensor(map, coordinates), barrier.into().into()];
        args.extend(options.operands());
        self.effect(&text, &args);
    }

    /// A box in shared memory to a tensor, in the thread's current group.
    pub fn tensor_store(&mut self, map: Value, coordinates: &[Value], from: impl Into<Address>) {
        let rank = coordinates.len();
        let args = [tensor(map, coordinates), from.into().into()];
        self.effect(&format!("cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group"), &args);
    }

    /// A box in shared memory into a tensor by `add`, `min`, `max`, ..., in the thread's current group.
    pub fn tensor_reduce(&mut self, operation: &str, map: Value, coordinates: &[Value], from: impl Into<Address>) {
        let rank = coordinates.len();
        let args = [tensor(map, coordinates), from.into().into()];
        self.effect(&format!("cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{operation}.tile.bulk_group"), &args);
    }

    /// Closes the thread's group of bulk stores.
    pub fn bulk_commit(&mut self) {
        self.effect("cp.async.bulk.commit_group", &[]);
    }

    /// Waits until at most `pending` groups still read shared memory.
    pub fn bulk_wait_read(&mut self, pending: u32) {
        self.effect("cp.async.bulk.wait_group.read", &[i64::from(pending).into()]);
    }

    /// Waits until at most `pending` groups are not yet written.
    pub fn bulk_wait(&mut self, pending: u32) {
        self.effect("cp.async.bulk.wait_group", &[i64::from(pending).into()]);
    }

    /// Fetches a tensor map ahead of its first use.
    pub fn prefetch_tensor_map(&mut self, map: Value) {
        self.effect("prefetch.tensormap", &[Address::from(map).into()]);
    }
}

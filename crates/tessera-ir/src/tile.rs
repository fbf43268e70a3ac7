//! The Tile dialect: what the threads of a block do together. A Tile function uses the Schedule dialect for arithmetic,
//! shapes, views, loads, stores, reductions, atomics and control, applied to tiles with layouts, and these operations for
//! threads, shared memory, barriers, asynchronous copies, rings, tensor cores and roles.
//!
//! The whole block runs the function, `num_warps * 32` threads, or `num_threads` of them; a `tile.role` hands a region to some of its warps. A rank-0
//! tile is one value a thread. A tile with axes exists once and is spread over the threads of its role by its layout, so
//! every operation on one is run by all of them together; [`crate::uniformity`] checks that conditions allow it.
//!
//! ```text
//! tile @k(%x: tile<ptr<f32>>, %n: tile<i32>, %s: tile<i32>) abi(x: array<f32, [?], [1], i32, align=16>) hints(num_warps=4) {
//!   %t = tile.thread_id : tile<i32>
//!   %buffer = tile.alloc_shared {align=16} : shared<128xf32>
//!   %p = offset %x, %t : tile<ptr<f32>>
//!   %v, %read = load_ptr_tko %p : tile<f32>, token
//!   tile.store_element %v, %buffer, [%t]
//!   tile.barrier
//!   return
//! }
//! ```
//!
//! # Rings
//! A ring is a queue of `stages` slots in shared memory. A cursor names a slot and the round it is in; every role that uses
//! the ring keeps one of its own and advances it by one slot. A slot goes through four operations in turn:
//!
//! | who | operation | does |
//! |---|---|---|
//! | producer | `tile.acquire` | waits until all consumers have released the slot's former contents |
//! | producer | `tile.tma_load`, copies, stores | fill the slot's buffers |
//! | producer | `tile.commit` | says that what fills the slot has been issued |
//! | consumer | `tile.wait` | waits until the slot is full |
//! | consumer | `tile.release` | says that this consumer reads the slot no more |

use crate::attrs::{AtomicMode, CacheHint, Combine, MarkPhase, RingProducer, ShuffleMode, Signedness, TurnStep};
use crate::types::Shape;

dialect! {
    /// An operation of the Tile dialect.
    TileOp;

    // Identity

    /// Number of this thread in its block.
    ThreadId = "tile.thread_id" () {} -> One : Special, Pure;
    /// Number of this thread in its warp, 0 to 31.
    LaneId = "tile.lane_id" () {} -> One : Special, Pure;
    /// Number of this thread's warp in its block.
    WarpId = "tile.warp_id" () {} -> One : Special, Pure;
    /// Number of this block among those that are launched, where these share the blocks that were asked for (the hint `persistent`).
    Worker = "tile.worker" () {} -> One : Special, Pure;
    /// Number of this block in its cluster, where the cluster's blocks share what was asked of one (the hint `split`).
    ClusterRank = "tile.cluster_rank" () {} -> One : Special, Pure;
    /// Which of the clusters that share a block's rounds this one is.
    ClusterNumber = "tile.cluster_number" () {} -> One : Special, Pure;
    /// How many blocks are launched.
    Workers = "tile.workers" () {} -> One : Special, Pure;
    /// Memory that the blocks of a launch share, zero before the first one, `bytes_per_block` for each block that is launched: its address.
    /// Launches with more than one such memory tell them apart by `number`.
    Workspace = "tile.workspace" () { number: u32, bytes_per_block: u32 } -> One : Special, Pure;

    // Layout

    /// The same tile under another layout.
    ConvertLayout = "tile.convert_layout" (source) {} -> One : Special, Pure, [Together, Exchanges];
    /// The same elements of 16 bits, in registers that the assembler cannot know to hold them: what is computed of them is computed again, and not
    /// held instead. Tiles with other numbers are not taken for each other either.
    Renew = "tile.renew" (source) { number: u32 } -> One : Special, Pure;
    /// The same integer, of which the assembler cannot know that all threads have it. It keeps in registers of the warp what it knows that of, and waits
    /// for what is loaded from such a place where the load stands, not where it is used.
    Vary = "tile.vary" (source) {} -> One : Special, Pure;

    // Shared memory and registers

    /// A buffer in shared memory. `align` counts bytes, and so does `offset`: where the buffer starts in the block's shared memory.
    /// Buffers without one live as long as the block; those with one may share bytes at different times.
    AllocShared = "tile.alloc_shared" () { align: u32, offset: Option<u32> } -> One : Special, Write [make(shared)];
    /// An array of each thread's own that lives as long as the block. Its elements are undetermined until written.
    AllocRegister = "tile.alloc_register" () {} -> One : Special, Write [make(registers)];
    /// Entry `index` of the first axis, without that axis. The same index in all threads of the role.
    SliceShared = "tile.slice_shared" (buffer, index) {} -> One : Special, Pure;
    /// The block at constant offsets, one an axis; its extents are the result's.
    SubviewShared = "tile.subview_shared" (buffer) { offsets: Shape } -> One : Special, Pure;
    /// The same memory under reordered axes: result axis `i` is buffer axis `permutation[i]`.
    TransposeShared = "tile.transpose_shared" (buffer) { permutation: Shape } -> One : Special, Pure;
    /// The same memory with neighbouring axes as one, where these lie one behind the other; the result's extents say which.
    CollapseShared = "tile.collapse_shared" (buffer) {} -> One : Special, Pure;
    /// The buffer's elements as a tile.
    LoadShared = "tile.load_shared" (buffer) {} -> One : Special, Read [read(shared, buffer, to(result))], [Together];
    /// Writes a tile to the whole buffer. With `matrices` by each warp's instruction for matrices of 8 rows of 16 bytes.
    StoreShared = "tile.store_shared" (value, buffer) { matrices: bool } -> None : Special, Write [write(shared, buffer, from(value))], [Together];
    /// Writes a buffer's elements to another buffer of the same shape, in whatever order of axes each of them lies.
    CopyShared = "tile.copy_shared" (source, target) {} -> None : Special, Write [read(shared, source), write(shared, target)], [Together];
    /// One element of a buffer or of a register array, chosen by each thread.
    LoadElement = "tile.load_element" (buffer, indices: many) {} -> One : Special, Read [read(shared | registers, buffer, at(indices), to(result))];
    /// Writes one element of a buffer or of a register array, chosen by each thread. Where threads write different values to
    /// one element at the same time, one of them stays. Those that are `relaxed` are in no order among themselves, of a buffer alone.
    StoreElement = "tile.store_element" (value, buffer, indices: many) { relaxed: bool } -> None : Special, Write [write(shared | registers, buffer, at(indices), from(value))];
    /// Neighbouring elements in one access, one result each: what a pointer points to and what follows it, or an element of a
    /// buffer and what follows along the fastest axis. Together they have 2, 4, 8 or 16 bytes; the first lies at a multiple of that.
    LoadVector = "tile.load_vector" (source, indices: many) { cache: CacheHint } -> Many : Special, Read [read(global | shared, source, at(indices), to(result))];
    /// Writes neighbouring elements in one access, as for loads.
    StoreVector = "tile.store_vector" (values: many, target, indices: many) { cache: CacheHint } -> None : Special, Write [write(global | shared, target, at(indices), from(values))];
    /// Asks for the memory at a pointer to be brought nearer. It changes no value; the pointer must be one that could be loaded from.
    Prefetch = "tile.prefetch" (pointer) {} -> None : Special, Observable [];
    /// Atomic update of one element of a buffer; yields the old value.
    AtomicElement = "tile.atomic_element" (value, buffer, indices: many) { mode: AtomicMode } -> One : Special, Write [update(shared, buffer, at(indices), from(value))];
    /// Atomic compare and swap of one element of a buffer; yields the old value.
    AtomicCasElement = "tile.atomic_cas_element" (compare, value, buffer, indices: many) {} -> One : Special, Write [update(shared, buffer, at(indices), from(value))];

    // Warps

    /// Combines one value a lane over the warp; every lane gets the result. With `redux` by one instruction, which integers of 32 bits have. Round `r` of 16, 8, 4, 2, 1 combines each lane's
    /// value with that of the lane whose number differs in bit `r`, so the order is the same everywhere. A NaN among floats
    /// is ignored by `min` and `max`.
    WarpReduce = "tile.warp_reduce" (value) { combine: Combine, signedness: Signedness, redux: bool } -> One : Special, Observable [], [Convergent];
    /// The value of another lane.
    Shuffle = "tile.shuffle" (value, lane) { mode: ShuffleMode } -> One : Special, Observable [], [Convergent];
    /// The lanes of the warp whose value has the same lowest `bits` bits, lane 0 as the lowest bit. The lane's own bit is among them.
    MatchAny = "tile.match_any" (value) { bits: u32 } -> One : Special, Observable [], [Convergent];
    /// How many bits of an integer are set.
    Popcount = "tile.popcount" (value) {} -> One : Special, Pure;

    /// `acc + lhs x rhs` of 16 x 16 matrices of a warp by its tensor cores. Each lane gives and gets eight elements of a matrix, those that
    /// [`crate::fragment`] says.
    MmaFragment = "tile.mma_fragment" (lhs: many, rhs: many, acc: many) { lhs_signedness: Signedness, rhs_signedness: Signedness } -> Many
        : Special, Observable [], [Convergent];
    /// The same with a left factor of 16 x 32 that is stored by half: `lhs` is what stands in it, `places` says where, as [`crate::fragment`] has it;
    /// of four neighbours two must stand in order. `rhs` are two fragments, the upper rows' first. What does not stand in `lhs` takes no part: its
    /// products are not zeros of infinities.
    MmaFragmentSparse = "tile.mma_fragment_sparse" (lhs: many, places: many, rhs: many, acc: many) { lhs_signedness: Signedness, rhs_signedness: Signedness } -> Many
        : Special, Observable [], [Convergent];

    // Barriers

    /// All threads of the role, outside of roles those of the block, arrive before any goes on; what they wrote to memory before is
    /// seen by all of them after.
    Barrier = "tile.barrier" () {} -> None : Special, Observable [order(global | shared)], [Together];
    /// All threads of all blocks of the cluster arrive before any goes on; what they wrote to shared memory before is seen by all of them after.
    ClusterBarrier = "tile.cluster_barrier" () {} -> None : Special, Observable [order(global | shared)], [Together];
    /// Adds up what the blocks of a cluster hold, in the order of their ranks: each block gets one of `parts` parts along the last axis, that of its
    /// rank; blocks whose rank has none get values that nobody may use. Each block writes to the buffers of the others what they add up, once
    /// all threads of the role there have come here: what a buffer held is no more. Needs `tile.cluster_arrive` before, once for a function.
    ClusterSum = "tile.cluster_sum" (values: many, buffer: optional) { parts: u32 } -> Many
        : Special, Write [write(shared, buffer, from(values)), read(shared, buffer), order(global | shared)], [Together];
    /// Prepares what `tile.cluster_sum` of this function waits at, and says to the cluster's other blocks that it is there. Waits for nobody.
    ClusterArrive = "tile.cluster_arrive" () {} -> None : Special, Observable [order(global | shared)], [Together];
    /// Waits until all blocks of the cluster have been at `tile.cluster_arrive`, for all threads of the block: no thread ends before.
    ClusterWait = "tile.cluster_wait" () {} -> None : Special, Observable [order(global | shared)], [Together];
    /// What each block of the cluster has for a number, or for a line of them, one behind the other in the order of their ranks, in every thread of
    /// every block. It stands in the function's body, so that every block comes to it once; nothing else is ordered by it.
    ClusterGather = "tile.cluster_gather" (numbers) {} -> One : Special, Observable [], [Together];
    /// The same among `threads` threads of a block, those that arrive at the barrier `id` (1 to 15).
    NamedBarrier = "tile.named_barrier" () { id: u32, threads: u32 } -> None : Special, Observable [order(global | shared)], [Convergent];
    /// Arrives at a named barrier without waiting.
    NamedArrive = "tile.named_arrive" () { id: u32, threads: u32 } -> None : Special, Observable [order(global | shared)], [Convergent];

    /// The warpgroups of a role take turns, the first one first: what stands between `take` and `give` is started by one after the other. Uses
    /// barriers `id` to `id + groups - 1`, one a group. Results do not depend on it: it keeps groups from doing the same at the same time.
    GroupTurn = "tile.group_turn" () { id: u32, groups: u32, step: TurnStep } -> None
        : Special, Observable [order(global | shared)], [Convergent];

    // Asynchronous copies

    /// Starts copying a tile of a view into a buffer of its shape; padding is written where the tile leaves the array. With
    /// `bypass_l1`, what moves in whole 16 bytes is kept in L2 only; `cache` says how long, and with `lines` L2 gets all of each line of
    /// 128 bytes of which a part is asked for.
    CopyAsync = "tile.copy_async" (view, index: many, buffer) { bypass_l1: bool, cache: CacheHint, lines: bool } -> None : Special, Write [read(global, view, at(index), copies), write(shared, buffer, copies)], [Together, Exchanges];
    /// Starts copying `bytes` bytes (4, 8 or 16) from each thread's pointer to consecutive elements of the buffer's fastest
    /// axis, from the element that each thread names.
    CopyAsyncElement = "tile.copy_async_element" (pointer, buffer, indices: many) { bytes: u32 } -> None : Special, Write [read(global, pointer, copies), write(shared, buffer, at(indices), copies)];
    /// Makes a group of the copies that each thread has started since its last group.
    CommitGroup = "tile.commit_group" () {} -> None : Special, Observable [order(shared)];
    /// Waits until at most `pending` of each thread's newest groups are unfinished.
    WaitGroup = "tile.wait_group" () { pending: u32 } -> None : Special, Observable [order(shared)];

    // Rings

    /// Makes a queue out of buffers whose first axis counts `stages` slots. `consumers` releases free a slot; `bytes` is what
    /// the accelerator writes into one slot (0 for other producers). With `blocks`, so many blocks of a cluster have a ring like it, fill
    /// each other's slots, and have a slot free when the consumers of all of them have released theirs.
    Ring = "tile.ring" (buffers: many) { stages: u32, producer: RingProducer, consumers: u32, bytes: u32, blocks: Option<u32> } -> One
        : Special, Observable [make(ring)], [Together];
    /// The position before the first slot is filled.
    RingStart = "tile.ring_start" (ring) {} -> One : Special, Pure;
    /// The next slot's position.
    Advance = "tile.advance" (ring, cursor) {} -> One : Special, Pure;
    /// The position `slots` slots further; `slots` is not negative.
    Skip = "tile.skip" (ring, cursor, slots) {} -> One : Special, Pure;
    /// Producer: waits until the slot is free.
    Acquire = "tile.acquire" (ring, cursor) {} -> None : Special, Observable [read(ring, ring), order(shared)], [Together];
    /// Producer: everything that fills the slot has been issued. `bytes` is what the accelerator writes into this one, where that is less than the
    /// ring's.
    Commit = "tile.commit" (ring, cursor) { bytes: Option<u32> } -> None : Special, Observable [read(ring, ring), order(shared)], [Together];
    /// Consumer: waits until the slot is full.
    Wait = "tile.wait" (ring, cursor) {} -> None : Special, Observable [read(ring, ring), order(shared)], [Together];
    /// Consumer: the slot is not read any more by this consumer.
    Release = "tile.release" (ring, cursor) {} -> None : Special, Observable [read(ring, ring), order(shared)], [Together];
    /// The slot's part of a buffer of the ring.
    Slot = "tile.slot" (ring, cursor) { buffer: u32 } -> One : Special, Pure;

    // Tensor memory accelerator

    /// Starts loading a tile of a view into a buffer of the ring's slot; the slot is full when its bytes have arrived. What
    /// lies outside the array is written as zero. With `blocks`, each block of the cluster loads a part of the tile, which is the same in
    /// all of them, into the slots of all.
    TmaLoad = "tile.tma_load" (view, index: many, buffer, ring, cursor) { blocks: Option<u32> } -> None : Special, Write [read(ring, ring), read(global, view, at(index), loads), write(shared, buffer, loads)], [Together];
    /// Starts writing a buffer to a tile of a view; what lies outside the array is dropped.
    TmaStore = "tile.tma_store" (buffer, view, index: many) {} -> None : Special, Write [read(shared, buffer, stores), write(global, view, at(index), stores)], [Together];
    /// Stores a tile of products' sums to a view by the accelerator: each warp sends its own rows, some columns after the others, through
    /// shared memory that belongs to the operation, and waits for no other warp. The accelerator goes on behind it. Rows of sums go through all axes
    /// of the view's tile but the last one.
    SendTile = "tile.send_tile" (value, view, index: many) {} -> None : Special, Write [write(global, view, at(index), from(value), stores)], [Together];
    /// The same by the lanes of each warp, for what the accelerator cannot address: lanes side by side write what lies side by side.
    StoreLines = "tile.store_lines" (value, view, index: many) {} -> None : Special, Write [write(global, view, at(index), from(value))], [Together];
    /// Waits until at most `pending` of the newest stores are unfinished; with `read`, until they have read their buffers.
    TmaStoreWait = "tile.tma_store_wait" () { pending: u32, read: bool } -> None : Special, Observable [order(global | shared)], [Together];

    // Matrix products

    /// `lhs x rhs + acc` with operands read from shared memory: `lhs` is a tile or a buffer, `rhs` a buffer. With `places` half of the left factor is
    /// stored, as `mmaf_sparse` has it.
    MmaShared = "tile.mma_shared" (lhs, rhs, acc, places: optional)
        { fast_acc: bool, lhs_signedness: Signedness, rhs_signedness: Signedness } -> One : Special, Read [read(shared, lhs), read(shared, rhs)], [Together, Exchanges];
    /// The same by an instruction of each warp, of this shape (rows, columns, contraction): factors are tiles in its fragments, or buffers
    /// that they are read from.
    MmaSync = "tile.mma_sync" (lhs, rhs, acc)
        { shape: Shape, lhs_signedness: Signedness, rhs_signedness: Signedness } -> One : Special, Read [read(shared, lhs), read(shared, rhs)], [Together, Exchanges];
    /// The same, started on the tensor cores of warpgroups; no operand may change before it has been waited for. Each is a
    /// group of its own for `tile.wgmma_wait`. `acc` may be in flight itself: products into one accumulator follow each other. Each thread holds of
    /// `places` the words of its rows.
    Wgmma = "tile.wgmma" (lhs, rhs, acc, places: optional)
        { fast_acc: bool, lhs_signedness: Signedness, rhs_signedness: Signedness } -> One : Special, Read [read(shared, lhs, products), read(shared, rhs, products)], [Together];
    /// `lhs x rhs + acc` on the tensor cores of warpgroups where those sum up with fewer bits than `acc` has: they make sums over
    /// `depth` elements of the contraction, which are added to `acc` one after the other.
    WgmmaPromoted = "tile.wgmma_promoted" (lhs, rhs, acc) { depth: u32 } -> One : Special, Read [read(shared, lhs, async_proxy), read(shared, rhs, async_proxy)], [Together];
    /// Waits until at most `pending` of the newest started products are unfinished, and yields the values of those named,
    /// which must be among the finished.
    WgmmaWait = "tile.wgmma_wait" (values: many) { pending: u32 } -> Many : Special, Observable [order(shared)], [Together];

    // Roles

    /// Runs the region on `warps` warps from `first_warp` on, with `registers` registers a thread where it is given. Roles
    /// that follow each other directly run at the same time on disjoint warps; what follows the last runs after all of them.
    Role = "tile.role" () { first_warp: u32, warps: u32, registers: Option<u32> } -> None regions 1 : Special, Regions;
    /// What this thread wrote to shared memory is seen by the asynchronous proxy (the accelerator, `tile.wgmma`).
    FenceAsync = "tile.fence_async" () {} -> None : Special, Observable [order(shared)];

    // Profile

    /// A named point in time, recorded by one lane of each warp that comes here where the function asks for a timeline; else nothing.
    Mark = "tile.mark" () { name: String, phase: MarkPhase } -> None : Special, Observable [order(global | shared)];
}

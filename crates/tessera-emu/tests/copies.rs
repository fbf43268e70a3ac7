//! Bulk copies against index arithmetic: boxes of every rank, swizzles, what lies outside, reductions; clusters with multicast
//! and distributed shared memory.

use std::sync::Arc;

use tessera_driver::{
    Context, DeviceOrdinal, DevicePtr, Dim3, L2Promotion, LaunchSpec, OutOfBounds, Params, Swizzle, TensorMapSpec,
};
use tessera_emu::{EmuOptions, LaunchOptions, Sanitize, Schedule, driver};
use tessera_types::DType;

fn open(schedule: Schedule, sanitize: Sanitize) -> Context {
    let launch = LaunchOptions { schedule, seed: 4, sanitize, ..LaunchOptions::default() };
    Context::open(Arc::new(driver(&EmuOptions { launch, ..EmuOptions::default() }).unwrap()), DeviceOrdinal(0)).unwrap()
}

const RUNS: [(Schedule, Sanitize); 3] =
    [(Schedule::Eager, Sanitize::ALL), (Schedule::Lazy, Sanitize::NONE), (Schedule::Random, Sanitize::NONE)];

/// Loads a box, copies it byte by byte to `raw`, and stores it again through the second map.
fn box_kernel(rank: usize, store: &str) -> String {
    let at: Vec<String> = (0..rank).map(|dim| format!("%c{dim}")).collect();
    let at = at.join(", ");
    let loads: String = (0..rank).map(|dim| format!("    ld.param.s32 %c{dim}, [at+{}];\n", dim * 4)).collect();
    format!(
        ".version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry k(.param .align 64 .b8 from[128], .param .align 64 .b8 to[128], .param .align 4 .b8 at[20], .param .u64 raw, .param .u32 bytes)
{{
    .reg .pred %p, %q;
    .reg .b32 %c<5>, %t, %base, %bar, %bytes, %x, %v;
    .reg .b64 %from, %to, %raw, %o;
    mov.u32 %base, dynamic;
    add.u32 %bar, %base, 65536;
    mov.u32 %t, %tid.x;
    cvta.param.u64 %from, from;
    cvta.param.u64 %to, to;
    ld.param.u64 %raw, [raw];
    ld.param.u32 %bytes, [bytes];
{loads}    setp.eq.u32 %p, %t, 0;
    @%p mbarrier.init.shared::cta.b64 [%bar], 1;
    fence.mbarrier_init.release.cluster;
    bar.sync 0;
    @%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], %bytes;
    @%p cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%base], [%from, {{{at}}}], [%bar];
wait:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%bar], 0;
    @!%q bra wait;
    mov.u32 %x, %t;
next:
    setp.ge.u32 %q, %x, %bytes;
    @%q bra copied;
    add.u32 %v, %base, %x;
    ld.shared.u8 %v, [%v];
    cvt.u64.u32 %o, %x;
    add.u64 %o, %o, %raw;
    st.global.u8 [%o], %v;
    add.u32 %x, %x, 64;
    bra next;
copied:
    bar.sync 0;
    @%p {store} [%to, {{{at}}}], [%base];
    @%p cp.async.bulk.commit_group;
    @%p cp.async.bulk.wait_group 0;
    ret;
}}"
    )
}

struct Shape {
    extents: Vec<u64>,
    tile: Vec<u32>,
    at: Vec<i32>,
    swizzle: Swizzle,
}

fn swizzled(offset: usize, swizzle: Swizzle) -> usize {
    let bits = match swizzle {
        Swizzle::None => 0,
        Swizzle::B32 => 1,
        Swizzle::B64 => 3,
        Swizzle::B128 => 7,
    };
    offset ^ ((offset >> 7 & bits) << 4)
}

#[test]
fn boxes_of_every_rank() {
    let shape = |extents: &[u64], tile: &[u32], at: &[i32], swizzle| Shape {
        extents: extents.to_vec(),
        tile: tile.to_vec(),
        at: at.to_vec(),
        swizzle,
    };
    let shapes = [
        shape(&[40], &[16], &[30], Swizzle::None),
        shape(&[40, 9], &[16, 8], &[-4, 3], Swizzle::B32),
        shape(&[40, 9], &[32, 8], &[16, -2], Swizzle::B64),
        shape(&[72, 20], &[64, 16], &[0, 8], Swizzle::B128),
        shape(&[24, 5, 4], &[8, 3, 2], &[16, 3, 1], Swizzle::None),
        shape(&[16, 3, 4, 2], &[8, 2, 3, 2], &[8, 0, 2, 1], Swizzle::None),
        shape(&[16, 3, 2, 3, 2], &[16, 2, 1, 2, 2], &[0, 2, 1, 1, -1], Swizzle::B32),
    ];
    for shape in &shapes {
        for reduce in [false, true] {
            for (schedule, sanitize) in RUNS {
                let context = open(schedule, sanitize);
                let stream = context.stream().unwrap();
                let rank = shape.extents.len();
                let strides: Vec<u64> = (1..rank).map(|dim| shape.extents[..dim].iter().product::<u64>() * 2).collect();
                let count = shape.extents.iter().product::<u64>() as usize;
                let spec = |address: DevicePtr| TensorMapSpec {
                    dtype: DType::BF16,
                    address,
                    extents: shape.extents.clone(),
                    strides: strides.clone(),
                    tile: shape.tile.clone(),
                    swizzle: shape.swizzle,
                    l2: L2Promotion::None,
                    outside: OutOfBounds::Nan,
                };
                // Whole numbers up to 255 are exact in bf16, and so are their sums.
                let value = |index: usize| (((index * 7) % 127) as f32).to_bits() >> 16;
                let data: Vec<u8> = (0..count).flat_map(|index| (value(index) as u16).to_le_bytes()).collect();
                let (from, to) = (context.buffer(count as u64 * 2).unwrap(), context.buffer(count as u64 * 2).unwrap());
                from.write(0, &data, &stream).unwrap();
                to.write(0, &data, &stream).unwrap();
                let elements: usize = shape.tile.iter().map(|&side| side as usize).product();
                let raw = context.buffer(elements as u64 * 2).unwrap();
                let store = match reduce {
                    false => format!("cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group"),
                    true => format!("cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.add.tile.bulk_group"),
                };
                let mut at = [0; 20];
                for (cell, coordinate) in at.chunks_exact_mut(4).zip(&shape.at) {
                    cell.copy_from_slice(&coordinate.to_le_bytes());
                }
                let params = Params::new()
                    .tensor_map(&context.tensor_map(&spec(from.pointer())).unwrap())
                    .tensor_map(&context.tensor_map(&spec(to.pointer())).unwrap())
                    .aligned(&at, 4)
                    .pointer(raw.pointer())
                    .u32(elements as u32 * 2);
                let kernel = context.module(box_kernel(rank, &store).as_bytes()).unwrap().kernel("k").unwrap();
                kernel.allow_shared(65536 + 8).unwrap();
                kernel.launch(&stream, Dim3::ONE, Dim3::from(64), 65536 + 8, &params).unwrap_or_else(|error| panic!("{error}"));
                let (mut found, mut after) = (vec![0; elements * 2], vec![0; count * 2]);
                raw.read(0, &mut found, &stream).unwrap();
                to.read(0, &mut after, &stream).unwrap();
                let half = |bytes: &[u8], at: usize| u32::from(bytes[at]) | u32::from(bytes[at + 1]) << 8;
                let mut wanted_after: Vec<u32> = (0..count).map(value).collect();
                for element in 0..elements {
                    let (mut rest, mut index, mut step, mut inside) = (element, 0i64, 1i64, true);
                    for dim in 0..rank {
                        let coordinate = i64::from(shape.at[dim]) + (rest % shape.tile[dim] as usize) as i64;
                        rest /= shape.tile[dim] as usize;
                        inside &= (0..shape.extents[dim] as i64).contains(&coordinate);
                        index += coordinate * step;
                        step *= shape.extents[dim] as i64;
                    }
                    let bits = half(&found, swizzled(element * 2, shape.swizzle));
                    let wanted = if inside { value(index as usize) } else { 0x7fc0 };
                    assert_eq!(bits, wanted, "rank {rank}, element {element}, {:?} {schedule:?}", shape.swizzle);
                    if inside && reduce {
                        let number = f32::from_bits(wanted << 16);
                        wanted_after[index as usize] = (number + number).to_bits() >> 16;
                    }
                }
                for (index, wanted) in wanted_after.into_iter().enumerate() {
                    assert_eq!(half(&after, index * 2), wanted, "rank {rank}, reduce {reduce}, {schedule:?}: element {index}");
                }
            }
        }
    }
}

/// Block 0 of each cluster multicasts a line to all; each block adds its rank, then reads its neighbour's first word through
/// distributed shared memory and sends its own number to the neighbour with `st.async`.
const CLUSTER: &str = "
.version 8.1
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry k(.param .u64 from, .param .u64 out)
{
    .reg .pred %p, %q, %first;
    .reg .b16 %mask;
    .reg .b32 %t, %base, %bar, %rank, %size, %next, %far, %v, %x, %far_bar, %b;
    .reg .b64 %from, %out, %o;
    mov.u32 %base, dynamic;
    add.u32 %bar, %base, 1024;
    mov.u32 %t, %tid.x;
    mov.u32 %rank, %cluster_ctarank;
    mov.u32 %size, %cluster_nctarank;
    ld.param.u64 %from, [from];
    ld.param.u64 %out, [out];
    setp.eq.u32 %p, %t, 0;
    @%p mbarrier.init.shared::cta.b64 [%bar], 1;
    @%p mbarrier.init.shared::cta.b64 [%bar+8], 1;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    @%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;
    @%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar+8], 4;
    setp.eq.u32 %first, %rank, 0;
    and.pred %first, %first, %p;
    mov.b16 %mask, 15;
    @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%base], [%from], 256, [%bar], %mask;
wait:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%bar], 0;
    @!%q bra wait;
    mad.lo.u32 %x, %t, 4, %base;
    ld.shared.u32 %v, [%x];
    add.u32 %v, %v, %rank;
    st.shared.u32 [%x], %v;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    add.u32 %next, %rank, 1;
    rem.u32 %next, %next, %size;
    mapa.shared::cluster.u32 %far, %x, %next;
    ld.shared::cluster.u32 %v, [%far];
    add.u32 %x, %base, 512;
    mapa.shared::cluster.u32 %far, %x, %next;
    add.u32 %x, %bar, 8;
    mapa.shared::cluster.u32 %far_bar, %x, %next;
    @%p st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%far], %rank, [%far_bar];
again:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%bar+8], 0;
    @!%q bra again;
    ld.shared.u32 %x, [%base+512];
    mad.lo.u32 %v, %x, 1000, %v;
    mov.u32 %b, %ctaid.x;
    mad.lo.u32 %x, %b, 64, %t;
    mul.wide.u32 %o, %x, 4;
    add.u64 %out, %out, %o;
    st.global.u32 [%out], %v;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ret;
}";

#[test]
fn clusters() {
    for (schedule, sanitize) in RUNS {
        let context = open(schedule, sanitize);
        let stream = context.stream().unwrap();
        let from = context.buffer(256).unwrap();
        let out = context.buffer(8 * 64 * 4).unwrap();
        let data: Vec<u8> = (0..64u32).flat_map(|value| (value * 3).to_le_bytes()).collect();
        from.write(0, &data, &stream).unwrap();
        let kernel = context.module(CLUSTER.as_bytes()).unwrap().kernel("k").unwrap();
        let params = Params::new().pointer(from.pointer()).pointer(out.pointer());
        let spec = LaunchSpec {
            function: kernel.handle(),
            grid: Dim3::from(8),
            block: Dim3::from(64),
            cluster: Some(Dim3::from(4)),
            shared_bytes: 2048,
            overlaps_predecessor: false,
            stream: stream.handle(),
            params: &params,
        };
        kernel.launch_spec(&spec).unwrap_or_else(|error| panic!("{schedule:?}: {error}"));
        let mut bytes = vec![0; 8 * 64 * 4];
        out.read(0, &mut bytes, &stream).unwrap();
        for (index, word) in bytes.chunks_exact(4).enumerate() {
            let (rank, thread) = (index / 64 % 4, index % 64);
            let wanted = thread * 3 + (rank + 1) % 4 + 1000 * ((rank + 3) % 4);
            assert_eq!(u32::from_le_bytes([word[0], word[1], word[2], word[3]]) as usize, wanted, "{schedule:?} {index}");
        }
    }
}

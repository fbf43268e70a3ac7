//! What threads of a block and blocks of a grid do together: reductions, histograms, scans, transposes, sorting, copies.

use tessera_driver::{Dim3, L2Promotion, OutOfBounds, Params, Swizzle, TensorMapSpec};
use tessera_types::DType;

use super::machine::{Stream, each, near, wide};

#[test]
fn sums_and_votes() {
    each(&["reduce.sm_80", "reduce.sm_90a", "reduce.debug"], |m| {
        let mut stream = Stream(1);
        let x = stream.units(3001);
        let (at, out) = (m.put(&x), m.put(&[0.5f32]));
        m.run("block_sum", 5, 128, &Params::new().pointer(at).pointer(out).i32(3001));
        near("sum", wide(&m.get::<f32>(out, 1)), [0.5 + wide(&x).sum::<f64>()], 0.0, 1e-3);

        let x = stream.ints(128, -3000, 3000);
        let (at, out) = (m.put(&x), m.room(128 * 9 * 4));
        m.run("warp_facts", 2, 64, &Params::new().pointer(at).pointer(out));
        let got = m.get::<u32>(out, 128 * 9);
        for (thread, facts) in got.chunks(9).enumerate() {
            let (lane, warp) = (thread % 32, &x[thread / 32 * 32..][..32]);
            let mask = |holds: &dyn Fn(i32) -> bool| (0..32).fold(0u32, |mask, lane| mask | u32::from(holds(warp[lane])) << lane);
            let same = thread >= 64 || warp.iter().all(|v| v >> 20 == warp[0] >> 20);
            let positive = warp.iter().filter(|v| **v > 0).count();
            let wanted = [
                warp[lane ^ 1] as u32,
                warp[..=lane].iter().sum::<i32>() as u32,
                mask(&|v| v & 1 == 1),
                u32::from(warp.iter().all(|v| *v > 100)),
                u32::from(warp.iter().any(|v| *v > 100)),
                mask(&|v| v & 7 == warp[lane] & 7),
                if same { 0xffff_fffe } else { 0 },
                u32::from(positive == 0 || positive == 32),
                if lane & 16 != 0 { 0xffff_0000 } else { 0 },
            ];
            assert_eq!(facts, wanted, "thread {thread}");
        }

        let x = stream.words(64);
        let (at, out) = (m.put(&x), m.room(64 * 8 * 4));
        m.run("warp_redux", 1, 64, &Params::new().pointer(at).pointer(out));
        for (thread, got) in m.get::<u32>(out, 64 * 8).chunks(8).enumerate() {
            let warp = &x[thread / 32 * 32..][..32];
            let signed = || warp.iter().map(|v| *v as i32);
            let wanted = [
                warp.iter().fold(0u32, |a, b| a.wrapping_add(*b)),
                *warp.iter().min().unwrap(),
                *warp.iter().max().unwrap(),
                warp.iter().fold(u32::MAX, |a, b| a & b),
                warp.iter().fold(0, |a, b| a | b),
                warp.iter().fold(0, |a, b| a ^ b),
                signed().min().unwrap() as u32,
                signed().max().unwrap() as u32,
            ];
            assert_eq!(got, wanted);
        }

        let x = stream.ints(192, -900, 1200);
        let (at, out) = (m.put(&x), m.room(2 * 3 * 4));
        m.run("block_votes", 2, 96, &Params::new().pointer(at).pointer(out));
        let wanted: Vec<i32> = x
            .chunks(96)
            .flat_map(|v| [v.iter().filter(|v| *v & 1 == 1).count() as i32, 1, i32::from(v.iter().any(|v| *v > 1000))])
            .collect();
        assert_eq!(m.get::<i32>(out, 6), wanted);
    });
}

#[test]
fn histograms() {
    each(&["histogram.sm_80"], |m| {
        let mut stream = Stream(2);
        let n = 4999;
        let x: Vec<u8> = (0..n).map(|_| (stream.below(40) * stream.below(7)) as u8).collect();
        let mut wanted = vec![0u32; 256];
        x.iter().for_each(|v| wanted[usize::from(*v)] += 1);
        let at = m.put(&x);
        for (kernel, grid) in [("histogram", 4u32), ("histogram_by_warp", 40)] {
            let bins = m.put(&vec![0u32; 256]);
            m.run(kernel, grid, 128, &Params::new().pointer(at).pointer(bins).i32(n));
            assert_eq!(m.get::<u32>(bins, 256), wanted, "{kernel}");
        }
        let x = stream.ints(1000, -50, 50);
        let (at, out, count) = (m.put(&x), m.room(4000), m.put(&[0u32]));
        m.run("compact", 8, 128, &Params::new().pointer(at).pointer(out).pointer(count).i32(1000));
        let mut wanted: Vec<i32> = x.iter().copied().filter(|v| *v > 0).collect();
        assert_eq!(m.get::<u32>(count, 1), [wanted.len() as u32]);
        let mut got = m.get::<i32>(out, wanted.len());
        got.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(got, wanted);
    });
}

#[test]
fn prefix_sums_within_and_over_blocks() {
    each(&["scan.sm_90a"], |m| {
        let n = 1000;
        let x = Stream(3).ints(n, -500, 500);
        let sums = |part: &[i32]| {
            let mut sum = 0;
            part.iter()
                .map(|v| {
                    sum += v;
                    sum
                })
                .collect::<Vec<i32>>()
        };
        let at = m.put(&x);
        let out = m.room(n * 4);
        m.run("scan_block", 8, 128, &Params::new().pointer(at).pointer(out).i32(n as i32));
        let wanted: Vec<i32> = x.chunks(128).flat_map(sums).collect();
        assert_eq!(m.get::<i32>(out, n), wanted);
        let (out, status, ticket) = (m.room(n * 4), m.put(&[0u64; 8]), m.put(&[0u32]));
        let args = Params::new().pointer(at).pointer(out).pointer(status).pointer(ticket).i32(n as i32);
        m.run("scan_chained", 8, 128, &args);
        assert_eq!(m.get::<i32>(out, n), sums(&x));
        let (out, totals, flags) = (m.room(n * 4), m.put(&[0u32; 8]), m.put(&[0u32; 8]));
        m.run("scan_fenced", 8, 128, &Params::new().pointer(at).pointer(out).pointer(totals).pointer(flags).i32(n as i32));
        assert_eq!(m.get::<i32>(out, n), sums(&x));
    });
}

#[test]
fn transposes() {
    each(&["transpose.sm_80"], |m| {
        let (rows, cols) = (70usize, 45usize);
        let mut stream = Stream(4);
        for (kernel, bytes) in [("transpose_8", 1), ("transpose_16", 2), ("transpose_32", 4), ("transpose_64", 8)] {
            let x: Vec<u8> = (0..rows * cols * bytes).map(|_| stream.bits() as u8).collect();
            let (at, out) = (m.put(&x), m.room(x.len()));
            let args = Params::new().pointer(at).pointer(out).i32(rows as i32).i32(cols as i32);
            m.run(kernel, Dim3::new(2, 3, 1), Dim3::new(32, 8, 1), &args);
            let got = m.get::<u8>(out, x.len());
            for (index, element) in got.chunks(bytes).enumerate() {
                let (row, column) = (index / rows, index % rows);
                assert_eq!(element, &x[(column * cols + row) * bytes..][..bytes], "{kernel} {index}");
            }
        }
    });
}

#[test]
fn stencils_and_variables_of_the_module() {
    each(&["stencil.sm_80"], |m| {
        let (w, h) = (50usize, 33usize);
        let mut stream = Stream(5);
        let x = stream.units(w * h);
        let (at, out) = (m.put(&x), m.room(w * h * 4));
        let args = |at, out| Params::new().pointer(at).pointer(out).i32(w as i32).i32(h as i32);
        m.run("blur", Dim3::new(4, 5, 1), Dim3::new(16, 8, 1), &args(at, out));
        let weights = [1.0, 2.0, 1.0, 2.0, 4.0, 2.0, 1.0, 2.0, 1.0];
        let wanted = (0..w * h).map(|i| {
            let clamp = |v: usize, d: usize, most: usize| (v + d).saturating_sub(1).min(most - 1);
            let term = |d: usize| f64::from(x[clamp(i / w, d / 3, h) * w + clamp(i % w, d % 3, w)]) * weights[d] / 16.0;
            (0..9).map(term).sum::<f64>()
        });
        near("blur", wide(&m.get::<f32>(out, w * h)), wanted, 0.0, 1e-6);

        let x: Vec<u8> = (0..w * h).map(|_| stream.below(2) as u8).collect();
        let (at, out, seen) = (m.put(&x), m.room(w * h), m.put(&[0u32]));
        for turn in 0..2 {
            m.run("life", Dim3::new(4, 5, 1), Dim3::new(16, 8, 1), &args(at, out).pointer(seen));
            // The module's counter goes on from launch to launch.
            assert_eq!(m.get::<u32>(seen, 1), [7 + turn]);
        }
        let wanted: Vec<u8> = (0..w * h)
            .map(|i| {
                let cell = |d: usize| x[(i / w + d / 3 + h - 1) % h * w + (i % w + d % 3 + w - 1) % w];
                let around: u8 = (0..9).filter(|d| *d != 4).map(cell).sum();
                u8::from(around == 3 || (around == 2 && x[i] == 1))
            })
            .collect();
        assert_eq!(m.get::<u8>(out, w * h), wanted);
    });
}

#[test]
fn sorting_in_shared_and_in_local_memory() {
    each(&["sorting.sm_80"], |m| {
        let mut stream = Stream(6);
        let mut x = stream.ints(512, -100_000, 100_000);
        let at = m.put(&x);
        m.run_with("bitonic", 2, 256, 1024, &Params::new().pointer(at));
        x.chunks_mut(256).for_each(<[i32]>::sort_unstable);
        assert_eq!(m.get::<i32>(at, 512), x);
        let n = 50;
        let x: Vec<i16> = (0..24 * n).map(|_| stream.bits() as i16).collect();
        let (at, out) = (m.put(&x), m.room(24 * n * 2));
        m.run("insertion", 2, 32, &Params::new().pointer(at).pointer(out).i32(n as i32));
        let got = m.get::<i16>(out, 24 * n);
        for i in 0..n {
            let mut own: Vec<i16> = (0..24).map(|k| x[k * n + i]).collect();
            own.sort_unstable();
            assert_eq!((0..24).map(|k| got[k * n + i]).collect::<Vec<i16>>(), own);
        }
    });
}

#[test]
fn copies_under_way() {
    each(&["pipeline.sm_80"], |m| {
        let (tiles, blocks) = (7usize, 2usize);
        let x = Stream(7).units(blocks * tiles * 512);
        let (at, out) = (m.put(&x), m.room(x.len() * 4));
        m.run("smooth", blocks as u32, 128, &Params::new().pointer(at).pointer(out).i32(tiles as i32));
        let wanted = (0..x.len()).map(|i| {
            let (tile, place) = (i / 512 * 512, i % 512);
            [511, 0, 1].iter().map(|step| f64::from(x[tile + (place + step) % 512])).sum::<f64>()
        });
        near("smooth", wide(&m.get::<f32>(out, x.len())), wanted, 0.0, 1e-6);
    });
    each(&["block_barrier.sm_80", "block_barrier.sm_90a"], |m| {
        let mut stream = Stream(8);
        let x = stream.ints(2 * 5 * 256, -100, 100);
        let (at, out) = (m.put(&x), m.put(&[0i32; 2]));
        m.run("staged_sum", 2, 64, &Params::new().pointer(at).pointer(out).i32(5));
        let weighed = |block: &[i32]| block.chunks(256).zip(1..).map(|(chunk, c)| chunk.iter().sum::<i32>() * c).sum::<i32>();
        assert_eq!(m.get::<i32>(out, 2), x.chunks(5 * 256).map(weighed).collect::<Vec<_>>());
        let x = stream.ints(2 * 3 * 128, -100, 100);
        let (at, out) = (m.put(&x), m.room(x.len() * 4));
        m.run("exchange", 2, 256, &Params::new().pointer(at).pointer(out).i32(3));
        let wanted: Vec<i32> = x.chunks(128).flat_map(|line| line.iter().rev().map(|v| v * 2)).collect();
        assert_eq!(m.get::<i32>(out, x.len()), wanted);
    });
}

#[test]
fn boxes_and_lines_by_the_copy_engine() {
    each(&["bulk.sm_90a"], |m| {
        let mut stream = Stream(9);
        let (w, h) = (68usize, 37usize);
        let x = stream.ints(w * h, -1000, 1000);
        let (at, out) = (m.put(&x), m.put(&vec![0i32; w * h]));
        let table = tessera_emu::driver(&tessera_emu::EmuOptions::default()).unwrap();
        let map = |address| {
            let spec = TensorMapSpec {
                dtype: DType::I32,
                address,
                extents: vec![w as u64, h as u64],
                strides: vec![w as u64 * 4],
                tile: vec![32, 16],
                swizzle: Swizzle::None,
                l2: L2Promotion::None,
                outside: OutOfBounds::Zero,
            };
            table.tensor_map_encode(&spec).unwrap()
        };
        m.run("add_one", Dim3::new(3, 3, 1), 64, &Params::new().tensor_map(&map(at)).tensor_map(&map(out)));
        assert_eq!(m.get::<i32>(out, w * h), x.iter().map(|v| v + 1).collect::<Vec<_>>());
        let lines = 7;
        let x = stream.units(3 * lines * 128);
        let (at, out) = (m.put(&x), m.put(&[1f32; 128]));
        m.run("ring_sum", 3, 160, &Params::new().pointer(at).pointer(out).i32(lines as i32));
        let wanted = (0..128).map(|column| 1.0 + (0..3 * lines).map(|line| f64::from(x[line * 128 + column])).sum::<f64>());
        near("ring", wide(&m.get::<f32>(out, 128)), wanted, 0.0, 1e-5);
    });
}

#[test]
fn clusters_share_their_memory() {
    each(&["cluster.sm_90a"], |m| {
        let mut stream = Stream(10);
        let x = stream.words(3000);
        let (at, bins) = (m.put(&x), m.put(&[0u32; 64]));
        m.run("cluster_histogram", 8, 64, &Params::new().pointer(at).pointer(bins).i32(3000));
        let mut wanted = vec![0u32; 64];
        x.iter().for_each(|v| wanted[(v % 64) as usize] += 1);
        assert_eq!(m.get::<u32>(bins, 64), wanted);
        let x = stream.units(4 * 2 * 64);
        let (at, out) = (m.put(&x), m.room(x.len() * 4));
        m.run_with("rotate", Dim3::new(4, 2, 1), 64, 256, &Params::new().pointer(at).pointer(out));
        let got = m.get::<f32>(out, x.len());
        for (i, got) in got.iter().enumerate() {
            let (block, t) = (i / 64, i % 64);
            let (bx, by) = (block % 4, block / 4);
            let rank = bx % 2 + by * 2;
            let next = (rank + 1) % 4;
            let other = (next / 2) * 4 + bx / 2 * 2 + next % 2;
            assert_eq!(*got, x[other * 64 + 63 - t] + rank as f32, "{i}");
        }
    });
}

#[test]
fn waiting_for_an_earlier_grid() {
    each(&["dependent.sm_90a"], |m| {
        let x = Stream(11).ints(300, -100, 100);
        let (at, out) = (m.put(&x), m.room(1200));
        m.run("follow", 3, 128, &Params::new().pointer(at).pointer(out).i32(300));
        assert_eq!(m.get::<i32>(out, 300), x.iter().map(|v| v * 3 + 1).collect::<Vec<_>>());
    });
}

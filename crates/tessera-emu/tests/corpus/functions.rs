//! Calls, divergence, atomics, printing, and registers of the machine.

use tessera_driver::{Dim3, Params};
use tessera_types::element;

use super::machine::{Stream, each, near, wide};

fn fibonacci(n: u64) -> u64 {
    if n < 2 { n } else { fibonacci(n - 1) + fibonacci(n - 2) }
}

fn levels(depth: i32, above: &mut [i32; 4]) -> i32 {
    let mut own = [0, 1, 2, 3].map(|i| depth * 10 + i);
    if depth > 0 {
        levels(depth - 1, &mut own);
    }
    let sum = own.iter().sum();
    above[(depth % 4) as usize] += sum;
    sum
}

#[test]
fn functions_that_stay_functions() {
    each(&["calls.sm_90a", "calls.debug"], |m| {
        let mut stream = Stream(21);
        let x = stream.ints(128, -1000, 1000);
        let (at, out, weights) = (m.put(&x), m.room(512), m.room(512));
        m.run("by_value", 1, 64, &Params::new().pointer(at).pointer(out).pointer(weights));
        let wanted: Vec<i32> = x.chunks(2).flat_map(|p| [p[0].min(p[1]), p[0].max(p[1])]).collect();
        assert_eq!(m.get::<i32>(out, 128), wanted);
        assert_eq!(m.get::<f64>(weights, 64), (0..64).map(|i| f64::from(i) * 0.5).collect::<Vec<_>>());

        let out = m.room(64 * 8);
        m.run("recursive", 1, 64, &Params::new().pointer(out));
        assert_eq!(m.get::<u64>(out, 64), (0..64).map(|i| fibonacci(i % 13) * 2 + u64::from(i % 2 == 0)).collect::<Vec<_>>());

        let out = m.room(64 * 4);
        m.run("nested_arrays", 1, 64, &Params::new().pointer(out));
        let wanted = (0..64).map(|i| {
            let mut own = [1, 2, 3, 4];
            levels(i % 6, &mut own);
            own.iter().fold(0, |sum, v| sum * 3 + v)
        });
        assert_eq!(m.get::<i32>(out, 64), wanted.collect::<Vec<_>>());

        let (a, b) = (stream.ints(64, -1000, 1000), stream.ints(64, -1000, 1000));
        let (at, bt, out) = (m.put(&a), m.put(&b), m.room(256));
        m.run("by_pointer", 1, 64, &Params::new().pointer(at).pointer(bt).pointer(out));
        let wanted = a.iter().zip(&b).map(|(&a, &b)| match (a ^ b) & 3 {
            0 => a + b,
            1 => a - b,
            2 => a * b,
            _ => fibonacci((a & 7) as u64) as i32 * b,
        });
        assert_eq!(m.get::<i32>(out, 64), wanted.collect::<Vec<_>>());

        let out = m.room(256);
        m.run("by_virtual", 1, 64, &Params::new().pointer(out));
        let wanted = (0..64).map(|i| if i % 3 != 0 { i * i * 7 + i * i } else { i + 7 });
        assert_eq!(m.get::<i32>(out, 64), wanted.collect::<Vec<_>>());

        let x: Vec<i32> = stream.words(64).into_iter().map(|v| v as i32).collect();
        let before = stream.ints(64, -5, 5);
        let (at, out) = (m.put(&x), m.put(&before));
        m.run("by_switch", 1, 64, &Params::new().pointer(at).pointer(out));
        let wanted = x.iter().zip(&before).map(|(&v, &old)| match v & 15 {
            0 => v.wrapping_mul(3),
            1 => v ^ 0x55,
            2 => v.count_ones() as i32,
            3 => v / 7,
            4 => v.wrapping_sub(old),
            5 => v.leading_zeros() as i32,
            6 => v % 11,
            7 => !v,
            8 => v.reverse_bits(),
            9 | 10 => v >> 2,
            11 => v.wrapping_mul(v),
            _ => -1,
        });
        assert_eq!(m.get::<i32>(out, 64), wanted.collect::<Vec<_>>());
    });
}

#[test]
fn threads_go_their_own_ways() {
    each(&["divergent.sm_90a"], |m| {
        let (w, h, most) = (40i32, 21i32, 60);
        let out = m.room((w * h * 4) as usize);
        m.run("escape", Dim3::new(3, 3, 1), Dim3::new(16, 8, 1), &Params::new().pointer(out).i32(w).i32(h).i32(most));
        let wanted = (0..w * h).map(|i| {
            let (cr, ci) = (i % w * 12288 / w - 8192, i / w * 8192 / h - 4096);
            let (mut zr, mut zi, mut n) = (0i32, 0i32, 0);
            while n < most && zr.wrapping_mul(zr).wrapping_add(zi.wrapping_mul(zi)) < 4 * 4096 * 4096 {
                let t = zr.wrapping_mul(zr).wrapping_sub(zi.wrapping_mul(zi)) / 4096 + cr;
                zi = (2i32.wrapping_mul(zr).wrapping_mul(zi)) / 4096 + ci;
                zr = t;
                n += 1;
            }
            n
        });
        assert_eq!(m.get::<i32>(out, (w * h) as usize), wanted.collect::<Vec<_>>());

        let mut stream = Stream(22);
        let rows = 37usize;
        let mut starts = vec![0i32];
        for _ in 0..rows {
            starts.push(starts[starts.len() - 1] + stream.below(90) as i32);
        }
        let count = starts[rows] as usize;
        let (columns, values, x) = (stream.ints(count, 0, 200), stream.units(count), stream.units(200));
        let (st, ct, vt, xt, out) = (m.put(&starts), m.put(&columns), m.put(&values), m.put(&x), m.room(rows * 4));
        let args = Params::new().pointer(st).pointer(ct).pointer(vt).pointer(xt).pointer(out).i32(rows as i32);
        m.run("sparse", 10, 128, &args);
        let wanted = (0..rows).map(|row| {
            (starts[row] as usize..starts[row + 1] as usize)
                .map(|i| f64::from(values[i]) * f64::from(x[columns[i] as usize]))
                .sum()
        });
        near("sparse", wide(&m.get::<f32>(out, rows)), wanted, 0.0, 1e-4);

        let x: Vec<u32> = (0..200).map(|i| if i == 50 { 63_728_127 } else { 1 + stream.below(5000) as u32 }).collect();
        let (at, out) = (m.put(&x), m.room(800));
        m.run("collatz", 2, 128, &Params::new().pointer(at).pointer(out).i32(200));
        let wanted = x.iter().map(|&x| {
            let (mut v, mut steps) = (u64::from(x), 0);
            loop {
                match v {
                    1 => return steps,
                    _ if steps > 200 => return u32::MAX,
                    _ if v & 1 == 1 => v = 3 * v + 1,
                    _ if v & 2 == 2 => v >>= 1,
                    _ => (v, steps) = (v >> 2, steps + 1),
                }
                steps += 1;
            }
        });
        assert_eq!(m.get::<u32>(out, 200), wanted.collect::<Vec<_>>());

        let (lock, count) = (m.put(&[0i32]), m.put(&[0i32]));
        m.run("locked", 3, 40, &Params::new().pointer(lock).pointer(count));
        assert_eq!(m.get::<i32>(count, 1), [120]);
    });
}

#[test]
fn atomics() {
    each(&["atomics.sm_90a"], |m| {
        let mut stream = Stream(23);
        let x: Vec<i32> = stream.ints(256, -5000, 5000);
        let ints = m.put(&[3i32, 4, i32::MAX, i32::MIN]);
        let words = m.put(&[u32::MAX, 0, 0x1234, 7, 0, u32::MAX, 0, 0, 0, 0]);
        let longs = m.put(&[10u64, i64::MIN as u64, 5]);
        let (at, f, d) = (m.put(&x), m.put(&[1f32]), m.put(&[2f64]));
        let args = Params::new().pointer(at).pointer(ints).pointer(words).pointer(longs).pointer(f).pointer(d);
        m.run("global_cells", 4, 64, &args);
        let sum: i32 = x.iter().sum();
        assert_eq!(m.get::<i32>(ints, 4), [3 + sum, 4 - sum, *x.iter().min().unwrap(), *x.iter().max().unwrap()]);
        let mut cells = vec![u32::MAX, 0, 0x1234, 7, 0, u32::MAX, 0, 0, 0, 0];
        let mut wide_cells = [10u64, i64::MIN as u64, 5];
        for (i, &v) in x.iter().enumerate() {
            let u = v as u32;
            cells[0] &= u | 0xff;
            cells[1] |= u & 0xf0f0;
            cells[2] ^= u;
            cells[3] = if cells[3] >= 99 { 0 } else { cells[3] + 1 };
            cells[4] = if cells[4] == 0 || cells[4] > 49 { 49 } else { cells[4] - 1 };
            cells[5] = cells[5].min(u);
            cells[6 + i / 64] = cells[6 + i / 64].max(u);
            wide_cells[0] = wide_cells[0].wrapping_add(i64::from(v) as u64);
            wide_cells[1] = (wide_cells[1] as i64).max(i64::from(v) << 20) as u64;
            wide_cells[2] ^= (i64::from(v) as u64) << 32;
        }
        assert_eq!(m.get::<u32>(words, 10), cells);
        assert_eq!(m.get::<u64>(longs, 3), wide_cells);
        let low: i32 = x.iter().map(|v| v & 15).sum();
        assert_eq!(m.get::<f32>(f, 1), [1.0 + low as f32]);
        assert_eq!(m.get::<f64>(d, 1), [2.0 + 0.25 * f64::from(low)]);

        let (product, head, next) = (m.put(&[3u32]), m.put(&[-1i32]), m.room(1024));
        m.run("swapped", 4, 64, &Params::new().pointer(at).pointer(product).pointer(head).pointer(next));
        let wanted = x.iter().fold(3u32, |p, v| p.wrapping_mul(*v as u32 | 1));
        assert_eq!(m.get::<u32>(product, 1), [wanted]);
        let (next, mut node) = (m.get::<i32>(next, 256), m.get::<i32>(head, 1)[0]);
        let mut seen = vec![false; 256];
        while node >= 0 {
            assert!(!std::mem::replace(&mut seen[node as usize], true));
            node = next[node as usize];
        }
        assert!(seen.iter().all(|seen| *seen));

        // Sums of small multiples of 1/8 are exact in any order.
        let halves: Vec<u16> = (0..128).map(|_| element::f32_to_f16(stream.below(9) as f32 * 0.125 - 0.5)).collect();
        let (at, sum, other, one, cell) = (m.put(&halves), m.put(&[0u32]), m.put(&[0u32]), m.put(&[0u32]), m.put(&[0u16, 7]));
        m.run("halves", 2, 32, &Params::new().pointer(at).pointer(sum).pointer(other).pointer(one).pointer(cell));
        let total = |part: usize| halves.iter().skip(part).step_by(2).map(|h| element::f16_to_f32(*h)).sum::<f32>();
        let got: Vec<f32> = m.get::<u16>(sum, 2).into_iter().map(element::f16_to_f32).collect();
        assert_eq!(got, [total(0), total(1)]);
        let got: Vec<f32> = m.get::<u16>(other, 2).into_iter().map(element::bf16_to_f32).collect();
        assert_eq!(got, [total(0), total(1)]);
        assert_eq!(element::f16_to_f32(m.get::<u16>(one, 1)[0]), total(0));
        let cells = m.get::<u16>(cell, 2);
        assert!((1..=32).contains(&cells[0]) && cells[1] == 7, "{cells:?}");

        let (boxes, out) = (m.put(&[5i32, 0, 0, 0, 0, 0, 0]), m.room(24));
        m.run("passed", 6, 32, &Params::new().pointer(boxes).pointer(out));
        assert_eq!(m.get::<i32>(out, 6), [5, 6, 7, 8, 9, 10]);
    });
}

#[test]
fn kernels_print() {
    each(&["print.sm_90a", "print.debug"], |m| {
        let x = [10, -3, 70000];
        let at = m.put(&x);
        let output = m.run("say", 1, 32, &Params::new().pointer(at).i32(3)).output;
        let mut lines: Vec<&str> = output.lines().collect();
        lines.sort_unstable();
        let wanted = [
            "15.000 and 1.234568e+04, long -5000000000, unsigned 18446744073709551615, name tile, width [42    ] [000042]",
            "no arguments",
            "thread 0 of 3: x =    10, hex 0000000a, a%",
            "thread 1 of 3: x =    -3, hex fffffffd, b%",
            "thread 2 of 3: x = 70000, hex 00011170, c%",
        ];
        assert_eq!(lines, wanted);
    });
}

#[test]
fn registers_of_the_machine() {
    each(&["machine.sm_90a"], |m| {
        let out = m.room(96 * 6 * 8);
        m.run("clocks", 2, 48, &Params::new().pointer(out));
        for (i, got) in m.get::<i64>(out, 96 * 6).chunks(6).enumerate() {
            assert!((1..1_000_000).contains(&got[0]) && (1..1_000_000).contains(&got[1]), "{got:?}");
            assert!((0..132).contains(&got[3]), "{got:?}");
            assert_eq!((got[2], got[4], got[5]), (1, (i % 48 % 32) as i64, (i % 48 / 32) as i64));
        }
        let out = m.room(12 * 60 * 4);
        m.run("numbered", Dim3::new(3, 2, 2), Dim3::new(5, 4, 3), &Params::new().pointer(out));
        let wanted: Vec<u32> = (0..12 * 60).map(|i| ((i / 60) << 16) | ((i % 60) << 4) | 4).collect();
        assert_eq!(m.get::<u32>(out, 12 * 60), wanted);
    });
}

//! Random bf16 data and their exact values.

/// A small generator (splitmix64): the data must be random, not secret.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Two N(0, 1) numbers by Box and Muller.
    fn pair(&mut self) -> (f32, f32) {
        let unit = |bits: u64| ((bits >> 40) as f32 + 0.5) / (1 << 24) as f32;
        let (u, v) = (unit(self.next()), unit(self.next()));
        let (radius, angle) = ((-2.0 * u.ln()).sqrt(), std::f32::consts::TAU * v);
        (radius * angle.cos(), radius * angle.sin())
    }
}

/// `count` N(0, 1) numbers in bf16, made on all cores.
pub(crate) fn normal(count: usize, seed: u64) -> Vec<u16> {
    let mut data = vec![0u16; count];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = count.div_ceil(threads).next_multiple_of(2).max(2);
    std::thread::scope(|scope| {
        for (index, part) in data.chunks_mut(share).enumerate() {
            scope.spawn(move || {
                let mut random = Random::new(seed.wrapping_mul(1_000_003).wrapping_add(index as u64));
                for two in part.chunks_mut(2) {
                    let (a, b) = random.pair();
                    two[0] = to_bf16(a);
                    if let Some(second) = two.get_mut(1) {
                        *second = to_bf16(b);
                    }
                }
            });
        }
    });
    data
}

fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) as u16
}

pub(crate) fn from_bf16(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

pub(crate) fn bytes(data: &[u16]) -> Vec<u8> {
    data.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub(crate) fn words(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
}

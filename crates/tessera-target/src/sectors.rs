//! What accesses to the device's memory cost: the sectors that every instruction of a finished kernel fetches or writes for a warp, from the
//! addresses that its lanes compute.
//!
//! Memory moves in sectors of 32 bytes. A warp that wants 128 bytes needs four; where its lanes ask for words that lie apart, it
//! moves up to 32 of them, and uses an eighth of each.
//!
//! ```text
//! ld.global.b32    lanes 4 bytes apart: 128 bytes in 4 of 4 sectors      lanes 4096 bytes apart: 128 bytes in 32 of 4
//! ```

use std::collections::BTreeSet;

use tessera_ptx::ssa::{Kernel, Space, Touch};

use super::access::{Access, accesses};

/// Bytes of a sector.
pub const SECTOR: u64 = 32;

/// What one instruction on the device's memory costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SectorCost {
    /// Different bytes that a warp asks for, 0 where data decides.
    pub requested: u64,
    /// Sectors that they lie in, and the fewest that they could lie in; `None` where data decides.
    pub sectors: Option<(u32, u32)>,
    /// Bytes from each lane's address to the next lane's, where that is the same for all.
    pub stride: Option<i64>,
}

impl SectorCost {
    /// More than twice as many sectors move as are needed.
    pub fn is_scattered(&self) -> bool {
        self.sectors.is_some_and(|(moved, needed)| moved > 2 * needed)
    }
}

/// Every access of a kernel to the device's memory.
pub fn global_accesses(kernel: &Kernel) -> Vec<Access<SectorCost>> {
    accesses(kernel, Space::Global, cost)
}

fn cost(touch: &Touch) -> SectorCost {
    let mut cost = SectorCost::default();
    for addresses in &touch.rounds {
        let asked: BTreeSet<u64> =
            addresses.iter().flatten().flat_map(|&first| first..first.saturating_add(u64::from(touch.bytes))).collect();
        let moved = asked.iter().map(|byte| byte / SECTOR).collect::<BTreeSet<_>>().len() as u32;
        let needed = (asked.len() as u64).div_ceil(SECTOR) as u32;
        if moved > 0 && cost.sectors.is_none_or(|(worst, _)| moved > worst) {
            cost = SectorCost { requested: asked.len() as u64, sectors: Some((moved, needed)), stride: stride(addresses) };
        }
    }
    cost
}

fn stride(addresses: &[Option<u64>]) -> Option<i64> {
    let lanes: Vec<u64> = addresses.iter().copied().collect::<Option<_>>()?;
    let mut steps = lanes.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) as i64);
    let first = steps.next()?;
    steps.all(|step| step == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use tessera_ptx::Type;
    use tessera_ptx::ssa::Builder;

    use super::*;

    fn read(step: u32, words: usize) -> SectorCost {
        let mut b = Builder::new("k");
        let base = b.u64(1 << 20);
        let thread = b.special(tessera_ptx::Special::TidX);
        let step = b.u32(step);
        let offset = b.mul(Type::U32, thread, step);
        let offset = b.cvt(Type::U64, Type::U32, offset);
        let address = b.add(Type::U64, base, offset);
        let values = b.ld_vector("global", Type::B32, words, address);
        b.st_vector("global", Type::B32, address, &values);
        b.ret();
        global_accesses(&b.finish().expect("a kernel")).remove(0).cost
    }

    #[test]
    fn neighbours_share_sectors_and_strides_do_not() {
        let close = read(4, 1);
        assert_eq!((close.requested, close.sectors, close.stride), (128, Some((4, 4)), Some(4)));
        let wide = read(16, 4);
        assert_eq!((wide.requested, wide.sectors, wide.is_scattered()), (512, Some((16, 16)), false));
        let apart = read(4096, 1);
        assert_eq!((apart.requested, apart.sectors, apart.is_scattered()), (128, Some((32, 4)), true));
        assert_eq!(read(0, 1).sectors, Some((1, 1)));
    }
}

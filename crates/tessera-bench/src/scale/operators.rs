//! Operators whose ranks exchange while they compute.

use super::machine::Machine;
use crate::collectives::Collective;

/// A product and a collective of one of its operands or of its result, cut into one piece a rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Product {
    /// Rows of the whole result, which are cut.
    pub m: u64,
    /// Columns of the whole result.
    pub n: u64,
    /// The contraction.
    pub k: u64,
    /// Bytes of an element.
    pub element: u64,
    /// Operations a microsecond that a GPU does of such products.
    pub rate: f64,
}

/// Microseconds of both parts, one after another and overlapped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overlap {
    /// The product alone.
    pub compute: f64,
    /// The exchange alone.
    pub exchange: f64,
    /// One after another.
    pub serial: f64,
    /// In pieces: the longer part, and one piece of the other that nothing hides.
    pub overlapped: f64,
}

impl Overlap {
    fn of(compute: f64, exchange: f64, pieces: f64) -> Overlap {
        let overlapped = compute.max(exchange) + compute.min(exchange) / pieces;
        Overlap { compute, exchange, serial: compute + exchange, overlapped }
    }
}

impl Product {
    /// Every rank gathers all rows of the left operand and has its share of the columns.
    pub fn gathered(&self, machine: &Machine, ranks: usize) -> Overlap {
        self.overlap(machine, ranks, Collective::AllGather, self.m * self.k)
    }

    /// Every rank has its share of the contraction and gets its rows of the sum.
    pub fn scattered(&self, machine: &Machine, ranks: usize) -> Overlap {
        self.overlap(machine, ranks, Collective::ReduceScatter, self.m * self.n)
    }

    fn overlap(&self, machine: &Machine, ranks: usize, collective: Collective, elements: u64) -> Overlap {
        let compute = 2.0 * self.m as f64 * self.n as f64 * self.k as f64 / ranks as f64 / self.rate;
        let exchange = machine.best(collective, ranks, elements * self.element).1;
        Overlap::of(compute, exchange, ranks as f64)
    }
}

/// Ring attention: every rank has its queries, and the keys and values of all ranks go round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RingAttention {
    /// Tokens of a rank.
    pub tokens: u64,
    /// Heads of queries.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Width of a head.
    pub width: u64,
    /// Bytes of an element.
    pub element: u64,
    /// Operations a microsecond that a GPU does of attention.
    pub rate: f64,
}

impl RingAttention {
    /// The most tokens of a rank that are looked at.
    pub const MOST_TOKENS: u64 = 1 << 20;

    /// Microseconds of one step's attention and of its exchange.
    pub fn step(&self, machine: &Machine, ranks: usize) -> (f64, f64) {
        let tokens = self.tokens as f64;
        let compute = 4.0 * tokens * tokens * (self.heads * self.width) as f64 / self.rate;
        let bytes = 2.0 * tokens * (self.kv_heads * self.width * self.element) as f64;
        let exchange = match ranks <= machine.gpus {
            true => machine.ring.step + bytes / machine.ring.rate,
            // The slowest hop decides: one card between two nodes.
            false => machine.network.tree_step[1] + bytes * machine.gpus as f64 / machine.network.node_rate,
        };
        (compute, exchange)
    }

    /// Both parts of all steps: the last one exchanges nothing.
    pub fn time(&self, machine: &Machine, ranks: usize) -> Overlap {
        let (compute, exchange) = self.step(machine, ranks);
        let (steps, hops) = (ranks as f64, ranks as f64 - 1.0);
        Overlap {
            compute: steps * compute,
            exchange: hops * exchange,
            serial: steps * compute + hops * exchange,
            overlapped: hops * compute.max(exchange) + compute,
        }
    }

    /// Tokens of a rank from which on the exchange is hidden, among powers of two up to [`RingAttention::MOST_TOKENS`].
    pub fn hidden_from(&self, machine: &Machine, ranks: usize) -> Option<u64> {
        let hides = |tokens: u64| {
            let (compute, exchange) = RingAttention { tokens, ..*self }.step(machine, ranks);
            compute >= exchange
        };
        (5..=RingAttention::MOST_TOKENS.trailing_zeros()).map(|power| 1u64 << power).find(|&tokens| hides(tokens))
    }
}

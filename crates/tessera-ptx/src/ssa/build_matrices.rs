//! Builder methods: `ldmatrix`, `stmatrix`, `mma.sync`, and the `wgmma` family.
//!
//! A warpgroup's products run on their own. Their accumulators are *in flight* from the instruction to the wait:
//!
//! ```text
//! acc = wgmma_fence(acc)                     registers written before are seen by what follows
//! acc = wgmma("m64n256k16.f32.bf16.bf16", acc, a, b, ...)
//! wgmma_commit()
//! acc = wgmma_wait(0, acc, [])               only this one may be read
//! ```
//!
//! Fence, product and wait take the accumulators and give them back in the same registers, so no pass can move a use in
//! front of the wait or a definition behind the fence.

use super::builder::{Builder, Results};
use super::inst::{Address, Arg};
use super::kernel::{Class, Value};
use crate::types::Type;

/// The A operand of a warpgroup's product.
#[derive(Clone, Copy, Debug)]
pub enum WgmmaA<'a> {
    /// A descriptor of shared memory, 64 bits.
    Shared(Value),
    /// Registers; they must be named to the wait, which keeps them as they are until then.
    Registers(&'a [Value]),
}

/// How a warpgroup's product reads its operands.
#[derive(Clone, Copy, Debug, Default)]
pub struct WgmmaOptions {
    /// `D = AB` instead of `D = AB + D` where it is false; always `AB + D` without it.
    pub accumulate: Option<Value>,
    /// `D = AB`, into registers that held nothing; the accumulators only say how many there are.
    pub fresh: bool,
    /// Half of A is stored: the register that says where each two of four neighbours stood, which a product reads while it is under way, and which threads of
    /// a quad hold that.
    pub sparse: Option<(Value, u32)>,
    /// `-A`
    pub negate_a: bool,
    /// `-B`
    pub negate_b: bool,
    /// A lies with M contiguous (16-bit formats).
    pub transpose_a: bool,
    /// B lies with N contiguous (16-bit formats).
    pub transpose_b: bool,
}

impl Builder {
    /// 1, 2 or 4 matrices of 8x8 16-bit elements from shared memory, one register each.
    pub fn ldmatrix(&mut self, count: usize, transpose: bool, address: impl Into<Address>) -> Vec<Value> {
        let transpose = if transpose { ".trans" } else { "" };
        let text = format!("ldmatrix.sync.aligned.m8n8.x{count}{transpose}.shared.b16");
        let address = address.into();
        self.instruction(&text, Results::Vector(Class::B32, count), &[address.into()])
    }

    /// 1, 2 or 4 matrices of 8x8 16-bit elements to shared memory.
    pub fn stmatrix(&mut self, transpose: bool, address: impl Into<Address>, values: &[Value]) {
        let transpose = if transpose { ".trans" } else { "" };
        let text = format!("stmatrix.sync.aligned.m8n8.x{}{transpose}.shared.b16", values.len());
        let address = address.into();
        self.effect(&text, &[address.into(), Arg::sources(values)]);
    }

    /// A warp's product `AB + C`: `mma("m16n8k16.row.col.f32.bf16.bf16.f32", a, b, c)`. The result has C's registers' classes.
    pub fn mma(&mut self, shape: &str, a: &[Value], b: &[Value], c: &[Value]) -> Vec<Value> {
        let class = c.first().map_or(Class::B32, |&value| self.kernel.class(value));
        let args = [Arg::sources(a), Arg::sources(b), Arg::sources(c)];
        self.instruction(&format!("mma.sync.aligned.{shape}"), Results::Vector(class, c.len()), &args)
    }

    /// The same with half of A stored: `metadata` says where each two of four neighbours stood, by the threads of a quad that `selector` says.
    pub fn mma_sparse(&mut self, shape: &str, [a, b, c]: [&[Value]; 3], metadata: Value, selector: u32) -> Vec<Value> {
        let class = c.first().map_or(Class::B32, |&value| self.kernel.class(value));
        let args = [Arg::sources(a), Arg::sources(b), Arg::sources(c), metadata.into(), i64::from(selector).into()];
        let text = format!("mma.sp::ordered_metadata.sync.aligned.{shape}");
        self.instruction(&text, Results::Vector(class, c.len()), &args)
    }

    /// Orders the registers' contents before the products that follow.
    pub fn wgmma_fence(&mut self, accumulators: &[Value]) -> Vec<Value> {
        let hidden = tied(accumulators);
        self.instruction_with("wgmma.fence.sync.aligned", Results::None, &[], hidden)
    }

    /// A warpgroup's product: `shape` is `m64n256k16.f32.bf16.bf16`, `b` a descriptor.
    pub fn wgmma(&mut self, shape: &str, accumulators: &[Value], a: WgmmaA<'_>, b: Value, options: WgmmaOptions) -> Vec<Value> {
        let accumulate = options.accumulate.unwrap_or_else(|| self.bool(!options.fresh));
        let mut args: Vec<Arg> = match a {
            WgmmaA::Shared(descriptor) => vec![descriptor.into()],
            WgmmaA::Registers(values) => vec![Arg::sources(values)],
        };
        args.push(Arg::Use(b));
        if let Some((metadata, selector)) = options.sparse {
            args.extend([Arg::Use(metadata), i64::from(selector).into()]);
        }
        args.push(Arg::Use(accumulate));
        // Integer products have no signs, and only 16-bit formats have transposes.
        let types: Vec<Type> = shape.split('.').filter_map(Type::parse).collect();
        if types.first() != Some(&Type::S32) {
            args.extend([options.negate_a, options.negate_b].map(|negate| Arg::Int(if negate { -1 } else { 1 })));
            if matches!(types.get(1), Some(Type::F16 | Type::Bf16)) {
                if let WgmmaA::Shared(_) = a {
                    args.push(Arg::Int(options.transpose_a.into()));
                }
                args.push(Arg::Int(options.transpose_b.into()));
            }
        }
        let results = match accumulators.first() {
            Some(&first) if options.fresh => Results::Vector(self.kernel.class(first), accumulators.len()),
            _ => Results::TiedVector(accumulators),
        };
        let sparse = if options.sparse.is_some() { ".sp" } else { "" };
        self.instruction(&format!("wgmma.mma_async{sparse}.sync.aligned.{shape}"), results, &args)
    }

    /// Closes a group of products.
    pub fn wgmma_commit(&mut self) {
        self.effect("wgmma.commit_group.sync.aligned", &[]);
    }

    /// Waits until at most `pending` groups are under way. Gives back the accumulators that are done; `keep` are the A
    /// registers of products that end here.
    pub fn wgmma_wait(&mut self, pending: u32, accumulators: &[Value], keep: &[Value]) -> Vec<Value> {
        let mut hidden = tied(accumulators);
        hidden.extend(keep.iter().copied().map(Arg::Use));
        let pending = i64::from(pending).into();
        self.instruction_with("wgmma.wait_group.sync.aligned", Results::None, &[pending], hidden)
    }
}

/// Hidden arguments that hand values through; the builder numbers the outputs.
fn tied(values: &[Value]) -> Vec<Arg> {
    values.iter().map(|&input| Arg::Tied { input, output: input }).collect()
}

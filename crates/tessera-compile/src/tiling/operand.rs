//! The block program's interface: each operand becomes an array (pointer, sizes, strides), scalars stay. Sizes of named axes come
//! from the first array that has them; the launcher checks that all agree.

use indexmap::IndexMap;
use smallvec::SmallVec;
use tessera_ir::attrs::Signedness;
use tessera_ir::{
    Abi, AbiParam, Axis, Builder, Elem, Extent, Func, IndexType, ParamKind, ScheduleOp, Shape, TensorType, TensorViewType, Type,
    Value,
};
use tessera_types::DType;

use crate::tiling::OperandFacts;

/// An operand in the block program.
pub(super) struct Operand {
    /// Position in the ABI.
    pub(super) param: usize,
    /// The array.
    pub(super) view: Value,
    pub(super) ty: TensorViewType,
    /// True for unsigned 8-bit integers, which only matrix products tell apart.
    pub(super) unsigned: bool,
}

/// Adds the arguments of the block program and makes an array of each operand.
pub(super) struct Signature {
    /// By argument of the Graph function.
    pub(super) operands: IndexMap<Value, Operand>,
    /// Scalars by argument of the Graph function.
    pub(super) scalars: Vec<(Value, Value)>,
    /// Sizes of axes as `i32` scalars.
    pub(super) sizes: IndexMap<Axis, Value>,
}

impl Signature {
    pub(super) fn build(source: &Func, func: &mut Func, facts: &[Option<OperandFacts>]) -> Signature {
        let mut signature = Signature { operands: IndexMap::new(), scalars: Vec::new(), sizes: IndexMap::new() };
        let mut abi = Abi::default();
        let mut first = 0;
        for (position, param) in source.abi.params.iter().enumerate() {
            let args = &source.args()[first..first + param.kind.argument_count()];
            first += args.len();
            let kind = match (&param.kind, source.ty(args[0])) {
                (ParamKind::Operand { dtype, .. }, Type::Operand(tensor)) => {
                    let known = facts.get(position).cloned().flatten().filter(|known| known.shape.len() == tensor.axes.len());
                    let known = known.unwrap_or_else(|| row_major(tensor));
                    signature.operand(func, args[0], position, &param.name, *dtype, tensor, &known);
                    ParamKind::Array {
                        dtype: *dtype,
                        shape: known.shape,
                        strides: known.strides,
                        index: known.index,
                        align: known.align,
                        lines: known.lines,
                        disjoint: known.disjoint,
                    }
                }
                (kind, _) => {
                    for &arg in args {
                        let name = source.values[arg].name.clone();
                        let value = func.add_arg(func.body, source.ty(arg).clone(), name.as_deref());
                        signature.scalars.push((arg, value));
                    }
                    kind.clone()
                }
            };
            abi.params.push(AbiParam { name: param.name.clone(), kind });
        }
        func.abi = abi;
        signature
    }

    #[expect(clippy::too_many_arguments, reason = "everything that is known about one parameter")]
    fn operand(
        &mut self,
        func: &mut Func,
        arg: Value,
        param: usize,
        name: &str,
        dtype: DType,
        tensor: &TensorType,
        known: &OperandFacts,
    ) {
        let body = func.body;
        let pointer = func.add_arg(body, Type::pointers(Shape::new(), tensor.elem), Some(name));
        let index = Type::scalar(known.index.dtype());
        let mut group = |what: &str, extents: &[Extent]| -> SmallVec<[Value; 4]> {
            let add = |axis| func.add_arg(body, index.clone(), Some(&format!("{name}_{what}{axis}")));
            (0..extents.len()).map(add).collect()
        };
        let sizes = group("size", &known.shape);
        let strides = group("stride", &known.strides);
        let open = |values: &[Value], extents: &[Extent]| -> SmallVec<[Value; 4]> {
            values.iter().zip(extents).filter(|(_, extent)| **extent == Extent::Dynamic).map(|(&value, _)| value).collect()
        };
        let ty = TensorViewType { elem: tensor.elem, shape: known.shape.clone(), strides: known.strides.clone() };
        let mut builder = Builder::new(func);
        let view = builder.value(
            ScheduleOp::MakeTensorView {},
            &[&[pointer], &open(&sizes, &known.shape), &open(&strides, &known.strides)],
            Type::TensorView(Box::new(ty.clone())),
        );
        for (position, axis) in tensor.axes.iter().enumerate() {
            if !self.sizes.contains_key(axis) {
                let value = narrow(&mut builder, sizes[position], known.index);
                self.sizes.insert(axis.clone(), value);
            }
        }
        self.operands.insert(arg, Operand { param, view, ty, unsigned: dtype == DType::U8 });
    }
}

/// Sizes are counted in 32 bits: a grid and a loop have no more tiles than that.
fn narrow(builder: &mut Builder<'_>, size: Value, index: IndexType) -> Value {
    match index {
        IndexType::I32 => size,
        IndexType::I64 => {
            let overflow = tessera_ir::attrs::Overflow::Wraps;
            builder.value(ScheduleOp::TruncI { overflow }, &[&[size]], Type::scalar(DType::I32))
        }
    }
}

fn row_major(tensor: &TensorType) -> OperandFacts {
    let shape: SmallVec<[Extent; 4]> = tensor
        .axes
        .iter()
        .map(|axis| match axis {
            Axis::Fixed(extent) => Extent::Static(i64::from(*extent)),
            Axis::Symbol(_) => Extent::Dynamic,
        })
        .collect();
    let mut strides: SmallVec<[Extent; 4]> = SmallVec::from_elem(Extent::Dynamic, shape.len());
    if let Some(last) = strides.last_mut() {
        *last = Extent::Static(1);
    }
    OperandFacts { shape, strides, index: IndexType::I32, align: 16, lines: 16, disjoint: true }
}

/// The signedness that a matrix product reads an operand with.
pub(super) fn signedness(unsigned: bool) -> Signedness {
    if unsigned { Signedness::Unsigned } else { Signedness::Signed }
}

/// A tile type of numbers.
pub(super) fn tile(shape: Shape, dtype: DType) -> Type {
    Type::Tile(tessera_ir::TileType { shape, elem: Elem::Num(dtype) })
}

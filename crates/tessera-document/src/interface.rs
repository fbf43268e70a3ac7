//! The interface of a function: its parameters as arguments of the kernel, the arrays behind its results, the mesh that shardings name.
//!
//! ```text
//! func @f(%A: memref<?x64xf32>, %B: memref<64x64xf32, 3>) -> memref<64x64xf32, 5>
//!         an array              one that the block reads      an array `result`
//! ```

use smallvec::SmallVec;
use tessera_ir::text::cursor::Parsed;
use tessera_ir::{
    AbiParam, Diagnostic, Elem, Extent, GraphOp, IndexType, Mesh, MeshAxis, ParamKind, Program, ScheduleOp, Shape, Sharding,
    SharedType, Span, StatedSharding, TensorViewType, TileOp, Type, Value,
};
use tessera_types::DType;

use crate::emit::{Array, Bound, Emit, Shared, WithHelp};
use crate::function::each;
use crate::memref::{Memref, Space, Ty, register};
use crate::slices::Slice;
use crate::syntax::{Attribute, Function, Operand, Parameter};

impl<'a> Emit<'a, '_> {
    /// The mesh that shardings name: `attributes {mesh = "data=2, tensor_parallel=4"}`. An axis that is named by shardings alone has
    /// two ranks.
    pub(super) fn mesh(&mut self, written: &Function<'a>) -> Parsed<()> {
        let mut axes: SmallVec<[MeshAxis; 2]> = SmallVec::new();
        let stated = written.attributes.iter().find(|(key, _)| key.text == "mesh");
        if let Some((key, value)) = stated {
            let wrong = || {
                let message = "a mesh names its axes with their numbers of ranks";
                Box::new(Diagnostic::error("ir-mesh", key.span, message).help("write `mesh = \"tensor_parallel=4\"`"))
            };
            let Attribute::Text(text) = value else { return Err(wrong()) };
            for entry in text.split(',') {
                let (name, size) = entry.split_once('=').ok_or_else(wrong)?;
                let size = size.trim().parse::<u32>().ok().filter(|&size| size > 0).ok_or_else(wrong)?;
                axes.push(MeshAxis { name: name.trim().to_string(), size });
            }
        } else {
            for parameter in &written.parameters {
                let (Ty::Memref(memref), Some((_, text))) = (&parameter.ty, sharding(parameter)) else { continue };
                let Ok(sharding) = Sharding::parse(text, memref.shape.len()) else { continue };
                for name in sharding.dims.into_iter().flatten() {
                    if axes.iter().all(|axis| axis.name != name) {
                        axes.push(MeshAxis { name, size: 2 });
                    }
                }
            }
        }
        if !axes.is_empty() {
            let span = stated.map_or(written.name.span, |(key, _)| key.span);
            self.func.mesh = Some(Mesh { axes, program: Program::Whole, span });
        }
        Ok(())
    }

    pub(super) fn parameter<'w>(
        &mut self,
        parameter: &'w Parameter<'a>,
        resident: &mut Vec<(&'w Parameter<'a>, usize)>,
    ) -> Parsed<()> {
        let name = parameter.name.text;
        match &parameter.ty {
            Ty::Scalar(dtype) => {
                self.attributes(name, &parameter.attributes, &[])?;
                self.func.abi.params.push(AbiParam { name: name.to_string(), kind: ParamKind::Scalar { dtype: *dtype } });
                let ty = Type::Tile(tessera_ir::TileType { shape: Shape::new(), elem: Elem::signless(*dtype) });
                let body = self.func.body;
                let value = self.func.add_arg(body, ty, None);
                self.define(parameter.name, Bound::Scalar(value))
            }
            Ty::Memref(memref) if self.is_graph() => {
                self.attributes(name, &parameter.attributes, &["align", "sharding"])?;
                if !matches!(memref.space, Space::Open | Space::Global) {
                    let message = format!("`{memref}` is no operand of a program on whole operands");
                    return Err(self.error("document-level", message).help_boxed("leave the memory space out"));
                }
                let value = self.operand_parameter(name, memref)?;
                if let Some((key, text)) = sharding(parameter) {
                    let sharding = Sharding::parse(text, memref.shape.len()).map_err(|message| {
                        let help = "write one entry a dimension, such as `\"[_, tensor_parallel]\"`";
                        Box::new(Diagnostic::error("ir-sharding", key, message).help(help))
                    })?;
                    self.func.shardings.insert(value, StatedSharding { sharding, span: key });
                }
                self.define(parameter.name, Bound::Operand(value))
            }
            Ty::Memref(memref) => {
                if let Some((key, _)) = sharding(parameter) {
                    let message = format!("`%{name}` is no whole operand: it is read in parts by this function's blocks");
                    let help = "only operands that `tile.mma` multiplies whole are sharded";
                    return Err(Box::new(Diagnostic::error("ir-sharding", key, message).help(help)));
                }
                self.attributes(name, &parameter.attributes, &["align", "disjoint"])?;
                let align = self.number(&parameter.attributes, "align")?;
                let disjoint = self.flag(&parameter.attributes, "disjoint")?.unwrap_or(false);
                let array = self.array(name, memref, align, disjoint)?;
                if matches!(memref.space, Space::Open | Space::Global) {
                    return self.define(parameter.name, Bound::Slice(Slice::whole(array, memref.shape.len())));
                }
                resident.push((parameter, array));
                Ok(())
            }
        }
    }

    fn operand_parameter(&mut self, name: &str, memref: &Memref) -> Parsed<Value> {
        let Some(tile) = memref.tile().filter(|tile| !tile.shape.is_empty()) else {
            return Err(self
                .error("document-type", format!("`{memref}`: the extents of a whole operand must be known"))
                .help_boxed("write numbers instead of `?`"));
        };
        let axes = tile.shape.iter().map(u32::to_string).collect();
        let ty = self.operand_type(&tile);
        let body = self.func.body;
        let value = self.func.add_arg(body, ty, Some(name));
        self.func.abi.params.push(AbiParam { name: name.to_string(), kind: ParamKind::Operand { dtype: memref.elem, axes } });
        Ok(value)
    }

    /// An array of the interface in row-major order: its arguments and its view.
    fn array(&mut self, name: &str, memref: &Memref, align: Option<i64>, disjoint: bool) -> Parsed<usize> {
        let elem = memref.elem.signless();
        let rank = memref.shape.len();
        if rank == 0 || rank > 12 {
            return Err(self.error("document-type", format!("`{memref}`: an array has 1 to 12 axes")));
        }
        let mut strides: SmallVec<[Extent; 4]> = SmallVec::from_elem(Extent::Static(1), rank);
        for axis in (0..rank - 1).rev() {
            strides[axis] = match (strides[axis + 1], memref.shape[axis + 1]) {
                (Extent::Static(stride), Extent::Static(size)) => {
                    Extent::Static(stride.checked_mul(size).filter(|&stride| stride <= 1 << 31).ok_or_else(|| {
                        self.error("document-type", format!("`{memref}` has more elements than an index counts"))
                    })?)
                }
                _ => Extent::Dynamic,
            };
        }
        let align = match align {
            Some(align) => u32::try_from(align)
                .ok()
                .filter(|align| align.is_power_of_two() && *align <= 128)
                .ok_or_else(|| self.error("ir-attribute", "an alignment is a power of two up to 128"))?,
            None => match memref.shape[rank - 1] {
                // What divides a line of known length divides every stride.
                Extent::Static(size) => {
                    let bits = (size as u64).saturating_mul(u64::from(memref.elem.bits()));
                    (1 << (bits / 8).trailing_zeros().min(4)).max(1)
                }
                Extent::Dynamic => (memref.elem.bits() / 8).max(1),
            },
        };
        let kind = ParamKind::Array {
            dtype: memref.elem,
            shape: memref.shape.clone(),
            strides: strides.clone(),
            index: IndexType::I32,
            align,
            lines: align,
            disjoint,
        };
        self.func.abi.params.push(AbiParam { name: name.to_string(), kind });
        let body = self.func.body;
        let base = self.func.add_arg(body, Type::pointers(Shape::new(), elem), Some(name));
        let index = Type::scalar(DType::I32);
        let sizes: SmallVec<[Value; 4]> = (0..rank).map(|_| self.func.add_arg(body, index.clone(), None)).collect();
        let steps: SmallVec<[Value; 4]> = (0..rank).map(|_| self.func.add_arg(body, index.clone(), None)).collect();
        let open = |extents: &[Extent], values: &[Value]| -> Vec<Value> {
            extents.iter().zip(values).filter(|(extent, _)| **extent == Extent::Dynamic).map(|(_, &value)| value).collect()
        };
        let (open_sizes, open_steps) = (open(&memref.shape, &sizes), open(&strides, &steps));
        let ty = TensorViewType { elem, shape: memref.shape.clone(), strides };
        let view = self.value(
            ScheduleOp::MakeTensorView {},
            &[&[base], &open_sizes, &open_steps],
            Type::TensorView(Box::new(ty.clone())),
        );
        self.arrays.push(Array { base, sizes, strides: steps, ty, view });
        Ok(self.arrays.len() - 1)
    }

    /// The arrays that results are written to.
    pub(super) fn outputs(&mut self, written: &Function<'a>) -> Parsed<Vec<Bound>> {
        let mut outputs = Vec::new();
        for (position, (ty, span)) in written.results.iter().enumerate() {
            self.span = *span;
            let Ty::Memref(memref) = ty else {
                return Err(self.error("document-type", "a kernel returns register memrefs, not numbers"));
            };
            let mut name = if written.results.len() == 1 { "result".to_string() } else { format!("result{position}") };
            while written.parameters.iter().any(|parameter| parameter.name.text == name) {
                name.push('_');
            }
            outputs.push(if self.is_graph() {
                Bound::Operand(self.operand_parameter(&name, memref)?)
            } else {
                if memref.static_shape().is_none() || memref.space == Space::Shared {
                    let message = format!("`{memref}`: a result is a tile of known extents");
                    return Err(self.error("document-type", message));
                }
                let array = self.array(&name, memref, None, false)?;
                Bound::Slice(Slice::whole(array, memref.shape.len()))
            });
        }
        Ok(outputs)
    }

    /// A parameter in shared memory or registers: the block reads it from its array.
    pub(super) fn read_in(&mut self, parameter: &Parameter<'a>, array: usize) -> Parsed<()> {
        let Ty::Memref(memref) = &parameter.ty else { return Ok(()) };
        let Some(tile) = memref.tile() else {
            return Err(self.error("document-type", format!("`{memref}` must have known extents")));
        };
        let slice = Slice::whole(array, tile.shape.len());
        let value = self.load_tile(&slice, &tile)?;
        if memref.space == Space::Register {
            let cell = self.cell(tile, value);
            return self.define(parameter.name, cell);
        }
        let ty = SharedType::new(tile.shape.clone(), tile.elem.num().unwrap_or(DType::F32));
        let buffer = self.value(TileOp::AllocShared { align: 128, offset: None }, &[], Type::Shared(Box::new(ty)));
        self.op(TileOp::StoreShared { matrices: false }, &[&[value], &[buffer]], []);
        self.define(parameter.name, Bound::Shared(Shared { value: buffer, deep: None }))
    }

    /// Writes a returned value to its array.
    pub(super) fn hand_out(&mut self, operand: &Operand<'a>, output: &Bound) -> Parsed<()> {
        let (value, tile) = self.tile_of(operand)?;
        match output {
            Bound::Slice(slice) => {
                let wanted = self.arrays[slice.array].ty.clone();
                let same = wanted.shape.iter().eq(tile
                    .shape
                    .iter()
                    .map(|&extent| Extent::Static(i64::from(extent)))
                    .collect::<Vec<_>>()
                    .iter());
                if !same {
                    let message = format!("`{}` is returned where `{wanted}` is declared", register(&tile));
                    return Err(self.error("document-type", message));
                }
                self.store_tile(value, &tile, &slice.clone())
            }
            Bound::Operand(operand) => {
                let fits = match (self.func.ty(*operand), self.func.ty(value)) {
                    (Type::Operand(operand), Type::Tensor(tensor)) => operand == tensor,
                    _ => false,
                };
                if !fits {
                    let message = format!("`{}` is returned where another type is declared", register(&tile));
                    return Err(self.error("document-type", message));
                }
                self.op(GraphOp::Store {}, &[&[value], &[*operand]], []);
                Ok(())
            }
            _ => Err(self.error("document-type", "this cannot be returned")),
        }
    }
}

/// What a parameter says of its sharding, and where.
fn sharding<'w>(parameter: &'w Parameter<'_>) -> Option<(Span, &'w str)> {
    parameter.attributes.iter().find_map(|(key, value)| match value {
        Attribute::Text(text) if key.text == "sharding" => Some((key.span, text.as_str())),
        Attribute::Word(text) if key.text == "sharding" => Some((key.span, *text)),
        _ => None,
    })
}

/// How many warps a function gets that names no number: enough for 256 elements of its largest register memref each, four at most.
pub(super) fn usual_warps(function: &Function<'_>) -> u32 {
    let mut largest = 0u64;
    let mut note = |ty: &Ty| {
        if let Ty::Memref(memref) = ty
            && memref.space == Space::Register
            && let Some(shape) = memref.static_shape()
        {
            largest = largest.max(shape.iter().map(|&extent| u64::from(extent)).product());
        }
    };
    function.parameters.iter().for_each(|parameter| note(&parameter.ty));
    each(&function.body, &mut |statement| {
        statement.types.iter().chain(&statement.result_types).for_each(|(ty, _)| note(ty));
    });
    match largest {
        0 => 4,
        elements => (elements / 256).clamp(1, 4).next_power_of_two() as u32,
    }
}

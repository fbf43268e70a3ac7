//! Meshes and shardings, and the operations that exchange values between ranks.

use std::collections::BTreeSet;

use crate::diag::{Diagnostic, Span};
use crate::func::{Func, Level, Value};
use crate::graph::GraphOp;
use crate::mesh::{Mesh, MeshAxis, Program, Sharding, part, whole};
use crate::types::{Axis, TensorType, Type};
use crate::verify::elementwise::computes;
use crate::verify::{Rule, Site, Wrong, ensure};

/// More ranks than this are no mesh.
const MAX_RANKS: u64 = 1 << 16;

/// What is wrong with a function's mesh and with the shardings of its arguments.
pub(super) fn check(func: &Func) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    if let Some(mesh) = &func.mesh {
        found.extend(axes(func, mesh));
    }
    for (&arg, stated) in &func.shardings {
        found.extend(sharding(func, arg, &stated.sharding, stated.span));
    }
    found
}

fn axes(func: &Func, mesh: &Mesh) -> Option<Diagnostic> {
    let error = |message: String| Some(Diagnostic::error("ir-mesh", mesh.span, message));
    if func.level != Level::Graph {
        let message = format!("a {} function has no mesh", func.level.word());
        return error(message).map(|wrong| wrong.help("state it of a graph function, whose operands are whole"));
    }
    let mut names = BTreeSet::new();
    for axis in &mesh.axes {
        if !names.insert(&axis.name) {
            return error(format!("the mesh has two axes `{}`", axis.name))
                .map(|wrong| wrong.help("give each axis its own name"));
        }
        if axis.size == 0 {
            return error(format!("no rank stands along `{}`", axis.name)).map(|wrong| wrong.help("a size is 1 and more"));
        }
    }
    if mesh.axes.is_empty() {
        return error("the mesh has no axis".to_string()).map(|wrong| wrong.help("write `mesh(tp=2)`, or no mesh"));
    }
    let ranks = mesh.axes.iter().fold(1u64, |product, axis| product.saturating_mul(u64::from(axis.size)));
    (ranks > MAX_RANKS).then(|| {
        Diagnostic::error("ir-mesh", mesh.span, format!("{ranks} ranks are more than {MAX_RANKS}")).help("make an axis smaller")
    })
}

fn sharding(func: &Func, arg: Value, sharding: &Sharding, span: Span) -> Option<Diagnostic> {
    let error = |message: String, help: String| Some(Diagnostic::error("ir-sharding", span, message).help(help));
    let Type::Operand(tensor) = func.ty(arg) else {
        let message = format!("a `{}` cannot be divided over ranks", func.ty(arg));
        return error(message, "state shardings of whole operands".to_string());
    };
    let Some(mesh) = &func.mesh else {
        let names: Vec<String> = sharding.dims.iter().flatten().map(|name| format!("{name}=2")).collect();
        let message = format!("the sharding `{sharding}` needs a mesh, and `@{}` has none", func.name);
        return error(message, format!("state its axes behind the interface: `mesh({})`", names.join(", ")));
    };
    let (rank, entries) = (tensor.axes.len(), sharding.dims.len());
    if rank != entries {
        let message = format!("the sharding `{sharding}` has {entries} entries, `operand{tensor}` has {rank} dimensions");
        return error(message, "write one entry a dimension, `_` where nothing is divided".to_string());
    }
    for (dim, name) in sharding.dims.iter().enumerate() {
        let Some(name) = name else { continue };
        let Some(by) = mesh.axis(name) else {
            let axes: Vec<String> = mesh.axes.iter().map(|axis| format!("`{}`", axis.name)).collect();
            let help = format!("its axes are {}; `_` stands for a dimension that is not divided", axes.join(", "));
            return error(format!("the mesh has no axis `{name}`"), help);
        };
        if sharding.dims[..dim].contains(&Some(name.clone())) {
            let message = format!("`{name}` divides two dimensions of `operand{tensor}`");
            return error(message, "each rank along an axis holds one part: leave one of the two `_`".to_string());
        }
        match mesh.program {
            Program::Whole if part(&tensor.axes[dim], by).is_none() => {
                let message =
                    format!("dimension {dim} of `operand{tensor}` does not divide by the {} ranks along `{name}`", by.size);
                return error(message, "divide another dimension, pad this one, or leave it `_`".to_string());
            }
            Program::Rank if whole(&tensor.axes[dim], by).is_none() => {
                let message = format!("dimension {dim} of `operand{tensor}` is no part over `{name}`");
                return error(message, format!("a part of a symbol is named after it: `@\"K/{name}\"`"));
            }
            Program::Whole | Program::Rank => {}
        }
    }
    None
}

/// The rule of an operation that ranks run together, or that depends on which rank runs it.
pub(super) fn exchange(site: &Site<'_>, kind: &GraphOp) -> Rule {
    match kind {
        GraphOp::AllReduce { over, combine: _ } => {
            ensure!(!over.is_empty(), "ir-attribute", "combines over no mesh axis: `over` names one at least");
            for (position, name) in over.iter().enumerate() {
                mesh_axis(site, name)?;
                ensure!(!over[..position].contains(name), "ir-attribute", "combines over `{name}` twice");
            }
            each(site, |source| combined(source).map(|()| source.clone()))
        }
        GraphOp::AllGather { over, axis } => {
            let by = mesh_axis(site, over)?;
            each(site, |source| {
                let mut wanted = source.clone();
                let dim = dimension(&mut wanted, *axis)?;
                *dim = joined(source, dim, by)?;
                Ok(wanted)
            })
        }
        GraphOp::ReduceScatter { over, axis, combine: _ } => {
            let by = mesh_axis(site, over)?;
            each(site, |source| {
                combined(source)?;
                let mut wanted = source.clone();
                let dim = dimension(&mut wanted, *axis)?;
                *dim = divided(source, dim, by)?;
                Ok(wanted)
            })
        }
        GraphOp::AllToAll { over, split, join } => {
            let by = mesh_axis(site, over)?;
            ensure!(split != join, "ir-attribute", "splits and joins dimension {split}: the two must differ");
            each(site, |source| {
                let mut wanted = source.clone();
                let dim = dimension(&mut wanted, *split)?;
                *dim = divided(source, dim, by)?;
                let dim = dimension(&mut wanted, *join)?;
                *dim = joined(source, dim, by)?;
                Ok(wanted)
            })
        }
        GraphOp::Shard { over, axis } => {
            let by = mesh_axis(site, over)?;
            let source = site.tensor(0)?;
            let mut wanted = source.clone();
            let dim = dimension(&mut wanted, *axis)?;
            *dim = divided(source, dim, by)?;
            site.result_is(0, &Type::Tensor(Box::new(wanted)))
        }
        GraphOp::Load { .. } | GraphOp::Store {} | GraphOp::Contract {} | GraphOp::Reduce { .. } | GraphOp::Broadcast {} => {
            Ok(())
        }
    }
}

/// One result a source, each of the type that follows from it.
fn each(site: &Site<'_>, wanted: impl Fn(&TensorType) -> Result<TensorType, Wrong>) -> Rule {
    let sources = site.op.group(0);
    ensure!(!sources.is_empty(), "ir-structure", "exchanges nothing: name one tensor at least");
    ensure!(
        sources.len() == site.op.results.len(),
        "ir-results",
        "has {} results for {} tensors",
        site.op.results.len(),
        sources.len()
    );
    for (position, &source) in sources.iter().enumerate() {
        let Type::Tensor(tensor) = site.ty(source) else { return Err(site.wrong_operand(0, "tensors", site.ty(source))) };
        site.result_is(position, &Type::Tensor(Box::new(wanted(tensor)?)))?;
    }
    Ok(())
}

fn mesh_axis<'m>(site: &Site<'m>, name: &str) -> Result<&'m MeshAxis, Wrong> {
    let wrong = |message: String| Wrong { id: "ir-mesh", message };
    let Some(mesh) = site.func.mesh.as_ref().filter(|mesh| mesh.program == Program::Rank) else {
        return Err(wrong("stands in the program of a rank only: the function has no `ranks(...)`".to_string()));
    };
    mesh.axis(name).ok_or_else(|| {
        let axes: Vec<String> = mesh.axes.iter().map(|axis| format!("`{}`", axis.name)).collect();
        wrong(format!("the mesh has no axis `{name}`, only {}", axes.join(", ")))
    })
}

fn dimension(tensor: &mut TensorType, axis: u32) -> Result<&mut Axis, Wrong> {
    let message = format!("`tensor{tensor}` has no axis {axis}");
    tensor.axes.get_mut(axis as usize).ok_or(Wrong { id: "ir-attribute", message })
}

fn divided(source: &TensorType, dim: &Axis, by: &MeshAxis) -> Result<Axis, Wrong> {
    let message = || format!("`{dim}` of `tensor{source}` does not divide by the {} ranks along `{}`", by.size, by.name);
    part(dim, by).ok_or_else(|| Wrong { id: "ir-shape", message: message() })
}

fn joined(source: &TensorType, dim: &Axis, by: &MeshAxis) -> Result<Axis, Wrong> {
    let message = || format!("`{dim}` of `tensor{source}` is no part over `{}`", by.name);
    whole(dim, by).ok_or_else(|| Wrong { id: "ir-shape", message: message() })
}

fn combined(source: &TensorType) -> Rule {
    ensure!(computes(source.elem), "ir-element-type", "no arithmetic is defined on `tensor{source}`");
    Ok(())
}

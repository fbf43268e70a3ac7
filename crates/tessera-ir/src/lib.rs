//! The intermediate representation: one SSA core, its dialects, text form, verifier and pass manager.
//!
//! # The specification in brief
//! A [`Module`] holds functions of one [`Level`] each. A [`Func`] owns arenas of values, operations and blocks; control
//! flow is structured, so a region is exactly one block and an operation's regions are a list of blocks. A value is
//! defined once, by an operation or as a block argument, and is visible in the rest of its block and in the regions
//! nested there. Every operation has a source [`Span`].
//!
//! What an operation *is* stands in one row of its dialect's table ([`schedule`], [`graph`], [`tile`]): operands, attributes,
//! regions, type rule, [effects](effect). Parser, printer, verifier and passes work from the row. What it *means* stands in one arm of
//! the executor and one of the lowering.
//!
//! Invariants: `parse(print(m)) == m`; printing is deterministic; after [`verify`] succeeds, no later stage panics on the
//! module.

#[macro_use]
mod dialect;

pub mod attrs;
pub mod diag;
pub mod effect;
pub mod fragment;
pub mod graph;
pub mod mesh;
pub mod schedule;
pub mod tile;

mod abi;
mod bug;
mod constant;
mod entity;
mod func;
mod image;
mod launch_notes;
mod op;
mod pass;
pub mod plan;
pub mod text;
mod types;
pub mod uniformity;
mod verify;

pub use abi::{Abi, AbiParam, IndexType, ParamKind, Stated, item_name};
pub use bug::{bug_found, caught};
pub use constant::{Const, ConstData};
pub use diag::{Diagnostic, Label, Reproducer, Severity, Source, SourceId, SourceMap, Span};
pub use dialect::{Class, Effects, OperandKind, OperandSpec, Results, Row, Trait, TypeRule};
pub use effect::{Does, Effect, Moved, Proxy, Queue, Space, Touch};
pub use entity::{Arena, EntityId};
pub use func::{Block, BlockData, Builder, Def, Func, FuncHints, Global, Level, Module, Op, OpData, Sharing, Value, ValueData};
pub use graph::GraphOp;
pub use image::{
    Assertion, GridRule, HiddenParam, ImageCode, KernelImage, LaunchFacts, TensorMapPlan, TileCount, TimelineMark, TimelinePlan,
};
pub use launch_notes::launch_notes;
pub use mesh::{Mesh, MeshAxis, Program, Sharding, StatedSharding};
pub use op::OpKind;
pub use pass::{Changed, Fallback, Observer, Pass, PassCx, PassFailure, PassManager, PassTime, PrintAfter, Reason};
pub use plan::{Partition, Plan, RingPlan};
pub use schedule::ScheduleOp;
pub use tile::TileOp;
pub use types::{
    Axis, DistributedType, Elem, Extent, Padding, RingType, Shape, SharedType, Swizzle, TensorType, TensorViewType, TileType,
    TileViewType, Type, ViewKind, collapsed_axes,
};
pub use verify::{verify, verify_func};

//! One compiled kernel of a bundle: what it is for, how it is launched, and its code.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tessera_ir::{Extent, HiddenParam, ImageCode, IndexType, KernelImage, LaunchFacts, ParamKind, Stated};
use tessera_launch::{Constant, Interface};
use tessera_types::DType;

use crate::target::TargetName;

/// A kernel compiled for one target and one specialisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// The name that a launch asks for.
    pub kernel: String,
    /// What it was compiled for: `sm_90a`.
    pub target: String,
    /// The entry's name in the code.
    pub entry: String,
    /// What a launch passes, and what the code assumes of it.
    pub interface: Interface,
    /// Arguments that are part of the code.
    pub constants: Vec<(String, Constant)>,
    /// What the launcher adds to the arguments, in order.
    pub hidden: Vec<HiddenParam>,
    /// How it is launched: threads, shared memory, clusters, from the grid that is asked for to the launched one.
    pub launch: LaunchFacts,
    /// Where it was packed for arrays of certain shapes.
    pub fixed: Option<Fixed>,
    /// The code.
    #[serde(skip)]
    pub code: Code,
}

/// What arrays of certain shapes need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fixed {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Arrays by name, with their sizes.
    pub shapes: Vec<(String, Vec<usize>)>,
    /// Numbers by name, for those that a launch leaves out.
    pub numbers: Vec<(String, Constant)>,
}

/// A variant's code. Clones share it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Code {
    /// PTX text, which the driver of any device that can run the target assembles.
    pub ptx: Arc<str>,
    /// Machine code for the target, assembled beforehand.
    pub cubin: Option<Arc<[u8]>>,
}

impl Variant {
    /// The variant of an image that was compiled to PTX.
    pub fn new(kernel: &str, image: KernelImage, interface: Interface, constants: Vec<(String, Constant)>) -> Variant {
        let KernelImage { entry, target, code, abi: _, hidden, launch } = image;
        let code = match code {
            ImageCode::Ptx(text) => Code { ptx: text.into(), cubin: None },
            ImageCode::Cubin(bytes) => Code { ptx: "".into(), cubin: Some(bytes.into()) },
        };
        Variant { kernel: kernel.to_owned(), target, entry, interface, constants, hidden, launch, fixed: None, code }
    }

    /// The image that a device of a compute capability loads: its machine code, else its text. `text_alone` for one that takes no
    /// machine code.
    pub fn image(&self, capability: (u32, u32), text_alone: bool) -> KernelImage {
        let fits = TargetName::parse(&self.target).is_some_and(|target| target.code_runs_on(capability));
        let code = match &self.code.cubin {
            Some(bytes) if fits && !text_alone => ImageCode::Cubin(bytes.to_vec()),
            _ => ImageCode::Ptx(self.code.ptx.to_string()),
        };
        KernelImage {
            entry: self.entry.clone(),
            target: self.target.clone(),
            code,
            abi: self.interface.abi.clone(),
            hidden: self.hidden.clone(),
            launch: self.launch.clone(),
        }
    }

    /// `gemm for sm_90a: A=bf16[?,?];align=16, BLOCK=64`: arguments as the command line writes their types.
    pub fn describe(&self) -> String {
        let shapes = self.fixed.iter().flat_map(|fixed| &fixed.shapes);
        let shape = |name: &str| shapes.clone().find(|(own, _)| own == name).map(|(_, shape)| shape);
        let params =
            self.interface.abi.params.iter().map(|param| format!("{}={}", param.name, kind(&param.kind, shape(&param.name))));
        let constants = self.constants.iter().map(|(name, value)| format!("{name}={value}"));
        let arguments: Vec<String> = params.chain(constants).collect();
        let stated: Vec<String> = self.interface.abi.stated.iter().map(ToString::to_string).collect();
        let stated = if stated.is_empty() { String::new() } else { format!(", where {}", stated.join(", ")) };
        format!("{} for {}: {}{stated}", self.kernel, self.target, arguments.join(", "))
    }

    /// What of it no launch could work with, in words.
    pub(crate) fn fault(&self) -> Option<String> {
        let params = &self.interface.abi.params;
        let ranks: Vec<Option<usize>> = params.iter().map(|param| rank(&param.kind)).collect();
        let is_axis = |param: usize, axis: usize| ranks.get(param).is_some_and(|rank| rank.is_some_and(|rank| axis < rank));
        let has_axes = |hidden: &HiddenParam| match hidden {
            HiddenParam::TensorMap(plan) => {
                !plan.axes.is_empty()
                    && plan.tile.len() == plan.axes.len()
                    && plan.axes.iter().all(|&axis| is_axis(plan.param, axis))
            }
            HiddenParam::Grid | HiddenParam::Workspace { .. } | HiddenParam::Assertions(_) | HiddenParam::Timeline(_) => true,
        };
        let extents = |dims: &[u32; 3], most: u32| dims.iter().all(|&n| (1..=most).contains(&n));
        let tiles = || self.interface.tiles.iter().chain(&self.launch.tiles).flatten();
        let stated = |stated: &Stated| match stated {
            Stated::AtMost { param, .. } => self.interface.abi.position(param).is_some(),
            Stated::Alike { array, other } => [array, other].iter().all(|name| self.interface.abi.position(name).is_some()),
        };
        let faults = [
            (self.kernel.is_empty() || self.entry.is_empty(), "it has no name"),
            (self.code.ptx.is_empty(), "it has no PTX"),
            (TargetName::parse(&self.target).is_none(), "its target is none"),
            (self.interface.written.len() != params.len(), "it does not say of each parameter whether it is written"),
            (!params.iter().all(|param| is_whole(&param.kind)), "a parameter is not whole"),
            (!self.interface.abi.stated.iter().all(stated), "more is stated of a parameter that there is none of"),
            (!self.hidden.iter().all(has_axes), "a tensor map is over axes that no array has"),
            (
                !tiles().all(|tile| tile.tile > 0 && is_axis(tile.param, tile.axis)),
                "blocks are counted by axes that no array has",
            ),
            (!extents(&self.launch.threads, 1024), "its blocks have no or too many threads"),
            (!(1..=32).contains(&self.launch.grid.programs), "its blocks have no or too many programs"),
            (!self.launch.cluster.iter().all(|cluster| extents(cluster, 16)), "its clusters have no or too many blocks"),
            (!extents(&self.launch.grid.blocks, 1 << 16), "its grid has no or too many blocks"),
        ];
        faults.into_iter().find(|(is_fault, _)| *is_fault).map(|(_, what)| what.to_owned())
    }
}

fn rank(kind: &ParamKind) -> Option<usize> {
    match kind {
        ParamKind::Array { shape, .. } => Some(shape.len()),
        ParamKind::Operand { axes, .. } => Some(axes.len()),
        ParamKind::List { .. } | ParamKind::Scalar { .. } => None,
    }
}

fn is_whole(kind: &ParamKind) -> bool {
    match kind {
        ParamKind::Array { shape, strides, align, lines, .. } => {
            shape.len() == strides.len() && [align, lines].iter().all(|bytes| bytes.is_power_of_two() && **bytes <= 1 << 20)
        }
        ParamKind::List { .. } | ParamKind::Scalar { .. } => true,
        // Operands of no compiled kernel: it takes arrays.
        ParamKind::Operand { .. } => false,
    }
}

/// A parameter as the command line writes its type; `exact` has its sizes where they are known.
fn kind(kind: &ParamKind, exact: Option<&Vec<usize>>) -> String {
    let index = |index: &IndexType| if *index == IndexType::I64 { ";index=64" } else { "" };
    match kind {
        ParamKind::Array { dtype, shape, strides, index: width, align, lines, .. } => {
            let mut text = match exact {
                Some(sizes) => array(*dtype, &sizes.iter().map(|&size| Extent::Static(size as i64)).collect::<Vec<_>>()),
                None => array(*dtype, shape),
            };
            let is_plain = strides.iter().enumerate().all(|(axis, &stride)| {
                let is_last = axis + 1 == strides.len();
                stride == if is_last { Extent::Static(1) } else { Extent::Dynamic }
            });
            if !is_plain {
                text.push_str(&format!(";strides=[{}]", extents(strides)));
            }
            let lines = if lines == align { String::new() } else { format!(";lines={lines}") };
            format!("{text};align={align}{lines}{}", index(width))
        }
        ParamKind::List { dtype, rank, index: width } => {
            format!("[{},...]{}", array(*dtype, &vec![Extent::Dynamic; *rank as usize]), index(width))
        }
        ParamKind::Scalar { dtype } => dtype.to_string(),
        ParamKind::Operand { dtype, axes } => format!("{dtype}[{}]", axes.join(",")),
    }
}

fn array(dtype: DType, shape: &[Extent]) -> String {
    format!("{dtype}[{}]", extents(shape))
}

fn extents(list: &[Extent]) -> String {
    let text = |extent: &Extent| match extent {
        Extent::Static(known) => known.to_string(),
        Extent::Dynamic => "?".to_owned(),
    };
    list.iter().map(text).collect::<Vec<_>>().join(",")
}

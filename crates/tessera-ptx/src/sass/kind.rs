//! What an instruction is for, by its name.

use std::fmt;

/// What an instruction is for. The order is that in which counts are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A product of the tensor cores.
    Tensor,
    /// Moves data to or from memory.
    Memory(Memory, Width),
    /// Arithmetic on floats.
    Float,
    /// Arithmetic on integers, most of it addresses.
    Integer,
    /// Compares, or works on predicates.
    Predicate,
    /// Converts between types of numbers.
    Conversion,
    /// Moves, selects, permutes, exchanges between lanes.
    Move,
    /// Barriers and other waits, fences.
    Barrier,
    /// Branches.
    Branch,
    /// Anything else.
    Other,
}

/// A way to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Memory {
    /// Loads of the device's memory.
    GlobalLoad,
    /// Stores there.
    GlobalStore,
    /// Copies to shared memory by threads.
    AsyncCopy,
    /// Copies and reductions by the copy engine.
    Engine,
    /// Atomic operations and reductions.
    Atomic,
    /// Loads of shared memory.
    SharedLoad,
    /// Stores there.
    SharedStore,
    /// Loads of local memory: stack and spills.
    LocalLoad,
    /// Stores there.
    LocalStore,
    /// Loads of constants, kernels' parameters among them.
    Constant,
}

/// Bytes of a thread, where the instruction says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Width(pub Option<u32>);

/// Names without modifiers, and what they are for; of uniform instructions also without the leading `U`.
const NAMES: &[(Kind, &[&str])] = &[
    (Kind::Tensor, &["HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "QGMMA", "BGMMA"]),
    (Kind::Tensor, &["UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA"]),
    (
        Kind::Float,
        &[
            "FADD",
            "FADD2",
            "FADD32I",
            "FMUL",
            "FMUL2",
            "FMUL32I",
            "FFMA",
            "FFMA2",
            "FFMA32I",
            "FMNMX",
            "FMNMX3",
            "FCHK",
            "MUFU",
            "RRO",
            "HADD2",
            "HADD2_32I",
            "HMUL2",
            "HMUL2_32I",
            "HFMA2",
            "HFMA2_32I",
            "HMNMX2",
            "DADD",
            "DMUL",
            "DFMA",
            "DMNMX",
            "FSWZADD",
            "REDUX",
        ],
    ),
    (
        Kind::Integer,
        &[
            "IADD",
            "IADD3",
            "IADD32I",
            "IMAD",
            "IMUL",
            "IMUL32I",
            "IABS",
            "IMNMX",
            "IMNMX3",
            "VIADD",
            "VIADDMNMX",
            "VIMNMX",
            "VIMNMX3",
            "LEA",
            "LOP",
            "LOP3",
            "LOP32I",
            "SHF",
            "SHL",
            "SHR",
            "BFE",
            "BFI",
            "BMSK",
            "SGXT",
            "POPC",
            "FLO",
            "BREV",
            "IDP",
            "IDP4A",
            "ISCADD",
            "VABSDIFF",
            "VABSDIFF4",
            "XMAD",
            "UVIMNMX",
        ],
    ),
    (
        Kind::Predicate,
        &[
            "ISETP", "FSETP", "HSETP2", "DSETP", "PSETP", "CSETP", "PLOP3", "ISET", "FSET", "HSET2", "P2R", "R2P", "P2UR",
            "UP2UR", "VOTE", "VOTEU",
        ],
    ),
    (Kind::Conversion, &["F2F", "F2I", "I2F", "I2I", "F2FP", "F2IP", "I2FP", "I2IP", "FRND"]),
    (
        Kind::Move,
        &[
            "MOV", "MOV32I", "SEL", "FSEL", "PRMT", "SHFL", "MOVM", "R2UR", "S2R", "S2UR", "CS2R", "MATCH", "R2UR", "LEPC",
            "ELECT",
        ],
    ),
    (
        Kind::Barrier,
        &[
            "BAR",
            "SYNCS",
            "MEMBAR",
            "FENCE",
            "ERRBAR",
            "DEPBAR",
            "LDGDEPBAR",
            "ARRIVES",
            "WARPSYNC",
            "WARPGROUP",
            "WARPGROUPSET",
            "UCGABAR_ARV",
            "UCGABAR_WAIT",
            "CGABAR",
            "CCTL",
            "CCTLL",
            "UTMACMDFLUSH",
            "UTMACCTL",
            "NANOSLEEP",
            "ACQBULK",
            "PREEXIT",
            "USETMAXREG",
            "B2R",
            "R2B",
            "UTMAPF",
            "UBLKPF",
            "DEPBAR",
        ],
    ),
    (
        Kind::Branch,
        &[
            "BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "CALL", "RET", "EXIT", "BSSY", "BSYNC", "BREAK", "BMOV", "KILL", "BPT",
            "YIELD", "RPCMOV", "RTT",
        ],
    ),
    (Kind::Memory(Memory::Engine, Width(None)), &["UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED", "UTCCP"]),
    (Kind::Memory(Memory::Atomic, Width(None)), &["ATOM", "ATOMG", "ATOMS", "RED", "REDG", "REDS", "REDAS"]),
];

/// Names of those that move as many bytes as their modifiers say.
const MOVERS: &[(Memory, &[&str])] = &[
    (Memory::GlobalLoad, &["LDG", "LD"]),
    (Memory::GlobalStore, &["STG", "ST"]),
    (Memory::AsyncCopy, &["LDGSTS"]),
    (Memory::SharedLoad, &["LDS", "LDSM"]),
    (Memory::SharedStore, &["STS", "STSM", "STAS"]),
    (Memory::LocalLoad, &["LDL"]),
    (Memory::LocalStore, &["STL"]),
    (Memory::Constant, &["LDC", "LDCU", "ULDC"]),
];

impl Kind {
    /// What an operation is for, by its name with modifiers: `LDG.E.128`.
    pub(super) fn of(operation: &str) -> Kind {
        let mut parts = operation.split('.');
        let base = parts.next().unwrap_or_default();
        let modifiers: Vec<&str> = parts.collect();
        if let Some((memory, _)) = MOVERS.iter().find(|(_, names)| names.contains(&base)) {
            return Kind::Memory(*memory, Width(Some(bytes(base, &modifiers))));
        }
        // A multiplication by one or zero is how a register is copied.
        if base == "IMAD" && modifiers.contains(&"MOV") {
            return Kind::Move;
        }
        let of = |name: &str| NAMES.iter().find(|(_, names)| names.contains(&name)).map(|(kind, _)| *kind);
        of(base).or_else(|| of(base.strip_prefix('U')?)).unwrap_or(Kind::Other)
    }

    /// Whether a loop of nothing else does nothing but wait.
    pub(super) fn is_waiting(self) -> bool {
        match self {
            Kind::Barrier | Kind::Branch | Kind::Predicate | Kind::Move | Kind::Integer | Kind::Other => true,
            Kind::Tensor | Kind::Memory(..) | Kind::Float | Kind::Conversion => false,
        }
    }
}

/// Bytes that a thread moves.
fn bytes(base: &str, modifiers: &[&str]) -> u32 {
    if matches!(base, "LDSM" | "STSM") {
        // As many matrices as the last modifier says, of four bytes a lane each.
        return 4 * modifiers.last().and_then(|count| count.parse().ok()).unwrap_or(1);
    }
    let of = |modifier: &&str| match *modifier {
        "U8" | "S8" => Some(1),
        "U16" | "S16" => Some(2),
        "64" => Some(8),
        "128" => Some(16),
        "256" => Some(32),
        _ => None,
    };
    modifiers.iter().find_map(of).unwrap_or(4)
}

/// Whether it is a product that a warpgroup's threads multiply together.
pub(super) fn is_of_warpgroup(operation: &str) -> bool {
    let base = operation.split('.').next().unwrap_or_default();
    base.ends_with("GMMA")
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Kind::Memory(memory, width) => return write!(f, "{memory}{width}"),
            Kind::Tensor => "tensor",
            Kind::Float => "float",
            Kind::Integer => "integer",
            Kind::Predicate => "predicate",
            Kind::Conversion => "conversion",
            Kind::Move => "move",
            Kind::Barrier => "barrier",
            Kind::Branch => "branch",
            Kind::Other => "other",
        };
        f.write_str(name)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Memory::GlobalLoad => "global load",
            Memory::GlobalStore => "global store",
            Memory::AsyncCopy => "async copy",
            Memory::Engine => "engine copy",
            Memory::Atomic => "atomic",
            Memory::SharedLoad => "shared load",
            Memory::SharedStore => "shared store",
            Memory::LocalLoad => "local load",
            Memory::LocalStore => "local store",
            Memory::Constant => "constant load",
        })
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |bytes| write!(f, " of {bytes} B"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_an_instruction_is_for() {
        for (operation, told) in [
            ("HGMMA.64x128x16.F32.BF16", "tensor"),
            ("LDG.E.128.CONSTANT", "global load of 16 B"),
            ("STG.E.U16", "global store of 2 B"),
            ("LDS", "shared load of 4 B"),
            ("LDSM.16.M88.4", "shared load of 16 B"),
            ("STSM.16.MT88.2", "shared store of 8 B"),
            ("LDGSTS.E.BYPASS.128", "async copy of 16 B"),
            ("LDGDEPBAR", "barrier"),
            ("UTMALDG.2D", "engine copy"),
            ("STL.64", "local store of 8 B"),
            ("ULDC.64", "constant load of 8 B"),
            ("RED.E.ADD.F32.FTZ.RN.STRONG.GPU", "atomic"),
            ("UIADD3.X", "integer"),
            ("IMAD.MOV.U32", "move"),
            ("IMAD.WIDE", "integer"),
            ("USEL", "move"),
            ("UISETP.GE.AND", "predicate"),
            ("F2FP.BF16.F32.PACK_AB", "conversion"),
            ("FFMA.FTZ", "float"),
            ("SYNCS.PHASECHK.TRANS64.TRYWAIT", "barrier"),
            ("BRA.U", "branch"),
            ("NOP", "other"),
        ] {
            assert_eq!(Kind::of(operation).to_string(), told, "{operation}");
        }
    }
}

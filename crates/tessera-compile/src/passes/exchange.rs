//! `exchange-buffers`: buffers for operations whose threads exchange elements.
//!
//! The lowering to the target knows which operations these are and how much each needs; it is asked by a recording
//! ([`crate::target::exchanges`]). Each that has none gets a buffer of its own, allocated where the function starts: what may share bytes is
//! `memory-management`'s business, and who waits for whom is `barrier-optimization`'s.
//!
//! ```text
//! %b = tile.convert_layout %a : tile<64x64xf16, #1>
//! ->
//! %1 = tile.alloc_shared {align=16} : shared<64x64xf16, pad=8>
//! %b = tile.convert_layout %a through %1 : tile<64x64xf16, #1>
//! ```

use tessera_ir::{Changed, Diagnostic, Func, Global, Level, Module, OpData, Pass, PassCx, SharedType, TileOp, Type};
use tessera_types::{Arch, DType};

use super::memory_management::buffer_bytes;
use crate::target::exchanges;

/// Buffers for exchanges.
pub(super) const PASS: Pass = Pass {
    name: "exchange-buffers",
    doc: "Gives each operation whose threads exchange elements the buffer in shared memory that it needs for that.",
    run,
};

fn run(func: &mut Func, cx: &mut PassCx<'_>) -> Changed {
    if func.level != Level::Tile {
        return Changed(false);
    }
    let Some(arch) = cx.needs_target(PASS.name, func) else { return Changed(false) };
    match give_buffers(func, cx.globals, arch) {
        Ok(changed) => Changed(changed),
        Err(error) => {
            cx.diagnostics.push(error);
            Changed(false)
        }
    }
}

/// Gives each operation that exchanges elements the buffer that it needs; whether any did.
fn give_buffers(func: &mut Func, globals: &[Global], arch: Arch) -> Result<bool, Diagnostic> {
    let module = Module { globals: globals.to_vec(), ..Module::default() };
    let asked = exchanges(&module, func, arch)?;
    let mut allocs = Vec::with_capacity(asked.len());
    for (&op, exchange) in &asked {
        if let Some(through) = func.ops[op].through {
            let room = func.ty(through).as_shared().map_or(0, buffer_bytes);
            if room < exchange.bytes {
                return Err(too_small(&func.ops[op], exchange.bytes, room));
            }
            continue;
        }
        let ty = match &exchange.lies {
            Some(ty) => ty.clone(),
            None => SharedType::new(&[exchange.bytes as u32][..], DType::I8),
        };
        let kind = TileOp::AllocShared { align: exchange.align as u32, offset: None };
        let alloc = func.make_op(kind.into(), &[], [Type::Shared(Box::new(ty))], [], func.ops[op].span);
        func.ops[op].through = Some(func.ops[alloc].result());
        allocs.push(alloc);
    }
    let changed = !allocs.is_empty();
    func.blocks[func.body].ops.splice(0..0, allocs);
    Ok(changed)
}

fn too_small(data: &OpData, bytes: u64, room: u64) -> Diagnostic {
    let message = format!("`{}` exchanges {bytes} bytes, the buffer behind `through` has {room}", data.row().mnemonic);
    Diagnostic::error("exchange-too-small", data.span, message)
        .help(format!("give it `shared<{bytes}xi8>`, or leave `through` out: this pass finds a buffer"))
}

//! `exchange-buffers`: buffers for operations whose threads exchange elements.
//!
//! The lowering to the target knows which operations these are and how much each needs; it is asked by a recording
//! ([`tessera_target::exchanges`]). Each that has none gets a buffer of its own, allocated where the function starts: what may share bytes is
//! `memory-management`'s business, and who waits for whom is `barrier-optimization`'s.
//! `hints(exchange_bytes=N)` says how large a buffer may be: what needs more goes through it in parts.
//!
//! ```text
//! %b = tile.convert_layout %a : tile<64x64xf16, #1>
//! ->
//! %1 = tile.alloc_shared {align=16} : shared<64x64xf16, pad=8>
//! %b = tile.convert_layout %a through %1 : tile<64x64xf16, #1>
//! ```

use tessera_ir::{
    Changed, Diagnostic, Fallback, Func, Global, Level, Module, Op, OpData, Pass, PassCx, Severity, SharedType, TileOp, Type,
};
use tessera_types::{Arch, DType};

use super::memory_management::{Places, rounds};
use tessera_analysis::room::buffer_bytes;
use tessera_target::{Exchange, exchanges};

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
    match give_buffers(func, cx.globals, arch, &mut cx.fallbacks) {
        Ok(changed) => Changed(changed),
        Err(error) => {
            cx.diagnostics.push(error);
            Changed(false)
        }
    }
}

/// Gives each operation that exchanges elements the buffer that it needs; whether any did.
fn give_buffers(func: &mut Func, globals: &[Global], arch: Arch, fallbacks: &mut Vec<Fallback>) -> Result<bool, Diagnostic> {
    let module = Module { globals: globals.to_vec(), ..Module::default() };
    let asked = exchanges(&module, func, arch)?;
    let mut allocs = Vec::with_capacity(asked.len());
    for (&op, exchange) in &asked {
        if let Some(through) = func.ops[op].through {
            let room = buffer_bytes(func.ty(through).the_shared());
            if room < exchange.least {
                return Err(too_small(&func.ops[op], exchange.least, room));
            }
            continue;
        }
        let bytes = func.hints.exchange_bytes.map_or(exchange.bytes, |most| exchange.bytes.min(exchange.least.max(most.into())));
        let ty = match &exchange.lies {
            Some(ty) if bytes == exchange.bytes => ty.clone(),
            _ => SharedType::new(&[bytes as u32][..], DType::I8),
        };
        if bytes < exchange.bytes {
            fallbacks.push(in_parts(func, op, exchange, bytes));
        }
        let kind = TileOp::AllocShared { align: exchange.align as u32, offset: None };
        let alloc = func.make_op(kind.into(), &[], [Type::Shared(Box::new(ty))], [], func.ops[op].span);
        func.ops[op].through = Some(func.ops[alloc].result());
        allocs.push(alloc);
    }
    let changed = !allocs.is_empty();
    func.blocks[func.body].ops.splice(0..0, allocs);
    Ok(changed)
}

/// Instructions of an exchange in parts for each word of a thread's elements: an address, a condition and an access to store it, and to load it.
const OF_WORD: u64 = 8;

/// What is exchanged in parts, and at which cost.
fn in_parts(func: &Func, op: Op, exchange: &Exchange, bytes: u64) -> Fallback {
    let parts = exchange.bytes.div_ceil(bytes);
    let what = func.ops[op].row().mnemonic;
    let message = format!("`{what}` exchanges {} bytes between threads, in {parts} parts of {bytes} bytes", exchange.bytes);
    let note = Diagnostic::error("target-shared-memory", func.ops[op].span, message).severity(Severity::Note);
    let words = exchange.bytes / 4 / u64::from(func.hints.threads().max(1));
    let cost = parts * words * OF_WORD * rounds(func, &Places::of(func), op);
    Fallback { note: note.help("a smaller tile goes through shared memory at once"), cost }
}

fn too_small(data: &OpData, bytes: u64, room: u64) -> Diagnostic {
    let message = format!("`{}` exchanges {bytes} bytes, the buffer behind `through` has {room}", data.row().mnemonic);
    Diagnostic::error("exchange-too-small", data.span, message)
        .help(format!("give it `shared<{bytes}xi8>`, or leave `through` out: this pass finds a buffer"))
}

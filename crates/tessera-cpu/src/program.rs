//! A prepared function and its launches.

use std::sync::Mutex;

use tessera_ir::{Diagnostic, Func, Module, Span};

use crate::blocks::{Blocks, block_at, block_count, emit};
use crate::build::{BuildOptions, Plan, build, may_wait};
use crate::check::Check;
use crate::exec::{Launch, Machine, Memory, Range};
use crate::lanes::Isa;
use crate::launch::{Arg, Fault, RunOptions, ranges};

/// A block program ready to run: types resolved, places assigned, chains fused, products recognised.
///
/// ```
/// use tessera_cpu::{Arg, Program, RunOptions};
/// let text = "schedule @double(%x: tile<ptr<f32>>) {
///   %v = make_tensor_view %x, [], [] : tensor_view<4xf32, strides=[1]>
///   %p = make_partition_view %v : partition_view<tile=(4), tensor_view<4xf32, strides=[1]>>
///   %i = get_tile_block_id {axis=x} : tile<i32>
///   %t, %a = load_view_tko %p, [%i] : tile<4xf32>, token
///   %s = addf %t, %t : tile<4xf32>
///   %b = store_view_tko %s, %p, [%i] : token
///   return
/// }";
/// let module = tessera_ir::text::parse_module("double.tir", text).map_err(|(_, d)| d.message).unwrap();
/// let program = Program::prepare(&module, &module.funcs[0]).unwrap();
/// let mut x = [1.0_f32, 2.0, 3.0, 4.0];
/// let args = [Arg::Pointer { base: x.as_mut_ptr().cast(), bytes: 16 }];
/// // SAFETY: the array outlives the launch and nothing else uses it.
/// unsafe { program.run([1, 1, 1], &args, &RunOptions::default()) }.unwrap();
/// assert_eq!(x, [2.0, 4.0, 6.0, 8.0]);
/// ```
#[derive(Debug)]
pub struct Program {
    /// Arguments are distinct memory.
    fused: Plan,
    /// Arguments may overlap.
    careful: Option<Plan>,
    /// One operation at a time, as checked launches need.
    plain: Plan,
    /// Blocks may wait for others.
    may_wait: bool,
    span: Span,
    idle: Idle,
}

/// Memory of threads between launches.
#[derive(Default)]
struct Idle(Mutex<Vec<Memory>>);

impl std::fmt::Debug for Idle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Idle")
    }
}

impl Idle {
    fn take(&self) -> Memory {
        self.0.lock().ok().and_then(|mut idle| idle.pop()).unwrap_or_default()
    }

    fn give(&self, memory: Memory) {
        if let Ok(mut idle) = self.0.lock() {
            idle.push(memory);
        }
    }
}

impl Program {
    /// Prepares a function of the module.
    pub fn prepare(module: &Module, func: &Func) -> Result<Program, Diagnostic> {
        let plan = |fuse, distinct| build(module, func, BuildOptions { fuse, distinct }).map_err(|diagnostic| *diagnostic);
        let fused = plan(true, true)?;
        let pointers = func.args().len();
        let careful = if pointers > 1 { Some(plan(true, false)?) } else { None };
        let plain = plan(false, false)?;
        Ok(Program { fused, careful, plain, may_wait: may_wait(func), span: func.span, idle: Idle::default() })
    }

    /// What was recognised: fused chains and products, one line each.
    pub fn notes(&self) -> &[String] {
        &self.fused.notes
    }

    /// Runs every block of the grid.
    ///
    /// # Safety
    /// Every pointer argument and allocation is valid for reads and writes of its bytes, and nothing else uses that memory while
    /// the launch runs. Whatever the program does, only that memory is touched.
    pub unsafe fn run(&self, grid: [u32; 3], args: &[Arg], options: &RunOptions<'_>) -> Result<(), Fault> {
        let mut ranges = ranges(self.fused.arguments.len(), args, options, self.span)?;
        let plan = if options.checked {
            &self.plain
        } else {
            self.careful.as_ref().filter(|_| self.overlap(&ranges, args.len())).unwrap_or(&self.fused)
        };
        for &(_, entry, bytes) in &plan.globals {
            let start = plan.pool[entry as usize].as_ptr() as u64;
            ranges.push(Range { start, end: start + bytes as u64 });
        }
        let mut registers = plan.registers.clone();
        for (reg, arg) in plan.arguments.iter().zip(args) {
            if let Some(reg) = reg {
                registers[reg.0 as usize] = match *arg {
                    Arg::Pointer { base, .. } => base as u64,
                    Arg::Scalar(bits) => bits,
                };
            }
        }
        for &(reg, entry, _) in &plan.globals {
            registers[reg.0 as usize] = plan.pool[entry as usize].as_ptr() as u64;
        }
        // Checked blocks run one after another.
        let threads = if options.checked { 1 } else { options.threads.unwrap_or_else(rayon::current_num_threads) };
        let blocks = Blocks::new(grid, threads);
        let crowd = blocks.crowd().filter(|_| self.may_wait);
        let (isa, limit) = (Isa::detect(), options.limit);
        let launch = Launch { plan, grid, isa, ranges: &ranges, registers: &registers, limit, crowd };
        if options.checked {
            let check = Check::new(plan, &ranges, options.uninitialised, grid);
            // SAFETY: the caller's promise.
            return unsafe { self.run_checked(&launch, check, options) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.run_parallel(&launch, blocks, options) }
    }

    /// Whether something that is written may be reached under another name.
    fn overlap(&self, ranges: &[Range], args: usize) -> bool {
        let plan = &self.fused;
        let clash = |a: &Range, b: &Range| a.start < b.end && b.start < a.end;
        (0..args).any(|i| {
            (plan.written.contains(&(i as u16)) || plan.written_elsewhere)
                && ranges.iter().enumerate().any(|(j, other)| i != j && clash(&ranges[i], other))
        })
    }

    unsafe fn run_checked(&self, launch: &Launch<'_>, mut check: Check, options: &RunOptions<'_>) -> Result<(), Fault> {
        let mut memory = self.idle.take();
        let mut text = String::new();
        let mut result = Ok(());
        {
            let mut machine = Machine::new(launch, &mut memory, Some(&mut check));
            for index in 0..block_count(launch.grid) {
                let block = block_at(launch.grid, index);
                // SAFETY: the caller's promise.
                let ran = unsafe { machine.run(block) };
                text.push_str(&machine.text);
                if let Err(diagnostic) = ran {
                    result = Err(Fault { diagnostic: *diagnostic, block: Some(block) });
                    break;
                }
            }
        }
        self.idle.give(memory);
        emit(options, &text);
        if let (Ok(()), Some(written)) = (&result, options.written)
            && let Ok(mut written) = written.lock()
        {
            *written = check.written(options.uninitialised);
        }
        result
    }

    unsafe fn run_parallel(&self, launch: &Launch<'_>, blocks: Blocks, options: &RunOptions<'_>) -> Result<(), Fault> {
        blocks.run(|| {
            let mut memory = self.idle.take();
            {
                let mut machine = Machine::new(launch, &mut memory, None);
                blocks.drain(|block| {
                    // SAFETY: the caller's promise.
                    let outcome = unsafe { machine.run(block) };
                    (std::mem::take(&mut machine.text), outcome)
                });
            }
            crate::kernels::copy::fence();
            self.idle.give(memory);
        });
        blocks.finish(options)
    }
}

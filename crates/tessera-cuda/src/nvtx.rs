//! NVTX 3: ranges that NVIDIA's profilers show beside the kernels.
//!
//! There is no library to load: a profiler names its own one in `NVTX_INJECTION64_PATH`, and whoever has ranges to tell loads that, calls its
//! `InitializeInjectionNvtx2` and offers it a table of slots, into which it puts its functions (NVTX's `nvtxDetail/nvtxTypes.h`, version 3):
//!
//! ```text
//! InitializeInjectionNvtx2(export_table)         the profiler's; 0 where it does not want to listen
//!   export_table(1) -> callbacks                 ours: { size, function_table }
//!     function_table(module, &table, &size)      ours: slots of a module, numbered as NVTX numbers its functions
//!       *table[9] = push, *table[11] = pop       the profiler's functions, for ranges in the core module
//! ```
//!
//! Without a profiler the driver table's slots stay absent, and nobody is told anything.

#![allow(unsafe_code, reason = "calls into a C library, which writes into our table")]

use std::ffi::{CString, OsStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use libloading::Library;
use tessera_driver::DriverTable;

/// The variable that names the profiler's library.
const PATH: &str = "NVTX_INJECTION64_PATH";
/// The export table that we have, and our number for modules whose functions we call: `NVTX_ETID_CALLBACKS`, `NVTX_CB_MODULE_CORE`.
const CALLBACKS: u32 = 1;
const CORE: u32 = 1;
/// Modules, from `CORE` on, and slots of each: the core modules have 16, the others fewer.
const MODULES: usize = 6;
const SLOTS: usize = 16;
/// Slots of the core module: `NVTX_CBID_CORE_RangePushA` and `NVTX_CBID_CORE_RangePop`.
const PUSH: usize = 9;
const POP: usize = 11;

type Slot = AtomicPtr<c_void>;
type Initialise = unsafe extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;
type Push = unsafe extern "C" fn(*const c_char) -> c_int;
type Pop = unsafe extern "C" fn() -> c_int;

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    size: usize,
    function_table: extern "C" fn(u32, *mut *const *const Slot, *mut c_uint) -> c_int,
}

static FUNCTIONS: [[Slot; SLOTS]; MODULES] = [const { [const { Slot::new(null_mut()) }; SLOTS] }; MODULES];

/// Addresses of slots, with a null address behind the last one.
struct Table([*const Slot; SLOTS + 1]);

// SAFETY: the addresses are those of statics that are written and read atomically.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

static TABLES: OnceLock<[Table; MODULES]> = OnceLock::new();
static EXPORTED: Callbacks = Callbacks { size: size_of::<Callbacks>(), function_table };

extern "C" fn export_table(id: u32) -> *const c_void {
    if id == CALLBACKS { (&raw const EXPORTED).cast() } else { std::ptr::null() }
}

extern "C" fn function_table(module: u32, table: *mut *const *const Slot, size: *mut c_uint) -> c_int {
    let Some(at) = module.checked_sub(CORE).map(|at| at as usize).filter(|at| *at < MODULES) else { return 0 };
    let tables = TABLES.get_or_init(|| {
        std::array::from_fn(|module| {
            Table(std::array::from_fn(|slot| FUNCTIONS[module].get(slot).map_or(std::ptr::null(), |slot| &raw const *slot)))
        })
    });
    // SAFETY: a profiler gives places for both, or null for what it does not want.
    unsafe {
        if !table.is_null() {
            *table = tables[at].0.as_ptr();
        }
        if !size.is_null() {
            *size = SLOTS as c_uint;
        }
    }
    1
}

/// Has a profiler's library put its functions into the slots; false where it is not there or does not listen.
fn initialise(path: &OsStr) -> bool {
    // SAFETY: whoever set the variable wants this library loaded.
    let Ok(library) = (unsafe { Library::new(path) }) else { return false };
    // SAFETY: NVTX says what type the function has.
    let Ok(initialise) = (unsafe { library.get::<Initialise>(b"InitializeInjectionNvtx2\0") }) else { return false };
    // SAFETY: the function is given what it is defined to take.
    let listens = unsafe { initialise(export_table) } != 0;
    // Its functions are called as long as the process runs.
    std::mem::forget(library);
    listens
}

/// Fills the slots for ranges, where a profiler listens.
pub(crate) fn fill(table: &mut DriverTable) {
    static LISTENS: OnceLock<bool> = OnceLock::new();
    if !*LISTENS.get_or_init(|| std::env::var_os(PATH).is_some_and(|path| initialise(&path))) {
        return;
    }
    let [push, pop] = [PUSH, POP].map(|slot| FUNCTIONS[0][slot].load(Ordering::Acquire));
    if push.is_null() || pop.is_null() {
        return;
    }
    // SAFETY: the profiler has put functions of these types there.
    let (push, pop) = unsafe { (std::mem::transmute::<*mut c_void, Push>(push), std::mem::transmute::<*mut c_void, Pop>(pop)) };
    table.range_push = Some(Box::new(move |name: &str| {
        // A name with a zero byte in it is told up to there.
        let name = CString::new(name.split('\0').next().unwrap_or_default()).unwrap_or_default();
        // SAFETY: the text ends in a zero byte and lives through the call.
        unsafe { push(name.as_ptr()) };
        Ok(())
    }));
    table.range_pop = Some(Box::new(move || {
        // SAFETY: it takes nothing.
        unsafe { pop() };
        Ok(())
    }));
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A profiler that writes down what it is told.
    const LISTENER: &str = r#"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
typedef void (*function)(void);
typedef struct { size_t size; int (*table)(unsigned, function ***, unsigned *); } callbacks;
static FILE *file;
static int depth;
static int push(const char *name) { fprintf(file, "%d %s\n", depth, name); fflush(file); return depth++; }
static int pop(void) { fprintf(file, "pop\n"); fflush(file); return --depth; }
int InitializeInjectionNvtx2(const void *(*export_table)(unsigned)) {
    const callbacks *own = export_table(1);
    function **table = NULL;
    unsigned size = 0;
    if (!own || own->size < sizeof *own || !own->table(1, &table, &size) || size <= 11 || table[size]) return 0;
    if (export_table(2) || own->table(7, &table, &size) || !own->table(5, &table, &size) || !own->table(1, &table, &size)) return 0;
    file = fopen(getenv("LISTENER_WRITES"), "w");
    *table[9] = (function)push;
    *table[11] = (function)pop;
    return file != NULL;
}
"#;

    #[test]
    fn a_profiler_hears_of_ranges() {
        let folder = std::env::temp_dir().join(format!("tessera-nvtx-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [source, library, told] = ["listener.c", "liblistener.so", "told.txt"].map(|name| folder.join(name));
        std::fs::write(&source, LISTENER).unwrap();
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
        assert!(compiled.is_ok_and(|status| status.success()), "a C compiler is needed here");
        // SAFETY: no other thread of this test's process reads the environment: a test is a process.
        unsafe {
            std::env::set_var(PATH, &library);
            std::env::set_var("LISTENER_WRITES", &told);
        }
        let mut table = DriverTable::empty("a test");
        fill(&mut table);
        table.range_push("outer\0not told").unwrap();
        table.range_push("inner").unwrap();
        table.range_pop().unwrap();
        table.range_pop().unwrap();
        assert_eq!(std::fs::read_to_string(&told).unwrap(), "0 outer\n1 inner\npop\npop\n");
        assert!(!initialise(OsStr::new("no-such-library.so")));
        std::fs::remove_dir_all(folder).unwrap();
    }
}

//! Foreign functions found by name in a library that is loaded at run time.

/// Declares `Symbols`: one row a function, absent where the library lacks it. `Library` and `Status` are the file's own.
macro_rules! symbols {
    ($($field:ident = $symbol:literal : fn($($ty:ty),*);)*) => {
        /// The functions found in the library, by their C names.
        struct Symbols {
            $($field: Option<unsafe extern "C" fn($($ty),*) -> Status>,)*
            // The pointers above are valid as long as the library is loaded. It stays: threads that it has started may still run (NCCL's, which
            // answers for an identifier, crashed the process when its code was gone).
            _library: std::mem::ManuallyDrop<Library>,
        }

        impl Symbols {
            fn find(library: Library) -> Symbols {
                Symbols {
                    // SAFETY: the signatures are those of the library's header for these versioned names.
                    $($field: unsafe { library.get(concat!($symbol, "\0")).ok().map(|symbol| *symbol) },)*
                    _library: std::mem::ManuallyDrop::new(library),
                }
            }
        }
    };
}

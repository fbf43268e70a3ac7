//! What does not fit the table or the rules of SSA is said: by the builder at its end, by the verifier for any kernel.

use expect_test::expect;
use tessera_ptx::ssa::{Arg, Builder, Class, Kernel, Level, Results, Terminator, optimize, verify};
use tessera_ptx::{Special, Type, Word};

fn built(build: impl FnOnce(&mut Builder)) -> Result<Kernel, String> {
    let mut b = Builder::new("k");
    build(&mut b);
    b.finish().map_err(|error| error.to_string())
}

#[test]
fn the_builder_keeps_the_first_mistake() {
    let message = |build: fn(&mut Builder)| built(build).unwrap_err();
    expect!["building `k`: `add.rn.u32` is no instruction of the table"].assert_eq(&message(|b| {
        let one = b.u32(1);
        b.value("add.rn.u32", &[one.into(), one.into()]);
        b.value("nonsense", &[]);
        b.ret();
    }));
    expect!["building `k`: `.nonsense` is no modifier: `add.nonsense`"].assert_eq(&message(|b| {
        b.effect("add.nonsense", &[]);
    }));
    expect!["building `k`: `add.u32`: operand 3 is `.b64` where `.u32` is needed"].assert_eq(&message(|b| {
        let (short, long) = (b.u32(1), b.u64(1));
        b.add(Type::U32, short, long);
        b.ret();
    }));
    expect!["building `k`: `ld.global.u32` defines a value under a guard: it needs a value for the other case"].assert_eq(
        &message(|b| {
            let x = b.pointer_param("x", 4);
            let zero = b.ld("global", Type::U32, x);
            let one = b.u32(1);
            let p = b.setp(Word::Eq, Type::U32, zero, one);
            b.guarded(p, |b| {
                b.ld("global", Type::U32, x);
            });
            b.ret();
        }),
    );
    expect!["building `k`: block 0 has no end"].assert_eq(&message(|_| {}));
    expect!["building `k`: a block ends twice"].assert_eq(&message(|b| {
        b.ret();
        b.ret();
    }));
    expect!["building `k`: an instruction behind its block's end"].assert_eq(&message(|b| {
        b.ret();
        b.bar_sync_all();
    }));
    expect!["building `k`: a jump's values do not fit the parameters of block 1"].assert_eq(&message(|b| {
        let block = b.new_block(&[Class::B32]);
        let wide = b.u64(1);
        b.jump(block, &[wide]);
    }));
    expect!["building `k`: `bar.sync`: the row has no result"].assert_eq(&message(|b| {
        b.instruction("bar.sync", Results::One, &[]);
    }));
}

#[test]
fn the_verifier_sees_what_is_wrong() {
    let good = || {
        built(|b| {
            let x = b.pointer_param("x", 4);
            let thread = b.special(Special::TidX);
            let sum = b.add(Type::U32, thread, thread);
            let zero = b.u32(0);
            let p = b.setp(Word::Eq, Type::U32, sum, zero);
            b.when(p, |b| {
                let twice = b.mul(Type::U32, sum, sum);
                b.st("global", Type::U32, x, twice);
            });
            b.ret();
        })
        .unwrap()
    };
    assert_eq!(verify(&good()), Vec::<String>::new());
    let wrong = |spoil: fn(&mut Kernel)| {
        let mut kernel = good();
        spoil(&mut kernel);
        verify(&kernel).join("; ")
    };
    expect!["block 1 has no end"].assert_eq(&wrong(|kernel| {
        let block = kernel.layout[1];
        kernel.block_mut(block).terminator = None;
    }));
    expect!["block 0 jumps to block 1, which is not placed"].assert_eq(&wrong(|kernel| {
        kernel.layout.remove(1);
    }));
    expect!["value 2 is read in block 0 before it is defined"].assert_eq(&wrong(|kernel| {
        let entry = kernel.entry();
        kernel.block_mut(entry).insts.reverse();
    }));
    expect!["value 5 is read in block 2 before it is defined"].assert_eq(&wrong(|kernel| {
        // The store moves behind the branch's join, where its value need not have been computed.
        let (yes, join) = (kernel.layout[1], kernel.layout[2]);
        let store = kernel.block_mut(yes).insts.pop().unwrap();
        kernel.block_mut(join).insts.push(store);
    }));
    expect!["value 2 is defined twice"].assert_eq(&wrong(|kernel| {
        let entry = kernel.entry();
        let first = kernel.block(entry).insts[0];
        kernel.block_mut(entry).insts.insert(0, first);
    }));
    expect!["`add.u32` in block 0: operand 3 is missing"].assert_eq(&wrong(|kernel| {
        let first = kernel.block(kernel.entry()).insts[0];
        kernel.inst_mut(first).args.pop();
    }));
    expect!["block 0 branches on no predicate"].assert_eq(&wrong(|kernel| {
        let entry = kernel.entry();
        let first = kernel.block(entry).insts[0];
        let Arg::Def(sum) = kernel.inst(first).args[0] else { panic!() };
        if let Some(Terminator::Branch { condition, .. }) = &mut kernel.block_mut(entry).terminator {
            *condition = sum;
        }
    }));
}

#[test]
fn a_kernel_reads() {
    let mut kernel = built(|b| {
        let (x, n) = (b.pointer_param("x", 16), b.scalar_param("n", Type::S32));
        let tile = b.shared_variable("tile", 64, 16);
        let (zero, one, four) = (b.u32(0), b.u32(1), b.u32(4));
        let sums = b.for_(Type::S32, (zero, n, one), &[zero], |b, i, sums| {
            let at = b.mad_wide(Type::S32, i, four, x);
            let p = b.setp(Word::Ne, Type::S32, i, one);
            let found = b.ld_if(p, "global", Type::F32, at, one);
            vec![b.add(Type::F32, sums[0], found)]
        });
        b.st("shared", Type::F32, (tile, 8), sums[0]);
        b.ret();
    })
    .unwrap();
    optimize(&mut kernel, Level::O2);
    expect![[r#"
        kernel k(x: pointer 16, n: s32)
        shared tile: 64 align 16
        b0:
            %9:pred = setp.lt.s32 0, n
            branch %9, b2(0, 0), b1(0)
        b2(%7:b32, %8:b32):
            %10:b64 = mad.wide.s32 %7, 4, x
            %11:pred = setp.ne.s32 %7, 1
            1=>%12:b32 = @%11 ld.global.f32 [%10]
            %13:b32 = add.rn.f32 %8, %12
            %14:b32 = add.s32 %7, 1
            %15:pred = setp.lt.s32 %14, n
            branch %15, b2(%14, %13), b1(%13)
        b1(%6:b32):
            st.shared.f32 [&tile+8], %6
            return
    "#]]
    .assert_eq(&kernel.to_string());
}

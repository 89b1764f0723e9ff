//! The kernels of one file in `shaders/` have most of their description in common.

/// Declares `kernel(entry, [inputs, outputs, constants], (twin, fast), tolerance, cases)`, a [`Kernel`](super::Kernel) of the
/// file named first, with the libraries and the invocations of a workgroup that follow it: 64 if none are given.
macro_rules! family {
    ($stem:literal, [$($library:ident),+]) => {
        $crate::kernels::family::family!($stem, [$($library),+], 64);
    };
    ($stem:literal, [$($library:ident),+], $workgroup:literal) => {
        const fn kernel(
            entry: &'static str,
            [inputs, outputs, constants]: [&'static [&'static str]; 3],
            (twin, fast): ($crate::kernels::Twin, $crate::kernels::Twin),
            tolerance: f32,
            cases: fn() -> Vec<$crate::kernels::cases::Case>,
        ) -> $crate::kernels::Kernel {
            // A page has none.
            #[cfg(target_arch = "wasm32")]
            let _ = cases;
            $crate::kernels::Kernel {
                stem: $stem,
                entry,
                source: $crate::kernels::text::wgsl!($stem),
                uses: &[$($crate::kernels::Library::$library),+],
                params: Params::FIELDS,
                inputs,
                outputs,
                workgroup: $workgroup,
                constants,
                twin,
                fast: Some(fast),
                tolerance,
                #[cfg(not(target_arch = "wasm32"))]
                cases,
            }
            .lean()
        }
    };
}
pub(super) use family;

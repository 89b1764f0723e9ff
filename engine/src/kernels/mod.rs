//! The kernels: one WGSL entry point each, its host side, and its twin in plain Rust.
//!
//! [`FAMILIES`] is the one table. Tests, benches and the support matrix read it.

// Files: one for each shader, with its `Params`, bindings, twin, fast version and cases; a folder of the same name holds the parts of a
// family that is too long for one file. `table.rs`: `FAMILIES`; `family.rs`: types that the kernels of a file share; `update.rs`: what
// the updates of optimizers share; `cases.rs`: a test case; `text.rs`: the shaders' texts; `product.rs`, `gemm.rs`: the CPU's matrix
// product; `parallel.rs`, `vectors.rs`: fast versions over threads and in vectors; `rounding.rs`, `random.rs`, `real.rs`: numbers that all share;
// `activation_functions.rs`: activation functions for layers and fused kernels.

mod family;
mod text;

pub mod activation;
pub mod activation_functions;
pub mod adadelta;
pub mod adagrad;
pub mod adam;
pub mod adamax;
pub mod add;
pub mod attention;
pub mod batch_norm;
pub mod bilinear;
pub mod cases;
pub mod clip;
pub mod completion;
pub mod concatenate;
pub mod conv2d;
pub mod dense;
pub mod depthwise_conv2d;
pub mod depthwise_conv2d_fours;
pub mod dropout;
pub mod ema;
pub mod embedding;
pub mod ftrl;
pub mod gaussian;
mod gemm;
pub mod global_max;
pub mod group_norm;
pub mod halves;
pub mod lion;
pub mod mask;
pub mod merge;
pub mod nadam;
pub mod packed;
pub mod parallel;
pub mod pointwise_loss;
pub mod pooling;
pub mod product;
pub mod random;
mod real;
pub mod recurrent;
pub mod recurrent_scan;
pub mod reduce;
pub mod regularizer;
pub mod remap;
pub mod rmsprop;
pub mod rotary_embedding;
pub mod rounding;
pub mod row_loss;
pub mod sgd;
pub mod softmax;
pub mod softmax_cross_entropy;
pub mod split_sum;
mod table;
mod update;
mod vectors;

use std::fmt;

use serde::{Deserialize, Serialize};

use self::text::wgsl;
use crate::size::{Grid, Length, Word, length_word};

pub use table::{FAMILIES, Families, all, find, is_known};

/// Type of a field of `Params`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// `u32` in WGSL.
    U32,
    /// `f32` in WGSL.
    F32,
}

/// A field of `Params`; its offset is its index times 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name, the same in WGSL.
    pub name: &'static str,
    /// Type, the same in WGSL.
    pub ty: FieldType,
}

/// A WGSL file of functions that kernels use, appended after the kernel's own text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// `lib/grid.wgsl`: index of an invocation or workgroup over a folded grid.
    Grid,
    /// `lib/reduce.wgsl`: sum and maximum over a workgroup.
    Reduce,
    /// `lib/activation.wgsl`: activation functions and their derivatives, chosen by `override ACTIVATION`.
    Activation,
    /// `lib/random.wgsl`: counter-based random numbers.
    Random,
    /// `lib/update.wgsl`: the frame of an optimizer's update, with its entry point, around the kernel's `formula`.
    Update,
    /// `lib/product_*.wgsl`: the tile loop of a matrix product, one file a way to cut it, and `lib/product_factors.wgsl`
    /// for all of them.
    Product,
    /// `lib/attention.wgsl`: the loops of attention, through workgroup memory.
    Attention,
    /// `lib/gates.wgsl`: gates and cells of recurrent layers.
    Gates,
    /// `lib/depthwise.wgsl`: sizes of depthwise convolutions, and the lines that windows see.
    Depthwise,
}

/// Intel's PCI vendor id.
pub const INTEL: u32 = 0x8086;

/// A way to cut a matrix product into workgroups. The best one depends on the adapter, and on the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tile {
    /// 8 × 8 results an invocation, from registers alone.
    Registers,
    /// 32 × 32 results of 64 invocations through workgroup memory, 4 × 4 each.
    Workgroup32,
    /// 64 × 64 results of 256 invocations through workgroup memory, 4 × 4 each.
    Workgroup64,
    /// 128 × 128 results of 256 invocations through workgroup memory, 8 × 8 each.
    Workgroup128,
    /// 64 × 64 results of 64 invocations through workgroup memory, 8 × 8 each.
    Eights64,
    /// As [`Tile::Workgroup64`], with factors that stand in workgroup memory as 16-bit floats: for products that round
    /// them to such floats, on devices with the feature `shader-f16`.
    Halves64,
    /// 64 × 64 results of 256 invocations, whose subgroups multiply cooperative matrices of 16 × 16 16-bit floats: on
    /// tensor cores and their like. For the products of [`Tile::Halves64`], on devices that have such matrices.
    Matrices16,
    /// As [`Tile::Matrices16`], with 128 × 128 results, for subgroups of 32 invocations alone.
    LargeMatrices16,
    /// As [`Tile::Matrices16`], with matrices of 8 × 8.
    Matrices8,
}

impl Tile {
    /// Every tile.
    pub const ALL: [Self; 9] = [
        Self::Registers,
        Self::Workgroup32,
        Self::Workgroup64,
        Self::Workgroup128,
        Self::Eights64,
        Self::Halves64,
        Self::Matrices16,
        Self::LargeMatrices16,
        Self::Matrices8,
    ];

    /// The one for graphics cards before tuning: it [fits](Self::fits) all vendors.
    pub const OF_CARDS: Self = Self::Workgroup64;

    /// Whether the compilers of a vendor, by its PCI id, keep its sums in registers (`compilers/tests/vendors.rs`). On Intel an invocation
    /// has room for 4 × 4 results, and not for 8 × 8.
    pub fn fits(self, vendor: u32) -> bool {
        vendor != INTEL || matches!(self, Self::Workgroup32 | Self::Workgroup64 | Self::Halves64)
    }

    /// Whether it multiplies 16-bit floats, and so serves products alone that round their factors to such floats.
    pub fn is_of_halves(self) -> bool {
        matches!(self, Self::Halves64) || self.is_of_matrices()
    }

    /// Whether it multiplies cooperative matrices.
    pub fn is_of_matrices(self) -> bool {
        matches!(self, Self::Matrices16 | Self::LargeMatrices16 | Self::Matrices8)
    }

    /// The one to use for a grid on an adapter where this one is best. What is no product has one text.
    #[must_use]
    pub fn chosen_for(self, grid: Grid) -> Self {
        if matches!(grid, Grid::Tiles { .. }) { self } else { Self::Registers }
    }

    /// Whether it can compute a grid for a kernel with these constants.
    pub fn is_able(self, grid: Grid, constants: &[(&'static str, f64)]) -> bool {
        self.chosen_for(grid) == self && (!self.is_of_halves() || product::is_of_halves(constants))
    }

    /// The `override` constant that fits the text to a grid, if it has one: few columns need another cut than
    /// many.
    pub fn constant(self, grid: Grid) -> Option<(&'static str, u32)> {
        // Columns that depend on the rows of a run are many.
        let columns = match grid {
            Grid::Tiles { n: Word::U32(columns), .. } => columns,
            Grid::Tiles { .. } => u32::MAX,
            _ => return None,
        };
        match self {
            Self::Registers => Some(("PRODUCT_ACROSS", columns.div_ceil(8).min(8).next_power_of_two())),
            Self::Workgroup32 | Self::Eights64 => Some(("PRODUCT_ACROSS", 8)),
            Self::Workgroup64 | Self::Workgroup128 | Self::Halves64 => Some(("PRODUCT_ACROSS", 16)),
            Self::Matrices16 | Self::Matrices8 => None,
            Self::LargeMatrices16 => Some(("PRODUCT_TILE", 128)),
        }
    }

    /// Rows and columns of the result that one workgroup computes, with the value of its constant.
    pub fn size(self, constant: Option<(&'static str, u32)>) -> [u32; 2] {
        let constant = constant.map_or(1, |(_, value)| value);
        match self {
            Self::Registers => [64 / constant * 8, constant * 8],
            Self::Workgroup32 => [32, 32],
            Self::Workgroup64 | Self::Eights64 | Self::Halves64 | Self::Matrices16 | Self::Matrices8 => [64, 64],
            Self::Workgroup128 | Self::LargeMatrices16 => [128, 128],
        }
    }
}

/// The part of a grid that a dispatch computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Extent {
    /// All of it.
    Whole,
    /// From a workgroup on that the host writes: binding 0 of group 1. For kernels with [`Library::Grid`].
    Part,
}

impl Extent {
    /// The text that counts the workgroups.
    #[doc(hidden)]
    pub fn source(self) -> &'static str {
        match self {
            Self::Whole => wgsl!("lib/grid_whole"),
            Self::Part => wgsl!("lib/grid_part"),
        }
    }
}

impl Library {
    /// The text, for a tile where there are several.
    #[doc(hidden)]
    pub fn source(self, tile: Tile) -> &'static str {
        match (self, tile) {
            (Self::Grid, _) => wgsl!("lib/grid"),
            (Self::Reduce, _) => wgsl!("lib/reduce"),
            (Self::Activation, _) => wgsl!("lib/activation"),
            (Self::Random, _) => wgsl!("lib/random"),
            (Self::Update, _) => wgsl!("lib/update"),
            (Self::Product, Tile::Registers) => wgsl!("lib/product_registers"),
            (Self::Product, Tile::Workgroup32 | Tile::Workgroup64 | Tile::Halves64) => {
                wgsl!("lib/product_workgroup")
            }
            (Self::Product, Tile::Workgroup128 | Tile::Eights64) => wgsl!("lib/product_eights"),
            (Self::Product, Tile::Matrices16 | Tile::LargeMatrices16 | Tile::Matrices8) => {
                wgsl!("lib/product_matrices")
            }
            (Self::Attention, _) => wgsl!("lib/attention"),
            (Self::Gates, _) => wgsl!("lib/gates"),
            (Self::Depthwise, _) => wgsl!("lib/depthwise"),
        }
    }

    /// All its texts for a tile.
    #[doc(hidden)]
    pub fn sources(self, tile: Tile) -> impl Iterator<Item = &'static str> {
        let factors = (self == Self::Product).then(|| {
            if tile.is_of_halves() { wgsl!("lib/product_factors_halves") } else { wgsl!("lib/product_factors") }
        });
        let types = match (self, tile) {
            (Self::Product, Tile::Workgroup32 | Tile::Workgroup64) => Some(wgsl!("lib/product_kept_singles")),
            (Self::Product, Tile::Halves64) => Some(wgsl!("lib/product_kept_halves")),
            (Self::Product, Tile::Matrices16 | Tile::LargeMatrices16) => Some(wgsl!("lib/product_matrices_16")),
            (Self::Product, Tile::Matrices8) => Some(wgsl!("lib/product_matrices_8")),
            _ => None,
        };
        std::iter::once(self.source(tile)).chain(factors).chain(types)
    }
}

/// Arguments of a twin: the resolved `Params`, the constants and the inputs.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The words of `Params`.
    pub params: &'a [u32],
    /// Values of `override` constants that differ from their default.
    pub constants: &'a [(&'static str, f64)],
    /// The inputs, in the order of the bindings; each may be longer than needed.
    pub inputs: &'a [&'a [f32]],
}

impl Call<'_> {
    /// `Params` as the struct of the kernel's host file.
    pub fn params<P: bytemuck::AnyBitPattern>(&self) -> P {
        bytemuck::pod_read_unaligned(bytemuck::cast_slice(&self.params[..size_of::<P>() / 4]))
    }

    /// The value of an `override` constant, or its default.
    pub fn constant(&self, name: &str, default: f64) -> f64 {
        self.constants.iter().find(|(known, _)| *known == name).map_or(default, |(_, value)| *value)
    }
}

/// A kernel in plain Rust: reads `call.inputs`, writes (and may read) `outputs`.
pub type Twin = fn(call: &Call<'_>, outputs: &mut [&mut [f32]]);

/// One WGSL entry point and all that the host knows of it.
pub struct Kernel {
    /// File name in `shaders/`, without `.wgsl`.
    pub stem: &'static str,
    /// Entry point.
    pub entry: &'static str,
    /// Text of the file.
    pub source: &'static str,
    /// Libraries appended to it, in this order.
    pub uses: &'static [Library],
    /// Fields of `Params`, binding 0.
    pub params: &'static [Field],
    /// Names of the buffers it reads: bindings 1, 2, …
    pub inputs: &'static [&'static str],
    /// Names of the buffers it writes: the bindings after the inputs.
    pub outputs: &'static [&'static str],
    /// Invocations of a workgroup.
    pub workgroup: u32,
    /// Names of `override` constants that a plan may set.
    pub constants: &'static [&'static str],
    /// The truth: the same sums, in f64.
    pub twin: Twin,
    /// Version for the CPU adapter if the twin is too slow; tested against the twin.
    pub fast: Option<Twin>,
    /// Largest difference from the twin, relative to `1 + |twin|`, on any adapter.
    pub tolerance: f32,
    /// The sizes at which it is tested and measured. A page does neither, and would have to load them.
    #[cfg(not(target_arch = "wasm32"))]
    #[doc(hidden)]
    pub cases: fn() -> Vec<cases::Case>,
}

impl Kernel {
    /// A kernel of elements: 64 invocations a workgroup, with `lib/grid.wgsl`, within 1e-5 of its twin. Other settings
    /// go before it: `Kernel { workgroup: 256, ..Kernel::new(…) }`.
    pub const fn new(
        stem: &'static str,
        entry: &'static str,
        source: &'static str,
        params: &'static [Field],
        inputs: &'static [&'static str],
        outputs: &'static [&'static str],
        twin: Twin,
    ) -> Self {
        Self {
            stem,
            entry,
            source,
            uses: &[Library::Grid],
            params,
            inputs,
            outputs,
            workgroup: 64,
            constants: &[],
            twin,
            fast: None,
            tolerance: 1e-5,
            #[cfg(not(target_arch = "wasm32"))]
            cases: Vec::new,
        }
    }

    /// As it is; in a page without its twin where there is a fast version, since a page computes with that and would
    /// have to load both.
    #[must_use]
    #[doc(hidden)]
    pub const fn lean(mut self) -> Self {
        if let (true, Some(fast)) = (cfg!(target_arch = "wasm32"), self.fast) {
            self.twin = fast;
        }
        self
    }

    /// `stem.entry`, the name in a trace.
    pub fn name(&self) -> String {
        format!("{}.{}", self.stem, self.entry)
    }

    /// The whole WGSL text for a tile, where one dispatch computes all.
    #[doc(hidden)]
    pub fn wgsl(&self, tile: Tile) -> String {
        self.wgsl_for(tile, Extent::Whole)
    }

    /// The whole WGSL text for a tile and a part of the grid.
    #[doc(hidden)]
    pub fn wgsl_for(&self, tile: Tile, extent: Extent) -> String {
        let of_halves = tile.is_of_halves().then_some("enable f16;");
        // naga can't tell that the loops around matrices are the same for all invocations, and would refuse them.
        let of_matrices =
            tile.is_of_matrices().then_some("enable wgpu_cooperative_matrix;\ndiagnostic(off, derivative_uniformity);");
        let enabled = of_halves.into_iter().chain(of_matrices);
        let libraries = self.uses.iter().flat_map(|library| library.sources(tile));
        let counting = self.may_run_in_parts().then(|| extent.source());
        enabled.chain([self.source]).chain(libraries).chain(counting).collect::<Vec<_>>().join("\n")
    }

    /// Whether several dispatches can compute its grid, one part after the other.
    #[doc(hidden)]
    pub fn may_run_in_parts(&self) -> bool {
        self.uses.contains(&Library::Grid)
    }

    /// The tiles for which it has a text of its own.
    #[doc(hidden)]
    pub fn tiles(&self) -> &'static [Tile] {
        if self.uses.contains(&Library::Product) { &Tile::ALL } else { &[Tile::Registers] }
    }

    /// Whether the text differs between tiles.
    #[doc(hidden)]
    pub fn is_tiled(&self) -> bool {
        self.tiles().len() > 1
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.stem, self.entry)
    }
}

/// Declares a kernel's `Params`: the struct that a twin reads, and `Record`, the same with [`Word`]s, that a layer records.
///
/// In a crate of your own it needs `bytemuck`, with its feature `derive`, among your dependencies.
#[macro_export]
macro_rules! params {
    ($($(#[$doc:meta])* $name:ident: $ty:ident),* $(,)?) => {
        /// `Params` of the shader, as the twin reads it.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
        pub struct Params { $($(#[$doc])* pub $name: $ty,)* }

        impl Params {
            /// Names and types, in order.
            pub const FIELDS: &'static [$crate::kernels::Field] = &[
                $($crate::kernels::Field { name: stringify!($name), ty: $crate::params!(@type $ty) },)*
            ];

            /// The words, as an adapter sees them.
            pub fn words(&self) -> Vec<u32> {
                bytemuck::cast_slice(std::slice::from_ref(self)).to_vec()
            }
        }

        /// `Params` as a layer records it.
        #[derive(Clone, Copy, Debug)]
        pub struct Record { $($(#[$doc])* pub $name: $crate::size::Word,)* }

        impl From<Record> for Vec<$crate::size::Word> {
            fn from(record: Record) -> Self {
                vec![$(record.$name,)*]
            }
        }
    };
    (@type u32) => { $crate::kernels::FieldType::U32 };
    (@type f32) => { $crate::kernels::FieldType::F32 };
}

/// Invocations that share a row of `cols` columns, where a kernel has the constant `LANES`.
///
/// A short row is one invocation's: to gather the sums of several takes longer than to read it. A long one, such as the logits of a
/// vocabulary, is a whole workgroup's: else a few hundred rows are too few workgroups for a GPU.
pub fn lanes(cols: usize) -> u32 {
    match cols {
        0..=16 => 1,
        17..=2048 => 16,
        _ => 64,
    }
}

/// The grid of a kernel that takes `positions` rows of `cols` columns a sample, and its constant `LANES`: how many
/// invocations share a row.
pub fn rows_grid(positions: usize, cols: usize) -> (Grid, (&'static str, f64)) {
    let lanes = lanes(cols);
    let count = length_word(Length::per_row(positions * lanes as usize));
    (Grid::Elements(count), ("LANES", f64::from(lanes)))
}

/// A word that is the whole number `value`.
///
/// # Panics
/// If it does not fit 32 bits; shapes are checked against that when a model is built.
#[allow(clippy::expect_used, reason = "a build check keeps every size of a model below 2^31")]
pub fn whole(value: usize) -> Word {
    Word::U32(u32::try_from(value).expect("a size was checked when the model was built"))
}

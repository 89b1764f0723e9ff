//! Sizes that are known only when a plan runs: words of `Params`, lengths of buffers, grids of kernels.

/// Bytes of an f32.
pub const F32_BYTES: u64 = 4;

/// A number in a kernel's `Params` or grid: known when recorded, or only when the plan runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Word {
    /// A whole number.
    U32(u32),
    /// A float.
    F32(f32),
    /// The rows of this run, times a factor (u32).
    Rows(u32),
    /// The groups of so many rows of this run, the last of which may be short, times a factor (u32).
    RowGroups(u32, u32),
    /// The rows of the whole batch, over all adapters, times a factor (u32).
    BatchRows(u32),
    /// The factor in the first of the runs whose gradients are added on the adapter, else 0 (u32).
    IsFirst(u32),
    /// The factor in those after the first, else 0 (u32).
    IsLater(u32),
    /// The factor in the last of them, else 0 (u32).
    IsLast(u32),
    /// Index in the whole batch of this run's first row (u32).
    FirstRow,
    /// The factor of an output's loss: its weight over the whole batch's count or sum of sample weights (f32).
    LossScale(u32),
    /// The factor of all gradients (f32).
    GradientScale,
    /// One over that factor (f32).
    GradientUnscale,
    /// A number of the optimizer for this step, such as the learning rate (f32).
    Hyper(u32),
    /// Seed of the run (u32).
    Seed,
    /// Training step (u32).
    Step,
    /// Number of the update, if steps that are not applied are repeated, else 0 (u32).
    Update,
}

impl From<u32> for Word {
    fn from(value: u32) -> Self {
        Self::U32(value)
    }
}

impl From<f32> for Word {
    fn from(value: f32) -> Self {
        Self::F32(value)
    }
}

/// The numbers that a run gives to the [`Word`]s of its plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scalars {
    /// Rows of this run.
    pub rows: u32,
    /// Rows of the whole batch.
    pub batch_rows: u32,
    /// Index in the whole batch of the first row.
    pub first_row: u32,
    /// 1 if this run's gradient is the first of those that are added on the adapter, else 0.
    pub is_first: u32,
    /// 1 if it is the last of them, so that the sum is sent after it, else 0.
    pub is_last: u32,
    /// Seed of the run.
    pub seed: u32,
    /// Training step.
    pub step: u32,
    /// Number of the update that this step is, counted from 1, if it is void behind one that was not applied: see
    /// [`clip::COMBINE`](crate::kernels::clip::COMBINE). Else 0.
    pub update: u32,
    /// Gradients are multiplied by 2 to the power of this, so that 16-bit floats hold them: the loss scale of mixed precision.
    pub gradient_exponent: i32,
    /// Loss factor of each output, that of all gradients included.
    pub loss_scales: Vec<f32>,
    /// Numbers of the optimizer.
    pub hyper: Vec<f32>,
}

impl Word {
    /// The 32 bits that the kernel sees.
    ///
    /// A loss scale or hyper number that the run does not give reads as 0.
    #[doc(hidden)]
    pub fn bits(self, scalars: &Scalars) -> u32 {
        let if_set = |flag: u32, factor: u32| if flag == 0 { 0 } else { factor };
        let float = |list: &[f32], index: u32| list.get(index as usize).copied().unwrap_or(0.0).to_bits();
        match self {
            Self::U32(value) => value,
            Self::F32(value) => value.to_bits(),
            Self::Rows(factor) => scalars.rows.saturating_mul(factor),
            Self::RowGroups(size, factor) => scalars.rows.div_ceil(size.max(1)).saturating_mul(factor),
            Self::BatchRows(factor) => scalars.batch_rows.saturating_mul(factor),
            Self::IsFirst(factor) => if_set(scalars.is_first, factor),
            Self::IsLater(factor) => factor - if_set(scalars.is_first, factor),
            Self::IsLast(factor) => if_set(scalars.is_last, factor),
            Self::FirstRow => scalars.first_row,
            Self::LossScale(index) => float(&scalars.loss_scales, index),
            Self::GradientScale => power_of_two(scalars.gradient_exponent).to_bits(),
            Self::GradientUnscale => power_of_two(-scalars.gradient_exponent).to_bits(),
            Self::Hyper(index) => float(&scalars.hyper, index),
            Self::Seed => scalars.seed,
            Self::Step => scalars.step,
            Self::Update => scalars.update,
        }
    }
}

/// 2 to a power whose result is a usual f32.
pub fn power_of_two(exponent: i32) -> f32 {
    2.0_f32.powi(exponent)
}

/// A length in elements that may grow with the rows of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Length {
    /// Elements for each row.
    pub per_row: u64,
    /// Elements whatever the rows.
    pub fixed: u64,
}

impl Length {
    /// `per_row` elements for each row.
    pub fn per_row(per_row: usize) -> Self {
        Self { per_row: per_row as u64, fixed: 0 }
    }

    /// `fixed` elements for any number of rows.
    pub fn fixed(fixed: usize) -> Self {
        Self { per_row: 0, fixed: fixed as u64 }
    }

    /// Elements for a number of rows.
    pub fn at(self, rows: u32) -> u64 {
        self.per_row.saturating_mul(u64::from(rows)).saturating_add(self.fixed)
    }

    /// The smallest length that holds both.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { per_row: self.per_row.max(other.per_row), fixed: self.fixed.max(other.fixed) }
    }
}

/// Number of workgroups of a dispatch. The kernel's workgroup size and the adapter's tile decide the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Grid {
    /// An invocation for each element.
    Elements(Word),
    /// A workgroup for each item.
    Items(Word),
    /// A workgroup for each tile of a result `[m, n]`, `depth` times (split along the sum).
    Tiles {
        /// Rows of the result.
        m: Word,
        /// Columns of the result.
        n: Word,
        /// Length of the sum behind each element, over all parts.
        k: Word,
        /// Parts into which the sum is split.
        depth: u32,
    },
}

impl Grid {
    /// Whether there is nothing to run.
    pub fn is_empty(self, scalars: &Scalars) -> bool {
        match self {
            Self::Elements(count) | Self::Items(count) => count.bits(scalars) == 0,
            Self::Tiles { m, n, .. } => m.bits(scalars) == 0 || n.bits(scalars) == 0,
        }
    }
}

/// A word for a grid of vectors of four elements: as many as a length fills, or a few more.
pub fn vectors_word(len: Length) -> Word {
    length_word(Length { per_row: len.per_row.div_ceil(4), fixed: len.fixed.div_ceil(4) })
}

/// A length as a word of `Params`.
///
/// # Panics
/// If the length mixes rows and a fixed part, or does not fit 32 bits; a build check prevents the latter.
#[allow(clippy::expect_used, reason = "lengths of tensors were checked when the model was built")]
pub fn length_word(len: Length) -> Word {
    if len.per_row == 0 {
        Word::U32(u32::try_from(len.fixed).expect("a length fits 32 bits"))
    } else {
        assert_eq!(len.fixed, 0, "a tensor's length is per row or fixed");
        Word::Rows(u32::try_from(len.per_row).expect("a row's length fits 32 bits"))
    }
}

//! A plan as words of 32 bits, to be sent to another worker. A kernel travels by its name: the reader has a table of those
//! that it can run.
//!
//! A page loads this code: the same through `serde` takes ten times the bytes.

use litemap::LiteMap;

use super::{
    Buffer, BufferId, Combine, Command, Dispatch, Exchange, Grid, Handed, Length, Moving, Pass, Penalty, Plan, Role,
    Scalars, View, When, Word,
};
use crate::kernels::{Families, Kernel};

/// A type that is written as numbers and read back.
pub trait Wire: Sized {
    /// Appends its words.
    fn put(&self, words: &mut Vec<u32>);

    /// Takes it from a reader; `None` if the words are of something else.
    fn take(words: &mut Reader<'_>) -> Option<Self>;
}

/// Words that are left to read.
#[derive(Debug)]
pub struct Reader<'a> {
    words: &'a [u32],
    kernels: Families,
    unknown: Option<String>,
}

impl<'a> Reader<'a> {
    /// Reads words that may name these kernels.
    pub fn new(words: &'a [u32], kernels: Families) -> Self {
        Self { words, kernels, unknown: None }
    }

    /// The name of the kernel at which reading ended, if that is not in the table.
    pub fn unknown(self) -> Option<String> {
        self.unknown
    }

    fn next(&mut self) -> Option<u32> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(*first)
    }

    fn kernel(&mut self) -> Option<&'static Kernel> {
        let name = String::take(self)?;
        let found = self.kernels.iter().copied().flatten().copied().find(|kernel| kernel.name() == name);
        if found.is_none() {
            self.unknown = Some(name);
        }
        found
    }
}

/// Structs, field by field.
macro_rules! structs {
    ($($name:ident { $($field:ident),* $(,)? })*) => {$(
        impl $crate::plan::Wire for $name {
            fn put(&self, words: &mut Vec<u32>) {
                $($crate::plan::Wire::put(&self.$field, words);)*
            }

            fn take(words: &mut $crate::plan::Reader<'_>) -> Option<Self> {
                Some(Self { $($field: $crate::plan::Wire::take(words)?,)* })
            }
        }
    )*};
}

/// Enums: a number for the variant, then its fields.
macro_rules! enums {
    ($($name:ident {
        $($tag:literal => $variant:ident $(($($unnamed:ident),*))? $({ $($field:ident),* })?),* $(,)?
    })*) => {$(
        impl $crate::plan::Wire for $name {
            fn put(&self, words: &mut Vec<u32>) {
                match self {
                    $(Self::$variant $(($($unnamed),*))? $({ $($field),* })? => {
                        words.push($tag);
                        $($($crate::plan::Wire::put($unnamed, words);)*)?
                        $($($crate::plan::Wire::put($field, words);)*)?
                    })*
                }
            }

            fn take(words: &mut $crate::plan::Reader<'_>) -> Option<Self> {
                let tag: u32 = $crate::plan::Wire::take(words)?;
                Some(match tag {
                    $($tag => {
                        $($(let $unnamed = $crate::plan::Wire::take(words)?;)*)?
                        $($(let $field = $crate::plan::Wire::take(words)?;)*)?
                        Self::$variant $(($($unnamed),*))? $({ $($field),* })?
                    })*
                    _ => return None,
                })
            }
        }
    )*};
}

pub(crate) use {enums, structs};

impl Wire for u32 {
    fn put(&self, words: &mut Vec<u32>) {
        words.push(*self);
    }

    fn take(words: &mut Reader<'_>) -> Option<Self> {
        words.next()
    }
}

impl Wire for u64 {
    #[allow(clippy::cast_possible_truncation, reason = "both halves are written")]
    fn put(&self, words: &mut Vec<u32>) {
        words.extend([*self as u32, (*self >> 32) as u32]);
    }

    fn take(words: &mut Reader<'_>) -> Option<Self> {
        let low = Self::from(words.next()?);
        Some(low | Self::from(words.next()?) << 32)
    }
}

impl Wire for usize {
    fn put(&self, words: &mut Vec<u32>) {
        (*self as u64).put(words);
    }

    fn take(words: &mut Reader<'_>) -> Option<Self> {
        u64::take(words)?.try_into().ok()
    }
}

impl Wire for i32 {
    fn put(&self, words: &mut Vec<u32>) {
        words.push(self.cast_unsigned());
    }

    fn take(words: &mut Reader<'_>) -> Option<Self> {
        words.next().map(u32::cast_signed)
    }
}

impl Wire for f32 {
    fn put(&self, words: &mut Vec<u32>) {
        words.push(self.to_bits());
    }

    fn take(words: &mut Reader<'_>) -> Option<Self> {
        words.next().map(Self::from_bits)
    }
}

impl Wire for f64 {
    fn put(&self, words: &mut Vec<u32>) {
        self.to_bits().put(words);
    }

    fn take(words: &mut Reader<'_>) -> Option<Self> {
        u64::take(words).map(Self::from_bits)
    }
}

impl Wire for String {
    fn put(&self, words: &mut Vec<u32>) {
        self.len().put(words);
        words.extend(self.bytes().map(u32::from));
    }

    fn take(words: &mut Reader<'_>) -> Option<Self> {
        let len = usize::take(words)?;
        let (text, rest) = words.words.split_at_checked(len)?;
        words.words = rest;
        let bytes: Option<Vec<u8>> = text.iter().map(|byte| u8::try_from(*byte).ok()).collect();
        Self::from_utf8(bytes?).ok()
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, words: &mut Vec<u32>) {
        self.len().put(words);
        self.iter().for_each(|item| item.put(words));
    }

    fn take(words: &mut Reader<'_>) -> Option<Self> {
        (0..usize::take(words)?).map(|_| T::take(words)).collect()
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, words: &mut Vec<u32>) {
        words.push(u32::from(self.is_some()));
        if let Some(item) = self {
            item.put(words);
        }
    }

    fn take(words: &mut Reader<'_>) -> Option<Self> {
        Some(if words.next()? == 0 { None } else { Some(T::take(words)?) })
    }
}

impl Wire for Dispatch {
    fn put(&self, words: &mut Vec<u32>) {
        let Self { kernel, node, constants, params, inputs, outputs, grid } = self;
        kernel.name().put(words);
        node.put(words);
        constants.len().put(words);
        for (name, value) in constants {
            kernel.constants.iter().position(|known| known == name).unwrap_or(usize::MAX).put(words);
            value.put(words);
        }
        params.put(words);
        inputs.put(words);
        outputs.put(words);
        grid.put(words);
    }

    fn take(words: &mut Reader<'_>) -> Option<Self> {
        let kernel = words.kernel()?;
        let node = String::take(words)?;
        let constant = |words: &mut Reader<'_>| {
            let name = *kernel.constants.get(usize::take(words)?)?;
            Some((name, f64::take(words)?))
        };
        let constants = (0..usize::take(words)?).map(|_| constant(words)).collect::<Option<_>>()?;
        let (params, inputs, outputs) = (Wire::take(words)?, Wire::take(words)?, Wire::take(words)?);
        Some(Self { kernel, node, constants, params, inputs, outputs, grid: Grid::take(words)? })
    }
}

impl Wire for Plan {
    fn put(&self, words: &mut Vec<u32>) {
        self.moving.put(words);
        self.penalties.put(words);
        self.buffers.put(words);
        self.passes.len().put(words);
        for (pass, commands) in &self.passes {
            pass.put(words);
            commands.put(words);
        }
    }

    fn take(words: &mut Reader<'_>) -> Option<Self> {
        let (moving, penalties, buffers) = (Wire::take(words)?, Wire::take(words)?, Wire::take(words)?);
        let mut passes = LiteMap::new();
        for _ in 0..usize::take(words)? {
            passes.insert(Pass::take(words)?, Wire::take(words)?);
        }
        Some(Self { moving, penalties, updated: Vec::new(), masks: Vec::new(), buffers, passes })
    }
}

impl Wire for BufferId {
    fn put(&self, words: &mut Vec<u32>) {
        words.push(self.0);
    }

    fn take(words: &mut Reader<'_>) -> Option<Self> {
        words.next().map(Self)
    }
}

structs! {
    Scalars { rows, batch_rows, first_row, is_first, is_last, seed, step, update, gradient_exponent, loss_scales, hyper }
    Length { per_row, fixed }
    Buffer { name, role, len }
    View { buffer, offset, len }
    Exchange { view, combine, when, halves }
    Penalty { segment, offset, len, l1, l2 }
    Moving { moments, channels, count_per_row, mean, variance, momentum, correction }
}

enums! {
    Word {
        0 => U32(value), 1 => F32(value), 2 => Rows(factor), 3 => BatchRows(factor), 4 => FirstRow,
        5 => LossScale(index), 6 => Hyper(index), 7 => Seed, 8 => Step, 9 => RowGroups(size, factor),
        10 => IsFirst(factor), 11 => IsLater(factor), 12 => IsLast(factor), 13 => GradientScale, 14 => GradientUnscale,
        15 => Update,
    }
    Role {
        0 => Input(idx), 1 => Target(idx), 2 => SampleWeight(idx), 3 => Parameters(segment), 4 => Gradients(segment),
        5 => Statistics, 6 => State(kind, segment), 7 => Report(idx), 8 => Output(idx), 9 => Activation, 10 => Control,
        11 => Received(tensor), 12 => ReceivedGradient(tensor), 13 => Unpacked,
    }
    Grid { 0 => Elements(count), 1 => Items(count), 2 => Tiles { m, n, k, depth } }
    Combine { 0 => Sum, 1 => Moments { count_per_row }, 2 => HandOver(handed) }
    Handed { 0 => Value(tensor), 1 => Gradient(tensor) }
    When { 0 => NextCommand, 1 => Update, 2 => LastUpdate }
    Command { 0 => Dispatch(dispatch), 1 => Exchange(exchange) }
    Pass { 0 => Train, 1 => Evaluate, 2 => Predict, 3 => Update, 4 => Forward }
}

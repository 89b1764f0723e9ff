//! The trait of optimizers: settings with their ranges, and a kernel.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::error::Problem;
use crate::kernels::Kernel;
use crate::kind::{self, Settings};
use crate::plan::Word;
use crate::reading;

use super::tensor::WholeTensor;

/// The learning rate of the step, in a kernel's `Params`. The rule's own numbers of a step are `Word::Hyper(1)` and on.
pub const LEARNING_RATE: Word = Word::Hyper(0);

/// Rule that updates parameters by gradients: settings and a kernel, or an update of whole tensors. Plain data.
///
/// `examples/05_custom_loss_and_optimizer.rs` has one of its own.
pub trait UpdateRule: fmt::Debug + Send + Sync {
    /// Name of the kind, as in Keras: `Adam`.
    fn kind(&self) -> &'static str;

    /// The settings, as they stand in a file: [`Settings::of`] a struct that serialises.
    fn config(&self) -> Settings;

    /// The range of each setting that is a number, by its name in a file.
    fn ranges(&self) -> Vec<(&'static str, f32, Range)>;

    /// The learning rate before any schedule.
    fn learning_rate(&self) -> f32;

    /// A copy with another learning rate.
    fn with_learning_rate(&self, rate: f32) -> Arc<dyn UpdateRule>;

    /// Names of the state that each parameter has, as in Keras.
    fn state_names(&self) -> &'static [&'static str];

    /// Value of a state before the first step, in every element.
    fn initial_state(&self, _name: &str) -> f32 {
        0.0
    }

    /// Numbers that change with the step, counted from 1, beside the learning rate: what `Word::Hyper(1)`,
    /// `Word::Hyper(2)`, … of the params stand for.
    fn step_numbers(&self, _step: u64) -> Vec<f32> {
        Vec::new()
    }

    /// The kernel of the update: inputs `gradient [len]` and `control [4]`, outputs `parameter [len]` and each state
    /// `[len]`, all in place.
    ///
    /// `control` is `[scale, apply, norm, 0]`: gradients count times `scale`, and with `apply` 0 nothing may change.
    /// The grid has an invocation for each four elements; views begin at multiples of 256 bytes. The twin updates any
    /// part of the parameters alone.
    ///
    /// `None` for a rule that no formula of single elements gives: then the host updates by [`update_tensor`](Self::update_tensor).
    fn kernel(&self) -> Option<&'static Kernel>;

    /// `Params` of the kernel for `len` elements.
    fn params(&self, _len: u32) -> Vec<Word> {
        Vec::new()
    }

    /// Updates a whole tensor on the host, where there is no kernel.
    fn update_tensor(&self, _tensor: WholeTensor<'_>) {}

    /// Whether the update gives the same bits on every machine. Several processes need that, since each updates by itself.
    fn is_same_everywhere(&self) -> bool {
        true
    }

    /// `override` constants of the kernel.
    fn constants(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// A kind of optimizer that can be read from a file.
pub type Entry = kind::Entry<dyn UpdateRule>;

/// The entry of an optimizer that derives `Deserialize`.
pub const fn entry<R: UpdateRule + DeserializeOwned + 'static>(kind: &'static str) -> Entry {
    Entry { kind, from_config: |config| Ok(Arc::new(reading::read::<R>(&config.into())?)) }
}

/// Declares an optimizer of the crate: its settings, each with its default and, if it is a number, its [`Range`]; its kind,
/// kernel and states; a setting with which the host updates whole tensors, of other states; the kernel's own `Params`, each a
/// setting or a [`Word`] of the rule; other methods of [`UpdateRule`].
macro_rules! optimizer {
    (
        $(#[$doc:meta])*
        $name:ident {
            $($(#[$of_field:meta])* $field:ident: $type:ty = $default:literal $(in $range:ident)?,)*
        }
        $kind:literal, $kernel:ident, $states:expr, $(on_host($whole:ident) $whole_states:expr,)?
        params($rule:ident) { $($param:ident $(: $word:expr)?),* $(,)? }
        $($method:item)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $($(#[$of_field])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $crate::optimizers::UpdateRule for $name {
            fn kind(&self) -> &'static str {
                $kind
            }

            fn config(&self) -> $crate::kind::Settings {
                $crate::kind::Settings::of(self)
            }

            fn ranges(&self) -> Vec<(&'static str, f32, $crate::optimizers::Range)> {
                vec![$($((stringify!($field), self.$field, $crate::optimizers::Range::$range),)?)*]
            }

            fn learning_rate(&self) -> f32 {
                self.learning_rate
            }

            fn with_learning_rate(&self, rate: f32) -> std::sync::Arc<dyn $crate::optimizers::UpdateRule> {
                std::sync::Arc::new(Self { learning_rate: rate, ..*self })
            }

            fn state_names(&self) -> &'static [&'static str] {
                $(if self.$whole {
                    return &$whole_states;
                })?
                &$states
            }

            fn kernel(&self) -> Option<&'static $crate::kernels::Kernel> {
                $(if self.$whole {
                    return None;
                })?
                Some(&$kernel::UPDATE)
            }

            fn params(&self, len: u32) -> Vec<$crate::plan::Word> {
                let ($rule, learning_rate) = (self, $crate::optimizers::LEARNING_RATE);
                $(let $param = $crate::optimizers::rule::optimizer!(@word $rule $param $($word)?);)*
                $kernel::Record { len: len.into(), learning_rate, $($param,)* }.into()
            }

            $($method)*
        }
    };
    (@word $rule:ident $param:ident) => { $crate::plan::Word::from($rule.$param) };
    (@word $rule:ident $param:ident $word:expr) => { $crate::plan::Word::from($word) };
}
pub(super) use optimizer;

/// `1 - beta^step`, by which a mean that began with 0 is too small.
pub(super) fn correction(beta: f32, step: u64) -> f64 {
    1.0 - f64::from(beta).powi(i32::try_from(step).unwrap_or(i32::MAX))
}

/// Whether a setting is 0, which files leave out where older versions do not know it.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
pub(super) fn is_zero(value: &f32) -> bool {
    *value == 0.0
}

/// Range of a setting. Infinity and `NaN` are never allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// 0 and above.
    AtLeastZero,
    /// 0 and below.
    AtMostZero,
    /// Above 0: a gradient that was 0 all along would be divided by 0.
    AboveZero,
    /// 0 and above, below 1: the part of an average that stays.
    BelowOne,
    /// Any number.
    Finite,
}

impl Range {
    /// Problem of the value of a setting; `None` if it is valid.
    pub fn problem(self, name: &str, value: f32) -> Option<Problem> {
        let (is_in, words) = match self {
            Self::AtLeastZero => (value >= 0.0 && value.is_finite(), "of at least 0"),
            Self::AtMostZero => (value <= 0.0 && value.is_finite(), "of at most 0"),
            Self::AboveZero => (value > 0.0 && value.is_finite(), "above 0"),
            Self::BelowOne => ((0.0..1.0).contains(&value), "of at least 0 and below 1"),
            Self::Finite => (value.is_finite(), "that is finite"),
        };
        let help = "leave it out to take the default of Keras";
        (!is_in).then(|| Problem::new(format!("needs `{name}` {words}, but got {value}"), help))
    }
}

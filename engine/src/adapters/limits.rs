//! Most memory that a model may take on each adapter, as the user sets it: a wrapper of an opener.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::list::{ALL, GROUPS, all, matching};
use super::{Info, Opener, Request};
use crate::error::{Error, Result};
use crate::shown::{bytes, shown};

/// Most memory that a model may take on adapters: `0=6GB,cpu=512MB`.
///
/// A number counts the adapters in use, in their order, from 0, as for shares, stages and throttles: two devices of one
/// adapter, such as `cpu,cpu`, are 0 and 1. A number from 100 on is part of a name: `4070`. Other parts of a name and kinds name
/// adapters as [`choose`](super::choose) takes them. Where several items name one, the last holds. GB and MB are powers of 1000, GiB
/// and MiB of 1024. What a model takes on an adapter is computed before anything is allocated: where it is more than the limit, the
/// adapter takes fewer rows at once.
///
/// ```
/// use manyhands_engine::adapters::{Info, MemoryLimits};
/// # fn main() -> manyhands_engine::Result<()> {
/// let limits: MemoryLimits = "0=6GB, cpu=1.5MiB".parse()?;
/// let cpu = Info::cpu();
/// assert_eq!(limits.of(1, &cpu, &[cpu.clone(), cpu.clone()]), Some(1_572_864));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(with = "String"))]
pub struct MemoryLimits(Vec<(String, u64)>);

/// Units of an amount, in bytes.
const UNITS: [(&str, f64); 6] =
    [("kb", 1e3), ("mb", 1e6), ("gb", 1e9), ("kib", 1024.0), ("mib", 1_048_576.0), ("gib", 1_073_741_824.0)];

impl MemoryLimits {
    /// With another limit for the adapters of a name.
    #[must_use]
    pub fn limit(mut self, adapter: impl Into<String>, bytes: u64) -> Self {
        self.0.push((adapter.into(), bytes));
        self
    }

    /// The limits: adapters and bytes.
    pub fn items(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(adapter, bytes)| (adapter.as_str(), *bytes))
    }

    /// Whether there is no limit.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The limit of the adapter at a position among those in use. The CPU adapter that replaces a lost one is not among them: a
    /// number and `all` don't name it.
    pub fn of(&self, adapter_idx: usize, info: &Info, in_use: &[Info]) -> Option<u64> {
        let is_in_use = in_use.get(adapter_idx) == Some(info);
        let names = |item: &str| match position(item) {
            Some(named) => is_in_use && named == adapter_idx,
            None if item.eq_ignore_ascii_case(ALL) => is_in_use && all(in_use).contains(info),
            None => !matching(std::slice::from_ref(info), item).is_empty(),
        };
        self.0.iter().rev().find(|(item, _)| names(item)).map(|(_, bytes)| *bytes)
    }

    /// The limit of one adapter among those in use, for that adapter alone.
    #[must_use]
    pub fn alone(&self, adapter_idx: usize, in_use: &[Info]) -> Self {
        let limit = in_use.get(adapter_idx).and_then(|info| self.of(adapter_idx, info, in_use));
        limit.map_or_else(Self::default, |bytes| Self::default().limit("0", bytes))
    }

    /// Checks that each limit is one of adapters in use.
    ///
    /// # Errors
    /// If a number or a name is none of theirs; the help lists them.
    pub fn check(&self, in_use: &[Info]) -> Result<()> {
        let is_unknown = |item: &str| {
            let is_group = GROUPS.contains(&item.to_ascii_lowercase().as_str());
            match position(item) {
                Some(adapter_idx) => adapter_idx >= in_use.len(),
                None => !is_group && !item.eq_ignore_ascii_case("cpu") && matching(in_use, item).is_empty(),
            }
        };
        let Some((item, _)) = self.0.iter().find(|(item, _)| is_unknown(item)) else { return Ok(()) };
        let names = in_use.iter().enumerate().map(|(idx, info)| format!("{idx} `{}`", shown(&info.name)));
        Err(Error::adapter(
            format!("the memory limit for `{}`", shown(item)),
            "needs an adapter in use, but names none",
            format!("numbers count the adapters in use, in their order: {}", names.collect::<Vec<_>>().join(", ")),
        ))
    }

    /// An opener whose adapters keep within these limits.
    #[must_use]
    pub fn wrap(&self, opener: Opener, in_use: &[Info]) -> Opener {
        if self.is_empty() {
            return opener;
        }
        let (limits, in_use) = (self.clone(), in_use.to_vec());
        Arc::new(move |info, actor, runtime, events| {
            let handle = opener(info, actor, runtime, events)?;
            if let Some(bytes) = limits.of(actor.adapter_idx, info, &in_use) {
                // A lost adapter takes no requests.
                drop(handle.requests.try_send(Request::Limit(bytes)));
            }
            Ok(handle)
        })
    }
}

impl FromStr for MemoryLimits {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        text.split(',').map(item).collect::<Result<_>>().map(Self)
    }
}

impl fmt::Display for MemoryLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items = self.0.iter().map(|(adapter, amount)| format!("{adapter}={}", bytes(*amount)));
        f.write_str(&items.collect::<Vec<_>>().join(", "))
    }
}

impl<'de> serde::Deserialize<'de> for MemoryLimits {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error: Error| serde::de::Error::custom(format!("{} {}", error.who(), error.problem())))
    }
}

/// The position that a number names. A number of three digits or more is a part of a name, such as `4070`.
fn position(item: &str) -> Option<usize> {
    item.parse().ok().filter(|position| *position < 100)
}

/// An adapter and its limit: `0=6GB`.
fn item(text: &str) -> Result<(String, u64)> {
    let parsed = text.split_once('=').and_then(|(adapter, amount)| {
        let adapter = adapter.trim();
        Some((adapter.to_owned(), amount_of(amount)?)).filter(|_| !adapter.is_empty())
    });
    parsed.ok_or_else(|| {
        Error::setting(
            "a memory limit",
            format!("needs an adapter and an amount, such as `0=6GB`, but is `{}`", shown(text.trim())),
            "name an adapter by its position, name or kind; amounts end in MB or GB (powers of 1000), MiB or GiB; commas separate several",
        )
    })
}

/// Bytes of an amount with its unit.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be positive and below 2^53")]
fn amount_of(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let (factor, number) = UNITS.iter().find_map(|(unit, factor)| Some((factor, text.strip_suffix(unit)?)))?;
    let bytes = number.trim().parse::<f64>().ok()? * factor;
    (1.0..9e15).contains(&bytes).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::{Kind, list::sort};

    fn info(name: &str, kind: Kind) -> Info {
        Info { name: name.into(), kind, ..Info::cpu() }
    }

    fn machine() -> Vec<Info> {
        let gpus = [info("GeForce RTX 4070", Kind::DiscreteGpu), info("Radeon 780M", Kind::IntegratedGpu)];
        sort([&gpus[..], &[Info::cpu(), info("llvmpipe", Kind::Software)]].concat())
    }

    #[test]
    fn adapters_are_named_as_in_a_choice() {
        let list = machine();
        let limits: MemoryLimits = "all=8GB,1=512 MiB,cpu=1.5gb, LLVM = 250kB,4070=6GB".parse().unwrap();
        let of: Vec<Option<u64>> = list.iter().enumerate().map(|(idx, info)| limits.of(idx, info, &list)).collect();
        assert_eq!(of, [6_000_000_000, 512 << 20, 1_500_000_000, 250_000].map(Some));
        limits.check(&list).unwrap();
    }

    #[test]
    fn a_number_and_all_name_no_adapter_that_joins_later() {
        let in_use = &machine()[..1];
        for text in ["0=1GB", "all=1GB"] {
            let limits: MemoryLimits = text.parse().unwrap();
            assert_eq!(limits.of(0, &in_use[0], in_use), Some(1_000_000_000), "{text}");
            assert_eq!(limits.of(0, &Info::cpu(), in_use), None, "{text}");
        }
    }

    #[test]
    fn a_number_is_a_position_so_that_two_devices_of_one_adapter_have_limits_of_their_own() {
        let of = |text: &str, in_use: &[Info]| {
            let limits: MemoryLimits = text.parse().unwrap();
            limits.check(in_use).unwrap();
            let of = in_use.iter().enumerate().map(|(idx, info)| limits.of(idx, info, in_use));
            of.map(|limit| limit.unwrap_or(0) / 1_000_000).collect::<Vec<_>>()
        };
        assert_eq!(of("0=14MB,1=28MB", &[Info::cpu(), Info::cpu()]), [14, 28]);
        let [nvidia, radeon] = [0, 1].map(|idx| machine()[idx].clone());
        assert_eq!(of("0=1MB,1=2MB", &[radeon.clone(), nvidia]), [1, 2], "in the order of the choice");
        assert_eq!(of("0=1MB", &[radeon]), [1], "whatever its index in the machine");
        assert_eq!(of("all=3MB", &[Info::cpu(), Info::cpu()]), [3, 3], "all, where no GPU is in use");
    }

    #[test]
    fn mistakes_are_named() {
        for wrong in ["", "6GB", "0=", "0=6", "0=6XB", "=6GB", "0=-1GB", "0=0MB", "0=nanGB", "0=6GB,,1=2GB", "0=1e30GB"]
        {
            let error = wrong.parse::<MemoryLimits>().unwrap_err().to_string();
            let wanted = "a memory limit needs an adapter and an amount, such as `0=6GB`, but is `";
            assert!(error.starts_with(wanted) && error.contains("\n  help: name an adapter"), "{error}");
        }
        let limits: MemoryLimits = "gpu=1GB,cpu=1GB,9=1GB".parse().unwrap();
        let error = limits.check(&machine()).unwrap_err().to_string();
        let wanted = "the memory limit for `9` needs an adapter in use, but names none\n  help: numbers count the \
                      adapters in use, in their order: 0 `GeForce RTX 4070`, 1 `Radeon 780M`";
        assert!(error.starts_with(wanted), "{error}");
    }
}

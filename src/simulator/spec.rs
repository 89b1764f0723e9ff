//! Specification of a simulated adapter: its speed, its links, and its faults.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::cards::{self, Card};
use super::crowd::Crowding;
use super::speed::{self, Rates};
use crate::plan::{Pass, Plan};
use crate::reading::{ReadError, Tree};
use manyhands_engine::adapters::Kind;

/// A simulated adapter.
///
/// A training run of `rows` takes `fixed_ms + per_row_ms * rows` of computing. Where no `per_row_ms` is given, each dispatch takes the
/// longer of its operations at `gflops` and its bytes at `memory_gb_s`, and `dispatch_us`. Runs that only go forward take a third of
/// `per_row_ms`. A stage takes `fixed_ms`, and its part of the model's work of `per_row_ms`. An update of a lone adapter comes in the same
/// submission as its run, and takes no `fixed_ms` of its own. A run is fed while the one before computes, and its results travel while the
/// next one computes.
///
/// In a file `card = "RX 6600"` stands for the numbers of a card of the table: see [`cards`]. Numbers beside it take their place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct AdapterSpec {
    /// Its name. Default: that of the card.
    pub name: String,
    /// The card of the table from which its speeds are modelled.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "write_card",
        deserialize_with = "read_card"
    )]
    pub card: Option<&'static Card>,
    /// Milliseconds of a run whatever its rows: submission, and the host's wait for the end.
    #[serde(default)]
    pub fixed_ms: f64,
    /// Milliseconds for each row of a training run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_row_ms: Option<f64>,
    /// Arithmetic that large products and convolutions reach (not the peak), in 10⁹ operations a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gflops: Option<f64>,
    /// Bytes that kernels read and write, in 10⁹ a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gb_s: Option<f64>,
    /// Microseconds of each kernel whatever it computes, where no `per_row_ms` is given.
    #[serde(default)]
    pub dispatch_us: f64,
    /// Bandwidth from host to adapter, in 10⁹ bytes a second; without it, writing takes no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_gb_s: Option<f64>,
    /// Bandwidth from adapter to host, in 10⁹ bytes a second; without it, reading takes no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download_gb_s: Option<f64>,
    /// Milliseconds of each transfer whatever its bytes.
    #[serde(default)]
    pub latency_ms: f64,
    /// Each run takes up to this part longer or shorter, at random.
    #[serde(default)]
    pub jitter: f64,
    /// Memory that a model may take on it, in 10⁹ bytes; without it, any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gb: Option<f64>,
    /// Its kind, by which memory is counted; without it, that of a card.
    #[serde(skip)]
    #[doc(hidden)]
    pub kind: Option<Kind>,
    /// Its slowdown while others compute, which share cores or memory with it; none by default.
    #[serde(skip)]
    #[doc(hidden)]
    pub crowding: Option<Crowding>,
    /// Rows for which it has memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rows: Option<u32>,
    /// Times at which it is slower.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slowdowns: Vec<Slowdown>,
    /// Injected faults, each once.
    #[serde(skip)]
    #[doc(hidden)]
    pub faults: Vec<InjectedFault>,
}

impl AdapterSpec {
    /// An adapter without links, jitter or faults.
    pub fn new(name: impl Into<String>, fixed_ms: f64, per_row_ms: f64) -> Self {
        Self { name: name.into(), fixed_ms, per_row_ms: Some(per_row_ms), ..Self::default() }
    }

    /// A card of the table, with speeds modelled from its data sheet.
    pub fn of_card(card: &'static Card) -> Self {
        let Rates { gflops, memory_gb_s, dispatch_us, card: of } = Rates::of(card);
        let link_gb_s = Some(speed::link_gb_s(card));
        Self {
            name: card.full_name(),
            card: of,
            kind: card.slot.is_none().then_some(Kind::IntegratedGpu),
            fixed_ms: speed::RUN_MS,
            gflops,
            memory_gb_s,
            dispatch_us,
            upload_gb_s: link_gb_s,
            download_gb_s: link_gb_s,
            latency_ms: speed::LATENCY_MS,
            memory_gb: card.memory_gb,
            ..Self::default()
        }
    }

    /// Milliseconds of a pass's dispatches, whose rows run at once.
    pub(crate) fn pass_ms(&self, plan: &Plan, pass: Pass, rows: u32) -> f64 {
        let Self { gflops, memory_gb_s, dispatch_us, card, .. } = *self;
        Rates { gflops, memory_gb_s, dispatch_us, card }.pass_ms(plan, pass, rows)
    }

    /// Bytes that a model may take on it.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be above 0")]
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        self.memory_gb.map(|gb| (gb * 1e9) as u64)
    }
}

impl Serialize for AdapterSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for AdapterSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut tree = Tree::deserialize(deserializer)?;
        let card = of_card(&mut tree);
        let spec = Self::deserialize(&tree).map_err(ReadError::raise)?;
        Ok(Self { kind: card.and_then(|card| card.kind), ..spec })
    }
}

/// Adds the numbers of the card that a table names, where it has none of its own; gives the card's specification.
fn of_card(tree: &mut Tree) -> Option<AdapterSpec> {
    let Tree::Table(entries) = tree else { return None };
    let name = entries.iter().find_map(|(key, value)| match value {
        Tree::Text(name) if key == "card" => Some(name),
        _ => None,
    })?;
    let card = AdapterSpec::of_card(cards::find(name).ok()?);
    let numbers = [
        ("fixed_ms", Some(card.fixed_ms)),
        ("gflops", card.gflops),
        ("memory_gb_s", card.memory_gb_s),
        ("dispatch_us", Some(card.dispatch_us)),
        ("upload_gb_s", card.upload_gb_s),
        ("download_gb_s", card.download_gb_s),
        ("latency_ms", Some(card.latency_ms)),
        ("memory_gb", card.memory_gb),
    ];
    let numbers = numbers.into_iter().filter_map(|(key, number)| Some((key, Tree::Float(number?))));
    for (key, value) in numbers.chain([("name", Tree::Text(card.name.clone()))]) {
        if entries.iter().all(|(known, _)| known != key) {
            entries.push((key.to_owned(), value));
        }
    }
    Some(card)
}

#[allow(clippy::ref_option, reason = "serde gives the field so")]
fn write_card<S: Serializer>(card: &Option<&'static Card>, serializer: S) -> Result<S::Ok, S::Error> {
    card.map(|card| card.name).serialize(serializer)
}

fn read_card<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'static Card>, D::Error> {
    let name = String::deserialize(deserializer)?;
    let refuse = |error: crate::error::Error| de::Error::custom(format!("{}; {}", error.problem(), error.help()));
    cards::find(&name).map(Some).map_err(refuse)
}

/// A time in which an adapter computes more slowly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slowdown {
    /// Start.
    pub from_ms: f64,
    /// End.
    pub to_ms: f64,
    /// Factor on the time of computing.
    pub factor: f64,
}

/// A fault that is injected once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InjectedFault {
    /// Trigger of the fault.
    pub at: Trigger,
    /// Kind of the fault.
    pub what: FaultKind,
}

/// Trigger of a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trigger {
    /// A time, whatever the adapter does then.
    Time {
        /// Virtual milliseconds.
        ms: f64,
    },
    /// A load of a plan, counted from 0 over all openings.
    Load {
        /// Number of the load.
        number: u64,
    },
    /// A run, counted from 0 over all openings.
    Run {
        /// Number of the run.
        number: u64,
        /// Part of its commands that have run: 0 to 1.
        progress: f64,
    },
}

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// The device is lost, and reports it.
    Lost,
    /// The device hangs: it is lost without a report.
    Hang,
    /// The adapter pauses, and then continues.
    Pause {
        /// Length.
        ms: f64,
    },
    /// The adapter has too little memory for its work, but is not lost.
    OutOfMemory,
    /// From then on the adapter computes its gradients wrong, and says nothing.
    WrongNumbers,
}

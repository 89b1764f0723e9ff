//! The settings that a sweep varies: their names, their values, and the draws from these.

use std::collections::BTreeSet;

use crate::settings::{SettingsFile, with_value};
use manyhands::{Error, Result};
use manyhands_engine::names;
use rand::rand_core::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Tables of a settings file.
const TABLES: [&str; 7] = ["data", "model", "loss", "losses", "optimizer", "schedule", "training"];
/// Tables in which a key is looked for whose table is not named.
const SEARCHED: [&str; 5] = ["training", "optimizer", "schedule", "loss", "data"];
/// Draws until one is new.
const ATTEMPTS: u64 = 1000;
/// Digits of a drawn number, so that settings stay readable.
const DIGITS: usize = 4;

/// A setting and its values, as `--vary` names them.
#[derive(Clone, Debug, PartialEq)]
pub struct Vary {
    /// Words of its name: `optimizer.learning_rate`.
    path: Vec<String>,
    values: VaryValues,
    written: String,
}

#[derive(Clone, Debug, PartialEq)]
enum VaryValues {
    /// One of these, in TOML.
    List(Vec<String>),
    /// A whole number, both ends included.
    Whole {
        least: i64,
        most: i64,
        scale: Scale,
    },
    Real {
        least: f64,
        most: f64,
        scale: Scale,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Linear,
    /// Each factor is as likely as every other of its size.
    Log,
}

fn values_of(text: &str) -> Result<VaryValues, String> {
    if let Some((least, rest)) = text.split_once("..")
        && !text.contains(['"', '\'', '|'])
    {
        return range(least.trim(), rest.trim());
    }
    let values: Vec<String> = items(text).into_iter().map(|item| toml_of(item.trim())).collect();
    match values.iter().collect::<BTreeSet<_>>().len() {
        n if n < values.len() => Err(format!("needs different values, but has one twice: `{text}`")),
        _ => Ok(VaryValues::List(values)),
    }
}

/// `1e-4..1e-2,log` behind its least value.
fn range(least: &str, rest: &str) -> Result<VaryValues, String> {
    let (most, scale) = match rest.split_once(',') {
        None => (rest, Scale::Linear),
        Some((most, word)) if word.trim() == "log" => (most.trim(), Scale::Log),
        Some((_, word)) => return Err(format!("needs `log` or nothing behind the comma, but has `{}`", word.trim())),
    };
    let checked = |is_rising: bool, is_positive: bool| match (is_rising, is_positive || scale == Scale::Linear) {
        (false, _) => Err(format!("needs a range that rises, but is `{least}..{most}`")),
        (_, false) => Err(format!("needs a range above 0 for `log`, but is `{least}..{most}`")),
        _ => Ok(()),
    };
    if let (Ok(least), Ok(most)) = (least.parse::<i64>(), most.parse::<i64>()) {
        checked(least < most, least > 0)?;
        return Ok(VaryValues::Whole { least, most, scale });
    }
    match (least.parse::<f64>(), most.parse::<f64>()) {
        (Ok(least), Ok(most)) if least.is_finite() && most.is_finite() => {
            checked(least < most, least > 0.0)?;
            Ok(VaryValues::Real { least, most, scale })
        }
        _ => Err(format!("needs two numbers around `..`, but is `{least}..{most}`")),
    }
}

/// The items between bars, except for bars within quotes.
fn items(text: &str) -> Vec<&str> {
    let (mut quote, mut begin, mut items) = (None, 0, Vec::new());
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            (None, '|') => {
                items.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    items.push(&text[begin..]);
    items
}

/// A value in TOML; what is none is text.
fn toml_of(item: &str) -> String {
    let is_toml = format!("it = {item}").parse::<toml::Table>().is_ok_and(|table| table.len() == 1);
    if is_toml { item.to_owned() } else { toml::Value::from(item).to_string() }
}

impl Vary {
    /// Reads the argument of `--vary`; the error says what was needed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let form = || {
            format!(
                "needs a setting and its values, `batch_size=32|64|128` or `optimizer.learning_rate=1e-4..1e-2,log`, but is \
                 `{text}`"
            )
        };
        let (name, values) = text.split_once('=').ok_or_else(form)?;
        // A line's end would begin another setting.
        if text.contains('\n') {
            return Err(form());
        }
        let path: Vec<String> = name.trim().split('.').map(|word| word.trim().to_owned()).collect();
        if path.iter().any(String::is_empty) || values.trim().is_empty() {
            return Err(form());
        }
        Ok(Self { path, values: values_of(values.trim())?, written: text.to_owned() })
    }

    /// Its name in a table: `optimizer.learning_rate`.
    pub fn name(&self) -> String {
        self.path.join(".")
    }

    /// The text of the argument.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// This setting with the table of the file that has its key. Checks that the key can have the values.
    pub fn resolved(&self, text: &str) -> Result<Self> {
        let (first, rest) = (&self.path[0], self.path.len() > 1);
        if rest && !TABLES.contains(&first.as_str()) && names::nearest(first, &TABLES).is_some() {
            return Err(self.refuse("is not known", &names::help(first, "the tables are", &TABLES)));
        }
        let there = text.parse::<toml::Table>().unwrap_or_default();
        // These two have all their keys also where the file has no such table.
        let is_there = |table: &&&str| ["training", "optimizer"].contains(*table) || there.contains_key(**table);
        let within = |table: &&str| [vec![(*table).to_owned()], self.path.clone()].concat();
        let paths = match TABLES.contains(&first.as_str()) {
            true => vec![self.path.clone()],
            false => SEARCHED.iter().filter(is_there).map(within).collect(),
        };
        let mut refused: Option<Error> = None;
        for path in paths {
            let found = Self { path, ..self.clone() };
            match found.check(text) {
                Ok(()) => return Ok(found),
                // A table that has the key says more than one that lacks it; of those, the first.
                Err(error) if refused.as_ref().is_none_or(|first| is_unknown(first) && !is_unknown(&error)) => {
                    refused = Some(error);
                }
                Err(_) => {}
            }
        }
        refused.map_or_else(|| Ok(self.clone()), Err)
    }

    /// Whether settings can have the ends of a range, or each value of a list.
    fn check(&self, text: &str) -> Result<()> {
        self.values.ends().iter().try_for_each(|value| {
            let Some(text) = with_value(text, &self.path, value) else {
                let help = "layers are counted from 0, or named: `model.layers.2.units`; write other tables into the file first";
                return Err(self.refuse("needs a place in the settings file, but has none", help));
            };
            let parsed = SettingsFile::parse(&text, "settings");
            parsed.map(drop).map_err(|error| self.refuse(error.problem(), error.help()))
        })
    }

    fn refuse(&self, problem: &str, help: &str) -> Error {
        Error::setting(format!("`--vary {}`, key `{}`,", self.written, self.name()), problem, help)
    }

    /// A text with this value.
    pub fn applied(&self, text: &str, value: &str) -> Result<String> {
        with_value(text, &self.path, value)
            .ok_or_else(|| self.refuse("has no place in the settings file", "add its table"))
    }
}

fn is_unknown(error: &Error) -> bool {
    error.problem().starts_with("is not known")
}

impl VaryValues {
    fn ends(&self) -> Vec<String> {
        match self {
            Self::List(values) => values.clone(),
            Self::Whole { least, most, .. } => [least, most].map(ToString::to_string).into(),
            Self::Real { least, most, .. } => [*least, *most].map(real).into(),
        }
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a draw needs no exact bounds")]
    fn draw(&self, random: &mut ChaCha8Rng) -> String {
        let part = unit(random);
        match self {
            Self::List(values) => {
                let at = (part * values.len() as f64).floor() as i64;
                values[usize::try_from(at).unwrap_or(0).min(values.len() - 1)].clone()
            }
            Self::Whole { least, most, scale } => {
                let drawn = scale.between(*least as f64, *most as f64 + 1.0, part).floor() as i64;
                drawn.clamp(*least, *most).to_string()
            }
            Self::Real { least, most, scale } => {
                let drawn = scale.between(*least, *most, part);
                let short = format!("{drawn:.*e}", DIGITS - 1).parse().unwrap_or(drawn);
                real(short.clamp(*least, *most))
            }
        }
    }
}

impl Scale {
    fn between(self, least: f64, most: f64, part: f64) -> f64 {
        match self {
            Self::Linear => least + (most - least) * part,
            Self::Log => (least.ln() + (most.ln() - least.ln()) * part).exp(),
        }
    }
}

/// A number with a point or an exponent.
fn real(value: f64) -> String {
    format!("{value:?}")
}

/// Uniform in `[0, 1)`.
#[allow(clippy::cast_precision_loss, reason = "53 bits are exact")]
fn unit(random: &mut ChaCha8Rng) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// The values of up to `trials` trials, no two alike. Those of a trial do not depend on how many come after it.
pub fn draw(vary: &[Vary], trials: usize, seed: u64) -> Vec<Vec<String>> {
    let mut drawn: Vec<Vec<String>> = Vec::new();
    let mut known = BTreeSet::new();
    for trial in 0..trials as u64 {
        let new = (0..ATTEMPTS).find_map(|attempt| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(trial * ATTEMPTS + attempt);
            let values: Vec<String> = vary.iter().map(|vary| vary.values.draw(&mut random)).collect();
            known.insert(values.clone()).then_some(values)
        });
        match new {
            Some(values) => drawn.push(values),
            // Every combination has been drawn.
            None => break,
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vary(text: &str) -> Vary {
        Vary::parse(text).unwrap()
    }

    const TEXT: &str = "[data]\ntype = \"digits\"\n[model]\ninput = [8, 8, 1]\nlayers = [{ type = \"Flatten\" }, { type = \"Dense\", units \
                        = 10, name = \"head\" }]\n[loss]\ntype = \"SparseCategoricalCrossentropy\"\n";

    #[test]
    fn values_are_drawn_within_their_bounds_and_no_two_trials_are_alike() {
        let space = [vary("a=1e-4..1e-2,log"), vary("b=3..5"), vary("c=x|true|[1, 2]"), vary("d=0.0..1.0")];
        let drawn = draw(&space, 200, 7);
        assert_eq!(drawn.len(), 200);
        let below: usize = drawn.iter().filter(|values| values[0].parse::<f64>().unwrap() < 1e-3).count();
        assert!((70..130).contains(&below), "half of the rates lie in the lower decade: {below}");
        for values in &drawn {
            let [a, b] = [&values[0], &values[3]].map(|value| value.parse::<f64>().unwrap());
            assert!((1e-4..=1e-2).contains(&a) && (0.0..=1.0).contains(&b), "{values:?}");
            assert!(["3", "4", "5"].contains(&values[1].as_str()), "both ends are drawn, whole: {values:?}");
            assert!(["\"x\"", "true", "[1, 2]"].contains(&values[2].as_str()), "{values:?}");
        }
        assert_eq!(drawn.iter().map(|values| &values[1]).collect::<BTreeSet<_>>().len(), 3);
        assert_eq!(draw(&space, 20, 7), drawn[..20], "more trials leave the first ones as they are");
        assert_ne!(draw(&space, 20, 8), drawn[..20]);
        assert_eq!(draw(&[vary("a=1|2|3"), vary("b=0..1")], 50, 0).len(), 6, "there are no more combinations");
    }

    #[test]
    fn a_key_is_found_in_its_table() {
        let cases = [
            ("batch_size=32|64", "training.batch_size"),
            ("learning_rate=1e-4..1e-2,log", "optimizer.learning_rate"),
            ("optimizer.type=Adam|SGD", "optimizer.type"),
            ("model.layers.head.use_bias=true|false", "model.layers.head.use_bias"),
            ("model.layers.1.units=10|12", "model.layers.1.units"),
            ("label_smoothing=0.0..0.2", "loss.label_smoothing"),
        ];
        for (written, name) in cases {
            assert_eq!(vary(written).resolved(TEXT).unwrap().name(), name);
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (written, problem, help) in [
            ("batchsize=32|64", "key `training.batchsize`, is not known here", "did you mean `batch_size`?"),
            ("optimiser.learning_rate=0.1|1", "is not known", "did you mean `optimizer`?"),
            ("optimizer.learning_rat=0.1|1", "is not known here", "did you mean `learning_rate`?"),
            ("batch_size=32|many", "needs a whole number from 0 up, but got \"many\"", "help"),
            ("batch_size=0..8", "needs at least 1, but is 0", "help"),
            ("model.layers.9.units=1|2", "needs a place in the settings file", "model.layers.2.units"),
            ("model.layers.head.unit=1|2", "", "did you mean `units`?"),
        ] {
            let error = vary(written).resolved(TEXT).unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains(help), "{written}: {error}");
            assert!(error.starts_with(&format!("`--vary {written}`")), "{error}");
        }
        for (written, problem) in [
            ("batch_size", "needs a setting and its values"),
            ("batch_size=", "needs a setting and its values"),
            ("a=5..1", "needs a range that rises"),
            ("a=0.0..1.0,log", "above 0 for `log`"),
            ("a=1..2,lin", "needs `log` or nothing"),
            ("a=x..y", "needs two numbers around `..`"),
            ("a=1|2|1", "has one twice"),
        ] {
            let error = Vary::parse(written).unwrap_err();
            assert!(error.contains(problem), "{written}: {error}");
        }
    }
}

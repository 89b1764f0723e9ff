//! Reads `config.json` of a Hugging Face folder.

use std::path::Path;

use manyhands_engine::{names, shown};
use serde_json::{Map, Value};

use super::known;
use super::{
    Activation, Architecture, Biases, Family, FeedForward, MOST_BLOCKS, MOST_SIZE, Norm, NormPlace, Positions,
    RotaryScaling,
};
use crate::{Error, Result};

impl Architecture {
    /// Reads the text of a `config.json`.
    ///
    /// Settings that change the result are honoured, or refused by name. A setting that is not known here is logged.
    ///
    /// # Errors
    /// If it is no JSON object, lacks a setting, or describes a network that is not known here.
    pub fn from_config(path: &Path, text: &str) -> Result<Self> {
        let refuse =
            |problem| Error::checkpoint(format!("`{}`", shown(path)), problem, "take the file as it was published");
        let settings: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| refuse(format!("needs to be a JSON object, but: {error}")))?;
        let config = Config { path, settings: &settings };
        let family = config.family()?;
        config.refuse_unknown()?;
        match family {
            Family::Gemma3 => config.gemma3(),
            Family::Gpt2 => config.gpt2(),
            Family::Bert => config.bert(),
            family => config.llama(family),
        }
    }
}

/// Tokens of a window where no number is said, in transformers' classes of all families that have one.
const WINDOW: usize = 4096;

struct Config<'a> {
    path: &'a Path,
    settings: &'a Map<String, Value>,
}

impl<'a> Config<'a> {
    fn refuse(&self, problem: impl Into<String>, help: impl Into<String>) -> Error {
        Error::checkpoint(format!("`{}`", shown(self.path)), problem, help)
    }

    fn unsupported(&self, what: &str, value: &Value) -> Error {
        let mut value = value.to_string();
        if value.chars().count() > 80 {
            value = value.chars().take(80).chain(['…']).collect();
        }
        let problem = format!("sets `{what}` to {}, which is not supported", shown(&value));
        self.refuse(problem, "take another model: without this setting its results would be wrong")
    }

    /// A setting, if it is there and not null.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.settings.get(key).filter(|value| !value.is_null())
    }

    fn family(&self) -> Result<Family> {
        match self.text("model_type")?.unwrap_or_default() {
            "llama" => Ok(Family::Llama),
            "mistral" => Ok(Family::Mistral),
            "qwen2" => Ok(Family::Qwen2),
            "qwen3" => Ok(Family::Qwen3),
            "gemma3_text" => Ok(Family::Gemma3),
            "gpt2" => Ok(Family::Gpt2),
            "bert" => Ok(Family::Bert),
            other => {
                let known = ["llama", "mistral", "qwen2", "qwen3", "gemma3_text", "gpt2", "bert"];
                let problem = format!("needs a `model_type` of {}, but has `{}`", known.join(", "), shown(other));
                Err(self.refuse(problem, names::help(other, "model type", &known)))
            }
        }
    }

    /// Refuses settings that change the result and are not known here.
    fn refuse_unknown(&self) -> Result<()> {
        match known::refused(self.settings) {
            Some((key, value)) => Err(self.unsupported(key, value)),
            None => {
                for key in known::unknown(self.settings) {
                    log::warn!(
                        "`{}` has the setting `{}`, which is not known here and left out",
                        shown(self.path),
                        shown(key)
                    );
                }
                Ok(())
            }
        }
    }

    fn wrong(&self, key: &str, needed: &str, value: &Value) -> Error {
        self.refuse(
            format!("needs {needed} under `{key}`, but has {}", shown(&value.to_string())),
            "take the file as it was published",
        )
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>> {
        self.get(key).map(|value| value.as_str().ok_or_else(|| self.wrong(key, "a text", value))).transpose()
    }

    fn flag(&self, key: &str, usual: Flag) -> Result<bool> {
        let found = self
            .get(key)
            .map(|value| value.as_bool().ok_or_else(|| self.wrong(key, "true or false", value)))
            .transpose()?;
        Ok(found.unwrap_or(usual == Flag::On))
    }

    fn optional_size(&self, key: &str) -> Result<Option<usize>> {
        let read = |value: &Value| {
            let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
            size.filter(|size| (1..=MOST_SIZE).contains(size))
                .ok_or_else(|| self.wrong(key, "a positive whole number", value))
        };
        self.get(key).map(read).transpose()
    }

    /// A size that may be null, with the value of one that is not there.
    fn size_or(&self, key: &str, usual: usize) -> Result<Option<usize>> {
        if self.settings.contains_key(key) { self.optional_size(key) } else { Ok(Some(usual)) }
    }

    fn size(&self, key: &str) -> Result<usize> {
        self.optional_size(key)?
            .ok_or_else(|| self.refuse(format!("lacks `{key}`"), "take the file as it was published"))
    }

    fn number(&self, key: &str, usual: f64) -> Result<f64> {
        number(self.settings.get(key), usual).ok_or_else(|| self.wrong(key, "a positive number", &self.settings[key]))
    }

    fn blocks(&self, key: &str) -> Result<usize> {
        let blocks = self.size(key)?;
        if blocks > MOST_BLOCKS {
            return Err(self.refuse(format!("needs at most {MOST_BLOCKS} blocks, but has {blocks}"), "it is damaged"));
        }
        Ok(blocks)
    }

    fn activation(&self, key: &str, usual: &str) -> Result<Activation> {
        match self.text(key)?.unwrap_or(usual) {
            "silu" | "swish" => Ok(Activation::Silu),
            "gelu" => Ok(Activation::Gelu),
            "gelu_new" | "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
            "relu" => Ok(Activation::Relu),
            other => Err(self.unsupported(key, &Value::from(other))),
        }
    }

    fn llama(&self, family: Family) -> Result<Architecture> {
        let (width, heads) = (self.size("hidden_size")?, self.size("num_attention_heads")?);
        let blocks = self.blocks("num_hidden_layers")?;
        let attention_bias = self.flag("attention_bias", Flag::Off)?;
        // Settings that are not there have the values of transformers' classes; null is a value of its own.
        let key_heads = match family {
            Family::Mistral => 8,
            Family::Qwen2 | Family::Qwen3 => 32,
            _ => heads,
        };
        let architecture = Architecture {
            family,
            vocabulary: self.size("vocab_size")?,
            positions: self.size("max_position_embeddings")?,
            width,
            blocks,
            heads,
            key_heads: self.size_or("num_key_value_heads", key_heads)?.unwrap_or(heads),
            // Qwen 3 has heads of 128 where nothing else is said.
            head_width: self.optional_size("head_dim")?.unwrap_or(if family == Family::Qwen3 {
                128
            } else {
                width / heads
            }),
            inner: self.size("intermediate_size")?,
            token_types: 0,
            scaled_embedding: false,
            position: self.rotary()?,
            window_base: None,
            norm: Norm::Rms,
            norm_place: NormPlace::Before,
            epsilon: self.number("rms_norm_eps", 1e-6)?,
            query_key_norm: family == Family::Qwen3,
            activation: self.activation("hidden_act", "silu")?,
            feed_forward: FeedForward::Gated,
            biases: Biases {
                query_key_value: attention_bias || family == Family::Qwen2,
                attention_output: attention_bias && family != Family::Qwen2,
                feed_forward: self.flag("mlp_bias", Flag::Off)?,
            },
            tied_output: self.flag("tie_word_embeddings", Flag::Off)?,
            causal: true,
            windows: self.windows(family, blocks)?,
        };
        self.check(architecture)
    }

    fn gemma3(&self) -> Result<Architecture> {
        let blocks = self.blocks("num_hidden_layers")?;
        let attention_bias = self.flag("attention_bias", Flag::Off)?;
        // Settings that are not there have the values of transformers' `Gemma3TextConfig`.
        let window = self.size_or("sliding_window", WINDOW)?;
        let pattern = self.optional_size("sliding_window_pattern")?;
        let pattern = pattern.or(self.optional_size("_sliding_window_pattern")?).unwrap_or(6);
        let windows = match self.kinds(blocks)? {
            Some(kinds) => self.windows_of(kinds, window)?,
            None if window.is_none() => return Err(self.unsupported("sliding_window", &Value::Null)),
            None => (1..=blocks).map(|block| window.filter(|_| !block.is_multiple_of(pattern))).collect(),
        };
        if let (Some(_), Some(scaling)) = (self.get("rope_parameters"), self.get("rope_scaling")) {
            return Err(self.unsupported("rope_scaling` beside `rope_parameters", scaling));
        }
        let (position, window_base) =
            match self.get("rope_parameters").map(|all| (&all["full_attention"], &all["sliding_attention"])) {
                Some((Value::Object(full), Value::Object(near))) => {
                    let Positions::Rotary { base, scaling: RotaryScaling::None } =
                        self.rotary_of("rope_parameters", near, 1e4)?
                    else {
                        return Err(self.unsupported("rope_parameters.sliding_attention", &Value::from(near.clone())));
                    };
                    (self.rotary_of("rope_parameters", full, 1e6)?, base)
                }
                Some(_) => {
                    let problem = "needs `full_attention` and `sliding_attention` under `rope_parameters`";
                    return Err(self.refuse(problem, "take the file as it was published"));
                }
                None => (self.rotary_by("rope_scaling", 1e6)?, self.number("rope_local_base_freq", 1e4)?),
            };
        self.check(Architecture {
            family: Family::Gemma3,
            vocabulary: self.size("vocab_size")?,
            positions: self.size("max_position_embeddings")?,
            width: self.size("hidden_size")?,
            blocks,
            heads: self.size("num_attention_heads")?,
            key_heads: self.optional_size("num_key_value_heads")?.unwrap_or(4),
            head_width: self.optional_size("head_dim")?.unwrap_or(256),
            inner: self.size("intermediate_size")?,
            token_types: 0,
            scaled_embedding: true,
            position,
            window_base: Some(window_base),
            norm: Norm::Rms,
            norm_place: NormPlace::Around,
            epsilon: self.number("rms_norm_eps", 1e-6)?,
            query_key_norm: true,
            activation: self.activation("hidden_activation", "gelu_pytorch_tanh")?,
            feed_forward: FeedForward::Gated,
            biases: Biases { query_key_value: attention_bias, attention_output: attention_bias, feed_forward: false },
            tied_output: self.flag("tie_word_embeddings", Flag::On)?,
            causal: true,
            windows,
        })
    }

    fn gpt2(&self) -> Result<Architecture> {
        let (width, heads) = (self.size("n_embd")?, self.size("n_head")?);
        let blocks = self.blocks("n_layer")?;
        self.check(Architecture {
            family: Family::Gpt2,
            vocabulary: self.size("vocab_size")?,
            positions: self.size("n_positions")?,
            width,
            blocks,
            heads,
            key_heads: heads,
            head_width: width / heads,
            inner: self.optional_size("n_inner")?.unwrap_or(4 * width),
            token_types: 0,
            scaled_embedding: false,
            position: Positions::Learned,
            window_base: None,
            norm: Norm::Layer,
            norm_place: NormPlace::Before,
            epsilon: self.number("layer_norm_epsilon", 1e-5)?,
            query_key_norm: false,
            activation: self.activation("activation_function", "gelu_new")?,
            feed_forward: FeedForward::Plain,
            biases: Biases { query_key_value: true, attention_output: true, feed_forward: true },
            tied_output: self.flag("tie_word_embeddings", Flag::On)?,
            causal: true,
            windows: vec![None; blocks],
        })
    }

    fn bert(&self) -> Result<Architecture> {
        let (width, heads) = (self.size("hidden_size")?, self.size("num_attention_heads")?);
        let blocks = self.blocks("num_hidden_layers")?;
        self.check(Architecture {
            family: Family::Bert,
            vocabulary: self.size("vocab_size")?,
            positions: self.size("max_position_embeddings")?,
            width,
            blocks,
            heads,
            key_heads: heads,
            head_width: width / heads,
            inner: self.size("intermediate_size")?,
            token_types: self.optional_size("type_vocab_size")?.unwrap_or(2),
            scaled_embedding: false,
            position: Positions::Learned,
            window_base: None,
            norm: Norm::Layer,
            norm_place: NormPlace::After,
            epsilon: self.number("layer_norm_eps", 1e-12)?,
            query_key_norm: false,
            activation: self.activation("hidden_act", "gelu")?,
            feed_forward: FeedForward::Plain,
            biases: Biases { query_key_value: true, attention_output: true, feed_forward: true },
            // Its heads, if any, are no part of the network here.
            tied_output: true,
            causal: false,
            windows: vec![None; blocks],
        })
    }

    fn check(&self, architecture: Architecture) -> Result<Architecture> {
        // Products of queries and keys are divided by the root of the heads' width.
        let divisor = self.get("query_pre_attn_scalar");
        if let Some(value) = divisor.filter(|value| value.as_u64() != Some(architecture.head_width as u64)) {
            return Err(self.unsupported("query_pre_attn_scalar", value));
        }
        architecture.check().map_err(|problem| self.refuse(problem, "take the file as it was published"))?;
        Ok(architecture)
    }

    /// Windows of all blocks. Qwen gives one to the blocks after the first `max_window_layers`; newer files list the blocks' kinds.
    fn windows(&self, family: Family, blocks: usize) -> Result<Vec<Option<usize>>> {
        let is_used = match family {
            Family::Mistral => true,
            Family::Qwen2 | Family::Qwen3 => self.flag("use_sliding_window", Flag::Off)?,
            _ => false,
        };
        let window = self.size_or("sliding_window", WINDOW)?.filter(|_| is_used);
        match self.kinds(blocks)? {
            // transformers gives the window to all blocks of Mistral, whatever their kinds.
            Some(kinds) if family == Family::Mistral => {
                let listed = self.windows_of(kinds, window)?;
                let other = listed.iter().zip(kinds).find(|(listed, _)| **listed != window);
                other.map_or(Ok(listed.clone()), |(_, kind)| Err(self.unsupported("layer_types", kind)))
            }
            Some(kinds) => self.windows_of(kinds, window),
            None => {
                let full = self.settings.get("max_window_layers").and_then(Value::as_u64);
                let full = full.map_or(28, |full| usize::try_from(full).unwrap_or(usize::MAX));
                let full = if family == Family::Mistral { 0 } else { full };
                Ok((0..blocks).map(|block| window.filter(|_| block >= full)).collect())
            }
        }
    }

    /// Kinds of all blocks, if they are listed.
    fn kinds(&self, blocks: usize) -> Result<Option<&'a Vec<Value>>> {
        let Some(value) = self.get("layer_types") else { return Ok(None) };
        let kinds = value.as_array().filter(|kinds| kinds.len() == blocks);
        kinds.map(Some).ok_or_else(|| self.wrong("layer_types", "one kind for each block", value))
    }

    fn windows_of(&self, kinds: &[Value], window: Option<usize>) -> Result<Vec<Option<usize>>> {
        let window_of = |kind: &Value| match kind.as_str() {
            Some("full_attention") => Ok(None),
            Some("sliding_attention") if window.is_some() => Ok(window),
            _ => Err(self.unsupported("layer_types", kind)),
        };
        kinds.iter().map(window_of).collect()
    }

    /// Rotary positions: `rope_parameters` of transformers 5, `rope_theta` and `rope_scaling` before.
    fn rotary(&self) -> Result<Positions> {
        // Where both are there, as after a change by hand, transformers takes the older one.
        let is_old = self.get("rope_scaling").is_some_and(|value| *value != Value::Object(Map::new()));
        self.rotary_by(if is_old { "rope_scaling" } else { "rope_parameters" }, 1e4)
    }

    /// Rotary positions by a setting, with the usual base.
    fn rotary_by(&self, key: &str, base: f64) -> Result<Positions> {
        match self.get(key) {
            None => self.rotary_of(key, &Map::new(), base),
            Some(value) => {
                self.rotary_of(key, value.as_object().ok_or_else(|| self.wrong(key, "an object", value))?, base)
            }
        }
    }

    fn rotary_of(&self, key: &str, scaling: &Map<String, Value>, base: f64) -> Result<Positions> {
        if let Some((kind, value)) = scaling.iter().find(|(_, value)| value.is_object()) {
            return Err(self.unsupported(&format!("{key}.{kind}"), value));
        }
        let base =
            number(self.settings.get("rope_theta"), base).and_then(|base| number(scaling.get("rope_theta"), base));
        let base =
            base.ok_or_else(|| self.wrong(key, "a positive number `rope_theta`", &Value::Object(scaling.clone())))?;
        let kind = scaling.get("rope_type").or_else(|| scaling.get("type")).and_then(Value::as_str);
        let field = |name: &str| {
            let value = scaling.get(name).and_then(|value| number(Some(value), 1.0));
            value.ok_or_else(|| {
                self.refuse(format!("needs a positive number `{name}` in `{key}`"), "take the file as it was published")
            })
        };
        let scaling = match kind.unwrap_or("default") {
            "default" => RotaryScaling::None,
            "linear" => RotaryScaling::Linear { factor: field("factor")? },
            "llama3" => RotaryScaling::Llama3 {
                factor: field("factor")?,
                low: field("low_freq_factor")?,
                high: field("high_freq_factor")?,
                original_positions: field("original_max_position_embeddings")?,
            },
            other => return Err(self.unsupported(&format!("{key}.rope_type"), &Value::from(other))),
        };
        Ok(Positions::Rotary { base, scaling })
    }
}

/// Value of a setting that is not there.
#[derive(Clone, Copy, PartialEq)]
enum Flag {
    On,
    Off,
}

/// A positive number, or the usual one where there is none.
fn number(value: Option<&Value>, usual: f64) -> Option<f64> {
    match value {
        None | Some(Value::Null) => Some(usual),
        Some(value) => value.as_f64().filter(|number| number.is_finite() && *number > 0.0),
    }
}

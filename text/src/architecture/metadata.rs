//! Reads the network from the metadata of a GGUF file.

use manyhands_engine::shown;

use super::{
    Activation, Architecture, Biases, Family, FeedForward, MOST_BLOCKS, Norm, NormPlace, Positions, RotaryScaling,
};
use crate::encoding::Encoding;
use crate::gguf::{Gguf, Value};
use crate::{Error, Result};

/// Factors of rotary frequencies, which the converter computes for Llama 3.1.
pub(crate) const ROTARY_FACTORS: &str = "rope_freqs.weight";

/// Keys behind the architecture's name that change the result and that no model here has.
const REFUSED: [&str; 11] = [
    "expert_count",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "attention.scale",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "embedding_scale",
    "residual_scale",
    "logit_scale",
    "rope.scaling.attn_factor",
    "rope.scaling.alpha",
];

impl Architecture {
    /// Reads the metadata of a GGUF file.
    ///
    /// # Errors
    /// If it lacks a value, or describes a network that is not known here.
    pub fn from_gguf(file: &Gguf) -> Result<Self> {
        let name = file.text("general.architecture")?.unwrap_or_default();
        let family = match name {
            "llama" => Family::Llama,
            "qwen2" => Family::Qwen2,
            "qwen3" => Family::Qwen3,
            "gemma3" => Family::Gemma3,
            "gpt2" => Family::Gpt2,
            "bert" => Family::Bert,
            other => {
                let problem = format!(
                    "needs the architecture llama, qwen2, qwen3, gemma3, gpt2 or bert, but is `{}`",
                    shown(other)
                );
                let help = "take a model of one of these families";
                return Err(Error::checkpoint(format!("`{}`", shown(file.path())), problem, help));
            }
        };
        let keys = Keys { file, name, family };
        keys.refuse_unknown()?;
        keys.refuse_unordered()?;
        let architecture = keys.read()?;
        architecture.check().map_err(|problem| file.refuse(problem))?;
        Ok(architecture)
    }
}

struct Keys<'a> {
    file: &'a Gguf,
    name: &'a str,
    family: Family,
}

impl Keys<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }

    fn size(&self, key: &str) -> Result<usize> {
        let key = self.key(key);
        self.file
            .size(&key)?
            .filter(|size| *size > 0)
            .ok_or_else(|| self.file.refuse(format!("needs a positive number under `{key}`")))
    }

    fn optional_size(&self, key: &str) -> Result<Option<usize>> {
        self.file.size(&self.key(key))
    }

    fn refuse_unknown(&self) -> Result<()> {
        for key in REFUSED.map(|key| self.key(key)) {
            if self.file.size(&key).ok().flatten() != Some(0) && self.file.metadata().contains_key(&key) {
                let problem = format!("sets `{key}`, which is not supported");
                let help = "take another model: without this setting its results would be wrong";
                return Err(Error::checkpoint(format!("`{}`", shown(self.file.path())), problem, help));
            }
        }
        Ok(())
    }

    /// Refuses a network of a family that writes, if its file says that a token sees later ones, too.
    fn refuse_unordered(&self) -> Result<()> {
        let key = self.key("attention.causal");
        match self.file.flag(&key)? {
            Some(false) if self.family != Family::Bert => {
                Err(self.file.refuse(format!("sets `{key}` to false, which is not supported")))
            }
            _ => Ok(()),
        }
    }

    fn has(&self, tensor: &str) -> bool {
        self.file.tensors().contains_key(tensor)
    }

    fn read(&self) -> Result<Architecture> {
        let (width, heads, blocks) =
            (self.size("embedding_length")?, self.size("attention.head_count")?, self.size("block_count")?);
        let is_gemma = self.family == Family::Gemma3;
        let head_width = match self.optional_size("attention.key_length")? {
            Some(head_width) => head_width,
            // Which other program would take, nobody knows: heads of Gemma 3 are wider than their part.
            None if is_gemma => return Err(self.file.refuse(format!("lacks `{}`", self.key("attention.key_length")))),
            None => width / heads,
        };
        let is_old = matches!(self.family, Family::Gpt2 | Family::Bert);
        let epsilon =
            self.key(if is_old { "attention.layer_norm_epsilon" } else { "attention.layer_norm_rms_epsilon" });
        // The first block tells of all.
        let has_bias = |tensor: &str| is_old || self.has(&format!("blk.0.{tensor}.bias"));
        Ok(Architecture {
            family: self.family,
            vocabulary: self.vocabulary()?,
            positions: self.size("context_length")?,
            width,
            blocks,
            heads,
            key_heads: self.optional_size("attention.head_count_kv")?.unwrap_or(heads),
            head_width,
            inner: self.size("feed_forward_length")?,
            token_types: self.token_types(),
            scaled_embedding: is_gemma,
            position: if is_old { Positions::Learned } else { self.rotary(head_width)? },
            window_base: if is_gemma { Some(self.window_base()?) } else { None },
            norm: if is_old { Norm::Layer } else { Norm::Rms },
            norm_place: match self.family {
                Family::Bert => NormPlace::After,
                Family::Gemma3 => NormPlace::Around,
                _ => NormPlace::Before,
            },
            epsilon: self.file.float(&epsilon)?.ok_or_else(|| self.file.refuse(format!("lacks `{epsilon}`")))?,
            query_key_norm: matches!(self.family, Family::Qwen3 | Family::Gemma3),
            activation: match self.family {
                Family::Gpt2 | Family::Gemma3 => Activation::GeluTanh,
                Family::Bert => Activation::Gelu,
                _ => Activation::Silu,
            },
            feed_forward: if is_old { FeedForward::Plain } else { FeedForward::Gated },
            biases: Biases {
                query_key_value: has_bias("attn_q"),
                attention_output: has_bias("attn_output"),
                feed_forward: has_bias("ffn_up"),
            },
            tied_output: !self.has("output.weight"),
            causal: self.family != Family::Bert,
            windows: self.windows(blocks.min(MOST_BLOCKS))?,
        })
    }

    /// Windows of the blocks: those of Gemma 3 in five of six, unless the file says in which.
    fn windows(&self, blocks: usize) -> Result<Vec<Option<usize>>> {
        let window = self.optional_size("attention.sliding_window")?.filter(|window| *window > 0);
        match self.family {
            Family::Gemma3 => {}
            Family::Qwen2 | Family::Qwen3 if window.is_some() => {
                return Err(self.file.refuse("sets a window without the blocks that have it"));
            }
            _ => return Ok(vec![window; blocks]),
        }
        let key = self.key("attention.sliding_window");
        let window = window.ok_or_else(|| self.file.refuse(format!("needs a positive number under `{key}`")))?;
        let pattern = self.key("attention.sliding_window_pattern");
        let is_near: Vec<bool> = match self.file.metadata().get(&pattern) {
            Some(Value::Array(list)) => {
                list.iter().filter_map(|near| if let Value::Bool(near) = near { Some(*near) } else { None }).collect()
            }
            _ => {
                let period = self.file.size(&pattern)?.unwrap_or(6).max(1);
                (1..=blocks).map(|block| !block.is_multiple_of(period)).collect()
            }
        };
        if is_near.len() != blocks {
            return Err(self.file.refuse(format!("needs true or false for each block under `{pattern}`")));
        }
        Ok(is_near.into_iter().map(|is_near| Some(window).filter(|_| is_near)).collect())
    }

    /// Base of rotary positions in blocks with a window, of Gemma 3.
    fn window_base(&self) -> Result<f64> {
        // The queries of 27B are divided by another number than √head: llama.cpp knows it by its blocks.
        if self.size("block_count")? == 62 {
            return Err(self.file.refuse("is Gemma 3 27B, whose scale of attention is not supported"));
        }
        Ok(self.file.float(&self.key("rope.freq_base_swa"))?.unwrap_or(10_000.0))
    }

    fn vocabulary(&self) -> Result<usize> {
        let embedding = self.file.tensors().get("token_embd.weight").and_then(|tensor| tensor.shape.first());
        embedding.copied().ok_or_else(|| self.file.refuse("lacks the tensor `token_embd.weight`"))
    }

    fn token_types(&self) -> usize {
        self.file.tensors().get("token_types.weight").and_then(|tensor| tensor.shape.first()).copied().unwrap_or(0)
    }

    fn rotary(&self, head_width: usize) -> Result<Positions> {
        let usual = if self.family == Family::Gemma3 { None } else { Some(10_000.0) };
        let base = self.file.float(&self.key("rope.freq_base"))?.or(usual);
        let base = base.ok_or_else(|| self.file.refuse(format!("lacks `{}`", self.key("rope.freq_base"))))?;
        if self.optional_size("rope.dimension_count")?.is_some_and(|rotated| rotated != head_width) {
            return Err(self
                .file
                .refuse(format!("needs to rotate all {head_width} elements of a head, but rotates a part")));
        }
        if self.optional_size("attention.value_length")?.is_some_and(|values| values != head_width) {
            return Err(self.file.refuse(format!("needs values of {head_width} elements a head, as its keys")));
        }
        // llama.cpp scales linearly where a factor is there without a type, as in files of old, whose factor has another name.
        let factor = match self.file.float(&self.key("rope.scaling.factor"))? {
            None => self.file.float(&self.key("rope.scale_linear"))?,
            factor => factor,
        };
        let factor = factor.filter(|factor| *factor > 0.0 && *factor != 1.0);
        let kind = self.file.text(&self.key("rope.scaling.type"))?.unwrap_or("linear");
        let scaling = match (kind, factor) {
            ("linear", Some(_)) if self.has(ROTARY_FACTORS) => {
                return Err(self.file.refuse(format!("scales rotary positions by a factor beside `{ROTARY_FACTORS}`")));
            }
            _ if self.has(ROTARY_FACTORS) => RotaryScaling::Factors(self.factors(head_width)?),
            ("none", _) | ("linear", None) => RotaryScaling::None,
            ("linear", Some(factor)) => RotaryScaling::Linear { factor },
            (other, _) => {
                return Err(self
                    .file
                    .refuse(format!("scales rotary positions by `{}`, which is not supported", shown(other))));
            }
        };
        Ok(Positions::Rotary { base, scaling })
    }

    fn factors(&self, head_width: usize) -> Result<Vec<f32>> {
        let place = &self.file.tensors()[ROTARY_FACTORS];
        if place.encoding != Encoding::F32 || place.shape != [head_width / 2] {
            let problem = format!("needs {} floats in `{ROTARY_FACTORS}`, but has {:?}", head_width / 2, place.shape);
            return Err(self.file.refuse(problem));
        }
        Ok(place.encoding.unpack(&self.file.read(place)?))
    }
}

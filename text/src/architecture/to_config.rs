//! Writes a network as `config.json`.

use serde_json::{Value, json};

use super::{Architecture, Family, Positions, RotaryScaling};
use crate::{Error, Result};

impl Architecture {
    /// A `config.json` of the network, as transformers reads it.
    ///
    /// # Errors
    /// If `config.json` has no setting for a part of the network.
    pub(crate) fn to_config(&self) -> Result<Value> {
        let refuse = |problem: &str| Err(Error::checkpoint("a Hugging Face folder", problem, "write a GGUF file"));
        let (kind, class) = match self.family {
            Family::Llama => ("llama", "LlamaForCausalLM"),
            Family::Mistral => ("mistral", "MistralForCausalLM"),
            Family::Qwen2 => ("qwen2", "Qwen2ForCausalLM"),
            Family::Qwen3 => ("qwen3", "Qwen3ForCausalLM"),
            Family::Gemma3 => return refuse("can't be made from a GGUF file of Gemma 3"),
            Family::Gpt2 => return Ok(self.gpt2_config()),
            Family::Bert => return refuse("can't be made from a GGUF file of BERT"),
        };
        let Positions::Rotary { base, scaling } = &self.position else { return refuse("needs rotary positions") };
        let scaling = match scaling {
            RotaryScaling::None => Value::Null,
            RotaryScaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
            _ => return refuse("has no setting for the factors of rotary positions in a GGUF file"),
        };
        if self.windows.iter().any(Option::is_some)
            || self.biases.query_key_value != (self.biases.attention_output || self.family == Family::Qwen2)
        {
            return refuse("has no setting for the windows or biases of this GGUF file");
        }
        Ok(json!({
            "model_type": kind, "architectures": [class], "vocab_size": self.vocabulary, "hidden_size": self.width,
            "intermediate_size": self.inner, "num_hidden_layers": self.blocks, "num_attention_heads": self.heads,
            "num_key_value_heads": self.key_heads, "head_dim": self.head_width, "max_position_embeddings": self.positions,
            "hidden_act": "silu", "rms_norm_eps": self.epsilon, "rope_theta": base, "rope_scaling": scaling,
            "attention_bias": self.biases.attention_output, "mlp_bias": self.biases.feed_forward,
            "sliding_window": Value::Null, "tie_word_embeddings": self.tied_output,
        }))
    }

    fn gpt2_config(&self) -> Value {
        json!({
            "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": self.vocabulary, "n_embd": self.width,
            "n_inner": self.inner, "n_layer": self.blocks, "n_head": self.heads, "n_positions": self.positions,
            "activation_function": "gelu_new", "layer_norm_epsilon": self.epsilon, "tie_word_embeddings": self.tied_output,
        })
    }
}

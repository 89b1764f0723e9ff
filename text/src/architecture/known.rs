//! Settings of `config.json`, by whether they are read, are refused, or change nothing.

use serde_json::{Map, Value};

/// Settings that change the result and that no model here has, with the values that change nothing.
const REFUSED: &[(&str, &[&str])] = &[
    ("add_cross_attention", &["false"]),
    ("attention_logit_softcapping", &[]),
    ("attention_multiplier", &[]),
    ("clip_qkv", &[]),
    ("embedding_multiplier", &["1.0"]),
    ("embedding_size", &[]),
    ("final_logit_softcapping", &[]),
    ("attn_logit_softcapping", &[]),
    ("is_decoder", &["false"]),
    ("logit_scale", &["1.0"]),
    ("logits_scaling", &["1.0"]),
    ("no_rope_layers", &[]),
    ("num_experts", &["0"]),
    ("num_local_experts", &["0"]),
    ("partial_rotary_factor", &["1.0"]),
    ("pretraining_tp", &["1"]),
    ("position_embedding_type", &["\"absolute\""]),
    ("quantization_config", &[]),
    ("reorder_and_upcast_attn", &["false"]),
    ("residual_multiplier", &["1.0"]),
    ("rope_interleaved", &["false"]),
    ("rotary_pct", &["1.0"]),
    ("scale_attn_by_inverse_layer_idx", &["false"]),
    ("scale_attn_weights", &["true"]),
    ("use_bidirectional_attention", &["false"]),
    ("use_mrope", &["false"]),
    ("use_qk_norm", &["false"]),
];

/// Settings that change nothing here: they are about training, generation, or the program that wrote them.
const HARMLESS: &[&str] = &[
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "attention_probs_dropout_prob",
    "attn_pdrop",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "dtype",
    "embd_pdrop",
    "eos_token_id",
    "gradient_checkpointing",
    "hidden_dropout_prob",
    "id2label",
    "initializer_range",
    "is_llama_config",
    "label2id",
    "model_type",
    "n_ctx",
    "num_labels",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "problem_type",
    "resid_pdrop",
    "return_dict",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "torch_dtype",
    "transformers.js_config",
    "transformers_version",
    "use_cache",
];

/// Settings that are read.
const READ: &[&str] = &[
    "_sliding_window_pattern",
    "activation_function",
    "attention_bias",
    "head_dim",
    "hidden_act",
    "hidden_activation",
    "hidden_size",
    "intermediate_size",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "layer_types",
    "max_position_embeddings",
    "max_window_layers",
    "mlp_bias",
    "n_embd",
    "n_head",
    "n_inner",
    "n_layer",
    "n_positions",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "query_pre_attn_scalar",
    "rms_norm_eps",
    "rope_local_base_freq",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "sliding_window",
    "sliding_window_pattern",
    "tie_word_embeddings",
    "type_vocab_size",
    "use_sliding_window",
    "vocab_size",
];

/// The first setting that changes the result and is not known here.
pub(super) fn refused(settings: &Map<String, Value>) -> Option<(&'static str, &Value)> {
    let set = |(key, usual): &(&'static str, &[&str])| {
        let value = settings.get(*key).filter(|value| !value.is_null() && !usual.contains(&&*value.to_string()))?;
        Some((*key, value))
    };
    REFUSED.iter().find_map(set)
}

/// Settings that no list here has.
pub(super) fn unknown(settings: &Map<String, Value>) -> impl Iterator<Item = &String> {
    let is_refused = |key: &str| REFUSED.iter().any(|(refused, _)| *refused == key);
    settings
        .keys()
        .filter(move |key| !READ.contains(&key.as_str()) && !HARMLESS.contains(&key.as_str()) && !is_refused(key))
}

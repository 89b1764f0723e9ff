//! Names, shapes and places of a model's tensors: in any model here, in a Hugging Face folder, and in a GGUF file.

use crate::architecture::{Architecture, Family};
use crate::tensor::Tensor;

/// A size of the network, for shapes.
#[derive(Clone, Copy)]
enum Size {
    Vocabulary,
    Positions,
    TokenTypes,
    Width,
    Queries,
    Keys,
    HeadWidth,
    Inner,
}

/// The networks that have a tensor.
#[derive(Clone, Copy, PartialEq)]
enum When {
    Always,
    QueryKeyValueBias,
    AttentionOutputBias,
    FeedForwardBias,
    QueryKeyNorm,
    Untied,
    /// Networks whose files have it.
    Found,
}

/// A row of a table: the three names, the shape, the condition.
type Row = (&'static str, &'static str, &'static str, &'static [Size], When);

use Size::{HeadWidth, Inner, Keys, Positions, Queries, TokenTypes, Vocabulary, Width};
use When::{Always, AttentionOutputBias, FeedForwardBias, Found, QueryKeyNorm, QueryKeyValueBias, Untied};

const LLAMA: &[Row] = &[
    ("embedding.embeddings", "model.embed_tokens.weight", "token_embd.weight", &[Vocabulary, Width], Always),
    ("norm.scale", "model.norm.weight", "output_norm.weight", &[Width], Always),
    ("output.kernel", "lm_head.weight", "output.weight", &[Vocabulary, Width], Untied),
];
const LLAMA_BLOCK: &[Row] = &[
    ("attention_norm.scale", "input_layernorm.weight", "attn_norm.weight", &[Width], Always),
    ("attention.query.kernel", "self_attn.q_proj.weight", "attn_q.weight", &[Queries, Width], Always),
    ("attention.query.bias", "self_attn.q_proj.bias", "attn_q.bias", &[Queries], QueryKeyValueBias),
    ("attention.key.kernel", "self_attn.k_proj.weight", "attn_k.weight", &[Keys, Width], Always),
    ("attention.key.bias", "self_attn.k_proj.bias", "attn_k.bias", &[Keys], QueryKeyValueBias),
    ("attention.value.kernel", "self_attn.v_proj.weight", "attn_v.weight", &[Keys, Width], Always),
    ("attention.value.bias", "self_attn.v_proj.bias", "attn_v.bias", &[Keys], QueryKeyValueBias),
    ("attention.query_norm.scale", "self_attn.q_norm.weight", "attn_q_norm.weight", &[HeadWidth], QueryKeyNorm),
    ("attention.key_norm.scale", "self_attn.k_norm.weight", "attn_k_norm.weight", &[HeadWidth], QueryKeyNorm),
    ("attention.output.kernel", "self_attn.o_proj.weight", "attn_output.weight", &[Width, Queries], Always),
    ("attention.output.bias", "self_attn.o_proj.bias", "attn_output.bias", &[Width], AttentionOutputBias),
    ("feed_forward_norm.scale", "post_attention_layernorm.weight", "ffn_norm.weight", &[Width], Always),
    ("feed_forward.gate.kernel", "mlp.gate_proj.weight", "ffn_gate.weight", &[Inner, Width], Always),
    ("feed_forward.gate.bias", "mlp.gate_proj.bias", "ffn_gate.bias", &[Inner], FeedForwardBias),
    ("feed_forward.up.kernel", "mlp.up_proj.weight", "ffn_up.weight", &[Inner, Width], Always),
    ("feed_forward.up.bias", "mlp.up_proj.bias", "ffn_up.bias", &[Inner], FeedForwardBias),
    ("feed_forward.down.kernel", "mlp.down_proj.weight", "ffn_down.weight", &[Width, Inner], Always),
    ("feed_forward.down.bias", "mlp.down_proj.bias", "ffn_down.bias", &[Width], FeedForwardBias),
];

/// Normalizations of a block of Gemma 3; all else is as in Llama's.
const GEMMA3_NORMS: &[Row] = &[
    ("attention_post_norm.scale", "post_attention_layernorm.weight", "post_attention_norm.weight", &[Width], Always),
    ("feed_forward_norm.scale", "pre_feedforward_layernorm.weight", "ffn_norm.weight", &[Width], Always),
    ("feed_forward_post_norm.scale", "post_feedforward_layernorm.weight", "post_ffw_norm.weight", &[Width], Always),
];

const GPT2: &[Row] = &[
    ("embedding.embeddings", "transformer.wte.weight", "token_embd.weight", &[Vocabulary, Width], Always),
    ("positions.embeddings", "transformer.wpe.weight", "position_embd.weight", &[Positions, Width], Always),
    ("norm.gamma", "transformer.ln_f.weight", "output_norm.weight", &[Width], Always),
    ("norm.beta", "transformer.ln_f.bias", "output_norm.bias", &[Width], Always),
    ("output.kernel", "lm_head.weight", "output.weight", &[Vocabulary, Width], Untied),
];
const GPT2_BLOCK: &[Row] = &[
    ("attention_norm.gamma", "ln_1.weight", "attn_norm.weight", &[Width], Always),
    ("attention_norm.beta", "ln_1.bias", "attn_norm.bias", &[Width], Always),
    ("attention.query.kernel", "attn.c_attn.weight", "attn_qkv.weight", &[Queries, Width], Always),
    ("attention.query.bias", "attn.c_attn.bias", "attn_qkv.bias", &[Queries], Always),
    ("attention.key.kernel", "attn.c_attn.weight", "attn_qkv.weight", &[Keys, Width], Always),
    ("attention.key.bias", "attn.c_attn.bias", "attn_qkv.bias", &[Keys], Always),
    ("attention.value.kernel", "attn.c_attn.weight", "attn_qkv.weight", &[Keys, Width], Always),
    ("attention.value.bias", "attn.c_attn.bias", "attn_qkv.bias", &[Keys], Always),
    ("attention.output.kernel", "attn.c_proj.weight", "attn_output.weight", &[Width, Queries], Always),
    ("attention.output.bias", "attn.c_proj.bias", "attn_output.bias", &[Width], Always),
    ("feed_forward_norm.gamma", "ln_2.weight", "ffn_norm.weight", &[Width], Always),
    ("feed_forward_norm.beta", "ln_2.bias", "ffn_norm.bias", &[Width], Always),
    ("feed_forward.up.kernel", "mlp.c_fc.weight", "ffn_up.weight", &[Inner, Width], Always),
    ("feed_forward.up.bias", "mlp.c_fc.bias", "ffn_up.bias", &[Inner], Always),
    ("feed_forward.down.kernel", "mlp.c_proj.weight", "ffn_down.weight", &[Width, Inner], Always),
    ("feed_forward.down.bias", "mlp.c_proj.bias", "ffn_down.bias", &[Width], Always),
];

const BERT: &[Row] = &[
    ("embedding.embeddings", "embeddings.word_embeddings.weight", "token_embd.weight", &[Vocabulary, Width], Always),
    (
        "positions.embeddings",
        "embeddings.position_embeddings.weight",
        "position_embd.weight",
        &[Positions, Width],
        Always,
    ),
    (
        "token_types.embeddings",
        "embeddings.token_type_embeddings.weight",
        "token_types.weight",
        &[TokenTypes, Width],
        Always,
    ),
    ("embedding_norm.gamma", "embeddings.LayerNorm.weight", "token_embd_norm.weight", &[Width], Always),
    ("embedding_norm.beta", "embeddings.LayerNorm.bias", "token_embd_norm.bias", &[Width], Always),
    ("pooler.kernel", "pooler.dense.weight", "pooler.dense.weight", &[Width, Width], Found),
    ("pooler.bias", "pooler.dense.bias", "pooler.dense.bias", &[Width], Found),
];
const BERT_BLOCK: &[Row] = &[
    ("attention.query.kernel", "attention.self.query.weight", "attn_q.weight", &[Queries, Width], Always),
    ("attention.query.bias", "attention.self.query.bias", "attn_q.bias", &[Queries], Always),
    ("attention.key.kernel", "attention.self.key.weight", "attn_k.weight", &[Keys, Width], Always),
    ("attention.key.bias", "attention.self.key.bias", "attn_k.bias", &[Keys], Always),
    ("attention.value.kernel", "attention.self.value.weight", "attn_v.weight", &[Keys, Width], Always),
    ("attention.value.bias", "attention.self.value.bias", "attn_v.bias", &[Keys], Always),
    ("attention.output.kernel", "attention.output.dense.weight", "attn_output.weight", &[Width, Queries], Always),
    ("attention.output.bias", "attention.output.dense.bias", "attn_output.bias", &[Width], Always),
    ("attention_norm.gamma", "attention.output.LayerNorm.weight", "attn_output_norm.weight", &[Width], Always),
    ("attention_norm.beta", "attention.output.LayerNorm.bias", "attn_output_norm.bias", &[Width], Always),
    ("feed_forward.up.kernel", "intermediate.dense.weight", "ffn_up.weight", &[Inner, Width], Always),
    ("feed_forward.up.bias", "intermediate.dense.bias", "ffn_up.bias", &[Inner], Always),
    ("feed_forward.down.kernel", "output.dense.weight", "ffn_down.weight", &[Width, Inner], Always),
    ("feed_forward.down.bias", "output.dense.bias", "ffn_down.bias", &[Width], Always),
    ("feed_forward_norm.gamma", "output.LayerNorm.weight", "layer_output_norm.weight", &[Width], Always),
    ("feed_forward_norm.beta", "output.LayerNorm.bias", "layer_output_norm.bias", &[Width], Always),
];

/// A tensor that a network has: its name, shape, and place in files of both kinds.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    /// Name in a Hugging Face folder.
    pub(crate) folder_name: String,
    /// Name in a GGUF file.
    pub(crate) gguf_name: String,
    /// Whether a file may lack it.
    pub(crate) is_optional: bool,
    /// Its third of the tensor in files, which holds query, key and value.
    pub(crate) third: Option<usize>,
    /// Whether folders have it as `[inputs, units]`, as the `Conv1D` of GPT-2 does.
    pub(crate) is_swapped: bool,
    /// Heads whose rows GGUF files interleave.
    pub(crate) interleaved_heads: Option<usize>,
    /// Whether folders have it less 1, as those of Gemma have the scales of normalizations.
    pub(crate) is_less_one: bool,
}

/// All tensors of a network, those of the blocks last.
pub(crate) fn planned(architecture: &Architecture) -> Vec<Planned> {
    let (whole, block, block_name) = match architecture.family {
        Family::Gpt2 => (GPT2, GPT2_BLOCK, "transformer.h"),
        Family::Bert => (BERT, BERT_BLOCK, "encoder.layer"),
        _ => (LLAMA, LLAMA_BLOCK, "model.layers"),
    };
    let own: &[Row] = if architecture.family == Family::Gemma3 { GEMMA3_NORMS } else { &[] };
    let is_own = |name: &str| own.iter().any(|row| row.0 == name);
    let block: Vec<&Row> = block.iter().filter(|row| !is_own(row.0)).chain(own).collect();
    let mut all: Vec<Planned> = whole.iter().filter_map(|row| planned_row(architecture, row, ["", "", ""])).collect();
    for number in 0..architecture.blocks {
        let prefixes = [format!("blocks.{number}."), format!("{block_name}.{number}."), format!("blk.{number}.")];
        let prefixes = [&*prefixes[0], &*prefixes[1], &*prefixes[2]];
        all.extend(block.iter().filter_map(|row| planned_row(architecture, row, prefixes)));
    }
    all
}

fn planned_row(architecture: &Architecture, row: &Row, prefixes: [&str; 3]) -> Option<Planned> {
    let (name, folder_name, gguf_name, shape, when) = row;
    let is_there = match when {
        Always | Found => true,
        QueryKeyValueBias => architecture.biases.query_key_value,
        AttentionOutputBias => architecture.biases.attention_output,
        FeedForwardBias => architecture.biases.feed_forward,
        QueryKeyNorm => architecture.query_key_norm,
        Untied => !architecture.tied_output,
    };
    let part =
        ["attention.query.", "attention.key.", "attention.value."].iter().position(|part| name.starts_with(part));
    let is_gpt2 = architecture.family == Family::Gpt2;
    // `convert_hf_to_gguf.py` permutes for what it calls `llama`, of which Mistral is one.
    let interleaved = matches!(architecture.family, Family::Llama | Family::Mistral);
    let heads = [architecture.heads, architecture.key_heads];
    is_there.then(|| Planned {
        name: format!("{}{name}", prefixes[0]),
        shape: shape.iter().map(|size| size.of(architecture)).collect(),
        folder_name: format!("{}{folder_name}", prefixes[1]),
        gguf_name: format!("{}{gguf_name}", prefixes[2]),
        is_optional: *when == Found,
        third: part.filter(|_| is_gpt2),
        is_swapped: is_gpt2 && name.ends_with(".kernel") && *name != "output.kernel",
        interleaved_heads: part.and_then(|part| heads.get(part)).copied().filter(|_| interleaved),
        is_less_one: architecture.family == Family::Gemma3 && name.ends_with("norm.scale"),
    })
}

impl Size {
    fn of(self, architecture: &Architecture) -> usize {
        match self {
            Vocabulary => architecture.vocabulary,
            Positions => architecture.positions,
            TokenTypes => architecture.token_types,
            Width => architecture.width,
            Queries => architecture.heads * architecture.head_width,
            Keys => architecture.key_heads * architecture.head_width,
            HeadWidth => architecture.head_width,
            Inner => architecture.inner,
        }
    }
}

/// Order of the rows of queries or keys in a GGUF file of `llama`.
///
/// The converter stores the pair (i, i + half) that is rotated together as rows 2i and 2i + 1 of the head.
#[derive(Clone, Copy)]
pub(crate) struct Interleaving {
    head_width: usize,
}

impl Interleaving {
    fn new(rows: usize, heads: usize) -> Self {
        Self { head_width: rows / heads }
    }

    /// Row in the file for a row of the model.
    fn stored(self, row: usize) -> usize {
        let (head, place, half) = (row / self.head_width, row % self.head_width, self.head_width / 2);
        head * self.head_width + 2 * (place % half) + place / half
    }

    /// Row of the model for a row in the file.
    fn original(self, stored: usize) -> usize {
        let (head, place, half) = (stored / self.head_width, stored % self.head_width, self.head_width / 2);
        head * self.head_width + place % 2 * half + place / 2
    }
}

impl Planned {
    /// Shape of the tensor in a folder.
    pub(crate) fn folder_shape(&self) -> Vec<usize> {
        let mut shape = self.gguf_shape();
        if self.is_swapped {
            shape.reverse();
        }
        shape
    }

    /// Shape of the tensor in a GGUF file.
    pub(crate) fn gguf_shape(&self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        if self.third.is_some() {
            shape[0] *= 3;
        }
        shape
    }

    /// The tensor from that of a folder.
    pub(crate) fn of_folder(&self, tensor: Tensor) -> Tensor {
        let tensor = if self.is_less_one { tensor.plus(1.0) } else { tensor };
        self.split(if self.is_swapped { tensor.transposed() } else { tensor })
    }

    /// The tensor with its numbers as a folder has them. Its axes stay.
    pub(crate) fn to_folder(&self, tensor: Tensor) -> Tensor {
        if self.is_less_one { tensor.plus(-1.0) } else { tensor }
    }

    /// The tensor from that of a GGUF file.
    pub(crate) fn of_gguf(&self, tensor: Tensor) -> Tensor {
        let tensor = self.split(tensor);
        match self.interleaved_heads {
            Some(heads) => {
                let (rows, order) = (self.shape[0], Interleaving::new(self.shape[0], heads));
                tensor.rows(rows, |row| order.stored(row))
            }
            None => tensor,
        }
    }

    /// The tensor with its rows as a GGUF file has them.
    pub(crate) fn to_gguf(&self, tensor: Tensor) -> Tensor {
        match self.interleaved_heads {
            Some(heads) => {
                let (rows, order) = (self.shape[0], Interleaving::new(self.shape[0], heads));
                tensor.rows(rows, |row| order.original(row))
            }
            None => tensor,
        }
    }

    fn split(&self, tensor: Tensor) -> Tensor {
        let rows = self.shape[0];
        match self.third {
            Some(third) => tensor.rows(rows, |row| third * rows + row),
            None => tensor,
        }
    }
}

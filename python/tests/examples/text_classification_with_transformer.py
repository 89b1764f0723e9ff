"""Good and bad reviews by a transformer block of one's own layers: "Text classification with Transformer"."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers, ops

from manyhands_ml import make_parallel


class TransformerBlock(layers.Layer):
    """Attention, then two dense layers, each with a sum and a normalization behind it."""

    def __init__(self, embed_dim: int, num_heads: int, ff_dim: int, rate: float = 0.1) -> None:
        super().__init__()
        self.att = layers.MultiHeadAttention(num_heads=num_heads, key_dim=embed_dim)
        self.ffn = keras.Sequential([layers.Dense(ff_dim, activation="relu"), layers.Dense(embed_dim)])
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)
        self.dropout1 = layers.Dropout(rate)
        self.dropout2 = layers.Dropout(rate)

    def call(self, inputs: Any) -> Any:
        attn_output = self.att(inputs, inputs)
        attn_output = self.dropout1(attn_output)
        out1 = self.layernorm1(inputs + attn_output)
        ffn_output = self.ffn(out1)
        ffn_output = self.dropout2(ffn_output)
        return self.layernorm2(out1 + ffn_output)


class TokenAndPositionEmbedding(layers.Layer):
    """A vector for each word, and one for its place."""

    def __init__(self, maxlen: int, vocab_size: int, embed_dim: int) -> None:
        super().__init__()
        self.token_emb = layers.Embedding(input_dim=vocab_size, output_dim=embed_dim)
        self.pos_emb = layers.Embedding(input_dim=maxlen, output_dim=embed_dim)

    def call(self, x: Any) -> Any:
        maxlen = ops.shape(x)[-1]
        positions = ops.arange(start=0, stop=maxlen, step=1)
        positions = self.pos_emb(positions)
        x = self.token_emb(x)
        return x + positions


def reviews(count: int, length: int, vocab_size: int) -> tuple[list[list[int]], Any]:
    """Words by number, of some length; those of good reviews are smaller."""
    rng = np.random.default_rng(4)
    good = rng.integers(0, 2, count)
    return [rng.integers(1, vocab_size // (1 + is_good), rng.integers(3, length + 4)).tolist() for is_good in good], good


def main(parallel: Any = make_parallel, rate: float = 0.1, callbacks: Any = (), epochs: int = 2) -> Any:
    """Trains on padded reviews and evaluates others."""
    vocab_size, maxlen = 50, 12
    x_train, y_train = reviews(40, maxlen, vocab_size)
    x_train = keras.utils.pad_sequences(x_train, maxlen=maxlen)
    x_val, y_val = x_train[:13], y_train[:13]

    embed_dim, num_heads, ff_dim = 16, 2, 16
    inputs = layers.Input(shape=(maxlen,))
    embedding_layer = TokenAndPositionEmbedding(maxlen, vocab_size, embed_dim)
    x = embedding_layer(inputs)
    transformer_block = TransformerBlock(embed_dim, num_heads, ff_dim, rate)
    x = transformer_block(x)
    x = layers.GlobalAveragePooling1D()(x)
    x = layers.Dropout(rate)(x)
    x = layers.Dense(20, activation="relu")(x)
    x = layers.Dropout(rate)(x)
    outputs = layers.Dense(2, activation="softmax")(x)
    model = keras.Model(inputs=inputs, outputs=outputs)
    model = parallel(model)

    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(
        x_train, y_train, batch_size=8, epochs=epochs, shuffle=False, validation_data=(x_val, y_val), callbacks=[*callbacks], verbose=0
    )
    return history.history

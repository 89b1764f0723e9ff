#!/usr/bin/env python3
"""Trains the model of `examples/07_language_model.rs` with Keras, on the same rows, and prints its bits per character.

    python3 scripts/speeches.py target/speeches
    KERAS_BACKEND=jax python3 scripts/language_keras.py target/speeches
"""

import collections
import math
import pathlib
import sys

import keras
import numpy

LENGTH, BATCH, STEPS, TEST_ROWS = 64, 32, 600, 2000
WIDTH, HEADS, BLOCKS = 128, 4, 4


class Positions(keras.layers.Layer):
    """The `PositionEmbedding` of keras_hub: a vector for each position."""

    def build(self, shape):
        self.table = self.add_weight(shape=shape[1:], initializer="glorot_uniform", name="embeddings")

    def call(self, x):
        return keras.ops.broadcast_to(self.table, keras.ops.shape(x))


def windows(texts, numbers, count):
    rows = []
    for text in texts:
        ids = [numbers.get(character, 1) for character in text]
        rows += [ids[at : at + LENGTH + 1] for at in range(0, len(ids) - LENGTH, LENGTH)]
    rows = numpy.array([rows[row * len(rows) // count] for row in range(count)], "int32")
    return rows[:, :-1], rows[:, 1:]


def model(characters):
    ids = keras.Input((LENGTH,), dtype="int32")
    x = keras.layers.Embedding(characters, WIDTH)(ids)
    x = keras.layers.Add()([x, Positions()(x)])
    for _ in range(BLOCKS):
        normed = keras.layers.LayerNormalization()(x)
        seen = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(normed, normed, use_causal_mask=True)
        x = keras.layers.Add()([x, seen])
        wide = keras.layers.Dense(4 * WIDTH, activation="gelu")(keras.layers.LayerNormalization()(x))
        x = keras.layers.Add()([x, keras.layers.Dense(WIDTH)(wide)])
    return keras.Model(ids, keras.layers.Dense(characters)(keras.layers.LayerNormalization()(x)))


def main():
    folder = pathlib.Path(sys.argv[1])
    train, test = ([file.read_text("utf-8") for file in sorted((folder / name).glob("*.txt"))] for name in ("train", "test"))
    counts = collections.Counter(character for text in train for character in text)
    frequent = sorted(counts, key=lambda character: (-counts[character], character))
    numbers = {character: number for number, character in enumerate(frequent, 2)}
    keras.utils.set_random_seed(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    network = model(len(numbers) + 2)
    print(f"{len(numbers) + 2} characters, {network.count_params()} parameters")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile(keras.optimizers.Adam(1e-3), loss)
    network.fit(*windows(train, numbers, STEPS * BATCH), batch_size=BATCH, verbose=2)
    bits = network.evaluate(*windows(test, numbers, TEST_ROWS), batch_size=256, verbose=0) / math.log(2)
    print(f"{bits:.3f} bits per character on addresses never seen")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Trains the model of `examples/06_two_passages.rs` with Keras, on the same tables, and prints its accuracy.

    python3 scripts/speeches.py target/speeches
    KERAS_BACKEND=jax python3 scripts/passages_keras.py target/speeches
"""

import collections
import csv
import pathlib
import string
import sys

import keras
import numpy

WORDS, VOCABULARY, EPOCHS = 140, 5000, 6
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    words = {name: [row[name].translate(WITHOUT_PUNCTUATION).lower().split() for row in rows] for name in ("first", "second")}
    return words, numpy.array([row["same"] == "yes" for row in rows], "float32")


def encode(passages, numbers):
    encoded = numpy.zeros((len(passages), WORDS), "int32")
    for row, passage in zip(encoded, passages):
        passage = passage[:WORDS]
        row[: len(passage)] = [numbers.get(word, 1) for word in passage]
    return encoded


def model():
    first, second = keras.Input((WORDS,), name="first"), keras.Input((WORDS,), name="second")
    embedding, lstm = keras.layers.Embedding(VOCABULARY, 32, mask_zero=True), keras.layers.LSTM(64)
    a, b = lstm(embedding(first)), lstm(embedding(second))
    difference = keras.layers.Subtract()([a, b])
    square = keras.layers.Multiply()([difference, difference])
    alike = keras.layers.Concatenate()([keras.layers.Multiply()([a, b]), square])
    same = keras.layers.Dense(1, activation="sigmoid", name="same")(keras.layers.Dropout(0.3)(alike))
    return keras.Model([first, second], same)


def main():
    folder = pathlib.Path(sys.argv[1])
    (train, y), (test, y_test) = (read(folder / f"passages_{name}.csv") for name in ("train", "test"))
    counts = collections.Counter(word for passages in train.values() for passage in passages for word in passage)
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[: VOCABULARY - 2]
    numbers = {word: number for number, word in enumerate(frequent, 2)}
    x, x_test = ({name: encode(passages, numbers) for name, passages in words.items()} for words in (train, test))
    keras.utils.set_random_seed(0)
    same = model()
    same.compile(keras.optimizers.Adam(2e-3), "binary_crossentropy", metrics=["accuracy"])
    same.fit(x, y, batch_size=128, epochs=EPOCHS, validation_data=(x_test, y_test), verbose=2)


if __name__ == "__main__":
    main()

"""The next letter of a text by an LSTM: "Character-level text generation with LSTM"."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers

from manyhands_ml import make_parallel

TEXT = "all happy families are alike; each unhappy family is unhappy in its own way. " * 3


def sample(preds: Any, temperature: float, rng: np.random.Generator) -> int:
    """A letter by its probability."""
    preds = np.log(np.asarray(preds).astype("float64")) / temperature
    exp_preds = np.exp(preds)
    return int(np.argmax(rng.multinomial(1, exp_preds / np.sum(exp_preds) * (1 - 1e-9))))


def main(parallel: Any = make_parallel, rate: float = 0.0, callbacks: Any = (), epochs: int = 2) -> Any:
    """Trains, and writes after each epoch. There is no dropout in it."""
    chars = sorted(set(TEXT))
    char_indices = {char: number for number, char in enumerate(chars)}
    maxlen, step = 10, 5
    starts = range(0, len(TEXT) - maxlen, step)
    sentences, next_chars = [TEXT[start : start + maxlen] for start in starts], [TEXT[start + maxlen] for start in starts]
    x = np.zeros((len(sentences), maxlen, len(chars)), dtype="bool")
    y = np.zeros((len(sentences), len(chars)), dtype="bool")
    for i, sentence in enumerate(sentences):
        for t, char in enumerate(sentence):
            x[i, t, char_indices[char]] = 1
        y[i, char_indices[next_chars[i]]] = 1

    model = keras.Sequential(
        [
            keras.Input(shape=(maxlen, len(chars))),
            layers.LSTM(24),
            layers.Dense(len(chars), activation="softmax"),
        ]
    )
    model = parallel(model)
    optimizer = keras.optimizers.RMSprop(learning_rate=0.01)
    model.compile(loss="categorical_crossentropy", optimizer=optimizer)

    rng, written = np.random.default_rng(7), []
    for _ in range(epochs):
        model.fit(x, y, batch_size=8, epochs=1, shuffle=False, callbacks=[*callbacks], verbose=0)
        sentence = generated = TEXT[:maxlen]
        for _ in range(5):
            x_pred = np.zeros((1, maxlen, len(chars)))
            for t, char in enumerate(sentence):
                x_pred[0, t, char_indices[char]] = 1.0
            preds = model.predict(x_pred, verbose=0)[0]
            generated += chars[sample(preds, 0.5, rng)]
            sentence = generated[-maxlen:]
        written.append(preds)
    return written

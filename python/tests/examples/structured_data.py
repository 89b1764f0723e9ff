"""Columns of numbers and categories, each prepared by layers of its own: "Structured data classification from scratch"."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers

from manyhands_ml import make_parallel


def patients(count: int) -> tuple[dict[str, Any], Any]:
    """Columns by name, and who is ill."""
    rng = np.random.default_rng(3)
    columns = {
        "age": rng.integers(29, 78, (count, 1)).astype("float32"),
        "chol": rng.normal(246, 50, (count, 1)).astype("float32"),
        "sex": rng.integers(0, 2, (count, 1)),
        "cp": rng.integers(0, 5, (count, 1)),
    }
    risk = (columns["age"] - 54) / 9 + (columns["chol"] - 246) / 50 + 1.5 * (columns["cp"] == 3)
    return columns, (risk[:, 0] > 0).astype("int32")


def main(parallel: Any = make_parallel, rate: float = 0.5, callbacks: Any = (), epochs: int = 2) -> Any:
    """Adapts the layers of preprocessing to the columns, trains, and asks for one patient."""
    columns, target = patients(60)

    inputs, encoded = [], []
    for name in ("age", "chol"):
        normalizer = layers.Normalization()
        normalizer.adapt(columns[name])
        inputs.append(keras.Input(shape=(1,), name=name))
        encoded.append(normalizer(inputs[-1]))
    # Classes of age beside the number.
    ages = layers.Discretization([40.0, 50.0, 60.0], output_mode="one_hot")
    encoded.append(ages(inputs[0]))
    for name, count in (("sex", 2), ("cp", 5)):
        inputs.append(keras.Input(shape=(1,), name=name, dtype="int32"))
        encoded.append(layers.CategoryEncoding(num_tokens=count, output_mode="one_hot")(inputs[-1]))

    x = layers.concatenate(encoded)
    x = layers.Dense(32, activation="relu")(x)
    x = layers.Dropout(rate)(x)
    output = layers.Dense(1, activation="sigmoid")(x)
    model = keras.Model(inputs, output)
    model = parallel(model)

    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    model.fit(columns, target, epochs=epochs, batch_size=12, shuffle=False, callbacks=[*callbacks], verbose=0)
    sample = {"age": 60, "chol": 233, "sex": 1, "cp": 1}
    input_dict = {name: keras.ops.convert_to_tensor([[value]]) for name, value in sample.items()}
    return {"percent": 100 * float(model.predict(input_dict, verbose=0)[0, 0])}

"""Everyday cases: forms of data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from everyday import UNSET, Cases, Scene, once
from keras import layers

CASES = Cases()
case, each = CASES.one, CASES.each


@each("float16", "float32", "float64", "int32", "int64", "uint8", "int8", "bool")
def inputs_of_type(s: Scene, kind: str) -> Any:
    # Of a negative number uint8 makes one near 255, for which tanh differs from 1 by its rounding alone.
    x = (np.abs(s.x * 2) if kind == "uint8" else s.x * 2).astype(kind)
    return s.fit(x=x), s.model.predict(x, verbose=0)


@each("float32", "float64", "int8", "int32", "int64", "uint8", "uint16")
def labels_of_type(s: Scene, kind: str) -> Any:
    return s.fit(y=s.y.astype(kind))


@case
def labels_in_a_column(s: Scene) -> Any:
    return s.fit(y=s.y[:, None])


@case
def lists_of_numbers(s: Scene) -> Any:
    return s.fit(x=s.x.tolist(), y=s.y.tolist())


@case
def predict_of_lists(s: Scene) -> Any:
    return s.model.predict(s.x.tolist(), verbose=0)


@case
def arrays_of_the_backend(s: Scene) -> Any:
    return s.fit(x=keras.ops.convert_to_tensor(s.x), y=keras.ops.convert_to_tensor(s.y))


@each("frame", "values")
def pandas(s: Scene, how: str) -> Any:
    import pandas

    frame, labels = pandas.DataFrame(s.x, columns=list("abcdef")), pandas.Series(s.y)
    x, y = (frame, labels) if how == "frame" else (frame.to_numpy(), labels.to_numpy())
    return s.fit(x=x, y=y), s.model.predict(x, verbose=0)


@each("fortran", "strided", "reversed", "read-only")
def arrays_in_memory(s: Scene, how: str) -> Any:
    arrays = {
        "fortran": np.asfortranarray(s.x),
        "strided": np.repeat(s.x, 2, axis=1)[:, ::2],
        "reversed": s.x[::-1],
        "read-only": np.broadcast_to(s.x[:1], s.x.shape),
    }
    return s.fit(x=arrays[how]), s.model.predict(arrays[how], verbose=0)


@case
def one_number_a_row(s: Scene) -> Any:
    parts = [keras.Input((1,)), layers.Dense(3, "softmax", kernel_initializer=keras.initializers.GlorotUniform(3))]
    s.use(keras.Sequential(parts), optimizer="adam")
    return s.fit(x=s.x[:, 0]), s.model.predict(s.x[:, 0], verbose=0)


def _generated(s: Scene) -> Iterator[Any]:
    while True:
        yield from s.batches()


@case
def a_generator(s: Scene) -> Any:
    return s.fit(x=_generated(s), y=UNSET, batch_size=UNSET, steps_per_epoch=3)


@case
def a_generator_that_ends(s: Scene) -> Any:
    return s.fit(x=once(s.batches()), y=UNSET, batch_size=UNSET, epochs=1)


@case
def a_generator_that_ends_too_soon(s: Scene) -> Any:
    return s.fit(x=once(s.batches()), y=UNSET, batch_size=UNSET, steps_per_epoch=2, epochs=3)


@case
def a_generator_with_weights(s: Scene) -> Any:
    batches = [(x, y, np.linspace(0, 2, len(y))) for x, y in s.batches()]
    return s.fit(x=once(batches), y=UNSET, batch_size=UNSET, epochs=1)


@case
def a_generator_with_class_weight(s: Scene) -> Any:
    return s.fit(x=once(s.batches()), y=UNSET, batch_size=UNSET, epochs=1, class_weight={0: 0.5, 1: 2.0, 2: 1.0})


@case
def generators_for_evaluate_and_predict(s: Scene) -> Any:
    evaluated = s.model.evaluate(_generated(s), steps=3, verbose=0)
    return evaluated, s.model.predict(((x,) for x, _ in s.batches()), verbose=0)


@case
def predict_of_a_generator_of_pairs(s: Scene) -> Any:
    return s.model.predict(once(s.batches()), verbose=0)


class _Batches(keras.utils.PyDataset):
    """Batches of 7 rows, and how often an epoch has ended."""

    def __init__(self, scene: Scene, **more: Any) -> None:
        super().__init__(**more)
        self.batches, self.ended = scene.batches(), 0

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, idx: int) -> Any:
        return self.batches[idx]

    def on_epoch_end(self) -> None:
        self.ended += 1


@case
def a_dataset(s: Scene) -> Any:
    # While it builds the model, Keras reads batches that it doesn't use.
    s.fit()
    batches = _Batches(s)
    history = s.fit(x=batches, y=UNSET, batch_size=UNSET)
    return history, batches.ended, s.model.evaluate(batches, verbose=0)


@case
def a_dataset_with_workers(s: Scene) -> Any:
    s.fit()
    return s.fit(x=_Batches(s, workers=2), y=UNSET, batch_size=UNSET)


@case
def a_dataset_for_validation(s: Scene) -> Any:
    return s.fit(validation_data=_Batches(s))


@case
def predict_of_a_dataset(s: Scene) -> Any:
    return s.model.predict(_Batches(s), verbose=0)


def _two(s: Scene, inputs_as: str) -> None:
    a, b = keras.Input((6,), name="a"), keras.Input((6,), name="b")
    both = layers.Concatenate()([layers.Dense(4, kernel_initializer=keras.initializers.GlorotUniform(1))(a), b])
    outputs = layers.Dense(3, "softmax", kernel_initializer=keras.initializers.GlorotUniform(2))(both)
    inputs: Any = {"list": [a, b], "dict": {"a": a, "b": b}, "others": {"left": a, "right": b}}[inputs_as]
    s.use(keras.Model(inputs, outputs), optimizer="adam")


@each("list", "tuple", "dict", "turned")
def two_inputs_as(s: Scene, form: str) -> Any:
    _two(s, "list")
    forms: dict[str, Any] = {
        "list": [s.x, -s.x], "tuple": (s.x, -s.x), "dict": {"a": s.x, "b": -s.x}, "turned": {"b": -s.x, "a": s.x}
    }  # fmt: skip
    return s.fit(x=forms[form]), s.model.predict(forms[form], verbose=0)


@each("dict", "others")
def inputs_in_a(s: Scene, kind: str) -> Any:
    _two(s, kind)
    x = {"a": s.x, "b": -s.x} if kind == "dict" else {"right": -s.x, "left": s.x}
    return s.fit(x=x), s.model.predict(x, verbose=0)


@case
def inputs_in_a_dict_with_more(s: Scene) -> Any:
    _two(s, "dict")
    return s.fit(x={"a": s.x, "b": -s.x, "c": s.y})


@each("x", "y")
def another_number_of_rows(s: Scene, which: str) -> Any:
    return s.fit(**{which: getattr(s, which)[:9]})


@case
def another_shape(s: Scene) -> Any:
    return s.fit(x=s.x[:, :4])


@case
def rows_of_another_length_in_each_batch(s: Scene) -> Any:
    batches = [(s.x[:5], s.y[:5]), (s.x[5:6], s.y[5:6]), (s.x[6:], s.y[6:])]
    return s.fit(x=once(batches), y=UNSET, batch_size=UNSET, epochs=1)

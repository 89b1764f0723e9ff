"""Models, trainers and predictors without Keras: NumPy arrays in and out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._rows import Feeds, rows_of
from ._rig import Placement, Rig, Split
from .errors import SettingError, explained

if TYPE_CHECKING:
    import keras

Floats = NDArray[np.float32]
#: A loss, metric or optimizer: its name, or a dict with its `type` and settings.
Named = str | Mapping[str, Any]

#: Milliseconds after which an interrupt is seen at the latest, beside the step at hand.
TELL_MS = 100


class Model:
    """A network: layers and weights.

    >>> model = Model.from_dict({
    ...     "input": [8, 8, 1],
    ...     "layers": [
    ...         {"type": "Flatten"},
    ...         {"type": "Dense", "units": 32, "activation": "relu"},
    ...         {"type": "Dense", "units": 10},
    ...     ],
    ... })
    >>> model.n_parameters
    2410
    >>> model.weights["dense/kernel"].shape
    (64, 32)
    """

    def __init__(self, native: _native.Model) -> None:
        self._native = native

    @classmethod
    def from_dict(cls, config: Mapping[str, Any], seed: int = 0) -> Model:
        """A model with initial weights, from its architecture: the keys `input` (or `inputs`), `layers`, `outputs`.

        Raises:
            ModelError: If a layer is unknown, its settings are wrong, or it can't take its inputs.
        """
        return cls(_native.Model.from_json(json.dumps(config), seed))

    @classmethod
    def from_toml(cls, text: str, seed: int = 0) -> Model:
        """A model with initial weights, from its architecture as TOML, as it stands in a settings file under `[model]`.

        >>> Model.from_toml('''
        ... input = [3]
        ... layers = [{ type = "Dense", units = 2 }]
        ... ''').outputs
        {'dense': (2,)}

        Raises:
            SettingError: If it is no TOML, or a key is unknown, with the line.
            ModelError: As `from_dict`.
        """
        return cls(_native.Model.from_toml(text, seed))

    @classmethod
    def from_preset(cls, name: str, input: Sequence[int] | None = None, outputs: int | None = None, seed: int = 0) -> Model:
        """A network by its name, with initial weights: `"resnet18"`, `"mobilenet_v2"`, `"gpt_mini"`, …

        >>> Model.from_preset("mlp", input=[28, 28, 1], outputs=10).outputs
        {'dense_2': (10,)}

        Args:
            name: Its name; an error lists them.
            input: Shape of a row, where the usual one does not fit.
            outputs: Number of classes, where the usual one does not fit.
            seed: Seed of the initial weights.

        Raises:
            SettingError: If there is no such network.
            ModelError: If a layer does not fit the shape.
        """
        return cls(_native.Model.from_preset(name, None if input is None else list(input), outputs, seed))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Model:
        """The model of a safetensors file that this package or the command `manyhands` has written.

        Raises:
            ModelError: If the file holds no model.
        """
        return cls(_native.Model.load(path))

    @classmethod
    def from_keras(cls, model: keras.Model | str | PathLike[str]) -> Model:
        """A copy of a Keras model with its weights, or of the model in a `.keras` file.

        Of a compiled model, the file that `save` writes knows loss and metrics, for `manyhands evaluate`; a softmax or
        sigmoid before a cross-entropy is taken off, since losses here take logits. Layers have Keras' names, those of a model within
        another one its name in front: `tower.dense`.

        >>> import keras
        >>> Model.from_keras(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="head")])).outputs
        {'head': (2,)}

        Raises:
            ModelError: If a layer or loss is not supported, with all problems at once.
        """
        from ._backend import choose

        choose()
        from ._convert import from_keras

        return cls(from_keras(model))

    def save(self, path: str | PathLike[str]) -> None:
        """Writes layers and weights to a safetensors file."""
        self._native.save(path)

    def export(self, path: str | PathLike[str], format: Literal["onnx"] = "onnx") -> None:
        """Writes it for other programs, as Keras' `export` does: as ONNX, which `onnxruntime` and others run.

        The file takes batches of any number of rows, of float32, channels last as the model takes them. Its outputs are the
        model's: where the loss takes logits, they are logits.

        Args:
            path: The file, with a name that ends in `.onnx`.
            format: The one format.

        Raises:
            SettingError: If the name ends otherwise, or the file is another program's.
            ModelError: If the model would take more than 2 GiB, the most that ONNX can hold.
        """
        if format != "onnx":
            raise SettingError(explained("`format`", f"needs to be `onnx`, but is `{format}`", "leave it out"))
        self._native.export(path)

    def summary(self) -> str:
        """The layers as a table: shapes, parameters, memory."""
        return self._native.summary()

    @property
    def config(self) -> dict[str, Any]:
        """The architecture, as `from_dict` takes it."""
        config: dict[str, Any] = json.loads(self._native.config())
        return config

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """Shape of a row of each input."""
        return {name: tuple(shape) for name, shape in self._native.inputs}

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """Shape of a row of each output."""
        return {name: tuple(shape) for name, shape in self._native.outputs}

    @property
    def pixels(self) -> str | None:
        """Pixels that it expects of an image, if they are known: `"0..1"`, `"-1..1"`, `"0..255"`, `"torch"` or `"caffe"`."""
        return self._native.pixels

    @property
    def weights(self) -> dict[str, Floats]:
        """Copies of weights and moving statistics by name, `layer/tensor`."""
        return self._native.tensors()

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Takes weights by name, as `weights` gives them; those that are not named stay.

        Raises:
            DataError: If there is no such weight, or it has another number of values. Then nothing is changed.
        """
        self._native.set_tensors({name: np.ascontiguousarray(values, np.float32) for name, values in weights.items()})

    @property
    def n_parameters(self) -> int:
        """How many numbers there are in all weights and statistics."""
        return sum(values.size for values in self.weights.values())

    def __repr__(self) -> str:
        return f"<Model {self.inputs} -> {self.outputs}, {self.n_parameters} parameters>"


@dataclass(frozen=True)
class Span:
    """A span of time of the host or of an adapter.

    Attributes:
        adapter: Position of the adapter in `Timeline.adapters`; `None` for the host.
        what: Its work: of an adapter `compute`, `upload`, `readback`, `wait for others`, …; of the host `step`, `reduce`, …
        start_ms: Begin in milliseconds, by a clock that all spans share.
        ms: Length in milliseconds.
        step: Training step, from 0; `None` outside of steps.
        rows: Rows of the batch that it worked on; 0 where there are none.
    """

    adapter: int | None
    what: str
    start_ms: float
    ms: float
    step: int | None
    rows: int


@dataclass(frozen=True)
class Timeline:
    """The times of all work of a run.

    Attributes:
        adapters: Names of the adapters, by position.
        spans: The newest spans, in the order of their ends: 262,144 at most.
        n_dropped: Number of older spans, which were not kept.
    """

    adapters: list[str]
    spans: list[Span]
    n_dropped: int


class Trainer:
    """Trains a model on some adapters.

    >>> (x, y), (x_test, y_test) = digits()
    >>> model = Model.from_toml('''
    ... input = [8, 8, 1]
    ... layers = [{ type = "Flatten" }, { type = "Dense", units = 10 }]
    ... ''')
    >>> trainer = Trainer(model, {"type": "Adam", "learning_rate": 0.01}, adapters="cpu")
    >>> history = trainer.fit(x, y, epochs=5, batch_size=64)
    >>> history["loss"][-1] < history["loss"][0]
    True
    >>> trainer.evaluate(x_test, y_test)["accuracy"] > 0.9
    True
    >>> trainer.predict(x_test).shape
    (360, 10)

    Losses take logits: the last layer has no softmax. Names, defaults and formulas are those of Keras.
    """

    def __init__(
        self,
        model: Model,
        optimizer: Named = "Adam",
        loss: Named | Sequence[Named] = "SparseCategoricalCrossentropy",
        *,
        metrics: Sequence[Named] | Sequence[Sequence[Named]] = (),
        adapters: str = "",
        split: Split = "learned",
        batch_statistics: Literal["shard", "batch"] = "shard",
        precision: Literal["float32", "mixed_float16"] = "float32",
        clip_norm: float | None = None,
        memory: str | None = None,
        placement: Placement = "replicas",
        micro_batches: int = 1,
        seed: int = 0,
    ) -> None:
        """
        Args:
            model: The model to train. It stays as it is; the trainer's `model` has the new weights.
            optimizer: Its name, or a dict such as `{"type": "SGD", "learning_rate": 0.1, "momentum": 0.9}`.
            loss: The loss, or one for each output.
            metrics: Metrics such as `"accuracy"`, for several outputs a list for each. Empty: those that go with the loss.
            adapters: See `make_parallel`.
            split: See `make_parallel`.
            batch_statistics: See `make_parallel`.
            precision: See `make_parallel`.
            clip_norm: Global norm above which gradients are scaled down.
            memory: See `make_parallel`.
            placement: See `make_parallel`. The names of the layers are those of `model.summary()`.
            micro_batches: See `make_parallel`.
            seed: Seed of shuffling and dropout.

        Raises:
            SettingError: If a setting makes no sense.
            AdapterError: If an adapter is not there.
        """
        outputs = list(model.outputs)
        losses = [_typed(one) for one in ([loss] if isinstance(loss, (str, Mapping)) else loss)]
        several = any(isinstance(metric, (list, tuple)) for metric in metrics)
        objective = {
            "optimizer": _typed(optimizer),
            "losses": losses,
            "loss_weights": [1.0] * len(losses),
            "metrics": [list(one) for one in metrics] if several else [list(metrics)] if metrics else [],
            "reduction": "sum_over_batch_size",
            "clip_norm": clip_norm,
            "batch_statistics": batch_statistics,
            "precision": precision,
            "seed": seed,
        }
        self._config = model.config
        rig = Rig.of(adapters, split, memory, placement, micro_batches)
        self._native = _native.Trainer(json.dumps(self._config), json.dumps(objective), rig.json())
        self._native.set_tensors(model.weights, {}, 0)
        self._shapes = list(model.outputs.values())
        inputs = [(name, list(shape)) for name, shape in model.inputs.items()]
        self._feeds = Feeds(inputs, list(model.inputs), outputs)
        self._rng = np.random.default_rng(seed)

    @property
    def model(self) -> Model:
        """The model with the weights of this moment."""
        model = Model.from_dict(self._config)
        model.set_weights(self._native.tensors())
        return model

    @property
    def step(self) -> int:
        """Training steps done."""
        return self._native.step

    @property
    def learning_rate(self) -> float:
        """The learning rate of the steps that begin from now on."""
        return self._native.learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._native.set_learning_rate(rate)

    def fit(
        self,
        x: Any,
        y: Any,
        *,
        epochs: int = 1,
        batch_size: int = 32,
        sample_weight: Any = None,
        validation_data: tuple[Any, Any] | None = None,
        shuffle: bool = True,
        on_epoch: Callable[[int, dict[str, float]], bool | None] | None = None,
        timeline: bool = False,
    ) -> dict[str, list[float]]:
        """Trains, and gives loss and metrics of each epoch.

        Args:
            x: Inputs: an array whose first axis is the row, or a list or dict of them. Bytes, too.
            y: Targets, as the inputs. Class labels are whole numbers.
            epochs: How often all rows are seen.
            batch_size: Rows of a batch, over all adapters.
            sample_weight: Weight of each row in the loss.
            validation_data: Inputs and targets to evaluate after each epoch: their numbers have the prefix `val_`.
            shuffle: Whether each epoch has an order of its own.
            on_epoch: Called after each epoch with its number, from 0, and its numbers. Training ends where it gives True.
            timeline: Whether `timeline()` gives the times of this run.

        Raises:
            DataError: If the data does not fit the model.
            NonFiniteError: If the loss or the gradient is not finite.
        """
        rows = rows_of(self._feeds, x, y, sample_weight, needs_targets=True)
        history: dict[str, list[float]] = {}
        if timeline:
            self._native.start_timeline(min(batch_size, rows.rows))
        for epoch in range(epochs):
            order = self._rng.permutation(rows.rows) if shuffle else np.arange(rows.rows)
            means = Means()
            self._native.train(rows, order, batch_size, None, means.tell, waits=False, every_ms=TELL_MS)
            logs = means.logs
            if validation_data is not None:
                values = self.evaluate(*validation_data, batch_size=batch_size)
                logs.update({f"val_{name}": value for name, value in values.items()})
            for name, value in logs.items():
                history.setdefault(name, []).append(value)
            if on_epoch is not None and on_epoch(epoch, logs):
                break
        return history

    def timeline(self) -> Timeline:
        """The times of all work since the last `fit(..., timeline=True)` began, to plot or to add up.

        >>> (x, y), _ = digits()
        >>> model = Model.from_toml('''
        ... input = [8, 8, 1]
        ... layers = [{ type = "Flatten" }, { type = "Dense", units = 10 }]
        ... ''')
        >>> trainer = Trainer(model, adapters="cpu,cpu")
        >>> _ = trainer.fit(x, y, batch_size=479, timeline=True)
        >>> spans = trainer.timeline().spans
        >>> [span.rows for span in spans if span.adapter is None and span.what == "step"]
        [479, 479, 479]
        """
        adapters, spans, n_dropped = self._native.timeline()
        return Timeline(adapters, [Span(*span) for span in spans], n_dropped)

    def evaluate(self, x: Any, y: Any, *, batch_size: int = 32, sample_weight: Any = None) -> dict[str, float]:
        """Loss and metrics of data.

        Raises:
            DataError: If the data does not fit the model.
        """
        rows, means = rows_of(self._feeds, x, y, sample_weight, needs_targets=True), Means()
        self._native.evaluate(rows, batch_size, means.tell, TELL_MS)
        return means.logs

    def predict(self, x: Any, *, batch_size: int = 32) -> Floats | list[Floats]:
        """The output for each row; of a model with several outputs a list.

        Raises:
            DataError: If the data does not fit the model.
        """
        rows = rows_of(self._feeds, x, None, None, needs_targets=False)
        flat = self._native.predict_rows(rows, batch_size, lambda *_: None, TELL_MS)
        outputs = [values.reshape(-1, *shape) for values, shape in zip(flat, self._shapes)]
        return outputs[0] if len(outputs) == 1 else outputs


class Predictor:
    """Predicts with a trained model, on some adapters.

    >>> import numpy as np
    >>> model = Model.from_toml('''
    ... input = [3]
    ... layers = [{ type = "Dense", units = 2 }]
    ... ''')
    >>> model.set_weights({"dense/kernel": [[1, 0], [0, 1], [0, 0]]})
    >>> Predictor(model, adapters="cpu").predict(np.array([[1.0, 2.0, 3.0]])).tolist()
    [[1.0, 2.0]]
    """

    def __init__(self, model: Model | str | PathLike[str], adapters: str = "") -> None:
        """
        Args:
            model: A model, or the file of one.
            adapters: See `make_parallel`.

        Raises:
            ModelError: If the file holds no model.
            AdapterError: If an adapter is not there.
        """
        self.model = model if isinstance(model, Model) else Model.load(model)
        losses = ["MeanSquaredError"] * len(self.model.outputs)
        self._trainer = Trainer(self.model, "SGD", losses, adapters=adapters)

    def predict(self, x: Any, *, batch_size: int = 32) -> Floats | list[Floats]:
        """The output for each row; of a model with several outputs a list.

        Raises:
            DataError: If the data does not fit the model.
        """
        return self._trainer.predict(x, batch_size=batch_size)


@dataclass(frozen=True)
class Prediction:
    """Predicted speed of some adapters that train together.

    Attributes:
        n_adapters: Number of adapters.
        batch_size: Rows of a batch.
        shares: Rows of each adapter.
        step_ms: Milliseconds of a training step.
        rows_per_s: Rows a second of all adapters together.
        efficiency: `rows_per_s`, divided by the sum of the rows a second of each adapter alone.
        limit: The work that takes most of a step.
    """

    n_adapters: int
    batch_size: int
    shares: list[int]
    step_ms: float
    rows_per_s: float
    efficiency: float
    limit: str


@dataclass(frozen=True)
class Simulation:
    """Predicted speed of the fastest 1 to N adapters of a rig.

    Attributes:
        batch_size: Rows of a batch in `strong`.
        adapters: Their names, the fastest first.
        strong: Of 1 to N adapters with one batch size.
        weak: Of 1 to N adapters with a batch size that grows with their number.
        machines: Of 1, 2, 4 and so on of the machines of a rig with `machine`, with `names`, `strong`, `weak` and `links`: other networks.
            Adapters have no numbers of their own then.
    """

    batch_size: int
    adapters: list[str]
    strong: list[Prediction]
    weak: list[Prediction]
    machines: dict[str, Any] | None = None


def simulate(rig: str | Mapping[str, Any]) -> Simulation:
    """Predicts the speed of adapters that train together, also of some that you don't have.

    >>> simulation = simulate({
    ...     "preset": "mlp",
    ...     "batch_size": 256,
    ...     "host": {"copy_gb_s": 100.0},
    ...     "adapters": [
    ...         {"name": "fast", "fixed_ms": 1.0, "per_row_ms": 0.1},
    ...         {"name": "slow", "fixed_ms": 1.0, "per_row_ms": 0.3},
    ...     ],
    ... })
    >>> simulation.strong[1].shares, round(simulation.strong[1].step_ms)
    ([192, 64], 21)

    Args:
        rig: The adapters and the model to train, as a dict or as TOML. The keys are those of the files in `examples/rigs/`;
            `{"card": "RTX 3060"}` is an adapter by name.

    Raises:
        SettingError: If a name or number in it makes no sense.
        ModelError: If its model can't be built.
    """
    report = json.loads(_native.simulate(rig if isinstance(rig, str) else json.dumps(rig)))
    strong, weak = ([Prediction(**point) for point in report[scaling]] for scaling in ("strong", "weak"))
    return Simulation(report["batch_size"], report["adapters"], strong, weak, report["machines"])


def digits() -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Handwritten digits, which are part of the package: images of 8 by 8 pixels from 0 to 1, and labels.

    >>> (x, y), (x_test, y_test) = digits()
    >>> x.shape, y_test.shape
    ((1437, 8, 8, 1), (360,))
    """
    return _native.digits()


class Means:
    """Means over the rows of an epoch."""

    def __init__(self) -> None:
        self.logs: dict[str, float] = {}
        self._rows = 0
        self._sums = dict[str, float]()

    def tell(self, batches: int, rows: int, sums: list[tuple[str, float]], shards: list[tuple[int, int]]) -> None:
        """Takes the sums over all rows up to now."""
        self.logs = {name: value / rows for name, value in sums}

    def add(self, numbers: list[tuple[str, float]], rows: int) -> None:
        """Counts the numbers of a batch."""
        self._rows += rows
        for name, value in numbers:
            self._sums[name] = self._sums.get(name, 0.0) + value * rows
        self.logs = {name: value / self._rows for name, value in self._sums.items()}


def _typed(named: Named) -> dict[str, Any]:
    return {"type": named} if isinstance(named, str) else dict(named)

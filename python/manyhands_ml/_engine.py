"""A Keras model on adapters: the native trainer, and the two-way traffic of weights and optimizer state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
from keras.src import backend
from numpy.typing import NDArray

from . import _native
from ._by_keras import ByKeras
from ._data import Arrays, Data, Reading, one_batch
from ._compiled import Compiled
from ._front import front
from ._graph import is_code, output_names, read
from ._nodes import Graph
from ._objective import OPTIMIZERS, Floats, Objective, apply_head, convert, state_attributes, tell_step
from ._rig import Rig
from ._rows import Feeds, rows_of
from .errors import MismatchError, NonFiniteError, SettingError, explained, raise_problems

#: Largest difference to Keras, relative where numbers are above 1.
_TOLERANCE = 1e-4
#: Does the backend leave its arrays as they are?
_IS_JAX = keras.backend.backend() == "jax"
#: Losses that Keras computes of logits without clipping probabilities.
_EXACT_OF_LOGITS = {"SparseCategoricalCrossentropy", "CategoricalCrossentropy", "BinaryCrossentropy"}
#: Rows of the batch that goes through both.
_CHECKED_ROWS = 32


class Engine:
    """The trainer of one compilation of a model; without one, it predicts alone."""

    def __init__(
        self,
        model: keras.Model,
        rig: Rig,
        batch_statistics: str,
        precision: str,
        seed: int,
        compiled: Compiled | None,
    ) -> None:
        self.model = model
        #: What `compile` left in the model: another object there means that this engine is that of an older call.
        self.compilation = getattr(model, "_compile_config", None) if compiled is not None else None
        self.optimizer: Any = model.optimizer if compiled is not None else None
        self._flags = _trainable_flags(model)
        self.check_frozen()
        in_front = front(model)
        graph, problems = read(model, compiled is not None, in_front)
        names, outputs = [node.name for node in graph.nodes], output_names(model)
        objective, more = _objective(model, graph, outputs, compiled, batch_statistics, seed)
        objective.settings["precision"] = precision
        raise_problems(f"model `{model.name}`", problems + more, "Keras")
        self.objective: Objective = objective
        self._losses: list[Any] = compiled.losses if compiled is not None else []
        #: What computes loss and metrics where the engine does not.
        self.by_keras = ByKeras(model, objective.by_keras) if objective.by_keras else None
        self._is_penalized = any(key.endswith("_regularizer") for node in graph.nodes for key in node.settings)
        rig = rig.placed(names, {node.name for node in graph.nodes})
        self.trainer = _native.Trainer(json.dumps(graph.config()), objective.json(), rig.json())
        self.output_shapes = [tuple(tensor.shape[1:]) for tensor in model.outputs]
        unread = [None if is_read else list(shape) for is_read, shape in zip(objective.reads, self.output_shapes)]
        self.feeds = Feeds(graph.inputs, _keys(model, graph), outputs, unread, in_front)
        self._variables = graph.variables()
        # What Keras' variables were when both had the same values: with JAX its own arrays, else copies.
        self._known: dict[str, Any] = {}
        self._known_step = 0
        #: Steps that have begun.
        self._step = 0
        self._is_ahead = False
        #: Has a batch gone through Keras, too?
        self.is_checked = False
        self._state: dict[str, Any] | None = None
        #: Has Keras' optimizer just been built, by this engine?
        self._is_new = False
        self.push()

    def check_frozen(self) -> None:
        """Checks that the layers that are trained are those that the engine and Keras' optimizer know. Keras refuses other weights, too.

        Raises:
            SettingError: If not.
        """
        if self.optimizer is None:
            return
        if not _knows_weights(self.optimizer, self.model) or self._flags != _trainable_flags(self.model):
            problem = "has changed since `compile`, so the optimizer knows other weights"
            raise SettingError(explained("`trainable` of a layer", problem, "call `model.compile(...)` again"))

    def push(self) -> None:
        """Gives the adapters what others have done to Keras' weights or to the optimizer's state."""
        weights, state = self._changed(self._variables), self._changed(self._optimizer_state())
        step = self._keras_step()
        if weights or state or step != self._known_step:
            self._known_step = self._step = step
            # What the optimizer begins with is what the engine's begins with.
            state = {} if self._is_new else state
            self._is_new = False
            self.trainer.set_tensors(weights, {name: self._padded(name, values) for name, values in state.items()}, step)

    def _padded(self, name: str, values: Floats) -> Floats:
        """State as the engine has it: as many values as the weight, of which a mean of rows or columns takes the first."""
        size = int(np.prod(self._variables[name.split("/", 1)[1]].shape))
        return values if values.size == size else np.pad(values.reshape(-1), (0, size - values.size))

    def _changed(self, variables: dict[str, Any]) -> dict[str, Floats]:
        """Values of the variables that others have changed since they were last compared."""
        changed = {}
        for name, variable in variables.items():
            if _IS_JAX:
                # It changes no array in place: another array may have other values.
                if self._known.get(name) is not variable._value:
                    self._known[name] = variable._value
                    # A view: `convert_to_numpy` copies.
                    changed[name] = np.ascontiguousarray(np.asarray(variable._value), dtype=np.float32)
                continue
            values = floats(variable)
            if name not in self._known or not np.array_equal(values, self._known[name], equal_nan=True):
                changed[name] = self._known[name] = values
        return changed

    def pull(self) -> None:
        """Gives Keras the weights and the optimizer's state, if the adapters have trained since."""
        if not self._is_ahead:
            return
        state = self._optimizer_state()
        tensors, moments = self.trainer.state() if state else (self.trainer.tensors(), {})
        # Keras has no variable for what is a setting there: mean and variance that were given.
        for variables, values in ((self._variables, tensors), (state, moments)):
            for name, variable in variables.items():
                # A weight of the user's own may have other axes than that of the engine.
                value = values[name].reshape(-1)[: int(np.prod(variable.shape))].reshape(variable.shape)
                variable.assign(value)
                self._known[name] = variable._value if _IS_JAX else value
        self._is_ahead = False
        if self.optimizer is not None:
            self._known_step = self._step = self.trainer.step
            tell_step(self.optimizer, self._step)

    def begin(self, batch: _native.Batch) -> bool:
        """Begins a step; whether the adapters could begin another before the oldest ends."""
        return self.trainer.begin(batch, self._next_rate())

    def end(self) -> tuple[list[tuple[str, float]], list[tuple[int, int]]]:
        """Ends the oldest step: its numbers, and the rows of each adapter."""
        try:
            return self.trainer.end()
        except BaseException:
            # It was not applied, and those behind it are forgotten.
            self._step = self.trainer.step
            raise

    def reading(self, reading: Reading) -> Reading:
        """The parts of a batch that the engine reads: no targets where Keras computes the loss."""
        return reading if self.by_keras is None else reading.without_targets

    def step_by_keras(self, data: Data) -> tuple[dict[str, float], list[tuple[int, int]]]:
        """A step whose loss Keras computes: logs so far, and the rows of each adapter."""
        assert self.by_keras is not None
        outputs = self.outputs(self.trainer.forward(data.batch))
        loss, gradients = self.by_keras.gradients(data, outputs)
        self.begin(self._with_targets(data, gradients))
        numbers, shards = self.end()
        return self.by_keras.count(data, outputs, loss + dict(numbers)["loss"]), shards

    def test_by_keras(self, data: Data) -> dict[str, float]:
        """Logs of a batch, and those before it, whose loss and metrics Keras computes."""
        assert self.by_keras is not None
        outputs, penalty = self.predict(data.batch), 0.0
        if self._is_penalized:
            zeros = [np.zeros((data.batch.rows, *shape), np.float32) for shape in self.output_shapes]
            penalty = dict(self.trainer.test(self._with_targets(data, zeros)))["loss"]
        return self.by_keras.count(data, outputs, self.by_keras.loss(data, outputs) + penalty)

    def _with_targets(self, data: Data, targets: list[Floats]) -> _native.Batch:
        return _native.Batch(rows_of(self.feeds, data.inputs, targets, None, needs_targets=True))

    def train(
        self, data: Arrays, order: NDArray[np.int64], tell: _native.Tell, waits: bool, every_ms: int | None
    ) -> None:
        """Trains on all batches of arrays. `tell` is called after each step, or every so many milliseconds.

        With `waits` no step begins before the one before it is told.
        """
        rate = self.optimizer._learning_rate
        # A schedule, or a function of the user's.
        asks = every_ms is None or callable(rate)
        self._is_ahead = True
        try:
            asked = self._next_rate if asks else float(rate)
            self.trainer.train(data.rows, order, data.batch_size, asked, tell, waits, every_ms)
        finally:
            self._step = self.trainer.step

    def _next_rate(self) -> float:
        """The learning rate that Keras' optimizer has for the step that begins now."""
        rate = self.optimizer._learning_rate
        if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
            rate = rate(self._step)
        elif callable(rate):
            rate = rate()
        # From here on Keras' weights are those of before.
        self._is_ahead = True
        self._step += 1
        return float(rate)

    def tell_step(self) -> None:
        """Keras' optimizer counts the steps that have begun here."""
        if self._is_ahead and self.optimizer is not None:
            self.optimizer._iterations.assign(self._step)
            self._known_step = self._step

    def _keras_step(self) -> int:
        return int(self.optimizer._iterations) if self.optimizer is not None else 0

    def _optimizer_state(self) -> dict[str, Any]:
        """Variables of Keras' optimizer by the engine's names: `momentum/dense/kernel`. They are built as `fit` of Keras does."""
        optimizer = self.optimizer
        if optimizer is None or type(optimizer).__name__ not in OPTIMIZERS:
            return {}
        if self._state is None:
            if not optimizer.built:
                optimizer.build(self.model.trainable_variables)
                self._is_new = self._keras_step() == 0
            trained = {id(variable): name for name, variable in self._variables.items()}
            places = [(idx, trained[id(variable)]) for idx, variable in enumerate(self.model.trainable_variables)]
            self._state = {}
            for kind, attribute in state_attributes(optimizer).items():
                if variables := getattr(optimizer, attribute, None):
                    self._state.update({f"{kind}/{name}": variables[idx] for idx, name in places if _is_kept(variables[idx])})
        return self._state

    def predict(self, batch: _native.Batch) -> list[Floats]:
        """The outputs of a batch, as Keras gives them."""
        return self.outputs(self.trainer.predict(batch))

    def outputs(self, flat: list[Floats]) -> list[Floats]:
        """Outputs in their shapes, with the functions that were taken off."""
        outputs = []
        for values, shape, head in zip(flat, self.output_shapes, self.objective.heads):
            outputs.append(apply_head(head, values.reshape(-1, *shape)))
        return outputs

    def values(self, numbers: list[tuple[str, float]]) -> dict[str, float]:
        """Loss and metrics under Keras' names, in Keras' order."""
        found = dict(numbers)
        return {name.keras: found[name.engine] for name in self.objective.names}

    def _compare(self, who: str, ours: Any, theirs: Any) -> None:
        difference = np.abs(np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)) / np.maximum(1.0, np.abs(theirs))
        if ours.shape == theirs.shape and np.all(difference <= _TOLERANCE):
            return
        worst = float(np.max(difference)) if ours.shape == theirs.shape else float("nan")
        problem = f"needs to be as Keras computes it, but differs by {worst:.2g} (at most {_TOLERANCE:g} is rounding)"
        help = "nothing was trained; please report the model: this is an error of manyhands_ml"
        if any(map(is_code, self.model._flatten_layers())):
            # Symbolic tensors have no number of rows.
            help = "nothing was trained; does code of your own decide by `x.shape[0]`? If not, please report the model"
        raise MismatchError(explained(who, problem, help))

    def _logits(self, flat: list[Floats], expected: Any) -> Any:
        """Outputs of Keras with logits in place of the probabilities that a function makes of them."""
        parts = keras.tree.flatten(expected)
        for idx, (values, shape, head) in enumerate(zip(flat, self.output_shapes, self.objective.heads)):
            if head is not None:
                mask = backend.get_keras_mask(parts[idx])
                parts[idx] = backend.convert_to_tensor(values.reshape(-1, *shape))
                if mask is not None:
                    backend.set_keras_mask(parts[idx], mask)
        return keras.tree.pack_sequence_as(expected, parts) if keras.tree.is_nested(expected) else parts[0]

    def check(self, data: Data) -> None:
        """Compares what Keras and the adapters say of a batch, once.

        Raises:
            MismatchError: If they differ by more than 1e-4.
            NonFiniteError: If Keras' own loss is not finite.
        """
        if self.is_checked:
            return
        x, y, weight = keras.tree.map_structure(
            lambda part: None if part is None else part[:_CHECKED_ROWS], (data.x, data.y, data.sample_weight)
        )
        batch = one_batch(self.feeds, (x, y, weight), self.reading(Reading.INFERENCE)).batch
        # Ours are first: data that are not finite are refused by row and column.
        flat = self.trainer.predict(batch)
        computed = self.outputs(flat)
        expected = _outputs_of_keras(self.model, x)
        for name, ours, theirs in zip(self.feeds.outputs, computed, keras.tree.flatten(expected)):
            _check_finite(f"output `{name}`", _numpy(theirs))
            self._compare(f"output `{name}`", ours, _numpy(theirs))
        if self.by_keras is not None:
            # The loss is Keras' own.
            self.is_checked = True
            return
        probabilities = [_numpy(part) if head else None for head, part in zip(self.objective.heads, keras.tree.flatten(expected))]
        clipped = {idx for idx, part in enumerate(probabilities) if part is not None and _is_clipped(part)}
        kinds = {self.objective.settings["losses"][idx]["type"] for idx in clipped}
        if not kinds <= _EXACT_OF_LOGITS:
            # There Keras cuts the loss off, and logits do not.
            self.is_checked = True
            return
        with _of_logits([loss for loss, head in zip(self._losses, self.objective.heads) if head and clipped]):
            if clipped:
                expected = self._logits(flat, expected)
            loss = self.model.compute_loss(x=x, y=y, y_pred=expected, sample_weight=weight, training=False)
        _check_finite("the loss", _numpy(loss))
        self._compare("the loss", np.float32(dict(self.trainer.test(batch))["loss"]), _numpy(loss))
        self.is_checked = True


def _objective(
    model: keras.Model, graph: Graph, outputs: list[str], compiled: Compiled | None, batch_statistics: str, seed: int
) -> tuple[Objective, list[str]]:
    if compiled is not None:
        return convert(model, graph, outputs, compiled, batch_statistics, seed)
    # It predicts: the loss is never asked for.
    settings: dict[str, Any] = {
        "optimizer": {"type": "SGD"},
        "losses": [{"type": "MeanSquaredError"}] * len(outputs),
        "loss_weights": [1.0] * len(outputs),
        "metrics": [[]] * len(outputs),
        "reduction": "sum_over_batch_size",
        "clip_norm": None,
        "batch_statistics": batch_statistics,
        "seed": seed,
    }
    return Objective(settings, [], [None] * len(outputs), [False] * len(outputs)), []


def _is_kept(state: Any) -> bool:
    """Is it state of a weight? Muon has none of some, and Adafactor an integer in its place, which no step changes."""
    return state is not None and state.dtype != "int32"


def _knows_weights(optimizer: Any, model: keras.Model) -> bool:
    """Are the weights that the optimizer keeps state of those that are trained, in this order?"""
    trained = model.trainable_variables
    known = optimizer._trainable_variables if optimizer.built else trained
    return len(known) == len(trained) and all(one is other for one, other in zip(known, trained))


def _outputs_of_keras(model: Any, x: Any) -> Any:
    """What Keras computes at inference: on JAX compiled as a whole, which takes less time than each operation by itself."""
    # A mask that outputs carry to the loss would be lost, and a penalty of what layers give.
    has_masks = any(getattr(tensor, "_keras_mask", None) is not None for tensor in model.outputs)
    is_penalized = any(getattr(layer, "activity_regularizer", None) is not None for layer in model._flatten_layers())
    if _IS_JAX and not model.run_eagerly and not (has_masks or is_penalized):
        import jax

        values = [[variable.value for variable in kind] for kind in (model.trainable_variables, model.non_trainable_variables)]
        try:
            return jax.jit(lambda trained, others, x: model.stateless_call(trained, others, x, training=False)[0])(*values, x)
        except Exception:
            # Code of the user's own may do what can't be compiled: below it says so itself.
            pass
    return model(x, training=False)


def _trainable_flags(model: keras.Model) -> list[bool]:
    """Which layers are trained: also those without weights to train, whose statistics move."""
    return [layer.trainable for layer in model._flatten_layers()]


def _keys(model: keras.Model, graph: Graph) -> list[str]:
    """Names of the inputs where `x` is a dict."""
    struct = getattr(model, "_inputs_struct", None)
    if isinstance(struct, dict) and not any(keras.tree.is_nested(part) for part in struct.values()):
        # Inputs are those of the flattened structure.
        by_tensor = {id(tensor): key for key, tensor in struct.items()}
        return [by_tensor[id(tensor)] for tensor in model.inputs]
    return [name for name, _ in graph.inputs]


def floats(variable: Any) -> Floats:
    # A copy: some backends give a view of what they go on to change.
    return np.array(_numpy(variable), dtype=np.float32, order="C", copy=True)


def _numpy(tensor: Any) -> Any:
    return keras.ops.convert_to_numpy(tensor)


def _is_clipped(probabilities: Any) -> bool:
    """Does Keras' cross-entropy take other probabilities than these? It keeps them from 1e-7 to 1 - 1e-7."""
    return bool(np.min(probabilities) < 1e-6 or np.max(probabilities) > 1 - 1e-6)


@contextmanager
def _of_logits(losses: list[Any]) -> Iterator[None]:
    """Lets losses of Keras take logits, where they would clip probabilities."""
    before = {id(loss): (loss, loss._fn_kwargs) for loss in losses}
    try:
        for loss, settings in before.values():
            loss._fn_kwargs = {**settings, "from_logits": True}
        yield
    finally:
        for loss, settings in before.values():
            loss._fn_kwargs = settings


def _check_finite(who: str, theirs: Any) -> None:
    """Checks what Keras computes, which is no error of either side."""
    if not np.all(np.isfinite(theirs)):
        value = np.ravel(theirs)[~np.isfinite(np.ravel(theirs))][0]
        problem = f"needs to be finite, but Keras, too, computes {value} for the first rows"
        raise NonFiniteError(explained(who, problem, "scale inputs and targets, for example to mean 0 and deviation 1"))

"""Random Keras programs: how they are drawn, how they are written as Python, and how a failing one is made smaller."""

from __future__ import annotations

import ast
import contextlib
import itertools
import unittest.mock
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import keras
import numpy as np
from graph_makers import LOSSES, MAKERS, NESTED, OF_ALL, OPTIMIZERS, RATE, SCHEDULES, Draw, Maker, call
from keras.src.applications.convnext import LayerScale, StochasticDepth
from keras.src.applications.inception_resnet_v2 import CustomScaleLayer
from op_makers import CLASSES, OPS, OWN, OWN_LOSSES

from manyhands_ml._layers import MASKS

#: Names that programs use.
NAMES = {
    "keras": keras, "layers": keras.layers, "np": np, "LayerScale": LayerScale, "StochasticDepth": StochasticDepth,
    "CustomScaleLayer": CustomScaleLayer, **{kind.__name__: kind for kind in CLASSES},
}  # fmt: skip
#: All that a step may be: layers, operations, and layers of one's own.
KINDS: dict[str, list[Maker]] = {**MAKERS, **{f"ops.{kind}": makers for kind, makers in OPS.items()}, **OWN}
#: Few shapes, so that JAX compiles each operation seldom; axes of different lengths, so that none is taken for another.
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "row": [(4,), (6,)],
    "sequence": [(5, 4), (7, 6)],
    "padded": [(5, 4)],
    "indices": [(5,)],
    "picture": [(6, 5, 4)],
}
#: Numbers in a row of a tensor, at most.
_LARGEST = 700


@dataclass(frozen=True)
class Given:
    """An input."""

    name: str
    kind: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """A call of a layer, or an operation on tensors."""

    tensor: str
    #: Name of the layer; `None` for an operation.
    layer: str | None
    #: Its constructor, or the operation with the tensors as {0}, {1}.
    code: str
    call: str
    reads: tuple[str, ...]
    is_first: bool = True

    def lines(self) -> Iterator[str]:
        """As Python writes it."""
        if self.layer is None:
            yield f"{self.tensor} = {self.code.format(*self.reads)}"
            return
        if self.is_first:
            yield f"{self.layer} = {self.made}"
        yield self.used()

    @property
    def made(self) -> str:
        """The constructor of its layer, with the layer's name."""
        comma = "" if self.code.endswith("()") else ", "
        return f'{self.code[:-1]}{comma}name="{self.layer}")'

    def used(self, owner: str = "") -> str:
        """The call; `owner` stands before the layer's name, such as `self.`."""
        if self.layer is None:
            return next(self.lines())
        first, arguments = self.reads[0], ", ".join(self.reads)
        calls = {"one": first, "list": f"[{arguments}]", "itself": f"{first}, {first}", "each": arguments}
        calls["causal"] = f"{first}, {first}, use_causal_mask=True"
        return f"{self.tensor} = {owner}{self.layer}({calls[self.call]})"


@dataclass(frozen=True)
class Group:
    """Steps in a row that stand in code of the user's own: a layer, a model, a model within, or a function."""

    name: str
    #: "Layer", "Model", "Lambda" or "Functional".
    kind: str
    tensors: tuple[str, ...]

    def lines(self, steps: Sequence[Step], outside: set[str]) -> Iterator[str]:
        """As Python writes it. `outside` are tensors that others read."""
        made = {step.tensor for step in steps}
        reads = list(dict.fromkeys(name for step in steps for name in step.reads if name not in made))
        gives = ", ".join(step.tensor for step in steps if step.tensor in outside)
        how = {"Lambda": self._function, "Functional": self._functional}.get(self.kind, self._class)
        yield from how(steps, reads, gives)

    def _class(self, steps: Sequence[Step], reads: list[str], gives: str) -> Iterator[str]:
        kind = self.name.title()
        yield f"class {kind}({'layers' if self.kind == 'Layer' else 'keras'}.{self.kind}):"
        yield "    def __init__(self):"
        yield f'        super().__init__(name="{self.name}")'
        yield from (f"        self.{step.layer} = {step.made}" for step in steps if step.layer and step.is_first)
        yield f"    def call(self, {', '.join(reads)}):"
        yield from (f"        {step.used('self.')}" for step in steps)
        yield f"        return {gives}"
        yield f"{self.name} = {kind}()"
        yield f"{gives} = {self.name}({', '.join(reads)})"

    def _function(self, steps: Sequence[Step], reads: list[str], gives: str) -> Iterator[str]:
        read = reads[0] if len(reads) == 1 else f"[{', '.join(reads)}]"
        yield f"def of_{self.name}({'inputs' if len(reads) > 1 else reads[0]}):"
        if len(reads) > 1:
            yield f"    {', '.join(reads)} = inputs"
        yield from (f"    {step.used()}" for step in steps)
        yield f"    return {gives}"
        yield f'{gives} = layers.Lambda(of_{self.name}, name="{self.name}")({read})'

    def _functional(self, steps: Sequence[Step], reads: list[str], gives: str) -> Iterator[str]:
        read = reads[0] if len(reads) == 1 else f"[{', '.join(reads)}]"
        yield f"def of_{self.name}(shapes):"
        yield f"    {', '.join(reads)}, = inputs = [keras.Input(shape) for shape in shapes]"
        yield from (f"    {line}" for step in steps for line in step.lines())
        yield f'    return keras.Model(inputs, [{gives}], name="{self.name}")'
        yield f"{self.name} = of_{self.name}([tensor.shape[1:] for tensor in [{', '.join(reads)}]])"
        yield f"{gives}{'' if ', ' in gives else ','} = keras.tree.flatten({self.name}({read}))"


@dataclass(frozen=True)
class Output:
    """An output, its loss and metrics."""

    tensor: str
    loss: str
    targets: str
    shape: tuple[int, ...]
    metrics: tuple[str, ...] = ()
    weight: float | None = None
    #: Does a mask say which positions count?
    is_masked: bool = False

    @property
    def clips(self) -> bool:
        """Does Keras clip the probabilities that the loss takes?"""
        return "crossentropy" in self.loss.lower() and "from_logits=True" not in self.loss


@dataclass(frozen=True)
class Program:
    """A model, how it is trained, and its data."""

    seed: int
    inputs: tuple[Given, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Output, ...]
    optimizer: str
    groups: tuple[Group, ...] = ()
    frozen: tuple[str, ...] = ()
    #: "list" or "dict".
    inputs_as: str = "list"
    outputs_as: str = "list"
    rows: int = 8
    epochs: int = 2
    #: "none", "sample_weight" or "class_weight".
    weights: str = "none"
    #: False where layers draw random numbers in training.
    trains: bool = True
    draw: int = 0
    batch_size: int = field(default=4)

    @property
    def output_keys(self) -> list[str]:
        """Names of the outputs in the data: those of their layers."""
        layers = {step.tensor: step.layer for step in self.steps}
        return [str(layers.get(output.tensor)) for output in self.outputs]

    def names(self) -> set[str]:
        """Names and classes that a refusal may name."""
        layers = {step.layer for step in self.steps if step.layer}
        return layers | {given.name for given in self.inputs} | {group.name for group in self.groups}

    def source(self) -> str:
        """The functions `build` and `data`."""
        return "\n".join([*self._build(), "", "", *self._data()]) + "\n"

    def _build(self) -> Iterator[str]:
        yield "def build():"
        for given in self.inputs:
            yield f'    {given.name} = keras.Input({given.shape}, name="{given.name}")'
        yield from (f"    {line}" for line in self._written())
        names, tensors = [given.name for given in self.inputs], [output.tensor for output in self.outputs]
        inputs, outputs = _structure(self.inputs_as, names, names), _structure(self.outputs_as, self.output_keys, tensors)
        yield f'    model = keras.Model({inputs}, {outputs}, name="random")'
        yield from (f"    {name}.trainable = False" for name in self.frozen)
        yield f"    model.compile({', '.join(self._compiled())})"
        yield "    return model"

    def _written(self) -> Iterator[str]:
        """The steps, those of a group together."""
        of_group = {tensor: group for group in self.groups for tensor in group.tensors}
        for group, run in itertools.groupby(self.steps, lambda step: of_group.get(step.tensor)):
            steps = list(run)
            if group is None:
                yield from (line for step in steps for line in step.lines())
            else:
                read = {name for step in self.steps if step not in steps for name in step.reads}
                yield from group.lines(steps, read | {output.tensor for output in self.outputs})

    def _compiled(self) -> Iterator[str]:
        yield self.optimizer
        keys, as_dict = self.output_keys, "dict" if self.outputs_as == "dict" else "list"
        yield f"loss={_structure(as_dict, keys, [output.loss for output in self.outputs])}"
        if any(output.metrics for output in self.outputs):
            listed = [f"[{', '.join(output.metrics)}]" for output in self.outputs]
            yield f"metrics={_structure(as_dict, keys, listed, always=len(keys) > 1)}"
        if any(output.weight is not None for output in self.outputs):
            weights = [str(output.weight or 1.0) for output in self.outputs]
            yield f"loss_weights={_structure(as_dict, keys, weights, always=True)}"
        if any(step.code.startswith("StochasticDepth") for step in self.steps):
            # Its random numbers have no seed of their own: Keras on JAX refuses to compile them.
            yield "jit_compile=False"

    def _data(self) -> Iterator[str]:
        yield "def data():"
        yield f"    rng = np.random.default_rng({[self.seed, self.draw]})"
        names, values = [given.name for given in self.inputs], [_values(given.kind, given.shape, self.rows) for given in self.inputs]
        for given, value in zip(self.inputs, values):
            yield f"    {given.name} = {value}"
            if given.kind in ("indices", "padded"):
                # The first position of a row counts: Keras' mean of none is no number.
                yield f"    {given.name}[np.arange({given.shape[0]}) >= rng.integers(1, 9, {self.rows})[:, None]] = 0"
        targets = [_values(output.targets, output.shape, self.rows) for output in self.outputs]
        x, y = _structure(self.inputs_as, names, names), _structure(self.outputs_as, self.output_keys, targets)
        weights = {
            "none": "{}",
            "class_weight": '{"class_weight": {0: 0.5, 1: 2.0, 2: 1.0}}',
            "sample_weight": f'{{"sample_weight": rng.uniform(0, 2, {self.rows}).astype("float32")}}',
        }
        yield f"    return {x}, {y}, {weights[self.weights]}"


def _structure(kind: str, keys: list[str], values: list[str], always: bool = False) -> str:
    if kind == "dict":
        return "{" + ", ".join(f'"{key}": {value}' for key, value in zip(keys, values)) + "}"
    return values[0] if len(values) == 1 and not always else f"[{', '.join(values)}]"


def _values(kind: str, shape: tuple[int, ...], rows: int) -> str:
    """An array of a kind."""
    size = (rows, *shape)
    classes = (rows, *shape[:-1])
    return {
        "indices": f"rng.integers(1, 7, {size})",
        "labels": f"rng.integers(0, {shape[-1] if shape else 0}, {classes})",
        "one_hot": f'np.eye({shape[-1]}, dtype="float32")[rng.integers(0, {shape[-1]}, {classes})]',
        "yes": f'rng.integers(0, 2, {size}).astype("float32")',
        "signs": f'2 * rng.integers(0, 2, {size}).astype("float32") - 1',
        "counts": f'rng.poisson(1.5, {size}).astype("float32")',
        "shares": f'rng.dirichlet(np.ones({shape[-1]}), {classes}).astype("float32")',
    }.get(kind, f'rng.normal(size={size}).astype("float32")')


@contextlib.contextmanager
def without_random_start() -> Iterator[None]:
    """Weights of 0 where Keras draws them: each shape costs JAX 0.3 s of its compiler. The comparison gives them values of its own."""

    def zeros(self: Any, shape: Any, dtype: Any = None) -> Any:
        return np.zeros(shape, dtype or keras.config.floatx())

    kinds = (keras.initializers.RandomNormal, keras.initializers.TruncatedNormal, keras.initializers.RandomUniform)
    with contextlib.ExitStack() as stack:
        for kind in (*kinds, keras.initializers.VarianceScaling, keras.initializers.Orthogonal):
            stack.enter_context(unittest.mock.patch.object(kind, "__call__", zeros))
        yield


def load(source: str) -> tuple[Any, Any]:
    """The functions `build` and `data` of a program."""
    names = dict(NAMES)
    exec(source, names)
    return names["build"], names["data"]


class _Writer:
    """Writes a program step by step, and carries it out with symbolic tensors, so that shapes are Keras' own."""

    def __init__(self, seed: int, attempt: int) -> None:
        self.draw, self.seed = Draw([seed, attempt] if attempt else seed), seed
        self.inputs: list[Given] = []
        self.steps: list[Step] = []
        self.tensors: dict[str, Any] = {}
        self.objects: dict[str, Any] = dict(NAMES)
        self.kinds: dict[str, str] = {}
        #: Do random layers draw numbers?
        self.is_random = self.draw.chance(0.12)

    def input(self, kind: str) -> str:
        """Adds an input."""
        given = Given(f"in{len(self.inputs)}", kind, self.draw.pick(SHAPES[kind]))
        self.inputs.append(given)
        self._keep(given.name, keras.Input(given.shape, name=given.name))
        self.kinds[given.name] = kind
        return given.name

    def _keep(self, name: str, tensor: Any) -> None:
        self.tensors[name] = self.objects[name] = tensor
        self.kinds[name] = {1: "row", 2: "sequence", 3: "picture"}.get(len(tensor.shape) - 1, "other")

    def mask(self, name: str) -> Any:
        """What says which positions count."""
        return getattr(self.tensors[name], "_keras_mask", None)

    def fitting(self, reads: str, kind: str | None) -> list[str]:
        """Tensors that a layer can read."""
        kinds = ("row", "sequence", "picture") if reads == "any" else (reads,)
        found = [name for name, have in self.kinds.items() if have in kinds or (have == "padded" and reads == "any")]
        return [name for name in found if kind is None or kind in MASKS or self.mask(name) is None]

    def layer(self, kind: str) -> bool:
        """Adds a layer of a kind; no if none fits."""
        for maker in self.draw.rng.permutation(np.array(KINDS[kind], dtype=object)):
            for _ in range(6):
                if self.step(maker, kind):
                    return True
        return False

    def step(self, maker: Maker, kind: str | None) -> bool:
        """Adds a use of what a maker makes."""
        fitting = self.fitting(maker.reads, kind)
        if not fitting:
            fitting = [self.input("sequence" if maker.reads == "any" else maker.reads)]
        # The newest more often: graphs grow deep, too.
        first = fitting[-1 - min(int(self.draw.rng.geometric(0.4)) - 1, len(fitting) - 1)]
        reads, count = [first], self.draw.pick(range(maker.count[0], maker.count[1] + 1))
        alike = [name for name in fitting if self._shape(name) == self._shape(first)]
        if maker.call == "each":
            alike = [name for name in fitting if self._shape(name)[-1] == self._shape(first)[-1]]
        while len(reads) < count:
            reads.append(self.draw.pick(alike))
        self.draw.shape = self._shape(first)
        code = maker.code(self.draw).replace(RATE, "0.3" if self.is_random else "0.0")
        tensor = f"t{len(self.steps)}"
        layer = None if maker.call == "text" else f"{(kind or 'nested').lower()}{len(self.steps)}"
        return self._try(Step(tensor, layer, code, maker.call, tuple(reads)))

    def again(self) -> bool:
        """Uses a layer once more, on another tensor."""
        uses = [step for step in self.steps if step.layer and len(step.reads) == 1 and step.call == "one"]
        if not uses:
            return False
        step = self.draw.pick(uses)
        others = [
            name
            for name in self.tensors
            if self._shape(name) == self._shape(step.reads[0]) and (self.mask(name) is None) == (self.mask(step.reads[0]) is None)
        ]
        reads = (self.draw.pick(others),)
        return self._try(replace(step, tensor=f"t{len(self.steps)}", reads=reads, is_first=False))

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape[1:])

    def _try(self, step: Step, most: int = _LARGEST) -> bool:
        objects = dict(self.objects)
        try:
            for line in step.lines():
                exec(line, objects)
        except (ValueError, TypeError, ZeroDivisionError):
            return False
        tensor = objects[step.tensor]
        shape = tuple(tensor.shape[1:])
        if not 1 <= len(shape) <= 3 or None in shape or min(shape) < 1 or np.prod(shape) > most:
            return False
        if step.layer:
            self.objects[step.layer] = objects[step.layer]
        self._keep(step.tensor, tensor)
        self.steps.append(step)
        return True

    def leaves(self) -> list[str]:
        """Tensors that nothing reads."""
        read = {name for step in self.steps for name in step.reads}
        return [name for name in self.tensors if name not in read]

    def add(self, code: str, reads: Sequence[str], how: str = "one", name: str = "") -> str:
        """Adds a layer that fits, also one that joins several large tensors."""
        step = Step(f"t{len(self.steps)}", name or f"end_{len(self.steps)}", code, how, tuple(reads))
        if not self._try(step, most=8 * _LARGEST):
            raise AssertionError(f"{code} does not fit {reads}")
        return step.tensor

    def rows(self) -> list[str]:
        """All leaves as rows."""
        found = []
        for name in self.leaves():
            kind, picks = self.kinds[name], ["layers.Flatten()"]
            if kind == "indices":
                name = self.add("layers.Embedding(7, 4)", [name])
                kind = "sequence"
            if kind in ("sequence", "padded"):
                picks += ["layers.GlobalAveragePooling1D()"]
                picks = picks if self.mask(name) is None else picks[1:]
            if kind == "picture":
                picks += ["layers.GlobalAveragePooling2D()", "layers.GlobalMaxPooling2D()"]
            found.append(name if kind == "row" else self.add(self.draw.pick(picks), [name]))
        return found


@without_random_start()
def generate(seed: int, wanted: Sequence[str] = (), attempt: int = 0) -> Program | None:
    """A random program, with layers of these kinds among others; `None` if one of them fits nowhere in this attempt."""
    writer = _Writer(seed, attempt)
    draw = writer.draw
    for kind in wanted:
        if not writer.layer(kind):
            return None
    for _ in range(draw.pick([1, 1, 2, 3])):
        if draw.chance(0.2):
            writer.again()
        elif draw.chance(0.1):
            writer.step(NESTED, None)
        else:
            writer.layer(draw.pick(list(KINDS)))
    groups = _groups(writer)
    outputs = _outputs(writer)
    weighted = [step.layer for step in writer.steps if step.layer and step.is_first and _has_weights(writer.objects[step.layer])]
    inner = {step.layer for step in writer.steps for group in groups if step.tensor in group.tensors}
    weights = ["none", "sample_weight", "class_weight" if [output.targets for output in outputs] == ["labels"] else "none"]
    return Program(
        seed=seed,
        inputs=tuple(writer.inputs),
        steps=tuple(writer.steps),
        outputs=tuple(outputs),
        optimizer=_optimizer(draw, writer.steps),
        groups=groups,
        frozen=tuple(name for name in weighted[:-1] if name not in inner and draw.chance(0.12)),
        inputs_as="dict" if draw.chance(0.2) else "list",
        outputs_as="dict" if draw.chance(0.3) else "list",
        # The rows that remain in the last of three batches are compiled once more.
        rows=draw.pick([8] * 9 + [11]),
        epochs=draw.pick([1, 1, 2]),
        # Keras multiplies weights of samples with losses of samples alone.
        weights="none" if any(len(output.shape) > 1 for output in outputs) else draw.pick(weights),
        trains=not writer.is_random,
    )


def _groups(writer: _Writer) -> tuple[Group, ...]:
    """Steps in a row that are put into code of the user's own; none in about half of the programs."""
    draw, steps = writer.draw, writer.steps
    if not steps or draw.chance(0.45):
        return ()
    first = int(draw.rng.integers(len(steps)))
    inner = steps[first : first + draw.pick([1, 2, 3])]
    names = [step.tensor for step in inner]
    reads = {name for step in inner for name in step.reads} - set(names)
    used = {step.layer for step in inner if step.layer}
    # Code is not called behind masks, with a layer of which others make use, or with numbers that are no floats.
    is_apart = all(step.tensor in names for step in steps if step.layer in used)
    is_plain = all(writer.mask(name) is None and writer.kinds[name] != "indices" for name in [*reads, *names])
    if len(reads) > 2 or not is_apart or not is_plain:
        return ()
    kinds = ["Layer", "Model", "Functional", *(["Lambda"] * 4 if not used else [])]
    return (Group(f"own{first}", draw.pick(kinds), tuple(names)),)


def _has_weights(layer: Any) -> bool:
    return any(weight.trainable for weight in layer.weights)


def _outputs(writer: _Writer) -> list[Output]:
    """Heads with losses on what is there."""
    draw = writer.draw
    rows = writer.rows()
    body = rows[0] if len(rows) == 1 else writer.add("layers.Concatenate()", rows, "list")
    sequences = [name for name in writer.fitting("sequence", "Dense") if writer.kinds[name] == "sequence"]
    outputs = []
    has_mask = any(writer.mask(name) is not None for name in writer.tensors)
    for idx in range(draw.pick([1, 1, 1, 2, 3])):
        # The first output depends on all layers that were wanted.
        reads = draw.pick(sequences) if idx and sequences and draw.chance(0.4) else body
        # Keras' losses are refused behind a mask.
        loss = draw.pick(OWN_LOSSES) if not has_mask and draw.chance(0.12) else LOSSES[draw.pick(list(LOSSES))]
        units = draw.pick([2, 3]) if loss.targets != "yes" else 3
        head = f', activation="{loss.head}"' if loss.head else ""
        tensor = writer.add(f"layers.Dense({units}{head})", [reads], name=f"y{idx}")
        shape = tuple(writer.tensors[tensor].shape[1:])
        masked = writer.mask(tensor) is not None
        # Metrics of a class read rows.
        metrics = [code for code in loss.metrics if reads == body and draw.chance(0.3)]
        weight = draw.pick([0.5, 2.0]) if draw.chance(0.2) else None
        outputs.append(Output(tensor, draw.pick(loss.codes), loss.targets, shape, tuple(metrics), weight, masked))
    if len(outputs) > 1:
        # Reductions have to be the same.
        outputs = [replace(output, loss=output.loss.replace('reduction="sum"', "")) for output in outputs]
    return outputs


def _optimizer(draw: Draw, steps: Sequence[Step]) -> str:
    # Softmax doesn't see the bias of keys: its gradient is 0 but for rounding, and Lion takes its sign.
    has_attention = any("Attention(" in step.code for step in steps)
    kind = draw.pick([kind for kind in OPTIMIZERS if kind != "Lion" or not has_attention])
    rate, settings = OPTIMIZERS[kind]
    text = draw.pick(SCHEDULES).format(rate) if draw.chance(0.25) else str(rate)
    chosen = draw.pick(settings)
    more = draw.pick(OF_ALL) if draw.chance(0.5) else ""
    more = "" if "weight_decay" in more and "weight_decay" in chosen else more
    return call(f"keras.optimizers.{kind}", *(part for part in (text, chosen, more) if part))


# A failing program, made smaller.


def smaller(program: Program) -> Iterator[Program]:
    """Programs with one thing less, the largest steps first."""
    outputs = program.outputs
    for idx in range(len(outputs) if len(outputs) > 1 else 0):
        yield _needed(replace(program, outputs=outputs[:idx] + outputs[idx + 1 :]))
    for idx, group in enumerate(program.groups):
        rest = program.groups[:idx] + program.groups[idx + 1 :]
        yield replace(program, groups=rest)
        if group.kind != "Layer":
            yield replace(program, groups=(*rest, replace(group, kind="Layer")))
    for step in reversed(program.steps):
        if step.tensor not in {output.tensor for output in outputs}:
            yield from _without(program, step)
    plain = {"frozen": (), "inputs_as": "list", "outputs_as": "list", "weights": "none", "epochs": 1}
    for key, value in plain.items():
        if getattr(program, key) != value:
            yield replace(program, **{key: value})
    if program.rows > 4:
        yield replace(program, rows=4)
    for code in ("keras.optimizers.SGD(0.1)", *_fewer_arguments(program.optimizer)):
        if len(code) < len(program.optimizer):
            yield replace(program, optimizer=code)
    for idx, output in enumerate(outputs):
        less = [replace(output, metrics=(), weight=None), replace(output, loss='"mse"', targets="real", metrics=())]
        less += [replace(output, metrics=(one,)) for one in output.metrics]
        for other in less:
            if len(str(other)) < len(str(output)):
                yield replace(program, outputs=outputs[:idx] + (other,) + outputs[idx + 1 :])
    for idx, step in enumerate(program.steps):
        for code in _fewer_arguments(step.code) if step.is_first and step.layer else ():
            uses = [replace(other, code=code) if other.layer == step.layer else other for other in program.steps]
            yield replace(program, steps=tuple(uses))


def _without(program: Program, step: Step) -> Iterator[Program]:
    """Programs without a step: those that read it read what it has read, or an input of its shape."""
    for other in step.reads:
        steps = tuple(
            replace(each, reads=tuple(other if name == step.tensor else name for name in each.reads))
            for each in program.steps
            if each is not step
        )
        first_uses: set[str] = set()
        mended = []
        for each in steps:
            if each.layer:
                each = replace(each, is_first=each.layer not in first_uses)
                first_uses.add(each.layer)
            mended.append(each)
        yield _needed(replace(program, steps=tuple(mended)))


def _needed(program: Program) -> Program:
    """The program without what no output needs."""
    needed = {output.tensor for output in program.outputs}
    for step in reversed(program.steps):
        if step.tensor in needed:
            needed |= set(step.reads)
    steps, made = [], set[str]()
    for step in program.steps:
        if step.tensor in needed:
            steps.append(replace(step, is_first=step.layer not in made))
            made.add(step.layer or step.tensor)
    inputs = tuple(given for given in program.inputs if given.name in needed)
    frozen = tuple(name for name in program.frozen if name in made)
    groups = tuple(group for group in program.groups if needed & set(group.tensors))
    return replace(program, inputs=inputs, steps=tuple(steps), frozen=frozen, groups=groups)


def _fewer_arguments(code: str) -> Iterator[str]:
    """A call without one of its named arguments."""
    tree = ast.parse(code, mode="eval")
    if isinstance(tree.body, ast.Call):
        for idx in range(len(tree.body.keywords)):
            less = ast.parse(code, mode="eval")
            assert isinstance(less.body, ast.Call)
            del less.body.keywords[idx]
            yield ast.unparse(less)


@without_random_start()
def is_whole(program: Program) -> bool:
    """Does Keras build it, with outputs of the shapes that its targets have?"""
    if not program.inputs:
        return False
    try:
        model = load(program.source())[0]()
    except Exception:  # noqa: BLE001, what Keras says of a program that makes no sense is any error
        return False
    shapes = [tuple(tensor.shape[1:]) for tensor in keras.tree.flatten(model.outputs)]
    return shapes == [output.shape for output in program.outputs]

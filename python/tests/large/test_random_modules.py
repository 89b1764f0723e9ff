"""Random modules of PyTorch compute and learn the same on adapters as in PyTorch with 64 bits.

What may differ is measured for each module, as for random Keras programs: `FACTOR` times the larger of what PyTorch's own float32
differs by, and what float64 moves by when weights change by a rounding of float32. Where that is much, as at the kink of a ReLU, other
data are drawn; a difference counts if two draws of the data have it. A failing module is made smaller and printed.
`MANYHANDS_GRAPHS=N` sets how many are drawn, `MANYHANDS_GRAPH_SEED=S` the seed of the first.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from manyhands_ml import MismatchError, ModelError
from manyhands_ml.torch import Trainer, _layers, _objective

FACTOR, LEAST, STEADY = 16.0, 2.0**-20, 2e-4
COUNT = int(os.environ.get("MANYHANDS_GRAPHS", "60"))
FIRST = int(os.environ.get("MANYHANDS_GRAPH_SEED", "0"))
ROWS, STEPS = 8, 3

#: Shapes of rows by kind; all axes differ.
SHAPES = {"row": (6,), "signal": (4, 9), "picture": (4, 7, 6), "sequence": (5, 6), "words": (5,)}
_OF_ANY = ("row", "signal", "picture", "sequence")
_BLOCK = "nn.TransformerEncoderLayer({f}, 2, 8, dropout=0.0"

#: Modules by class: what they read, and how they are made. {c} stands for channels, {f} for the last axis, {s} for a row's shape.
MAKERS: dict[type, list[tuple[Sequence[str], str]]] = {
    nn.AdaptiveAvgPool1d: [(["signal"], "nn.AdaptiveAvgPool1d(1)"), (["signal"], "nn.AdaptiveAvgPool1d(4)")],
    nn.AdaptiveAvgPool2d: [(["picture"], "nn.AdaptiveAvgPool2d(1)"), (["picture"], "nn.AdaptiveAvgPool2d((3, 2))"), (["picture"], "nn.AdaptiveAvgPool2d((7, 4))")],
    nn.AdaptiveMaxPool1d: [(["signal"], "nn.AdaptiveMaxPool1d(1)")],
    nn.AdaptiveMaxPool2d: [(["picture"], "nn.AdaptiveMaxPool2d(1)")],
    nn.AvgPool1d: [(["signal"], "nn.AvgPool1d(2)"), (["signal"], "nn.AvgPool1d(3, 2, padding=1)"), (["signal"], "nn.AvgPool1d(2, ceil_mode=True)")],
    nn.AvgPool2d: [(["picture"], "nn.AvgPool2d(2)"), (["picture"], "nn.AvgPool2d(3, 1, padding=1)"), (["picture"], "nn.AvgPool2d(3, 1, 1, count_include_pad=False)")],
    nn.BatchNorm1d: [(["row", "signal"], "nn.BatchNorm1d({c})"), (["row"], "nn.BatchNorm1d({c}, eps=0.01, momentum=0.3)")],
    nn.BatchNorm2d: [(["picture"], "nn.BatchNorm2d({c})"), (["picture"], "nn.BatchNorm2d({c}, affine=False)")],
    nn.CircularPad1d: [(["signal"], "nn.CircularPad1d((1, 2))")],
    nn.CircularPad2d: [(["picture"], "nn.CircularPad2d(1)")],
    nn.Conv1d: [(["signal"], "nn.Conv1d({c}, 4, 3, padding=1)"), (["signal"], "nn.Conv1d({c}, 6, 2, stride=2, bias=False)")],
    nn.Conv2d: [
        (["picture"], "nn.Conv2d({c}, 4, 3, padding=1)"),
        (["picture"], "nn.Conv2d({c}, 6, (2, 3), stride=2)"),
        (["picture"], 'nn.Conv2d({c}, 5, 3, 2, padding=1, padding_mode="reflect")'),
        (["picture"], "nn.Conv2d({c}, {c}, 3, padding=2, dilation=2, groups={c}, bias=False)"),
    ],
    nn.ConvTranspose2d: [(["picture"], "nn.ConvTranspose2d({c}, 3, 2)"), (["picture"], "nn.ConvTranspose2d({c}, 4, 3, padding=1)")],
    nn.CosineSimilarity: [(["sequence"], "nn.CosineSimilarity(-1)")],
    nn.Dropout: [(_OF_ANY, "nn.Dropout(0.0)")],
    nn.Dropout1d: [(["signal"], "nn.Dropout1d(0.0)")],
    nn.Dropout2d: [(["picture"], "nn.Dropout2d(0.0)")],
    nn.ELU: [(_OF_ANY, "nn.ELU(0.5)")],
    nn.Embedding: [(["words"], "nn.Embedding(7, 6)")],
    nn.Flatten: [(["signal", "picture", "sequence"], "nn.Flatten()")],
    nn.GELU: [(_OF_ANY, "nn.GELU()"), (_OF_ANY, 'nn.GELU("tanh")')],
    nn.GLU: [(["row", "sequence"], "nn.GLU()"), (["signal", "picture"], "nn.GLU(1)")],
    nn.GRU: [(["sequence"], "nn.GRU({f}, 4, batch_first=True)"), (["sequence"], "nn.GRU({f}, 6, bidirectional=True, batch_first=True)")],
    nn.GroupNorm: [(["picture", "signal"], "nn.GroupNorm(1, {c})"), (["row"], "nn.GroupNorm(2, {c})")],
    nn.Hardsigmoid: [(_OF_ANY, "nn.Hardsigmoid()")],
    nn.Hardswish: [(_OF_ANY, "nn.Hardswish()")],
    nn.Hardtanh: [(_OF_ANY, "nn.Hardtanh()"), (_OF_ANY, "nn.Hardtanh(0.0, 6.0)")],
    nn.Identity: [(_OF_ANY, "nn.Identity()")],
    nn.InstanceNorm1d: [(["signal"], "nn.InstanceNorm1d({c}, affine=True)")],
    nn.InstanceNorm2d: [(["picture"], "nn.InstanceNorm2d({c})")],
    nn.LSTM: [
        (["sequence"], "nn.LSTM({f}, 6, batch_first=True)"),
        (["sequence"], "nn.LSTM({f}, 4, 2, bias=False, batch_first=True)"),
    ],
    nn.LayerNorm: [(["row", "sequence"], "nn.LayerNorm({f})"), (["sequence"], "nn.LayerNorm({f}, eps=0.01)")],
    nn.LeakyReLU: [(_OF_ANY, "nn.LeakyReLU(0.1)")],
    nn.Linear: [(["row", "sequence"], "nn.Linear({f}, 6)"), (["row", "sequence"], "nn.Linear({f}, 4, bias=False)")],
    nn.LogSoftmax: [(["row", "sequence"], "nn.LogSoftmax(-1)")],
    nn.MaxPool1d: [(["signal"], "nn.MaxPool1d(2)"), (["signal"], "nn.MaxPool1d(3, 2)")],
    nn.MaxPool2d: [(["picture"], "nn.MaxPool2d(2)"), (["picture"], "nn.MaxPool2d(3, 1)")],
    nn.Mish: [(_OF_ANY, "nn.Mish()")],
    nn.MultiheadAttention: [
        (["sequence"], "nn.MultiheadAttention({f}, 2, batch_first=True)"),
        (["sequence"], "nn.MultiheadAttention({f}, 1, bias=False, batch_first=True)"),
    ],
    nn.modules.linear.NonDynamicallyQuantizableLinear: [
        (["row", "sequence"], "nn.modules.linear.NonDynamicallyQuantizableLinear({f}, 6)")
    ],
    nn.PixelShuffle: [(["picture"], "nn.PixelShuffle(2)")],
    nn.PixelUnshuffle: [(["picture"], "nn.PixelUnshuffle(2)")],
    nn.RNN: [(["sequence"], 'nn.RNN({f}, 4, nonlinearity="relu", batch_first=True)'), (["sequence"], "nn.RNN({f}, 6, bidirectional=True, batch_first=True)")],
    nn.ReflectionPad1d: [(["signal"], "nn.ReflectionPad1d((2, 1))")],
    nn.ReflectionPad2d: [(["picture"], "nn.ReflectionPad2d((1, 0, 2, 1))")],
    nn.ReplicationPad1d: [(["signal"], "nn.ReplicationPad1d(2)")],
    nn.ReplicationPad2d: [(["picture"], "nn.ReplicationPad2d((0, 2, 1, 1))")],
    nn.RMSNorm: [(["row", "sequence"], "nn.RMSNorm({f})"), (["sequence"], "nn.RMSNorm({f}, eps=0.01, elementwise_affine=False)")],
    nn.PReLU: [(_OF_ANY, "nn.PReLU()"), (["picture", "signal", "row"], "nn.PReLU({c})")],
    nn.ReLU: [(_OF_ANY, "nn.ReLU()")],
    nn.ReLU6: [(_OF_ANY, "nn.ReLU6()")],
    nn.SELU: [(_OF_ANY, "nn.SELU()")],
    nn.SiLU: [(_OF_ANY, "nn.SiLU()")],
    nn.Sigmoid: [(_OF_ANY, "nn.Sigmoid()")],
    nn.Softmax: [(["row", "sequence"], "nn.Softmax(-1)")],
    nn.Softplus: [(_OF_ANY, "nn.Softplus()")],
    nn.Softsign: [(_OF_ANY, "nn.Softsign()")],
    nn.Tanh: [(_OF_ANY, "nn.Tanh()")],
    nn.TransformerEncoder: [(["sequence"], f"nn.TransformerEncoder({_BLOCK}, batch_first=True), 2, enable_nested_tensor=False)")],
    nn.TransformerEncoderLayer: [
        (["sequence"], f"{_BLOCK}, batch_first=True)"),
        (["sequence"], f'{_BLOCK}, activation="gelu", norm_first=True, batch_first=True)'),
    ],
    nn.Unflatten: [(["row"], "nn.Unflatten(1, (2, -1))")],
    nn.Upsample: [
        (["picture"], "nn.Upsample(scale_factor=2)"),
        (["picture"], 'nn.Upsample(scale_factor=2, mode="bilinear")'),
        (["picture"], 'nn.Upsample(scale_factor=(1.5, 2), mode="bilinear", align_corners=True)'),
        (["signal"], "nn.Upsample(scale_factor=2)"),
    ],
    nn.ConstantPad1d: [(["signal"], "nn.ConstantPad1d((2, 1), 0.0)")],
    nn.ConstantPad2d: [(["picture"], "nn.ConstantPad2d((1, 0, 2, 1), 0)")],
    nn.LogSigmoid: [(_OF_ANY, "nn.LogSigmoid()")],
    nn.ZeroPad1d: [(["signal"], "nn.ZeroPad1d((1, 2))")],
    nn.ZeroPad2d: [(["picture"], "nn.ZeroPad2d((1, 0, 2, 1))")],
}

#: Losses by class: the loss, outputs of the last module, and targets.
LOSSES: dict[type, list[tuple[str, str]]] = {
    nn.BCEWithLogitsLoss: [
        ("nn.BCEWithLogitsLoss()", "torch.randint(0, 2, (ROWS, 3)).float()"),
        ("nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0, 0.5, 1.0]))", "torch.randint(0, 2, (ROWS, 3)).float()"),
    ],
    nn.CrossEntropyLoss: [
        ("nn.CrossEntropyLoss()", "torch.randint(0, 3, (ROWS,))"),
        ("nn.CrossEntropyLoss(label_smoothing=0.1)", "torch.randint(0, 3, (ROWS,))"),
        ("nn.CrossEntropyLoss(ignore_index=1)", "torch.randint(0, 3, (ROWS,)).index_fill(0, torch.tensor([0]), 2)"),
        ("nn.CrossEntropyLoss(weight=torch.tensor([0.5, 2.0, 1.0]))", "torch.randint(0, 3, (ROWS,))"),
    ],
    nn.HuberLoss: [("nn.HuberLoss(delta=0.7)", "torch.randn(ROWS, 3)")],
    nn.L1Loss: [("nn.L1Loss()", "torch.randn(ROWS, 3)")],
    nn.MSELoss: [("nn.MSELoss()", "torch.randn(ROWS, 3)"), ('nn.MSELoss(reduction="sum")', "torch.randn(ROWS, 3)")],
    nn.NLLLoss: [("nn.NLLLoss()", "torch.randint(0, 3, (ROWS,))"), ('nn.NLLLoss(reduction="sum")', "torch.randint(0, 3, (ROWS,))")],
    nn.SmoothL1Loss: [("nn.SmoothL1Loss(beta=0.5)", "torch.randn(ROWS, 3)")],
}

#: Optimizers by class. What divides by gradients has a large epsilon: some are 0 but for rounding.
OPTIMIZERS: dict[type, list[str]] = {
    torch.optim.Adadelta: ["torch.optim.Adadelta(weights, eps=0.01)"],
    torch.optim.Adagrad: ["torch.optim.Adagrad(weights, 0.02, eps=0.01)"],
    torch.optim.NAdam: ["torch.optim.NAdam(weights, 0.02, eps=0.01)"],
    torch.optim.SGD: ["torch.optim.SGD(weights, 0.05)", "torch.optim.SGD(weights, 0.05, momentum=0.9, nesterov=True, weight_decay=0.01)"],
    torch.optim.Adam: ["torch.optim.Adam(weights, 0.02, eps=0.01)", "torch.optim.Adam(weights, 0.02, eps=0.01, weight_decay=0.1)"],
    torch.optim.AdamW: ["torch.optim.AdamW(weights, 0.02, eps=0.01, weight_decay=0.1, amsgrad=True)"],
    torch.optim.RMSprop: ["torch.optim.RMSprop(weights, 0.01, eps=0.1, momentum=0.5, centered=True)"],
}


@dataclass(frozen=True)
class Step:
    """A module that reads a tensor, or the sum of two, where there is none."""

    code: str
    reads: tuple[int, ...]


@dataclass(frozen=True)
class Recipe:
    """A module, its training and the seed of its data. Tensor 0 is the input."""

    seed: int
    kind: str
    steps: tuple[Step, ...]
    loss: str
    targets: str
    optimizer: str


def called(part: nn.Module, x: Any) -> Any:
    """What a module makes of a tensor."""
    if isinstance(part, nn.MultiheadAttention):
        return part(x, x, x, need_weights=False)[0]
    if isinstance(part, nn.CosineSimilarity):
        return part(x, 0.5 * x + 1)
    return part(x)[0] if isinstance(part, nn.RNNBase) else part(x)


class Net(nn.Module):
    """Modules and sums, one after the other; the last tensor becomes a row of three numbers."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.parts = nn.ModuleList(eval(step.code) if step.code else nn.Identity() for step in recipe.steps)
        self.flatten = nn.Flatten()
        self.head = nn.LazyLinear(3)
        self.end = nn.LogSoftmax(-1) if "NLLLoss" in recipe.loss else nn.Identity()

    def forward(self, x: Any) -> Any:
        tensors = [x]
        for step, part in zip(self.recipe.steps, self.parts):
            first = tensors[step.reads[0]]
            if not step.code:
                tensors.append(first + tensors[step.reads[1]])
            else:
                tensors.append(called(part, first))
        last = tensors[-1]
        return self.end(self.head(last if not self.has_axes else self.flatten(last)))

    #: Has the last tensor more axes than a row?
    has_axes = True


def build(recipe: Recipe) -> tuple[Net, Any, Any]:
    """The module, its inputs and targets."""
    torch.manual_seed(recipe.seed)
    shape = (ROWS, *SHAPES[recipe.kind])
    x = torch.randint(0, 7, shape) if recipe.kind == "words" else torch.randn(shape)
    y = eval(recipe.targets)
    net = Net(recipe)
    shapes = _shapes(recipe, net, x)
    net.has_axes = len(shapes[-1]) > 1
    net(x)
    for parameter in net.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    for name, buffer in net.named_buffers():
        if name.endswith("running_var"):
            nn.init.uniform_(buffer, 0.5, 1.5)
    return net, x, y


def _shapes(recipe: Recipe, net: Net, x: Any) -> list[tuple[int, ...]]:
    tensors = [x]
    with torch.no_grad():
        for step, part in zip(recipe.steps, net.parts):
            first = tensors[step.reads[0]]
            tensors.append(first + tensors[step.reads[1]] if not step.code else called(part, first))
    return [tuple(tensor.shape[1:]) for tensor in tensors]


def _kind(shape: tuple[int, ...], was: str) -> str:
    """The kind of a tensor; what is made of a signal is one, and of a sequence a sequence."""
    return {1: "row", 3: "picture"}.get(len(shape), was if was in ("signal", "sequence") else "sequence")


def draw(seed: int) -> Recipe:
    """A random recipe, in which the module of this seed's turn is one."""
    rng = np.random.default_rng(seed)
    kinds = list(MAKERS)
    wanted = kinds[seed % len(kinds)]
    reads, _ = MAKERS[wanted][0]
    kind = str(rng.choice(list(reads)))
    loss, targets = _one(rng, LOSSES[_one(rng, list(LOSSES))])
    first = (Step("nn.Embedding(7, 6)", (0,)),) if kind == "words" else ()
    recipe = Recipe(seed, kind, first, loss, targets, _one(rng, OPTIMIZERS[_one(rng, list(OPTIMIZERS))]))
    names = [kind, "sequence"] if first else [kind]
    for turn in range(int(rng.integers(2, 7))):
        recipe, names = _longer(rng, recipe, names, wanted if turn == 0 else _one(rng, kinds))
    return _needed(recipe)


def _needed(recipe: Recipe) -> Recipe:
    """The recipe without steps that its last tensor doesn't need."""
    for idx in range(len(recipe.steps) - 1, 0, -1):
        if all(idx not in step.reads for step in recipe.steps[idx:]):
            return _needed(_without(recipe, idx - 1))
    return recipe


def _without(recipe: Recipe, idx: int) -> Recipe:
    """The recipe without a step: those that read it read what it has read."""
    step = recipe.steps[idx]
    renamed = [step.reads[0] if read == idx + 1 else read - (read > idx + 1) for read in range(len(recipe.steps) + 1)]
    rest = recipe.steps[:idx] + recipe.steps[idx + 1 :]
    return replace(recipe, steps=tuple(replace(each, reads=tuple(renamed[read] for read in each.reads)) for each in rest))


def _one(rng: np.random.Generator, values: Sequence[Any]) -> Any:
    return values[int(rng.integers(len(values)))]


def _longer(rng: np.random.Generator, recipe: Recipe, names: list[str], kind: type) -> tuple[Recipe, list[str]]:
    """A recipe with one step more, if one fits."""
    net, x, _ = build(recipe)
    shapes = _shapes(recipe, net, x)
    at = len(shapes) - 1 - min(int(rng.geometric(0.6)) - 1, len(shapes) - 1)
    alike = [idx for idx, shape in enumerate(shapes) if shape == shapes[at] and names[idx] == names[at] != "words"]
    if len(alike) > 1 and rng.uniform() < 0.2:
        step = Step("", (at, int(rng.choice(alike))))
    else:
        reads, code = _one(rng, MAKERS[kind])
        if names[at] not in reads:
            return recipe, names
        step = Step(code.replace("{c}", str(shapes[at][0])).replace("{f}", str(shapes[at][-1])), (at,))
    longer = replace(recipe, steps=(*recipe.steps, step))
    try:
        shape = _shapes(longer, build(longer)[0], x)[-1]
    except (AssertionError, RuntimeError, ValueError):
        return recipe, names
    if min(shape) < 1 or np.prod(shape) > 800:
        return recipe, names
    return longer, [*names, _kind(shape, names[at])]


Numbers = dict[str, Any]


def run(recipe: Recipe, net: Net, x: Any, y: Any) -> Numbers:
    """PyTorch: a prediction, losses and weights after steps."""
    loss, weights = eval(recipe.loss), list(net.parameters())
    if weights[0].dtype == torch.float64:
        loss = loss.double()
    optimizer = eval(recipe.optimizer)
    with torch.no_grad():
        found: Numbers = {"predict": copy.deepcopy(net).eval()(x).double().numpy()}
    for step in range(STEPS):
        optimizer.zero_grad()
        value = loss(net(x), y)
        value.backward()
        optimizer.step()
        found[f"loss {step}"] = np.float64(value.item())
    return found | _state(net)


def _state(net: Net) -> Numbers:
    return {name: value.detach().double().numpy().copy() for name, value in net.state_dict().items()}


def ours(recipe: Recipe, adapters: str) -> Numbers:
    """The same on adapters."""
    net, x, y = build(recipe)
    weights = list(net.parameters())
    trainer = Trainer(net, eval(recipe.loss), eval(recipe.optimizer), adapters=adapters, batch_statistics="batch")
    found: Numbers = {"predict": trainer.predict(x).double().numpy()}
    for step in range(STEPS):
        found[f"loss {step}"] = np.float64(trainer.fit([(x, y)])["loss"][0])
    assert weights
    return found | _state(net)


def truth(recipe: Recipe) -> tuple[Numbers, Numbers]:
    """What PyTorch computes in float64, and how far float32 may be from it."""
    net, x, y = build(recipe)
    single = run(recipe, copy.deepcopy(net), x, y)
    wide_x, wide_y = (part.double() if part.is_floating_point() else part for part in (x, y))
    expected = run(recipe, copy.deepcopy(net).double(), wide_x, wide_y)
    moves = {name: _far(single[name], value) for name, value in expected.items()}
    for change in (1, 2, 3):
        moved = copy.deepcopy(net).double()
        torch.manual_seed(change)
        with torch.no_grad():
            for parameter in moved.parameters():
                parameter *= 1 + change * 2.0**-23 * (2 * torch.rand_like(parameter) - 1)
        for name, value in run(recipe, moved, wide_x, wide_y).items():
            moves[name] = max(moves[name], _far(value, expected[name]))
    return expected, moves


def _far(one: Any, other: Any) -> float:
    return float(np.max(np.abs(one - other), initial=0.0))


def _size(value: Any) -> float:
    return max(1e-3, float(np.max(np.abs(value), initial=0.0)))


def difference(recipe: Recipe, adapters: str) -> str | None:
    """What differs with two draws of the data; `None` if nothing does."""
    found = []
    for turn in range(4):
        drawn = replace(recipe, seed=recipe.seed + 10**6 * turn)
        expected, moves = truth(drawn)
        if any(not moves[name] <= STEADY * _size(value) for name, value in expected.items()):
            continue
        try:
            got = ours(drawn, adapters)
        except ModelError as error:
            # All that it refuses has the name of a module or of a setting.
            return None if "`" in str(error).splitlines()[-2] else str(error)
        except MismatchError as error:
            return str(error)
        far = [
            f"{name}: differs by {_far(got[name], value):.2g}, PyTorch's float32 by {moves[name]:.2g}"
            for name, value in expected.items()
            if not _far(got[name], value) <= max(FACTOR * moves[name], LEAST * _size(value))
        ]
        if not far:
            return None
        found.append("\n".join(far))
        if len(found) == 2:
            return found[0]
    return None


def smaller(recipe: Recipe) -> Iterator[Recipe]:
    """Recipes with one step less."""
    for idx in range(len(recipe.steps)):
        yield _needed(_without(recipe, idx))
    if recipe.optimizer != "torch.optim.SGD(weights, 0.05)":
        yield replace(recipe, optimizer="torch.optim.SGD(weights, 0.05)")


def shrunk(recipe: Recipe, text: str, adapters: str) -> tuple[Recipe, str]:
    """A failing recipe from which no step can be taken."""
    for less in smaller(recipe):
        try:
            found = difference(less, adapters)
        except (RuntimeError, ValueError):
            continue
        if found:
            return shrunk(less, found, adapters)
    return recipe, text


def test_every_module_loss_and_optimizer_is_drawn() -> None:
    assert set(MAKERS) == set(_layers.MODULES)
    assert set(LOSSES) == set(_objective.LOSSES)
    assert set(OPTIMIZERS) == set(_objective.OPTIMIZERS)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_random_module_is_as_in_pytorch(seed: int) -> None:
    recipe, adapters = draw(seed), "cpu" if seed % 2 else "cpu,cpu,cpu"
    text = difference(recipe, adapters)
    if text:
        recipe, text = shrunk(recipe, text, adapters)
    assert not text, f"MANYHANDS_GRAPH_SEED={seed}: {text}\n{recipe}"

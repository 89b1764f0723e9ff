"""Each setting of PyTorch is honoured, or refused by name, with PyTorch beside it; the signatures are PyTorch's own."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from manyhands_ml import DataError, ModelError, NonFiniteError, make_parallel
from manyhands_ml.torch import Trainer
from manyhands_ml.torch import _settings as settings
from manyhands_ml.torch._layers import ARGUMENTS, FUNCTIONS, MODULES
from manyhands_ml.torch._objective import FREE, LOSSES, OPTIMIZERS

F = nn.functional
PICTURE, SIGNAL, STEPS, ROW = (4, 9, 8), (4, 12), (5, 6), (6,)


def named(kind: type) -> set[str]:
    """Constructor arguments of a module."""
    found = set(inspect.signature(kind.__init__).parameters) - {"self"}  # type: ignore[misc]
    if issubclass(kind, nn.RNNBase):
        found = set(inspect.signature(nn.RNNBase.__init__).parameters) - {"self"}
    return found


@pytest.mark.parametrize(("table", "kinds"), [(settings.MODULES, MODULES), (settings.LOSSES, LOSSES)])
def test_each_setting_of_modules_and_losses_is_named_once(table: Any, kinds: Any) -> None:
    assert set(table) == set(kinds)
    for kind in kinds:
        row = table[kind]
        names = [*row.read, *row.need, *row.free]
        assert len(names) == len(set(names))
        assert named(kind) - set(names) == set(), kind.__name__


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_each_setting_of_an_optimizer_is_named(kind: Any) -> None:
    row = OPTIMIZERS[kind]
    group = kind([nn.Parameter(torch.zeros(1))]).param_groups[0]
    assert {*named(kind), *group} - {*row.read, *row.need, *FREE} == set()


def test_each_function_names_its_arguments() -> None:
    assert set(ARGUMENTS) == set(FUNCTIONS)


CONV: dict[str, Any] = {"in_channels": 4, "out_channels": 4, "kernel_size": 3}
NORM: dict[str, Any] = {"num_features": 4}
SEQUENCE: dict[str, Any] = {"input_size": 6, "hidden_size": 3, "batch_first": True}
ENCODER: dict[str, Any] = {"d_model": 6, "nhead": 2, "dim_feedforward": 8, "dropout": 0.0, "batch_first": True}
#: Arguments that a module needs, and the shape of a row.
BASES: dict[Any, tuple[dict[str, Any], tuple[int, ...]]] = {
    nn.AdaptiveAvgPool1d: ({"output_size": 1}, SIGNAL),
    nn.AdaptiveAvgPool2d: ({"output_size": 1}, PICTURE),
    nn.AdaptiveMaxPool1d: ({"output_size": 1}, SIGNAL),
    nn.AdaptiveMaxPool2d: ({"output_size": 1}, PICTURE),
    nn.AvgPool1d: ({"kernel_size": 2}, SIGNAL),
    nn.AvgPool2d: ({"kernel_size": 2}, PICTURE),
    nn.BatchNorm1d: (NORM, SIGNAL),
    nn.BatchNorm2d: (NORM, PICTURE),
    nn.CircularPad1d: ({"padding": 1}, SIGNAL),
    nn.CircularPad2d: ({"padding": 1}, PICTURE),
    nn.Conv1d: (CONV, SIGNAL),
    nn.Conv2d: (CONV, PICTURE),
    nn.ConvTranspose2d: (CONV, PICTURE),
    nn.CosineSimilarity: ({"dim": 2}, STEPS),
    nn.Dropout: ({}, ROW),
    nn.Dropout1d: ({}, SIGNAL),
    nn.Dropout2d: ({}, PICTURE),
    nn.Embedding: ({"num_embeddings": 9, "embedding_dim": 3}, ROW),
    nn.GRU: (SEQUENCE, STEPS),
    nn.GroupNorm: ({"num_groups": 2, "num_channels": 4}, PICTURE),
    nn.Hardtanh: ({"min_val": 0.0}, ROW),
    nn.InstanceNorm1d: ({**NORM, "affine": True}, SIGNAL),
    nn.InstanceNorm2d: ({**NORM, "affine": True}, PICTURE),
    nn.LSTM: (SEQUENCE, STEPS),
    nn.LayerNorm: ({"normalized_shape": 6}, STEPS),
    nn.Linear: ({"in_features": 6, "out_features": 3}, ROW),
    nn.MaxPool1d: ({"kernel_size": 2}, SIGNAL),
    nn.LogSoftmax: ({"dim": -1}, STEPS),
    nn.MaxPool2d: ({"kernel_size": 2}, PICTURE),
    nn.modules.linear.NonDynamicallyQuantizableLinear: ({"in_features": 6, "out_features": 3}, ROW),
    nn.MultiheadAttention: ({"embed_dim": 6, "num_heads": 2, "batch_first": True}, STEPS),
    nn.PixelShuffle: ({"upscale_factor": 2}, PICTURE),
    nn.PixelUnshuffle: ({"downscale_factor": 2}, (4, 6, 8)),
    nn.PReLU: ({"num_parameters": 4}, PICTURE),
    nn.RNN: (SEQUENCE, STEPS),
    nn.ReflectionPad1d: ({"padding": 2}, SIGNAL),
    nn.ReflectionPad2d: ({"padding": 2}, PICTURE),
    nn.ReplicationPad1d: ({"padding": 2}, SIGNAL),
    nn.ReplicationPad2d: ({"padding": 2}, PICTURE),
    nn.RMSNorm: ({"normalized_shape": 6}, STEPS),
    nn.Softmax: ({"dim": -1}, ROW),
    nn.TransformerEncoder: ({"encoder_layer": nn.TransformerEncoderLayer(**ENCODER), "num_layers": 1}, STEPS),
    nn.TransformerEncoderLayer: (ENCODER, STEPS),
    nn.Unflatten: ({"dim": 1, "unflattened_size": (2, 3)}, ROW),
    nn.Upsample: ({"scale_factor": 2}, PICTURE),
    nn.ConstantPad1d: ({"padding": 1, "value": 0.0}, SIGNAL),
    nn.ConstantPad2d: ({"padding": 1, "value": 0.0}, PICTURE),
    nn.LogSigmoid: ({}, ROW),
    nn.ZeroPad1d: ({"padding": 1}, SIGNAL),
    nn.ZeroPad2d: ({"padding": 1}, PICTURE),
}
#: Another value of each setting than its default.
VALUES: dict[str, Any] = {
    "activation": F.gelu,
    "add_bias_kv": True,
    "add_zero_attn": True,
    "affine": False,
    "align_corners": True,
    "alpha": 0.5,
    "approximate": "tanh",
    "batch_first": False,
    "beta": 2,
    "bias": False,
    "bidirectional": True,
    "ceil_mode": True,
    "count_include_pad": False,
    "dilation": 2,
    "dim": 1,
    "dim_feedforward": 5,
    "divisor_override": 3,
    "downscale_factor": 1,
    "dropout": 0.3,
    "dtype": torch.float64,
    "elementwise_affine": False,
    "embedding_dim": 4,
    "enable_nested_tensor": False,
    "end_dim": 2,
    "eps": 0.2,
    "groups": 2,
    "hidden_size": 4,
    "inplace": True,
    "kdim": 6,
    "kernel_size": 3,
    "layer_norm_eps": 0.2,
    "mask_check": False,
    "max_norm": 0.5,
    "max_val": 2.0,
    "min_val": -0.5,
    "mode": "bilinear",
    "momentum": None,
    "negative_slope": 0.4,
    "nhead": 3,
    "norm": nn.LayerNorm(6),
    "norm_first": True,
    "norm_type": 1.0,
    "num_embeddings": 10,
    "num_groups": 4,
    "num_heads": 3,
    "num_layers": 2,
    "num_parameters": 1,
    "out_channels": 8,
    "out_features": 4,
    "output_padding": 1,
    "output_size": 3,
    "p": 0.3,
    "padding": 1,
    "padding_idx": 0,
    "padding_mode": "circular",
    "proj_size": 2,
    "recompute_scale_factor": True,
    "return_indices": True,
    "scale_factor": 3,
    "scale_grad_by_freq": True,
    "size": (18, 16),
    "sparse": True,
    "start_dim": 2,
    "stride": 2,
    "threshold": 3,
    "track_running_stats": False,
    "unflattened_size": (3, 2),
    "upscale_factor": 1,
    "value": 0.5,
    "vdim": 6,
}
#: Other settings that a value needs beside it, or another shape of rows.
BESIDE: dict[str, dict[str, Any]] = {
    "align_corners": {"mode": "bilinear"},
    "count_include_pad": {"padding": 1},
    "dropout": {"num_layers": 2},
    "output_padding": {"stride": 2},
    "padding_mode": {"padding": 1},
    "size": {"scale_factor": None},
}
#: What the module's input decides, and initial values.
FIXED = {"in_channels", "in_features", "input_size", "num_features", "num_channels", "normalized_shape"}
FIXED |= {"embed_dim", "d_model", "encoder_layer", "init", "device", "args", "kwargs", "nonlinearity", "min_value", "max_value", "_weight", "_freeze"}


class First(nn.Module):
    """The first part of what a module gives, where it gives several."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Any) -> Any:
        return self.part(x)[0]


class ToItself(First):
    """Attention of a sequence to itself."""

    def forward(self, x: Any) -> Any:
        return self.part(x, x, x)[0]


class ToHalf(First):
    """A tensor beside half of each of its numbers and one."""

    def forward(self, x: Any) -> Any:
        return self.part(x, 0.5 * x + 1)


#: Modules that read several tensors.
PAIRS: dict[Any, Any] = {nn.CosineSimilarity: ToHalf, nn.MultiheadAttention: ToItself}


def _same(module: nn.Module, x: torch.Tensor, trains: bool = True) -> None:
    """The prediction, and where there is something to learn, weights and buffers after two steps."""
    other = copy.deepcopy(module)
    with torch.no_grad():
        expected = copy.deepcopy(module).eval()(x.clone())
    y, parameters = torch.randn(expected.shape), list(other.parameters()) or [nn.Parameter(torch.zeros(1))]
    trainer = Trainer(other, nn.MSELoss(), torch.optim.SGD(parameters, lr=0.1), adapters="cpu")
    torch.testing.assert_close(trainer.predict(x), expected, atol=1e-5, rtol=1e-5)
    if not list(module.parameters()) or not trains:
        return
    trainer.fit([(x, y)] * 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        nn.MSELoss()(module(x), y).backward()
        optimizer.step()
    for (name, found), needed in zip(other.state_dict().items(), module.state_dict().values(), strict=True):
        np.testing.assert_allclose(found.double(), needed.double(), atol=1e-5, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize("kind", MODULES, ids=lambda kind: kind.__name__)
def test_settings_of_a_module_are_honoured_or_refused_by_name(kind: Any) -> None:
    """One after the other with another value."""
    base, shape = BASES.get(kind, ({}, ROW if kind is not nn.Flatten else PICTURE))
    # Recurrent modules fill in their `mode` themselves.
    fixed = FIXED | ({"mode"} if issubclass(kind, nn.RNNBase) else set())
    for setting in sorted(named(kind) - fixed):
        torch.manual_seed(3)
        beside = {name: value for name, value in BESIDE.get(setting, {}).items() if name in named(kind)}
        arguments = {**base, **beside, setting: VALUES[setting]}
        try:
            module = kind(**arguments)
            dtype = torch.int64 if kind is nn.Embedding else arguments.get("dtype", torch.float32)
            x = torch.randint(0, 9, (4, *shape)) if kind is nn.Embedding else torch.randn(4, *shape)
            x = x.to(dtype)
            module = PAIRS[kind](module) if kind in PAIRS else module
            module(x)
        except (RuntimeError, ValueError):
            # A value that PyTorch does not take for this module.
            continue
        module.train("ropout" not in kind.__name__)
        module = First(module) if issubclass(kind, nn.RNNBase) or setting == "return_indices" else module
        try:
            _same(module, x, trains=setting != "dropout")
        except ModelError as error:
            # A setting that only counts beside another: what is refused is that one.
            told = {setting, "max_norm"} if setting == "norm_type" else {setting}
            assert any(f"`{name}" in str(error) for name in told), f"{kind.__name__}: {setting}: {error}"


def _perceptron() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def _data(seed: int = 0, rows: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 6, generator=generator), torch.randint(0, 3, (rows,), generator=generator)


def _trains_alike(build: Callable[[], nn.Module], loss: Any, batches: list[Any], adapters: str = "cpu,cpu") -> None:
    """Losses of each step and the weights at last."""
    module, other = build(), build()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    trainer = Trainer(other, loss, torch.optim.SGD(other.parameters(), lr=0.1), adapters=adapters)
    for x, y in batches:
        optimizer.zero_grad()
        value = loss(module(x), y)
        value.backward()
        optimizer.step()
        assert trainer.fit([(x, y)])["loss"][0] == pytest.approx(value.item(), rel=1e-5)
    for found, needed in zip(other.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(found, needed, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(ignore_index=1),
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(ignore_index=255, label_smoothing=0.2),
        nn.CrossEntropyLoss(ignore_index=0, weight=torch.tensor([5.0, 2.0, 0.5])),
        nn.CrossEntropyLoss(ignore_index=-1, reduction="sum"),
    ],
)
def test_an_ignored_class_counts_in_no_loss(loss: Any) -> None:
    """The first rows hold none: a comparison of the first batch finds nothing."""
    batches = [_data(step, 64) for step in range(3)]
    for _, y in batches:
        y[:32][y[:32] == loss.ignore_index] = 2
        y[40:50] = loss.ignore_index
    _trains_alike(_perceptron, loss, batches)


def test_ignored_positions_of_sequences_and_pictures_count_in_no_loss() -> None:
    """Padding of a text, and the border of a picture: classes are the first axis of a row."""
    generator = torch.Generator().manual_seed(3)

    def network() -> nn.Module:
        torch.manual_seed(3)
        return nn.Conv2d(4, 3, 3, padding=1)

    pictures = [torch.randn(6, *PICTURE, generator=generator) for _ in range(3)]
    targets = [torch.randint(0, 3, (6, 9, 8), generator=generator) for _ in range(3)]
    for target in targets:
        target[1:, :2] = -100
    _trains_alike(network, nn.CrossEntropyLoss(), list(zip(pictures, targets)))
    accuracy = Trainer(network(), nn.CrossEntropyLoss(), torch.optim.SGD(network().parameters(), lr=0.1), adapters="cpu")
    with pytest.raises(ModelError, match="needs to have `weight`"):
        accuracy.evaluate(pictures[0], targets[0])
    module = network()
    trainer = Trainer(module, nn.CrossEntropyLoss(), torch.optim.SGD(module.parameters(), lr=0.1), adapters="cpu,cpu")
    with torch.no_grad():
        right = (module(pictures[0]).argmax(1) == targets[0])[targets[0] != -100]
    assert trainer.evaluate(pictures[0], targets[0])["accuracy"] == pytest.approx(right.double().mean().item(), rel=1e-6)


def test_a_batch_that_is_ignored_as_a_whole_changes_nothing() -> None:
    """PyTorch's mean over nothing is not a number."""
    module, (x, y) = _perceptron(), _data()
    trainer = Trainer(module, nn.CrossEntropyLoss(), torch.optim.SGD(module.parameters(), lr=0.1), adapters="cpu")
    before = copy.deepcopy(module.state_dict())
    assert trainer.fit(x, torch.full_like(y, -100))["loss"] == [0.0]
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    with pytest.raises(DataError, match="needs labels from 0 to 2, but row 3 has label -1"):
        trainer.fit(x, torch.where(torch.arange(40) == 3, -1, y), shuffle=False)


@pytest.mark.parametrize(
    "loss", [nn.MSELoss(reduction="sum"), nn.L1Loss(reduction="sum"), nn.HuberLoss("sum", 0.5), nn.SmoothL1Loss(reduction="sum", beta=0.5)]
)
def test_a_sum_goes_over_all_numbers(loss: Any) -> None:
    _trains_alike(_perceptron, loss, [(x, torch.sin(x[:, :3])) for x, _ in (_data(step, 8) for step in range(3))])
    _trains_alike(_perceptron, nn.BCEWithLogitsLoss(reduction="sum"), [(x, torch.rand(8, 3)) for x, _ in [_data(0, 8)]])


def test_a_loss_that_is_infinite_is_no_mismatch() -> None:
    module, (x, _) = _perceptron(), _data()
    trainer = Trainer(module, nn.MSELoss(), torch.optim.SGD(module.parameters(), lr=0.1), adapters="cpu")
    with pytest.raises(NonFiniteError, match="the loss needs to be finite, but PyTorch, too, computes inf"):
        trainer.fit(x, torch.full((40, 3), 1e30))


def _told(module: nn.Module, loss: Any = None, optimizer: Any = None, x: Any = None) -> str:
    x = torch.randn(4, 6) if x is None else x
    parameters = list(module.parameters()) or [nn.Parameter(torch.zeros(1))]
    trainer = Trainer(module, loss or nn.MSELoss(), optimizer or torch.optim.SGD(parameters, lr=0.1), adapters="cpu")
    with pytest.raises(ModelError) as caught:
        trainer.fit(x, torch.zeros(4, 3))
    return str(caught.value)


def _hooked(register: Callable[[nn.Sequential], Any]) -> nn.Sequential:
    module = _perceptron()
    register(module)
    return module


@pytest.mark.parametrize(
    ("register", "told"),
    [
        (lambda module: module[0].register_forward_hook(lambda *_: None), "module `0` (Linear): has a forward hook, `<lambda>`"),
        (lambda module: module[0].register_forward_pre_hook(lambda *_: None), "has a forward pre-hook"),
        (lambda module: module[0].register_full_backward_hook(lambda *_: None), "has a backward hook"),
        (lambda module: module[0].register_full_backward_pre_hook(lambda *_: None), "has a backward pre-hook"),
        (lambda module: module[0].weight.register_hook(lambda slope: 0 * slope), "parameter `0.weight`: has a hook of its gradient"),
        (lambda module: prune.l1_unstructured(module[0], "weight", 0.5), "has a forward pre-hook, `L1Unstructured`"),
        (lambda module: nn.utils.spectral_norm(module[0]), "has a forward pre-hook, `SpectralNorm`"),
        (lambda module: parametrizations.spectral_norm(module[0]), "module `0` (ParametrizedLinear): a parametrization of its weights"),
        (lambda module: parametrizations.weight_norm(module[0]), "module `0` (ParametrizedLinear): a parametrization of its weights"),
        (lambda module: setattr(module[1], "forward", torch.relu), "module `1` (Tanh): has a `forward` of its own"),
        (lambda module: module[0].bias.requires_grad_(False), "`requires_grad` needs to be the same for all parameters"),
    ],
)
def test_what_is_put_on_a_module_is_refused(register: Any, told: str) -> None:
    module = _perceptron()
    register(module)
    assert told in _told(module)


def test_hooks_of_losses_and_optimizers_are_refused() -> None:
    loss, module = nn.MSELoss(), _perceptron()
    loss.register_forward_hook(lambda *_: None)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: None)
    text = _told(module, loss, optimizer)
    assert "loss: module `` (MSELoss): has a forward hook" in text and "optimizer `SGD`: has a hook of its steps" in text


def test_a_function_that_has_taken_a_name_of_pytorch_is_the_one_that_counts() -> None:
    def mse_loss(found: Any, needed: Any) -> Any:
        return found.sum()

    module = _perceptron()
    x = torch.randn(6, next(module.parameters()).shape[1])
    trainer = Trainer(module, mse_loss, torch.optim.SGD(module.parameters(), lr=0.1), adapters="cpu")
    with torch.no_grad():
        needed = module(x)
    assert trainer.evaluate(x, torch.zeros(needed.shape))["loss"] == pytest.approx(float(needed.sum()), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda it: torch.optim.SGD(it, lr=0.1, maximize=True), "`maximize` needs False, but is True"),
        (lambda it: torch.optim.Adadelta(it, weight_decay=0.1), "`weight_decay` needs 0, but is 0.1"),
        (lambda it: torch.optim.Adagrad(it, lr_decay=0.1), "`lr_decay` needs 0, but is 0.1"),
        (lambda it: torch.optim.NAdam(it, weight_decay=0.1), "`weight_decay` needs `decoupled_weight_decay=True` beside it"),
        (lambda it: torch.optim.Adam([{"params": it[:2]}, {"params": it[2:], "amsgrad": True}]), "`amsgrad` needs to be the same"),
        (
            lambda it: torch.optim.SGD([{"params": it[:2]}, {"params": it[2:], "momentum": 0.2}], lr=0.1, momentum=0.9, dampening=0.1),
            "`momentum` needs to be the same for all groups",
        ),
        (lambda it: torch.optim.SGD([{"params": it[:2]}, {"params": it[2:], "maximize": True}], lr=0.1), "`maximize` needs False"),
    ],
)
def test_settings_of_optimizers_are_refused_by_name(make: Any, told: str) -> None:
    module = _perceptron()
    assert told in _told(module, None, make(list(module.parameters())))


@pytest.mark.parametrize(
    "make",
    [
        lambda it: torch.optim.SGD(it, lr=0.1, momentum=0.9, foreach=True),
        lambda it: torch.optim.SGD(it, lr=0.1, momentum=0.5, dampening=0.2),
        lambda it: torch.optim.SGD(it, lr=0.1, dampening=0.2),
        lambda it: torch.optim.Adam(it, lr=0.01, fused=True),
        lambda it: torch.optim.Adam(it, lr=0.01, weight_decay=0.3, decoupled_weight_decay=True),
        lambda it: torch.optim.NAdam(it, lr=0.01, weight_decay=0.3, decoupled_weight_decay=True, momentum_decay=0.1),
        lambda it: torch.optim.AdamW([{"params": it[1::2], "weight_decay": 0.0}, {"params": it[::2]}], lr=0.01, weight_decay=0.9),
        lambda it: torch.optim.Adam([{"params": it[::2]}, {"params": it[1::2], "weight_decay": 0}], lr=0.01, weight_decay=0.9),
        lambda it: torch.optim.SGD([{"params": it[::2]}, {"params": it[1::2], "weight_decay": 0.0}], lr=0.1, weight_decay=0.9),
        lambda it: torch.optim.RMSprop(it, lr=torch.tensor(0.01), differentiable=False, foreach=False),
        lambda it: torch.optim.SGD([{"params": it[:2]}, {"params": it[2:]}], lr=0.1, weight_decay=0.2, nesterov=True, momentum=0.5),
        lambda it: torch.optim.SGD([{"params": it[:2]}, {"params": it[2:], "lr": 0.3, "momentum": 0.2}], lr=0.1, momentum=0.9),
        lambda it: torch.optim.AdamW([{"params": it[:2], "weight_decay": 0.0, "lr": 0.0}, {"params": it[2:], "eps": 1e-2}], lr=0.01),
        lambda it: torch.optim.Adam([{"params": it[:1], "betas": (0.5, 0.9)}, {"params": it[1:]}], lr=0.01, weight_decay=0.9),
        lambda it: torch.optim.AdamW([{"params": it[:2], "weight_decay": 0.2}, {"params": it[2:], "lr": 0.1}], lr=0.01),
    ],
)
def test_other_ways_of_the_same_update_give_the_same(make: Any) -> None:
    module, other = _perceptron(), _perceptron()
    one, two = make(list(module.parameters())), make(list(other.parameters()))
    trainer = Trainer(other, nn.CrossEntropyLoss(), two, adapters="cpu")
    for step in range(4):
        x, y = _data(step)
        one.zero_grad()
        nn.CrossEntropyLoss()(module(x), y).backward()
        one.step()
        trainer.fit([(x, y)])
    for found, needed in zip(other.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(found, needed, atol=1e-5, rtol=1e-4)


def test_buffers_that_change_between_epochs_are_read_again() -> None:
    """In place and by another tensor, in `on_epoch` and between two calls, with PyTorch beside it."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 3)
            self.register_buffer("scale", torch.ones(6))

        def forward(self, x: Any) -> Any:
            return self.linear(x * (2 * self.scale))

    (x, y), modules = _data(), [Scaled(), Scaled()]
    modules[1].load_state_dict(modules[0].state_dict())
    ours, theirs = modules
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1) for module in modules]
    trainer = Trainer(ours, nn.CrossEntropyLoss(), optimizers[0], adapters="cpu")

    def change(module: Any, epoch: int) -> None:
        if epoch % 2:
            module.scale = torch.full((6,), 0.5)
        else:
            module.scale.mul_(3.0)

    found, needed = [], []
    for call in range(2):
        found += trainer.fit(x, y, batch_size=40, epochs=2, on_epoch=lambda epoch, logs: change(ours, epoch))["loss"]
        change(ours, 2)
        for epoch in (0, 1, 2):
            if epoch < 2:
                optimizers[1].zero_grad()
                loss = nn.functional.cross_entropy(theirs(x), y)
                loss.backward()
                optimizers[1].step()
                needed.append(loss.item())
            change(theirs, epoch)
    np.testing.assert_allclose(found, needed, rtol=1e-5)
    torch.testing.assert_close(trainer.predict(x), theirs(x).detach(), atol=1e-5, rtol=1e-5)


def test_what_changes_between_epochs_is_honoured() -> None:
    """A scheduler of momentum, modules that thaw, and a decay: PyTorch does the same beside it."""
    weights = []
    for is_ours in (True, False):
        module, loss = _perceptron(), nn.CrossEntropyLoss()
        module[0].requires_grad_(False)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=12)
        trainer = Trainer(module, loss, optimizer, adapters="cpu")

        def change(epoch: int, logs: Any = None) -> None:
            scheduler.step()
            if epoch == 2:
                module[0].requires_grad_(True)
            if epoch == 4:
                optimizer.param_groups[0]["weight_decay"] = 0.3

        if is_ours:
            trainer.fit(*_data(), epochs=8, batch_size=40, on_epoch=change)
        for epoch in range(0 if is_ours else 8):
            x, y = _data()
            optimizer.zero_grad()
            loss(module(x), y).backward()
            optimizer.step()
            change(epoch)
        weights.append(module.state_dict())
    for name, needed in weights[1].items():
        torch.testing.assert_close(weights[0][name], needed, atol=1e-5, rtol=1e-4, msg=name)


class Code(nn.Module):
    """A function and a linear module."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.function, self.linear = function, nn.Linear(6, 3)
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: Any) -> Any:
        return self.linear(self.function(x))


def _pooled_twice(x: Any, kernel_size: int) -> Any:
    """Three numbers by windows whose settings go by position, of which the last, `ceil_mode`, takes a part of a window, too; and three
    by others."""
    pooled = F.max_pool1d(x.unsqueeze(1), kernel_size, 2, 0, 1, True)
    return torch.cat([pooled.flatten(1), F.max_pool1d(x.unsqueeze(1), 2, 2).flatten(1)], 1)


def _under_another_name(x: Any) -> Any:
    y = x * 2
    z = y.view(-1, 6)
    y.add_(1)
    return z


def _stated(x: Any) -> Any:
    y = x * 2
    y.add_(x)
    F.relu(y, inplace=True)
    z = y + 1
    y.mul_(3)
    return y + z


def _added(x: Any) -> Any:
    y = x * 2
    z = y.view(-1, 6)
    return y.add_(1) + z


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (_under_another_name, "call of `add_`: changes its argument in place, but its result is not used"),
        (_added, "call of `add_`: changes its argument in place, which call of `add` reads later"),
        (lambda x: F.softmax(x, 1, dtype=torch.float64).float(), "`dtype` needs torch.float32"),
        (lambda x: torch.div(x, 2, rounding_mode="floor"), "the argument `rounding_mode` of its call is not supported"),
        (lambda x: torch.add(x, x, alpha=2), "needs two arguments, by position"),
        (lambda x: torch.cat([F.avg_pool1d(x.unsqueeze(1), 3, 3, 1, True).flatten(1), x[:, :3]], 1), "`ceil_mode=True` is supported where windows reach over both borders alike"),
        (lambda x: F.interpolate(x.view(-1, 1, 2, 3), scale_factor=2, mode="bicubic", antialias=True)[:, 0, 0], "`antialias` needs False"),
    ],
)
def test_arguments_of_functions_are_refused_by_name(function: Any, told: str) -> None:
    assert told in _told(Code(function))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.relu(x * 2, inplace=True) + 1,
        lambda x: (x * 2).add_(x).mul_(0.5),
        _stated,
        lambda x: torch.dropout(x, 0.5, train=False),
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: F.interpolate(x.unsqueeze(1), 12)[:, 0, 3:9],
        lambda x: x * (x != 0) + ~(x == 0),
        lambda x: x.unsqueeze(1).transpose(dim0=1, dim1=2).permute(dims=(0, 2, 1)).squeeze(1),
        lambda x: _pooled_twice(x, 2),
    ],
)
def test_arguments_of_functions_are_honoured(function: Any) -> None:
    torch.manual_seed(5)
    _same(Code(function), torch.randn(4, 6))


def test_lazy_modules_become_what_they_are() -> None:
    torch.manual_seed(5)
    module = nn.Sequential(nn.LazyLinear(4), nn.ReLU(inplace=True), nn.LazyLinear(3))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    trainer = Trainer(module, nn.CrossEntropyLoss(), optimizer, adapters="cpu")
    x, y = _data()
    trainer.predict(x)
    other = copy.deepcopy(module)
    trainer.fit([(x, y)])
    nn.CrossEntropyLoss()(other(x), y).backward()
    for found, needed in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, needed - 0.1 * needed.grad, atol=1e-5, rtol=1e-5)


def test_arguments_are_those_of_make_parallel() -> None:
    """With the same defaults; `test_command.py` compares those of Keras with the settings of files."""
    ours, theirs = (inspect.signature(function).parameters for function in (Trainer, make_parallel))
    shared = ours.keys() & theirs.keys()
    assert len(shared) > 5
    assert {name: ours[name].default for name in shared} == {name: theirs[name].default for name in shared}

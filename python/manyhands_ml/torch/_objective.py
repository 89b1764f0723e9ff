"""Losses and optimizers of PyTorch as those of the engine."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ._graph import Settings
from ._settings import LOSSES as SETTINGS
from ._settings import hooks, refusals


@dataclass(frozen=True)
class LossRow:
    """A loss of PyTorch: its settings in the engine, from the module."""

    make: Callable[[Any], Settings]
    #: Are classes the first axis of a row of outputs, and targets their numbers?
    has_classes: bool = False
    #: PyTorch's value as a part of the engine's.
    weight: Callable[[Any], float] = lambda loss: 1.0


def _cross_entropy(loss: Any) -> Settings:
    return {"type": "SparseCategoricalCrossentropy", "label_smoothing": loss.label_smoothing}


def _log_likelihood(loss: Any) -> Settings:
    """Behind `LogSoftmax`, which the engine's loss contains."""
    return {"type": "SparseCategoricalCrossentropy"}


def _smooth_l1(loss: Any) -> Settings:
    """Huber's loss, divided by its `delta`, which is `beta` here."""
    return {"type": "Huber", "delta": loss.beta} if loss.beta else {"type": "MeanAbsoluteError"}


#: Losses, by class.
LOSSES: dict[type, LossRow] = {
    nn.BCEWithLogitsLoss: LossRow(lambda loss: {"type": "BinaryCrossentropy"}),
    nn.CrossEntropyLoss: LossRow(_cross_entropy, has_classes=True),
    nn.HuberLoss: LossRow(lambda loss: {"type": "Huber", "delta": loss.delta}),
    nn.L1Loss: LossRow(lambda loss: {"type": "MeanAbsoluteError"}),
    nn.MSELoss: LossRow(lambda loss: {"type": "MeanSquaredError"}),
    nn.NLLLoss: LossRow(_log_likelihood, has_classes=True),
    nn.SmoothL1Loss: LossRow(_smooth_l1, weight=lambda loss: 1.0 / loss.beta if loss.beta else 1.0),
}

#: Functions that compute a loss.
FUNCTIONS: dict[Any, type] = {
    nn.functional.binary_cross_entropy_with_logits: nn.BCEWithLogitsLoss,
    nn.functional.cross_entropy: nn.CrossEntropyLoss,
    nn.functional.huber_loss: nn.HuberLoss,
    nn.functional.l1_loss: nn.L1Loss,
    nn.functional.mse_loss: nn.MSELoss,
    nn.functional.nll_loss: nn.NLLLoss,
    nn.functional.smooth_l1_loss: nn.SmoothL1Loss,
}


@dataclass(frozen=True)
class OptimizerRow:
    """An optimizer of PyTorch."""

    #: Settings in the engine, from those of a group of parameters.
    make: Callable[[Settings], Settings]
    #: The settings that `make` reads.
    read: tuple[str, ...]
    #: Settings that need a value.
    need: Settings
    #: State of the engine by kind: PyTorch's name, and whether the engine's is that times minus or plus the learning rate.
    state: dict[str, tuple[str, float | None]]
    #: Further state of a parameter that has done so many steps.
    after: Callable[[Settings, int], dict[str, float]] = lambda group, steps: {"step": float(steps)}
    #: Does the update depend on the number of steps?
    reads_steps: bool = False


def _sgd(group: Settings) -> Settings:
    return {
        "type": "SGD",
        "momentum": group["momentum"],
        "nesterov": group["nesterov"],
        "l2_decay": group["weight_decay"],
    }


def _adam(group: Settings) -> Settings:
    (beta_1, beta_2), decay = group["betas"], group["weight_decay"]
    common = {"beta_1": beta_1, "beta_2": beta_2, "epsilon": group["eps"], "outer_epsilon": True, "amsgrad": group["amsgrad"]}
    if group.get("decoupled_weight_decay") and decay:
        return {"type": "AdamW", **common, "weight_decay": decay}
    return {"type": "Adam", **common, "l2_decay": decay}


def _adamw(group: Settings) -> Settings:
    return _adam({**group, "decoupled_weight_decay": True})


def _rmsprop(group: Settings) -> Settings:
    return {
        "type": "RMSprop",
        "rho": group["alpha"],
        "momentum": group["momentum"],
        "epsilon": group["eps"],
        "centered": group["centered"],
        "outer_epsilon": True,
        "l2_decay": group["weight_decay"],
    }


def _adagrad(group: Settings) -> Settings:
    # The engine has its epsilon under the root: of the default's square no step says more.
    return {"type": "Adagrad", "epsilon": group["eps"] ** 2}


def _nadam(group: Settings) -> Settings:
    (beta_1, beta_2), decay = group["betas"], group["weight_decay"] if group["decoupled_weight_decay"] else 0.0
    more = {"weight_decay": decay, "momentum_decay": group["momentum_decay"]}
    return {"type": "Nadam", "beta_1": beta_1, "beta_2": beta_2, "epsilon": group["eps"], **more}


def _after_nadam(group: Settings, steps: int) -> dict[str, float]:
    beta, decay = group["betas"][0], group["momentum_decay"]
    return {"step": float(steps), "mu_product": math.prod(beta * (1.0 - 0.5 * 0.96 ** (step * decay)) for step in range(1, steps + 1))}


def _adadelta(group: Settings) -> Settings:
    return {"type": "Adadelta", "rho": group["rho"], "epsilon": group["eps"]}


_OF_ADAM = ("betas", "eps", "weight_decay", "decoupled_weight_decay")
_MOMENTS: dict[str, tuple[str, float | None]] = {"momentum": ("exp_avg", None), "velocity": ("exp_avg_sq", None)}
_LARGEST: dict[str, tuple[str, float | None]] = {**_MOMENTS, "velocity_hat": ("max_exp_avg_sq", None)}

#: Optimizers, by class.
OPTIMIZERS: dict[type, OptimizerRow] = {
    torch.optim.Adadelta: OptimizerRow(
        _adadelta,
        ("rho", "eps"),
        {"maximize": False, "weight_decay": 0},
        {"accumulated_grad": ("square_avg", None), "accumulated_delta_var": ("acc_delta", None)},
    ),
    torch.optim.SGD: OptimizerRow(
        _sgd,
        ("momentum", "nesterov", "weight_decay", "dampening"),
        {"maximize": False},
        {"momentum": ("momentum_buffer", -1.0)},
        lambda group, steps: {},
    ),
    torch.optim.Adagrad: OptimizerRow(
        _adagrad,
        ("initial_accumulator_value",),
        {"lr_decay": 0, "weight_decay": 0, "eps": 1e-10, "maximize": False},
        {"accumulator": ("sum", None)},
    ),
    torch.optim.NAdam: OptimizerRow(_nadam, (*_OF_ADAM, "momentum_decay"), {"maximize": False}, _MOMENTS, _after_nadam, True),
    torch.optim.Adam: OptimizerRow(_adam, (*_OF_ADAM, "amsgrad"), {"maximize": False}, _LARGEST, reads_steps=True),
    torch.optim.AdamW: OptimizerRow(_adamw, (*_OF_ADAM, "amsgrad"), {"maximize": False}, _LARGEST, reads_steps=True),
    torch.optim.RMSprop: OptimizerRow(
        _rmsprop,
        ("alpha", "eps", "momentum", "centered", "weight_decay"),
        {"maximize": False},
        {"velocity": ("square_avg", None), "momentum": ("momentum_buffer", 1.0), "average_gradient": ("grad_avg", None)},
    ),
}

#: A learning rate in place of 0, by which momentum is scaled: too small to move a weight.
LEAST_RATE = 1e-20

#: Settings that groups of parameters can't have of their own.
_SAME = ("dampening", "initial_accumulator_value", "amsgrad", "centered", "decoupled_weight_decay")

#: Settings of a group that are no part of the update, and why.
FREE: dict[str, str] = {
    "lr": "read before each epoch",
    "params": "compared with the module's",
    "foreach": "the same update, of many tensors at once",
    "fused": "the same update in one kernel",
    "capturable": "the same update in a CUDA graph",
    "differentiable": "the same update, recorded by autograd",
    "param_names": "names of parameters",
}


@dataclass
class Objective:
    """What training is for."""

    #: Settings as the engine reads them.
    settings: Settings = field(default_factory=dict)
    #: Are classes the first axis of a row of outputs?
    has_classes: bool = False
    #: Are targets the numbers of classes?
    has_numbers: bool = False
    #: Class of targets that do not count.
    ignored_class: int | None = None
    #: Is PyTorch's loss the sum over the last axis, of which the engine's is the mean?
    sums_columns: bool = False
    #: Weight of each class in the loss.
    class_weights: NDArray[np.float32] | None = None
    row: OptimizerRow | None = None
    #: Settings of groups of parameters that differ from the others', and the parameters by identity.
    groups: list[tuple[Settings, list[int]]] = field(default_factory=list)
    #: Does PyTorch compute the loss, on the outputs?
    by_torch: bool = False
    #: Does the loss take one tensor, as those of `torch.nn` do, and not what forward returns it in?
    of_tensor: bool = False

    def of_outputs(self, count: int) -> None:
        """Has settings for so many outputs, whose gradients PyTorch computes."""
        # The engine's own loss is that of penalties alone, of which there are none.
        self.settings |= {"losses": [{"type": "GivenGradient"}] * count, "loss_weights": [0.0] * count, "metrics": [[]] * count}


def _is_torchs(loss: Any, log_axis: int | None) -> bool:
    """Is it one of the table's, but with settings or behind an end that the engine lacks?"""
    if isinstance(loss, nn.NLLLoss):
        return log_axis != 0
    is_weighted = isinstance(loss, nn.BCEWithLogitsLoss) and (loss.pos_weight is not None or loss.weight is not None)
    return is_weighted or log_axis is not None


def _takes_two(loss: Any) -> bool:
    """Is it a loss of outputs and targets, without parameters of its own?"""
    if not callable(loss) or (isinstance(loss, nn.Module) and any(True for _ in loss.parameters())):
        return False
    function = loss.forward if isinstance(loss, nn.Module) else loss
    if isinstance(function, (torch.jit.ScriptFunction, torch._C.ScriptMethod)):
        # The first argument of a method is its module.
        n_needed = 3 if isinstance(function, torch._C.ScriptMethod) else 2
        return sum(not it.has_default_value() for it in function.schema.arguments) == n_needed
    given = inspect.signature(function).parameters.values()
    return sum(it.default is it.empty and it.kind in (it.POSITIONAL_ONLY, it.POSITIONAL_OR_KEYWORD) for it in given) == 2


def _is_of_pytorch(loss: Any) -> bool:
    """Is it a loss of PyTorch itself, for one tensor?"""
    return str(getattr(type(loss) if isinstance(loss, nn.Module) else loss, "__module__", "")).startswith("torch.nn.")


def convert(
    loss: Any, optimizer: Any, parameters: dict[str, nn.Parameter], probabilities: bool, log_axes: list[int | None]
) -> tuple[Objective, list[str]]:
    """Loss and optimizer for the engine, and what is wrong with them. `log_axes` has that of a `LogSoftmax` at the end of each output."""
    objective, problems = Objective(), list[str]()
    log_axis = log_axes[0] if len(log_axes) == 1 else None
    objective.of_tensor = _is_of_pytorch(loss)
    if objective.of_tensor and len(log_axes) > 1:
        name = getattr(loss, "__name__", type(loss).__name__)
        told = f"such as `lambda outputs, targets: {name}(outputs[0], targets)`, with the terms of the others added"
        problems.append(f"loss `{name}`: is one of one tensor, but forward returns {len(log_axes)}: give a function, {told}")
    found = FUNCTIONS[loss]() if isinstance(loss, Hashable) and loss in FUNCTIONS else loss
    row = LOSSES.get(type(found))
    reduction = getattr(found, "reduction", "mean")
    settings: Settings = {"type": "MeanSquaredError"}
    if _is_torchs(found, log_axis) or (row is None and _takes_two(found)):
        if reduction == "none":
            problems.append(f'loss `{type(found).__name__}`: `reduction` needs "mean" or "sum", but is "none"')
        objective.by_torch, row, reduction = True, None, "mean"
    elif row is None:
        known = ", ".join(kind.__name__ for kind in LOSSES)
        problems.append(f"loss: `{type(found).__name__}` is not supported; known are {known}")
    else:
        settings, objective.has_classes = row.make(found), row.has_classes
        refused = [*refusals(found, SETTINGS[type(found)])]
        if reduction not in ("mean", "sum"):
            refused.append(f'`reduction` needs "mean" or "sum", but is "{reduction}"')
        if isinstance(found, (nn.CrossEntropyLoss, nn.NLLLoss)):
            refused += _classes(objective, found, settings, probabilities)
        problems += [f"loss `{type(found).__name__}`: {refusal}" for refusal in refused]
        problems += [f"loss: {problem}" for problem in hooks(found)]
        objective.sums_columns = reduction == "sum" and not objective.has_classes
    objective.has_numbers = objective.has_classes and not probabilities
    weighted_mean = "mean_with_sample_weight" if objective.class_weights is not None else "sum_over_batch_size"
    objective.settings = {
        "optimizer": _optimizer(objective, optimizer, parameters, problems),
        "losses": [settings],
        "loss_weights": [row.weight(found) if row else 0.0],
        "metrics": [],
        "reduction": "sum" if reduction == "sum" else weighted_mean,
        "clip_norm": None,
    }
    return objective, problems


def _classes(objective: Objective, loss: Any, settings: Settings, probabilities: bool) -> list[str]:
    """Puts into settings what a cross-entropy does with classes; gives what is wrong."""
    if probabilities:
        settings["type"] = "CategoricalCrossentropy"
    else:
        settings["ignore_class"] = objective.ignored_class = loss.ignore_index
    refused = []
    if probabilities and loss.ignore_index >= 0:
        refused.append("`ignore_index` is not supported for targets that are probabilities")
    if loss.weight is not None:
        objective.class_weights = loss.weight.detach().cpu().numpy()
        if getattr(loss, "label_smoothing", 0.0):
            refused.append("`weight` beside `label_smoothing` is not supported")
        if probabilities:
            refused.append("`weight` is not supported for targets that are probabilities")
    return refused


def _optimizer(
    objective: Objective, optimizer: Any, parameters: dict[str, nn.Parameter], problems: list[str]
) -> Settings:
    kind = type(optimizer).__name__
    row = OPTIMIZERS.get(type(optimizer))
    if row is None:
        known = ", ".join(kind.__name__ for kind in OPTIMIZERS)
        problems.append(f"optimizer: `{kind}` is not supported; known are {known}")
        return {"type": "SGD"}
    objective.row = row
    for group in optimizer.param_groups:
        told = [
            *(f"`{name}` needs {needed}, but is {group[name]}" for name, needed in row.need.items() if group.get(name, needed) != needed),
            *(
                f"`{name}` is not supported, but is {group[name]}"
                for name in optimizer.defaults
                if name not in (*row.read, *row.need, *FREE) and group[name] not in (None, False, 0)
            ),
        ]
        if isinstance(optimizer, torch.optim.NAdam) and group["weight_decay"] and not group["decoupled_weight_decay"]:
            told.append("`weight_decay` needs `decoupled_weight_decay=True` beside it")
        problems += [problem for text in told if (problem := f"optimizer `{kind}`: {text}") not in problems]
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        problems.append(f"optimizer `{kind}`: has a hook of its steps, which would not run; remove it")
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    missing = [name for name, parameter in parameters.items() if parameter.requires_grad and id(parameter) not in held]
    if missing:
        listed = ", ".join(f"`{name}`" for name in missing[:3])
        problems.append(f"optimizer `{kind}`: needs to have {listed}; set `requires_grad` to False for what is not to be trained")
    return grouped(objective, optimizer, row, problems)


def base_group(optimizer: Any) -> Settings:
    """The group of parameters whose learning rate is the engine's: that with the largest, so that factors are at most 1."""
    group: Settings = max(optimizer.param_groups, key=lambda group: float(group["lr"]))
    return group


def rate_factor(optimizer: Any, group: Settings) -> float:
    """A group's learning rate as a part of the engine's. Schedulers that keep the ratio change the last bits, which would make another engine."""
    rates = [max(float(it["lr"]), LEAST_RATE) for it in (group, base_group(optimizer))]
    return float(f"{rates[0] / rates[1]:.7g}")


def grouped(objective: Objective, optimizer: Any, row: OptimizerRow, problems: list[str]) -> Settings:
    """The settings of the base group, and what others have in their place."""
    groups, base = optimizer.param_groups, base_group(optimizer)
    same = [*_SAME, *(["momentum"] if any(group.get("dampening") for group in groups) else [])]
    for name in same:
        if any(group.get(name) != base.get(name) for group in groups):
            problems.append(f"optimizer `{type(optimizer).__name__}`: `{name}` needs to be the same for all groups of parameters")
    made = [row.make(group) for group in groups]
    if len({settings["type"] for settings in made}) > 1:
        # Adam without decay is AdamW with a decay of 0.
        made = [{"weight_decay": 0.0, **settings, "type": "AdamW"} for settings in made]
        for settings in made:
            settings.pop("l2_decay", None)
    whole = made[next(idx for idx, group in enumerate(groups) if group is base)]
    for group, settings in zip(groups, made):
        own = {name: value for name, value in settings.items() if value != whole[name]}
        if (factor := rate_factor(optimizer, group)) != 1.0:
            own["learning_rate_factor"] = factor
        if own:
            objective.groups.append((own, [id(parameter) for parameter in group["params"]]))
    return whole

"""The native trainer of a module: traffic of weights, optimizer state and data, and the check of the first batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils import _pytree

from .. import _native
from .._rig import Rig
from .._rows import Feeds, rows_of
from ..errors import DataError, MismatchError, ModelError, NonFiniteError, SettingError, explained, raise_problems
from ._graph import Floats, Graph, Settings, Weight, shape_here
from ._layers import MODULES
from ._loss_reads import Left, Watched
from ._objective import LEAST_RATE, Objective, base_group, convert, grouped, rate_factor
from ._observed import Observed, blame, kept
from ._returned import at, given, is_alike, is_several, moved, paths, placed, tensors
from ._trace import in_modes, trace, training_modes

#: Largest difference to PyTorch, relative where numbers are above 1.
_TOLERANCE = 1e-4
#: Rows of the example that is traced.
_EXAMPLE_ROWS = 5


def _has_same_bits(values: Floats, known: Floats) -> bool:
    """Are they the same, each NaN included? Whole numbers are compared several times as fast."""
    return np.array_equal(np.ascontiguousarray(values).view(np.int32), np.ascontiguousarray(known).view(np.int32))


def _unused(group: Settings) -> dict[str, bool]:
    """State that PyTorch does not keep with these settings."""
    return {"momentum_buffer": not group.get("momentum"), "grad_avg": not group.get("centered"), "max_exp_avg_sq": not group.get("amsgrad")}


class Engine:
    """The native trainer of a module, and the two-way traffic of weights and optimizer state."""

    def __init__(
        self,
        module: nn.Module,
        loss: Any,
        optimizer: torch.optim.Optimizer,
        inputs: list[torch.Tensor],
        targets: Any,
        settings: dict[str, Any],
        seen: dict[Any, Observed] | None,
    ) -> None:
        self._module, self._loss, self._optimizer = module, loss, optimizer
        places = torch.arange(_EXAMPLE_ROWS) % len(inputs[0])
        device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
        self._device = device
        self._unread = frozenset[int]()

        def unread(returned: Any) -> frozenset[int]:
            self._unread = frozenset() if targets is None else self._left_out(returned, targets, places)
            return self._unread

        graph, problems = trace(module, [part[places].to(device) for part in inputs], seen, unread)
        # Of classes there are numbers, or a probability for each.
        shape = tuple(targets.shape[1:]) if isinstance(targets, torch.Tensor) else None
        probabilities = any(tensor.shape == shape for tensor in graph.outputs)
        objective, more = convert(loss, optimizer, dict(module.named_parameters()), probabilities, [tensor.log_axis for tensor in graph.outputs])
        self.graph: Graph = graph
        self.objective: Objective = objective
        self._end(problems)
        #: Outputs as `predict` gives them; `None` where those of evaluation are others than what training has.
        self.predicted: Any = graph.returned
        self._group(problems)
        raise_problems(f"module `{type(module).__name__}`", problems + more, "PyTorch")
        objective.settings.update(settings)
        self._of_groups = self._settings_of_groups()
        self.rate = 0.0
        #: Has the output of a batch been compared with PyTorch's? And the loss?
        self.is_compared = self.is_checked = False
        self.is_ahead = False
        self._left = Left(module)
        # Weights and state that both have.
        self._known: dict[str, Floats] = {}
        self._known_state: dict[str, Floats] = {}
        self._steps = 0
        #: Has `SGD` momentum from an earlier step?
        self._has_momentum = False

    def made_of(self) -> Any:
        """What the native trainer was made of, to compare."""
        tensors = {name: [id(tensor) for tensor in weight.tensors] for name, weight in self.graph.weights.items()}
        weights = self.objective.class_weights
        # Buffers, and what forward computes of them.
        constants = {name: values.tobytes() for name, values in self.graph.constants.items()}
        end = self.graph.returned, self._unread, None if weights is None else weights.tolist()
        return self.graph.config(), self.objective.settings, tensors, constants, end

    def _end(self, problems: list[str]) -> None:
        """Puts classes last, and numbers as PyTorch has them where they were made flat."""
        inputs = [tensor.name for tensor in self.graph.inputs]
        for place, output in enumerate(self.graph.outputs):
            if self.objective.has_classes and len(self.graph.outputs) == 1:
                output = self.graph.ordered(output, (*range(1, len(output.shape)), 0))
            elif output.flat is not None:
                output = self.graph.plain(output)
            self.graph.outputs[place] = output
            if self.objective.sums_columns:
                self.objective.settings["loss_weights"][0] *= shape_here(output)[-1]
            if output.name in inputs:
                problems.append(f"forward: needs to compute something of its inputs, but returns `{output.name}` as it is: make it a target")
        if self.objective.by_torch:
            self.objective.of_outputs(len(self.graph.output_names()))

    def _group(self, problems: list[str]) -> None:
        """Tells the engine of weights in groups with settings of their own."""
        groups = []
        for own, held in self.objective.groups:
            parts = {name: [id(tensor) in held for tensor in weight.tensors] for name, weight in self.graph.weights.items()}
            problems += [
                f"weight `{name}`: holds parameters of two groups with other settings, which is not supported"
                for name, of in parts.items()
                if any(of) and not all(of)
            ]
            if names := [name for name, of in parts.items() if all(of)]:
                groups.append({"parameters": names, **own})
        missed, named = self._missed_steps(), {name for group in groups for name in group["parameters"]}
        groups.append({"parameters": [name for name, steps in missed.items() if steps and name not in named]})
        parted = []
        for group in groups:
            for steps in sorted({missed.get(name, 0) for name in group["parameters"]}):
                own = {"missed_steps": steps} if steps else {}
                parted.append({**group, "parameters": [name for name in group["parameters"] if missed.get(name, 0) == steps], **own})
        if parted:
            self.objective.settings["optimizer"]["groups"] = parted

    def _missed_steps(self) -> dict[str, int]:
        """By the name of each weight, steps that it did not take part in, such as while it was frozen, where the optimizer reads them."""
        if self.objective.row is None or not self.objective.row.reads_steps:
            return {}
        done = {name: max(map(self._steps_of, weight.tensors)) for name, weight in self._trained()}
        return {name: max(done.values()) - steps for name, steps in done.items()}

    def open(self, rig: Rig, steps: int) -> None:
        """Makes the native trainer, which goes on after so many steps."""
        self._steps = steps
        names = self.graph.names()
        rig = rig.placed(names, names)
        self.native = _native.Trainer(json.dumps(self.graph.config()), json.dumps(self.objective.settings), rig.json())
        self.native.set_tensors(self.graph.constants, {}, 0)
        inputs = [(tensor.name, shape_here(tensor)) for tensor in self.graph.inputs]
        self._feeds = Feeds(inputs, [name for name, _ in inputs], self.graph.output_names())

    # Data.

    def rows(self, x: Any, y: Any) -> _native.Rows:
        """Rows as the engine takes them: axes in its order, and weights of classes as those of rows. `y` are targets of one output."""
        inputs = [_reordered(part, tensor.order) for part, tensor in zip(listed(x), self.graph.inputs)]
        if len(listed(x)) != len(self.graph.inputs):
            problem = f"need {len(self.graph.inputs)} inputs, but have {len(listed(x))}"
            raise DataError(explained("the data", problem, "give one array for each argument of forward"))
        if y is None:
            return rows_of(self._feeds, inputs, None, None, needs_targets=False)
        if is_several(y, len(inputs[0])):
            problem = f"need to be one array for a loss of `torch.nn`, but are `{type(y).__name__}`"
            raise DataError(explained("targets", problem, "give `loss` a function of outputs and targets"))
        targets, weights = _array(y), None
        if not self.objective.has_numbers:
            self._check_shape(targets)
            targets = _reordered(targets, self.graph.outputs[0].order)
        if self.objective.class_weights is not None:
            weights = self._weights(targets)
        return rows_of(self._feeds, inputs, targets, weights, needs_targets=True)

    def _check_shape(self, targets: NDArray[Any]) -> None:
        """Raises for targets of another shape than outputs: PyTorch would repeat the one along the other, or refuse them."""
        needed = [len(targets), *self.graph.outputs[0].shape]
        if list(targets.shape) != needed:
            problem = f"need the shape of the output, {needed}, but have {list(targets.shape)}: PyTorch would broadcast or refuse them"
            help = "`unsqueeze(-1)` the targets or `squeeze(-1)` the output, where an axis of 1 is all that differs"
            raise DataError(explained("targets", problem, help))

    def _weights(self, targets: NDArray[Any]) -> NDArray[Any]:
        weights = self.objective.class_weights
        assert weights is not None
        if targets.ndim > 1:
            help = "train it without weights of classes"
            raise DataError(explained("`weight` of the loss", "needs one class a row, but targets have more axes", help))
        ignored = self.objective.ignored_class
        targets = np.where(targets == ignored, 0, targets)
        if targets.size and not 0 <= int(targets.min()) <= int(targets.max()) < len(weights):
            problem = f"need to be from 0 to {len(weights) - 1}, but are from {targets.min()} to {targets.max()}"
            raise DataError(explained("classes of the targets", problem, "give the loss a weight for each class"))
        chosen: NDArray[Any] = weights[targets.astype(np.int64)]
        return chosen

    def outputs(self, flats: list[Floats]) -> list[torch.Tensor]:
        """Outputs as PyTorch gives them."""
        return given(self.graph, list(map(torch.from_numpy, flats)))

    # Losses that PyTorch computes.

    def step_by_torch(self, x: Any, targets: Any) -> float:
        """A step whose loss PyTorch computes on the outputs of the adapters."""
        flats = self.native.forward(_native.Batch(self.rows(x, None)))
        outputs = [torch.from_numpy(flat).to(self._device).requires_grad_() for flat in flats]
        loss = self._loss_of(given(self.graph, outputs), targets)
        if loss.dim():
            problem = f"needs to give one number, but gives {list(loss.shape)}"
            raise SettingError(explained("the loss", problem, "take the mean of its rows"))
        _check_finite(loss)
        gradients = torch.autograd.grad(loss, outputs, allow_unused=True)
        self._check_read([gradient is not None for gradient in gradients])
        self.native.begin(_native.Batch(self._rows_to(x, outputs, gradients)), self.step_rate())
        self.native.end()
        return float(loss.detach())

    def _rows_to(self, x: Any, outputs: list[torch.Tensor], gradients: Sequence[torch.Tensor | None]) -> _native.Rows:
        """Rows with the gradient of each output: zeros for those that the loss does not read."""
        inputs = [_reordered(part, tensor.order) for part, tensor in zip(listed(x), self.graph.inputs)]
        shapes = {tensor.name: shape_here(tensor) for tensor in reversed(self.graph.outputs)}
        slopes = [torch.zeros_like(output) if slope is None else slope for output, slope in zip(outputs, gradients)]
        targets = [_array(slope).reshape(len(inputs[0]), *shapes[name]) for name, slope in zip(self.graph.output_names(), slopes)]
        return rows_of(self._feeds, inputs, targets, None, needs_targets=True)

    def _left_out(self, returned: Any, targets: Any, places: torch.Tensor) -> frozenset[int]:
        """Numbers of the tensors in what forward returns that the loss does not read: layers before these alone do not learn."""
        leaves, structure = _pytree.tree_flatten(returned)
        floats = {place: leaf for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()}
        read = {place: leaf.detach().requires_grad_() for place, leaf in floats.items()}
        if len(read) < 2:
            return frozenset()
        leaves = [read.get(place, leaf) for place, leaf in enumerate(leaves)]
        try:
            with kept(self._module), torch.enable_grad():
                loss = self._loss(_pytree.tree_unflatten(leaves, structure), moved(at(targets, places), self._device))
                slopes = torch.autograd.grad(loss, list(read.values()), allow_unused=True)
        except Exception:
            # Such as a loss for batches of one size: it is told of at its first step, or reads all.
            return frozenset()
        return frozenset(place for place, slope in zip(read, slopes) if slope is None)

    def _check_read(self, is_read: list[bool]) -> None:
        """Raises for a loss that reads other outputs than at first: PyTorch would leave out the update of layers before these alone."""
        leaves = [place for place, leaf in enumerate(_pytree.tree_leaves(self.graph.returned)) if leaf is not None]
        expected = {tensor.name for place, tensor in zip(leaves, self.graph.outputs) if place not in self._unread}
        wrong = [name for name, is_one in zip(self.graph.output_names(), is_read) if is_one != (name in expected)]
        if wrong:
            problem = f"reads the output of `{wrong[0]}` in some batches alone, and PyTorch does not update layers without a gradient"
            raise SettingError(explained("the loss", problem, "multiply its term by 0 where it shall not count, or change the loss in `on_epoch`"))

    def loss_by_torch(self, x: Any, targets: Any) -> float:
        """The loss of a batch in evaluation mode."""
        outputs = self.outputs(self.native.predict(_native.Batch(self.rows(x, None))))
        return float(self._loss_of(moved(outputs, self._device), targets).detach())

    def _loss_of(self, outputs: list[torch.Tensor], targets: Any) -> Any:
        """PyTorch's loss of outputs and targets alone.

        Raises:
            ModelError: If it reads what adapters change, or would have to.
        """
        with Watched({**self._left.names(), **self._changing()}):
            return self._loss(outputs[0] if self.objective.of_tensor else placed(self.graph.returned, outputs), moved(targets, self._device))

    def _changing(self) -> dict[int, str]:
        """Tensors that a step changes, by identity: PyTorch has their values of the last epoch, and would lose their gradients."""
        held = [(parameter, "a parameter of the optimizer") for group in self._optimizer.param_groups for parameter in group["params"]]
        held += [(parameter, f"the parameter `{name}`") for name, parameter in self._module.named_parameters()]
        statistics = {id(tensor) for weight in self.graph.weights.values() if not weight.is_trained for tensor in weight.tensors}
        buffers = {id(it): f"the buffer `{name}`" for name, it in self._module.named_buffers() if id(it) in statistics}
        return buffers | {id(parameter): name for parameter, name in held if parameter.requires_grad}

    # Weights.

    def push(self) -> None:
        """Gives the adapters what others have done to weights, buffers or the optimizer's state."""
        changed = {}
        for name, weight in self.graph.weights.items():
            values = weight.read()
            if name not in self._known or not _has_same_bits(values, self._known[name]):
                changed[name] = self._known[name] = values
        self._check_dampened()
        steps, state = self._steps_there(), self._state_there()
        moved = {name: values for name, values in state.items() if not np.array_equal(values, self._known_state.get(name, 0.0))}
        if changed or moved or steps != self._steps:
            self._steps = steps
            self._known_state.update(moved)
            scaled = {name: values * self._scale(name) for name, values in moved.items()}
            self.native.set_tensors(changed, scaled, steps)

    def pull(self) -> None:
        """Gives PyTorch weights, buffers and the optimizer's state, if the adapters have trained since."""
        if not self.is_ahead:
            return
        tensors, state = self.native.state()
        for name, weight in self.graph.weights.items():
            weight.write(tensors[name])
            self._known[name] = tensors[name]
        steps, self._steps = self.native.step - self._steps, self.native.step
        with torch.no_grad():
            for counter in self.graph.counters:
                counter += steps
        self._write_state(state, steps)
        self._tell_scheduler()
        self.is_ahead = False

    def take_rate(self) -> None:
        """The learning rate of the optimizer. PyTorch's momentum does not contain it, and the engine's does: it is scaled."""
        rate = float(base_group(self._optimizer)["lr"])
        before, self.rate = self.rate, max(rate, LEAST_RATE)
        if before and before != self.rate and self._scaled():
            _, state = self.native.state()
            kinds = tuple(f"{kind}/" for kind in self._scaled())
            moved = {name: values * np.float32(self.rate / before) for name, values in state.items() if name.startswith(kinds)}
            self.native.set_tensors({}, moved, self.native.step)

    def after_step(self, on_step: Callable[[int], Any], step: int) -> None:
        """Lets a program change rates between two steps.

        Raises:
            SettingError: If it changes more, for which another engine would have to be made.
        """
        self._tell_scheduler()
        on_step(step)
        # Rates of 0 have no factor.
        if any(group["lr"] for group in self._optimizer.param_groups) and self._settings_of_groups() != self._of_groups:
            problem = "may change learning rates, those of all groups of parameters by one factor, but has changed more"
            help = "a scheduler that changes other settings steps in `on_epoch`; `OneCycleLR` and `CyclicLR` leave them with `cycle_momentum=False`"
            raise SettingError(explained("`on_step`", problem, help))
        self.take_rate()

    def _tell_scheduler(self) -> None:
        """Steps have been done, though not by a method of the optimizer: a scheduler of PyTorch would warn of a rate that is skipped."""
        self._optimizer._opt_called = True

    def _settings_of_groups(self) -> Any:
        """Settings of the optimizer's groups, but the rate of the first."""
        made, problems = Objective(), list[str]()
        assert self.objective.row is not None
        return grouped(made, self._optimizer, self.objective.row, problems), made.groups, problems

    @property
    def is_scaled(self) -> bool:
        """Does the state contain the learning rate? Then a new rate is for steps that begin behind the end of all others."""
        return bool(self._scaled())

    @property
    def is_dampened(self) -> bool:
        """Does the momentum of `SGD` take a part of each gradient only?"""
        group = self._optimizer.param_groups[0]
        return bool(group.get("dampening")) and bool(group.get("momentum"))

    def step_rate(self) -> float:
        """The rate of the next step. Momentum that is dampened takes the first gradient as a whole, which is as good as a larger rate."""
        is_first, self._has_momentum = not self._has_momentum, True
        if is_first or not self.is_dampened:
            return self.rate
        return self.rate * (1.0 - float(self._optimizer.param_groups[0]["dampening"]))

    def _check_dampened(self) -> None:
        """Notes whether momentum has begun, which it has to for all weights at once if it is dampened."""
        tensors = [tensor for _, weight in self._trained() for tensor in weight.tensors]
        begun = {isinstance(self._optimizer.state[tensor].get("momentum_buffer"), torch.Tensor) for tensor in tensors}
        self._has_momentum = True in begun
        if self.is_dampened and len(begun) > 1:
            problem = "needs all parameters to have trained before, or none, but some have"
            raise SettingError(explained("`dampening` of `SGD`", problem, "make the optimizer anew"))

    def _scaled(self) -> list[str]:
        """Kinds of state that contain the learning rate."""
        row = self.objective.row
        return [kind for kind, (_, sign) in row.state.items() if sign is not None] if row else []

    def _trained(self) -> Iterator[tuple[str, Weight]]:
        for name, weight in self.graph.weights.items():
            if weight.is_trained and all(tensor.requires_grad for tensor in weight.tensors):
                yield name, weight

    def check_learns(self) -> None:
        """Raises `SettingError` if no parameter learns: PyTorch has no gradient then, and its `backward` raises."""
        if not any(parameter.requires_grad for parameter in self._module.parameters()):
            problem = "needs a parameter that learns, but `requires_grad` is False for all"
            raise SettingError(explained(f"module `{type(self._module).__name__}`", problem, "call `requires_grad_(True)` of what is to learn"))

    def check_steps(self) -> None:
        """Raises `SettingError` if parameters that are one weight here have done different numbers of steps and the optimizer reads these."""
        row, names = self.objective.row, {id(parameter): name for name, parameter in self._module.named_parameters()}
        for _, weight in self._trained():
            steps = {names.get(id(it), ""): self._steps_of(it) for it in weight.tensors}
            if row is None or not row.reads_steps or len(set(steps.values())) < 2:
                continue
            least, most = (pick(steps, key=steps.__getitem__) for pick in (min, max))
            problem = f"needs as many steps for each parameter of a module, but has done {steps[least]} with `{least}` and {steps[most]} with `{most}`"
            raise SettingError(explained(f"optimizer `{type(self._optimizer).__name__}`", problem, "make the optimizer anew"))

    def _steps_there(self) -> int:
        """Steps that the optimizer has done with what learns. `SGD` does not count them: there they are the engine's."""
        row = self.objective.row
        if row is None or not row.after(self._optimizer.param_groups[0], 1):
            return self._steps
        return max((self._steps_of(tensor) for _, weight in self._trained() for tensor in weight.tensors), default=self._steps)

    def _steps_of(self, parameter: torch.Tensor) -> int:
        """Steps that the optimizer has done with a parameter."""
        return int(self._optimizer.state.get(parameter, {}).get("step", 0))

    def _state_there(self) -> dict[str, Floats]:
        """The optimizer's state by the engine's names, in PyTorch's measure."""
        found, row = {}, self.objective.row
        for name, weight in self._trained():
            for kind, (key, _) in (row.state if row else {}).items():
                parts = [self._optimizer.state[tensor].get(key) for tensor in weight.tensors]
                if all(isinstance(part, torch.Tensor) for part in parts):
                    found[f"{kind}/{name}"] = weight.read(parts)
        return found

    def _scale(self, name: str) -> np.float32:
        """Factor from PyTorch's state to the engine's, which contains the learning rate where it is a momentum."""
        sign = self.objective.row.state[name.split("/")[0]][1] if self.objective.row else None
        if not self.rate:
            self.rate = max(float(base_group(self._optimizer)["lr"]), LEAST_RATE)
        if sign is None:
            return np.float32(1.0)
        group = self._group_of(self.graph.weights[name.split("/", 1)[1]].tensors[0])
        return np.float32(sign * self.rate * rate_factor(self._optimizer, group))

    def _group_of(self, tensor: torch.Tensor) -> Settings:
        """The optimizer's group of a parameter."""
        groups: list[Settings] = self._optimizer.param_groups
        return next(group for group in groups if any(it is tensor for it in group["params"]))

    def _write_state(self, state: dict[str, Floats], steps: int) -> None:
        """Gives PyTorch the optimizer's state behind so many more steps."""
        row = self.objective.row
        if row is None:
            return
        for name, weight in self._trained():
            group = self._group_of(weight.tensors[0])
            unused = _unused(group)
            for kind, (key, _) in row.state.items():
                if unused.get(key):
                    continue
                parts = [self._optimizer.state[tensor] for tensor in weight.tensors]
                for part, tensor in zip(parts, weight.tensors):
                    if not isinstance(part.get(key), torch.Tensor):
                        part[key] = torch.zeros_like(tensor, memory_format=torch.preserve_format)
                place = f"{kind}/{name}"
                self._known_state[place] = state[place] / self._scale(place)
                weight.write(self._known_state[place], [part[key] for part in parts])
            for tensor in weight.tensors:
                after = row.after(group, self._steps_of(tensor) + steps)
                self._optimizer.state[tensor].update({key: torch.tensor(value) for key, value in after.items()})

    # The check.

    def check(self, inputs: list[torch.Tensor], targets: Any) -> None:
        """Compares what PyTorch and the adapters say of a batch in evaluation mode.

        Raises:
            MismatchError: If they differ by more than 1e-4.
        """
        modes = dict.fromkeys(training_modes(self._module), False)
        with kept(self._module, attributes=False), in_modes(self._module, modes), torch.no_grad():
            self._left = Left(self._module)
            expected = self._expected(inputs)
            self._left.note()
            is_given = targets is None or self.objective.by_torch
            batch = _native.Batch(self.rows(inputs, None if is_given else targets), None if is_given else self.native.check())
            found = self.outputs(self.native.predict(batch))
            on_device = [part.to(self._device) for part in inputs]
            for path, ours, theirs in zip(paths(self.graph.returned, none=False), found, expected):
                who = f"the output `{path}`" if path else "the output"
                _compare(who, ours, theirs.cpu(), lambda: blame(self._module, on_device, training_modes(self._module)))
            self.is_compared = True
            self.is_checked = self.objective.by_torch
            if self.is_checked:
                # The loss is PyTorch's own.
                return
            if targets is None or self._is_ignored(targets):
                return
            targets = targets.to(self._device)
            loss = self._loss(expected[0], targets.long() if self.objective.has_numbers else targets)
        _check_finite(loss)
        _compare("the loss", torch.tensor(dict(self.native.test(batch))["loss"]), loss.cpu(), lambda: None)
        self.is_checked = True

    def _expected(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """What the module returns, in evaluation mode. Where that has another structure, its parts compute so, and it has that of training."""

        def called() -> Any:
            # A copy: the module may change it in place.
            return self._module(*(part.to(self._device, copy=True) for part in inputs))

        found = called()
        if is_alike(found, self.graph.returned):
            return tensors(found)
        modes = training_modes(self._module)
        parts = dict(self._module.named_modules())
        with in_modes(self._module, {name: mode and type(parts[name]) not in MODULES for name, mode in modes.items()}):
            expected = called()
        if not is_alike(expected, self.graph.returned):
            problem = f"needs to return what it returns in a trace, but returns `{type(expected).__name__}`"
            raise MismatchError(explained("forward", problem, "nothing was trained; please report the module: this is an error of manyhands_ml"))
        self.predicted = _among(found, tensors(expected))
        return tensors(expected)

    def check_predicts(self) -> None:
        """Raises `ModelError` if it is not known which outputs evaluation has."""
        if self.predicted is None:
            problem = "returns something else in evaluation mode than in training, which training's outputs do not tell apart"
            raise ModelError(explained("forward", problem, "call the module itself: it has the weights after `fit`"))

    def _is_ignored(self, targets: torch.Tensor) -> bool:
        """Do no targets count? Then PyTorch's loss is not a number."""
        return self.objective.ignored_class is not None and bool((targets == self.objective.ignored_class).all())


def _among(found: Any, outputs: list[torch.Tensor]) -> Any:
    """A structure with the number of the output that each tensor in it is; `None` if one is none of them, or might be several."""
    leaves, structure = _pytree.tree_flatten(found)
    equal = [[place for place, it in enumerate(outputs) if isinstance(leaf, torch.Tensor) and torch.equal(leaf, it)] for leaf in leaves]
    if any(len(places) != (leaf is not None) for leaf, places in zip(leaves, equal)):
        return None
    return _pytree.tree_unflatten([places[0] if places else None for places in equal], structure)


def _check_finite(loss: torch.Tensor) -> None:
    if not torch.isfinite(loss):
        problem = f"needs to be finite, but PyTorch, too, computes {loss.item()} for the first rows"
        help = "nothing was trained; look for targets or weights that are too large, or a logarithm of 0"
        raise NonFiniteError(explained("the loss", problem, help))


def _compare(who: str, ours: torch.Tensor, theirs: torch.Tensor, blame: Callable[[], str | None]) -> None:
    """Raises for a difference, with the reason where there is one in the module."""
    ours, theirs = ours.double(), theirs.double()
    same = ours.shape == theirs.shape
    worst = float(((ours - theirs).abs() / theirs.abs().clamp(min=1.0)).max()) if same else float("nan")
    if not worst <= _TOLERANCE:
        problem = f"needs to be as PyTorch computes it, but differs by {worst:.2g} (at most {_TOLERANCE:g} is rounding)"
        help = blame() or "please report the module: this is an error of manyhands_ml"
        raise MismatchError(explained(who, problem, f"nothing was trained; {help}"))


def listed(x: Any) -> list[Any]:
    """The inputs of a batch, one after the other."""
    return list(x) if isinstance(x, (list, tuple)) else [x]


def _array(values: Any) -> NDArray[Any]:
    array: NDArray[Any] = np.asarray(values.detach().cpu() if isinstance(values, torch.Tensor) else values)
    return array


def _reordered(values: Any, order: tuple[int, ...]) -> NDArray[Any]:
    """Rows with their axes in another order: a view, which costs nothing yet."""
    array = _array(values)
    if array.ndim != len(order) + 1 or order == tuple(range(len(order))):
        return array
    return array.transpose(0, *(axis + 1 for axis in order))

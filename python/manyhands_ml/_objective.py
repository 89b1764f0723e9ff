"""Losses, metrics and optimizers of Keras as those of the engine, and heads that losses on logits take off."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from ._compiled import Compiled
from ._nodes import Graph, Node
from ._layers import Settings
from ._settings import OF_LOSSES, OF_METRICS, is_of_keras, of_dtype, of_optimizer, of_process

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class LossRow:
    """A loss of Keras: its settings that the engine has, and those that must have a value."""

    #: Function that the loss expects before it, where it takes no logits.
    head: str | None = None
    take: tuple[str, ...] = ()
    need: dict[str, Any] = field(default_factory=dict)
    #: Metrics that the engine reports with it, by class: their name there.
    metrics: dict[str, str] = field(default_factory=dict)
    #: Whether targets have the shape of the output, as metrics that are counted need it.
    is_dense: bool = True


_TOP_K = "top_k"
_ABSOLUTE = {"MeanAbsoluteError": "mean_absolute_error"}

#: Losses by their class in Keras, which is their type in the engine.
LOSSES: dict[str, LossRow] = {
    "SparseCategoricalCrossentropy": LossRow(
        head="softmax",
        need={"ignore_class": None, "axis": -1},
        metrics={"SparseCategoricalAccuracy": "accuracy", "SparseTopKCategoricalAccuracy": _TOP_K},
        is_dense=False,
    ),
    "CategoricalCrossentropy": LossRow(
        head="softmax",
        take=("label_smoothing",),
        need={"axis": -1},
        metrics={"CategoricalAccuracy": "accuracy", "TopKCategoricalAccuracy": _TOP_K},
    ),
    "BinaryCrossentropy": LossRow(
        head="sigmoid",
        take=("label_smoothing",),
        need={"axis": -1},
        metrics={"BinaryAccuracy": "accuracy"},
    ),
    "CategoricalFocalCrossentropy": LossRow(
        head="softmax",
        take=("alpha", "gamma", "label_smoothing"),
        need={"axis": -1},
        metrics={"CategoricalAccuracy": "accuracy", "TopKCategoricalAccuracy": _TOP_K},
    ),
    "BinaryFocalCrossentropy": LossRow(
        head="sigmoid",
        take=("apply_class_balancing", "alpha", "gamma", "label_smoothing"),
        need={"axis": -1},
        metrics={"BinaryAccuracy": "accuracy"},
    ),
    "MeanSquaredError": LossRow(metrics=_ABSOLUTE),
    "MeanAbsoluteError": LossRow(metrics=_ABSOLUTE),
    "Huber": LossRow(take=("delta",), metrics=_ABSOLUTE),
    "LogCosh": LossRow(metrics=_ABSOLUTE),
    "Poisson": LossRow(metrics=_ABSOLUTE),
    "KLDivergence": LossRow(metrics=_ABSOLUTE),
    "CosineSimilarity": LossRow(take=("axis",), metrics=_ABSOLUTE),
    "Hinge": LossRow(),
    "SquaredHinge": LossRow(),
    "CategoricalHinge": LossRow(metrics={"CategoricalAccuracy": "accuracy", "TopKCategoricalAccuracy": _TOP_K}),
}


@dataclass(frozen=True)
class MetricRow:
    """A metric of Keras that the engine counts over the whole dataset: its name there, and settings as of a loss."""

    engine: str
    take: tuple[str, ...] = ()
    need: dict[str, Any] = field(default_factory=dict)


#: Metrics by their class in Keras. They see the output of the Keras model, and here probabilities: `_on_logits` goes between.
METRICS: dict[str, MetricRow] = {
    "Precision": MetricRow("precision", ("thresholds", "top_k", "class_id")),
    "Recall": MetricRow("recall", ("thresholds", "top_k", "class_id")),
    "F1Score": MetricRow("f1_score", ("average", "threshold")),
    "AUC": MetricRow(
        "auc",
        ("num_thresholds", "curve", "summation_method"),
        {"thresholds": None, "multi_label": False, "num_labels": None, "label_weights": None},
    ),
    "BinaryAccuracy": MetricRow("binary_accuracy", ("threshold",)),
    "CategoricalAccuracy": MetricRow("categorical_accuracy"),
    "MeanAbsoluteError": MetricRow("mean_absolute_error"),
    "MeanSquaredError": MetricRow("mean_squared_error"),
    "RootMeanSquaredError": MetricRow("root_mean_squared_error"),
    "R2Score": MetricRow("r2_score", ("class_aggregation",), {"num_regressors": 0}),
    "LogCoshError": MetricRow("logcosh"),
    "Poisson": MetricRow("poisson"),
    "KLDivergence": MetricRow("kl_divergence"),
    "Hinge": MetricRow("hinge"),
    "SquaredHinge": MetricRow("squared_hinge"),
    "CategoricalHinge": MetricRow("categorical_hinge"),
    "CosineSimilarity": MetricRow("cosine_similarity", need={"axis": -1}),
}

#: Settings of Keras' optimizers that must have these values.
_PLAIN = {
    "loss_scale_factor": None,
}

#: Settings of Keras' optimizers that change no result, and why.
FREE = {"relative_step": "Adafactor takes the smaller of `learning_rate` and `1 / sqrt(step)` with both values"}

#: The same setting where Keras has None for it.
_ZERO = ("weight_decay", "adam_weight_decay", "rms_rate")

#: Optimizers by class: settings that the engine has, and the attributes of Keras that hold the state of each kind.
_OF_ADAM = {"momentum": "_momentums", "velocity": "_velocities", "velocity_hat": "_velocity_hats"}
OPTIMIZERS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "SGD": (("momentum", "nesterov"), {"momentum": "momentums"}),
    "Adam": (("beta_1", "beta_2", "epsilon", "amsgrad"), _OF_ADAM),
    "AdamW": (("beta_1", "beta_2", "epsilon", "amsgrad"), _OF_ADAM),
    "Nadam": (("beta_1", "beta_2", "epsilon"), {"momentum": "_momentums", "velocity": "_velocities"}),
    "Adamax": (("beta_1", "beta_2", "epsilon"), {"momentum": "_m", "norm": "_u"}),
    "Lion": (("beta_1", "beta_2"), {"momentum": "_momentums"}),
    "Adagrad": (("initial_accumulator_value", "epsilon"), {"accumulator": "_accumulators"}),
    "Adadelta": (
        ("rho", "epsilon"),
        {"accumulated_grad": "_accumulated_grads", "accumulated_delta_var": "_accumulated_delta_vars"},
    ),
    "Ftrl": (
        (
            "learning_rate_power", "initial_accumulator_value", "l1_regularization_strength", "l2_regularization_strength",
            "l2_shrinkage_regularization_strength", "beta",
        ),
        {"accumulator": "_accumulators", "linear": "_linears"},
    ),
    "RMSprop": (
        ("rho", "momentum", "epsilon", "centered"),
        {"velocity": "_velocities", "momentum": "_momentums", "average_gradient": "_average_gradients"},
    ),
    "Adafactor": (("beta_2_decay", "epsilon_1", "epsilon_2", "clip_threshold"), {"r": "_r", "c": "_c", "v": "_v"}),
    "Muon": (
        (
            "adam_beta_1", "adam_beta_2", "adam_weight_decay", "epsilon", "exclude_layers", "exclude_embeddings", "muon_a", "muon_b",
            "muon_c", "adam_lr_ratio", "momentum", "ns_steps", "nesterov", "rms_rate",
        ),
        {"momentum": "momentums", "velocity": "adam_velocities"},
    ),
}


#: State of each variable that every optimizer can keep: the average of its values, and sums of gradients.
AVERAGE = {"average": "_model_variables_moving_average"}
SUMS = {"gradient_accumulator": "_accumulated_gradients"}


def state_attributes(optimizer: Any) -> dict[str, str]:
    """The attributes of a Keras optimizer that hold the state of each kind."""
    sums = SUMS if optimizer.gradient_accumulation_steps else {}
    return {**OPTIMIZERS[type(optimizer).__name__][1], **sums, **(AVERAGE if optimizer.use_ema else {})}


def tell_step(optimizer: Any, step: int) -> None:
    """Keras' optimizer is as after so many steps, but for the state of variables."""
    # Keras counts updates from it where several steps make one.
    optimizer._iterations.assign(step)
    if type(optimizer).__name__ == "Nadam":
        # What Keras multiplies step by step.
        steps = np.arange(1, int(optimizer.iterations) + 1, dtype=np.float64)
        optimizer._u_product.assign(np.prod(optimizer.beta_1 * (1 - 0.5 * 0.96**steps)))


@dataclass
class LogName:
    """A number of Keras' logs: its name there and in the engine's values."""

    keras: str
    engine: str


@dataclass
class Objective:
    """What training is for, as the engine reads it."""

    settings: dict[str, Any]
    #: The numbers in the logs.
    names: list[LogName]
    #: The function that was taken off each output, and that predictions get back.
    heads: list[str | None]
    #: Whether a loss or a metric reads the target of each output.
    reads: list[bool]
    #: Why Keras computes loss and metrics; empty where the engine does.
    by_keras: list[str] = field(default_factory=list)

    def json(self) -> str:
        """The form that the engine reads."""
        return json.dumps(self.settings)


def convert(
    model: keras.Model,
    graph: Graph,
    outputs: list[str],
    compiled: Compiled,
    batch_statistics: str,
    seed: int,
) -> tuple[Objective, list[str]]:
    """The objective of a compiled model, and what is wrong with it. Takes heads off the graph.

    Where the engine lacks a loss, a metric or one of their settings, Keras computes them all from the outputs.
    """
    reader, own = _Reader(outputs), graph.copy()
    reader.problems += of_process()
    if compiled.weights_by_position:
        reader.by_keras.append("`sample_weight` by position or by output")
    if compiled.weighted_metrics:
        reader.by_keras.append("`weighted_metrics`")
    if compiled.metrics_of_lists:
        reader.by_keras.append("metrics of outputs within a list or dict")
    for output, tensor, metrics in zip(outputs, model.outputs, compiled.metrics):
        if metrics and len(tensor.shape) == 1:
            # There a metric is a mean over rows, of which Keras takes the mean over batches.
            reader.by_keras.append(f"metrics of `{output}`: its rows are single numbers")
    rows = [reader.loss(output, loss) for output, loss in zip(outputs, compiled.losses)]
    heads = [reader.head(own, idx, settings, logits) for idx, (settings, logits, _) in enumerate(rows)]
    names, wanted = reader.metrics(own, [(settings["type"], logits) for settings, logits, _ in rows], compiled)
    reductions = {reduction for (_, _, reduction), loss in zip(rows, compiled.losses) if loss is not None}
    if len(reductions) > 1:
        reader.by_keras.append(f"losses with several reductions: {sorted(reductions)}")
    optimizer, clip_norm = reader.optimizer(model.optimizer, graph)
    if reader.by_keras:
        return _by_keras(model, reader, optimizer, clip_norm, batch_statistics, seed)
    graph.nodes, graph.outputs = own.nodes, own.outputs
    settings = {
        "optimizer": optimizer,
        "losses": [settings for settings, _, _ in rows],
        "loss_weights": compiled.loss_weights,
        "metrics": wanted,
        "reduction": next(iter(reductions), "sum_over_batch_size"),
        "clip_norm": clip_norm,
        "batch_statistics": batch_statistics,
        "seed": seed,
    }
    reads = [loss is not None or bool(metrics) for loss, metrics in zip(compiled.losses, compiled.metrics)]
    return Objective(settings, names, heads, reads), reader.problems


def _by_keras(
    model: keras.Model, reader: _Reader, optimizer: Settings, clip_norm: float | None, batch_statistics: str, seed: int
) -> tuple[Objective, list[str]]:
    """The objective of a model whose loss and metrics Keras computes."""
    outputs = reader.outputs
    for name, tensor in zip(outputs, model.outputs):
        if getattr(tensor, "_keras_mask", None) is not None:
            reader.problems += [f"{reason}: is not supported for the output `{name}`, which has a mask" for reason in reader.by_keras]
    settings: Settings = {
        "optimizer": optimizer,
        "losses": [{"type": "GivenGradient"}] * len(outputs),
        # The engine's own loss is that of penalties alone.
        "loss_weights": [0.0] * len(outputs),
        "metrics": [[]] * len(outputs),
        "reduction": "sum_over_batch_size",
        "clip_norm": clip_norm,
        "batch_statistics": batch_statistics,
        "seed": seed,
    }
    # Weights of 0 are those of outputs without a loss, too: each target is read.
    return Objective(settings, [], [None] * len(outputs), [True] * len(outputs), reader.by_keras), reader.problems


def apply_head(head: str | None, logits: Floats) -> Floats:
    """What Keras' model gives: the function that was taken off, applied again."""
    if head == "softmax":
        shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
        probabilities: Floats = shifted / shifted.sum(axis=-1, keepdims=True)
        return probabilities
    if head == "sigmoid":
        # exp of what is at most 0: nothing overflows.
        small = np.exp(-np.abs(logits))
        return np.where(logits >= 0, 1 / (1 + small), small / (1 + small)).astype(np.float32)
    return logits


class _Reader:
    def __init__(self, outputs: list[str]) -> None:
        self.outputs = outputs
        self.problems: list[str] = []
        #: What the engine lacks, and Keras computes.
        self.by_keras: list[str] = []

    def loss(self, output: str, loss: Any) -> tuple[Settings, bool, str]:
        """Type and settings of a loss, whether it takes logits, and its reduction."""
        who = f"loss of `{output}`"
        if loss is None:
            # It counts by a weight of 0.
            return {"type": "MeanSquaredError"}, True, "sum_over_batch_size"
        kind, config = _named(loss)
        row = LOSSES.get(kind)
        if row is None:
            self.by_keras.append(f"{who}: `{kind}`")
            return {"type": "MeanSquaredError"}, True, "sum_over_batch_size"
        known = {*OF_LOSSES, "from_logits", *row.take}
        self.by_keras += [f"{who}: {problem}" for problem in of_dtype(loss)]
        for key, value in config.items():
            is_listed = key in row.take and np.ndim(value) > 0
            if is_listed or key not in known and value != row.need.get(key):
                self.by_keras.append(f"{who}: `{key}` is {value}")
        reduction = config.get("reduction", "sum_over_batch_size")
        reduction = "sum_over_batch_size" if reduction == "mean" else reduction
        if reduction not in ("sum_over_batch_size", "sum", "mean_with_sample_weight"):
            self.by_keras.append(f"{who}: `reduction` {reduction}")
            reduction = "sum_over_batch_size"
        settings = {"type": kind, **{key: config[key] for key in row.take if key in config}}
        return settings, row.head is None or bool(config.get("from_logits")), reduction

    def head(self, graph: Graph, idx: int, loss: Settings, takes_logits: bool) -> str | None:
        """Takes the function off an output that its loss expects. Gives it, to be put back."""
        needed = LOSSES[loss["type"]].head
        if needed is None:
            return None
        output = graph.outputs[idx]
        node = graph.node(output)
        function = _function(node)
        if takes_logits:
            if function == needed:
                self.problems.append(
                    f"output `{self.outputs[idx]}`: needs logits for `from_logits=True`, but ends in {needed}; leave one of them out"
                )
            return None
        if node is None or function != needed:
            self.problems.append(
                f"output `{self.outputs[idx]}`: needs to end in {needed}, because {loss['type']} takes probabilities; "
                f'add `activation="{needed}"`, or give the loss `from_logits=True`'
            )
            return None
        if graph.n_uses(output) > 1 or graph.n_uses(node.layer_name) > 1 or not node.is_first:
            self.problems.append(f"output `{self.outputs[idx]}`: the layer with its {needed} needs to be used once")
            return None
        if "activity_regularizer" in node.settings:
            self.problems.append(f"output `{self.outputs[idx]}`: `activity_regularizer` behind its {needed} is not supported")
        if node.settings["type"] in ("Activation", "Softmax"):
            graph.outputs[idx] = node.inputs[0]
            graph.nodes.remove(node)
        else:
            node.settings["activation"] = "linear"
        return needed

    def metrics(
        self, graph: Graph, losses: list[tuple[str, bool]], compiled: Compiled
    ) -> tuple[list[LogName], list[list[Any]]]:
        """The numbers in the logs, and what the engine is asked for, for each output."""
        # Keras lists the losses of outputs behind metrics.
        names, of_losses, wanted = [LogName("loss", "loss")], [], []
        for idx, (output, loss) in enumerate(zip(self.outputs, losses)):
            # The engine calls an output as the tensor is called there, without its head.
            prefix = f"{graph.outputs[idx]}_" if len(self.outputs) > 1 else ""
            if (name := compiled.loss_names[idx]) is not None:
                of_losses.append(LogName(name, f"{prefix}loss"))
            asked: list[Any] = []
            for in_log, metric in compiled.metrics[idx]:
                setting = self.metric(output, loss, metric)
                if setting is not None:
                    asked += [setting] if setting not in asked else []
                    names.append(LogName(in_log, prefix + _name(setting)))
            wanted.append(asked)
        return names + of_losses, wanted

    def metric(self, output: str, given: tuple[str, bool], metric: Any) -> Any:
        """The engine's setting of a metric."""
        loss, takes_logits = given
        row = LOSSES[loss]
        kind, config = _named(metric)
        self.by_keras += [f"metric `{kind}` of `{output}`: {problem}" for problem in of_dtype(metric)]
        sees_logits = row.head is not None and takes_logits
        if sees_logits:
            config = _on_logits(kind, config, row.head)
        engine = row.metrics.get(kind)
        if engine is None or config.get("threshold", 0.5) != 0.5:
            if kind in METRICS and row.is_dense:
                return self.counted(output, metric.name, kind, config, sees_logits)
            self.by_keras.append(f"metric `{metric.name}` of `{output}`")
            return None
        known_here = {*OF_METRICS, _SEES_ORDER, "reduction", "k", "threshold"}
        other = [key for key in config if key not in known_here and config[key] not in (None, False)]
        if other:
            self.by_keras.append(f"metric `{metric.name}` of `{output}`: `{other[0]}` is {config[other[0]]}")
        if engine == _TOP_K:
            return {"top_k_categorical_accuracy": {"k": int(config.get("k", 5))}}
        return engine

    def counted(
        self, output: str, name: str, kind: str, config: Settings, sees_logits: bool
    ) -> Any:
        """A metric that the engine counts over the dataset. It sees probabilities where the loss applies a function."""
        who = f"metric `{name}` of `{output}`"
        row = METRICS[kind]
        if sees_logits and not config.get("from_logits") and not config.pop(_SEES_ORDER, False):
            self.by_keras.append(f"{who}: sees logits")
            return None
        if config.get("from_logits") and not sees_logits:
            self.by_keras.append(f"{who}: `from_logits` is True")
            return None
        for key, value in config.items():
            if key not in {*OF_METRICS, _SEES_ORDER, "reduction", *row.take} and value != row.need.get(key):
                self.by_keras.append(f"{who}: `{key}` is {value}")
        settings = {key: config[key] for key in row.take if config.get(key) is not None}
        thresholds = settings.get("thresholds")
        if isinstance(thresholds, (list, tuple)):
            if len(thresholds) != 1:
                self.by_keras.append(f"{who}: `thresholds` is {thresholds}")
                return None
            settings["thresholds"] = thresholds[0]
        if "curve" in settings:
            settings["curve"] = str(settings["curve"]).upper()
        for key in ("average", "class_aggregation"):
            if key in row.take and key not in settings:
                self.by_keras.append(f"{who}: `{key}` is None")
                return None
        return {row.engine: settings} if settings else row.engine

    def optimizer(self, optimizer: Any, graph: Graph) -> tuple[Settings, float | None]:
        """Type and settings of the optimizer, and the global norm at which gradients are cut."""
        kind = type(optimizer).__name__
        if kind not in OPTIMIZERS or not type(optimizer).__module__.startswith("keras."):
            inner = "; give the optimizer within it, and `precision` to `make_parallel`" if kind == "LossScaleOptimizer" else ""
            self.problems.append(f"optimizer: `{kind}` is not supported; known are {', '.join(OPTIMIZERS)}{inner}")
            return {"type": "SGD"}, None
        config = optimizer.get_config()
        for key, needed in _PLAIN.items():
            if config.get(key, needed) != needed:
                self.problems.append(f"optimizer `{kind}`: `{key}` needs {needed}, but is {config[key]}")
        for problem in of_optimizer(config, (*OPTIMIZERS[kind][0], *_PLAIN, *FREE)):
            self.problems.append(f"optimizer `{kind}`: {problem}")
        settings = {key: config[key] for key in OPTIMIZERS[kind][0]}
        settings.update({key: 0.0 for key in _ZERO if key in settings and settings[key] is None})
        if kind in ("Adafactor", "Muon"):
            settings.update(_of_shapes(optimizer, graph))
        if kind == "Muon":
            # The engine's own default is another.
            settings["weight_decay"] = 0.0
        if (decay := config.get("weight_decay")) or config.get("adam_weight_decay"):
            kind = "AdamW" if kind == "Adam" else kind
            settings["weight_decay"] = decay or 0.0
            # By each variable, as Keras asks: `exclude_from_weight_decay` has lists of variables and patterns of names.
            excluded = [name for name, it in graph.variables().items() if not optimizer._use_weight_decay(it)]
            settings.update({"exclude_from_weight_decay": excluded} if excluded else {})
        settings.update({key: config[key] for key in ("clipnorm", "clipvalue", "gradient_accumulation_steps") if config.get(key) is not None})
        if config.get("use_ema"):
            keys = ("use_ema", "ema_momentum", "ema_overwrite_frequency")
            settings.update({key: config[key] for key in keys if config.get(key) is not None})
        return {"type": kind, **settings}, config.get("global_clipnorm")


def _of_shapes(optimizer: Any, graph: Graph) -> Settings:
    """Shapes of variables as Keras has them, for optimizers that compute with rows and columns: the engine may have other axes.

    For Muon those that are matrices, and the others by name, as its own rules for names and layers say.
    """
    variables = graph.variables()
    shapes = {name: [int(size) for size in it.shape] for name, it in variables.items() if it.trainable}
    if type(optimizer).__name__ == "Adafactor":
        return {"shapes": {name: shape for name, shape in shapes.items() if len(shape) > 1}}
    by_adam = [name for name in shapes if optimizer._should_use_adamw(variables[name])]
    matrices = {name: shape for name, shape in shapes.items() if name not in by_adam}
    return {"shapes": matrices, "exclude_layers": by_adam, "exclude_embeddings": False}


def _name(setting: Any) -> str:
    """The engine's name of a metric in its values."""
    if isinstance(setting, str):
        return setting
    [(kind, settings)] = setting.items()
    if kind == "top_k_categorical_accuracy":
        return f"top_{settings['k']}_accuracy"
    if settings.get("curve") == "PR":
        return "pr_auc"
    top = f"top_{settings['top_k']}_" if "top_k" in settings else ""
    return (f"class_{settings['class_id']}_" if "class_id" in settings else "") + top + str(kind)


def _function(node: Node | None) -> str | None:
    """The activation that a node ends in."""
    if node is None:
        return None
    return "softmax" if node.settings["type"] == "Softmax" else node.settings.get("activation")


#: Marks a metric that gives the same of logits and of probabilities.
_SEES_ORDER = "sees order"


def _on_logits(kind: str, config: Settings, head: str | None) -> Settings:
    """Settings with which a metric says of probabilities what it says in Keras of logits, if it can."""
    if kind == "CategoricalAccuracy" or kind in ("Precision", "Recall") and config.get("top_k") and config.get("thresholds") is None:
        return {**config, _SEES_ORDER: True}
    key = {"BinaryAccuracy": "threshold", "Precision": "thresholds", "Recall": "thresholds"}.get(kind)
    if head != "sigmoid" or key is None:
        return config
    given = config.get(key)
    threshold = given[0] if isinstance(given, (list, tuple)) and len(given) == 1 else 0.5 if given is None else given
    if isinstance(threshold, (list, tuple)):
        return config
    # A logit is above a threshold where its sigmoid is above the threshold's.
    return {**config, key: 1.0 / (1.0 + math.exp(-float(threshold))), _SEES_ORDER: True}


#: Classes whose name is not made of that of their function.
_CLASSES = {"KlDivergence": "KLDivergence"}
#: Classes of Keras that make a loss or a metric of a function.
_WRAPPERS = ("LossFunctionWrapper", "MeanMetricWrapper")


def _named(found: Any) -> tuple[str, Settings]:
    """Class and settings of a loss or metric of Keras, which may wrap a function. One of the user's own is none of them."""
    kind = type(found)
    if kind.__name__ not in _WRAPPERS:
        is_own = not is_of_keras(found)
        # What some classes leave out of their configuration.
        settings = {} if is_own else {**getattr(found, "_fn_kwargs", {}), **found.get_config()}
        return f"{kind.__module__}.{kind.__name__}" if is_own else kind.__name__, settings
    function = getattr(found, "_fn", getattr(found, "fn", None))
    name, module = getattr(function, "__name__", str(function)), str(getattr(function, "__module__", ""))
    if not module.startswith("keras."):
        return f"{module}.{name}", {}
    capital = "".join(part.capitalize() for part in name.split("_"))
    return _CLASSES.get(capital, capital), {**found._fn_kwargs, "reduction": getattr(found, "reduction", "sum_over_batch_size")}

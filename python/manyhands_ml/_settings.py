"""Settings of Keras beside those of the tables of layers, losses, metrics and optimizers: of `compile`, of the process, and what a program sets on objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import keras

#: Arguments of `compile` that change no result here, and why. All others are read, or refused.
COMPILE_FREE: dict[str, str] = {
    "run_eagerly": "steps do not run in Keras",
    "jit_compile": "steps do not run in Keras",
    "steps_per_execution": "steps are not bundled: callbacks hear of each batch",
    "auto_scale_loss": "of mixed precision, which is an argument of `make_parallel`: a model of another dtype is refused",
}
#: Arguments of `compile` that are read.
COMPILE_READ = ("optimizer", "loss", "loss_weights", "metrics")

#: Settings of `keras.config` that need a value, by the function that gives it.
CONFIG_NEED: dict[str, Any] = {"epsilon": 1e-7}
#: Settings of `keras.config` that are read, by `fit` or where the model was made.
CONFIG_READ = ("max_epochs", "max_steps_per_epoch", "dtype_policy", "floatx", "image_data_format")
#: Settings of `keras.config` that change no result here.
CONFIG_FREE = ("backend", "is_flash_attention_enabled", "is_interactive_logging_enabled", "is_nnx_enabled", "is_traceback_filtering_enabled")

#: Settings of each optimizer that are read beside those of its row.
OF_OPTIMIZERS = (
    *("name", "learning_rate", "weight_decay", "clipnorm", "clipvalue", "global_clipnorm", "gradient_accumulation_steps"),
    *("use_ema", "ema_momentum", "ema_overwrite_frequency"),
)
#: Settings of losses and metrics that are read beside those of their rows.
OF_LOSSES = ("name", "reduction", "dtype")
OF_METRICS = ("name", "dtype", "from_logits", "fn")

#: Constructor arguments of layers that no configuration has, and why they change no result.
OF_LAYERS: dict[str, str] = {
    "autocast": "casts inputs to the layer's dtype, which is float32",
    "weights": "initial values, which are read",
    "flash_attention": "the same result by another algorithm",
    "use_cudnn": "the same result by another algorithm",
    "cell": "made by the layer itself",
    "lora_rank": "a configuration has it where it is not None, and is refused then",
    "lora_alpha": "scales what `lora_rank` adds",
    "quantization_config": "a configuration has it where it is not None, and is refused then",
    "rank": "fixed by the class",
    "pool_dimensions": "fixed by the class",
    "pool_mode": "fixed by the class",
}

#: Methods of a model that make its steps: an object that has one of its own is refused, and a class, but for `call`.
_STEPS = ("call", "train_step", "test_step", "predict_step", "compute_loss", "compute_metrics", "compute_loss_and_updates")
#: Methods of a model that run its steps: those of this package take their place.
_RUNS = (
    *("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"),
    *("make_train_function", "make_test_function", "make_predict_function", "get_metrics_result"),
)


def of_process() -> Iterator[str]:
    """What of `keras.config` is not supported."""
    for name, needed in CONFIG_NEED.items():
        value = getattr(keras.config, name)()
        if value != needed:
            yield f"keras.config: `{name}` needs {needed}, but is {value}"


def of_model(model: Any) -> Iterator[str]:
    """What a program has put in place of a model's own steps."""
    for name in _STEPS + _RUNS:
        if name in vars(model):
            yield f"model `{model.name}`: has a `{name}` of its own in place of that of its class"
    who = f"model `{model.name}` ({type(model).__name__})"
    for name in _STEPS[1:] + _RUNS:
        owner = next((kind for kind in type(model).__mro__ if name in vars(kind)), None)
        if owner is None or owner.__module__.startswith("keras."):
            continue
        if name in _RUNS and owner.__module__.startswith("keras_hub."):
            if name == "fit" and getattr(model, "preprocessor", None) is not None:
                yield f"{who}: has a `preprocessor`, which does not run; make it with `preprocessor=None`, and call that before `fit`"
        elif name in _RUNS:
            yield f"{who}: has a `{name}` of its own, which would not be called; leave it out: do what it does around the call"
        else:
            way = "Keras computes a loss and metrics that `compile` gets, also those of your own, on the outputs"
            yield f"{who}: has a `{name}` of its own; leave it out: {way}"


def of_layer(who: str, layer: Any) -> Iterator[str]:
    """What a program has changed in a layer and its variables after they were made, so that no configuration tells it."""
    for part in layer._flatten_layers():
        if "call" in vars(part):
            yield f"{who}: has a `call` of its own in place of that of its class"
        for variable in part._trainable_variables + part._non_trainable_variables:
            yield from (f"{who}: {problem}" for problem in _of_variable(part, variable))


def _of_variable(layer: Any, variable: Any) -> Iterator[str]:
    for kind in ("regularizer", "constraint"):
        given = [value for key, value in vars(layer).items() if key.endswith(f"_{kind}") and key != "activity_regularizer"]
        own, held = getattr(layer, f"{variable.name}_{kind}", None), getattr(variable, kind, None)
        if held is not None and all(held is not value for value in given):
            yield f"`{variable.name}.{kind}` was set on the variable, which is not supported: give it to the layer"
        elif held is None and own is not None:
            yield f"`{variable.name}_{kind}` was set after the layer was built, when Keras reads it no more: leave it out"


def of_optimizer(config: Mapping[str, Any], named: tuple[str, ...]) -> Iterator[str]:
    """Settings of an optimizer that nothing here reads."""
    for key, value in config.items():
        if key not in named and key not in OF_OPTIMIZERS and value not in (None, False):
            yield f"`{key}` is not supported, but is {value}"


def of_dtype(found: Any) -> Iterator[str]:
    """A loss or metric that computes with other numbers."""
    dtype = getattr(found, "dtype", "float32")
    if dtype != "float32":
        yield f'`dtype` is "{dtype}"'


def is_of_keras(found: Any) -> bool:
    """Is it a loss or metric of Keras itself, not one of the same name?"""
    kind = found if hasattr(found, "__name__") else type(found)
    module = str(getattr(kind, "__module__", ""))
    return module.split(".")[0] == "keras"

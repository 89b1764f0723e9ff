"""A Keras model as a model of the engine, with its weights and what it was compiled for."""

from __future__ import annotations

import json
import os
import re
from os import PathLike

import keras

from . import _native
from ._compiled import guessed
from ._engine import floats
from ._graph import output_names, read
from ._objective import convert
from .errors import ModelError, explained, raise_problems

#: Pixels that networks of `keras.applications` expect, by the names that it gives them. Others divide bytes in their first layer.
PIXELS = {
    r"(mobilenet|mobilenetv2)_\d\.\d\d_\w+|resnet(50|101|152)v2|xception|inception_v3|inception_resnet_v2|NASNet": "-1..1",
    r"vgg(16|19)|resnet(50|101|152)": "caffe",
    r"densenet(121|169|201)": "torch",
}


def from_keras(model: keras.Model | str | PathLike[str]) -> _native.Model:
    """The engine's model of a Keras model, or of the one in a file."""
    if isinstance(model, (str, os.PathLike)):
        model = _loaded(os.fspath(model))
    graph, problems = read(model, is_trained=False)
    objective = None
    if getattr(model, "_compile_loss", None) is not None:
        # This takes heads off the graph.
        objective, more = convert(model, graph, output_names(model), guessed(model), "shard", 0)
        problems += [*more, *(f"{reason}: is not supported" for reason in objective.by_keras)]
    raise_problems(f"model `{model.name}`", problems, "Keras")
    converted = _native.Model.from_json(json.dumps(graph.config()), 0)
    converted.set_tensors({name: floats(variable) for name, variable in graph.variables().items()})
    if objective is not None:
        converted.set_objective(objective.json())
    pixels = next((pixels for names, pixels in PIXELS.items() if re.fullmatch(names, model.name)), None)
    if pixels is not None:
        converted.set_pixels(pixels)
    return converted


def _loaded(path: str) -> keras.Model:
    try:
        return keras.saving.load_model(path)
    except ValueError as error:
        raise ModelError(explained(f"`{path}`", f"can't be read by Keras: {error}", "name a file that `model.save` wrote")) from error

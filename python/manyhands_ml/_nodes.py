"""A model as uses of layers: what the engine reads."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ._layers import Settings


class Unsupported(Exception):
    """An operation, or a use of it, that the engine does not have."""


@dataclass
class Node:
    """One use of a layer."""

    #: Name of its output.
    name: str
    #: The layer, under the name that its weights have.
    layer_name: str
    layer: Any
    settings: Settings
    inputs: list[str]
    #: Is it the layer's first use?
    is_first: bool
    #: Its weights: their name here, and the attribute of Keras' layer that holds them.
    weights: Mapping[str, str] = field(default_factory=dict)
    #: Is it used in reverse, after a first use that is not?
    is_reversed: bool = False


@dataclass
class Graph:
    """Inputs, uses of layers in an order in which they can be computed, and outputs."""

    inputs: list[tuple[str, list[int]]] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    #: First uses of layers with a variable that code of the user's own reads, by its identity.
    held: dict[int, Node] = field(default_factory=dict)
    #: Such variables as tensors: name and shape.
    tensors: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    def copy(self) -> Graph:
        """A graph whose nodes and outputs may be changed."""
        nodes = [replace(node, settings=dict(node.settings)) for node in self.nodes]
        return Graph(self.inputs, nodes, list(self.outputs))

    def config(self) -> dict[str, Any]:
        """The architecture as the engine reads it."""

        def layer(node: Node) -> dict[str, Any]:
            if not node.is_first:
                return {"reuse": node.layer_name, "inputs": node.inputs, **({"reverse": True} if node.is_reversed else {})}
            return {"name": node.layer_name, "inputs": node.inputs, **node.settings}

        return {
            "inputs": [{"name": name, "shape": shape} for name, shape in self.inputs],
            "layers": [layer(node) for node in self.nodes],
            "outputs": self.outputs,
        }

    def variables(self) -> dict[str, Any]:
        """The Keras variable of each weight, by the weight's name: `layer/kernel`."""
        found = {}
        for node in self.nodes:
            if node.is_first:
                for weight, attribute in node.weights.items():
                    variable = functools.reduce(lambda part, name: getattr(part, name, None), attribute.split("."), node.layer)
                    if variable is not None:
                        found[f"{node.layer_name}/{weight}"] = variable
        return found

    def node(self, name: str) -> Node | None:
        """The node that gives a tensor; `None` for an input."""
        return next((node for node in self.nodes if node.name == name), None)

    def n_uses(self, name: str) -> int:
        """How often a tensor is read, as an output, too."""
        return sum(node.inputs.count(name) for node in self.nodes) + self.outputs.count(name)

"""Calls of callbacks, with the weights and the optimizer's state that Keras would have there."""

from __future__ import annotations

from typing import Any

import keras

from ._engine import Engine

#: Hooks of a batch, and the older names of two of them.
_BATCH_HOOKS: dict[str, tuple[str, ...]] = {f"on_{what}_batch_{when}": () for what in ("train", "test", "predict") for when in ("begin", "end")}
_BATCH_HOOKS |= {"on_train_batch_begin": ("on_batch_begin",), "on_train_batch_end": ("on_batch_end",)}


class Hooks:
    """Calls the hooks of callbacks in the order of Keras.

    The order of `fit`, `evaluate` and `predict` is that of Keras' own methods. Before a hook, `Engine.pull` gives Keras' variables the
    newest weights and the newest state of the optimizer, and after it `Engine.push` takes over what a callback has written: so it
    reads and writes through any object that has the variables, such as a layer, the Keras model or the optimizer.

    Each costs a copy of the model, and is made for the user's own callbacks alone. Those of Keras go through `callback.model`, which
    copies when it is asked for weights. A callback that says `async_safe = True`, as Keras calls one that needs no step to be whole,
    reads `logs` alone in the hooks of a batch, or goes the same way.
    """

    def __init__(self, callbacks: keras.callbacks.CallbackList, engine: Engine, model: Any) -> None:
        self._callbacks, self._engine, self._model = callbacks, engine, model
        self._copied = {hook for callback in callbacks.callbacks if not _asks_model(callback) for hook in _hooks_of(callback)}
        # Whether one may read weights, outside of batches, of what it holds itself.
        self._read_between_epochs = not all(_is_of_keras(callback) for callback in callbacks.callbacks)
        with_hooks = [callback for callback in callbacks.callbacks if _hooks_of(callback)]
        #: Whether a callback wants to be told of each batch. What Keras adds itself does not: a bar may leave out some.
        self.see_batches = bool(with_hooks)
        #: Whether one wants to be told before the next batch begins. Keras' own rule: those that are not `async_safe`.
        self.wait_for_batches = any(not getattr(callback, "async_safe", False) for callback in with_hooks)
        #: Whether one may change weights between two batches of `evaluate`.
        self.write_between_batches = any(self._copies_for(hook) for hook in ("on_test_batch_begin", "on_test_batch_end"))

    def __call__(self, hook: str, *arguments: Any) -> None:
        copies = self._copies_for(hook)
        if copies:
            self._engine.pull()
        self._model._is_touched = False
        getattr(self._callbacks, hook)(*arguments)
        if copies or self._model._is_touched:
            self._engine.push()

    def _copies_for(self, hook: str) -> bool:
        return hook in self._copied if hook in _BATCH_HOOKS else self._read_between_epochs


def _is_of_keras(callback: Any) -> bool:
    """Is it one of Keras' own that asks the model for weights? `SwapEMAWeights` takes the optimizer's variables."""
    others = (keras.callbacks.LambdaCallback, keras.callbacks.SwapEMAWeights)
    return type(callback).__module__.startswith("keras.") and not isinstance(callback, others)


def _asks_model(callback: Any) -> bool:
    """Does it read weights through `callback.model` alone, between two batches?"""
    return _is_of_keras(callback) or bool(getattr(callback, "async_safe", False))


def _hooks_of(callback: Any) -> set[str]:
    """Hooks of a batch that a callback has written."""
    if isinstance(callback, (keras.callbacks.History, keras.callbacks.ProgbarLogger)):
        return set()

    def is_own(name: str) -> bool:
        return not getattr(getattr(callback, name, None), "_is_default", False)

    return {hook for hook, older in _BATCH_HOOKS.items() if any(is_own(name) for name in (hook, *older))}

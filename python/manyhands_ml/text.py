"""Language models of others: they learn your texts, and write.

    from manyhands_ml.text import LanguageModel

    model = LanguageModel.load("SmolLM2-135M-Instruct", lora=dict(r=8, alpha=16))
    model.fit([{"messages": [
        {"role": "user", "content": "What is 2 plus 3?"},
        {"role": "assistant", "content": "2 plus 3 is 5."},
    ]}], adapters="all")
    print(model.generate("What is 2 plus 4?"))
    model.save_adapter("adapter")             # PeftModel.from_pretrained(base, "adapter") loads it

A model is a Hugging Face folder or a GGUF file of Llama 2 and 3, SmolLM2, Mistral, Qwen 2, Qwen 3, Gemma 3 or GPT-2.
Nothing is loaded from the internet. All its weights stay as they are: factors of low rank beside its products are trained (LoRA), on all
adapters.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Literal, TypedDict

from . import _native
from ._rig import Rig, Split
from .errors import DataError, SettingError, explained

__all__ = ["LanguageModel", "Lora"]

#: Texts: a list of rows, or the path of a file of them, of a `.txt` file, or of a folder of such files.
Texts = Sequence[Mapping[str, Any]] | str | PathLike[str]


class Lora(TypedDict, total=False):
    """Settings of the factors that are trained: `y += alpha / r · dropout(x) A B` beside the product of each layer.

    Attributes:
        r: Rank: columns of A and rows of B. 8 if it is not given.
        alpha: Factor of the product, times `r`. 16 if it is not given.
        dropout: Part of the inputs that training drops before A, in [0, 1).
        layers: Products of each block that get factors, such as `["attention.query", "attention.value"]`. All if they are not given.
    """

    r: int
    alpha: float
    dropout: float
    layers: Sequence[str]


class LanguageModel:
    """A language model of others, and an adapter beside it that is trained.

    Rows of texts are dicts:

    | keys | what is learned |
    | --- | --- |
    | `messages`: a list of `{"role": …, "content": …}` | the answers of the role `assistant`, in the model's chat template |
    | `prompt`, `completion` | the completion |
    | `text` | all of it |

    Where the template renders answers otherwise once messages follow, as that of Qwen 3, which leaves out their thoughts, a conversation
    becomes a row for each of its answers, as the model sees it when it gives this answer. They are held out together. Of a template
    with `{% generation %}`, what lies within is learned, as by `assistant_only_loss` of TRL.
    """

    def __init__(self, native: _native.LanguageModel) -> None:
        self._native = native

    @classmethod
    def load(cls, path: str | PathLike[str], lora: Lora | Mapping[str, Any] | None = None) -> LanguageModel:
        """Opens a model. Its weights are read when they are needed.

        Args:
            path: A Hugging Face folder or a GGUF file.
            lora: Settings of the factors that `fit` trains: see `Lora`.

        Raises:
            ModelError: If a file is missing or damaged, or the model is of a kind that is not supported.
            SettingError: If a setting of the factors makes no sense.
        """
        settings: dict[str, Any] = {"r": 8, "alpha": 16.0, "dropout": 0.0, "layers": None}
        given = dict(lora or {})
        unknown = [name for name in given if name not in settings]
        if unknown:
            problem = f"needs {', '.join(f'`{name}`' for name in settings)}, but has `{unknown[0]}`"
            raise SettingError(explained("`lora`", problem, 'take `dict(r=8, alpha=16, dropout=0.0, layers=["attention.query"])`'))
        settings |= given
        layers = settings["layers"]
        if not (_is_at_least(settings["r"], 1) and isinstance(settings["alpha"], (int, float))):
            problem = f"needs a rank `r` from 1 up and a number `alpha`, but has {settings['r']!r} and {settings['alpha']!r}"
            raise SettingError(explained("`lora`", problem, "take `dict(r=8, alpha=16)`"))
        settings["layers"] = [layers] if isinstance(layers, str) else layers and list(layers)
        return cls(_native.LanguageModel.load(path, _json(settings)))

    def fit(
        self,
        rows: Texts,
        *,
        adapters: str = "",
        epochs: int = 3,
        batch_size: int = 8,
        learning_rate: float = 2e-4,
        length: int | None = None,
        validation: float = 0.0,
        seed: int = 0,
        split: Split = "learned",
        memory: str | None = None,
        micro_batches: int = 1,
        precision: Literal["float32", "mixed_float16"] = "float32",
        recompute: bool = False,
        join_texts: bool = False,
        on_epoch: Callable[[int, dict[str, float]], bool | None] | None = None,
    ) -> dict[str, list[float]]:
        """Trains the adapter, or goes on with the one that is there; gives loss and perplexity of each epoch.

        PyTorch's AdamW trains without decay, gradients are cut at a norm of 1, the rate rises for 3 % of the steps and falls to 0 by a
        cosine. After an interrupt, the adapter is what was trained until then.

        Args:
            rows: Texts to learn: a list of rows, or the path of a file with one of them as JSON in each line, of a `.txt` file, or of a
                folder of `.txt` files.
            adapters: See `make_parallel`.
            epochs: How often all rows are seen.
            batch_size: Rows of a batch, over all adapters.
            learning_rate: The rate after the warm-up.
            length: Most tokens of a row, as far as the model reads them. Default: 512, or as many as it reads. Longer texts are left out,
                with a warning of the logger `manyhands`.
            validation: Part of the texts that is held out, in [0, 1). Their numbers have the prefix `val_`, and the adapter is that of the
                epoch with the least `val_loss`.
            seed: Seed of the factors, of their dropout, of the order of the rows, and of those that are held out.
            split: See `make_parallel`.
            memory: See `make_parallel`.
            micro_batches: See `make_parallel`.
            precision: See `make_parallel`. `fp16` of transformers does more in 16 bits.
            recompute: Whether values within the model are computed again for backward, in place of waiting for it: less memory, more
                time, and the same adapter. What transformers calls `gradient_checkpointing`.
            join_texts: Whether several short texts share a row, in which each sees itself alone: less padding. A row then counts as one
                of a batch. What TRL calls `packing`.
            on_epoch: Called after each epoch with its number, from 0, and its numbers. Training ends where it gives True.

        Raises:
            DataError: If a row can't be read, or nothing is left to learn.
            SettingError: If a setting makes no sense.
            NonFiniteError: If the loss or the gradient is not finite. The adapter stays as it was.
        """
        _check(epochs=epochs, batch_size=batch_size, length=1 if length is None else length)
        if not 0 <= validation < 1:
            problem = f"needs a part from 0 to below 1, but is {validation}"
            raise SettingError(explained("`validation`", problem, "0.1 holds out a tenth of the rows"))
        settings = {
            "epochs": epochs,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "length": length,
            "validation": validation,
            "seed": seed,
            "precision": precision,
            "recompute": recompute,
            "join_texts": join_texts,
        }
        rig = Rig.of(adapters, split, memory, "replicas", micro_batches)

        def tell(epoch: int, numbers: list[tuple[str, float]]) -> bool | None:
            return None if on_epoch is None else on_epoch(epoch, dict(numbers))

        told = self._native.fit(_texts(rows), _json(settings), rig.json(), tell)
        history: dict[str, list[float]] = {}
        for numbers in told:
            for name, value in numbers:
                history.setdefault(name, []).append(value)
        return history

    def perplexity(self, rows: Texts, *, adapters: str = "", batch_size: int = 8, length: int | None = None) -> float:
        """How well the model, with its adapter, expects the tokens of texts that `fit` would learn: e to the power of their mean loss.

        Args:
            rows: Texts, as those of `fit`.
            adapters: See `make_parallel`.
            batch_size: Rows of a batch.
            length: Most tokens of a row, as far as the model reads them. Default: 512, or as many as it reads. Longer texts are left out,
                with a warning of the logger `manyhands`.

        Raises:
            DataError: If a row can't be read, or none is left.
        """
        _check(batch_size=batch_size, length=1 if length is None else length)
        return self._native.perplexity(_texts(rows), length, batch_size, adapters)

    def generate(
        self,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        max_new_tokens: int = 256,
        temperature: float = 0.7,
        top_k: int | None = None,
        top_p: float = 1.0,
        stop: str | Sequence[str] = (),
        seed: int = 0,
        raw: bool = False,
        adapters: str = "",
    ) -> str:
        """Writes a text with the model and its adapter: the answer to a message, or what comes behind a text.

        Args:
            prompt: A message, if the model has a chat template, else a text; or a list of messages, `{"role": …, "content": …}`.
            max_new_tokens: The most tokens to write.
            temperature: Below 1, likely tokens come more often; 0 always takes the likeliest.
            top_k: Chooses among so many of the likeliest tokens only.
            top_p: Chooses among the likeliest tokens that have this probability together.
            stop: The text ends before this one, or before the first of several.
            seed: Another seed gives another text; the same one repeats it.
            raw: Whether the prompt is continued as it is, without the model's chat template.
            adapters: See `make_parallel`. One adapter computes, the first of them: a token is no work for several.

        Raises:
            DataError: If the prompt has no token, or too many.
            SettingError: If a setting is out of its range.
        """
        _check(max_new_tokens=max_new_tokens)
        settings = {
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "stop": [stop] if isinstance(stop, str) else list(stop),
            "seed": seed,
            "adapters": adapters,
        }
        if isinstance(prompt, str):
            return self._native.generate(prompt, "text" if raw else "message", _json(settings))
        if raw:
            raise SettingError(explained("`raw`", "needs a text as prompt, but got a list", "leave it out, or write one text"))
        return self._native.generate(json.dumps(list(prompt)), "messages", _json(settings))

    def save_adapter(self, folder: str | PathLike[str]) -> None:
        """Writes the adapter as PEFT has it: `peft.PeftModel.from_pretrained(base, folder)` loads it.

        Args:
            folder: A new or empty folder, or one with an adapter that this package wrote.

        Raises:
            ModelError: If there is no adapter yet.
            SettingError: If the folder has other files.
        """
        self._native.save_adapter(folder)

    def load_adapter(self, folder: str | PathLike[str]) -> None:
        """Takes the adapter of a folder, which PEFT, `save_adapter` or `manyhands finetune` wrote, in place of the one that is there.

        Raises:
            ModelError: If a file is missing or damaged, the adapter has a setting that is not supported, or does not fit the model.
        """
        self._native.load_adapter(folder)

    def save_merged(self, path: str | PathLike[str], type: str | None = None) -> None:
        """Writes the model with its adapter merged: a GGUF file if the path ends in `.gguf`, else a Hugging Face folder.

        Args:
            path: A new file or a new or empty folder.
            type: `"F32"`, `"F16"` or `"BF16"`; of a GGUF file also `"Q8_0"`. Otherwise F16 for a GGUF file, the model's own for a folder.

        Raises:
            ModelError: If there is no adapter yet, or the output can't have a part of the model.
            SettingError: If something is there under this path.
        """
        self._native.save_merged(path, type)


def _texts(rows: Texts) -> str | list[str]:
    """Rows as JSON, or a path."""
    if isinstance(rows, (str, PathLike)):
        return fspath(rows)
    texts = []
    for at, row in enumerate(rows):
        try:
            texts.append(json.dumps(row, allow_nan=False))
        except (TypeError, ValueError) as error:
            problem = f"needs to be what JSON has, but: {error}"
            raise DataError(explained(f"`rows[{at}]`", problem, "give dicts and lists of texts, and leave out what is not learned")) from error
    return texts


def _json(settings: Mapping[str, Any]) -> str:
    """Settings as JSON, which has finite numbers alone."""
    for name, value in settings.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise SettingError(explained(f"`{name}`", f"needs to be a finite number, but is {value}", "leave it out"))
    return json.dumps(settings)


def _is_at_least(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _check(**counts: int) -> None:
    """Refuses counts that are no whole numbers from 1 up."""
    for name, count in counts.items():
        if not _is_at_least(count, 1):
            raise SettingError(explained(f"`{name}`", f"needs to be a whole number from 1 up, but is {count!r}", "leave it out"))

"""Do networks that attend within windows of a picture train as in PyTorch, as Swin and MaxViT do, and what they are made of?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from nets import Called, Exported
from steps import steps_as_in_pytorch
from torch import fx, nn
from torchvision.models import VisionTransformer
from torchvision.models.maxvit import MaxVit
from torchvision.models.swin_transformer import SwinTransformer

from manyhands_ml import ModelError
from manyhands_ml.torch import Trainer

F = nn.functional
#: Side of a picture, of a window, and features of a pixel.
SIDE, WINDOW, SIZE = 8, 4, 16
ROWS = 6


def _apart(x: Any) -> Any:
    """Windows of all pictures, one after the other, as the authors of Swin have it."""
    rows, height, width, size = x.shape
    x = x.view(rows, height // WINDOW, WINDOW, width // WINDOW, WINDOW, size)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, WINDOW * WINDOW, size)


def _joined(windows: Any, side: int) -> Any:
    count = side // WINDOW
    x = windows.view(-1, count, count, WINDOW, WINDOW, windows.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, side, side, windows.shape[-1])


def _distances() -> torch.Tensor:
    """For each two pixels of a window, the place of their distance in a table."""
    pixels = torch.stack(torch.meshgrid([torch.arange(WINDOW)] * 2, indexing="ij")).flatten(1)
    apart = pixels[:, :, None] - pixels[:, None, :] + WINDOW - 1
    return apart[0] * (2 * WINDOW - 1) + apart[1]


def _mask(side: int, shift: int) -> torch.Tensor:
    """What pixels of a window see of it, where the picture was moved on by `shift`."""
    parts = torch.zeros((1, side, side, 1))
    slices = (slice(0, -WINDOW), slice(-WINDOW, -shift), slice(-shift, None))
    for number, (rows, columns) in enumerate((rows, columns) for rows in slices for columns in slices):
        parts[:, rows, columns, :] = number
    parts = _apart(parts).squeeze(-1)
    apart = parts.unsqueeze(1) - parts.unsqueeze(2)
    return apart.masked_fill(apart != 0, -100.0)


class Windows(nn.Module):
    """A block of Swin as its authors write it, or with PyTorch's function of attention."""

    def __init__(self, side: int, shift: int, heads: int = 2, function: str = "") -> None:
        super().__init__()
        self.side, self.shift, self.heads, self.function = side, shift, heads, function
        self.table = nn.Parameter(torch.randn((2 * WINDOW - 1) ** 2, heads))
        self.register_buffer("places", _distances())
        self.register_buffer("mask", _mask(side, shift) if shift else None)
        self.norm, self.qkv, self.out = nn.LayerNorm(SIZE), nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)

    def forward(self, x: Any) -> Any:
        moved = torch.roll(x, shifts=(-self.shift, -self.shift), dims=(1, 2)) if self.shift else x
        y = _joined(self.out(self.attend(self.qkv(self.norm(_apart(moved))))), self.side)
        return x + (torch.roll(y, shifts=(self.shift, self.shift), dims=(1, 2)) if self.shift else y)

    def attend(self, qkv: Any) -> Any:
        windows, pixels, _ = qkv.shape
        parts = qkv.reshape(windows, pixels, 3, self.heads, SIZE // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0) if self.function else (parts[0], parts[1], parts[2])
        beside = self.table[self.places.view(-1)].view(pixels, pixels, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        if self.function:
            return self.called(q, k, v, beside).transpose(1, 2).reshape(windows, pixels, SIZE)
        scores = (q * 0.3) @ k.transpose(-2, -1) + beside
        if self.mask is not None:
            count = self.mask.shape[0]
            scores = scores.view(windows // count, count, self.heads, pixels, pixels) + self.mask.unsqueeze(1).unsqueeze(0)
            scores = scores.view(-1, self.heads, pixels, pixels)
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(windows, pixels, SIZE)

    def called(self, q: Any, k: Any, v: Any, beside: Any) -> Any:
        """As in Transformers: the mask for each picture of the batch, and the numbers added to it."""
        count = len(q) // len(self.mask) if self.mask is not None else 0
        if self.function == "numbers" and count:
            hidden = self.mask.masked_fill(self.mask < 0, float("-inf")) if self.side > SIDE else self.mask
            beside = beside + hidden.unsqueeze(1).unsqueeze(0).expand(count, -1, -1, -1, -1).reshape(-1, 1, *self.mask.shape[1:])
        return F.scaled_dot_product_attention(q, k, v, attn_mask=beside if self.function == "numbers" else None, scale=0.3)


class Cut(nn.Module):
    """Windows without heads, whose queries, keys and values come out of one tensor."""

    def __init__(self, parts: Callable[[Any], Any]) -> None:
        super().__init__()
        self.parts, self.qkv, self.out = parts, nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)

    def forward(self, x: Any) -> Any:
        q, k, v = self.parts(self.qkv(_apart(x)))
        return _joined(self.out((q @ k.mT * 0.25).softmax(-1) @ v), SIDE)


def _partly(x: Any, layer: Any) -> Any:
    """A mask that a forward fills part by part, which reads of the input its type alone."""
    mask = x.new_zeros((SIDE, SIDE))
    mask[:3, 2:] = 2.0
    mask[4:] += 1.0
    first = mask * 1.0
    mask.mul_(3.0)
    return layer(x) + first.unsqueeze(-1) * mask.unsqueeze(-1)


def _in_place(x: Any, one: Any, norm: Any, other: Any) -> Any:
    y = one(x).add_(1.0)
    y += x
    y.clamp_(-1.0, 1.5).mul_(2.0)
    y = F.relu(y, inplace=True) + y
    return other(F.dropout(F.silu(norm(y.permute(0, 3, 1, 2)), inplace=True), 0.0, True, inplace=True).permute(0, 2, 3, 1))


def _checked(size: int) -> None:
    """Such as a test of sizes, which gives nothing."""
    assert size > 1


def _halves(x: torch.Tensor, count: int, scale: float = 1.0) -> tuple[torch.Tensor, int, torch.Tensor]:
    first, second = x[..., :count] * scale, x[..., count:]
    for _ in range(len(x.shape) - 3):
        second = second + 1.0
    return first, count, second


def _sum(parts: Any) -> torch.Tensor:
    return torch.cat([parts[0], parts[2]], -1)


fx.wrap("_sum")
fx.wrap("_checked")
fx.wrap("_halves")


def _linear() -> nn.Module:
    return nn.Linear(SIZE, SIZE)


BLOCKS: dict[str, Callable[[], nn.Module]] = {
    "windows": lambda: Windows(SIDE, 0),
    "shifted windows": lambda: Windows(SIDE, 2),
    "many shifted windows, one head": lambda: Windows(3 * WINDOW, 1, 1),
    "windows, exported": lambda: Exported(Windows(SIDE, 2)),
    "function": lambda: Windows(SIDE, 2, function="plain"),
    "function with numbers": lambda: Windows(SIDE, 0, function="numbers"),
    "function with numbers and a mask": lambda: Exported(Windows(SIDE, 2, function="numbers")),
    "function with numbers and minus infinity": lambda: Exported(Windows(3 * WINDOW, 1, 4, function="numbers")),
    "chunk": lambda: Cut(lambda qkv: qkv.chunk(3, dim=-1)),
    "split": lambda: Cut(lambda qkv: qkv.split([SIZE] * 3, 2)),
    "slices": lambda: Cut(lambda qkv: (qkv[:, :, :SIZE], qkv[..., SIZE : 2 * SIZE], qkv[:, :, 2 * SIZE :])),
    "slices, exported": lambda: Exported(Cut(lambda qkv: (qkv[:, :, :SIZE], qkv[..., SIZE : 2 * SIZE], qkv[:, :, 2 * SIZE :]))),
    "select": lambda: Cut(lambda qkv: [qkv.view(-1, WINDOW**2, 3, SIZE).select(2, place) for place in range(3)]),
    "steps moved": lambda: Cut(lambda qkv: [part.transpose(0, 1) for part in qkv.unflatten(-1, (3, SIZE)).transpose(0, 2).unbind(0)]),
    "fewer keys": lambda: Cut(lambda qkv: (qkv[:, :, :SIZE], qkv[:, 2:9, SIZE : 2 * SIZE], qkv[:, 2:9, 2 * SIZE :])),
    "roll": lambda: Called(lambda x, layer: layer(torch.roll(layer(x), (3, -9, 2), (1, 2, -1)).roll(1, -2)), _linear()),
    "every second": lambda: Called(lambda x, a, b: a(x[:, ::2, 1::3])[:, :, :2] + b(x[:, 1::2, 0:7:5]), _linear(), _linear()),
    "every hundredth": lambda: Called(lambda x, a, b: a(x[:, ::100]) + b(x[:, 7::9, 5::100]), _linear(), _linear()),
    "every second, exported": lambda: Exported(Called(lambda x, a: F.pad(a(x), (0, 0, 0, 1))[:, 1:8:2, ::4], _linear())),
    "part by part": lambda: Exported(Called(_partly, _linear())),
    "in place": lambda: Called(_in_place, _linear(), nn.BatchNorm2d(SIZE), _linear()),
    "in place, exported": lambda: Exported(Called(_in_place, _linear(), nn.BatchNorm2d(SIZE), _linear())),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_what_windows_are_made_of(name: str) -> None:
    torch.manual_seed(9)
    block = BLOCKS[name]()
    side = getattr(getattr(block, "part", block), "side", SIDE)
    module = nn.Sequential(block, nn.Flatten(), nn.LazyLinear(3))
    x = torch.randn(ROWS, side, side, SIZE)
    module(x)
    steps_as_in_pytorch(module, x, torch.randint(0, 3, (ROWS,)))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "Swin": lambda: SwinTransformer([4, 4], 8, [2, 2], [2, 4], [4, 4], mlp_ratio=2.0, stochastic_depth_prob=0.0, num_classes=3),
    # It asserts sizes.
    "ViT": lambda: VisionTransformer(36, 6, 2, 2, 16, 32, num_classes=3),
    "MaxViT": lambda: MaxVit((36, 36), 8, 3, [8], [1], 4, 0.0, num_classes=3),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_torchvision_with_windows(name: str) -> None:
    """`torch.fx` does not look into functions of the first and the last. Pictures of 36 pixels make the windows of this Swin reach over the border."""
    torch.manual_seed(4)
    steps_as_in_pytorch(NETWORKS[name](), torch.randn(4, 3, 36, 36), torch.randint(0, 3, (4,)))


def test_exported_batch_normalization_follows_its_module() -> None:
    """In training, with fixed statistics, and frozen; its counter of batches counts."""
    torch.manual_seed(5)
    norms = nn.BatchNorm2d(SIZE, eps=1e-3, momentum=0.3), nn.BatchNorm2d(SIZE), nn.BatchNorm2d(SIZE, affine=False)
    block = Exported(Called(lambda x, *parts: nn.Sequential(*parts)(x), nn.Conv2d(3, SIZE, 3), norms[0], nn.ReLU(), norms[1], norms[2]))
    norms[1].requires_grad_(False)
    steps_as_in_pytorch(nn.Sequential(block, nn.Flatten(), nn.Linear(36 * SIZE, 3)), torch.randn(8, 3, 8, 8), torch.randint(0, 3, (8,)))
    assert [int(norm.num_batches_tracked) for norm in norms] == [4, 4, 4]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x, layer: _sum(_halves(layer(x), SIZE // 2)), "call of `_halves`: is not supported"),
        (lambda x, layer: torch.roll(layer(x), 3), "call of `roll`: needs `dims`"),
        (lambda x, layer: torch.roll(layer(x), 1, 0), "another than the first"),
        (lambda x, layer: F.batch_norm(layer(x).permute(0, 3, 1, 2), None, None, training=True), "call of `batch_norm`: is not supported"),
        (lambda x, layer: layer(_apart(x)).sum((0, 1)), "reads batch and time as one axis"),
        (lambda x, layer: layer(_apart(x))[0], "reads batch and time as one axis"),
        (lambda x, layer: layer(_apart(x)).flip(0), "reads batch and time as one axis"),
        (lambda x, layer: layer(x.new_empty((SIDE, SIZE)).normal_() + x), "needs a random number for each number of the tensor"),
    ],
)
def test_what_is_no_part_of_windows_is_refused(function: Any, told: str) -> None:
    module = Called(function, nn.Linear(SIZE, SIZE))
    trainer = Trainer(module, nn.MSELoss(), torch.optim.SGD(module.parameters(), lr=0.1), adapters="cpu")
    with pytest.raises(ModelError, match=told):
        trainer.fit(torch.randn(4, SIDE, SIDE, SIZE), torch.randn(4, SIDE, SIDE, SIZE))


def _wrapped(x: Any, layer: Any) -> Any:
    _checked(x.shape[1])
    first, count, second = _halves(layer(x), count=SIZE // 2, scale=0.5)
    return torch.cat([second, first], -1) * count


def test_functions_of_ones_own_that_a_trace_takes_as_one_call_train() -> None:
    torch.manual_seed(7)
    module = nn.Sequential(Called(_wrapped, _linear()), nn.Flatten(), nn.Linear(SIDE * SIDE * SIZE, 3))
    steps_as_in_pytorch(module, torch.randn(ROWS, SIDE, SIDE, SIZE), torch.randint(0, 3, (ROWS,)))

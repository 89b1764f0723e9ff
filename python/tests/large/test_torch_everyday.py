"""Do everyday networks of PyTorch, as their authors write them, train as in PyTorch? Losses and weights of four steps are PyTorch's own."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from nets import Called, Exported
from steps import steps_as_in_pytorch
from torch import nn

from manyhands_ml import ModelError
from manyhands_ml.torch import Trainer

F = nn.functional
ROWS = 12


class OfTwo(Called):
    """A function of two inputs."""

    def forward(self, x: Any, other: Any) -> Any:  # type: ignore[override]
        return self.function(x, other, *self.parts)


def _told(module: nn.Module, *inputs: torch.Tensor) -> str:
    trainer = Trainer(module, nn.MSELoss(), torch.optim.SGD(module.parameters(), lr=0.1), adapters="cpu")
    with pytest.raises(ModelError) as caught:
        trainer.predict(list(inputs))
    return str(caught.value)


def _largest(of: Callable[[Any], Any]) -> Callable[[], nn.Module]:
    return lambda: Called(lambda x, words, conv, out: out(of(conv(words(x).transpose(1, 2)))), nn.Embedding(20, 6), nn.Conv1d(6, 4, 3), nn.Linear(4, 3))


def _pooled(x: Any, steps: Any, score: Any, out: Any) -> Any:
    """Attention over steps of a recurrent network."""
    seen, _ = steps(x)
    return out((F.softmax(score(seen), dim=1) * seen).sum(dim=1))


def _upsampled(x: Any, first: Any, down: Any, up: Any, last: Any) -> Any:
    """The smallest U-Net, with the padding of pictures of odd sizes."""
    skip = first(x)
    y = up(F.relu(down(skip)))
    rows, cols = skip.size(2) - y.size(2), skip.size(3) - y.size(3)
    y = F.pad(y, [cols // 2, cols - cols // 2, rows // 2, rows - rows // 2])
    return last(torch.cat([skip, y], dim=1)).mean((2, 3))


def _squeezed(x: Any, conv: Any, gate: Any, out: Any) -> Any:
    """Squeeze and excitation, and attention to places by the mean and the largest of channels."""
    y = conv(x)
    batch, channels, _, _ = y.size()
    y = y * torch.sigmoid(gate(F.adaptive_max_pool2d(y, 1).view(batch, channels))).view(batch, channels, 1, 1).expand_as(y)
    y = y * torch.sigmoid(y.mean(dim=1, keepdim=True) + y.max(dim=1, keepdim=True)[0])
    return out(y.sum((2, 3)))


def _last(of: Callable[[Any], Any], kind: Any = nn.LSTM, **settings: Any) -> Callable[[], nn.Module]:
    """What a recurrent module has read at last, of any layers and directions."""

    def build() -> nn.Module:
        steps = kind(3, 5, batch_first=True, **settings)
        features = of(steps(torch.zeros(2, 7, 3))).shape[-1]
        return Called(lambda x, steps, out: out(of(steps(x))), steps, nn.Linear(features, 3))

    return build


def _beside(x: Any, steps: Any, out: Any) -> Any:
    seen, states = steps(x)
    return out(torch.cat((states[-1].unsqueeze(1).repeat(1, x.size(1), 1), seen), 2)).mean(1)


def _from_zeros(x: Any, steps: Any, out: Any) -> Any:
    first = torch.zeros(2, x.size(0), 5).to(x.device), torch.zeros(2, x.size(0), 5).to(x.device)
    return out(steps(x, first)[0][:, -1, :])


class Places(nn.Module):
    """Sine and cosine of positions, as tutorials of PyTorch have them, in front of a transformer."""

    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        self.is_causal, self.first, self.last = is_causal, nn.Linear(3, 8), nn.Linear(8, 3)
        rates = torch.arange(20).unsqueeze(1) * torch.exp(torch.arange(0, 8, 2) * (-math.log(10000.0) / 8))
        self.register_buffer("pe", torch.stack([rates.sin(), rates.cos()], 2).flatten(1).unsqueeze(0))
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: Any) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1)) if self.is_causal else None
        return self.last(self.encoder(self.first(x) * math.sqrt(8) + self.pe[:, : x.size(1)], mask)[:, -1, :])


class Near(nn.Module):
    """Attention with numbers beside its scores: of distances, of pairs, or fixed."""

    def __init__(self, function: Callable[..., Any], heads: int = 2) -> None:
        super().__init__()
        self.function, self.heads = function, heads
        self.qkv, self.out, self.distances = nn.Linear(3, 24), nn.Linear(8, 3), nn.Embedding(13, 2)
        self.pairs, self.one = nn.Parameter(0.3 * torch.randn(1, 2, 7, 7)), nn.Parameter(0.3 * torch.randn(7, 7))
        self.table = nn.Parameter(0.3 * torch.randn(13, 2))
        places = torch.arange(7)[:, None] - torch.arange(7)
        self.register_buffer("index", places + 6)
        self.register_buffer("slopes", -places.abs() * torch.tensor([0.5, 0.25]).view(2, 1, 1))
        self.register_buffer("later", torch.ones(7, 7, dtype=torch.bool).triu(1))

    def forward(self, x: Any) -> Any:
        parts = self.qkv(x).chunk(3, -1)
        if self.heads:
            parts = [part.unflatten(-1, (2, 4)).transpose(1, 2) for part in parts]
        y = self.function(self, *parts)
        return self.out(y.transpose(1, 2).flatten(2) if self.heads else y).mean(1)


def _of_swin(m: Any, q: Any, k: Any, v: Any) -> Any:
    near = m.table[m.index.view(-1)].view(7, 7, -1).permute(2, 0, 1).contiguous()
    return ((q * 0.5) @ k.transpose(-2, -1) + near.unsqueeze(0)).softmax(-1) @ v


def _of_t5(m: Any, q: Any, k: Any, v: Any) -> Any:
    scores = torch.matmul(q, k.transpose(3, 2))
    scores += m.distances(torch.arange(7)[None, :] - torch.arange(7)[:, None] + 6).permute(2, 0, 1).unsqueeze(0)
    return torch.matmul(F.softmax(scores.float(), dim=-1), v)


NEAR: dict[str, Callable[[], nn.Module]] = {
    "Swin": lambda: Near(_of_swin),
    "T5": lambda: Near(_of_t5),
    "pairs": lambda: Near(lambda m, q, k, v: (q @ k.mT / 2 + m.pairs).softmax(-1) @ v),
    "pairs, all heads alike": lambda: Near(lambda m, q, k, v: (m.one + q @ k.mT).softmax(-1) @ v),
    "pairs, no later ones": lambda: Near(lambda m, q, k, v: (q @ k.mT + m.pairs).masked_fill(m.later, float("-inf")).softmax(-1) @ v),
    "pairs, twice": lambda: Near(lambda m, q, k, v: (q @ k.mT + m.pairs + m.one).softmax(-1) @ v),
    "pairs, added before": lambda: Near(lambda m, q, k, v: (q @ k.mT + (m.pairs + m.one)).softmax(-1) @ v),
    "pairs, no heads": lambda: Near(lambda m, q, k, v: (q @ k.mT + m.one).softmax(-1) @ v, heads=0),
    "ALiBi": lambda: Near(lambda m, q, k, v: (q @ k.mT / 2 + m.slopes).softmax(-1) @ v),
    "attn_mask": lambda: Near(lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=m.pairs)),
    "attn_mask, fixed": lambda: Near(lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, m.slopes, scale=0.3)),
}


class OfChannels(nn.Module):
    """The norm of ConvNeXt, whose channels are the first axis of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.weight, self.bias = nn.Conv2d(3, 3, 3), nn.Parameter(torch.rand(3)), nn.Parameter(torch.rand(3))

    def forward(self, x: Any) -> Any:
        y = self.conv(x)
        apart = y - y.mean(1, keepdim=True)
        y = apart / torch.sqrt(apart.pow(2).mean(1, keepdim=True) + 1e-6)
        return (self.weight[:, None, None] * y + self.bias[..., None, None]).amax((2, 3))


WORDS: dict[str, Callable[[], nn.Module]] = {
    "max": _largest(lambda y: y.max(dim=2)[0]),
    "max.values": _largest(lambda y: y.max(dim=-1).values),
    "torch.max": _largest(lambda y: torch.max(F.relu(y), 2)[0]),
    "amax": _largest(lambda y: y.amax(-1)),
    "adaptive_max_pool1d": _largest(lambda y: F.adaptive_max_pool1d(y, 1).squeeze(-1)),
    "AdaptiveMaxPool1d, exported": _largest(nn.Sequential(nn.AdaptiveMaxPool1d(1), nn.Flatten())),
    "sum": _largest(lambda y: y.sum(-1)),
    "factors": lambda: Called(
        lambda x, v, out: out(0.5 * (v(x).sum(1).pow(2) - v(x).pow(2).sum(dim=1))), nn.Embedding(20, 4), nn.Linear(4, 3)
    ),
}
SERIES: dict[str, Callable[[], nn.Module]] = {
    "attention over steps": lambda: Called(_pooled, nn.GRU(3, 5, batch_first=True, bidirectional=True), nn.Linear(10, 1), nn.Linear(10, 3)),
    "padding before": lambda: Called(lambda x, conv: conv(F.pad(x.transpose(1, 2), (2, 0))).mean(-1), nn.Conv1d(3, 3, 3)),
    "autoencoder": lambda: Called(
        lambda x, one, other: other(one(x)[1][0][-1].unsqueeze(1).repeat(1, x.size(1), 1))[0].sum(1),
        nn.LSTM(3, 5, batch_first=True),
        nn.LSTM(5, 3, batch_first=True),
    ),
    "mixture": lambda: Called(
        lambda x, gate, *experts: (F.softmax(gate(x.mean(1)), 1).unsqueeze(-1) * torch.stack([each(x[:, 0]) for each in experts], 1)).sum(1),
        nn.Linear(3, 2),
        nn.Linear(3, 3),
        nn.Linear(3, 3),
    ),
    "stack of a parameter": lambda: Called(lambda x, linear: torch.stack([linear(x).mean(1), linear.bias.expand(x.size(0), -1)], 1).sum(1), nn.Linear(3, 3)),
    "one alone": lambda: Called(lambda x, linear: torch.cat([torch.stack([linear(x)], 1).sum(1)], 1).mean(1), nn.Linear(3, 3)),
    "sum over all": lambda: Called(lambda x, linear: torch.cat([linear(x).sum((1, 2)).unsqueeze(1), x[:, 0, :2]], 1), nn.Linear(3, 3)),
}
class Turned(nn.Module):
    """The `Conv1D` of GPT-2."""

    def __init__(self, made: int, read: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(0.3 * torch.randn(read, made)), nn.Parameter(torch.randn(made))

    def forward(self, x: Any) -> Any:
        shape = x.size()[:-1] + (self.bias.shape[0],)
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(shape)


def _apart(x: Any, *layers: Any) -> Any:
    """Steps of all rows through layers, as `TimeDistributed` of Keras."""
    rows, time, features = x.shape
    y = x.contiguous().view(-1, features)
    for layer in layers:
        y = layer(y)
    return y.view(rows, time, -1).mean(1)


SERIES |= {
    "GPT-2": lambda: Called(lambda x, one, other: other(F.gelu(one(x))).mean(1), Turned(8, 3), Turned(3, 8)),
    "each step": lambda: Called(_apart, nn.Linear(3, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3)),
    "each step, normalized": lambda: Called(_apart, nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)),
    "each step, to itself": lambda: Called(lambda x, linear: (linear(x.reshape(-1, 3)) * x.flatten(0, 1) + 1).unflatten(0, (-1, 7)).sum(1), nn.Linear(3, 3)),
    "last of two directions": _last(lambda made: made[0][:, -1], bidirectional=True),
    "states of two directions": _last(lambda made: torch.cat((made[1][0][-2, :, :], made[1][0][-1, :, :]), 1), bidirectional=True, num_layers=2),
    "states of two directions, GRU": _last(lambda made: torch.cat([made[1][0], made[1][1]], -1), nn.GRU, bidirectional=True),
    "state, squeezed": _last(lambda made: made[1][0].squeeze(0)),
    "state, squeezed, GRU": _last(lambda made: made[1].squeeze(0), nn.GRU),
    "first of one": _last(lambda made: made[1][0][0]),
    "all steps and the last": _last(lambda made: made[0].mean(1) + made[0][:, -1]),
    "states beside steps": lambda: Called(_beside, nn.GRU(3, 5, batch_first=True, bidirectional=True), nn.Linear(15, 3)),
    "from zeros": lambda: Called(_from_zeros, nn.LSTM(3, 5, 2, batch_first=True), nn.Linear(5, 3)),
    "places": lambda: Places(False),
    "places, no later steps": lambda: Places(True),
}


def _alike(x: Any, one: Any, other: Any, out: Any) -> Any:
    return out(torch.stack([F.cosine_similarity(one(x), other(x)), nn.CosineSimilarity()(one(x), x)], 1))


def _lengths(x: Any, linear: Any, out: Any) -> Any:
    y = linear(x)
    norms = [y.norm(dim=1, keepdim=True), torch.norm(y, 2, 1).unsqueeze(1), torch.linalg.norm(y, dim=-1, keepdim=True)]
    return out(torch.cat([*norms, torch.linalg.vector_norm(y, dim=1, keepdim=True), F.normalize(y)], 1))


ROWS_OF_NUMBERS: dict[str, Callable[[], nn.Module]] = {
    "GLU": lambda: nn.Sequential(nn.Linear(6, 8), nn.GLU(), nn.Linear(4, 3)),
    "clamp": lambda: Called(lambda x, one, out: out(torch.clamp(one(x), -0.3, 0.5)), nn.Linear(6, 8), nn.Linear(8, 3)),
    "clamp, below": lambda: Called(lambda x, one, out: out(one(x).clamp(min=0)), nn.Linear(6, 8), nn.Linear(8, 3)),
    "clip": lambda: Called(lambda x, one, out: out(one(x).clip(max=0.1).clamp_(-0.4)), nn.Linear(6, 8), nn.Linear(8, 3)),
    "Hardtanh": lambda: nn.Sequential(nn.Linear(6, 8), nn.Hardtanh(), nn.Linear(8, 8), nn.Hardtanh(-0.2, 0.4), nn.Linear(8, 3)),
    "lengths": lambda: Called(_lengths, nn.Linear(6, 8), nn.Linear(12, 3)),
    "lengths, exported": lambda: Exported(Called(_lengths, nn.Linear(6, 8), nn.Linear(12, 3))),
    "angles": lambda: Called(_alike, nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(2, 3)),
}
SERIES |= {
    "RNN": _last(lambda made: made[0][:, -1], nn.RNN),
    "RNN, both directions": _last(lambda made: made[0].mean(1), nn.RNN, num_layers=2, bidirectional=True, nonlinearity="relu"),
    "RNN, state": _last(lambda made: made[1][-1], nn.RNN, bias=False),
    "InstanceNorm1d": lambda: Called(
        lambda x, conv, norm, out: out(F.relu(norm(conv(x.transpose(1, 2)))).mean(-1)),
        nn.Conv1d(3, 5, 3),
        nn.InstanceNorm1d(5, affine=True),
        nn.Linear(5, 3),
    ),
    "normalize": lambda: Called(lambda x, linear: F.normalize(linear(x), dim=-1).mean(1), nn.Linear(3, 3)),
}


def _style() -> nn.Module:
    """Convolutions with a norm for each picture, and finer pictures of their channels."""
    norms = nn.InstanceNorm2d(4, affine=True), nn.InstanceNorm2d(4)
    fine = nn.Conv2d(3, 16, 3, padding=1), nn.PixelShuffle(2), norms[0], nn.ReLU(), nn.Conv2d(4, 8, 3), nn.GLU(1), norms[1]
    return nn.Sequential(*fine, nn.PixelUnshuffle(4), nn.Conv2d(64, 3, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _grouped() -> nn.Module:
    parts = nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Hardtanh(-0.5, 0.7), nn.Conv2d(4, 3, 3)
    return Called(lambda x, *layers: F.normalize(nn.Sequential(*layers)(x), dim=1).clamp(-0.5, 0.4).mean((2, 3)), *parts)


def _padded(mode: str) -> nn.Module:
    """A convolution that pads with what is there, and `pad` of other sizes at each side."""
    parts = nn.Conv2d(3, 4, 3, padding=1, padding_mode=mode), nn.Conv2d(4, 3, (3, 5), padding="same", padding_mode=mode)
    return Called(lambda x, one, other: other(F.pad(F.relu(one(x)), (2, 0, 1, 3), mode=mode)).mean((2, 3)), *parts)


#: Of the largest numbers of windows, and of means, some of which reach over the border.
WINDOWS: list[Callable[[], nn.Module]] = [
    lambda: nn.MaxPool2d(3, 2, 1),
    lambda: nn.MaxPool2d(3, 2, ceil_mode=True),
    lambda: nn.MaxPool2d(2, 2, 1, ceil_mode=True),
    lambda: nn.MaxPool2d((3, 5), (2, 3), (1, 2), ceil_mode=True),
    lambda: nn.Sequential(nn.ReLU(), nn.MaxPool2d(3, 3, ceil_mode=True)),
    lambda: nn.Sequential(nn.Hardtanh(-0.1, 0.1), nn.MaxPool2d(3, 2, 1)),
    lambda: nn.AvgPool2d(3, 1, 1, count_include_pad=False),
    lambda: nn.AvgPool2d((5, 2), (1, 2), (2, 0), count_include_pad=False),
    lambda: nn.AvgPool2d((3, 5), 1, (1, 2), ceil_mode=True, count_include_pad=False),
    lambda: nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False)),
]


#: Other sizes of pictures of (7, 8), or of sequences of 7 steps.
SIZES: list[tuple[tuple[int, ...], Callable[[], nn.Module]]] = [
    *(
        ((3, 7, 8), lambda settings=settings: nn.Upsample(**settings))  # type: ignore[misc]
        for settings in (
            {"scale_factor": 2, "mode": "bilinear", "align_corners": True},
            {"scale_factor": (1.5, 2.3), "mode": "bilinear"},
            {"scale_factor": 1.7, "mode": "bilinear", "recompute_scale_factor": True},
            {"size": (14, 5), "mode": "bilinear"},
            {"scale_factor": 2, "mode": "bicubic"},
            {"size": (8, 9)},
            {"scale_factor": 2.05},
            {"scale_factor": 2, "mode": "nearest-exact"},
            {"size": 3, "mode": "area"},
        )
    ),
    ((3, 7, 8), lambda: nn.AdaptiveAvgPool2d((3, 5))),
    ((3, 7, 8), lambda: nn.AdaptiveAvgPool2d((9, None))),
    ((3, 7), lambda: nn.Upsample(size=9, mode="linear", align_corners=True)),
    ((3, 7), lambda: nn.Upsample(size=11)),
    ((3, 7), lambda: nn.AdaptiveAvgPool1d(4)),
]


PICTURES: dict[str, Callable[[], nn.Module]] = {
    "reflect": lambda: _padded("reflect"),
    "reflect, exported": lambda: Exported(_padded("reflect")),
    "replicate": lambda: _padded("replicate"),
    "replicate, exported": lambda: Exported(_padded("replicate")),
    "circular": lambda: _padded("circular"),
    "circular, exported": lambda: Exported(_padded("circular")),
    "modules that pad": lambda: nn.Sequential(
        nn.ReflectionPad2d(3), nn.Conv2d(3, 3, 7), nn.ReplicationPad2d((1, 0, 2, 1)), nn.Conv2d(3, 3, 9), nn.Flatten(), nn.Linear(24, 3)
    ),
    "style": _style,
    "style, exported": lambda: Exported(_style()),
    "groups": _grouped,
    "groups, exported": lambda: Exported(_grouped()),
    "U-Net": lambda: Called(_upsampled, nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, 2), nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 3, 1)),
    "excitation": lambda: Called(_squeezed, nn.Conv2d(3, 4, 3), nn.Linear(4, 4), nn.Linear(4, 3)),
    "zeros": lambda: nn.Sequential(nn.ZeroPad2d((1, 0, 2, 0)), nn.Conv2d(3, 3, 2), nn.AdaptiveMaxPool2d(1), nn.Flatten()),
    "norm of channels": OfChannels,
    "softmax of channels": lambda: Called(lambda x, conv: conv(x).softmax(1).mean((2, 3)), nn.Conv2d(3, 3, 1)),
}


@pytest.mark.parametrize("name", WORDS)
def test_networks_of_words(name: str) -> None:
    torch.manual_seed(1)
    steps_as_in_pytorch(WORDS[name](), torch.randint(0, 20, (ROWS, 7)), torch.randint(0, 3, (ROWS,)))


@pytest.mark.parametrize("name", ROWS_OF_NUMBERS)
def test_networks_of_rows(name: str) -> None:
    torch.manual_seed(9)
    steps_as_in_pytorch(ROWS_OF_NUMBERS[name](), torch.randn(ROWS, 6), torch.randint(0, 3, (ROWS,)))


#: Functions by the slope at a bound, or of nothing but zeros, where it could have been another one; and rows of which some lie there.
EDGES: dict[str, Callable[[Any], Any]] = {
    "clamp to 0": lambda y: y.clamp(min=0),
    "clamp": lambda y: y.clamp(-1, 1),
    "clamp from above": lambda y: y.clamp(max=2),
    "clamp, wide": lambda y: y.clamp(-1e6, 1e6),
    "Hardtanh": nn.Hardtanh(),
    "Hardtanh from 0": nn.Hardtanh(0, 1),
    "norm": lambda y: y.norm(dim=1, keepdim=True) + y,
    "normalize": lambda y: F.normalize(y, dim=1, eps=0.5),
    "cosine": lambda y: F.cosine_similarity(y, y * y + 1, dim=1).unsqueeze(1) + y,
}


@pytest.mark.parametrize("name", EDGES)
def test_slopes_at_bounds_and_of_zeros(name: str) -> None:
    rows = [[0.0, 0.0, 0.0], [1.0, -1.0, 2.0], [0.0, 3.0, -3.0], [1e-6, -2e-6, 3e-7], [0.25, 0.25, -0.25], [-1.0, 1.0, 0.0]] * 2

    class Moved(nn.Module):
        """Rows moved by numbers of a table, so that each has a slope of its own."""

        def __init__(self) -> None:
            super().__init__()
            self.table, self.out = nn.Embedding(len(rows), 3), nn.Linear(3, 3)
            self.table.weight.data = torch.tensor(rows)

        def forward(self, x: Any) -> Any:
            return self.out(EDGES[name](self.table(x)))

    torch.manual_seed(10)
    module = Moved()
    other = copy.deepcopy(module)
    places, targets = torch.arange(len(rows)), torch.randn(len(rows), 3)
    one, two = (torch.optim.SGD(it.parameters(), lr=0.1) for it in (module, other))
    nn.MSELoss()(module(places), targets).backward()
    one.step()
    Trainer(other, nn.MSELoss(), two, adapters="cpu").fit([(places, targets)])
    torch.testing.assert_close(other.state_dict(), module.state_dict(), atol=1e-8, rtol=1e-5)


@pytest.mark.parametrize("name", SERIES)
def test_networks_of_series(name: str) -> None:
    torch.manual_seed(2)
    steps_as_in_pytorch(SERIES[name](), torch.randn(ROWS, 7, 3), torch.randint(0, 3, (ROWS,)))


def test_distances_of_two_inputs_by_the_same_layers() -> None:
    torch.manual_seed(8)
    module = OfTwo(lambda x, other, code, out: out(torch.abs(code(x) - code(other))) + (-x).abs().sum(1, True), nn.Linear(6, 4), nn.Linear(4, 1))
    inputs = (torch.randn(ROWS, 6), torch.randn(ROWS, 6))
    inputs[1][:4] = inputs[0][:4]
    steps_as_in_pytorch(module, inputs, torch.rand(ROWS, 1).round(), nn.BCEWithLogitsLoss())


@pytest.mark.parametrize("name", ["max", "amax", "adaptive"])
def test_equal_numbers_share_the_gradient_as_in_pytorch(name: str) -> None:
    """Two parameters begin alike: of `max`, the first one learns alone, of `amax`, both do."""
    torch.manual_seed(7)
    largest: dict[str, Callable[[Any], Any]] = {
        "max": lambda y: y.max(1)[0],
        "amax": lambda y: y.amax(1),
        "adaptive": lambda y: F.adaptive_max_pool1d(y.transpose(1, 2), 1).squeeze(2),
    }

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other, self.out = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4)), nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.out(largest[name](torch.stack([x * self.one, x * self.other], 1)))

    steps_as_in_pytorch(Twice(), torch.randn(ROWS, 4), torch.randint(0, 3, (ROWS,)))


@pytest.mark.parametrize("name", NEAR)
def test_numbers_beside_scores_of_attention(name: str) -> None:
    torch.manual_seed(6)
    module = NEAR[name]()
    steps_as_in_pytorch(module, torch.randn(ROWS, 7, 3), torch.randint(0, 3, (ROWS,)))


@pytest.mark.parametrize("name", PICTURES)
def test_networks_of_pictures(name: str) -> None:
    torch.manual_seed(3)
    steps_as_in_pytorch(PICTURES[name](), torch.randn(ROWS, 3, 9, 9), torch.randint(0, 3, (ROWS,)))


@pytest.mark.parametrize("at", range(len(WINDOWS)))
def test_windows_over_the_border(at: int) -> None:
    torch.manual_seed(11)
    module = nn.Sequential(nn.Conv2d(3, 4, 2), WINDOWS[at](), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    steps_as_in_pytorch(module, torch.randn(ROWS, 3, 9, 9), torch.randint(0, 3, (ROWS,)))


@pytest.mark.parametrize("is_exported", [False, True])
@pytest.mark.parametrize("at", range(len(SIZES)))
def test_other_sizes(at: int, is_exported: bool) -> None:
    torch.manual_seed(12)
    shape, build = SIZES[at]
    first = nn.Conv2d(3, 4, 1) if len(shape) == 3 else nn.Conv1d(3, 4, 1)
    module = nn.Sequential(first, Exported(build()) if is_exported else build(), nn.Flatten(), nn.LazyLinear(3))
    x = torch.randn(ROWS, *shape)
    module(x)
    steps_as_in_pytorch(module, x, torch.randint(0, 3, (ROWS,)))


def test_categories_beside_numbers() -> None:
    """An `Embedding` of one place a row gives a vector, which joins the others."""
    torch.manual_seed(4)

    def joined(x: Any, numbers: Any, one: Any, other: Any, deep: Any) -> Any:
        return deep(torch.cat([one(x[:, 0]), other(x[:, 1]), numbers], 1))

    module = OfTwo(joined, nn.Embedding(5, 3), nn.Embedding(5, 2, padding_idx=0), nn.Sequential(nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 1)))
    inputs = (torch.randint(0, 5, (ROWS, 2)), torch.randn(ROWS, 4))
    steps_as_in_pytorch(module, inputs, torch.rand(ROWS, 1).round(), nn.BCEWithLogitsLoss())


def test_factors_of_two_embeddings() -> None:
    torch.manual_seed(5)
    module = OfTwo(lambda user, item, u, i: (u(user) * i(item)).sum(1), nn.Embedding(9, 5), nn.Embedding(8, 5))
    steps_as_in_pytorch(module, (torch.randint(0, 9, (ROWS,)), torch.randint(0, 8, (ROWS,))), torch.randn(ROWS), nn.MSELoss())


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x, linear: linear(x).max(1)[1], "reads places of the largest numbers"),
        (lambda x, linear: linear(x).sum(), "call of `sum`: needs `dim`, and other axes than the first"),
        (lambda x, linear: torch.max(linear(x), linear.bias), "call of `max`: needs `dim`, and other axes than the first"),
        (lambda x, linear: linear(x).sum(0), "call of `sum`: needs `dim`, and other axes than the first"),
        (lambda x, linear: F.pad(linear(x), (1, 1), value=1.0), 'call of `pad`: `value` needs to be 0'),
        (lambda x, linear: F.pad(linear(x), (-1, 0)), "call of `pad`: needs numbers from 0"),
        (lambda x, linear: F.pad(linear(x).unsqueeze(1), (-1, 1), mode="reflect"), "call of `pad`: needs numbers from 0"),
        (lambda x, linear: linear(x).repeat(2, 1), "call of `repeat`: needs 1 as its first number"),
        (lambda x, linear: linear(x).repeat(1, 2), "call of `repeat`: needs to copy along axes of 1"),
        (lambda x, linear: torch.stack([linear(x), x]), "call of `stack`: `dim` needs to be another than the first"),
        (lambda x, linear: F.normalize(linear(x), p=1), "call of `normalize`: needs the norm of squares"),
        (lambda x, linear: linear(x).norm(), "call of `norm`: needs `dim`"),
        (lambda x, linear: linear(x).norm(float("inf"), 1), "call of `norm`: needs the norm of squares"),
        (lambda x, linear: linear(x).clamp(min=x), "call of `clamp`: needs numbers as bounds"),
        (lambda x, linear: torch.linalg.norm(linear(x).view(-1, 2, 3), 2, (1, 2)), "call of `linalg_norm`: needs one axis"),
    ],
)
def test_what_sums_and_copies_lack_is_refused(function: Any, told: str) -> None:
    assert told in _told(Called(function, nn.Linear(6, 6)), torch.randn(ROWS, 6))


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x, steps: steps(x, (torch.ones(2, x.size(0), 5), torch.zeros(2, x.size(0), 5)))[0], "another initial state is not supported"),
        (lambda x, steps: steps(x)[1][0][0], "needs a state of its last layer"),
        (lambda x, steps: steps(x)[1][1][-1], "needs the state of its last layer"),
    ],
)
def test_states_that_the_engine_lacks_are_refused(function: Any, told: str) -> None:
    assert told in _told(Called(function, nn.LSTM(3, 5, 2, batch_first=True)), torch.randn(ROWS, 7, 3))


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x, linear: linear(x.reshape(-1, 3)), "forward: returns batch and time as one axis"),
        (lambda x, linear: linear(x).flatten(0, 1), "forward: returns batch and time as one axis"),
        (lambda x, linear: linear(x.transpose(0, 1).reshape(-1, 3)).view(7, -1, 3).transpose(0, 1), "needs the batch as its first axis"),
        (lambda x, linear: linear(x.view(-1, 3)).softmax(1).view(-1, 7, 3), "call of `softmax`: reads batch and time as one axis"),
        (lambda x, linear: (linear(x.view(-1, 3)) + x[:, 0].repeat(7, 1)).view(-1, 7, 3), "call of `add`: reads batch and time as one axis"),
        (lambda x, linear: linear(x.view(-1, 3)).view(7, -1, 3).transpose(0, 1), "call of `view`: reads batch and time as one axis"),
    ],
)
def test_batch_and_time_as_one_axis_are_refused_elsewhere(function: Any, told: str) -> None:
    assert told in _told(Called(function, nn.Linear(3, 3)), torch.randn(ROWS, 7, 3))


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda m, q, k, v: ((q @ k.mT + m.pairs) / 2).softmax(-1) @ v, "needs the scale of scores before numbers are added"),
        (lambda m, q, k, v: (q @ k.mT + m.pairs).softmax(2) @ v, "`dim` needs to be the last axis"),
        (lambda m, q, k, v: (q @ k.mT).softmax(-1) @ (v + (m.pairs + m.one)[..., :4]), "computes with a sum of parameters"),
        (lambda m, q, k, v: (q @ k.mT + m.one[:, :1]).softmax(-1) @ v, "needs numbers of shape"),
        (lambda m, q, k, v: ((q @ k.mT).softmax(-1) + m.pairs) @ v, "changes probabilities of attention"),
        (lambda m, q, k, v: v @ m.one[:4, :4] + q @ m.distances(torch.arange(4)).repeat(1, 2), "computes with the parameter"),
        (lambda m, q, k, v: v.flatten(1, 2).transpose(1, 2) @ m.pairs.permute(0, 1, 3, 2), "needs"),
    ],
)
def test_numbers_beside_scores_are_refused_elsewhere(function: Any, told: str) -> None:
    assert told in _told(Near(function), torch.randn(ROWS, 7, 3))

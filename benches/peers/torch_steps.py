#!/usr/bin/env python3
"""PyTorch's side of the comparison: README.md tells the protocol.

    torch_steps.py --model mlp --rows 256 --device gpu

f32 throughout, without TF32. On CUDA where it is there, else on the CPU.
"""

import math
import sys
import time

import torch
from torch import nn

import turns


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Sequential(*conv_norm(inputs, outputs, 3, stride, 1), nn.ReLU(inplace=True))
        self.second = nn.Sequential(*conv_norm(outputs, outputs, 3, 1, 1))
        narrows = stride > 1 or inputs != outputs
        self.shortcut = nn.Sequential(*conv_norm(inputs, outputs, 1, stride, 0)) if narrows else nn.Identity()

    def forward(self, x):
        return nn.functional.relu(self.second(self.first(x)) + self.shortcut(x))


def conv_norm(inputs, outputs, side, stride, padding):
    """A convolution without bias, and batch normalization with Keras' settings.

    PyTorch's momentum is the part of the new statistics, Keras' that of the old.
    """
    conv = nn.Conv2d(inputs, outputs, side, stride, padding, bias=False)
    return [conv, nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)]


def dense_stack(widths):
    """Dense layers of these widths, the input's first, with ReLU between them."""
    layers = [nn.Flatten()]
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU(inplace=True)]
    return layers[:-1]


def cnn():
    """conv32 - BN - ReLU - conv64 - BN - ReLU - pool - dense128 - dense10, over 28 x 28 x 1."""
    return nn.Sequential(
        *conv_norm(1, 32, 3, 1, 0), nn.ReLU(inplace=True),
        *conv_norm(32, 64, 3, 1, 0), nn.ReLU(inplace=True),
        nn.MaxPool2d(2), *dense_stack([12 * 12 * 64, 128, 10]),
    )  # fmt: skip


def resnet18():
    """He et al. 2015, arXiv:1512.03385, in its form for 32 x 32 x 3."""
    layers = [*conv_norm(3, 64, 3, 1, 1), nn.ReLU(inplace=True)]
    for inputs, outputs, stride in [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]:
        layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def biased(inputs, outputs, side, stride=1, padding=0):
    """A convolution with bias, and batch normalization, with the settings of `keras.applications`."""
    return [nn.Conv2d(inputs, outputs, side, stride, padding), nn.BatchNorm2d(outputs, eps=1.001e-5, momentum=0.01)]


class Bottleneck(nn.Module):
    """Convolutions of 1 x 1, 3 x 3 and 1 x 1 beside a shortcut; the stride is in the first."""

    def __init__(self, inputs, channels, stride, narrows):
        super().__init__()
        first = [*biased(inputs, channels, 1, stride), nn.ReLU(inplace=True)]
        second = [*biased(channels, channels, 3, padding=1), nn.ReLU(inplace=True)]
        self.branch = nn.Sequential(*first, *second, *biased(channels, 4 * channels, 1))
        self.shortcut = nn.Sequential(*biased(inputs, 4 * channels, 1, stride)) if narrows else nn.Identity()

    def forward(self, x):
        return nn.functional.relu(self.branch(x) + self.shortcut(x))


def resnet50():
    """He et al. 2015, arXiv:1512.03385, as `keras.applications` has it."""
    layers, inputs = [*biased(3, 64, 7, 2, 3), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for channels, blocks, stride in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]:
        for block in range(blocks):
            layers.append(Bottleneck(inputs, channels, stride if block == 0 else 1, block == 0))
            inputs = 4 * channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 10))


class Inverted(nn.Module):
    """A wide depthwise convolution between narrow ones of 1 x 1."""

    def __init__(self, inputs, outputs, expansion, stride):
        super().__init__()
        wide = inputs * expansion
        layers = relu6(inputs, wide, 1) if expansion > 1 else []
        layers += relu6(wide, wide, 3, stride, 1, wide)
        layers += [nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.001)]
        self.branch, self.adds = nn.Sequential(*layers), stride == 1 and inputs == outputs

    def forward(self, x):
        return self.branch(x) + x if self.adds else self.branch(x)


def relu6(inputs, outputs, side, stride=1, padding=0, groups=1):
    """A convolution without bias, batch normalization, and ReLU up to 6."""
    conv = nn.Conv2d(inputs, outputs, side, stride, padding, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.001), nn.ReLU6(inplace=True)]


def mobilenet_v2():
    """Sandler et al. 2018, arXiv:1801.04381."""
    layers, inputs = relu6(3, 32, 3, 2, 1), 32
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for expansion, outputs, blocks, stride in stages:
        for block in range(blocks):
            layers.append(Inverted(inputs, outputs, expansion, stride if block == 0 else 1))
            inputs = outputs
    return nn.Sequential(*layers, *relu6(320, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 10))


class Lstm(nn.Module):
    """An LSTM of 64 units over 140 steps, and a dense layer. PyTorch adds two biases: the second stays 0."""

    def __init__(self):
        super().__init__()
        self.lstm, self.dense = nn.LSTM(256, 64, batch_first=True), nn.Linear(64, 10)
        nn.init.zeros_(self.lstm.bias_hh_l0)
        self.lstm.bias_hh_l0.requires_grad_(False)

    def forward(self, x):
        return self.dense(self.lstm(x.flatten(1, 2))[0][:, -1])


class Decoder(nn.Module):
    """A block of a decoder: attention that sees no later position, and two dense layers, each behind a norm."""

    def __init__(self, width, heads):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-3) for _ in range(2))
        self.heads, self.in_proj, self.out_proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        parts = self.in_proj(self.norms[0](x)).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out_proj(seen.transpose(1, 2).flatten(2))
        return x + self.wide(self.norms[1](x))


class Gpt(nn.Module):
    """A decoder of four blocks over 128 characters of 96 kinds: logits of each kind are `[rows * 128, 96]`."""

    def __init__(self):
        super().__init__()
        self.characters, self.positions = nn.Embedding(96, 128), nn.Embedding(128, 128)
        blocks = [Decoder(128, 4) for _ in range(4)]
        self.blocks = nn.Sequential(*blocks, nn.LayerNorm(128, eps=1e-3), nn.Linear(128, 96))

    def forward(self, ids):
        return self.blocks(self.characters(ids) + self.positions.weight).flatten(0, 1)


class Adapted(nn.Module):
    """A frozen product, with trained factors of rank 8 beside it, by PEFT's formula with alpha 16."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.frozen = nn.Linear(inputs, outputs, bias=False).requires_grad_(False)
        self.a, self.b = nn.Linear(inputs, 8, bias=False), nn.Linear(8, outputs, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        return self.frozen(x) + self.b(self.a(x)) * 2.0


class GroupedBlock(nn.Module):
    """A block of SmolLM2-135M: nine heads of queries, three of keys and values, and a gated feed-forward part."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(576, eps=1e-5) for _ in range(2)).requires_grad_(False)
        self.query, self.key, self.value = Adapted(576, 576), Adapted(576, 192), Adapted(576, 192)
        self.gate, self.up, self.down = Adapted(576, 1536), Adapted(576, 1536), Adapted(1536, 576)
        self.out = Adapted(576, 576)

    def forward(self, x, cosines, sines):
        y = self.norms[0](x)
        parts = (self.query, self.key, self.value)
        query, key, value = (part(y).unflatten(-1, (-1, 64)).transpose(1, 2) for part in parts)
        query, key = (part * cosines + swapped(part) * sines for part in (query, key))
        key, value = (part.repeat_interleave(3, dim=1) for part in (key, value))
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        y = self.norms[1](x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def swapped(x):
    """The halves `(a, b)` of each head as `(-b, a)`."""
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


class SmolLm2(nn.Module):
    """The network of SmolLM2-135M, frozen but for factors of low rank: logits are `[rows * 128, vocabulary]`."""

    def __init__(self, blocks, vocabulary):
        super().__init__()
        self.table = nn.Embedding(vocabulary, 576).requires_grad_(False)
        nn.init.uniform_(self.table.weight, -0.05, 0.05)
        self.blocks = nn.ModuleList(GroupedBlock() for _ in range(blocks))
        self.norm = nn.RMSNorm(576, eps=1e-5).requires_grad_(False)
        angles = torch.arange(128)[:, None] * 100_000.0 ** (torch.arange(32) / -32)
        for name, turns_of in [("cosines", torch.cos), ("sines", torch.sin)]:
            self.register_buffer(name, turns_of(angles).repeat(1, 2))

    def forward(self, ids):
        x = self.table(ids)
        for block in self.blocks:
            x = block(x, self.cosines, self.sines)
        return nn.functional.linear(self.norm(x), self.table.weight).flatten(0, 1)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-7)


def adam_w(parameters):
    return torch.optim.AdamW(parameters, lr=2e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def plain(parameters):
    return torch.optim.SGD(parameters, lr=0.05)


# How each is made, the shape of an image, the outputs, and the optimizer.
MODELS = {
    "mlp": (lambda: nn.Sequential(*dense_stack([784, 1024, 1024, 10])), (1, 28, 28), 10, adam),
    "cnn": (cnn, (1, 28, 28), 10, momentum),
    "resnet18": (resnet18, (3, 32, 32), 10, momentum),
    "resnet50": (resnet50, (3, 64, 64), 10, momentum),
    "mobilenet_v2": (mobilenet_v2, (3, 64, 64), 10, momentum),
    "lstm": (Lstm, (1, 140, 256), 10, adam),
    "gpt_mini": (Gpt, (128,), 96, adam),
    "smollm2": (lambda: SmolLm2(30, 49_152), (128,), 49_152, adam_w),
    "smollm2_small": (lambda: SmolLm2(4, 4_096), (128,), 4_096, adam_w),
    "make_parallel": (lambda: nn.Sequential(*dense_stack([8000, 4000, 2000, 500, 300, 1])), (8000, 1, 1), 1, plain),
}


class Training:
    """Training steps on one batch, which each step takes from the host's memory, as training does."""

    def __init__(self, chosen, device):
        make, image, outputs, optimizer = MODELS[chosen.model]
        self.device = device
        self.model = make().to(device).train()
        self.optimizer = optimizer([parameter for parameter in self.model.parameters() if parameter.requires_grad])
        values = turns.pattern(chosen.rows * math.prod(image), 7919, 251)
        images = torch.from_numpy(values).reshape(chosen.rows, *image)
        targets = torch.from_numpy(turns.classes(chosen.rows, max(outputs, 2)))
        self.criterion = nn.CrossEntropyLoss()
        if outputs == 1:
            self.criterion, targets = nn.BCEWithLogitsLoss(), targets.float().reshape(-1, 1)
        if len(image) == 1:
            pair = (turns.characters(chosen.rows, *image, outputs, offset) for offset in (0, 1))
            images, targets = (torch.from_numpy(part) for part in pair)
            targets = targets.flatten()
        self.batch = [part.pin_memory() if device.type == "cuda" else part for part in (images, targets)]
        self.loss = None
        count = sum(parameter.numel() for parameter in self.model.parameters() if parameter.requires_grad)
        self.parameters = turns.check_parameters(chosen.model, count)

    def step(self):
        images, targets = (part.to(self.device, non_blocking=True) for part in self.batch)
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = self.criterion(self.model(images), targets)
        self.loss.backward()
        self.optimizer.step()

    def finish(self):
        synchronize(self.device)
        return self.loss.item()


class Product:
    """A bare matrix product: cuBLAS on CUDA."""

    parameters = 0

    def __init__(self, chosen, device):
        a, b, self.last = turns.factors(chosen.rows)
        self.device = device
        self.a, self.b = torch.from_numpy(a).to(device), torch.from_numpy(b).to(device)
        self.c = torch.empty_like(self.a)

    def step(self):
        torch.mm(self.a, self.b, out=self.c)

    def finish(self):
        synchronize(self.device)
        return turns.check_product(self.c[-1, -1].item(), self.last)


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_of(choice):
    """The device, and what it is called."""
    if choice == "gpu" and not torch.cuda.is_available():
        sys.exit("this PyTorch finds no CUDA device")
    if choice == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu"), f"CPU, {torch.get_num_threads()} threads"
    return torch.device("cuda"), f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"


def main():
    chosen = turns.settings()
    begin = time.perf_counter()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("highest")
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    device, device_name = device_of(chosen.device)
    work = (Product if chosen.model == "product" else Training)(chosen, device)
    peer = f"PyTorch {torch.__version__}, eager"
    turns.serve(peer, device_name, chosen, work.parameters, work.step, work.finish, begin)


if __name__ == "__main__":
    main()

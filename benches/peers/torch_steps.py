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


def adam(parameters):
    return torch.optim.Adam(parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-7)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def plain(parameters):
    return torch.optim.SGD(parameters, lr=0.05)


# How each is made, the shape of an image, the outputs, and the optimizer.
MODELS = {
    "mlp": (lambda: nn.Sequential(*dense_stack([784, 1024, 1024, 10])), (1, 28, 28), 10, adam),
    "cnn": (cnn, (1, 28, 28), 10, momentum),
    "resnet18": (resnet18, (3, 32, 32), 10, momentum),
    "make_parallel": (lambda: nn.Sequential(*dense_stack([8000, 4000, 2000, 500, 300, 1])), (8000, 1, 1), 1, plain),
}


class Training:
    """Training steps on one batch, which each step takes from the host's memory, as training does."""

    def __init__(self, chosen, device):
        make, image, outputs, optimizer = MODELS[chosen.model]
        self.device = device
        self.model = make().to(device).train()
        self.optimizer = optimizer(self.model.parameters())
        values = turns.pattern(chosen.rows * math.prod(image), 7919, 251)
        images = torch.from_numpy(values).reshape(chosen.rows, *image)
        targets = torch.from_numpy(turns.classes(chosen.rows, max(outputs, 2)))
        self.criterion = nn.CrossEntropyLoss()
        if outputs == 1:
            self.criterion, targets = nn.BCEWithLogitsLoss(), targets.float().reshape(-1, 1)
        self.batch = [part.pin_memory() if device.type == "cuda" else part for part in (images, targets)]
        self.loss = None
        count = sum(parameter.numel() for parameter in self.model.parameters())
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

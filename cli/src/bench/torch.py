"""Products and training steps of PyTorch, f32 without TF32, as one line of JSON."""

import json
import statistics
import time

import torch
from torch import nn

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.manual_seed(0)

cards = [kind for kind in ("cuda", "xpu", "mps") if hasattr(torch, kind) or hasattr(torch.backends, kind)]
found = [
    kind for kind in cards if getattr(torch.backends if kind == "mps" else torch, kind).is_available()
]
device = found[0] if found else "cpu"
name = getattr(torch, device).get_device_name() if device in ("cuda", "xpu") else device


def wait():
    """Returns when the device has done all its work."""
    if device != "cpu":
        getattr(torch, device).synchronize()


def median_ms(work, turns=5):
    """The median time of `work`, which repeats itself for about 40 ms in each turn."""
    work()
    wait()
    begin = time.perf_counter()
    work()
    wait()
    repeats = max(1, min(500, int(0.04 / max(time.perf_counter() - begin, 1e-6))))
    times = []
    for _ in range(turns):
        begin = time.perf_counter()
        for _ in range(repeats):
            work()
        wait()
        times.append(1e3 * (time.perf_counter() - begin) / repeats)
    return statistics.median(times)


def product(m, n, k):
    """Speed of a product of matrices."""
    a, b = torch.rand(m, k, device=device), torch.rand(k, n, device=device)
    return {"size": f"{m} x {n} x {k}", "gflop_per_s": 2 * m * n * k / median_ms(lambda: a @ b) / 1e6}


def norm(channels):
    """Batch normalization with Keras' settings."""
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def step(model, rows, layers, optimizer):
    """Time of a training step with data that are on the device."""
    layers = layers.to(device)
    optimizer = optimizer(layers.parameters())
    x = torch.rand(rows, 1, 28, 28, device=device)
    y = torch.randint(10, (rows,), device=device)

    def train():
        optimizer.zero_grad()
        nn.functional.cross_entropy(layers(x), y).backward()
        optimizer.step()

    return {"model": model, "batch_size": rows, "step_ms": median_ms(train)}


mlp = nn.Sequential(
    nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
cnn = nn.Sequential(
    nn.Conv2d(1, 32, 3, bias=False), norm(32), nn.ReLU(),
    nn.Conv2d(32, 64, 3, bias=False), norm(64), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(12 * 12 * 64, 128), nn.ReLU(), nn.Linear(128, 10),
)  # fmt: skip
sizes = [(1024, 1024, 1024)] + [(4096, 4096, 4096)] * (device != "cpu")
result = {
    "version": torch.__version__,
    "device": device,
    "name": name,
    "products": [product(*size) for size in sizes],
    "steps": [
        step("mlp", 256, mlp, lambda weights: torch.optim.Adam(weights, 1e-3)),
        step("cnn", 64, cnn, lambda weights: torch.optim.SGD(weights, 1e-2, momentum=0.9)),
    ],
}
print(json.dumps(result))

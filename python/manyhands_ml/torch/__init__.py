"""Train a `torch.nn.Module` on every GPU in the machine, whatever its vendor, without CUDA.

    import torch
    from manyhands_ml.torch import Trainer

    module = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    trainer = Trainer(module, loss=torch.nn.CrossEntropyLoss(), optimizer=optimizer, adapters="all")
    trainer.fit(x, y, batch_size=256, epochs=5)             # or trainer.fit(loader, epochs=5)
    torch.save(module.state_dict(), "trained.pt")           # a plain module: nothing of adapters in it

The module has to be one that `torch.fx` or `torch.export` can trace. What can't be trained here is refused before anything runs, all of it
in one message; the repository's page `docs/guide/what-runs.md` lists what runs.
"""

from __future__ import annotations

from ._trainer import Trainer

__all__ = ["Trainer"]

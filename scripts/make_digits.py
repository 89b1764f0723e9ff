#!/usr/bin/env python3
"""Makes data/digits-*, the digits that are part of the crate, from scikit-learn's copy.

    pip install scikit-learn
    python3 scripts/make_digits.py

The files are IDX (the format of MNIST): images u8 [1797, 8, 8] with values 0 to 16, and
labels u8 [1797]. The first 1437 rows are the training images, the last 360 the test images, split
as `train_test_split(range(1797), test_size=360, random_state=0, stratify=labels)` does.
"""

import struct
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

FOLDER = Path(__file__).resolve().parent.parent / "data"


def write_idx(name: str, values: np.ndarray) -> None:
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    (FOLDER / name).write_bytes(header + values.tobytes())


def main() -> None:
    digits = load_digits()
    assert digits.images.shape == (1797, 8, 8) and digits.images.max() == 16
    rows = np.concatenate(
        train_test_split(np.arange(1797), test_size=360, random_state=0, stratify=digits.target)
    )
    write_idx("digits-images-idx3-ubyte", digits.images[rows].astype(np.uint8))
    write_idx("digits-labels-idx1-ubyte", digits.target[rows].astype(np.uint8))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes `pictures` and `arrays` of tests/golden: files that Pillow and NumPy write, and what is in them.

    python3 -m venv target/file-venv
    target/file-venv/bin/pip install pillow==13.0.0 numpy==2.4.6 safetensors==0.8.0
    target/file-venv/bin/python scripts/file_cases.py

Each case has `file`, the bytes of a file. tests/golden/README.md says what the other tensors are.
"""

import io
import json
import zlib
from pathlib import Path

import numpy as np
import PIL
from PIL import Image, ImageOps
from safetensors.numpy import save_file



class File:
    """Cases of one golden file, whose values are whole numbers or were stored by NumPy itself."""

    def __init__(self, stem, about, computed_in, **made_with):
        self.stem, self.cases, self.tensors = stem, [], {}
        self.manifest = {"about": about, "computed_in": computed_in, "made_with": made_with}

    def add(self, name, file, tensors, **facts):
        tensors = {"file": np.frombuffer(file, dtype=np.uint8), **tensors}
        tensors = {role: np.array(value, dtype=np.float32, order="C") for role, value in tensors.items()}
        self.tensors.update({f"{name}/{role}": value for role, value in tensors.items()})
        shapes = {role: list(value.shape) for role, value in tensors.items()}
        self.cases.append({"name": name, **facts, "tensors": shapes})

    def write(self):
        path = Path(__file__).resolve().parent.parent / "tests" / "golden" / f"{self.stem}.safetensors"
        manifest = json.dumps(self.manifest | {"cases": self.cases}, sort_keys=True)
        save_file(self.tensors, path, metadata={"manifest": manifest})
        print(f"{path}: {len(self.cases)} cases, {path.stat().st_size:,} bytes")


pictures = File("pictures", "image files, and what Pillow makes of them", "uint8", pillow=PIL.__version__)
arrays = File("arrays", "files of NumPy, and the arrays in them", "stored", numpy=np.__version__)


def picture(name, height, width, channels=3):
    """A smooth picture with an edge, so that each way to resize gives other numbers."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    small = Image.fromarray(rng.integers(0, 256, (5, 4, 3), dtype=np.uint8))
    pixels = np.asarray(small.resize((width, height), Image.BICUBIC)).copy()
    pixels[height // 3 :, width // 2 :] = 255 - pixels[height // 3 :, width // 2 :]
    return Image.fromarray(pixels if channels == 3 else pixels[:, :, 0])


def packed(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def case(name, file, size, channels, expected):
    """`expected` is the upright image before it is resized, in the mode of the output."""
    if size != expected.size:
        expected = expected.resize(size, Image.BILINEAR)
    output = np.asarray(expected, dtype=np.float32).reshape(size[1], size[0], channels)
    pictures.add(name, file, {"output": output}, channels=channels)


def sizes():
    for name, (width, height) in {
        "half": (10, 8), "odd": (7, 11), "larger": (26, 24), "flat": (25, 3), "same": (20, 16), "one": (1, 1),
    }.items():
        image = picture("sizes", 16, 20)
        case(f"resize_{name}", packed(image, "PNG"), (width, height), 3, image)
    gray = picture("gray", 16, 20, 1)
    case("resize_gray", packed(gray, "PNG"), (13, 9), 1, gray)


def orientations():
    image = picture("orientations", 16, 24)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        file = packed(image, "JPEG", quality=80, subsampling=0, optimize=True, exif=exif)
        upright = ImageOps.exif_transpose(Image.open(io.BytesIO(file)))
        case(f"orientation_{orientation}", file, (8, 12), 3, upright.convert("RGB"))


def modes():
    image = picture("modes", 9, 8)
    gray = picture("gray", 9, 8, 1)
    rgba = image.copy()
    rgba.putalpha(gray)
    palette = image.quantize(16)
    cmyk = packed(image.convert("CMYK"), "JPEG", quality=80, optimize=True)
    files = {
        "rgba": (packed(rgba, "PNG"), rgba),
        "palette": (packed(palette, "PNG"), palette),
        "gray_alpha": (packed(gray.convert("LA"), "PNG"), gray),
        "bits": (packed(gray.convert("1"), "PNG"), gray.convert("1")),
        "bmp": (packed(palette, "BMP"), palette),
        "jpeg_gray": (packed(gray, "JPEG", quality=80, optimize=True), None),
        "cmyk": (cmyk, None),
    }
    for name, (file, expected) in files.items():
        expected = Image.open(io.BytesIO(file)) if expected is None else expected
        case(f"{name}_as_rgb", file, (8, 9), 3, expected.convert("RGB"))
        case(f"{name}_as_gray", file, (8, 9), 1, expected.convert("RGB").convert("L"))
    # Pillow cuts 16 bits off at 255: the nearest byte is expected here.
    deep = (np.asarray(gray, dtype=np.uint16) * 256 + np.arange(72, dtype=np.uint16).reshape(9, 8) * 3).astype(np.uint16)
    nearest = Image.fromarray(np.rint(deep / 257).astype(np.uint8))
    case("gray_of_16_bits", packed(Image.fromarray(deep), "PNG"), (8, 9), 1, nearest)


def saved(save, *values, **named):
    file = io.BytesIO()
    save(file, *values, **named)
    return file.getvalue()


def numbers():
    rng = np.random.default_rng(0)
    for kind in ("?", "i1", ">i2", "<u4", "<i8", "<f2", "<f4", ">f8"):
        values = (rng.standard_normal((3, 2)) * 50).astype(np.dtype(kind))
        arrays.add(np.dtype(kind).name + ("_big" if kind[0] == ">" else ""), saved(np.save, values), {"x": values})
    columns = np.asfortranarray(rng.standard_normal((4, 3, 2)).astype("<f4"))
    arrays.add("fortran", saved(np.save, columns), {"x": columns})
    one_axis = np.arange(5, dtype="<f8")
    arrays.add("one_axis", saved(np.save, one_axis), {"x": one_axis[:, None]})
    images = rng.integers(0, 256, (4, 3, 2), dtype=np.uint8)
    arrays.add("images", saved(np.save, images), {"x": images.reshape(4, 3, 2, 1) / 255})


def sets():
    """Dark and bright images: as they are in Keras' `mnist.npz`, and floats with labels in a column."""
    rng = np.random.default_rng(1)
    labels = np.arange(30, dtype=np.uint8) % 2
    images = (labels[:, None, None] * 128 + rng.integers(0, 128, (30, 6, 6))).astype(np.uint8)
    named = {"x_train": images[:24], "y_train": labels[:24], "x_test": images[24:], "y_test": labels[24:]}
    whole = {"x": named["x_train"][..., None] / 255, "y": named["y_train"]}
    whole |= {"x_test": named["x_test"][..., None] / 255, "y_test": named["y_test"]}
    arrays.add("npz", saved(np.savez, **named), whole)
    arrays.add("npz_compressed", saved(np.savez_compressed, **named), whole)
    x, y = rng.standard_normal((24, 3)).astype(np.float32), labels[:24, None].astype(np.int64)
    x[:, 0] += 4 * y[:, 0]
    arrays.add("npz_table", saved(np.savez, x=x, y=y), {"x": x, "y": y[:, 0]})


def main():
    sizes()
    orientations()
    modes()
    numbers()
    sets()
    pictures.write()
    arrays.write()


if __name__ == "__main__":
    main()

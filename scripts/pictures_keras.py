#!/usr/bin/env python3
"""Compares `manyhands init`, `train` and `predict` on a folder of mixed pictures with a Keras model prepared by hand.

    pip install keras jax pillow
    python scripts/pictures_keras.py target/release/manyhands        # prints a row, as Markdown

The pictures are Fashion-MNIST's (Debian's `dataset-fashion-mnist`), as people have them: JPEG, PNG and BMP of many sizes and proportions; gray,
colour, palettes, CMYK, with transparency and of 16 bits; stored turned or mirrored, with an EXIF orientation that says so.
Among those to train on are two corrupt files and an empty class. For each of five seeds 2,000 pictures are drawn to train on, and
1,000 to test with. The command gets the folders alone. The Keras model gets pictures that PIL decodes, turns and resizes; its layers,
changes and early stopping are those that `init` proposes. What counts as more than noise is what it is for `tables_keras.py`.
"""

import csv
import gzip
import io
import math
import tempfile
import tomllib
from pathlib import Path

import by_hand
import numpy as np
from PIL import Image, ImageOps

SOURCE = Path("/usr/share/datasets/fashion-mnist")
CLASSES = ["t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]
TRAINED, TESTED = 2_000, 1_000
# What must be done to a picture before it is stored, so that its orientation's remedy makes it upright.
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


class Pictures:
    name, score = "Fashion-MNIST as mixed files", "accuracy"


def fashion():
    images = gzip.decompress((SOURCE / "train-images-idx3-ubyte.gz").read_bytes())[16:]
    labels = gzip.decompress((SOURCE / "train-labels-idx1-ubyte.gz").read_bytes())[8:]
    return np.frombuffer(images, "uint8").reshape(-1, 28, 28), np.frombuffer(labels, "uint8")


def write(path, gray, rng):
    """A picture as a file of some size, mode, format and orientation; its class tells nothing about these."""
    dark, light = rng.integers(0, 90, 3), rng.integers(150, 256, 3)
    pixels = dark + gray[..., None] / 255 * (light - dark)
    size = tuple(int(side) for side in 28 * rng.uniform(0.9, 2.0) * rng.uniform(0.85, 1.15, 2))
    picture = Image.fromarray(pixels.astype("uint8")).resize(size, Image.Resampling.BICUBIC)
    kind = ["jpeg", "gray jpeg", "cmyk jpeg", "png", "gray png", "clear png", "palette png", "deep png", "bmp"][rng.integers(9)]
    mode, _, end = kind.rpartition(" ")
    if end != "bmp" and rng.random() < 0.4:
        orientation = int(rng.integers(2, 9))
        picture = picture.transpose(TURNS[orientation])
        exif = Image.Exif()
        exif[0x0112] = orientation
        more = {"exif": exif}
    else:
        more = {}
    match mode:
        case "gray":
            picture = picture.convert("L")
        case "cmyk":
            picture = picture.convert("CMYK")
        case "palette":
            picture = picture.quantize(64)
        case "clear":
            picture.putalpha(picture.convert("L"))
        case "deep":
            picture = Image.fromarray(np.asarray(picture.convert("L")).astype("uint16") * 257)
    picture.save(path.with_suffix(f".{end}"), **more)


def folder(root, images, labels, rng):
    for name in CLASSES:
        (root / name).mkdir(parents=True)
    for at, (gray, label) in enumerate(zip(images, labels)):
        write(root / CLASSES[label] / f"{at:04}", gray, rng)


def spoil(root):
    """Two corrupt files and an empty class."""
    (root / "umbrella").mkdir()
    whole = io.BytesIO()
    Image.new("RGB", (40, 40), "red").save(whole, "jpeg")
    (root / "bag/cut.jpg").write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    (root / "coat/text.png").write_text("no picture")


def upright(path, width, height):
    """What a person does by hand; none for a file that can't be read."""
    try:
        with Image.open(path) as picture:
            picture = ImageOps.exif_transpose(picture)
            if picture.mode.startswith("I"):
                picture = Image.fromarray((np.asarray(picture) >> 8).astype("uint8"))
            return np.asarray(picture.convert("RGB").resize((width, height), Image.Resampling.BILINEAR))
    except OSError:
        return None


def arrays(root, width, height):
    read = [(upright(path, width, height), CLASSES.index(path.parent.name)) for path in sorted(root.glob("*/*"))]
    kept = [(pixels, label) for pixels, label in read if pixels is not None]
    return np.stack([it[0] for it in kept]), np.array([it[1] for it in kept])


def changed(pixels, rng):
    """The changes of `CHANGES` by hand: pixels beyond the border are mirrored, and all moves are one."""
    if rng.random() < 0.5:
        pixels = pixels[:, ::-1]
    height, width = pixels.shape[:2]
    border = max(height, width) // 3
    picture = Image.fromarray(np.pad(pixels, ((border, border), (border, border), (0, 0)), "symmetric"))
    angle, zoom = 2 * math.pi * rng.uniform(-0.03, 0.03), 1 + rng.uniform(-0.1, 0.1)
    down, right = rng.uniform(-0.08, 0.08, 2) * (height, width)
    cos, sin = zoom * math.cos(angle), zoom * math.sin(angle)
    x, y = border + width / 2 + right, border + height / 2 + down
    moves = (cos, -sin, x - (cos * width - sin * height) / 2, sin, cos, y - (sin * width + cos * height) / 2)
    picture = picture.transform((width, height), Image.Transform.AFFINE, moves, Image.Resampling.BILINEAR)
    pixels = np.asarray(picture, "float32") / 255
    mean = pixels.mean((0, 1))
    return np.clip((pixels - mean) * (1 + rng.uniform(-0.15, 0.15)) + mean, 0, 1)


CHANGES = [
    {"type": "RandomFlip", "mode": "horizontal"},
    {"type": "RandomTranslation", "height_factor": 0.08, "width_factor": 0.08},
    {"type": "RandomRotation", "factor": 0.03},
    {"type": "RandomZoom", "height_factor": 0.1},
    {"type": "RandomContrast", "factor": 0.15},
]


def epochs_of(x, y, rng):
    """Batches of changed pictures, in a new order in each epoch."""
    import keras

    class Epochs(keras.utils.PyDataset):
        def __init__(self):
            super().__init__()
            self.on_epoch_end()

        def __len__(self):
            return math.ceil(len(x) / 32)

        def __getitem__(self, at):
            rows = self.order[at * 32 : (at + 1) * 32]
            return np.stack([changed(x[row], rng) for row in rows]), y[rows]

        def on_epoch_end(self):
            self.order = rng.permutation(len(x))

    return Epochs()


def network(side):
    """The layers that `init` proposes for the shorter side of the pictures."""
    from keras import layers

    stack = [layers.Normalization()]
    for filters in [16, 32, 64, 128, 128]:
        stack += [
            layers.Conv2D(filters, 3, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.ReLU(),
        ]
        if side // 2 < 4:
            break
        stack.append(layers.MaxPooling2D())
        side //= 2
    head = layers.Flatten if side <= 7 else layers.GlobalAveragePooling2D
    return [*stack, head(), layers.Dropout(0.3), layers.Dense(len(CLASSES))]


def keras_score(root, settings, seed):
    import keras

    width, height = settings["data"]["width"], settings["data"]["height"]
    x, y = arrays(root / "train", width, height)
    x_test, y_test = arrays(root / "new", width, height)
    rng = np.random.default_rng(seed)
    aside, rest = np.split(rng.permutation(len(x)), [round(0.2 * len(x))])
    keras.utils.set_random_seed(seed)
    stack = network(min(width, height))
    proposed = [layer["type"] for layer in settings["model"]["layers"]]
    assert proposed == [type(layer).__name__ for layer in stack], proposed
    assert settings["training"]["augment"] == CHANGES, settings["training"]
    stack[0].adapt(x[rest] / np.float32(255))
    model = keras.Sequential(stack)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    stopping = keras.callbacks.EarlyStopping("val_loss", patience=8, restore_best_weights=True)
    model.fit(
        epochs_of(x[rest], y[rest], rng), validation_data=(x[aside] / np.float32(255), y[aside]), epochs=60,
        verbose=0, callbacks=[stopping],
    )
    return float((model.predict(x_test / np.float32(255), verbose=0).argmax(1) == y_test).mean())


def our_score(command, root, seed):
    run = by_hand.runner(command, root)
    run("init train")
    run(f"train run.toml --quiet --seed {seed} --save model.safetensors")
    run("predict model.safetensors new -o predicted.csv")
    rows = list(csv.DictReader((root / "predicted.csv").open(newline="")))
    assert len(rows) == TESTED
    return sum(row["file"].split("/")[0] == row["class"] for row in rows) / TESTED


def compare(command, _pictures, seeds=None):
    """Accuracies of both sides, by seed."""
    images, labels = fashion()
    ours, theirs = [], []
    for seed in range(seeds or by_hand.SEEDS):
        rng = np.random.default_rng(100 + seed)
        drawn = rng.permutation(len(images))[: TRAINED + TESTED]
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            for part, rows in [("train", drawn[:TRAINED]), ("new", drawn[TRAINED:])]:
                folder(root / part, images[rows], labels[rows], rng)
            spoil(root / "train")
            ours.append(our_score(command, root, seed))
            settings = tomllib.loads((root / "run.toml").read_text())
            theirs.append(keras_score(root, settings, seed))
    return np.array(ours), np.array(theirs)


if __name__ == "__main__":
    by_hand.main(__doc__, [Pictures], compare)

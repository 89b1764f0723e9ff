"""What was compared, as a table in Markdown that also reads well in a terminal."""

import os
import platform
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

from comparison import other_devices
from programs import ROOT

HEAD = ["adapter", "model", "rows", "program", "ms a step", "ours is faster", "in each round", "aim", "GFLOP/s",
        "first step", "warm-up", "CPU-s a step", "loss"]  # fmt: skip

# How many times as fast as a program ours is to be, by adapter and model.
AIMS = {
    ("llvmpipe", "product", "burn"): 1.4, ("llvmpipe", "mlp", "burn"): 1.5, ("llvmpipe", "cnn", "burn"): 3.0,
    ("llvmpipe", "product", "naive WGSL"): 8.0, ("cpu", "mlp", "Keras"): 1.0, ("cpu", "cnn", "Keras"): 1.0,
    ("gpu", "product", "PyTorch"): 0.6, ("gpu", "cnn", "burn"): 1.0, ("gpu", "resnet18", "burn"): 1.0,
}  # fmt: skip


def table(plan, adapter, results):
    """A row for each program; ours comes first, and is what the others are compared with."""
    return [row(plan, adapter, result, results[0]) for result in results]


def row(plan, adapter, result, ours):
    ready = result.ready
    faster, rounds, aim = "", "", AIMS.get((adapter, plan.model, result.name))
    if result is not ours:
        ratios = sorted(result.ratios(ours))
        faster = f"{statistics.median(ratios):.2f} ×"
        rounds = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    is_product = plan.model == "product"
    rate = f"{2e-6 * plan.rows**3 / result.ms():.4g}" if is_product else ""
    loss = "" if is_product else f"{ready['value']:.3f} → {result.turns[-1].value:.3f}"
    # Ours fills a product's buffers again in each turn, outside of its time.
    cpu = "" if is_product else f"{result.cpu_s():.3g}"
    first_s, warm_s = (ready["open_ms"] + ready["first_step_ms"]) / 1e3, (ready["open_ms"] + ready["warm_up_ms"]) / 1e3
    return [adapter, plan.model, str(plan.rows), result.name, f"{result.ms():.4g}",
            faster, rounds, f"≥ {aim}" if aim else "", rate,
            f"{first_s:.2f} s", f"{warm_s:.2f} s", cpu, loss]  # fmt: skip


def markdown(rows):
    """Rows under the head, in columns."""
    widths = [max(len(line[column]) for line in [HEAD, *rows]) for column in range(len(HEAD))]
    lines = [HEAD, ["-" * width for width in widths], *rows]
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines)


def notes(plan, adapter, results, absences):
    """Who is not in the table and why, and on what the others ran."""
    where = f"{adapter}, {plan.model}"
    lines = [f"- {where}: {absence.name} is left out: {absence.reason}" for absence in absences]
    for result in results:
        choice = f"; {result.ready['choice']}" if result.ready.get("choice") else ""
        lines.append(f"- {where}: {result.name} is {result.ready['peer']} on {result.ready['device']}{choice}")
    for result in other_devices(results):
        lines.append(f"- {where}: **{result.name} ran on another device than ours**: the ratio compares devices")
    return lines


def machine():
    """Processor, memory, system and load, for the head of a report."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    drivers = [f"`{name}={os.environ[name]}`" for name in ("LP_NUM_THREADS", "RAYON_NUM_THREADS") if name in os.environ]
    parts = [f"{processor()}, {len(os.sched_getaffinity(0))} cores, {gib:.0f} GiB", system(), *drivers]
    return ", ".join(parts) + f". Load before: {os.getloadavg()[0]:.2f}."


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def system():
    return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())


def commit():
    """The commit that was measured."""
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return asked.stdout.strip() or "unknown"


def command():
    """How to repeat it."""
    return shlex.join([os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]])


def document(date, head, tables, lines):
    """The file for `benches/runs/`."""
    return "\n".join([
        f"# {date}, beside other libraries", "", f"{head} Commit {commit()}.", "", f"`{command()}`", "",
        "The programs took turns, as `benches/peers/README.md` tells; medians of the rounds. `ours is faster` is the "
        "peer's time over ours in the same round. `first step` counts from the program's start, imports aside.", "",
        markdown(tables), "", *lines, "",
    ])  # fmt: skip

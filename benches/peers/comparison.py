"""Runs programs alternately: each is started once, warms up alone, and then takes turns with the others."""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

from programs import ROOT, Unavailable, say

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass
class Turn:
    """What a program's turn came to."""

    ms: float
    cpu_s: float
    value: float


@dataclass
class Result:
    """What a program did: its first line, and its turns."""

    name: str
    ready: dict
    turns: list = field(default_factory=list)

    def ms(self):
        """Milliseconds a step, median of the turns."""
        return statistics.median(turn.ms for turn in self.turns)

    def cpu_s(self):
        """Seconds of CPU a step, median of the turns."""
        return statistics.median(turn.cpu_s for turn in self.turns)

    def ratios(self, other):
        """How many times as long as another a step takes, in each round."""
        return [mine.ms / theirs.ms for mine, theirs in zip(self.turns, other.turns)]


@dataclass
class Absence:
    """A program that is not in the table, and why."""

    name: str
    reason: str


class Running:
    """A program that speaks the protocol."""

    def __init__(self, program, settings, plan):
        self.name = program.name
        self.patience_s = plan.patience_s
        self.stderr = tempfile.TemporaryFile("w+")
        command = [str(part) for part in (*program.command, *settings)]
        self.process = subprocess.Popen(command, cwd=ROOT, env=plan.environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.stderr, text=True)  # fmt: skip
        try:
            self.result = Result(program.name, self.read())
        except Unavailable:
            self.end()
            raise
        self.process.send_signal(signal.SIGSTOP)

    @contextlib.contextmanager
    def awake(self):
        """Lets the program run. Else it is stopped: burn polls its device also while it has nothing to do."""
        self.process.send_signal(signal.SIGCONT)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGSTOP)

    def read(self):
        """A line of the program."""
        patience = threading.Timer(self.patience_s, self.process.kill)
        patience.start()
        line = self.process.stdout.readline()
        patience.cancel()
        if not line:
            raise Unavailable(self.last_words())
        try:
            return json.loads(line)
        except json.JSONDecodeError as error:
            raise Unavailable(f"printed `{line.strip()}`, which is no JSON") from error

    def last_words(self):
        """Why a program ended."""
        status = self.process.wait()
        if status == -signal.SIGKILL:
            return f"gave no answer for {self.patience_s:.0f} s, or was killed"
        self.stderr.seek(0)
        lines = [line.strip() for line in self.stderr.read().splitlines() if line.strip()]
        # Rust says what is wrong behind the place, and then where it came from.
        panics = [at for at, line in enumerate(lines) if "panicked at" in line]
        said = lines[panics[0] : panics[0] + 2] if panics else lines[-1:]
        return f"ended with status {status}: {' '.join(said) or 'it said nothing'}"

    def turn(self, steps):
        """Some steps."""
        before_s = self.cpu_s()
        self.say(f"turn {steps}")
        answer = self.read()
        return Turn(answer["ms"] / steps, (self.cpu_s() - before_s) / steps, answer["value"])

    def say(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise Unavailable(self.last_words()) from error

    def cpu_s(self):
        """Seconds of CPU of all its threads so far, as the kernel counts them."""
        try:
            text = Path(f"/proc/{self.process.pid}/stat").read_text()
        except FileNotFoundError:
            return 0.0
        # The second field is the name in parentheses, and may hold spaces; 14 and 15 are user and system time.
        fields = text.rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def end(self):
        """Ends the program, by force if it does not hear."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            try:
                self.say("quit")
                self.process.wait(timeout=20)
            except (Unavailable, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait()
        self.stderr.close()


@dataclass
class Plan:
    """How a model is measured."""

    model: str
    rows: int
    rounds: int
    warm_up: int
    turn_s: float
    patience_s: float
    threads: int
    environment: dict


def compare(plan, programs):
    """Results of the programs that ran to the end, ours first, and the absence of each other."""
    running, absences = [], []
    for program in programs:
        try:
            running.append(start(plan, program))
        except Unavailable as reason:
            absences.append(Absence(program.name, str(reason)))
    try:
        take_turns(plan, running, absences)
    finally:
        for program in running:
            program.end()
    return [program.result for program in running], absences


def start(plan, program):
    """A program that is warm."""
    settings = ["--rows", str(plan.rows), "--warm-up", str(plan.warm_up)]
    if plan.threads and program.takes_threads:
        settings += ["--threads", str(plan.threads)]
    say(f"{plan.model}: {program.name} warms up")
    return Running(program, settings, plan)


def take_turns(plan, running, absences):
    """Fills the results, turn by turn. Who fails is taken out."""
    steps = {}
    with_each(running, absences, lambda program: steps.update({program.name: steps_of(program, plan.turn_s)}))
    for round_number in range(1, plan.rounds + 1):
        say(f"{plan.model}: round {round_number} of {plan.rounds}")
        with_each(running, absences, lambda program: measure(program, steps[program.name]))


def with_each(running, absences, does):
    """Does something with each program; if it fails, the program goes from the running to the absent."""
    for program in list(running):
        try:
            with program.awake():
                does(program)
        except Unavailable as reason:
            running.remove(program)
            program.end()
            absences.append(Absence(program.name, str(reason)))


def steps_of(program, turn_s):
    """Steps that take about as long as a turn is to take. Seeks them with turns that are not counted."""
    steps = 1
    while True:
        ms = program.turn(steps).ms
        wanted = max(1, round(turn_s * 1e3 / ms))
        # Short turns are mostly the wait at their end, and tell little.
        if wanted <= 4 * steps:
            return wanted
        steps = min(wanted, 10 * steps)


def measure(program, steps):
    """A turn, behind a step that is not counted: what lay in caches before others had their turns has gone."""
    program.turn(1)
    program.result.turns.append(program.turn(steps))


def other_devices(results):
    """Who computed on another device than ours, by the names that drivers give."""
    names = [result.ready["device"].split(",")[0].split(" (")[0] for result in results]
    return [result for result, name in zip(results, names) if name != names[0]]

"""Records a command in a terminal of 100 columns as an SVG that plays once: `docs/train.svg`, for the README.

    python3 scripts/record_terminal.py docs/train.svg 6 manyhands train --adapters cpu,cpu --throttle 1=3 --epochs 4

The second argument is how many times as fast the picture plays as the command ran. What the command prints is taken as it is: only carriage
returns and new lines are understood, and colours are off. Who asks for less motion sees the last frame.
"""

import codecs
import fcntl
import os
import pty
import struct
import sys
import termios
import time
from html import escape

COLUMNS, ROWS = 100, 22
LETTER, LINE, MARGIN = 8.5, 19, 14
SHORTEST_S = 0.08


def run(words):
    """What the command prints, piece by piece, each with its time."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(COLUMNS=str(COLUMNS), LINES=str(ROWS), NO_COLOR="1")
        os.execvp(words[0], words)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    start, pieces, decoder = time.monotonic(), [], codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # Linux' way to say that the other end is closed.
            piece = b""
        if not piece:
            os.waitpid(process, 0)
            return pieces
        pieces.append((time.monotonic() - start, decoder.decode(piece)))


def shown(pieces, first):
    """Each text that stood on a line: the line, the text, from when, until when (None: to the end)."""
    lines, texts, past, column = [first, ""], [(0.0, first), (0.0, "")], [], 0
    for at, piece in pieces:
        for part in piece.replace("\r\n", "\n").replace("\n", "\n\0").split("\0"):
            for n_returns, text in enumerate(part.rstrip("\n").split("\r")):
                column = column if n_returns == 0 else 0
                lines[-1] = lines[-1][:column] + text + lines[-1][column + len(text):]
                column += len(text)
            begun, before = texts[-1]
            if lines[-1] != before and (at - begun >= SHORTEST_S or part.endswith("\n") or not before):
                past.append((len(lines) - 1, before, begun, at))
                texts[-1] = (at, lines[-1])
            if part.endswith("\n"):
                lines.append("")
                texts.append((at, ""))
                column = 0
    past.extend((line, text, begun, None) for line, (begun, text) in enumerate(texts))
    return [it for it in past if it[1].strip()]


def picture(texts, speed):
    end = max(until or begun for _, _, begun, until in texts) / speed + 0.1
    n_lines = max(line for line, *_ in texts) + 1
    appear = {}
    for line, _, begun, _ in texts:
        appear[line] = min(begun / speed, appear.get(line, end))
    scroll = [f"{100 * at / end:.2f}%{{transform:translateY({-(line + 1 - ROWS) * LINE}px)}}" for line, at in sorted(appear.items()) if line >= ROWS]
    last = max(n_lines - ROWS, 0) * LINE
    width, height = COLUMNS * LETTER + 2 * MARGIN, ROWS * LINE + 2 * MARGIN
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}" role="img">',
        f"<title>{escape(texts[0][1])}: what the command prints, as it runs</title>",
        "<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d8dee4;white-space:pre}",
        f".s{{transform:translateY(-{last}px)}}.p{{visibility:hidden}}",
        "@media (prefers-reduced-motion:no-preference){",
        f".s{{animation:s {end:.2f}s steps(1,end) forwards}}.t,.p{{visibility:hidden;animation:on 1ms both}}.p{{animation:on 1ms both,off 1ms forwards}}",
        f"@keyframes s{{0%{{transform:none}}{''.join(scroll)}100%{{transform:translateY(-{last}px)}}}}",
        "@keyframes on{from{visibility:hidden}to{visibility:visible}}@keyframes off{from{visibility:visible}to{visibility:hidden}}}</style>",
        f'<rect width="100%" height="100%" rx="8" fill="#16191d"/><svg x="{MARGIN}" y="{MARGIN}" width="{COLUMNS * LETTER:.0f}" height="{ROWS * LINE}"><g class="s">',
    ]
    for line, text, begun, until in texts:
        kind, delay = ("t", f"{begun / speed:.2f}s") if until is None else ("p", f"{begun / speed:.2f}s,{until / speed:.2f}s")
        svg.append(f'<text class="{kind}" style="animation-delay:{delay}" y="{line * LINE + 14}">{escape(text.rstrip())}</text>')
    return "\n".join([*svg, "</g></svg></svg>\n"])


def main(output, speed, *words):
    texts = sorted(shown(run(words), f"$ {' '.join(words)}"), key=lambda it: it[2])
    with open(output, "w", encoding="utf-8") as file:
        file.write(picture(texts, float(speed)))


if __name__ == "__main__":
    main(*sys.argv[1:])

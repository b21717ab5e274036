"""Writes the values of docs/numpy.md: what NumPy prints for the first column of every table.

    python scripts/numpy_table.py            # rewrites the page
    python scripts/numpy_table.py --check    # only says whether it would change

Needs NumPy 2. tests/docs compares the values with what the second column prints.
"""

import pathlib
import re
import sys

import numpy as np

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "numpy.md"
ROW = re.compile(r"^\| `(.*?)` \| `(.*?)` \| *(`.*?`)? *\|$")


def on_one_line(text):
    return re.sub(r"\[ | (?=\])", lambda m: m[0].strip(), " ".join(text.split()))


def value_of(code, given):
    variables = {"np": np}
    exec(given, variables)
    code = code.replace("\\|", "|")
    try:
        value = eval(code, variables)
    except SyntaxError:  # an assignment
        exec(code, variables)
        value = variables["a"]
    return on_one_line(str(value))


def filled(page):
    given = re.search(r"```python given\n(.*?)```", page, re.S)[1]
    lines = []
    for line in page.split("\n"):
        if row := ROW.match(line):
            line = f"| `{row[1]}` | `{row[2]}` | `{value_of(row[1], given)}` |"
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    before = PAGE.read_text()
    after = filled(before)
    if sys.argv[1:] == ["--check"]:
        sys.exit(f"{PAGE} does not say what NumPy {np.__version__} prints" if after != before else 0)
    PAGE.write_text(after)

"""Prints the measurements of bench/results on CPUs as the tables of bench/README.md and of the front page.

    python bench/table.py             # prints them, and every engine's times
    python bench/table.py --write     # puts them into bench/README.md and README.md
    python bench/table.py --check     # fails if other ones are there

Of every processor, model and type the newest run counts, unless its rows are marked as disturbed.
"""

import json
import pathlib
import statistics
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
README, FRONT = HERE / "README.md", HERE.parent / "README.md"
PEERS = ["torch", "torch.compile", "onnxruntime", "openvino"]
PAPER = ["vit", "detr", "setr"]  # the first models of the tables, by what their names begin with


def table(heads, rows, text_columns=1):
    aligns = ["---"] * text_columns + ["--:"] * (len(heads) - text_columns)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [heads, *rows]).replace(
        " |\n", " |\n|" + "|".join(aligns) + "|\n", 1)


def paragraph(text):
    return textwrap.fill(text, 112, break_long_words=False, break_on_hyphens=False) + "\n"


def processor(run):
    """As compare.py --label calls it, or as the system does."""
    machine = run["machine"]
    return machine.get("label", f"{machine['cpu']} ({machine['flags']})")


def cell(row):
    if row is None:
        return "–"
    return f"{row['median_ms']:,.1f}" if "median_ms" in row else "failed"


def place(model):
    """Of its kind among the rows of a table."""
    kind = model.split("-")[0]
    return PAPER.index(kind) if kind in PAPER else len(PAPER)


def by_engine(runs):
    """The rows of every processor, model and type, one an engine; models in the order of the paper, then of the runs."""
    found = {}
    for run in runs:
        for row in run["results"]:
            found.setdefault((processor(run), row["model"], row["dtype"]), {})[row["engine"]] = row
    return dict(sorted(found.items(), key=lambda one: (one[0][0], place(one[0][1]))))


def ratio_of(engines):
    """How many times as long the fastest peer takes; None if one of the two was not measured."""
    theirs = [engines[peer]["median_ms"] for peer in PEERS if "median_ms" in engines.get(peer, {})]
    ours = engines.get("tensor", {}).get("median_ms")
    return min(theirs) / ours if ours and theirs else None


def times(runs):
    """A row a processor, model and type: medians in milliseconds, how many times as long the fastest peer takes, and what
    else is known of this library's run (the peak of its process has the benchmark's random weights twice)."""
    rows = []
    for (name, model, dtype), engines in by_engine(runs).items():
        tensor = engines.get("tensor", {})
        ratio = f"**{value:.2f}**" if (value := ratio_of(engines)) else "–"
        more = [f"{tensor[key]:,.0f}" if key in tensor else "–" for key in ("compile_ms", "groups", "arena_MB")]
        rows.append([name, model, dtype, cell(engines.get("tensor")), *(cell(engines.get(peer)) for peer in PEERS), ratio, *more])
    return table(["cores", "model", "type", "tensor", *PEERS, "fastest peer ÷ tensor", "compile ms", "groups", "arena MB"],
                 rows, 3)


def ratios(runs):
    """A row a model and a column a processor and type: how many times as long the fastest peer takes, and below them the
    geometric mean of a column."""
    found = by_engine(runs)
    columns = list(dict.fromkeys((name, dtype) for name, _, dtype in found))
    models = sorted(dict.fromkeys(model for _, model, _ in found), key=place)
    values = [[ratio_of(found.get((name, model, dtype), {})) for name, dtype in columns] for model in models]
    means = [statistics.geometric_mean(filter(None, column)) if any(column) else None for column in zip(*values)]
    rows = [[name, *(f"{value:.2f}" if value else "–" for value in row)]
            for name, row in zip([*models, "**geometric mean**"], [*values, means])]
    return table(["model", *(f"{name}, {dtype}" for name, dtype in columns)], rows)


def versions(runs):
    """A sentence about what was compared."""
    told = {}
    for run in runs:
        for name in ("torch", "transformers", "onnxruntime", "openvino", "python"):
            if name in run["versions"]:
                told.setdefault(name, set()).add(run["versions"][name])
    names = ", ".join(f"{name} {' or '.join(sorted(values))}" for name, values in told.items())
    system = ", ".join(sorted({run["machine"]["system"] for run in runs}))
    return paragraph(f"{system}, {names}. One image; times of the fastest peer ÷ tensor.")


def current():
    """The runs, each with those of its rows that no later run on such a processor measured again."""
    runs = [json.loads(path.read_text()) for path in (HERE / "results").glob("*-*.json")]
    runs.sort(key=lambda run: run["date"])
    for run in runs:
        run["results"] = [row for row in run["results"] if "disturbed" not in row]

    def key(run, row):
        return processor(run), row["model"], row["dtype"]

    latest = {key(run, row): run["date"] for run in runs for row in run["results"]}
    return [{**run, "results": [row for row in run["results"] if latest[key(run, row)] == run["date"]]} for run in runs]


ENGINES = {"tensor": "this library (`vit`, C++)", "tensor, plan": "the same with a plan file", "onnxruntime": "ONNX Runtime (Python)",
           "torch": "PyTorch (TorchScript, Python)", "python": "Python and NumPy alone"}


def footprint(result):
    """The front page's table, of peers/footprint.py's result."""
    def megabytes(engine, part):
        return f"{result['bytes'][engine][part] / 1e6:,.0f}" if engine in result["bytes"] else "–"

    rows = [[ENGINES[engine], megabytes(engine, "own"), megabytes(engine, "all"), f"{row['peak_MB']:,}",
             f"{row['median_s']:.2f} ({row['least_s']:.2f} to {max(row['seconds']):.2f})"]
            for engine, row in result["engines"].items()]
    return table(["", "its library, MB", "all it needs, MB", "peak memory, MB", "cold start, s"], rows)


def put(text, name, file=README):
    """Prints it, or, as the command line says, puts it between two comments of a file or compares it with what is there."""
    if len(sys.argv) == 1:
        return print(text)
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, rest = file.read_text().split(begin)
    now, after = rest.split(end)
    if sys.argv[1] == "--write":
        file.write_text(before + begin + text + end + after)
    elif now != text:
        sys.exit(f"{file}: {name} is not what the results say; run {sys.argv[0]} --write")


if __name__ == "__main__":
    put(versions(current()) + "\n" + ratios(current()), "cpu table")
    put(footprint(json.loads((HERE / "results/footprint.json").read_text())), "footprint", FRONT)
    if len(sys.argv) == 1:
        print(times(current()))

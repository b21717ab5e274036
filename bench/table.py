"""Renders the newest measurements of bench/results, by model and processor, as tables of bench/README.md, one a run.

    python bench/table.py             # prints it
    python bench/table.py --write     # puts it into bench/README.md
    python bench/table.py --check     # fails if bench/README.md has another one
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
README, BEGIN, END = HERE / "README.md", "<!-- table -->\n", "<!-- end of table -->\n"
PEERS = ["torch", "torch.compile", "onnxruntime"]


def cell(row):
    if row is None:
        return "–"
    return f"{row['median_ms']:,.1f}" if "median_ms" in row else "failed"


def line(cells):
    return "| " + " | ".join(cells) + " |\n"


def times(rows):
    """Medians in milliseconds, and how many times as long the fastest peer takes."""
    text = line(["model", "type", "tensor", *PEERS, "fastest peer ÷ tensor"]) + "|---|---|--:|--:|--:|--:|--:|\n"
    engines_of = {}
    for row in rows:
        engines_of.setdefault((row["model"], row["dtype"]), {})[row["engine"]] = row
    for (model, dtype), engines in engines_of.items():
        ours = engines.get("tensor", {}).get("median_ms")
        theirs = [engines[peer]["median_ms"] for peer in PEERS if "median_ms" in engines.get(peer, {})]
        ratio = f"**{min(theirs) / ours:.2f}**" if ours and theirs else "–"
        text += line([model, dtype, *(cell(engines.get(engine)) for engine in ["tensor", *PEERS]), ratio])
    return text


def details(rows):
    """What else is known of this library's runs, and how far the single runs lie apart."""
    heads = ["model", "type", "min – max ms", "GFLOP/s", "× f32", "compile ms", "groups", "weights MB", "arena MB"]
    text = line([*heads, "peak MB"]) + "|---|---" + "|--:" * 8 + "|\n"
    ours = [row for row in rows if row["engine"] == "tensor" and "median_ms" in row]
    f32 = {row["model"]: row["median_ms"] for row in ours if row["dtype"] == "f32"}
    for row in ours:
        spread = f"{row['min_ms']:,.1f} – {row['max_ms']:,.1f}"
        speed_up = f"{f32[row['model']] / row['median_ms']:.2f}" if row["model"] in f32 else "–"
        rate = f"{row['gflop'] / row['median_ms'] * 1e3:,.0f}"
        numbers = [f"{row[key]:,.0f}" for key in ("compile_ms", "groups", "weights_MB")]
        memory = [f"{row['arena_MB']:,.1f}", f"{row['peak_MB']:,}"]
        text += line([row["model"], row["dtype"], spread, rate, speed_up, *numbers, *memory])
    return text


def render(result):
    machine, versions = result["machine"], result["versions"]
    names = ", ".join(f"{name} {version}" for name, version in versions.items())
    failures = [row for row in result["results"] if "failure" in row]
    return (
        f"{result['date']}, {result['threads']} threads on {machine['cores']} cores of {machine['cpu']} "
        f"({machine['flags']}), {machine['memory_GB']} GB, {machine['system']}. {names}.\n\n"
        f"Milliseconds of one image, medians:\n\n{times(result['results'])}\n"
        f"This library in detail (the weights as stored in f32; peak of the whole process):\n\n"
        f"{details(result['results'])}"
        + "".join(f"\n{row['model']} {row['dtype']} on {row['engine']} failed: {row['failure']}\n" for row in failures)
    )


def current():
    """The runs, oldest first, each with those of its rows that no later run on such a processor measured again."""
    runs = [json.loads(path.read_text()) for path in (HERE / "results").glob("*.json")]
    runs.sort(key=lambda run: run["date"])

    def key(run, row):
        return run["machine"]["cpu"], run["machine"]["flags"], row["model"], row["dtype"]

    latest = {key(run, row): run["date"] for run in runs for row in run["results"]}
    for run in runs:
        rows = [row for row in run["results"] if latest[key(run, row)] == run["date"]]
        if rows:
            yield {**run, "results": rows}


def put(text, begin, end, drawings={}):
    """Prints it, or, as the command line says, puts it between two lines of bench/README.md or compares it with them.

    So it does with the drawings {file: what it holds}.
    """
    if len(sys.argv) == 1:
        return print(text, end="")
    before, rest = README.read_text().split(begin)
    _, after = rest.split(end)
    wanted = {README: before + begin + text + end + after, **drawings}
    others = [file for file, text in wanted.items() if not file.exists() or file.read_text() != text]
    if sys.argv[1] == "--write":
        for file in others:
            file.write_text(wanted[file])
    elif others:
        names = ", ".join(str(file.relative_to(HERE)) for file in others)
        sys.exit(f"not what the results say: {names} in bench; run {sys.argv[0]} --write")


if __name__ == "__main__":
    put("\n".join(render(run) for run in current()) or "No results yet.\n", BEGIN, END)

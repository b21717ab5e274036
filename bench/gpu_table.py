"""Renders the newest measurements in bench/results/gpu as the tables of bench/README.md.

    python bench/gpu_table.py             # prints them
    python bench/gpu_table.py --write     # puts them into bench/README.md
    python bench/gpu_table.py --check     # fails if bench/README.md has others

Files are named by their date and what they hold: -models (peers/compare_gpu.py), -kernels (peers/compare_kernels.py),
-tuned and -ablation (tune_models).
"""

import json
import math
import pathlib

from table import line, put

HERE = pathlib.Path(__file__).resolve().parent
BEGIN, END = "<!-- gpu tables -->\n", "<!-- end of gpu tables -->\n"


def newest(kind):
    files = sorted((HERE / "results" / "gpu").glob(f"*-{kind}.json"))
    return json.loads(files[-1].read_text()) if files else None


def mean(ratios):
    """Geometric."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def table(heads, rows, text_columns=1):
    aligns = ["---"] * text_columns + ["--:"] * (len(heads) - text_columns)
    return line(heads) + "|" + "|".join(aligns) + "|\n" + "".join(map(line, rows))


def header(run, what):
    gpu, versions = run["gpu"], ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    return f"{what}: {run['date']}, {gpu['name']} (driver {gpu['driver_version']}). {versions}.\n"


def models(run):
    ceilings = run["ceilings"]
    rows = [
        [row["model"], str(row["batch"]), f"{row['tensor_ms']:.3f}", f"{row['torch_graph_ms']:.3f}",
         f"**{row['torch_graph_ms'] / row['tensor_ms']:.2f}**", f"{row['floor_ms']:.3f}", f"{row['kernel_groups']:.0f}"]
        for row in run["results"]
    ]
    return (
        header(run, "Models, milliseconds")
        + f"Ceilings in the same run: {ceilings['gemm8192_float16_TF']:.0f} TFLOP/s, {ceilings['read_TBs']:.2f} TB/s read.\n\n"
        + table(["model", "batch", "tensor", "PyTorch", "PyTorch ÷ tensor", "floor", "groups"], rows)
        + "\n![Bars of the floor, tensor and PyTorch for each model.](results/gpu/models.svg)\n"
    )


def kernels(run):
    rows = [
        [row["kernel"], f"{row['chosen_us']:.2f}", f"{row['best_us']:.2f}", f"{row['torch_us']:.2f}",
         f"**{row['torch_us'] / row['chosen_us']:.2f}**"]
        for row in run["results"]
    ]
    return header(run, "Kernels, microseconds, bf16") + "\n" + table(
        ["kernel", "chosen", "fastest tried", "PyTorch", "PyTorch ÷ chosen"], rows)


def tuned(run):
    rows = [
        [row["model"], str(row["batch"]), f"{len(row['subgraphs'])}", row["weights"], f"{row['trials']}", f"{row['failures']}",
         f"{row['tune_seconds']:.0f}", f"{row['compile_seconds']:.0f}", f"{row['before_ms']:.3f}", f"{row['after_ms']:.3f}",
         f"**{row['before_ms'] / row['after_ms']:.3f}**", f"{len(row['overturned'])}"]
        for row in run["results"]
    ]
    gains = [row["before_ms"] / row["after_ms"] for row in run["results"] if row["batch"] == 1]
    heads = ["model", "batch", "subgraphs", "[how often * how many]", "trials", "failed", "tuned s", "in all s", "before ms",
             "after ms", "gain", "fusions overturned"]
    return (header(run, "Tuning") + "\n" + table(heads, rows)
            + f"\nGeometric mean of the gains at batch 1: {mean(gains):.3f}.\n")


def ablation(run):
    rows = [
        [row["model"], row["without"].replace(",", ", ") or "(nothing)", f"{row['trials']}", f"{row['tune_seconds']:.0f}",
         f"{row['before_ms']:.4f}", f"{row['after_ms']:.4f}"]
        for row in run["results"]
    ]
    return header(run, "Tuning with a part left out") + "\n" + table(
        ["model", "without", "trials", "tuned s", "before ms", "after ms"], rows, 2)


if __name__ == "__main__":
    kinds = [("models", models), ("kernels", kernels), ("tuned", tuned), ("ablation", ablation)]
    runs = [(render, newest(kind)) for kind, render in kinds]
    put("\n".join(render(run) for render, run in runs if run) or "No results yet.\n", BEGIN, END)

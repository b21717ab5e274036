"""Prints the newest measurements in bench/results/gpu as the tables of bench/README.md: one of the GPU, one of tuning.

    python bench/gpu_table.py                     # prints them
    python bench/gpu_table.py --write             # puts them into bench/README.md
    python bench/gpu_table.py --check             # fails if others are there
    python bench/gpu_table.py kernels search      # prints all that is known of these kinds

The kinds are models, compiled, kernels, tests, tuned, level0, minutes, ablation, search and cost-model: the ends of the
files' names (run_gpu.py writes them).
"""

import json
import math
import pathlib
import re
import statistics
import sys

from table import paragraph, put, table

RESULTS = pathlib.Path(__file__).resolve().parent / "results/gpu"


def newest(kind):
    """The last run, in a list; none if there is none."""
    return [json.loads(file.read_text()) for file in sorted(RESULTS.glob(f"*-{kind}.json"))[-1:]]


def keys_of(kind, row):
    """What a row tells, of which a later run may tell it anew."""
    if kind == "compiled":
        return {(row["model"], row["batch"], mode) for mode in COMPILED
                if f"torch_{mode}_ms" in row or f"torch_{mode}_failure" in row}
    return {row["problem"]} if kind == "search" else {(row["model"], row["batch"])}


def rows_of(kind, run):
    return run["search"]["tasks"] if kind == "search" else run["results"]


def with_rows(kind, run, rows):
    return {**run, "search": {**run["search"], "tasks": rows}} if kind == "search" else {**run, "results": rows}


def runs(kind):
    """The last run; of whole models and of searches all, oldest first, each with those of its rows that no later one has."""
    if kind not in ("models", "others", "compiled", "tuned", "search"):
        return newest(kind)
    seen, kept = set(), []
    for file in sorted(RESULTS.glob(f"*-{kind}.json"), reverse=True):
        run = json.loads(file.read_text())
        rows = [row for row in rows_of(kind, run) if keys_of(kind, row) - seen]
        seen |= {key for row in rows for key in keys_of(kind, row)}
        if rows:
            kept.insert(0, with_rows(kind, run, rows))
    return kept


def mean(ratios):
    """Geometric."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def mean_sentence(what, ratios):
    """Empty where there is nothing of which to take the mean."""
    return f"\n{what}: {mean(ratios):.3f}.\n" if ratios else ""


def header(run, what):
    gpu, versions = run["gpu"], ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    return f"{what}: {run['date']}, {gpu['name']} (driver {gpu['driver_version']}). {versions}.\n{clocks(run)}"


def clocks(run):
    """A sentence about the multiprocessors' clock meanwhile, where the run has read it."""
    medians = {"this library": [], "PyTorch": []}
    for read in [run.get("clocks", {}), *(row.get("clocks", {}) for row in run.get("results", []))]:
        for engine, values in read.items():
            if "clocks.sm" in values:
                medians["this library" if engine == "tensor" else "PyTorch"].append(values["clocks.sm"]["median"])
    spans = [f"{engine} ran at {' to '.join(f'{mhz:,.0f}' for mhz in sorted({min(values), max(values)}))} MHz"
             for engine, values in medians.items() if values]
    if not spans:
        return ""
    return f"Clocks: {', '.join(spans)} (medians), of {run['gpu']['clocks.max.sm']}; power limit {run['gpu']['power.limit']}.\n"


def peer_cell(row, mode):
    """PyTorch's milliseconds, or "failed", or that it was not ready in time."""
    failure = row.get(f"torch_{mode}_failure", "")
    return f"{row[f'torch_{mode}_ms']:.3f}" if f"torch_{mode}_ms" in row else (
        failure if failure.startswith("not ready") else "failed" if failure else "–")


def faster(row, modes):
    """How many times as long the fastest of these modes takes as this library."""
    times = [row[f"torch_{mode}_ms"] for mode in modes if f"torch_{mode}_ms" in row]
    return [f"**{min(times) / row['tensor_ms']:.2f}**" if times else "–"]


def models(run):
    ceilings = run["ceilings"]
    rows = [
        [row["model"], str(row["batch"]), f"{row['tensor_ms']:.3f}", f"{row['narrow_ms']:.3f}" if "narrow_ms" in row else "–",
         peer_cell(row, "graph"), *faster(row, ["graph"]),
         f"{row['floor_ms']:.3f}", f"{row['kernel_groups']:.0f}"]
        for row in run["results"]
    ]
    return (
        header(run, "Models, milliseconds")
        + f"Ceilings in the same run: {ceilings['gemm8192_float16_TF']:.0f} TFLOP/s, {ceilings['read_TBs']:.2f} TB/s read.\n\n"
        + table(["model", "batch", "tensor", "narrow residuals", "PyTorch", "PyTorch ÷ tensor", "floor", "groups"], rows)
    )


COMPILED = ("best", "autotune")  # modes


def compiled(run):
    rows = []
    for row in run["results"]:
        for mode in COMPILED:
            if f"torch_{mode}_ms" in row or f"torch_{mode}_failure" in row:
                ready = f"{row[f'torch_{mode}_ready_s']:.0f}" if f"torch_{mode}_ready_s" in row else "–"
                rows.append([row["model"], str(row["batch"]), f"{row['tensor_ms']:.3f}", peer_cell(row, "graph"),
                             peer_cell(row, mode), mode, ready, *faster(row, ["graph", mode])])
    return header(run, "Beside PyTorch's compiler, milliseconds") + "\n" + table(
        ["model", "batch", "tensor", "PyTorch", "compiled", "mode", "ready s", "faster ÷ tensor"], rows)


def kernels(run):
    rows = [
        [row["kernel"], f"{row['chosen_us']:.2f}", f"{row['best_us']:.2f}", f"{row['torch_us']:.2f}",
         f"**{row['torch_us'] / row['chosen_us']:.2f}**"]
        for row in run["results"]
    ]
    return header(run, f"Kernels, microseconds, {run['dtype']}") + "\n" + table(
        ["kernel", "chosen", "fastest tried", "PyTorch", "PyTorch ÷ chosen"], rows)


def tests(run):
    rows = [[row["tool"], str(row["passed"]), ", ".join(row["failed"]) or "–", str(sum(row["errors"].values())),
             ", ".join(row["skipped"]) or "–", ", ".join(row["unfinished"]) or "–", f"{row['seconds']:.0f}"]
            for row in run["results"]]
    return header(run, "The tests that need a GPU, each by itself, and what compute-sanitizer finds in them") + "\n" + table(
        ["tool", "passed", "failed", "errors found", "skipped", "not finished in time", "s"], rows, 1)


# What GTCO takes to compile with one image: the paper's Table VI, on a GPU of its own.
PAPER_SECONDS = {"vit-base-patch16-224": 1312, "vit-large-patch16-224": 2214, "vit-huge-patch14-224": 2748,
                 "detr-resnet-50-e3": 1430, "detr-resnet-50-e6": 1624, "detr-resnet-50-e12": 1698,
                 "setr-naive": 1770, "setr-pup": 3452}


def tuned(run):
    rows = [
        [row["model"], str(row["batch"]), f"{len(row['subgraphs'])}", row["weights"], f"{row['trials']}", f"{row['failures']}",
         f"{row['tune_seconds']:.0f}", f"{row['compile_seconds']:.0f}",
         f"{PAPER_SECONDS[row['model']]:,}" if row["model"] in PAPER_SECONDS and row["batch"] == 1 else "–",
         f"{row['before_ms']:.3f}", f"{row['after_ms']:.3f}",
         f"**{row['before_ms'] / row['after_ms']:.3f}**", f"{row['sum_before_us'] / row['sum_after_us']:.3f}",
         f"{len(row['overturned'])}"]
        for row in run["results"]
    ]
    gains = [row["before_ms"] / row["after_ms"] for row in run["results"] if row["batch"] == 1]
    heads = ["model", "batch", "subgraphs", "[how often * how many]", "trials", "failed", "tuned s", "in all s", "the paper's s",
             "before ms", "after ms", "gain", "of the kernels alone", "fusions overturned"]
    return (header(run, "Tuning") + "\n" + table(heads, rows)
            + mean_sentence("Geometric mean of the gains at batch 1", gains)
            + listed(run, "overturned", "Fusions overturned in") + listed(run, "chosen", "Chosen by the time of the whole of"))


def listed(run, key, what):
    return "".join(f"\n{what} {row['model']}:\n\n" + "".join(f"- {text}\n" for text in row[key])
                   for row in run["results"] if row.get(key))


def level0(run):
    rows = [
        [row["model"], str(row["batch"]), f"{row['before_ms']:.3f}", f"{row['after_ms']:.3f}",
         f"**{row['before_ms'] / row['after_ms']:.3f}**"]
        for row in run["results"]
    ]
    ratios = [row["before_ms"] / row["after_ms"] for row in run["results"] if row["batch"] == 1]
    return (header(run, "What is taken without measuring (level 0) beside the tuned plans that ship, milliseconds by turns")
            + "\n" + table(["model", "batch", "level 0", "tuned", "level 0 ÷ tuned"], rows)
            + mean_sentence("Geometric mean at batch 1", ratios))


def minutes(run):
    rows = [
        [row["model"], f"{row['short_seconds']:.0f}", f"{row['short_trials']}", f"{row['long_allowed_seconds']}",
         f"{row['short_ms']:.4f}", f"{row['long_ms']:.4f}", f"**{row['short_ms'] / row['long_ms']:.3f}**"]
        for row in run["results"]
    ]
    return header(run, "A short tune beside a long one, their plans by turns") + "\n" + table(
        ["model", "tuned s", "trials", "long tune s, at most", "ms after the short one", "after the long one", "ratio"], rows
    )


def without(row):
    return row["without"].replace(",", ", ")


def ablation(run):
    whole = run["results"][0]["after_ms"]
    rows = [
        [row["model"], without(row) or "(nothing)", f"{row['trials']}", f"{row['tune_seconds']:.0f}",
         f"{row['before_ms']:.4f}", f"{row['after_ms']:.4f}", f"**{row['after_ms'] / whole:.3f}**"]
        for row in run["results"]
    ]
    return header(run, "With a part left out") + "\n" + table(
        ["model", "without", "trials", "tuned s", "before ms", "after ms", "÷ with all"], rows, 2
    )


def described(problem):
    """A subgraph in short: its operators but casts, and the shapes of the first two operands."""
    names = re.findall(r"= (\w+)\(%", problem)
    shapes = re.findall(r"= (?:constant )?\w+\(([\d, ]+)\)", problem)
    main = next(i for i, name in enumerate(names) if name in ("matmul", "conv2d"))
    reads = re.search(rf"= {names[main]}\(%(\d+), %(\d+)", problem)
    operands = []
    for number in reads.groups():
        own = re.search(rf"%{number} = (?:constant )?\w+\(([\d, ]+)\)", problem)
        operands.append((own[1] if own else shapes[0]).strip(", ").replace(", ", "x"))
    return " by ".join(operands) + ": " + ", ".join(name for name in names if name != "astype")


def left_out(row):
    return row["log"].removesuffix(".jsonl").removesuffix("-f16")


def ranking(run):
    rows = [
        [left_out(row), f"{row['problems']}"]
        + [f"{row[model][key]:.{digits}f}" for key, digits in (("rank_correlation", 2), ("top8_recall", 2), ("best_of_4", 3))
           for model in ("learned", "analytic")]
        for row in run["ranking"]["left_out"] if row["problems"]
    ]
    heads = ["left out", "subgraphs"]
    for key in ("rank correlation", "top-8 recall", "best of first 4"):
        heads += [f"{key}, learned", "analytic"]
    return (header(run, "How the cost model ranks what tuning measured of a model of which it has learned nothing")
            + "\n" + table(heads, rows))


METHODS = {"random": "random", "evolution": "evolution", "full": "anew", "started": "started"}
WHAT_THEY_ARE = ("Evolution has no model, \"anew\" one that learns from these trials only, \"started\" one that had learned from "
                 "the logs of models that do not have the subgraph, and goes on")


def searched(search):
    """A row a subgraph: level 0 beside the best, and the median over the seeds of each method's trials."""
    medians, rows, level0 = {key: [] for key in METHODS}, [], []
    for task in search["tasks"]:
        level0.append(task["level0_us"] / task["best_us"])
        row = [described(task["problem"]), f"{task['schedules']:,}", f"{level0[-1]:.3f}"]
        for key in METHODS:
            medians[key].append(statistics.median(
                curve["trials_to_random_best"] for curve in task["curves"] if curve["method"] == key))
            row.append(f"{medians[key][-1]:g}")
        rows.append(row)
    for name, of in (("median", statistics.median), ("mean", statistics.mean)):
        rows.append([f"{name} of {len(search['tasks'])}", "", f"**{of(level0):.3f}**"]
                    + [f"**{of(medians[key]):.3g}**" for key in METHODS])
    names = [f"**{name}**" if key == "started" else name for key, name in METHODS.items()]
    return table(["subgraph", "recorded", "level 0 ÷ best", *names], rows)


def seeds_of(search):
    return max(curve["seed"] for task in search["tasks"] for curve in task["curves"])


def percent(share):
    return f"{100 * share:.0f} %"


def tuned_subgraphs():
    """Those of the newest tuning and recording with one image, each with its model and its share of the model's time untuned."""
    tuned = [row for kind in ("ablation", "tuned") for run in runs(kind) for row in run["results"]]
    recorded = [row for run in runs("search") for row in run.get("recorded", [])]
    rows = [row for row in tuned + recorded if row["batch"] == 1 and row["dtype"] == "f16" and not row["without"]]
    return [one | {"model": row["model"], "share": one["weight"] * one["before_us"] / row["sum_before_us"]}
            for row in rows for one in row["subgraphs"]]


def same_subgraphs(task, subgraphs):
    """One a model, the heaviest last. Results of before 25 November, 19:00, do not name the problem: the same operators in
    about the same time are the same subgraph there if their spaces are as large, and of several such the heaviest is taken,
    since a model's last layer may have that time with fewer rows."""
    def names(text):
        return [name for name in text.split(", ") if name != "astype"]

    def is_alike(one):
        if "problem" in one:
            return one["problem"] == task["problem"]
        return names(one["operators"]) == operators and abs(one["before_us"] / task["level0_us"] - 1) < 0.025

    operators = names(described(task["problem"]).split(": ")[1])
    alike = sorted(filter(is_alike, subgraphs), key=lambda one: one["share"])
    same = {one["model"]: one for one in alike if one["space"] == alike[-1]["space"]}
    return sorted(same.values(), key=lambda one: one["share"])


def by_model(found):
    """A row a model: level 0 and the best of its recorded subgraphs, as often as it has them."""
    rows = []
    for model in sorted({one["model"] for _, one in found}, reverse=True):
        own = [(task, one) for task, one in found if one["model"] == model]
        level0, best = (sum(one["weight"] * task[key] for task, one in own) for key in ("level0_us", "best_us"))
        rows.append([model, "", percent(sum(one["share"] for _, one in own)), f"**{level0 / best:.3f}**"])
    return rows


def exhaustive(search):
    """Level 0 beside the best of each recording: how much of its space that is, and what it means for the models."""
    subgraphs = tuned_subgraphs()
    found = [(task, same_subgraphs(task, subgraphs)) for task in search["tasks"]]
    rows, whole = [], 0
    near = sum(task["level0_us"] <= 1.05 * task["best_us"] for task in search["tasks"])
    for task, alike in found:
        # A recording may be older than a rule that made the space smaller.
        space = max([task["schedules"], *(one["space"] for one in alike[-1:])])
        whole += task["schedules"] == space
        rows.append([described(task["problem"]), f"{task['schedules']:,} of {space:,}",
                     percent(alike[-1]["share"]) if alike else "–", f"{task['level0_us'] / task['best_us']:.3f}"])
    rows += by_model([(task, one) for task, alike in found for one in alike])
    return (f"Level 0 beside the best of the same recordings: at most 5 % slower on {near} of the {len(found)} subgraphs. "
            f"{whole} recordings are the whole space. The last rows are a model's recorded subgraphs together, each as often as "
            "it occurs; spaces, and shares of the time of the model that has most of it, are those that tuning told:\n\n"
            + table(["subgraph", "recorded of space", "share of the model", "level 0 ÷ best"], rows))


def search(run):
    return (header(run, "Searches of schedules that were drawn at random and recorded")
            + f"Trials until the best is that of all that were recorded ({run['search']['trials']:,} at most) by random search, medians of {seeds_of(run['search'])} seeds. "
            f"{WHAT_THEY_ARE}; level 0 is what is taken without measuring, of what was recorded:\n\n"
            + searched(run["search"])
            + "\n" + exhaustive(run["search"]))


def newest_rows(kind):
    """Of each model, number of images and type the last row."""
    rows = {}
    for run in runs(kind):
        rows |= {(row["model"], row["batch"], row.get("dtype", "f16")): row for row in run["results"]}
    return rows


def of_the_gpu():
    """The table of models, and a line for each kind of kernel."""
    [run] = runs("models")
    compilers = newest_rows("compiled")
    rows = []
    for row in run["results"]:
        one = compilers.get((row["model"], row["batch"], row["dtype"]))
        rows.append([row["model"], str(row["batch"]), f"{row['tensor_ms']:.3f}", f"{row['narrow_ms']:.3f}",
                     peer_cell(row, "graph"), *faster(row, ["graph"]), *(faster(one, COMPILED) if one else ["–"]),
                     f"{row['floor_ms']:.3f}", f"{row['kernel_groups']:.0f}", f"{row['GPU_MB']:,.0f}"])
    heads = ["model", "images", "tensor", "narrow residuals", "PyTorch", "PyTorch ÷ tensor", "torch.compile ÷ tensor", "floor",
             "kernels", "GPU MB"]
    about = f"{run['gpu']['name']}, torch {run['versions']['torch']}. Milliseconds in float16. {clocks(run)}"
    return paragraph(about) + "\n" + table(heads, rows) + "\n" + of_the_others() + "\n" + kernel_lines()


def of_the_others():
    """The models beside the paper's, with one image and with several; what PyTorch runs without a graph is not in the mean."""
    found = newest_rows("others")
    batches = sorted({batch for _, batch, _ in found})
    rows, ratios = [], {batch: [] for batch in batches}
    for model in dict.fromkeys(model for model, _, _ in found):
        cells = [model]
        for batch in batches:
            row = found.get((model, batch, "f16"))
            if not row or "torch_graph_ms" not in row:
                cells += ["–", "–"]
                continue
            ratio = row["torch_graph_ms"] / row["tensor_ms"]
            if row.get("torch_graph_is_eager"):
                cells += [f"{row['tensor_ms']:.3f}", f"({ratio:.2f})"]
            else:
                ratios[batch].append(ratio)
                cells += [f"{row['tensor_ms']:.3f}", f"**{ratio:.2f}**"]
        rows.append(cells)
    rows.append(["**geometric mean**", *(cell for batch in batches for cell in ("", f"**{mean(ratios[batch]):.2f}**"))])
    heads = [f"{what} {batch}" for batch in batches for what in ("tensor, images:", "PyTorch ÷ tensor,")]
    return table(["other models", *heads], rows)


def kind_of(kernel):
    family, shape, *epilogue = kernel.split("/")
    if family != "gemm":
        return {"conv": "convolutions", "softmax": "products with a softmax"}.get(family, family)
    if epilogue == ["narrow_residual"]:
        return "products, 64 images, residual of 16 bits"
    if epilogue == ["plain"]:
        return f"{shape}".replace("x", " x ")
    wide = int(shape.split("x")[0]) > 10000
    return f"products, {'64 images' if wide else 'one image'}" + (", residual of 32 bits" if wide and "residual" in epilogue else "")


def kernel_lines():
    [run] = runs("kernels")
    ratios = {}
    for row in run["results"]:
        ratios.setdefault(kind_of(row["kernel"]), []).append(row["torch_us"] / row["chosen_us"])
    return table(["kernels alone", "how many", "PyTorch ÷ tensor, least", "mean", "most"],
                 [[kind, str(len(of)), f"{min(of):.2f}", f"**{mean(of):.2f}**", f"{max(of):.2f}"] for kind, of in ratios.items()])


def of_tuning():
    """The newest tuning of each model with one image, on the GPU and on a CPU."""
    shipped, rows = newest_rows("level0"), []
    order = [key for key in shipped]
    for key, row in sorted(newest_rows("tuned").items(), key=lambda one: order.index(one[0]) if one[0] in order else len(order)):
        if row["batch"] == 1:
            plan = shipped.get(key)
            rows.append(["H200", *tuning_row(row), f"{PAPER_SECONDS[row['model']]:,}" if row["model"] in PAPER_SECONDS else "–",
                         f"{plan['before_ms'] / plan['after_ms']:.3f}" if plan else "–"])
    gains = [float(row[5].strip("*")) for row in rows]
    said = mean_sentence("Geometric mean of the gains", gains)
    for file in sorted((RESULTS.parent / "cpu").glob("*-tuned.json"))[-1:]:
        run = json.loads(file.read_text())
        told = [row["before_ms"] / row["after_ms"] for row in run["results"]]
        said = (f"{said.rstrip()} On a CPU ({run['machine'].get('label', run['machine']['cpu'])}) {len(told)} models gained "
                f"{min(told):.3f} to {max(told):.3f}.\n")
    return table(["device", "model", "type", "level 0 ms", "tuned ms", "gain", "schedules", "s", "the paper's s",
                  "level 0 ÷ shipped"], rows, 3) + said


def tuning_row(row):
    digits = 3 if row["before_ms"] < 10 else 1
    return [row["model"], row["dtype"], f"{row['before_ms']:.{digits}f}", f"{row['after_ms']:.{digits}f}",
            f"**{row['before_ms'] / row['after_ms']:.3f}**", f"{row['trials']:,}", f"{row['tune_seconds']:.0f}"]


KINDS = {"models": models, "compiled": compiled, "kernels": kernels, "tests": tests, "tuned": tuned, "level0": level0,
         "minutes": minutes, "ablation": ablation, "search": search, "cost-model": ranking}

if __name__ == "__main__":
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        print("\n".join(KINDS[kind](run) for kind in sys.argv[1:] for run in runs(kind)))
    else:
        put(of_the_gpu(), "gpu table")
        put(of_tuning(), "tuning table")

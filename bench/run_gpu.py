"""Measures everything about GPUs that bench/README.md tells, a step at a time; each writes its file into bench/results/gpu.

    python bench/run_gpu.py               # all steps, in this order
    python bench/run_gpu.py tuned level0  # some of them

    kernels     single kernels beside PyTorch's                                1 to 2 minutes
    models      the nine models beside PyTorch's CUDA graphs                   about 10 minutes
    compiled    one image beside PyTorch's compiler                            up to --limit (900 s) a model
    tuned       tunes the models with one image: 60 s each, DETR 180 s         about 20 minutes
    level0      level 0 beside the plans of the logs that ship                 about 5 minutes
    minutes     ViT-B and DETR-E6 tuned for ten minutes, beside "tuned"        about 25 minutes
    ablation    ViT-B tuned for 36 s without each part of the compiler         about 6 minutes
    search      records random schedules of three models, replays searches     about 10 minutes, then a CPU's
    cost-model  what a cost model learns from the logs of "tuned"              minutes of a CPU, no GPU

The steps minutes, search and cost-model use the logs of "tuned" (--logs). `gpu_table.py --write` then puts all into
bench/README.md. One GPU of the Hopper architecture, idle, is taken for granted, and the release build.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

import gpu

PEERS = gpu.ROOT / "bench/peers"
VIT = ["vit-base-patch16-224", "vit-large-patch16-224", "vit-huge-patch14-224"]
SETR = ["setr-naive-base", "setr-naive", "setr-pup"]
DETR = ["detr-resnet-50-e3", "detr-resnet-50-e6", "detr-resnet-50-e12"]
TOGETHER = ["detr-resnet-50-e6", "vit-base-patch16-224"]  # of "minutes"


def program(options, name):
    return str(options.build / "bench" / name)


def printed(*command, environment=()):
    """What the command prints; what it tells besides is shown."""
    print(" ".join(map(str, command)), file=sys.stderr)
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, env={**os.environ, **dict(environment)})
    if done.returncode and not done.stdout:
        sys.exit(f"{command[0]} failed")
    return done.stdout


def tune(options, logs, models, *more, environment=()):
    """A row a model, but those that failed."""
    lines = printed(program(options, "tune_models"), "--device=cuda", "--dtype=f16",
                    f"--logs={logs}", *more, *models, environment=environment).splitlines()
    return [row for row in map(json.loads, lines) if "error" not in row]


def save(kind, what, told):
    """The file of this kind; `told` is what the programs told: {"results": rows} or {key: what one has printed}."""
    [commit, *others] = {row["commit"] for part in told.values() for row in (part if isinstance(part, list) else [part])}
    assert not others, "the programs were built from different commits"
    print(gpu.save(kind, {"command": f"bench/run_gpu.py {kind}: {what}", "gpu": gpu.described(),
                          "versions": {"tensor": commit}, **told}), file=sys.stderr)


def kernels(options):
    printed(sys.executable, PEERS / "compare_kernels.py", "--schedules", 4, "--bench", program(options, "cuda_kernels"))


def models(options):
    printed(sys.executable, PEERS / "compare_gpu.py", "--bench", program(options, "bench_models"))


def compiled(options):
    printed(sys.executable, PEERS / "compare_gpu.py", "--bench", program(options, "bench_models"), "--models=-b1$",
            "--modes=graph,autotune", f"--limit={options.limit}")


def tuned(options):
    logs = options.logs / "tuned"
    rows = tune(options, logs, VIT + SETR, "--seconds=60") + tune(options, logs, DETR, "--seconds=180")
    save("tuned", "tune_models --seconds=60 (DETR: 180)", {"results": rows})


def level0(options):
    rows = []
    for batch, names in ((1, VIT + DETR + SETR), (64, VIT)):
        folder = options.logs / "shipped"
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy(gpu.ROOT / f"src/tune/shipped/h200-b{batch}-f16.jsonl", folder / f"{name}-b{batch}-f16.jsonl")
        rows += tune(options, folder, names, "--seconds=0.1", f"--batch={batch}")
    save("level0", "tune_models --seconds=0.1, its logs being the shipped ones", {"results": rows})


def minutes(options):
    short, long = options.logs / "tuned", options.logs / "long"
    long.mkdir(parents=True, exist_ok=True)
    tuned_rows = json.loads(sorted(gpu.RESULTS.glob("*-tuned.json"))[-1].read_text())["results"]
    rows = []
    for row in tune(options, long, TOGETHER, "--seconds=600", f"--against={short}"):
        before = next(one for one in tuned_rows if (one["model"], one["batch"]) == (row["model"], row["batch"]))
        rows.append({key: row[key] for key in ("model", "batch", "dtype", "commit")} | {
            "short_seconds": before["tune_seconds"], "short_trials": before["trials"], "long_allowed_seconds": 600,
            "long_end": row["end"], "short_ms": row["before_ms"], "long_ms": row["after_ms"]})
    save("minutes", "tune_models --seconds=600 --against=the logs of \"tuned\"", {"results": rows})


# What is left out: how it is told, the options that do it, and the environment.
ABLATION = [("", [], {}), *((parts, [f"--without={parts}"], {}) for parts in
                            ("model", "model,evolution", "scheduler", "sketches", "partition", "fusion")),
            ("wgmma,TMA", [], {"TENSOR_MAX_CAPABILITY": "80"}), ("Tensor Cores", ["--dtype=f32"], {})]


def ablation(options):
    rows = []
    for without, more, environment in ABLATION:
        folder = options.logs / f"without-{without or 'nothing'}"
        rows += [row | {"without": without} for row in
                 tune(options, folder, VIT[:1], "--seconds=36", *more, environment=environment)]
    save("ablation", "tune_models --seconds=36 with a fresh log; --without=LIST, TENSOR_MAX_CAPABILITY=80 (no wgmma, no TMA), "
         "--dtype=f32 (no Tensor Cores)", {"results": rows})


def search(options):
    folder = options.logs / "recorded"
    for name, seconds in ((VIT[0], 145), (VIT[1], 145), (DETR[1], 210)):
        tune(options, folder, [name], "--record=4", "--trials=1000", f"--seconds={seconds}")
    taught = [f"--teach={log}" for log in sorted((options.logs / "tuned").glob("*.jsonl"))]
    told = printed(program(options, "tune_search"), "--trials=1000", "--least=100", "--transfer", *taught, *sorted(folder.glob("*.jsonl")))
    save("search", "tune_models --record=4 --trials=1000; tune_search --transfer", {"search": json.loads(told)})


def cost_model(options):
    told = printed(program(options, "tune_model"), *sorted((options.logs / "tuned").glob("*.jsonl")))
    save("cost-model", "tune_model on the logs of \"tuned\"", {"ranking": json.loads(told)})


STEPS = {"kernels": kernels, "models": models, "compiled": compiled, "tuned": tuned, "level0": level0, "minutes": minutes,
         "ablation": ablation, "search": search, "cost-model": cost_model}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", metavar="STEP", help="all, in the order above")
    parser.add_argument("--build", type=pathlib.Path, default=gpu.ROOT / "build/release")
    parser.add_argument("--logs", type=pathlib.Path, default=pathlib.Path("tune-logs"), help="a folder; a new one tunes anew")
    parser.add_argument("--limit", type=float, default=900, help="seconds for a model that PyTorch compiles (900)")
    options = parser.parse_args()
    for step in options.steps:
        if step not in STEPS:
            parser.error(f"does not know the step {step}; there are {', '.join(STEPS)}")
    for step in options.steps or STEPS:
        STEPS[step](options)


if __name__ == "__main__":
    main()

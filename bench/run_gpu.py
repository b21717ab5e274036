"""Measures everything about GPUs that bench/README.md tells, a step at a time; each writes its file into bench/results/gpu.

    python bench/run_gpu.py                                # all steps, in this order
    python bench/run_gpu.py tuned level0 --models='vit.*-b1$'  # some of them, of some models

    kernels     single kernels beside PyTorch's                                1 to 2 minutes
    models      the nine models beside PyTorch's CUDA graphs                   about 10 minutes
    others      the other models, one image and 32, beside PyTorch's graphs    about 15 minutes
    compiled    one image beside PyTorch's compiler                            up to --limit (900 s) a model
    tuned       tunes the models with one image: 60 s each, DETR 180 s         about 20 minutes
    level0      level 0 beside the plans of the logs that ship                 about 5 minutes
    minutes     ViT-B and DETR-E6 tuned for ten minutes, beside "tuned"        about 25 minutes
    ablation    ViT-B tuned for 36 s without each part of the compiler         about 6 minutes
    search      records random schedules of seven models, replays searches     about 24 minutes, then a CPU's
    cost-model  what a cost model learns from the logs of "tuned"              minutes of a CPU, no GPU

Two more run only when they are named:

    tests       the GPU tests, alone and under compute-sanitizer               12 minutes with --limit=220
    logs        tunes with 8 and 64 images (--batch), for the logs that ship   60 s each, DETR-E6 180 s

The steps tuned, level0, minutes and logs take the models that --models finds in MODEL-bBATCH, and what was measured is
on the disk after each. A later call adds its rows to the newest file of the step, if that is of the same commit and
GPU; so a step may be done in parts. Of the step search --models tells what to record; replayed is what the folder has.
The steps minutes, search and cost-model use the logs of "tuned" (--logs). `gpu_table.py --write` then puts all into
bench/README.md. One GPU of the Hopper architecture, idle, is taken for granted, and the release build.
"""

import argparse
import concurrent.futures
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import gpu

PEERS = gpu.ROOT / "bench/peers"
VIT = ["vit-base-patch16-224", "vit-large-patch16-224", "vit-huge-patch14-224"]
SETR = ["setr-naive-base", "setr-naive", "setr-pup"]
DETR = ["detr-resnet-50-e3", "detr-resnet-50-e6", "detr-resnet-50-e12"]
MODELS = VIT + DETR + SETR
TOGETHER = [VIT[0], DETR[1]]  # of "minutes"


def program(options, name):
    return str(options.build / "bench" / name)


def printed(*command, environment=(), may_fail=False):
    """What the command prints; what it tells besides is shown."""
    print(" ".join(map(str, command)), file=sys.stderr)
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, env={**os.environ, **dict(environment)})
    if done.returncode and not done.stdout and not may_fail:
        sys.exit(f"{command[0]} failed")
    return done.stdout


def tune(options, logs, model, *more, environment=()):
    """A row, or none if it failed."""
    lines = printed(program(options, "tune_models"), "--device=cuda", "--dtype=f16",
                    f"--logs={logs}", *more, model, environment=environment,
                    may_fail=True).splitlines()
    return [row for row in map(json.loads, lines) if "error" not in row]


def wanted(options, models, batch=1):
    return [model for model in models if re.search(options.models, f"{model}-b{batch}")]


def log_of(folder, model, batch=1):
    """As tune_models calls it."""
    return folder / f"{model}-b{batch}-f16.jsonl"


def command(kind, what):
    return f"bench/run_gpu.py {kind}: {what}"


def save(kind, what, told):
    """The file of this kind; `told` is what the programs told: {"results": rows} or {key: what one has printed}."""
    [commit, *others] = {row["commit"] for part in told.values() for row in (part if isinstance(part, list) else [part])}
    assert not others, "the programs were built from different commits"
    path = gpu.save(kind, {"command": command(kind, what), "gpu": gpu.described(), "versions": {"tensor": commit}, **told})
    print(path, file=sys.stderr)
    return path


def add(kind, what, rows, place=lambda row: (row["batch"], MODELS.index(row["model"]))):
    """Rows for the newest file of this kind, in the order of their places and in that of older ones there, or for a new file."""
    for row in rows:
        old = gpu.newest(kind)
        result = json.loads(old.read_text()) if old else {}
        if (result.get("command"), result.get("gpu"), result.get("versions")) != (
                command(kind, what), gpu.described(), {"tensor": row["commit"]}):
            save(kind, what, {"results": [row]})
            continue
        kept = [one for one in result["results"] if place(one) != place(row)]
        result["results"] = sorted([*kept, row], key=place)
        gpu.write(old, result)


def kernels(options):
    printed(sys.executable, PEERS / "compare_kernels.py", "--schedules", 4, "--bench", program(options, "cuda_kernels"))


def models(options):
    printed(sys.executable, PEERS / "compare_gpu.py", "--bench", program(options, "bench_models"))


def others(options):
    printed(sys.executable, PEERS / "compare_gpu.py", "--bench", program(options, "bench_models"), "--others")


def compiled(options):
    printed(sys.executable, PEERS / "compare_gpu.py", "--bench", program(options, "bench_models"), "--models=-b1$",
            "--modes=graph,autotune", f"--limit={options.limit}")


def tuned(options):
    for model in wanted(options, VIT + SETR + DETR):
        add("tuned", "tune_models --seconds=60 (DETR: 180)",
            tune(options, options.logs / "tuned", model, f"--seconds={180 if model in DETR else 60}"))


def shipped(batch):
    return gpu.ROOT / f"src/tune/shipped/h200-b{batch}-f16.jsonl"


def level0(options):
    folder = options.logs / "shipped"
    folder.mkdir(parents=True, exist_ok=True)
    for batch, names in ((1, MODELS), (64, VIT)):
        for model in wanted(options, names, batch):
            shutil.copy(shipped(batch), log_of(folder, model, batch))
            add("level0", "tune_models --without=tuning, its logs being the shipped ones",
                tune(options, folder, model, "--without=tuning", f"--batch={batch}"))


def minutes(options):
    short, long = options.logs / "tuned", options.logs / "long"
    long.mkdir(parents=True, exist_ok=True)
    before = {row["model"]: row for row in json.loads(gpu.newest("tuned").read_text())["results"]}
    for model in wanted(options, TOGETHER):
        rows = tune(options, long, model, "--seconds=600", f"--against={short}")
        add("minutes", "tune_models --seconds=600 --against=the logs of \"tuned\"", [
            {key: row[key] for key in ("model", "batch", "dtype", "commit")} | {
                "short_seconds": before[model]["tune_seconds"], "short_trials": before[model]["trials"],
                "long_allowed_seconds": 600, "long_seconds": row["tune_seconds"], "long_end": row["end"], "short_ms": row["before_ms"], "long_ms": row["after_ms"]}
            for row in rows])


# What is left out: how it is told, the options that do it, and the environment.
ABLATION = [("", [], {}), *((parts, [f"--without={parts}"], {}) for parts in
                            ("model", "model,evolution", "scheduler", "sketches", "partition", "fusion")),
            ("wgmma,TMA", [], {"TENSOR_MAX_CAPABILITY": "80"}), ("Tensor Cores", ["--dtype=f32"], {})]


def ablation(options):
    rows = []
    for without, more, environment in ABLATION:
        folder = options.logs / f"without-{without or 'nothing'}"
        rows += [row | {"without": without} for row in
                 tune(options, folder, VIT[0], "--seconds=36", *more, environment=environment)]
    save("ablation", "tune_models --seconds=36 with a fresh log; --without=LIST, TENSOR_MAX_CAPABILITY=80 (no wgmma, no TMA), "
         "--dtype=f32 (no Tensor Cores)", {"results": rows})


TRIALS = 1300  # of a problem: more than most spaces of products and attentions have schedules
MOST_BYTES = 1 << 20  # of recordings that are kept beside the results


def search(options):
    folder, recorded = options.logs / "recorded", []
    for model, seconds in ((VIT[0], 190), (VIT[1], 190), (VIT[2], 190), (DETR[1], 275), *((model, 190) for model in SETR)):
        if wanted(options, [model]):
            recorded += tune(options, folder, model, "--record=4", f"--trials={TRIALS}", f"--seconds={seconds}")
    recordings = sorted(folder.glob("*.jsonl"))
    taught = [f"--teach={log}" for log in sorted((options.logs / "tuned").glob("*.jsonl"))]
    told = printed(program(options, "tune_search"), f"--trials={TRIALS}", "--least=100", "--transfer", *taught, *recordings)
    path = save("search", f"tune_models --record=4 --trials={TRIALS}; tune_search --transfer",
                {"search": json.loads(told), "recorded": recorded})
    packed = [gzip.compress(log.read_bytes(), 9, mtime=0) for log in recordings]
    if sum(map(len, packed)) > MOST_BYTES:
        print(f"the recordings are too large to be kept beside {path}: they stay in {folder}", file=sys.stderr)
        return
    for log, data in zip(recordings, packed):
        path.with_name(f"{path.stem}-{log.name}.gz").write_bytes(data)


def cost_model(options):
    told = printed(program(options, "tune_model"), *sorted((options.logs / "tuned").glob("*.jsonl")))
    save("cost-model", "tune_model on the logs of \"tuned\"", {"ranking": json.loads(told)})


TOOLS = ["none", "memcheck", "synccheck", "racecheck"]
# Tests provoke refusals of the driver; and every process has a core.
MORE = {"memcheck": ["--report-api-errors=no"], "racecheck": ["--racecheck-num-workers=1"]}
TESTS = "*OnGpu*:*OnDevice*:Gpu.*:DeviceTensor.*"
LONG = "*StandardModels*:Gpu.AFatalErrorIsNeverHidden"  # or failing on purpose: not for the sanitizers


def names_of(tests, chosen):
    """Of the tests that a filter of GoogleTest chooses."""
    suite, names = "", []
    for line in printed(tests, "--gtest_list_tests", f"--gtest_filter={chosen}").splitlines():
        if not line.startswith(" "):
            suite = line.split()[0]
        else:
            names.append(suite + line.split()[0])
    return names


def tested(options, tool, number, name, folder):
    """How a test by itself ended, and how many errors the tool found."""
    report, log = folder / f"{number}.json", folder / f"{number}.log"
    # By default ten processes at most find a port.
    tool_command = [] if tool == "none" else [
        "compute-sanitizer", f"--tool={tool}", *MORE.get(tool, []), f"--port={10000 + 16 * number}", f"--log-file={log}"]
    command = [*tool_command, options.build / "tests/cuda_tests", f"--gtest_filter={name}", f"--gtest_output=json:{report}"]
    end, out = "passed", ""
    try:
        out = gpu.output(["bash", "-c", '"$@" 2>&1; echo "exit $?"', "", *command], options.limit)
    except subprocess.TimeoutExpired:
        end = "unfinished"
    except (RuntimeError, UnicodeDecodeError) as error:
        end, out = "failed", str(error)
    # "ERROR SUMMARY: 2 errors", "RACECHECK SUMMARY: 3 hazards displayed (1 error, 2 warnings)"; a line a process.
    text = log.read_text(errors="replace") if log.exists() else ""
    found = sum(map(int, re.findall(r"SUMMARY: (\d+) (?:error|hazard)", text)))
    if end == "passed":
        try:
            [test] = [test for suite in json.loads(report.read_text())["testsuites"] for test in suite["testsuite"]
                      if test["status"] == "RUN"]
            if test["result"] == "SKIPPED":
                return "skipped", 0
            failed = test.get("failures") or not out.endswith("exit 0\n") or (tool != "none" and "SUMMARY" not in text)
            end = "failed" if failed else "passed"
        except (OSError, ValueError, KeyError):  # no report, or not what GoogleTest writes
            end = "failed"
    if end != "passed" or found:
        print(name, end, out[-2000:], text[-4000:], file=sys.stderr)
    return end, found


def tests(options):
    for tool in options.tools.split(","):
        begin = time.monotonic()
        long = "" if tool == "none" else (":" if "-" in options.tests else "-") + LONG
        names = names_of(options.build / "tests/cuda_tests", options.tests + long)
        with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.processes) as pool:
            ends = list(pool.map(lambda one: tested(options, tool, *one, pathlib.Path(folder)), enumerate(names)))
        row = {"tool": tool, "tests": options.tests, "processes": options.processes, "commit": options.commit,
               "seconds": round(time.monotonic() - begin, 1), "passed": sum(end == "passed" for end, _ in ends),
               "errors": {name: found for name, (_, found) in zip(names, ends) if found},
               **{kind: [name for name, (end, _) in zip(names, ends) if end == kind]
                  for kind in ("failed", "skipped", "unfinished")}}
        print(json.dumps(row))
        add("tests", "cuda_tests, each test by itself", [row], lambda row: (TOOLS.index(row["tool"]), row["tests"]))


BATCHES = [8, 64]  # of the step logs


def logs(options):
    folder = options.logs / "shipping"
    folder.mkdir(parents=True, exist_ok=True)
    for batch in [options.batch] if options.batch else BATCHES:
        for model in wanted(options, [*VIT, DETR[1], DETR[0], DETR[2], *SETR], batch):
            log, sibling = log_of(folder, model, batch), log_of(folder, DETR[1], batch)
            if model in DETR and not log.exists() and sibling.exists():
                shutil.copy(sibling, log)
            best = log.with_suffix(".best")
            add("logs", "tune_models --seconds=60 (DETR-E6: 180; DETR-E3 and -E12 begin with its log)",
                tune(options, folder, model, f"--seconds={180 if model == DETR[1] else 60}", f"--batch={batch}",
                     f"--best={best}"))
            printed(program(options, "tune_model"), f"--merge={shipped(batch)}", shipped(batch), best)


STEPS = {"kernels": kernels, "models": models, "others": others, "compiled": compiled, "tuned": tuned, "level0": level0, "minutes": minutes,
         "ablation": ablation, "search": search, "cost-model": cost_model}
NAMED = {"tests": tests, "logs": logs}  # only when named


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", metavar="STEP", help="all of the first list, in the order above")
    parser.add_argument("--build", type=pathlib.Path, default=gpu.ROOT / "build/release")
    parser.add_argument("--logs", type=pathlib.Path, default=pathlib.Path("tune-logs"), help="a folder; a new one tunes anew")
    parser.add_argument("--models", default="", help="only those that this regular expression finds in MODEL-bBATCH")
    parser.add_argument("--limit", type=float, default=900, help="seconds for a model that PyTorch compiles, or a test (900)")
    parser.add_argument("--batch", type=int, choices=BATCHES, help="of the step logs; both unless told")
    parser.add_argument("--tools", default=",".join(TOOLS), help=f"of the step tests, with commas ({','.join(TOOLS)})")
    parser.add_argument("--tests", default=TESTS, help=f"of the step tests, a filter of GoogleTest ({TESTS})")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="of the step tests, at a time (one a core)")
    parser.add_argument("--commit", default=gpu.commit(), help="that the tests were built from, where git cannot tell")
    options = parser.parse_args()
    steps = STEPS | NAMED
    for step in options.steps:
        if step not in steps:
            parser.error(f"does not know the step {step}; there are {', '.join(steps)}")
    if unknown := set(options.tools.split(",")) - set(TOOLS):
        parser.error(f"does not know the tools {', '.join(unknown)}")
    for step in options.steps or STEPS:
        steps[step](options)


if __name__ == "__main__":
    main()

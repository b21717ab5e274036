"""Times the models on this library and on PyTorch, in float16 on one GPU, in one run.

    python bench/peers/compare_gpu.py --bench build/release/bench/bench_models    # into bench/results/gpu
    python bench/peers/compare_gpu.py --bench build/release/bench/bench_models --others

The engines of a model run one after the other, this library with its residual stream in float32 and in float16 (narrow
residuals), as PyTorch has it. What is measured is on the disk after every model, as -models.json of the paper's nine, as
-others.json of those beside them (`--others`: one image and 32), or as -compiled.json of some of them or in other modes.
PyTorch replays a CUDA graph of eager operators, or runs them where they cannot be captured; `--modes` adds its compiler's: `best` (max-autotune, frozen weights, in a
CUDA graph) and `autotune`, which take minutes a model, up to `--limit`. What fails or is not ready by then is told in place
of its time. This library runs its own graph. Both times are the GPU's, without copies from and to the host: medians by CUDA
events.
"""

import argparse
import datetime
import json
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import compare  # noqa: E402
import gpu  # noqa: E402

GRAPH_LIMIT = 120  # seconds
MODES = ["graph", "best", "autotune"]
CASES = [
    ("vit-base-patch16-224", "vit_b", 1),
    ("vit-large-patch16-224", "vit_l", 1),
    ("vit-huge-patch14-224", "vit_h", 1),
    ("detr-resnet-50-e3", "detr_e3", 1),
    ("detr-resnet-50-e6", "detr_e6", 1),
    ("detr-resnet-50-e12", "detr_e12", 1),
    ("setr-naive-base", "setr_nb", 1),
    ("setr-naive", "setr_n", 1),
    ("setr-pup", "setr_pup", 1),
    ("vit-base-patch16-224", "vit_b", 64),
    ("vit-large-patch16-224", "vit_l", 64),
    ("vit-huge-patch14-224", "vit_h", 64),
]


def others(bench):
    """One image and 32 of every model that is not the paper's."""
    names = [model for model in compare.models_of(bench) if model not in {model for model, _, _ in CASES}]
    return [(model, model, batch) for batch in (1, 32) for model in names]


def runs(bench, model, batch, repeats, *options):
    """Of several runs what the program counts, each with its own mean."""
    command = [bench, "--device=cuda", f"--batch={batch}", f"--benchmark_filter=^{model}/cuda/f16", "--benchmark_format=json"]
    command += ["--benchmark_min_time=0.1", f"--benchmark_repetitions={repeats}", *options]
    told = json.loads(gpu.output(command, 300))
    return [row for row in told["benchmarks"] if row["run_type"] == "iteration"], told["context"].get("commit", "unknown")


def ours(bench, model, batch, repeats):
    """Medians, what the model takes of the GPU's memory (in all, and for intermediate values), and the program's commit."""
    rows, commit = runs(bench, model, batch, repeats)
    times = [row["real_time"] for row in rows]
    narrow = [row["real_time"] for row in runs(bench, model, batch, repeats, "--narrow-residuals")[0]]
    middle = statistics.median(times)
    gflop = statistics.median(row["GFLOP/s"] * row["real_time"] / 1e3 for row in rows)
    return {"tensor_ms": middle, "rounds_ms": times, "narrow_ms": statistics.median(narrow), "narrow_rounds_ms": narrow,
            "gflop": gflop, "weights_MB": rows[0]["weights_MB"] / 2, "arena_MB": rows[0]["arena_MB"],
            "GPU_MB": rows[0].get("GPU_MB"), "compile_ms": rows[0]["compile_ms"], "kernel_groups": rows[0]["groups"]}, commit


def peer(name, batch, mode, limit):
    """What a peer takes and took to get ready, or why it has no time."""
    script = pathlib.Path(__file__).with_name("gpu_peers.py")
    try:
        printed = gpu.output([sys.executable, str(script), "case", name, str(batch), mode], limit)
        times = json.loads(printed.splitlines()[-1])
        return {"ms": times["ms"], "ready_s": times["prep_s"]}
    except subprocess.TimeoutExpired:
        return {"failure": f"not ready in {limit:g} s"}
    except RuntimeError as error:
        return {"failure": (str(error).strip().splitlines() or ["without a word"])[-1]}


def floor_ms(row, tflops, terabytes):
    """The least time: all products at the measured rate, or all weights (as float16) read once."""
    return max(row["gflop"] / tflops, row["weights_MB"] / terabytes / 1e3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="the program bench_models")
    parser.add_argument("--out", type=pathlib.Path, default=gpu.RESULTS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--modes", default="graph", help=f"of PyTorch, with commas: {', '.join(MODES)}")
    parser.add_argument("--limit", type=float, default=900, help="seconds for a model that is compiled (900)")
    parser.add_argument("--models", default="", help="only those that this regular expression finds in MODEL-bBATCH")
    parser.add_argument("--others", action="store_true", help="not the paper's nine but the rest")
    options = parser.parse_args()
    modes = options.modes.split(",")
    if unknown := set(modes) - set(MODES):
        parser.error(f"does not know the modes {', '.join(unknown)}")
    kind = "others" if options.others else "models" if modes == ["graph"] and not options.models else "compiled"
    script = pathlib.Path(__file__).with_name("gpu_peers.py")
    ceilings = json.loads(gpu.output([sys.executable, str(script), "ceilings"], 200).splitlines()[-1])
    now = datetime.datetime.now(datetime.timezone.utc)
    rows = []
    result = {"command": "bench/peers/compare_gpu.py", "gpu": gpu.described(),
              "versions": {"tensor": None, "torch": ceilings["torch"]}, "ceilings": ceilings, "results": rows}
    for model, name, batch in others(options.bench) if options.others else CASES:
        if not re.search(options.models, f"{model}-b{batch}"):
            continue
        row = {"model": model, "batch": batch, "dtype": "f16", "clocks": {}}
        with gpu.Clocks() as clocks:
            times, commit = ours(options.bench, model, batch, options.repeats)
        row.update(times)
        row["clocks"]["tensor"] = clocks.told()
        if result["versions"]["tensor"] not in (None, commit):
            raise RuntimeError(f"{options.bench} was built anew meanwhile: {commit}")
        result["versions"]["tensor"] = commit
        theirs = {}
        for mode in modes:
            with gpu.Clocks() as clocks:
                theirs[mode] = peer(name, batch, mode, GRAPH_LIMIT if mode == "graph" else options.limit)
                if mode == "graph" and "failure" in theirs[mode]:  # some of transformers' models cannot be captured
                    theirs[mode] = {**peer(name, batch, "eager", GRAPH_LIMIT), "is_eager": True}
            row.update({f"torch_{mode}_{key}": value for key, value in theirs[mode].items()})
            row["clocks"][f"torch_{mode}"] = clocks.told()
        row["floor_ms"] = floor_ms(row, ceilings["gemm8192_float16_TF"], ceilings["read_TBs"])
        rows.append(row)
        gpu.save(kind, result, options.out, now)
        print(f"{model} b{batch}: {row['tensor_ms']:.3f} ms, narrow residuals {row['narrow_ms']:.3f}, " +
              f"floor {row['floor_ms']:.3f}; PyTorch " +
              ", ".join(f"{mode} {times['ms']:.3f} ({times['ms'] / row['tensor_ms']:.2f} x)" if "ms" in times else
                        f"{mode} failed: {times['failure']}" for mode, times in theirs.items()), flush=True)


if __name__ == "__main__":
    main()

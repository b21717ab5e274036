"""Times the models of bench_models on this library, PyTorch (eager and torch.compile), ONNX Runtime and OpenVINO: same
machine, sizes and threads, one run. The engines of a model take turns, one at a time, so that noise hits all alike.

    python bench/peers/compare.py                                   # everything, into bench/results
    python bench/peers/compare.py --models vit-base-patch16-224 --repeats 1
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import table  # noqa: E402

ENGINES = {
    "f32": ["tensor", "torch", "torch.compile", "onnxruntime", "openvino"],
    "bf16": ["tensor", "torch", "torch.compile", "openvino"],
}
FROM_ONNX = ["onnxruntime", "openvino"]
PAUSE_S = 0.3  # for the threads of the engine before to fall asleep


class Failure(Exception):
    pass


@contextlib.contextmanager
def limited(process, seconds):
    """Kills the process if it takes longer."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def reason(exit_code, errors):
    errors.seek(0)
    last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
    return "took too long, or too much memory" if exit_code == -signal.SIGKILL else " ".join(last)[:400]


class Tensor:
    """This library: the Google Benchmark program, started anew for every turn."""

    def __init__(self, options, model, dtype, folder):
        self.limit = options.limit
        self.name = f"{model}/cpu/{dtype}/b{options.batch}/compiled"
        self.command = [options.binary, f"--threads={options.threads}", f"--batch={options.batch}"]
        self.command += [f"--benchmark_filter=^{self.name}$", "--benchmark_format=json", "--benchmark_min_time=1e-9"]

    def start(self):
        [row] = self.benchmark(1)
        counters = {key: round(row[key], 2) for key in ("compile_ms", "groups", "arena_MB", "weights_MB")}
        gflop = round(row["GFLOP/s"] * row["real_time"] / 1e3, 2)
        return {"warm_ms": row["real_time"], "gflop": gflop, **counters}

    def run(self, count):
        rows = self.benchmark(count)
        return {"ms": [row["real_time"] for row in rows], "peak_MB": self.peak_mb}

    def benchmark(self, repetitions):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            command = self.command + [f"--benchmark_repetitions={repetitions}"]
            process = subprocess.Popen(command, stdout=out, stderr=errors)
            with limited(process, self.limit):
                _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            if process.returncode != 0:
                raise Failure(reason(process.returncode, errors))
            rows = json.load(out)["benchmarks"]
        self.peak_mb = round(usage.ru_maxrss * 1024 / 1e6)
        return [row for row in rows if row["run_type"] == "iteration"]

    def stop(self):
        pass


class Peer:
    """A worker.py, which keeps its model ready and sleeps between its turns."""

    def __init__(self, engine, options, model, dtype, folder):
        self.limit = options.limit
        self.errors = tempfile.TemporaryFile()
        arguments = [engine, model, dtype, options.batch, options.threads, folder / "model.onnx"]
        self.process = subprocess.Popen(
            [sys.executable, ROOT / "bench/peers/worker.py", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def answer(self):
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        raise Failure(reason(self.process.wait(), self.errors))

    def start(self):
        with limited(self.process, self.limit):
            return self.answer()

    def run(self, count):
        print(count, file=self.process.stdin, flush=True)
        return self.answer()

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def start(engine, options, model, dtype, folder):
    """The engine and what it says when it is ready."""
    versions = {}
    if engine in FROM_ONNX and not (folder / "model.onnx").exists():
        exporter = Peer("export", options, model, dtype, folder)
        versions = exporter.start()["versions"]
        exporter.stop()
    worker = Tensor(options, model, dtype, folder) if engine == "tensor" else Peer(engine, options, model, dtype, folder)
    ready = worker.start()
    if versions:
        ready["versions"].update(versions)
    return worker, ready


def take_turn(worker, row, seconds):
    time.sleep(PAUSE_S)
    count = max(3, min(50, round(seconds * 1e3 / row["warm_ms"])))
    result = worker.run(count)
    row["rounds_ms"].append([round(ms, 3) for ms in result["ms"]])
    row["peak_MB"] = result["peak_MB"]
    if "cores" in result:
        row["cores"] = min(result["cores"], row.get("cores", result["cores"]))


def finish(row):
    row.pop("warm_ms", None)
    samples = [ms for turn in row["rounds_ms"] for ms in turn]
    if samples and "failure" not in row:
        row["median_ms"] = round(statistics.median(samples), 3)
        row["min_ms"], row["max_ms"] = min(samples), max(samples)
    return row


def measure(options, model, dtype):
    """One row for every engine: the engines in turn, in another order each time."""
    rows, workers = {}, {}

    def attempt(engine, action):
        try:
            action()
        except Failure as failure:
            rows[engine]["failure"] = str(failure)
            workers.pop(engine, None)
            print(f"{model} {dtype} {engine}: {failure}", file=sys.stderr)

    def get_ready(engine):
        workers[engine], ready = start(engine, options, model, dtype, pathlib.Path(folder))
        rows[engine].update(ready)
        print(f"{model} {dtype} {engine}: ready, {ready['warm_ms']:.1f} ms", file=sys.stderr)

    with tempfile.TemporaryDirectory() as folder:
        order = [engine for engine in ENGINES[dtype] if engine in options.engines]
        for engine in order:
            rows[engine] = {"model": model, "dtype": dtype, "batch": options.batch, "engine": engine, "rounds_ms": []}
            attempt(engine, lambda: get_ready(engine))
        for _ in range(options.repeats):
            for engine in order:
                if engine in workers:
                    attempt(engine, lambda: take_turn(workers[engine], rows[engine], options.seconds))
            order = order[1:] + order[:1]
        for worker in workers.values():
            worker.stop()
    return [finish(row) for row in rows.values()]


def models_of(binary):
    """The names of bench/all_models.cpp, in its order."""
    listed = output_of(binary, "--benchmark_list_tests")
    return list(dict.fromkeys(name.split("/")[0] for name in listed.splitlines()))


def machine():
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text()
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo, re.M)
    shown = re.compile(r"avx2|fma|avx512f|avx512_bf16|avx512_vnni|avx512_vp2intersect|amx_(bf16|tile)")
    return {
        "cpu": re.search(r"^model name\s*:\s*(.*)$", cpuinfo, re.M)[1].strip(),
        "cores": os.cpu_count(),
        "flags": " ".join(flag for flag in flags[1].split() if shown.fullmatch(flag)) if flags else "",
        "memory_GB": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9),
        "system": platform.freedesktop_os_release()["PRETTY_NAME"],
    }


def output_of(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", metavar="MODEL", help="(all)")
    parser.add_argument("--types", nargs="+", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--engines", nargs="+", default=ENGINES["f32"], choices=ENGINES["f32"])
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of every engine (all cores)")
    parser.add_argument("--batch", type=int, default=1, help="images at a time (1)")
    parser.add_argument("--repeats", type=int, default=5, help="turns of every engine (5)")
    parser.add_argument("--seconds", type=float, default=3, help="of one turn, about (3); at least 3 runs")
    parser.add_argument("--limit", type=float, default=600, help="seconds to get ready in (600)")
    parser.add_argument("--binary", default=str(ROOT / "build/release/bench/bench_models"))
    parser.add_argument("--label", help="what the tables call this processor")
    parser.add_argument("--out", help="the JSON file (bench/results/DATE.json)")
    options = parser.parse_args()
    if not pathlib.Path(options.binary).exists():
        parser.error(f"there is no {options.binary}: build it with cmake --preset release, or say --binary")
    known = models_of(options.binary)
    options.models = options.models or known
    if unknown := set(options.models) - set(known):
        parser.error(f"does not know the models {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return options


def main():
    options = arguments()
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"the machine is busy (load {load:.1f}): the numbers will be too", file=sys.stderr)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    os.environ["HF_HUB_OFFLINE"] = "1"
    now = datetime.datetime.now(datetime.timezone.utc)
    result = {
        "date": now.strftime("%Y-%m-%d %H:%M UTC"),
        "command": " ".join(["bench/peers/compare.py", *sys.argv[1:]]),
        "machine": machine() | ({"label": options.label} if options.label else {}),
        "load_before": round(load, 2),
        "threads": options.threads,
        "versions": {
            "tensor": output_of("git", "describe", "--always", "--dirty"),
            "compiler": output_of("g++", "--version").splitlines()[0],
            "python": platform.python_version(),
        },
        "results": [],
    }
    out = pathlib.Path(options.out or ROOT / "bench/results" / now.strftime("%Y-%m-%d-%H%M.json"))
    types = options.types
    if "bf16" in types and "bf16" not in result["machine"]["flags"]:
        print("this processor has no bf16, for which tensor calculates in f32: left out", file=sys.stderr)
        types = [dtype for dtype in types if dtype != "bf16"]
    for model in options.models:
        for dtype in types:
            for row in measure(options, model, dtype):
                result["versions"].update(row.pop("versions", {}))
                result["results"].append(row)
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(result, indent=1) + "\n")  # what is measured stays if the rest fails
    print(table.times([result]))
    print(f"written to {out}", file=sys.stderr)


if __name__ == "__main__":
    main()

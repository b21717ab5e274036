"""Makes h200.jsonl, a log as tuning writes it, of what bench/cuda_kernels prints on a GPU.

    build/release/bench/cuda_kernels > kernels.txt
    python tests/data/tune/make_h200_log.py kernels.txt > tests/data/tune/h200.jsonl

Features are what the names tell: sizes, tile, stages, splits, and what follows from them; the last is the analytic
model's throughput relative to the best by it of the problem.
"""

import json
import math
import re
import sys
import zlib

PROCESSORS = 132


def number(schedule, letter):
    found = re.search(rf"_{letter}(\d+)", schedule)
    return int(found[1]) if found else 1


def describe(problem, name):
    """The schedule as text, and its features."""
    is_gemm, sizes, tile = problem.startswith("gemm"), [int(x) for x in re.findall(r"\d+", problem)], name.split("_")[0]
    rows, columns = [int(x) for x in re.findall(r"\d+", tile)][:2]
    batches, tokens, others = (1, sizes[0], sizes[1]) if is_gemm else (sizes[0] * sizes[1], sizes[2], sizes[3])
    values = {"rows": rows, "columns": columns, "stages": number(name, "s"), "splits": number(name, "k"),
              "shares": number(name, "c"), "groups": number(name, "g"), "late": int("late" in name)}
    sketch = "attention" if not is_gemm else "swapped" if tile.endswith("t") else "turns" if "turns" in name else "cooperative"
    tiles = math.ceil(tokens / rows) * (math.ceil(others / columns) if is_gemm else 1) * batches * values["splits"]
    waves = math.ceil(tiles / PROCESSORS)
    features = [is_gemm, tokens, others, sizes[-1], *values.values(), sketch == "swapped", sketch == "turns", rows * columns,
                rows * columns / (rows + columns), tiles, waves, tiles / PROCESSORS / waves, "residual" in problem]
    return sketch + "".join(f" {key}={value}" for key, value in values.items()), [float(x) for x in features]


def main():
    rows, least = {}, {}
    for line in open(sys.argv[1]):
        found = re.match(r"((?:gemm|attention)/.*)/([^/]+)/iterations:.* model_us=([\d.]+).* us=([\d.]+)", line)
        if found:
            problem, name, model, time = found[1], found[2], float(found[3]), float(found[4])
            rows.setdefault((problem, name), (model, time))  # some names stand for two schedules: the first counts
            least[problem] = min(least.get(problem, math.inf), model)
    for (problem, name), (model, time) in rows.items():
        schedule, features = describe(problem, name)
        body = json.dumps({
            "log": 1, "problem": problem, "family": problem.split("/")[0], "schedule": schedule, "device": "NVIDIA H200",
            "driver": "580.159.04", "version": "0.1.0", "time": "2026-11-21T21:34:07Z",
            "features": [round(x, 6) for x in [*features, math.log(model), least[problem] / model]], "us": [time],
        }, separators=(",", ":"))[:-1]
        print(f'{body},"crc":"{zlib.crc32(body.encode()):08x}"}}')


if __name__ == "__main__":
    main()

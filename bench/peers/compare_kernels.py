"""Times single kernels of this library and of PyTorch (cuBLASLt, scaled-dot-product attention, cuDNN), in float16 (or
bfloat16) on one GPU, in one run.

    python bench/peers/compare_kernels.py --bench build/release/bench/cuda_kernels    # into bench/results/gpu

Both launch a kernel many times in one CUDA graph, each time with other weights, so that these come from memory. Of this
library the schedule that its model chose and the fastest of those that were tried are told. PyTorch's linear has a
bias, and nothing of what this library's kernels do besides: GELU, a float32 residual, or relu. To a residual in the
type itself ("narrow_residual") it adds the product in place, without a bias: as many bytes. "softmax" are the weights of
attention by themselves, in PyTorch three operators. All takes one to two minutes of an H200 with `--schedules 4`.
"""

import argparse
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import gpu  # noqa: E402


def ours(bench, schedules, dtype):
    """kernel -> schedule -> microseconds, in the order in which the model likes them; and the program's commit."""
    command = [bench, f"--schedules={schedules}", f"--dtype={dtype}", "--benchmark_format=json"]
    printed = gpu.output(command, 400)
    if "{" not in printed:
        raise RuntimeError(printed.strip()[-400:])
    times = {}
    told = json.loads(printed[printed.index("{"):])
    for row in told["benchmarks"]:
        kind, problem, *rest = row["name"].split("/iterations")[0].split("/")
        split = {"gemm": 1, "attention": 0, "softmax": 0, "conv": 1}[kind]
        name = "/".join([kind, problem, *rest[:split]])
        times.setdefault(name, {})["/".join(rest[split:])] = row["us"]
    return times, told["context"].get("commit", "unknown")


def in_graph(torch, work, launches):
    """Microseconds of one of so many launches."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    times = []
    for _ in range(12):
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / launches)
    return sorted(times[1:])[5]


def numbers(text):
    return [int(part.lstrip("bhds")) for part in text.replace("s", "x").split("x") if part.lstrip("bhds")]


def copies_of(elements):
    return max(4, min(24, (1 << 29) // elements))


def linear(torch, name, dtype):
    tokens, features, depth = numbers(name.split("/")[1])
    copies = copies_of(features * depth)
    x = torch.randn(tokens, depth, device="cuda", dtype=dtype)
    weights = [torch.randn(features, depth, device="cuda", dtype=dtype) for _ in range(copies)]
    if name.endswith("narrow_residual"):
        residual = torch.randn(tokens, features, device="cuda", dtype=dtype)
        return in_graph(torch, lambda: [residual.addmm_(x, w.t()) for w in weights], copies)
    bias = None if name.endswith("plain") else torch.randn(features, device="cuda", dtype=dtype)
    return in_graph(torch, lambda: [torch.nn.functional.linear(x, w, bias) for w in weights], copies)


def heads_of(torch, name, dtype):
    """Queries, keys and values."""
    batch, heads, queries, keys, depth = numbers(name.split("/")[1].replace("xh", "x").replace("xd", "x"))
    return [torch.randn(batch, length, heads, depth, device="cuda", dtype=dtype).transpose(1, 2)
            for length in (queries, keys, keys)]


def softmax(torch, name, dtype):
    q, k, _ = heads_of(torch, name, dtype)
    return in_graph(torch, lambda: [torch.softmax(q @ k.transpose(2, 3) * q.shape[3] ** -0.5, -1) for _ in range(8)], 8)


def attention(torch, name, dtype):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    q, k, v = heads_of(torch, name, dtype)
    best = {}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        try:
            with sdpa_kernel(backend):
                work = lambda: [torch.nn.functional.scaled_dot_product_attention(q, k, v) for _ in range(8)]
                best[backend.name] = in_graph(torch, work, 8)
        except RuntimeError:  # this one does not take the shape
            torch.cuda.synchronize()
    return min(best.values())


def convolution(torch, name, dtype):
    _, image, weights = name.split("/")
    channels, height, width = numbers(image)
    features, side, _, stride = numbers(weights)
    copies = copies_of(features * channels * side * side)
    kind = {"device": "cuda", "dtype": dtype}
    x = torch.randn(1, channels, height, width, **kind).to(memory_format=torch.channels_last)
    ws = [torch.randn(features, channels, side, side, **kind).to(memory_format=torch.channels_last) for _ in range(copies)]
    bias = torch.randn(features, **kind)
    work = lambda: [torch.nn.functional.conv2d(x, w, bias, stride=stride, padding=side // 2) for w in ws]
    return in_graph(torch, work, copies)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="the program cuda_kernels")
    parser.add_argument("--out", type=pathlib.Path, default=gpu.RESULTS)
    parser.add_argument("--schedules", type=int, default=6, help="of each product and attention (6)")
    parser.add_argument("--dtype", default="f16", choices=["f16", "bf16"])
    options = parser.parse_args()
    import torch
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[options.dtype]
    rows = []
    with gpu.Clocks() as our_clocks:
        kernels, commit = ours(options.bench, options.schedules, options.dtype)
    with torch.inference_mode(), gpu.Clocks() as their_clocks:
        for name, schedules in kernels.items():
            peer = {"gemm": linear, "attention": attention, "softmax": softmax, "conv": convolution}[name.split("/")[0]]
            best = min(schedules, key=schedules.get)
            row = {"kernel": name, "chosen": next(iter(schedules)), "chosen_us": next(iter(schedules.values())),
                   "best": best, "best_us": schedules[best], "torch_us": peer(torch, name, dtype), "all_us": schedules}
            rows.append(row)
            print(f"{name:42} {row['chosen_us']:9.2f} {row['best_us']:9.2f} {row['torch_us']:9.2f} us  "
                  f"{row['torch_us'] / row['chosen_us']:.2f} x  {row['chosen']}, {best}", flush=True)
    versions = {"tensor": commit, "torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
    gpu.save("kernels", {"command": "bench/peers/compare_kernels.py", "dtype": options.dtype, "gpu": gpu.described(),
                         "clocks": {"tensor": our_clocks.told(), "torch": their_clocks.told()},
                         "versions": versions, "results": rows}, options.out)


if __name__ == "__main__":
    main()

"""What a program that classifies one image needs: the size of its runtime, its memory, and the time from its start to its
end. ViT-B/16 at 224 x 224 in float32 with random weights, read from a file; each engine a fresh process, by turns.

    python bench/peers/footprint.py --build build/shared     # a release build with -DBUILD_SHARED_LIBS=ON

The engines get the same pixels, and their logits are compared. Writes bench/results/footprint.json; bench/table.py prints it.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
from safetensors.numpy import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import compare  # noqa: E402
import table  # noqa: E402

# Each writes the logits to argv[3]. What they import is all that they need.
PROGRAMS = {
    "onnxruntime": """
import sys, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[4])
session = onnxruntime.InferenceSession(sys.argv[1] + "/model.onnx", options, providers=["CPUExecutionProvider"])
numpy.save(sys.argv[3], session.run(None, {"pixel_values": numpy.load(sys.argv[2])})[0])
""",
    "torch": """
import sys, numpy, torch
torch.set_num_threads(int(sys.argv[4]))
model = torch.jit.load(sys.argv[1] + "/model.pt")
with torch.inference_mode():
    numpy.save(sys.argv[3], model(torch.from_numpy(numpy.load(sys.argv[2]))).numpy())
""",
    "python": "import numpy",
}
# What every Linux has, or what g++ brings.
OF_THE_SYSTEM = re.compile(r"^(linux-vdso|ld-linux|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|gomp))[.-]")


def export(folder):
    """The model in the form that each engine reads, and pixels for it. In a process of its own: a child's peak of memory is
    never told as less than its parent's."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(1)
    model = ViTForImageClassification(ViTConfig(num_labels=1000)).eval()
    model.save_pretrained(folder)
    pixels = torch.randn(1, 3, 224, 224)

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, pixel_values):
            return self.model(pixel_values=pixel_values).logits

    with torch.inference_mode():
        torch.jit.save(torch.jit.trace(Logits(), pixels), folder / "model.pt")
        torch.onnx.export(Logits(), (pixels,), folder / "model.onnx", input_names=["pixel_values"], dynamo=True,
                          external_data=True)
    numpy.save(folder / "pixels.npy", pixels.numpy())
    save_file({"pixel_values": pixels.numpy()}, folder / "pixels.safetensors")


def commands(build, folder, threads):
    vit = [build / "models/vit", "--checkpoint", folder, "--threads", threads, "--quiet", "--input",
           folder / "pixels.safetensors", "--output", folder / "tensor.safetensors"]
    peers = {name: [sys.executable, "-c", text, folder, folder / "pixels.npy", folder / f"{name}.npy", threads]
             for name, text in PROGRAMS.items()}
    return {"tensor": vit, "tensor, plan": [*vit, "--plan", folder / "vit.plan"], **peers}


def run(command):
    """Seconds from start to end, those of all threads on a core, and the most memory, in MB."""
    begin = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    if status:
        sys.exit(f"failed: {' '.join(map(str, command))}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6


def libraries(file):
    """{name: bytes} of the shared libraries that a file loads, but for the system's."""
    lines = subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout.splitlines()
    found = {match[1]: pathlib.Path(match[2]).stat().st_size
             for match in (re.match(r"\s*(\S+) => (/\S+)", line) for line in lines) if match}
    return {name: size for name, size in found.items() if not OF_THE_SYSTEM.match(name)}


def installed(package, without="$^"):
    """{file: bytes} of a wheel."""
    found = {file.name: file.locate() for file in importlib.metadata.files(package) if file.suffix != ".pyc"}
    return {name: path.stat().st_size for name, path in found.items() if path.exists() and not re.search(without, name)}


def sizes(build):
    """Of each engine, bytes of its own library and of all that it needs: ours of the libraries that it loads, its peers' of
    their wheels (PyTorch's without CUDA), to which Python and NumPy come."""
    with tempfile.TemporaryDirectory() as folder:
        library = shutil.copy((build / "src/libtensor.so").resolve(), folder)
        subprocess.run(["strip", library], check=True)
        own, loaded = pathlib.Path(library).stat().st_size, libraries(library)
    onnxruntime, torch = installed("onnxruntime"), installed("torch", without="cuda|nvshmem|nccl")
    [main] = [size for name, size in onnxruntime.items() if name.startswith("libonnxruntime.so")]
    return {"tensor": {"own": own, "all": own + sum(loaded.values()), "loaded": loaded},
            "onnxruntime": {"own": main, "all": sum(onnxruntime.values())},
            "torch": {"own": torch["libtorch_cpu.so"], "all": sum(torch.values())}}


def summary(times):
    seconds, on_cores, peaks = zip(*times)
    return {"median_s": round(statistics.median(seconds), 3), "least_s": round(min(seconds), 3),
            "cores_s": round(statistics.median(on_cores), 3), "peak_MB": round(statistics.median(peaks)),
            "seconds": [round(one, 3) for one in seconds]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parents[1] / "build/shared")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--export", type=pathlib.Path, help="only writes the models into this folder")
    options = parser.parse_args()
    if options.export:
        return export(options.export)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([sys.executable, __file__, "--export", folder], check=True, capture_output=True)
        turns = commands(options.build, folder, options.threads)
        for command in turns.values():  # fills the page cache, writes the plan
            run(command)
        runs = {engine: [] for engine in turns}
        for _ in range(options.repeats):
            for engine, command in turns.items():
                runs[engine].append(run(command))
        ours = load_file(folder / "tensor.safetensors")["logits"]
        difference = {peer: float(abs(numpy.load(folder / f"{peer}.npy") - ours).max()) for peer in ("onnxruntime", "torch")}
    result = {
        "machine": compare.machine(), "threads": options.threads, "load": round(os.getloadavg()[0], 2),
        "versions": {"python": platform.python_version(),
                     **{name: importlib.metadata.version(name) for name in ("torch", "onnxruntime", "numpy")}},
        "bytes": sizes(options.build), "difference": difference,
        "engines": {engine: summary(times) for engine, times in runs.items()},
    }
    (HERE.parent / "results/footprint.json").write_text(json.dumps(result, indent=1) + "\n")
    print(table.footprint(result))


if __name__ == "__main__":
    main()

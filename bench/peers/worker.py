"""One model on one engine, in a process of its own: prepares it, then waits to be told how often to run it.

    worker.py ENGINE MODEL TYPE BATCH THREADS ONNX_FILE

Every line of its standard output is JSON: first what it took to get ready; then, for every number read from standard
input, the milliseconds of as many runs. The engine "export" writes ONNX_FILE and ends."""

import json
import os
import resource
import sys
import time

ENGINE, MODEL, TYPE, BATCH, THREADS, ONNX_FILE = sys.argv[1:7]
BATCH, THREADS = int(BATCH), int(THREADS)
WARM_UPS = 3


def torch_model(channels_last, dtype=TYPE):
    import torch

    import models

    torch.set_num_threads(THREADS)
    model, image = models.build(MODEL)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    pixels = torch.randn(BATCH, *image, generator=torch.Generator().manual_seed(1)).to(dtype)
    model = model.to(dtype)
    if channels_last and models.has_convolutions(MODEL):  # what PyTorch recommends for convolutions on the CPU
        model, pixels = (x.to(memory_format=torch.channels_last) for x in (model, pixels))
    return model, pixels


def torch_engine(compiled):
    import torch
    import transformers

    model, pixels = torch_model(channels_last=True)
    if compiled:
        import torch._inductor.config

        torch._inductor.config.freezing = True  # weights are constants, packed while it compiles
        model = torch.compile(model)

    def run():
        with torch.inference_mode():
            return model(pixels)

    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return run, lambda outputs: [x.float().numpy() for x in outputs], versions


def onnxruntime_engine():
    import numpy
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(ONNX_FILE, options, providers=["CPUExecutionProvider"])
    [pixels] = session.get_inputs()
    feed = {pixels.name: numpy.random.default_rng(1).standard_normal(pixels.shape, numpy.float32)}
    return lambda: session.run(None, feed), lambda outputs: outputs, {"onnxruntime": onnxruntime.__version__}


def openvino_engine():
    import numpy
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": THREADS,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": TYPE,
    }
    request = openvino.Core().compile_model(ONNX_FILE, "CPU", settings).create_infer_request()
    [shape] = [list(port.shape) for port in request.model_inputs]
    request.set_input_tensor(openvino.Tensor(numpy.random.default_rng(1).standard_normal(shape, numpy.float32)))

    def run():
        request.infer()
        return [request.get_output_tensor(i).data for i in range(len(request.model_outputs))]

    return run, lambda outputs: outputs, {"openvino": openvino.__version__.split("-")[0]}


def export():
    import onnx
    import torch

    model, pixels = torch_model(channels_last=False, dtype="f32")
    with torch.inference_mode():
        torch.onnx.export(model, (pixels,), ONNX_FILE, input_names=["pixel_values"], dynamo=True, external_data=True)
    return {"onnx": onnx.__version__}


def milliseconds(run, count):
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        run()
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print

    def say(**what):
        print(json.dumps(what), file=out, flush=True)

    begin = time.perf_counter()
    if ENGINE == "export":
        return say(versions=export())
    run, arrays, versions = {
        "torch": lambda: torch_engine(compiled=False),
        "torch.compile": lambda: torch_engine(compiled=True),
        "onnxruntime": onnxruntime_engine,
        "openvino": openvino_engine,
    }[ENGINE]()
    outputs = arrays(run())
    prepare_s = time.perf_counter() - begin
    if not all((abs(x) < float("inf")).all() for x in outputs):
        sys.exit("the model's outputs are not finite")
    warm_ms = milliseconds(run, WARM_UPS)[-1]
    say(versions=versions, prepare_s=round(prepare_s, 2), warm_ms=warm_ms)

    for line in sys.stdin:
        run()  # caches are cold after the other engines
        cpu, wall = time.process_time(), time.perf_counter()
        times = milliseconds(run, int(line))
        cores = (time.process_time() - cpu) / (time.perf_counter() - wall)
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        say(ms=times, cores=round(cores, 2), peak_MB=round(peak_mb))


main()

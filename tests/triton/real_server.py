"""The backend in Triton Inference Server itself, and demo-server by the same client.

  real_server.py START PROGRAMS SOURCE    START is scripts/triton, PROGRAMS the folder of vit, detr and setr

Needs tritonclient (HTTP and gRPC) and NumPy. Prints what it measured; the exit code is 0 if all is as it should be.
"""
import concurrent.futures
import ctypes
import http.client
import json
import os
import pathlib
import shutil
import signal
import tempfile
import threading
import time

import numpy as np
import tritonclient.grpc
import tritonclient.http

from servers import (CHECKPOINTS, DIGITS, PICTURES, SCENES, DemoServer, Server, close, findings, outputs_of,
                     picture_request, programs, told_by_programs, until)


def equal_answers(triton, told, names=None):
    names = names or {model: model + ".tensor" for model in CHECKPOINTS}
    for model, name in names.items():
        for picture in PICTURES:
            status, outputs = triton.look(name, picture.read_bytes())
            assert status == 200, outputs
            need = told[model][str(picture)]
            close(findings(outputs), need, picture)
            count = len(need)
            assert list(outputs["label"][0]) == [f["label"] for f in need]
            assert outputs["score"].shape == outputs["id"].shape == (1, count)
            assert model != "scenes" or np.allclose(
                outputs["box"][0], np.reshape([f["box"] for f in need], (-1, 4)), atol=1e-2)
    # Several in one request, with findings of different number; the PNG of the classes.
    body, headers = picture_request([p.read_bytes() for p in SCENES])
    status, body = triton.call("POST", f"/v2/models/{names['scenes']}/infer", body, headers)
    outputs = outputs_of(body)
    for row, picture in enumerate(SCENES):
        close(findings(outputs, row), told["scenes"][str(picture)], picture)
    client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{triton.http}")
    image = tritonclient.http.InferInput("image", [1, 1], "BYTES")
    image.set_data_from_numpy(np.array([[SCENES[0].read_bytes()]], dtype=object))
    assert client.infer(names["seg"], [image]).as_numpy("classes")[0, 0].startswith(b"\x89PNG")
    client.close()


def many_at_once(triton, told):
    """200 pictures of all sizes, some broken: fewer executions than requests, and every answer its own."""
    before = {m: triton.statistics(m + ".tensor") for m in CHECKPOINTS}
    jobs = [(("digits", "digits", "digits", "scenes")[i % 4], PICTURES[i % len(PICTURES)]) for i in range(200)]

    def run(job):
        i, (model, picture) = job
        if i % 20 == 7:
            status, why = triton.look(model + ".tensor", b"\x89PNG\r\n\x1a\n" + bytes(i))
            assert status == 400 and "the image" in why, (status, why)
            return False
        status, outputs = triton.look(model + ".tensor", picture.read_bytes())
        assert status == 200, outputs
        close(findings(outputs), told[model][str(picture)], (model, picture))
        return True

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        good = sum(pool.map(run, enumerate(jobs)))
    assert good == 190
    requests = executions = 0
    for model in ("digits", "scenes"):
        after = triton.statistics(model + ".tensor")
        requests += after["inference_stats"]["success"]["count"] - before[model]["inference_stats"]["success"]["count"]
        executions += after["execution_count"] - before[model]["execution_count"]
    assert requests == good and executions < 150, (requests, executions)
    print(f"200 pictures at once, 10 of them broken: {executions} executions")


def tensors(triton, told):
    """The models' own inputs and outputs, by HTTP and gRPC, alone and in a batch."""
    pixels = np.random.default_rng(1).normal(size=(3, 3, 32, 32)).astype(np.float32)
    results = []
    for client_of, port in ((tritonclient.http, triton.http), (tritonclient.grpc, triton.grpc)):
        client = client_of.InferenceServerClient(f"127.0.0.1:{port}")

        def run(values):
            given = client_of.InferInput("pixel_values", values.shape, "FP32")
            given.set_data_from_numpy(values)
            return client.infer("raw", [given]).as_numpy("logits")

        results.append(run(pixels))
        assert results[-1].shape == (3, 10)
        for row in range(3):
            assert np.allclose(run(pixels[row:row + 1])[0], results[-1][row], atol=1e-4)
        try:
            run(pixels[:, :, :16])
            raise AssertionError("a wrong shape was taken")
        except client_of.InferenceServerException as error:
            assert "unexpected shape" in str(error), error
        client.close()
    assert np.array_equal(*results)
    client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{triton.grpc}")
    image = tritonclient.grpc.InferInput("image", [1, 1], "BYTES")
    image.set_data_from_numpy(np.array([[DIGITS[0].read_bytes()]], dtype=object))
    calls = [client.async_infer("digits.tensor", [image], lambda result, error: None) for _ in range(40)]
    for call in calls[::2]:
        call.cancel()
    close(findings({"json": client.infer("digits.tensor", [image]).as_numpy("json")}), told["digits"][str(DIGITS[0])],
          "after cancelled requests")
    client.close()


def load_and_unload(triton, told):
    sizes = []
    for _ in range(50):
        assert triton.call("POST", "/v2/repository/models/digits.tensor/unload", "{}")[0] == 200
        until(lambda: triton.get("/v2/models/digits.tensor/ready")[0] != 200, triton)
        status, why = triton.call("POST", "/v2/repository/models/digits.tensor/load", "{}")
        assert status == 200, why
        status, outputs = triton.look("digits.tensor", DIGITS[0].read_bytes())
        assert status == 200, outputs
        sizes.append(triton.resident())
    grown = (max(sizes[40:]) - max(sizes[:15])) / 1e6
    print(f"50 times unloaded and loaded: {sizes[14] / 1e6:.0f} MB after 15, {sizes[-1] / 1e6:.0f} MB after all")
    assert grown < 15, [round(s / 1e6) for s in sizes]


def bad_models(triton, repository):
    for name, config, why in (
            ("empty", "", "holds no model"),
            ("renamed", 'input [{name: "picture" data_type: TYPE_STRING dims: [1]}]', 'names the input "picture"'),
            ("misspelt", 'parameters {key: "treshold" value: {string_value: "1"}}', "does not take these options")):
        if config:
            shutil.copytree(CHECKPOINTS["digits"][1], repository / name / "1")
        else:
            (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text('backend: "tensor"\n' + config)
        status, body = triton.call("POST", f"/v2/repository/models/{name}/load", "{}")
        assert status == 400 and why in json.loads(body)["error"], (name, body)


def by_curl(triton, told):
    """As README shows it: the bytes of a picture as they are."""
    status, body = triton.call("POST", "/v2/models/scenes.tensor/infer", SCENES[0].read_bytes(),
                               {"Inference-Header-Content-Length": "0"})
    start = body.rindex(b'{"findings"')
    close(json.loads(body[start:])["findings"], told["scenes"][str(SCENES[0])], "by curl")


def metrics(triton):
    assert json.loads(triton.get("/v2")[1])["name"] == "triton"
    text = triton.get("/metrics", port=triton.metrics)[1].decode()
    row = next(r for r in text.splitlines() if r.startswith('nv_inference_request_success{model="scenes.tensor"'))
    count = triton.statistics("scenes.tensor")["inference_stats"]["success"]["count"]
    assert float(row.split()[-1]) == count, (row, count)


def stop_under_load(triton, told):
    """SIGTERM while 16 clients send: what comes by connections that are open is answered."""
    answered, stopping = [], threading.Event()
    body, headers = picture_request([DIGITS[0].read_bytes()], ["json"])

    def send():
        connection = http.client.HTTPConnection("127.0.0.1", triton.http, timeout=60)
        after = 0
        while after < 20:
            after += stopping.is_set()
            connection.request("POST", "/v2/models/digits.tensor/infer", body, headers)
            answer = connection.getresponse()
            answered.append((answer.status, answer.read()))
        connection.close()

    threads = [threading.Thread(target=send) for _ in range(16)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    triton.process.send_signal(signal.SIGTERM)
    stopping.set()
    for thread in threads:
        thread.join()
    code = triton.process.wait(90)
    good = sum(status == 200 for status, _ in answered)
    print(f"SIGTERM under load: {good} answers, exit code {code}")
    assert code == 0 and good == len(answered) >= 16 * 20, [a for a in answered if a[0] != 200][:3]


def by_the_library(picture):
    """Calls that look at a picture without a server, by libtensor_c."""
    library = ctypes.CDLL(str(next((programs / "c").glob("libtensor_c.so"))))
    model = ctypes.c_void_p()
    options = ctypes.c_void_p()
    assert library.tc_options_new(ctypes.byref(options)) == 0
    assert library.tc_options_set(options, b"threads", b"1") == 0
    assert library.tc_model_open(os.fsencode(CHECKPOINTS["digits"][1]), options, ctypes.byref(model)) == 0

    def look():
        answer = ctypes.c_void_p()
        assert library.tc_model_look(model, picture, ctypes.c_size_t(len(picture)), ctypes.byref(answer)) == 0
        library.tc_answer_free(answer)

    return look


def timed(call):
    start = time.perf_counter()
    call()
    return 1e6 * (time.perf_counter() - start)


def overhead(triton):
    """Microseconds of a request beside a call of the library, by turns, and how many pictures 1 to 32 clients get."""
    picture = DIGITS[0].read_bytes()
    body, headers = picture_request([picture], ["json"])

    def connected():
        connection = http.client.HTTPConnection("127.0.0.1", triton.http)

        def request():
            connection.request("POST", "/v2/models/alone/infer", body, headers)
            return connection.getresponse().read()
        return request

    request, look = connected(), by_the_library(picture)
    for call in (request, look):
        call()
    served, alone = np.array([(timed(request), timed(look)) for _ in range(400)]).T
    print(f"one client: {np.median(served):.0f} us a request (p99 {np.percentile(served, 99):.0f}), the library alone "
          f"{np.median(alone):.0f} (p99 {np.percentile(alone, 99):.0f}): {np.median(served) - np.median(alone):.0f} more")

    def client(count):
        request = connected()
        return [timed(request) / 1e6 for _ in range(count)]

    for clients in (1, 4, 16, 32):
        start = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            times = sorted(t for part in pool.map(client, [640 // clients] * clients) for t in part)
        print(f"{clients} clients: {len(times) / (time.perf_counter() - start):.0f} pictures a second, "
              f"p99 {1e3 * times[len(times) * 99 // 100]:.1f} ms")


def main():
    told = told_by_programs()
    with tempfile.TemporaryDirectory() as folder:
        repository = pathlib.Path(folder)
        for model, (_, checkpoint) in CHECKPOINTS.items():  # without a configuration
            shutil.copytree(checkpoint, repository / (model + ".tensor") / "1")
        shutil.copytree(CHECKPOINTS["digits"][1], repository / "raw" / "1")
        (repository / "raw" / "config.pbtxt").write_text(
            'backend: "tensor"\nparameters {key: "input" value: {string_value: "tensor"}}\n'
            'instance_group [{kind: KIND_CPU count: 2}]\ndynamic_batching {max_queue_delay_microseconds: 100}\n')
        shutil.copytree(CHECKPOINTS["digits"][1], repository / "alone" / "1")
        (repository / "alone" / "config.pbtxt").write_text(
            'backend: "tensor"\nparameters {key: "threads" value: {string_value: "1"}}\n')
        triton = Server(repository, "alone", *(m + ".tensor" for m in CHECKPOINTS), "raw")
        try:
            for test in (equal_answers, by_curl, many_at_once, tensors, load_and_unload):
                test(triton, told)
            bad_models(triton, repository)
            metrics(triton)
            overhead(triton)
            stop_under_load(triton, told)
        finally:
            triton.process.kill()
        demo = DemoServer(repository)
        try:
            equal_answers(demo, told, {model: program for model, (program, _) in CHECKPOINTS.items()})
            assert demo.stop() == 0
        finally:
            demo.process.kill()
    print("Triton and demo-server answer as the programs do")


main()

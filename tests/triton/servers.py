"""The servers as the tests start them, and requests by the Open Inference Protocol."""
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import numpy as np

start_server, programs, source = (pathlib.Path(a).absolute() for a in sys.argv[1:4])
CHECKPOINTS = {"digits": ("vit", source / "models/vit/pretrained/digits"),
               "scenes": ("detr", source / "models/detr/pretrained/scenes"),
               "seg": ("setr", source / "models/setr/pretrained/scenes")}
DIGITS = sorted((source / "examples/images/digits").glob("*.png"))
SCENES = sorted((source / "examples/images/scenes").glob("*.png"))
PICTURES = DIGITS + SCENES


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


class Server:
    """tritonserver on a folder of models, which may be loaded and unloaded."""

    def __init__(self, repository, *models):
        self.http, self.grpc, self.metrics = free_ports(3)
        self.log = open(repository / "server.log", "w+")
        arguments = [start_server, repository, "--model-control-mode=explicit", "--exit-timeout-secs=60"]
        arguments += [f"--load-model={model}" for model in models]
        arguments += [f"--{name}-port={getattr(self, name)}" for name in ("http", "grpc", "metrics")]
        self.process = subprocess.Popen(arguments, stdout=self.log, stderr=subprocess.STDOUT)
        until(lambda: self.get("/v2/health/ready")[0] == 200, self)  # the process is tritonserver itself: exec

    def call(self, method, path, body=None, headers={}, port=None):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.http, timeout=120)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def get(self, path, port=None):
        return self.call("GET", path, port=port)

    def look(self, model, picture):
        """The answer to the bytes of a picture: 200 and outputs by name, or the status and why."""
        outputs = ["label", "score", "id", "json"] + ["box"] * model.startswith(("scenes", "detr"))
        status, body = self.call("POST", f"/v2/models/{model}/infer", *picture_request([picture], outputs))
        return (status, outputs_of(body)) if status == 200 else (status, json.loads(body)["error"])

    def statistics(self, model):
        """They come after the answers: these are read until they stay as they are for a quarter of a second."""
        known, since = None, time.monotonic()
        while time.monotonic() - since < 0.25:
            read = json.loads(self.get(f"/v2/models/{model}/stats")[1])["model_stats"][0]
            if read != known:
                known, since = read, time.monotonic()
            time.sleep(0.02)
        return known

    def resident(self):
        return int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(90)


class DemoServer(Server):
    """demo-server, which speaks the same protocol."""

    def __init__(self, folder):
        self.log = open(folder / "demo.log", "w+")
        self.process = subprocess.Popen([programs / "demo-server", "--port", "0"], stdout=self.log, stderr=subprocess.STDOUT)
        until(lambda: "http:" in pathlib.Path(self.log.name).read_text(), self)
        self.http = int(pathlib.Path(self.log.name).read_text().split("127.0.0.1:")[1].split("/")[0])


def until(condition, running, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end and running.process.poll() is None:
        with contextlib.suppress(OSError):
            if condition():
                return
        time.sleep(0.05)
    running.log.seek(0)
    sys.exit("the server is not ready:\n" + running.log.read()[-4000:])


def picture_request(pictures, outputs=()):
    """Body and headers of a request by the protocol: JSON, then each picture with its length before it."""
    data = b"".join(len(p).to_bytes(4, "little") + p for p in pictures)
    head = {"inputs": [{"name": "image", "datatype": "BYTES", "shape": [len(pictures), 1],
                        "parameters": {"binary_data_size": len(data)}}]}
    if outputs:
        head["outputs"] = [{"name": name} for name in outputs]
    head = json.dumps(head).encode()
    return head + data, {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}


def outputs_of(body):
    return {o["name"]: np.array(o["data"]).reshape(o["shape"]) for o in json.loads(body)["outputs"]}


def findings(outputs, row=0):
    return json.loads(outputs["json"][row][0])["findings"]


def close(got, need, what):
    """Findings are the same but for rounding, which may differ between batches."""
    assert [f["label"] for f in got] == [f["label"] for f in need], (what, got, need)
    for a, b in zip(got, need):
        for key in b:
            if key != "label":
                assert np.allclose(a[key], b[key], rtol=2e-3, atol=2e-3), (what, a, b)


def told_by_programs():
    told = {}
    for model, (program, checkpoint) in CHECKPOINTS.items():
        out = subprocess.run([programs / program, "--checkpoint", checkpoint, "--json", "--quiet", *PICTURES],
                             check=True, capture_output=True).stdout
        told[model] = {entry["file"]: entry["findings"] for entry in json.loads(out)}
    return told

"""Triton Inference Server with the backend under load that goes wrong: clients that are killed, broken pictures, a model
that is unloaded and loaded all the time.

  under_load.py START PROGRAMS SOURCE SECONDS    as real_server.py; ten minutes are 600

Every request of a client that lives is answered, rightly, and the server's memory, files and threads do not grow.
"""
import collections
import itertools
import multiprocessing
import os
import pathlib
import random
import shutil
import sys
import tempfile
import threading
import time

from servers import CHECKPOINTS, DIGITS, PICTURES, SCENES, Server, close, findings, told_by_programs, until

seconds = float(sys.argv[4])
VICTIMS, CLIENTS, BROKEN = 4, 6, 7  # every seventh picture is broken


def is_right(server, told, model, picture, is_broken):
    """Asks, and sees that the answer is the picture's."""
    content = picture.read_bytes()
    status, outputs = server.look(model, content[: len(content) // 2] if is_broken else content)
    if is_broken:
        assert status == 400 and "the image" in outputs, (status, outputs)
    else:
        assert status == 200, (status, outputs)
        close(findings(outputs), told[model.removesuffix(".tensor")][str(picture)], (model, picture))


def victim(server):
    """Sends until it is killed, in the middle of whatever it does."""
    while True:
        picture = random.choice(PICTURES)
        server.look(random.choice(["digits", "scenes"]) + ".tensor", picture.read_bytes())


class Load:
    def __init__(self, server, told):
        self.server, self.told = server, told
        self.end = time.monotonic() + seconds
        self.counts, self.failures, self.lock = collections.Counter(), [], threading.Lock()

    def goes_on(self):
        return time.monotonic() < self.end and not self.failures

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def guarded(self, body):
        try:
            body()
        except BaseException as error:
            self.failures.append(error)

    def client(self, number):
        for i in itertools.count(number):
            if not self.goes_on():
                return
            model = ("digits", "digits", "digits", "scenes")[i % 4]
            pictures = DIGITS if model == "digits" else SCENES
            is_broken = i % BROKEN == 0
            is_right(self.server, self.told, model + ".tensor", pictures[i % len(pictures)], is_broken)
            self.count("broken" if is_broken else "answered")

    def kills(self):
        running = []
        try:
            while self.goes_on():
                while len(running) < VICTIMS:
                    running.append(multiprocessing.get_context("fork").Process(target=victim, args=(self.server,)))
                    running[-1].start()
                time.sleep(random.uniform(0.05, 0.4))
                process = running.pop(random.randrange(len(running)))
                assert process.is_alive(), "the server refused a client"
                process.kill()
                process.join()
                self.count("killed")
        finally:
            for process in running:
                process.kill()
                process.join()

    def reloads(self):
        """Of a model that others ask meanwhile: they are answered, or told that it is not there."""
        while self.goes_on():
            for verb in ("unload", "load"):
                status, why = self.server.call("POST", f"/v2/repository/models/again/{verb}", "{}")
                assert status == 200, why
                until(lambda: (self.server.get("/v2/models/again/ready")[0] == 200) == (verb == "load"), self.server)
            is_right(self.server, {"again": self.told["digits"]}, "again", DIGITS[0], False)
            self.count("reloaded")

    def asks_the_reloaded(self):
        while self.goes_on():
            status, outputs = self.server.look("again", DIGITS[1].read_bytes())
            assert status == 200 or any(why in outputs for why in ("unknown model", "not ready", "not found")), outputs
            self.count("while reloaded")


def held(server):
    """Megabytes, open files and threads of the server."""
    home = pathlib.Path(f"/proc/{server.process.pid}")
    return server.resident() / 1e6, len(os.listdir(home / "fd")), len(os.listdir(home / "task"))


def main():
    told = told_by_programs()
    with tempfile.TemporaryDirectory() as folder:
        repository = pathlib.Path(folder)
        for model in ("digits", "scenes"):
            shutil.copytree(CHECKPOINTS[model][1], repository / (model + ".tensor") / "1")
        shutil.copytree(CHECKPOINTS["digits"][1], repository / "again" / "1")
        (repository / "again" / "config.pbtxt").write_text('backend: "tensor"\n')
        server = Server(repository, "digits.tensor", "scenes.tensor", "again")
        try:
            load = Load(server, told)
            threads = [threading.Thread(target=load.guarded, args=(body,)) for body in
                       [load.kills, load.reloads, load.asks_the_reloaded,
                        *(lambda n=n: load.client(n) for n in range(CLIENTS))]]
            for thread in threads:
                thread.start()
            time.sleep(seconds / 3)  # until everything has been there once
            before = held(server)
            for thread in threads:
                thread.join()
            if load.failures:
                raise load.failures[0]
            after = held(server)
            code = server.stop()
        finally:
            server.process.kill()
    print(f"{seconds:.0f} s: {dict(load.counts)}; MB, files, threads after a third: "
          f"{before[0]:.0f}, {before[1]}, {before[2]}; in the end {after[0]:.0f}, {after[1]}, {after[2]}")
    assert code == 0, code
    # Each request under way may have a file and, while its picture is decoded, a thread; what leaked with every request, or
    # with every loaded model, would be hundreds.
    under_way = CLIENTS + VICTIMS + 2
    assert after[0] < 1.1 * before[0] + 15 and after[1] <= before[1] + under_way and after[2] <= before[2] + under_way


main()

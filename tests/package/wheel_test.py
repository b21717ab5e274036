# The Python module as it is installed: answers as the programs', errors, memory, threads, and the pages' blocks.
#   wheel_test.py PROGRAM          PROGRAM is the installed tensor-vision; in the source folder
import contextlib
import io
import json
import re
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

import numpy as np
import tensor_vision as tv

PROGRAM = sys.argv.pop()
DIGITS = "models/vit/pretrained/digits"
PICTURES = {
    "vit": (DIGITS, "examples/images/digits/digit-8.png"),
    "detr": ("models/detr/pretrained/scenes", "examples/images/scenes/scene-3.png"),
    "setr": ("models/setr/pretrained/scenes", "examples/images/scenes/scene-3.png"),
}


class Exchanged:
    """An array of another library: nothing but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def pixels(*shape):
    return np.random.default_rng(1).random(shape or (2, 3, 32, 32), np.float32)


class Look(unittest.TestCase):
    def test_as_the_programs(self):
        for program, (checkpoint, picture) in PICTURES.items():
            command = [PROGRAM, program, "--checkpoint", checkpoint, "--json", picture]
            printed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)[0]["findings"]
            answer = tv.open(checkpoint).look(picture)
            self.assertEqual(json.loads(answer.json)["findings"], printed)
            self.assertEqual([finding.label for finding in answer.findings], [finding["label"] for finding in printed])
            self.assertEqual([finding.box is not None for finding in answer.findings], ["box" in f for f in printed])
            self.assertEqual(answer.classes is not None, program == "setr")

    def test_paths_bytes_and_pixels_are_one(self):
        checkpoint, picture = PICTURES["setr"]
        model = tv.open(Path(checkpoint))
        answer = model.look(Path(picture))
        self.assertEqual(model.look(Path(picture).read_bytes()).json, answer.json)
        colours = np.array([[0, 0, 0], [200, 30, 90]], np.uint8)[answer.classes.clip(0, 1)]
        bgr = np.ascontiguousarray(colours[..., ::-1])
        self.assertEqual(model.look(bgr[..., ::-1]).json, model.look(colours).json)


class Run(unittest.TestCase):
    def setUp(self):
        self.model = tv.open(DIGITS, input="tensor", threads=1)

    def test_ports(self):
        self.assertEqual(self.model.inputs, [tv.Port("pixel_values", "float32", (-1, 3, 32, 32), False)])
        self.assertEqual(self.model.outputs, [tv.Port("logits", "float32", (-1, 10), False)])

    def test_arrays_of_any_kind(self):
        x = pixels()
        expected = self.model.run(x)["logits"]
        self.assertEqual(expected.shape, (2, 10))
        turned = np.ascontiguousarray(x.transpose(3, 2, 1, 0)).transpose(3, 2, 1, 0)
        frozen = x.copy()
        frozen.flags.writeable = False
        for same in (Exchanged(x), turned, frozen):
            np.testing.assert_array_equal(self.model.run(pixel_values=same)["logits"], expected)

    def test_nothing_is_kept_or_copied(self):
        x = pixels()
        before = sys.getrefcount(x)
        logits = self.model.run(x)["logits"]
        self.assertEqual(sys.getrefcount(x), before)
        self.assertFalse(logits.flags.owndata)
        kept = logits.copy()
        del self.model
        np.testing.assert_array_equal(logits, kept)

    def test_two_threads(self):
        batches = [pixels() + i for i in range(8)]
        expected = [self.model.run(x)["logits"] for x in batches]
        results = [None] * len(batches)

        def work(first):
            for i in range(first, len(batches), 2):
                results[i] = self.model.run(batches[i])["logits"]

        threads = [threading.Thread(target=work, args=(first,)) for first in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        np.testing.assert_array_equal(results, expected)

    def test_others_run_meanwhile(self):
        # If one thread held the interpreter throughout, no other could look at the clock in the middle of its run.
        model, x = tv.open(PICTURES["detr"][0], input="tensor", threads=1), pixels(1, 3, 512, 512)
        model.run(x)
        for _ in range(20):
            span = []

            def work():
                span.append(time.perf_counter())
                model.run(x)
                span.append(time.perf_counter())

            thread, ticks = threading.Thread(target=work), []
            thread.start()
            while thread.is_alive():
                time.sleep(0.001)
                ticks.append(time.perf_counter())
            quarter = (span[1] - span[0]) / 4
            if any(span[0] + quarter < tick < span[1] - quarter for tick in ticks):
                return
        self.fail("no other thread ran")


class Errors(unittest.TestCase):
    def says(self, text, body):
        with self.assertRaises(tv.UserError) as caught:
            body()
        self.assertIn(text, str(caught.exception))

    def test_have_the_librarys_text(self):
        model = tv.open(DIGITS)
        self.says("nowhere: is not there: name a checkpoint folder", lambda: tv.open("nowhere"))
        self.says("does not take these options", lambda: tv.open(DIGITS, devic="cuda"))
        self.says("pixel_values: got an image of 28 x 28", lambda: model.run(pixels(1, 3, 28, 28)))
        self.says("pixel_values: got f64(2, 3, 32, 32), need f32", lambda: model.run(pixels().astype(np.float64)))
        self.says("inputs: got \"pixels\", the model takes pixel_values", lambda: model.run(pixels=pixels()))
        self.says("pixel_values: got list, need a NumPy array", lambda: model.run([1, 2]))
        self.says("inputs: got 2 without names, the model takes 1", lambda: model.run(pixels(), pixels()))
        self.says("got pixel_values twice", lambda: model.run(pixels(), pixel_values=pixels()))
        self.says("hold", lambda: model.run(np.zeros(3, np.uint16)))
        self.says("need u8(rows, columns, 3)", lambda: model.look(pixels()))
        self.says("the image", lambda: model.look(b"no picture"))

    def test_kinds(self):
        self.assertTrue(issubclass(tv.UserError, (tv.Error, ValueError)) and issubclass(tv.Error, RuntimeError))
        self.assertRaises(FileNotFoundError, lambda: tv.open(DIGITS).look("nowhere.png"))


class Pages(unittest.TestCase):
    def test_every_block_prints_what_it_says(self):
        count = 0
        for page in ["README.md", *sorted(map(str, Path("docs").glob("*.md")))]:
            text = Path(page).read_text()
            for code, expected in re.findall(r"^```python run\n(.*?)^```\n+(?:```text\n(.*?)^```\n)?", text, re.S | re.M):
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(compile(code, page, "exec"), {})
                if expected:
                    self.assertEqual(printed.getvalue(), expected, page)
                count += 1
        self.assertGreaterEqual(count, 2)


class OnAGpu(unittest.TestCase):
    def setUp(self):
        try:
            import torch
        except ImportError as error:
            self.skipTest(f"PyTorch: {error}")
        if not torch.cuda.is_available():
            self.skipTest("PyTorch sees no GPU")
        self.torch = torch
        self.model = tv.open(DIGITS, input="tensor", device="cuda")
        self.on_host = tv.open(DIGITS, input="tensor")

    def check(self, output, x):
        want = self.on_host.run(x.cpu())["logits"]
        np.testing.assert_allclose(output.cpu().numpy(), want, atol=1e-4 * abs(want).max())  # as of golden outputs

    def test_tensors_stay_there(self):
        x = self.torch.rand(2, 3, 32, 32, device="cuda")
        output = self.model.run(x)["logits"]
        self.assertEqual((output.dtype, output.shape, output.device), ("float32", (2, 10), "cuda:0"))
        taken = self.torch.from_dlpack(output)
        self.assertEqual(taken.data_ptr(), self.torch.from_dlpack(output).data_ptr())
        self.check(taken, x)
        self.assertIsInstance(self.model.run(x.cpu())["logits"], np.ndarray)

    def test_runs_on_a_stream(self):
        stream = self.torch.cuda.Stream()
        for given in (stream, stream.cuda_stream):
            with self.torch.cuda.stream(stream):
                x = self.torch.rand(2, 3, 32, 32, device="cuda")
                for _ in range(20):
                    x = x + 1e-3  # under way when the run is handed over
                output = self.torch.from_dlpack(self.model.run(x, stream=given)["logits"]) * 2
            stream.synchronize()
            self.check(output / 2, x)


if __name__ == "__main__":
    unittest.main()

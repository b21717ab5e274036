"""scripts/convert_pth.py against files made here byte by byte as PyTorch writes them, and against PyTorch where it is installed."""
import collections
import contextlib
import io
import json
import os
import pickle
import struct
import sys
import tempfile
import types
import unittest
import zipfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import convert_pth  # noqa: E402

MAGIC = 0x1950A86A20F9469CFC6C


def foreign(module, name, base=object):
    """A class of a program that is not installed."""
    for i in range(1, module.count(".") + 2):
        path = ".".join(module.split(".")[:i])
        sys.modules.setdefault(path, types.ModuleType(path))
    made = type(name, (base,), {"__module__": module, "__qualname__": name})
    setattr(sys.modules[module], name, made)
    return made


class Made:
    """A tensor as the pickles have it: a call of torch's function with these arguments."""

    def __init__(self, numbers, shape, stride=None, offset=0, kind="f", key="0"):
        self.numbers, self.shape, self.offset, self.kind, self.key = numbers, shape, offset, kind, key
        steps = [1]
        for extent in reversed(shape[1:]):
            steps.insert(0, steps[0] * extent)
        self.stride = stride or tuple(steps[:len(shape)])

    def raw(self):
        return struct.pack(f"<{len(self.numbers)}{self.kind}", *self.numbers)


class Pickler(pickle.Pickler):
    """Writes Made tensors as torch.save does, with its classes only named."""

    def __init__(self, file, torch_named):
        super().__init__(file, protocol=2)
        self.torch, self.held = torch_named, {}

    def reducer_override(self, thing):
        if isinstance(thing, Made):
            self.held[thing.key] = thing
            return self.torch["rebuild"], (StorageOf(thing), thing.offset, thing.shape, thing.stride, False, collections.OrderedDict())
        return NotImplemented

    def persistent_id(self, thing):
        if isinstance(thing, StorageOf):
            kind = self.torch["float" if thing.made.kind == "f" else "long"]
            return "storage", kind, thing.made.key, "cpu", len(thing.made.numbers)
        return None


class StorageOf:
    def __init__(self, made):
        self.made = made


def torch_named():
    def rebuild():
        pass
    rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    saved = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules["torch"], sys.modules["torch._utils"] = types.ModuleType("torch"), types.ModuleType("torch._utils")
    sys.modules["torch._utils"]._rebuild_tensor_v2 = rebuild
    found = {"rebuild": rebuild, "saved": saved}
    for short, name in (("float", "FloatStorage"), ("long", "LongStorage")):
        found[short] = foreign("torch", name)
    return found


def written(thing):
    """The pickle, and the tensors in it by their storages' names."""
    named = torch_named()
    file = io.BytesIO()
    try:
        pickler = Pickler(file, named)
        pickler.dump(thing)
    finally:
        for name, module in named["saved"].items():
            sys.modules.pop(name, None)
            if module:
                sys.modules[name] = module
    return file.getvalue(), pickler.held


def save(path, thing):
    raw, held = written(thing)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", raw)
        for key, made in held.items():
            archive.writestr(f"archive/data/{key}", made.raw())


def save_legacy(path, thing):
    raw, held = written(thing)
    with open(path, "wb") as file:
        for each in (MAGIC, 1001, {"little_endian": True}):
            pickle.dump(each, file, protocol=2)
        file.write(raw)
        pickle.dump(sorted(held), file, protocol=2)
        for key in sorted(held):
            file.write(struct.pack("<q", len(held[key].numbers)) + held[key].raw())


def weights():
    return {"a": Made([1, 2, 3, 4, 5, 6], (2, 3)), "b": Made([7, 8], (2,), kind="q", key="1")}


def read(path):
    with open(path, "rb") as file:
        raw = file.read()
    size = struct.unpack("<Q", raw[:8])[0]
    found = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + at for at in entry["data_offsets"])
            kind = {"F32": "f", "I64": "q", "F64": "d"}[entry["dtype"]]
            found[name] = entry["shape"], list(struct.unpack(f"<{(end - begin) // struct.calcsize(kind)}{kind}", raw[begin:end]))
    return found


RIGHT = {"a": ([2, 3], [1, 2, 3, 4, 5, 6]), "b": ([2], [7, 8])}


def run(*arguments):
    """The exit code and what was printed."""
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            convert_pth.main(arguments)
    except SystemExit as end:
        return 1, f"{out.getvalue()}{end}\n"
    return 0, out.getvalue()


class ConvertPth(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.TemporaryDirectory()
        self.addCleanup(self.home.cleanup)
        self.source, self.target = os.path.join(self.home.name, "x.pth"), os.path.join(self.home.name, "model.safetensors")

    def run_script(self, *more):
        return run(self.source, *more)

    def converts(self, thing, note="", expected=None, how=save):
        how(self.source, thing)
        code, text = self.run_script()
        self.assertEqual((code, text), (0, f"{self.target}: {len(expected or RIGHT)} tensors{note}\n"))
        self.assertEqual(read(self.target), expected or RIGHT)
        os.remove(self.target)

    def refuses(self, why, *more):
        code, text = self.run_script(*more)
        self.assertEqual((code, text), (1, f"convert_pth.py: {self.source}: {why}\n"))
        self.assertEqual(sorted(os.listdir(self.home.name)), ["x.pth"])

    def test_both_formats(self):
        self.converts(weights())
        self.converts(weights(), how=save_legacy)
        self.converts(collections.OrderedDict(weights()))

    def test_every_place_of_the_weights(self):
        for part in ("state_dict", "model", "module", "model_state_dict", "net", "network", "params", "weights", "state_dict_ema",
                     "model_ema", "ema_state_dict", "ema", "teacher", "student", "my_own_name"):
            self.converts({"epoch": 3, part: weights(), "optimizer": {"state": {"x": Made([1], (1,), key="9")}}})
        self.converts({"model": {"state_dict": weights()}})
        self.converts({"model": {}, "model_ema": {"module": weights()}})
        self.converts({"best": Made([1], (), key="9"), "mine": weights()})
        self.converts((weights(), 3))
        self.converts({"pixel_mean": Made([1, 2, 3], (3,), key="9"), "state_dict": weights()})

    def test_takes_the_usual_of_several(self):
        several = {"ema": weights(), "model": weights(), "optimizer": weights()}
        self.converts(several, ' of "model" (--part takes others: ema)')
        save(self.source, several)
        self.assertEqual(self.run_script("--part", "ema")[0], 0)
        os.remove(self.target)
        self.refuses('has no part "gan" with tensors, but model, ema', "--part", "gan")
        save(self.source, {"one": weights(), "other": weights()})
        self.refuses("holds several sets of weights: name one with --part: one, other")
        save(self.source, {"mean": Made([1, 2], (2,), key="9"), "mine": weights()})
        self.refuses("holds several sets of weights: name one with --part: the file itself, mine")

    def test_beginnings_that_all_names_have(self):
        for beginning in ("module.", "model.", "_orig_mod.", "module._orig_mod.model."):
            self.converts({beginning + name: value for name, value in weights().items()})
        averaged = {"n_averaged": Made([3], (), kind="q", key="9")}
        self.converts({**averaged, **{"module." + name: value for name, value in weights().items()}})
        self.converts({"module.a": weights()["a"], "b": weights()["b"]}, expected={"module.a": RIGHT["a"], "b": RIGHT["b"]})

    def test_strangers_do_nothing(self):
        names = (("mmengine.logging.history_buffer", "HistoryBuffer"), ("omegaconf.dictconfig", "DictConfig"), ("argparse_like", "Namespace"))
        things = [foreign(*name)() for name in names]
        for thing in things:
            thing.history = [1, 2]
        options = foreign("mmengine.config", "ConfigDict", dict)(lr=1)
        counts = collections.defaultdict(int, {"a": 1})
        home = os.path.join(self.home.name, "ran")

        class Attack:
            def __reduce__(self):
                return os.system, (f"touch {home}",)

        self.converts({"state_dict": weights(), "meta": [*things, options, counts, {1, 2}, types.SimpleNamespace(x=1), Attack()]})
        self.assertFalse(os.path.exists(home))

    def test_pickled_modules(self):
        module = foreign("project.net", "Net")

        def made(**state):
            one = module()
            one.__dict__.update({"_parameters": {}, "_buffers": {}, "_modules": {}, "_non_persistent_buffers_set": set(), **state})
            return one

        buffers = {"b": weights()["b"], "passing": Made([1], (1,), key="9"), "none": None}
        inner = made(_buffers=buffers, _non_persistent_buffers_set={"passing"})
        outer = made(_parameters={"a": weights()["a"]}, _modules={"inner": inner})
        self.converts({"model": outer, "ema": None}, expected={"a": RIGHT["a"], "inner.b": RIGHT["b"]})

    def test_views(self):
        numbers = list(range(24))
        self.converts({"t": Made(numbers, (3, 2), (1, 3)), "slice": Made(numbers, (2, 2, 2), (12, 4, 2), 5),
                       "same": Made(numbers, (2, 3), (0, 0), 4), "one": Made(numbers, (), (), 23), "none": Made(numbers, (0, 2))},
                      expected={"t": ([3, 2], [0, 3, 1, 4, 2, 5]), "slice": ([2, 2, 2], [5, 7, 9, 11, 17, 19, 21, 23]),
                                "same": ([2, 3], [4] * 6), "one": ([], [23]), "none": ([0, 2], [])})
        save(self.source, {"a": Made(numbers, (5, 5))})
        self.refuses("is damaged: a tensor reaches over the end of its data")
        save(self.source, {"a": Made(numbers, (5,), (-1,))})
        self.refuses("is damaged: a tensor's shape is not one")

    def test_what_holds_no_weights(self):
        hint = ": save model.state_dict() and convert that"
        for thing, what in (([weights()["a"], weights()["b"]], "holds a list of 2 tensors without names"),
                            (weights()["a"], "holds one tensor without a name"), ({}, "holds no tensors but one value of type dict"),
                            ({"epoch": 3}, "holds no tensors by name, but epoch"), (3, "holds no tensors but one value of type int"),
                            (foreign("project.net", "Empty")(), "holds an object of project.net.Empty without tensors")):
            save(self.source, thing)
            self.refuses(what + hint)

    def test_other_files(self):
        for raw, what in ((b"", "is empty"), (b"version https://git-lfs.github.com/spec/v1\n",
                                              "is a Git LFS pointer, not the file itself: fetch it with git lfs pull"),
                          (b"<!DOCTYPE html>", "is a web page, not a checkpoint: download the file itself"),
                          (b"\x1f\x8b\x08", "is compressed: unpack it with gunzip first"),
                          (b"\x89HDF\r\n", "is an HDF5 file, which PyTorch did not write"),
                          (b"\x02\0\0\0\0\0\0\0{}", "is a safetensors file already: name it model.safetensors"),
                          (b"\x80\x02}.", "holds no tensors but one value of type dict: save model.state_dict() and convert that"),
                          (b"nonsense", "is damaged, or nothing that torch.save wrote: invalid load key, 'n'.")):
            with open(self.source, "wb") as file:
                file.write(raw)
            self.refuses(what)
        for name, what in (("x.npy", "is a zip archive that torch.save did not write: it holds x.npy"),
                           ("x/constants.pkl", "is a TorchScript program: save its weights in Python, "
                                               "torch.save(torch.jit.load(FILE).state_dict(), NEW)")):
            with zipfile.ZipFile(self.source, "w") as archive:
                archive.writestr(name, b"x")
            self.refuses(what)
        os.remove(self.source)
        self.assertEqual(self.run_script(), (1, f"convert_pth.py: {self.source}: No such file or directory\n"))

    def test_shards_by_their_index(self):
        for name, value in weights().items():
            save(os.path.join(self.home.name, name + ".bin"), {name: value})
        self.source = os.path.join(self.home.name, "pytorch_model.bin.index.json")
        for listed, code in (({"weight_map": {"a": "a.bin", "b": "b.bin"}}, 0), ({"weight_map": {"a": "../a.bin"}}, 1), ([], 1)):
            with open(self.source, "w", encoding="utf-8") as file:
                json.dump(listed, file)
            got = self.run_script()
            self.assertEqual(got[0], code)
            if code:
                self.assertEqual(got[1], f"convert_pth.py: {self.source}: lists no files in its own folder\n")
        self.assertEqual(read(self.target), RIGHT)

    def test_the_other_order_of_bytes(self):
        save(self.source, weights())
        with zipfile.ZipFile(self.source, "a") as archive:
            archive.writestr("archive/byteorder", b"big")
        self.assertEqual(self.run_script()[0], 0)
        self.assertEqual(read(self.target)["b"][1], [7 << 56, 8 << 56])

    def test_cut_short_anywhere(self):
        for how in (save, save_legacy):
            how(self.source, {"state_dict": weights()})
            with open(self.source, "rb") as file:
                whole = file.read()
            for length in range(1, len(whole), len(whole) // 16):
                with open(self.source, "wb") as file:
                    file.write(whole[:length])
                code, text = self.run_script()
                self.assertEqual((code, text.count("\n")), (1, 1), text)
                self.assertEqual(os.listdir(self.home.name), ["x.pth"])


try:
    import torch
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "PyTorch is not installed")
class ConvertPthOfPyTorch(unittest.TestCase):
    def test_agrees_with_pytorch(self):
        torch.manual_seed(1)
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(4, 2).half()).to(memory_format=torch.channels_last)
        for thing in (net.state_dict(), net, {"model": net.state_dict()}, torch.nn.DataParallel(net)):
            for zipped in (True, False):
                with tempfile.TemporaryDirectory() as home:
                    source = os.path.join(home, "x.pth")
                    torch.save(thing, source, _use_new_zipfile_serialization=zipped)
                    self.assertEqual(run(source)[0], 0)
                    with open(os.path.join(home, "model.safetensors"), "rb") as file:
                        raw = file.read()
                size = struct.unpack("<Q", raw[:8])[0]
                header = json.loads(raw[8:8 + size])
                self.assertEqual(set(header) - {"__metadata__"}, set(net.state_dict()))
                for name, value in net.state_dict().items():
                    begin, end = (8 + size + at for at in header[name]["data_offsets"])
                    self.assertEqual(raw[begin:end], value.contiguous().flatten().view(torch.uint8).numpy().tobytes(), name)


if __name__ == "__main__":
    unittest.main()

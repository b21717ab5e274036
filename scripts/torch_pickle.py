"""Reads what torch.save wrote without PyTorch, and without running any code of the file: tensors, containers, strangers."""
import array
import collections
import io
import pickle
import struct
import zipfile

# torch's storages and types by their names, as safetensors calls them, and bytes of an element.
STORAGES = {"FloatStorage": ("F32", 4), "DoubleStorage": ("F64", 8), "HalfStorage": ("F16", 2), "BFloat16Storage": ("BF16", 2),
            "LongStorage": ("I64", 8), "IntStorage": ("I32", 4), "ShortStorage": ("I16", 2), "CharStorage": ("I8", 1),
            "ByteStorage": ("U8", 1), "BoolStorage": ("BOOL", 1), "ComplexFloatStorage": ("C64", 8),
            "UntypedStorage": ("U8", 1), "_UntypedStorage": ("U8", 1)}
TYPES = {"float32": ("F32", 4), "float64": ("F64", 8), "float16": ("F16", 2), "bfloat16": ("BF16", 2), "int64": ("I64", 8),
         "int32": ("I32", 4), "int16": ("I16", 2), "int8": ("I8", 1), "uint8": ("U8", 1), "bool": ("BOOL", 1),
         "uint16": ("U16", 2), "uint32": ("U32", 4), "uint64": ("U64", 8), "complex64": ("C64", 8),
         "float8_e4m3fn": ("F8_E4M3", 1), "float8_e5m2": ("F8_E5M2", 1), "float8_e8m0fnu": ("F8_E8M0", 1)}
ARRAYS = {"f4": "F32", "f8": "F64", "f2": "F16", "i8": "I64", "i4": "I32", "i2": "I16", "i1": "I8", "u1": "U8", "b1": "BOOL",
          "u2": "U16", "u4": "U32", "u8": "U64"}
LEGACY = 0x1950A86A20F9469CFC6C  # with which files began before PyTorch 1.6


class Refused(Exception):
    """Why a file is not converted, in one line."""


class Storage:
    """The elements that tensors are views of; `place` is where they are."""

    def __init__(self, kind, count, place, start=0):
        self.type, self.size = kind
        self.count, self.place, self.start = count, place, start

    def read(self):
        count = self.count * self.size
        whole, swapped = self.place()
        raw = whole[self.start * self.size:self.start * self.size + count]
        if len(raw) < count:
            raise Refused("is cut short: the data of a tensor is missing")
        if swapped and self.size > 1:
            elements = array.array({2: "H", 4: "I", 8: "Q"}[self.size], raw)
            elements.byteswap()
            raw = elements.tobytes()
        return memoryview(raw)


class Tensor:
    def __init__(self, storage, offset, shape, stride, kind=None):
        self.storage, self.offset, self.shape, self.stride = storage, offset, tuple(shape), tuple(stride)
        self.type, self.size = kind or (storage.type, storage.size)
        numbers = (offset, *self.shape, *self.stride)
        if len(self.shape) != len(self.stride) or not all(type(n) is int and n >= 0 for n in numbers):
            raise Refused("is damaged: a tensor's shape is not one")

    def count(self):
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def bytes(self):
        """The elements row by row."""
        view, count = self.storage.read(), self.count()
        last = self.offset + sum((extent - 1) * step for extent, step in zip(self.shape, self.stride))
        if count and (last + 1) * self.size > len(view):
            raise Refused("is damaged: a tensor reaches over the end of its data")
        contiguous, step = [], 1
        for extent in reversed(self.shape):
            contiguous.insert(0, step)
            step *= extent
        if all(a == b or extent == 1 for a, b, extent in zip(self.stride, contiguous, self.shape)) or not count:
            return view[self.offset * self.size:(self.offset + count) * self.size]
        elements = view[:len(view) // self.size * self.size].cast({1: "B", 2: "H", 4: "I", 8: "Q"}[self.size])
        return rows(elements, self.offset, self.shape, self.stride)


def rows(elements, offset, shape, stride):
    if len(shape) > 1:
        return b"".join(rows(elements, offset + i * stride[0], shape[1:], stride[1:]) for i in range(shape[0]))
    if stride[0] == 0:
        return elements[offset:offset + 1].tobytes() * shape[0]
    return elements[offset:offset + stride[0] * (shape[0] - 1) + 1:stride[0]].tobytes()


class Stranger(dict):
    """Stands for a class or function of another program: it takes everything and does nothing."""

    def __new__(cls, *arguments, **named):
        self = dict.__new__(cls)
        self.arguments, self.state, self.elements = arguments, {}, []
        return self

    def __init__(self, *arguments, **named):
        dict.__init__(self)

    def __setstate__(self, state):
        self.state = state

    def append(self, element):
        self.elements.append(element)

    def extend(self, elements):
        self.elements.extend(elements)

    def add(self, element):
        self.elements.append(element)

    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other


class Kind:
    """A torch storage class or type."""

    def __init__(self, kind):
        self.kind = kind


def tensor(storage, offset, shape, stride, *_):
    return Tensor(storage, offset, shape, stride)


def tensor_of_type(storage, offset, shape, stride, requires_grad, hooks, kind, *_):
    if not isinstance(kind, Kind):
        raise Refused("holds a tensor of a type that safetensors does not have")
    return Tensor(storage, offset, shape, stride, kind.kind)


def parameter(data, *_):
    return data


def subclass(function, kind, arguments, state):
    return function(*arguments)


def storage_in_bytes(raw):
    return open_stream(io.BytesIO(raw))


def encoded(text, encoding="latin-1"):
    return text.encode("latin-1") if isinstance(text, str) else bytes()


HARMLESS = {
    "collections.OrderedDict": collections.OrderedDict, "builtins.set": set, "builtins.frozenset": frozenset, "builtins.list": list,
    "builtins.dict": dict, "builtins.tuple": tuple, "__builtin__.set": set, "torch.Size": tuple, "_codecs.encode": encoded,
    "torch._utils._rebuild_tensor": tensor, "torch._utils._rebuild_tensor_v2": tensor,
    "torch._utils._rebuild_tensor_v3": tensor_of_type, "torch._utils._rebuild_parameter": parameter,
    "torch._utils._rebuild_parameter_with_state": parameter, "torch._tensor._rebuild_from_type_v2": subclass,
    "torch.storage._load_from_bytes": storage_in_bytes,
}


class Unpickler(pickle.Unpickler):
    """Builds tensors and Python's own containers. Every other class and function is a Stranger: no code of the file runs."""

    def __init__(self, file, place):
        super().__init__(file, encoding="latin-1")
        self.place = place

    def find_class(self, module, name):
        full = f"{module}.{name}"
        if full in HARMLESS:
            return HARMLESS[full]
        for table in (STORAGES, TYPES):
            if module.split(".")[0] == "torch" and name in table:
                return Kind(table[name])
        return type(name.split(".")[-1], (Stranger,), {"name": full})

    def persistent_load(self, key):
        if not isinstance(key, tuple) or not key or key[0] not in ("storage", b"storage", "module"):
            raise Refused("refers to things that torch.save does not write")
        if key[0] == "module":
            return key[1]
        kind, name, count = key[1], key[2], key[4]
        if not isinstance(kind, Kind):
            raise Refused(f"holds elements of a type that safetensors does not have ({getattr(kind, 'name', kind)})")
        start, view = 0, key[5] if len(key) > 5 else None
        if view:
            start, count = view[1], view[2]
        return Storage(kind.kind, count, self.place(str(name), kind.kind), start)


def open_zip(file):
    """What torch.save has written since PyTorch 1.6."""
    archive = zipfile.ZipFile(file)
    names = archive.namelist()
    if any(name.endswith("/constants.pkl") or name == "constants.pkl" for name in names):
        raise Refused("is a TorchScript program: save its weights in Python, torch.save(torch.jit.load(FILE).state_dict(), NEW)")
    pickled = [name for name in names if name.split("/")[-1] == "data.pkl"]
    if not pickled:
        raise Refused(f"is a zip archive that torch.save did not write: it holds {', '.join(names[:3]) or 'nothing'}")
    home = pickled[0][:-len("data.pkl")]
    last = {}

    def place(name, kind):
        def read():
            if name not in last:
                last.clear()  # one at a time: a file may be larger than the memory
                last[name] = archive.read(f"{home}data/{name}")
            return last[name], swapped
        return read

    swapped = home + "byteorder" in names and archive.read(home + "byteorder") == b"big"
    return Unpickler(io.BytesIO(archive.read(pickled[0])), place).load()


def open_stream(file):
    """The format before PyTorch 1.6, or a plain pickle."""
    offsets, kinds, order = {}, {}, {}

    def place(name, kind):
        kinds[name] = kind

        def read():
            begin, end = offsets[name]
            file.seek(begin)
            return file.read(end - begin), not order.get("little_endian", True)
        return read

    def load():
        return Unpickler(file, place).load()

    first = load()
    if type(first) is not int or first != LEGACY:
        return first
    version, system, root, names = load(), load(), load(), load()
    order.update(system if isinstance(system, dict) else {})
    for name in map(str, names):
        count = struct.unpack("<q", file.read(8))[0]
        begin = file.tell()
        offsets[name] = begin, begin + count * kinds[name][1]
        file.seek(offsets[name][1])
    return root


def what_else(start):
    """What a file is by its first bytes, if that is nothing to load."""
    kinds = ((b"version https://git-lfs", "is a Git LFS pointer, not the file itself: fetch it with git lfs pull"),
             (b"\x89HDF", "is an HDF5 file, which PyTorch did not write"), (b"\x1f\x8b", "is compressed: unpack it with gunzip first"),
             (b"<", "is a web page, not a checkpoint: download the file itself"))
    for beginning, what in kinds:
        if start.startswith(beginning):
            return what
    if len(start) > 8 and start[8:9] == b"{" and struct.unpack("<Q", start[:8])[0] < 1 << 32:
        return "is a safetensors file already: name it model.safetensors"
    return "is empty" if not start else None


def array_of(stranger):
    """A NumPy array as a tensor, None if it is something else."""
    name, state = stranger.name, stranger.state
    if name.endswith("multiarray._reconstruct") and isinstance(state, tuple) and len(state) == 5:
        shape, kind, by_columns, raw = state[1:]
    elif name.endswith("numeric._frombuffer") and len(stranger.arguments) == 4:
        raw, kind, shape, order = stranger.arguments
        by_columns = order == "F"
    else:
        return None
    code = kind.arguments[0] if isinstance(kind, Stranger) and kind.arguments else None
    order = kind.state[1] if code and isinstance(kind.state, tuple) else "<"
    if code not in ARRAYS or order == ">" or not isinstance(raw, (bytes, bytearray)):
        raise Refused("holds a NumPy array of a type that is not read")
    stride, step = [0] * len(shape), 1
    for axis in range(len(shape)) if by_columns else reversed(range(len(shape))):
        stride[axis] = step
        step *= shape[axis]
    size = int(code[1])
    return Tensor(Storage((ARRAYS[code], size), len(raw) // size, lambda: (bytes(raw), False)), 0, shape, stride)


def load(file):
    start = file.read(64)
    file.seek(0)
    refusal = what_else(start)
    if refusal:
        raise Refused(refusal)
    return open_zip(file) if start.startswith(b"PK") else open_stream(file)

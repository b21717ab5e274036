"""Writes what NumPy does, as test data: tests/data/numpy_types.json and tests/data/numpy_index.json.

    pip install numpy && python scripts/make_numpy_cases.py
The files in the repository were made with NumPy 2.4 and the seed below; other seeds make other files that must pass.
"""
import json
import pathlib
import sys
import warnings

import numpy as np

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
TYPES = {"bool": np.bool_, "u8": np.uint8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
         "f16": np.float16, "f32": np.float32, "f64": np.float64}
NAMES = {np.dtype(t): name for name, t in TYPES.items()}
UNARY = {"negative": np.negative, "abs": np.abs, "sign": np.sign, "square": np.square, "sqrt": np.sqrt, "exp": np.exp,
         "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
         "floor": np.floor, "ceil": np.ceil, "round": np.rint, "isnan": np.isnan, "isfinite": np.isfinite,
         "logical_not": np.logical_not, "tan": np.tan, "arcsin": np.arcsin, "arccos": np.arccos, "arctan": np.arctan,
         "sinh": np.sinh, "cosh": np.cosh, "arcsinh": np.arcsinh, "arccosh": np.arccosh, "arctanh": np.arctanh,
         "exp2": np.exp2, "log2": np.log2, "log10": np.log10, "trunc": np.trunc, "isinf": np.isinf, "invert": np.invert}
BINARY = ["add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "maximum", "minimum", "equal",
          "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor",
          "fmod", "arctan2", "hypot", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"]


def type_of(function, *arguments):
    """The name of the result's type, or None where NumPy refuses."""
    try:
        return NAMES.get(np.asarray(function(*arguments)).dtype)
    except (TypeError, OverflowError):
        return None


def types():
    ones = {name: np.ones(1, t) for name, t in TYPES.items()}
    result = {"promote": {a: {b: NAMES[np.result_type(TYPES[a], TYPES[b])] for b in TYPES} for a in TYPES}}
    result["unary"] = {op: {a: type_of(f, ones[a]) for a in TYPES} for op, f in UNARY.items()}
    # rint gives integers a floating type; the library's round keeps them, as numpy.round does.
    result["unary"]["round"] = {a: NAMES[np.round(ones[a]).dtype] if a != "bool" else a for a in TYPES}
    result["binary"] = {op: {a: {b: type_of(getattr(np, op), ones[a], ones[b]) for b in TYPES} for a in TYPES}
                        for op in BINARY}
    scalars = {"true": True, "1": 1, "300": 300, "-1": -1, "1.5": 1.5}
    result["add_scalar"] = {a: {text: type_of(np.add, ones[a], value) for text, value in scalars.items()} for a in TYPES}
    return result


class Indices:
    """Random indices of every kind."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def integer(self, low, high):
        return int(self.random.integers(low, high))

    def bound(self, extent):
        return None if self.integer(0, 3) == 0 else self.integer(-extent - 2, extent + 3)

    def slice(self, extent):
        return slice(self.bound(extent), self.bound(extent), self.random.choice([None, None, 1, 2, 3, -1, -2]))

    def array(self, extent, shape):
        return self.random.integers(-extent, extent, [d if self.integer(0, 4) else 1 for d in shape])

    def index(self, shape, advanced):
        items, axis = [], 0
        common = [self.integer(1, 4) for _ in range(self.integer(0, 3))]
        while axis < len(shape) and self.integer(0, 7):
            kind, extent = self.integer(0, 9 if advanced else 5), shape[axis]
            if kind == 0:
                items.append(None)
            elif kind == 1 and Ellipsis not in [i for i in items if not isinstance(i, np.ndarray)]:
                items.append(Ellipsis)
                axis += self.integer(0, len(shape) - axis + 1)
            elif kind == 2 and extent:
                items.append(self.integer(-extent, extent))
                axis += 1
            elif kind in (5, 6) and extent:
                items.append(self.array(extent, common))
                axis += 1
            elif kind == 7:
                rank = min(self.integer(1, 3), len(shape) - axis)
                items.append(self.random.integers(0, 2, shape[axis:axis + rank]).astype(bool))
                axis += rank
            else:
                items.append(self.slice(extent))
                axis += 1
        # Rarely one thing that is wrong: an integer out of bounds.
        if self.integer(0, 20) == 0:
            items.append(99)
        return tuple(items) or (Ellipsis,)

    def case(self, number):
        shape = [self.integer(0 if self.integer(0, 8) == 0 else 1, 6) for _ in range(self.integer(1, 5))]
        x = np.arange(int(np.prod(shape))).reshape(shape)
        index = self.index(shape, number % 3 > 0)
        case = {"shape": shape, "index": [as_json(i) for i in index]}
        try:
            got = x[index]
        except IndexError:
            return case | {"error": True}
        case |= {"result_shape": list(np.shape(got)), "result": np.ravel(got).tolist()}
        # Assignment of one number a position, of a row, or of one number for all.
        value = -1 - np.arange(np.size(got)).reshape(np.shape(got))
        if number % 4 == 1 and np.ndim(got):
            value = value[-1:]
            value = value if value.size else np.array([-1])
        if number % 4 == 2:
            value = np.array(-7)
        x[index] = value
        return case | {"value_shape": list(value.shape), "value": value.ravel().tolist(), "assigned": x.ravel().tolist()}


def as_json(item):
    if item is None:
        return "None"
    if item is Ellipsis:
        return "..."
    if isinstance(item, slice):
        return {"slice": [None if v is None else int(v) for v in (item.start, item.stop, item.step)]}
    if isinstance(item, np.ndarray):
        kind = "mask" if item.dtype == bool else "array"
        return {kind: item.ravel().astype(int).tolist(), "shape": list(item.shape)}
    return item


def write(name, value):
    # One case a line keeps a change readable.
    lines = value if isinstance(value, list) else [value]
    text = ",\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
    (DATA / name).write_text("[\n" + text + "\n]\n" if isinstance(value, list) else text + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    indices = Indices(seed)
    write("numpy_types.json", types())
    write("numpy_index.json", [indices.case(i) for i in range(500)])

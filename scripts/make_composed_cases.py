"""Writes tests/data/composed.safetensors: calls of operators with results by NumPy, where it has the
function, and else by loops that follow the definition in PyTorch's documentation word by word.

    python scripts/make_composed_cases.py

Needs NumPy 2. tests/ops/golden_test.cpp runs the cases, eagerly and compiled.
"""

import itertools
import json
import math
import pathlib
import struct

import numpy as np

PAGE = pathlib.Path(__file__).parent.parent / "tests" / "data" / "composed.safetensors"
NAMES = {"float16": "F16", "float32": "F32", "float64": "F64", "int8": "I8", "int16": "I16",
         "int32": "I32", "int64": "I64", "uint8": "U8", "bool": "BOOL"}
random = np.random.default_rng(7)
cases, tensors = [], {}
INF, NAN = float("inf"), float("nan")


def add(op, inputs, results, tol=1e-6, **attrs):
    name = f"{op}.{len(cases)}"
    inputs = [np.asarray(x) for x in inputs]
    results = [np.asarray(x) for x in (results if isinstance(results, (list, tuple)) else [results])]
    for kind, arrays in (("in", inputs), ("out", results)):
        for k, array in enumerate(arrays):
            tensors[f"{name}.{kind}{k}"] = array
    cases.append({"id": name, "op": op, "attrs": attrs, "inputs": len(inputs), "outputs": len(results), "tol": tol})


def normal(*shape, dtype=np.float32):
    return random.normal(size=shape).astype(dtype)


def whole(*shape, low=-9, high=10, dtype=np.int64):
    return random.integers(low, high, shape).astype(dtype)


SPECIAL = np.array([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.7, -3.7, 20.0, -20.0, 88.0, -88.0, 1e-6], np.float32)


# ---- Arrangements.

def arrangements():
    x = normal(2, 3, 4)
    for source, destination in (([0], [2]), ([0, 1], [-1, -2]), ([-1], [0]), ([2, 0], [0, 1])):
        add("moveaxis", [x], np.moveaxis(x, source, destination), source=source, destination=destination)
    add("ravel", [x], np.ravel(x))
    for shift in (0, 5, -7, 100):
        add("roll", [x], np.roll(x, shift), shift=shift)
        add("roll", [x], np.roll(x, shift, 1), shift=[shift], axis=[1])
    add("roll", [x], np.roll(x, (1, -1), (0, 2)), shift=[1, -1], axis=[0, 2])
    add("roll", [x], np.roll(x, (1, 1), (1, 1)), shift=[1, 1], axis=[1, 1])
    add("roll", [normal(0, 3)], np.zeros((0, 3), np.float32), shift=[2], axis=[0])
    for dtype in (np.float32, np.int64, np.bool_):
        y = whole(3, 4, dtype=dtype)
        for mode in ("edge", "reflect", "symmetric", "wrap"):
            for width in (((1, 2), (3, 1)), ((0, 0), (7, 9)), ((4, 0), (0, 0))):
                add("pad", [y], np.pad(y, width, mode=mode), pad_width=[n for pair in width for n in pair], mode=mode)
    one = normal(1, 5)
    for mode in ("edge", "reflect", "symmetric", "wrap"):
        add("pad", [one], np.pad(one, ((2, 3), (0, 0)), mode=mode), pad_width=[2, 3, 0, 0], mode=mode)
    a, b, c = whole(3), normal(4), whole(2, dtype=np.int32)
    for indexing in ("xy", "ij"):
        add("meshgrid", [a, b, c], np.meshgrid(a, b, c, indexing=indexing), indexing=indexing)
        add("meshgrid", [b], np.meshgrid(b, indexing=indexing), indexing=indexing)
        add("meshgrid", [a, b], np.meshgrid(a, b, indexing=indexing), indexing=indexing)
    for shape in ((3, 5), (5, 3), (4, 4), (2, 3, 4), (0, 3)):
        y = whole(*shape)
        for offset in (0, 1, -1, 2, -4, 9):
            add("diagonal", [y], np.diagonal(y, offset), offset=offset)
            add("trace", [y], np.trace(y, offset), offset=offset)
    y = normal(3, 4, 5)
    add("diagonal", [y], np.diagonal(y, 1, 2, 0), offset=1, axis1=2, axis2=0)
    add("trace", [y], np.trace(y, -1, -1, 1), offset=-1, axis1=-1, axis2=1)
    for k in (0, 2, -3):
        v, m = SPECIAL[:5], whole(3, 5)
        add("diag", [v], np.diag(v, k), k=k)
        add("diag", [m], np.diag(m, k), k=k)
    for n in (0, 1, 2, 9):
        for axis in (0, -1):
            y = whole(3, 5)
            add("diff", [y], np.diff(y, n, axis), n=n, axis=axis)
    flags = whole(6, low=0, high=2, dtype=np.bool_)
    add("diff", [flags], np.diff(flags))
    add("diff", [np.array([3, 250, 7], np.uint8)], np.diff(np.array([3, 250, 7], np.uint8)))


# ---- Statistics.

def norms():
    x = normal(3, 4, 5)
    for axis in (None, 1, [0, 2]):
        places = {} if axis is None else {"axis": axis}
        key = tuple(axis) if isinstance(axis, list) else axis
        for keep in (False, True):
            for order in (2, 1, 0, 3, 0.5, -1, INF, -INF):
                if math.isinf(order):
                    continue  # no number in JSON: tests/ops/statistics_test.cpp has them
                add("vector_norm", [x], np.linalg.vector_norm(x, axis=key, keepdims=keep, ord=order), 1e-5,
                    ord=order, keepdims=keep, **places)
            y = whole(3, 4, 5, low=-1, high=2)
            add("count_nonzero", [y], np.count_nonzero(y, axis=key, keepdims=keep), keepdims=keep, **places)
            m = np.max(x, axis=key, keepdims=True)
            s = np.log(np.sum(np.exp((x - m).astype(np.float64)), axis=key, keepdims=True)) + m
            add("logsumexp", [x], s if keep else np.squeeze(s, axis=key), keepdims=keep, **places)
            add("median", [x], np.median(x, axis=key, keepdims=keep), keepdims=keep, **places)
            for q in (0.0, 0.3, np.array([0.1, 0.5, 1.0])):
                add("quantile", [x, np.float64(q)], np.quantile(x, q, axis=key, keepdims=keep), keepdims=keep, **places)
    for rows in ([1000.0, 1000.0], [-1000.0, -1001.0], [-INF, -INF], [INF, 1.0], [NAN, 1.0], [-INF, 2.0]):
        row = np.array(rows)
        with np.errstate(all="ignore"):
            m = np.max(row) if np.isfinite(np.max(row)) else 0.0
            add("logsumexp", [row], np.log(np.sum(np.exp(row - m))) + m)
    y = whole(7)
    add("vector_norm", [y], np.linalg.vector_norm(y.astype(np.float64)))
    add("vector_norm", [np.full(300, 300, np.float16)], np.float16(math.sqrt(300) * 300), 1e-3)


def orders():
    for numbers in ([3, 1, 2], [4, 1, 3, 2], [1.0, NAN, 2.0], [INF, INF], [-INF, 1.0, INF], [True, False, True]):
        x = np.array(numbers)
        add("median", [x], np.median(x))
        if x.dtype != np.bool_ and not np.isinf(x).any():
            add("quantile", [x, np.array([0.25, 0.75])], np.quantile(x, [0.25, 0.75]))
    with np.errstate(all="ignore"):
        add("median", [np.zeros((2, 0))], np.full(2, NAN), axis=1)
    for count in (0, 1, 2, 7, 8, 100):
        for dtype in (np.float32, np.int64):
            a = np.sort(whole(count, low=-20, high=20, dtype=dtype))
            v = whole(3, 11, low=-22, high=22, dtype=dtype)
            for side in ("left", "right"):
                add("searchsorted", [a, v], np.searchsorted(a, v, side=side), side=side)
    a, v = np.array([-INF, 1.0, 1.0, INF, NAN, NAN]), np.array([NAN, INF, -INF, 1.0, 0.0])
    for side in ("left", "right"):
        add("searchsorted", [a, v], np.searchsorted(a, v, side=side), side=side)
    for x in (normal(200), whole(50), np.array([2.0, 2.0]), np.zeros(0, np.float32), normal(5, 6, dtype=np.float64)):
        for bins in (1, 10, 7):
            add("histogram", [x], np.histogram(x, bins), bins=bins)
    x = np.array([-1.0, 0.0, 0.1, 0.2, 0.3, 0.7, 0.9, 1.0, 1.5, NAN])
    add("histogram", [x, np.float64(0), np.float64(1)], np.histogram(x, 10, (0, 1)), bins=10)
    for x in (whole(4, 5, low=0, high=2), SPECIAL, np.zeros((0, 2)), np.array([True, False])):
        add("nonzero", [x], list(np.nonzero(x)))
    for x in (whole(4, 5, low=-2, high=3), np.array([NAN, 1.0, NAN, -INF, 1.0]), np.zeros(0), np.array([True, True])):
        add("unique", [x], np.unique(x))
    with np.errstate(all="ignore"):
        add("nan_to_num", [SPECIAL], np.nan_to_num(SPECIAL))
        add("nan_to_num", [SPECIAL], np.nan_to_num(SPECIAL, nan=3.0, posinf=5.0, neginf=-7.0), nan=3.0, posinf=5.0, neginf=-7.0)
        half = SPECIAL.astype(np.float16)
        add("nan_to_num", [half], np.nan_to_num(half).astype(np.float64))
        y = whole(4)
        add("nan_to_num", [y], np.nan_to_num(y))
    y = whole(3, 4, low=-3, high=4)
    for axis in (0, 1):
        add("cumprod", [y], np.cumprod(y, axis), axis=axis)
    z = normal(3, 40)
    add("cumprod", [z], np.cumprod(z.astype(np.float64), 1), 1e-5, axis=1)
    add("cumprod", [y], np.cumprod(y))
    add("cumprod", [np.array([True, True, False])], np.cumprod([True, True, False]))


# ---- Products.

def products():
    a, b = whole(2, 3), whole(4)
    add("outer", [a, b], np.outer(a, b))
    x, y = normal(2, 3, 4), normal(3, 4, 5)
    add("tensordot", [x, y], np.tensordot(x, y, 2), 1e-5, axes=2)
    add("tensordot", [x, y], np.tensordot(x, y), 1e-5)
    add("tensordot", [a, b], np.tensordot(a, b, 0), axes=0)
    add("tensordot", [x, y], np.tensordot(x, y, ([1, 2], [0, 1])), 1e-5, axes_a=[1, 2], axes_b=[0, 1])
    add("tensordot", [x, y], np.tensordot(x, y, ([-1], [1])), 1e-5, axes_a=[-1], axes_b=[1])
    add("tensordot", [a, a], np.tensordot(a, a, 2), axes=2)
    p, q = whole(4, 3), whole(3)
    add("cross", [p, q], np.cross(p, q))
    p, q = normal(3, 5), normal(3, 5)
    add("cross", [p, q], np.cross(p, q, axis=0), axis=0)
    q4, k4 = normal(2, 3, 4, 5), normal(2, 3, 6, 5)
    for equation, operands in (("...ij,...kj->...ik", [q4, k4]), ("...ij->...ji", [q4]), ("i...->i...", [q4]),
                               ("...,...", [normal(3), normal(2, 3)]), ("...ij,jk", [normal(3, 2, 4), normal(4, 5)]),
                               ("a...b,b...->a...", [normal(2, 3, 4), normal(4, 3)]), ("...ii->...i", [normal(2, 3, 3)]),
                               ("...a,...b->ab...", [normal(1, 3), normal(4, 2)]), ("ij...->", None),
                               ("...j->...", [normal(2, 1, 3)]), ("ij,jk->...ik", [normal(2, 3), normal(3, 2)]),
                               ("... ij , ...", [normal(2, 3), normal(4)])):
        if operands is None:
            continue
        add("einsum", operands, np.einsum(equation.replace(" ", ""), *operands), 1e-5, equation=equation)


# ---- Positions.

def scattered(x, indices, updates):
    result = x.copy()
    for place in np.ndindex(indices.shape[:-1]):
        result[tuple(indices[place])] = updates[place]
    return result


def gathered(x, indices, batch_dims):
    shape = indices.shape[:-1] + x.shape[batch_dims + indices.shape[-1]:]
    result = np.zeros(shape, x.dtype)
    for place in np.ndindex(indices.shape[:-1]):
        result[place] = x[place[:batch_dims] + tuple(indices[place])]
    return result


def positions():
    x = normal(3, 4, 5)
    for dims in (1, 2, 3):
        limits = np.array(x.shape[:dims])
        for shape in ((6,), (2, 3), (), (0,)):
            i = (random.integers(-100, 100, shape + (dims,)) % (2 * limits)) - limits
            add("gather_nd", [x, i], gathered(x, i, 0))
            u = normal(*shape, *x.shape[dims:])
            add("scatter_nd", [x, i, u], scattered(x, i, u))
    i = random.integers(-4, 4, (3, 7, 1))
    add("gather_nd", [x, i], gathered(x, i, 1), batch_dims=1)
    i = np.stack([random.integers(-4, 4, (3, 2)), random.integers(-5, 5, (3, 2))], -1).astype(np.int32)
    add("gather_nd", [x, i], gathered(x, i, 1), batch_dims=1)
    i = random.integers(-5, 5, (3, 4, 2, 1))
    add("gather_nd", [x, i], gathered(x, i, 2), batch_dims=2)
    flags = whole(4, 3, low=0, high=2, dtype=np.bool_)
    add("scatter_nd", [flags, np.array([[0], [-1]]), ~flags[:2]], scattered(flags, np.array([[0], [-1]]), ~flags[:2]))
    for axis in (0, 1, -1):
        shape = list(x.shape)
        shape[axis] = 2
        i = random.integers(-x.shape[axis], x.shape[axis], shape)
        for values in (normal(*shape), np.float32(7)):
            y = x.copy()
            np.put_along_axis(y, i, values, axis)
            add("put_along_axis", [x, i, values], y, axis=axis)
    i = random.integers(0, 3, (1, 2))
    y = whole(4, 3)
    z = y.copy()
    np.put_along_axis(z, i, np.array([[5], [6], [7], [8]]), 1)
    add("put_along_axis", [y, i, np.array([[5], [6], [7], [8]])], z, axis=1)
    for c in (whole(2, 3, low=0, high=4), np.array(2), np.array([0, 3, 9, -1], np.int32)):
        add("one_hot", [c], (c[..., None] == np.arange(4)).astype(np.int64), num_classes=4)


# ---- Neural operators.

def pooled(x, kernel, stride, padding, ceil_mode, count_include_pad, largest):
    (kh, kw), (sh, sw), (ph, pw) = kernel, stride, padding
    height, width = x.shape[2:]

    def windows(extent, k, s, p):
        count = (math.ceil if ceil_mode else math.floor)((extent + 2 * p - k) / s) + 1
        return count - 1 if ceil_mode and (count - 1) * s >= extent + p else count

    rows, columns = windows(height, kh, sh, ph), windows(width, kw, sw, pw)
    result = np.zeros(x.shape[:2] + (rows, columns))
    for i, j in np.ndindex(rows, columns):
        top, left = i * sh - ph, j * sw - pw
        bottom, right = min(top + kh, height + ph), min(left + kw, width + pw)
        area = (bottom - top) * (right - left)
        y0, x0, y1, x1 = max(top, 0), max(left, 0), min(bottom, height), min(right, width)
        window = x[:, :, y0:y1, x0:x1].astype(np.float64)
        if largest:
            result[:, :, i, j] = window.max((2, 3))
        else:
            result[:, :, i, j] = window.sum((2, 3)) / (area if count_include_pad else (y1 - y0) * (x1 - x0))
    return result


def adaptive(x, size, largest):
    result = np.zeros(x.shape[:2] + size)
    for i, j in np.ndindex(*size):
        h, w = x.shape[2:]
        window = x[:, :, i * h // size[0]:-(-(i + 1) * h // size[0]), j * w // size[1]:-(-(j + 1) * w // size[1])]
        result[:, :, i, j] = window.max((2, 3)) if largest else window.astype(np.float64).mean((2, 3))
    return result


def pools():
    for (h, w), kernel, stride, padding in (((7, 8), (3, 3), (2, 2), (1, 1)), ((6, 6), (2, 3), (2, 3), (0, 1)),
                                            ((5, 9), (2, 2), (2, 2), (0, 0)), ((2, 2), (3, 3), (2, 2), (0, 0)),
                                            ((9, 7), (3, 2), (1, 3), (1, 0)), ((4, 4), (2, 2), (3, 3), (1, 1))):
        x = normal(2, 3, h, w)
        for ceil_mode in (False, True):
            if not ceil_mode and kernel[0] > h + 2 * padding[0]:
                continue
            sizes = {"kernel_size": list(kernel), "stride": list(stride), "padding": list(padding), "ceil_mode": ceil_mode}
            add("max_pool2d", [x], pooled(x, kernel, stride, padding, ceil_mode, True, True), **sizes)
            for count in (True, False):
                add("avg_pool2d", [x], pooled(x, kernel, stride, padding, ceil_mode, count, False),
                    count_include_pad=count, **sizes)
    for size in ((1, 1), (2, 4), (3, 5), (7, 7), (9, 2), (10, 11)):
        x = normal(2, 3, 8, 8) if size == (2, 4) else normal(1, 2, 7, 9)
        add("adaptive_avg_pool2d", [x], adaptive(x, size, False), output_size=list(size))
        add("adaptive_max_pool2d", [x], adaptive(x, size, True), output_size=list(size))
    x = normal(1, 1, 5, 7)
    x[0, 0, 2, 3], x[0, 0, 4, 6] = INF, NAN
    add("adaptive_avg_pool2d", [x], adaptive(x, (3, 3), False), output_size=3)
    add("adaptive_max_pool2d", [x], adaptive(x, (3, 3), True), output_size=3)


def sampled(x, grid, mode, padding_mode, align_corners):
    n, channels, h, w = x.shape
    result = np.zeros((n, channels) + grid.shape[1:3])

    def reflect(at, low, high):
        if low == high:
            return 0.0
        span = (high - low) / 2
        at = abs(at - low / 2)
        extra, flips = math.fmod(at, span), math.floor(at / span)
        return extra + low / 2 if flips % 2 == 0 else span - extra + low / 2

    def place(c, size):
        c = -1.0 if math.isnan(c) else c
        at = (c + 1) / 2 * (size - 1) if align_corners else ((c + 1) * size - 1) / 2
        if padding_mode == "reflection":
            at = reflect(at, 0, 2 * (size - 1)) if align_corners else reflect(at, -1, 2 * size - 1)
        return at if padding_mode == "zeros" else min(max(at, 0), size - 1)

    def pixel(b, row, column):
        inside = 0 <= row < h and 0 <= column < w
        return x[b, :, row, column].astype(np.float64) if inside else np.zeros(channels)

    for b, i, j in np.ndindex(n, *grid.shape[1:3]):
        column, row = place(float(grid[b, i, j, 0]), w), place(float(grid[b, i, j, 1]), h)
        if mode == "nearest":
            result[b, :, i, j] = pixel(b, round(row), round(column))
            continue
        top, left = math.floor(row), math.floor(column)
        for r, c in itertools.product((0, 1), (0, 1)):
            weight = abs(1 - r - (row - top)) * abs(1 - c - (column - left))
            result[b, :, i, j] += weight * pixel(b, top + r, left + c)
    return result


def samples():
    x = normal(2, 3, 5, 7, dtype=np.float64)
    grid = random.uniform(-2.5, 2.5, (2, 4, 6, 2))
    grid[0, 0, 0], grid[0, 0, 1], grid[0, 0, 2], grid[1, 3, 5] = (-1, 1), (1, 1), (0, 0), (NAN, 0.3)
    for mode, padding, align in itertools.product(("bilinear", "nearest"), ("zeros", "border", "reflection"), (False, True)):
        add("grid_sample", [x, grid], sampled(x, grid, mode, padding, align), 1e-6, mode=mode, padding_mode=padding, align_corners=align)
    one, points = normal(1, 2, 1, 1), random.uniform(-1.5, 1.5, (1, 3, 3, 2)).astype(np.float32)
    for padding in ("zeros", "border", "reflection"):
        add("grid_sample", [one, points], sampled(one, points, "bilinear", padding, True), padding_mode=padding, align_corners=True)
    f, g = normal(1, 2, 6, 6), random.uniform(-1, 1, (1, 5, 5, 2)).astype(np.float32)
    add("grid_sample", [f, g], sampled(f, g, "bilinear", "zeros", False), 1e-5)


def windows_of(x, kernel, dilation, padding, stride):
    x = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    rows = range(0, x.shape[2] - dilation[0] * (kernel[0] - 1), stride[0])
    columns = range(0, x.shape[3] - dilation[1] * (kernel[1] - 1), stride[1])
    windows = [x[:, :, r:r + dilation[0] * kernel[0]:dilation[0], c:c + dilation[1] * kernel[1]:dilation[1]]
               [:, :, :kernel[0], :kernel[1]].reshape(x.shape[0], -1) for r in rows for c in columns]
    return np.stack(windows, -1)


def images():
    x = normal(2, 8, 3, 5)
    r = 2
    shuffled = x.reshape(2, 2, r, r, 3, 5).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 10)
    add("pixel_shuffle", [x], shuffled, upscale_factor=r)
    add("pixel_unshuffle", [shuffled], x, downscale_factor=r)
    add("pixel_shuffle", [x[0]], shuffled[0], upscale_factor=r)
    y = whole(2, 3, 6, 7)
    for kernel, dilation, padding, stride in (((2, 3), (1, 1), (0, 0), (1, 1)), ((3, 3), (2, 1), (1, 2), (2, 3)), ((1, 1), (1, 1), (0, 0), (2, 2))):
        add("unfold", [y], windows_of(y, kernel, dilation, padding, stride), kernel_size=list(kernel), dilation=list(dilation), padding=list(padding), stride=list(stride))
    z, weight, bias = whole(2, 4, 9, dtype=np.float32), whole(6, 2, 3, dtype=np.float32), whole(6, dtype=np.float32)
    padded = np.pad(z, ((0, 0), (0, 0), (2, 2)))
    out = np.zeros((2, 6, (13 - 5) // 2 + 1), np.float32)
    for n, o, i in np.ndindex(*out.shape):
        group = o // 3
        out[n, o, i] = (padded[n, 2 * group:2 * group + 2, 2 * i:2 * i + 5:2] * weight[o]).sum() + bias[o]
    add("conv1d", [z, weight, bias], out, stride=2, padding=2, dilation=2, groups=2)
    boxes = np.array([[0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30], [0, 0, 10, 10], [5, 0, 15, 10]], np.float32)
    scores = np.array([0.5, 0.9, 0.1, 0.9, 0.7], np.float32)
    # Overlaps: boxes 1 and 3 have 81 / 119, 3 and 4 50 / 150, 1 and 4 54 / 146.
    add("nms", [boxes, scores], np.array([1, 4, 2]), iou_threshold=0.5)
    add("nms", [boxes, scores], np.array([1, 3, 4, 0, 2]), iou_threshold=1.0)
    add("nms", [boxes, scores], np.array([1, 2]), iou_threshold=0.3)
    add("nms", [np.zeros((0, 4), np.float32), np.zeros(0, np.float32)], np.zeros(0, np.int64), iou_threshold=0.5)


def activations():
    x64 = SPECIAL.astype(np.float64)
    with np.errstate(all="ignore"):
        for slope in (0.01, 0.2):
            add("leaky_relu", [SPECIAL], np.where(x64 > 0, x64, slope * x64), negative_slope=slope)
        for alpha in (1.0, 0.5):
            add("elu", [SPECIAL], np.where(x64 > 0, x64, alpha * np.expm1(x64)), alpha=alpha)
        scale, alpha = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
        add("selu", [SPECIAL], scale * np.where(x64 > 0, x64, alpha * np.expm1(x64)))
        add("mish", [SPECIAL], x64 * np.tanh(np.logaddexp(x64, 0)))
        add("hardsigmoid", [SPECIAL], np.clip(x64 + 3, 0, 6) / 6)
    x, w = normal(2, 3, 4, 5), normal(3)
    add("prelu", [x, w], np.where(x > 0, x, w[:, None, None] * x))
    add("prelu", [x, w[:1]], np.where(x > 0, x, w[0] * x))
    add("prelu", [x[0, :, 0], np.float32(0.25)], np.where(x[0, :, 0] > 0, x[0, :, 0], 0.25 * x[0, :, 0]))
    y, v, b = normal(2, 3, 8), normal(8), normal(3)
    for eps in (None, 1e-3):
        mean = np.mean(y.astype(np.float64) ** 2, -1, keepdims=True) + (eps or 2.0 ** -23)
        attrs = {} if eps is None else {"eps": eps}
        add("rms_norm", [y], y / np.sqrt(mean), 1e-5, **attrs)
        add("rms_norm", [y, v], y / np.sqrt(mean) * v, 1e-5, **attrs)
    image = normal(2, 3, 4, 5)
    m, d = image.mean((2, 3), keepdims=True), image.var((2, 3), keepdims=True)
    normed = (image - m) / np.sqrt(d + 1e-5)
    add("instance_norm", [image], normed, 1e-5)
    add("instance_norm", [image, w, b], normed * w[:, None, None] + b[:, None, None], 1e-5)


def cells_of_boxes(x, boxes, size, scale, ratio, aligned):
    """As torchvision.ops.roi_align, which the cases were compared with."""
    n, channels, h, w = x.shape
    result = np.zeros((len(boxes), channels) + size)

    def pixel(image, y, z):
        if y < -1 or z < -1 or y > h or z > w:
            return np.zeros(channels)
        y, z = min(max(y, 0), h - 1), min(max(z, 0), w - 1)
        top, left = math.floor(y), math.floor(z)
        down, right = min(top + 1, h - 1), min(left + 1, w - 1)
        y, z = y - top, z - left
        p = image.astype(np.float64)
        return (p[:, top, left] * (1 - y) * (1 - z) + p[:, top, right] * (1 - y) * z
                + p[:, down, left] * y * (1 - z) + p[:, down, right] * y * z)

    for k, box in enumerate(boxes.astype(np.float64)):
        begin = box[1:3] * scale - (0.5 if aligned else 0)
        extent = box[3:5] * scale - (0.5 if aligned else 0) - begin
        extent = extent if aligned else np.maximum(extent, 1)
        cell = extent / (size[1], size[0])
        count = [ratio] * 2 if ratio > 0 else [max(math.ceil(c), 0) for c in cell]
        for i, j in np.ndindex(*size):
            for a, b in np.ndindex(count[1], count[0]):
                y = begin[1] + cell[1] * (i + (a + 0.5) / count[1])
                z = begin[0] + cell[0] * (j + (b + 0.5) / count[0])
                result[k, :, i, j] += pixel(x[int(box[0])], y, z) / (count[0] * count[1])
    return result


def regions():
    x = normal(2, 3, 9, 11)
    boxes = np.array([[0, 1.3, 2.1, 14.2, 11.7], [1, -6.2, -3.3, 40.1, 30.6], [1, 8.7, 9.1, 8.9, 9.4], [0, 30.2, 3.3, 50.4, 8.8], [0, 9.3, 8.2, 2.6, 1.9]], np.float32)
    for ratio, aligned, (size, scale) in itertools.product((-1, 1, 2), (False, True), (((2, 3), 0.5), ((4, 1), 1.0))):
        add("roi_align", [x, boxes], cells_of_boxes(x, boxes, size, scale, ratio, aligned), 1e-5, output_size=list(size), spatial_scale=scale, sampling_ratio=ratio, aligned=aligned)
    add("roi_align", [x, boxes[:0]], np.zeros((0, 3, 5, 5), np.float32), output_size=5)


for part in (arrangements, norms, orders, products, positions, pools, samples, images, activations, regions):
    part()

header, data = {"__metadata__": {"cases": json.dumps(cases)}}, b""
for name, array in tensors.items():
    if array.dtype == np.float64 and ".out" in name:
        array = array.astype(np.float32)
    blob = np.ascontiguousarray(array).tobytes()
    header[name] = {"dtype": NAMES[array.dtype.name], "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(blob)]}
    data += blob
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
PAGE.write_bytes(struct.pack("<Q", len(text)) + text + data)
print(len(cases), "cases of", len({case["op"] for case in cases}), "operators")

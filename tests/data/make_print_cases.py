"""Arrays of many types, shapes and values, and the text that NumPy (2.3 or later) prints for them.

    python make_print_cases.py 7 print_cases.txt

A case is a line "dtype shape values lines", a line with the values in hexadecimal (little-endian, repeated to fill the
shape), and then str(array) in that many lines. A shape is written as "2,3", and as "-" without axes.
"""
import sys

import numpy as np

SHAPES = [(), (1,), (2,), (5,), (30,), (0,), (2, 0, 3), (2, 3), (3, 1), (1, 40), (2, 3, 4), (1, 1, 1), (2, 1, 2, 3),
          (1001,), (7, 200), (400, 3), (9, 11, 13), (3, 5, 7, 11), (2, 2, 300), (1, 1, 1, 1, 8)]
rng = np.random.default_rng(int(sys.argv[1]))


def floating_values(dtype):
    """Lists of numbers that are interesting together."""
    info = np.finfo(dtype)
    bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[np.dtype(dtype).itemsize]
    yield rng.standard_normal(23)
    yield rng.integers(-20, 20, 11)
    yield rng.standard_normal(17) * 1e-5
    yield rng.standard_normal(17) * 300
    yield rng.standard_normal(7) * 1e7
    yield 10.0 ** rng.uniform(-3, 3, 13) * rng.choice([-1, 1], 13)
    yield 10.0 ** rng.uniform(-12, 12, 13)
    yield rng.integers(-8, 8, 9) / 8
    yield [1, np.nan, 2.5]
    yield [np.inf, -1, np.nan, -np.inf]
    yield [np.nan]
    yield [np.inf, np.nan]
    yield [-np.inf]
    yield [np.inf, 1e-30, 12345]
    yield [-np.inf, 1]
    yield [0.0, -0.0]
    yield [-0.0, 3]
    yield [0.0, 1e-9]
    yield [1e-4, 1]
    yield [1e-4, 0.05]
    yield [9.99e-5]
    yield [1, 1000]
    yield [1, 1000.5]
    yield [0.5, 1001, 2]
    for limit in (1e3, 1e6, 1e8):
        yield [limit]
        yield [np.nextafter(dtype(limit), dtype(0)), limit / 2]
    yield [0.1, 0.2, 0.3]
    yield [1 / 3, 100 + 1 / 3]
    yield [0.1, 1e-7]
    yield [0.99999999, 1]
    yield [0.999999999, 0.5]
    yield [9999999.5, 0.125]
    yield [123456.789, 1000]
    yield [info.max, info.tiny, info.smallest_subnormal]
    yield [info.max, -info.max]
    yield [info.smallest_subnormal, -info.tiny]
    yield [1e100, 1e-100, 1]
    yield [2.0 ** k for k in range(-20, 20)]
    yield [1e15, 1e16, 1e17]
    yield [1e16]
    yield [9007199254740993, 1e22, 1e23]
    yield [0.00012345678901]
    yield [12345678.9]
    for _ in range(6):
        yield rng.integers(0, np.iinfo(bits).max, 8, dtype=bits, endpoint=True).view(dtype)


def integer_values(dtype):
    info = np.iinfo(dtype)
    yield rng.integers(0, 10, 13)
    yield rng.integers(info.min, info.max, 13, dtype=dtype, endpoint=True)
    yield [info.min, info.max, 0]
    yield [0]
    yield [7, 100]
    if info.min < 0:
        yield [-1, 5]
        yield [-100, 5]


def cases():
    for dtype in (np.float16, np.float32, np.float64):
        for i, values in enumerate(floating_values(dtype)):
            yield dtype, values, (len(values),)
            yield dtype, values, SHAPES[i % len(SHAPES)]
        for shape in SHAPES:
            yield dtype, rng.standard_normal(19), shape
    for dtype in (np.uint8, np.int8, np.int16, np.int32, np.int64):
        for i, values in enumerate(integer_values(dtype)):
            yield dtype, values, (len(values),)
            yield dtype, values, SHAPES[i]
    for shape in SHAPES:
        yield np.int64, rng.integers(-999, 1000, 19), shape
        yield np.bool_, rng.integers(0, 2, 17), shape
    yield np.uint8, rng.integers(0, 256, 31), (1000,)
    yield np.bool_, [True], (3,)
    yield np.bool_, [False], ()


with open(sys.argv[2], 'w') as out, np.errstate(all='ignore'):
    for dtype, values, shape in cases():
        values = np.asarray(values).astype(dtype)[:max(1, int(np.prod(shape)))]
        text = str(np.resize(values, shape))
        name = np.dtype(dtype).name
        print(name, ','.join(map(str, shape)) or '-', len(values), text.count('\n') + 1, file=out)
        print(values.tobytes().hex(), text, sep='\n', file=out)

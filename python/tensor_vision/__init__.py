"""Vision models on CPUs and NVIDIA GPUs: open() a checkpoint folder, a plan or an ONNX file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import _tensor
from ._tensor import Error, GpuTensor, InternalError, UserError

__version__: str = _tensor.version
__all__ = ["Answer", "Error", "Finding", "GpuTensor", "InternalError", "Model", "Port", "UserError", "cmake_prefix", "open"]

for _error in (Error, InternalError, UserError):
    _error.__module__ = __name__


_DEFAULT_STREAM = 1  # DLPack's name for it
_ON_CUDA = (2, 13)  # DLPack's device types, of memory that cudaMalloc and cudaMallocManaged gave


def _lent(value: Any, stream: int | None) -> Any:
    """The value, or of one on a GPU a capsule that the stream may read."""
    device = getattr(value, "__dlpack_device__", None)
    if device is None or device()[0] not in _ON_CUDA:
        return value
    return value.__dlpack__(stream=_DEFAULT_STREAM if stream is None else stream)


class Port(NamedTuple):
    """An input or output of a model."""

    name: str
    dtype: str  # NumPy's name; also "bfloat16"
    shape: tuple[int, ...] | None  # -1: any extent; None: any rank
    is_optional: bool


class Finding(NamedTuple):
    """One thing that a model sees in a picture."""

    label: str
    id: int
    score: float
    box: tuple[float, float, float, float] | None  # left, top, right, bottom in pixels


class Answer(NamedTuple):
    """What a model sees in a picture."""

    findings: list[Finding]
    classes: np.ndarray | None  # uint8 (rows, columns), where a model gives every pixel a class
    json: str  # as the programs print it


class Model:
    """A model that open() opened. Any number of threads may use it, and run at the same time."""

    def __init__(self, model: _tensor.Model) -> None:
        self._model = model

    @property
    def inputs(self) -> list[Port]:
        return [Port(*port) for port in self._model.inputs()]

    @property
    def outputs(self) -> list[Port]:
        return [Port(*port) for port in self._model.outputs()]

    def run(self, *inputs: Any, stream: Any = None, **named: Any) -> dict[str, np.ndarray | GpuTensor]:
        """Runs on NumPy arrays or other objects with __dlpack__, by name or those that are not optional in order.

        Outputs of inputs on a GPU stay there, as objects with __dlpack__. stream: a CUDA stream, as a number or an
        object with cuda_stream (PyTorch's), to which the run is handed without waiting for it.
        """
        names = self._model.needed_inputs()
        if len(inputs) > len(names):
            raise UserError(f"inputs: got {len(inputs)} without names, the model takes {len(names)}: {', '.join(names)}")
        for name, value in zip(names, inputs):
            if name in named:
                raise UserError(f"inputs: got {name} twice, by its place and by its name")
            named[name] = value
        number = getattr(stream, "cuda_stream", stream)
        if number is not None:
            number = int(number) or _DEFAULT_STREAM
        return self._model.run({name: _lent(value, number) for name, value in named.items()}, number)

    def look(self, picture: str | os.PathLike[str] | bytes | Any) -> Answer:
        """Looks at a picture: a path, the bytes of a file, or an array, uint8 (rows, columns, 3) in RGB."""
        if isinstance(picture, (str, os.PathLike)):
            picture = Path(picture).read_bytes()
        findings, classes, json = self._model.look(picture)
        return Answer([Finding(*finding) for finding in findings], classes, json)


def open(
    path: str | os.PathLike[str], *, device: str = "cpu", dtype: str = "f32", threads: int = 0, **options: Any
) -> Model:
    """Opens a checkpoint folder, a plan or an ONNX file.

    threads: 0 is one a core. More options: input="tensor" for a checkpoint without a rule for pictures, program
    where config.json does not name vit, detr or setr, max_pixels, and the program's own, as top and threshold.
    """
    options.update(device=device, dtype=dtype, threads=threads)
    return Model(_tensor.open(os.fspath(path), {name: str(value) for name, value in options.items()}))


def cmake_prefix() -> str:
    """Where the C++ library lies: -DCMAKE_PREFIX_PATH of a project with find_package(tensor)."""
    return str(Path(__file__).resolve().parent)

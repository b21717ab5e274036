"""Writes the npy and npz files that tests/io/npy_test.cpp reads. Needs NumPy; run it in this folder."""
import io

import numpy as np

VALUES = {
    "bool": np.array([True, False, True]),
    "uint8": np.array([0, 1, 255], np.uint8),
    "int8": np.array([-128, 0, 127], np.int8),
    "int16": np.array([-32768, 7, 32767], np.int16),
    "int32": np.array([-(2**31), 7, 2**31 - 1], np.int32),
    "int64": np.array([-(2**63), 7, 2**63 - 1], np.int64),
    "float16": np.array([-1.5, 65504, np.inf], np.float16),
    "float32": np.array([-1.5, 1e30, np.nan], np.float32),
    "float64": np.array([-1.5, 1e300, 5e-324], np.float64),
}
np.savez("types.npz", **VALUES)
np.savez_compressed("types_big_endian.npz", **{k: v.astype(v.dtype.newbyteorder(">")) for k, v in VALUES.items()})

cube = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
np.save("c_order.npy", cube)
np.save("fortran_order.npy", np.asfortranarray(cube))
np.save("scalar.npy", np.float32(2.5))
np.save("empty.npy", np.zeros((3, 0, 2)))
for version in ((2, 0), (3, 0)):
    with open(f"version{version[0]}.npy", "wb") as file:
        np.lib.format.write_array(file, cube, version=version)

np.savez_compressed("layers.npz", **{"block.0/weight": cube.astype(np.float32), "bias": np.zeros(1000)})


class Unseekable(io.RawIOBase):  # zipfile then writes sizes and checksums behind the data
    def __init__(self, file):
        self.file = file

    def writable(self):
        return True

    def write(self, data):
        return self.file.write(data)


with open("streamed.npz", "wb") as file:
    np.savez_compressed(Unseekable(file), cube=cube)

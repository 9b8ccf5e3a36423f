"""A one-dimensional .npy file that grows block by block: an array on disk need never be in memory as a whole."""

import io
from pathlib import Path

import numpy as np

from pyserini_ance.storage.files import BlockFile


class ArrayFile:
    """Writes what `np.save` writes of all blocks put together. It is no array before it is closed."""

    def __init__(self, path: Path, kind: type[np.generic]):
        self.kind, self.length = np.dtype(kind), 0
        self._at = len(_header(self.kind, 0))
        self._file = BlockFile(path, 0)

    def append(self, block: np.ndarray) -> None:
        data = np.ascontiguousarray(block, self.kind)
        self._file.write_at(self._at, data.tobytes())
        self._at, self.length = self._at + data.nbytes, self.length + len(data)

    def close(self) -> None:
        # numpy leaves room in a header for the longest array, so that all are of one size.
        self._file.write_at(0, _header(self.kind, self.length))
        self._file.close()


def _header(kind: np.dtype, length: int) -> bytes:
    out = io.BytesIO()
    about = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(out, about)
    return out.getvalue()

import numpy as np
import pytest

from pyserini_ance.data.arrays import ArrayFile


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.uint16])
@pytest.mark.parametrize("blocks", [[], [0], [3, 0, 4], [100_000, 1]])
def test_blocks_make_the_file_that_numpy_saves_of_all(tmp_path, kind, blocks):
    parts = [np.arange(size) + size for size in blocks]
    out = ArrayFile(tmp_path / "blocks.npy", kind)
    for part in parts:
        out.append(part)
    out.close()
    whole = np.concatenate([*parts, []]).astype(kind)
    np.save(tmp_path / "whole.npy", whole)
    assert (tmp_path / "blocks.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert out.length == len(whole)

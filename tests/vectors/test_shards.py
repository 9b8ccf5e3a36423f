"""How a corpus is cut into shards."""

import numpy as np
import pytest

from pyserini_ance.vectors.shards import Shard, text_windows


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "1/3/5", "a/b", "1/0", "-1/3", ""])
def test_a_shard_is_a_number_of_a_number(text):
    assert Shard.parse("3/3") == (3, 3) and str(Shard.parse("2/3")) == "2/3"
    with pytest.raises(ValueError, match=f"--shard {text}: expected I/N"):
        Shard.parse(text)


@pytest.mark.parametrize("texts", [1, 15, 16, 17, 400, 100_000])
@pytest.mark.parametrize("tokens_per_batch", [1, 64, 8192])
def test_shards_are_whole_windows_that_cover_the_texts_once(texts, tokens_per_batch):
    windows = text_windows(texts, tokens_per_batch)
    assert windows[0] == 0 and windows[-1] == texts and (np.diff(windows) > 0).all()
    assert len(windows) - 1 >= min(texts, 9)
    for of in {1, 2, 7, len(windows) - 1} & set(range(1, len(windows))):
        parts = [Shard(number, of).cut(windows) for number in range(1, of + 1)]
        assert np.concatenate([part[:-1] for part in parts]).tolist() == windows[:-1].tolist()
        assert [part[-1] for part in parts] == [*(part[0] for part in parts[1:]), texts]
        lengths = [len(part) for part in parts]
        assert min(lengths) > 1 and max(lengths) - min(lengths) <= 1
    with pytest.raises(ValueError, match=rf"has {len(windows) - 1} shards at most"):
        Shard(1, len(windows)).cut(windows)

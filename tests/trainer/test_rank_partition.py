import numpy as np
import pytest
import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.trainer.step import RankPartition

LENGTHS = np.array([3, 9, 1, 6, 9, 2, 4, 7])


@pytest.mark.parametrize("size", [1, 2, 3, 8, 11])
def test_every_text_is_dealt_to_one_process(size):
    positions = [RankPartition(LENGTHS, World(rank, size)).own.tolist() for rank in range(size)]
    assert sorted(sum(positions, [])) == list(range(8))
    assert all(hand == sorted(hand) for hand in positions)
    assert positions[8:] == [[]] * (size - 8)


def test_longest_first_in_turn():
    positions = [RankPartition(LENGTHS, World(rank, 3)).own for rank in range(3)]
    assert [sorted(LENGTHS[hand].tolist(), reverse=True) for hand in positions] == [
        [9, 6, 2],
        [9, 4, 1],
        [7, 3],
    ]


def squares(world) -> tuple[torch.Tensor, list[int]]:
    partition = RankPartition(LENGTHS, world)
    whole = partition.gather(torch.from_numpy(partition.own[:, None] ** np.array([1.0, 2.0])))
    return whole, partition.select(whole)[:, 0].tolist() == partition.own.tolist()


@pytest.mark.parametrize("size", [2, 11])
def test_gathered_rows_come_back_in_order(run_processes, size):
    for whole, part_is_own in run_processes(size, squares):
        assert whole.tolist() == [[i, i * i] for i in range(8)] and part_is_own

"""What the C library and oneDNN keep of the memory that a process on a CPU has used."""

import os

import torch

KEPT_BYTES = 31 << 20  # just below glibc's limit
# Shapes of products whose compiled code is kept. With 32, encoding is 4 % slower; a training step is not, as
# its batches have other shapes than those of the last one.
ENCODING_SHAPES, TRAINING_SHAPES = 128, 32
SHAPE_BYTES = 1 << 20  # kept for one, by torch and by oneDNN, together


def keep_freed_memory() -> None:
    """Let the C library reuse memory that layers free, rather than give it back to the system.

    Each page that comes back from the system is cleared first: 7 % of encoding in fp32. glibc keeps blocks up
    to the size of the largest that was freed, at most 32 MiB (M_MMAP_THRESHOLD in mallopt(3)). This one is
    never written, so it takes no memory.
    """
    torch.empty(KEPT_BYTES, dtype=torch.uint8)


def limit_kept_shapes(shapes: int) -> None:
    """Let torch keep oneDNN's compiled code for the last `shapes` shapes of products, and oneDNN for twice as
    many. What an earlier call or the user's environment says stays.

    Both keep 1,024 by default. Batches have ever other numbers of tokens, so that would be up to a GB, and
    holes between them (docs/lab-notes/speed.md). Both read their limit at the first product of the process.
    """
    os.environ.setdefault("LRU_CACHE_CAPACITY", str(shapes))
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(2 * shapes))

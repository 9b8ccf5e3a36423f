"""What the C library and oneDNN keep of the memory that a process on a CPU has used."""

import os

import torch

KEPT_BYTES = 31 << 20  # just below glibc's limit
# oneDNN's primitives that torch keeps. With 32, encoding is 4 % slower. A training step is not: its batches
# have other shapes than those of the last one.
ENCODING_PRIMITIVES, TRAINING_PRIMITIVES = 128, 32


def keep_freed_memory() -> None:
    """Let the C library reuse memory that layers free, rather than give it back to the system.

    Each page that comes back from the system is cleared first: 7 % of encoding in fp32. glibc keeps blocks up
    to the size of the largest that was freed, at most 32 MiB (M_MMAP_THRESHOLD in mallopt(3)). This one is
    never written, so it takes no memory.
    """
    torch.empty(KEPT_BYTES, dtype=torch.uint8)


def limit_primitive_caches(capacity: int) -> None:
    """Let torch keep the last `capacity` primitives of oneDNN, and oneDNN itself twice as many.

    A primitive is the compiled code for one shape of a product. Both caches hold 1,024 by default. Batches
    have ever other numbers of tokens, so that would be up to a GB, and holes between them
    (docs/lab-notes/speed.md). Both read their capacity at the first product of the process. The one that the
    user's environment or an earlier call has set stays.
    """
    os.environ.setdefault("LRU_CACHE_CAPACITY", str(capacity))
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(2 * capacity))

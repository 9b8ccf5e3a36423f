"""Loss: which process of a world ended before its work was done, and how; the PeerError that the others then raise."""

from dataclasses import dataclass

CURE = "all stop. Start again, training with --resume"


@dataclass(frozen=True)
class Loss:
    """`died`: the process could not say itself why it ended."""

    rank: int
    text: str
    interrupted: bool = False
    died: bool = False

    @classmethod
    def by(cls, error: BaseException, rank: int, size: int) -> "Loss":
        """What process `rank`, in which `error` was raised, tells the others: for a PeerError what it had been told itself."""
        if isinstance(error, PeerError):
            return error.loss
        if isinstance(error, KeyboardInterrupt):
            return cls(rank, f"process {rank} of {size} was interrupted", interrupted=True)
        return cls(rank, f"process {rank} of {size} failed: {type(error).__name__}: {error}")


class PeerError(RuntimeError):
    """Another process of the world has ended, so this one cannot go on."""

    def __init__(self, loss: Loss):
        super().__init__(loss.text)
        self.loss = loss

"""What a check found."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """`missing` means that something needed is absent or broken; `warn`, that it works worse than it could."""

    name: str
    value: str
    state: Literal["ok", "warn", "missing"] = "ok"
    cure: str = ""

    def __str__(self) -> str:
        line = f"{self.state:<8}{self.name:<16}{self.value}"
        return f"{line}\n{'':<24}-> {self.cure}" if self.cure else line

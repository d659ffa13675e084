"""What is wrong with a file of the toolchain, and where: a value, or an error where the file cannot be read at all."""

from dataclasses import asdict, dataclass
from typing import Any

from .._errors import PyptoxError


@dataclass(frozen=True)
class Finding:
    """One rule that a file breaks, or that a pair of files breaks.

    Attributes:
        code: short name of the rule, such as ``row-count``.
        severity: ``error``, or ``warning`` for what can be read but is older, partial or unusual.
        file: name of the file.
        key: where in it, such as ``edges[].flags``; empty for the whole file.
        record: number of the record, from 0, that belongs into ``[]``; None where it is about no single one.
        message: what was expected, what arrived, and what to try.
    """

    code: str
    severity: str
    file: str
    key: str
    record: int | None
    message: str

    def to_dict(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)

    @property
    def place(self) -> str:
        """File, key and record in one text.

        >>> Finding("flags", "error", "deps.json", "edges[].flags", 3, "").place
        'deps.json: edges[3].flags'
        """
        return f"{self.file}: {self.key.replace('[]', f'[{self.record}]')}" if self.key else self.file

    def __str__(self) -> str:
        return f"{self.severity} {self.code}: {self.place}: {self.message}"


class ArtifactError(PyptoxError):
    """A file cannot be read, or would break a rule if it were written; :attr:`finding` says which and where."""

    def __init__(self, finding: Finding):
        super().__init__(f"{finding.place}: {finding.message}")
        self.finding = finding


def damage(code: str, file: str, key: str, record: int | None, message: str) -> ArtifactError:
    """The error of a file that cannot be read."""
    return ArtifactError(Finding(code, "error", file, key, record, message))

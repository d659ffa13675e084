"""The record of one tried configuration; a failure is a record like any other."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, Literal, Self, final, get_args

from ._config import Config

Status = Literal["ok", "invalid", "compile_error", "timeout", "inaccurate", "crashed"]


@final
@dataclasses.dataclass(frozen=True)
class Trial:
    """One configuration and what became of it.

    `value` is what the search makes small, infinite unless `status` is "ok"; `samples` are the repeated
    measurements behind it, `predicted` is a model's value for it. `seconds` is how long the evaluation took
    and `error` says why it failed.

    >>> trial = Trial(Config(tile_m=64), value=12.5)
    >>> Trial.from_json(trial.to_json()) == trial
    True
    >>> str(Trial(Config(tile_m=512), status="invalid", error="exceeds L1"))
    'Config(tile_m=512): invalid, exceeds L1'
    """

    config: Config
    status: Status = "ok"
    value: float = math.inf
    predicted: float | None = None
    samples: tuple[float, ...] = ()
    error: str = ""
    seconds: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.status not in get_args(Status):
            raise ValueError(
                f"`status` must be one of {', '.join(get_args(Status))}, got {self.status!r}; "
                "use 'crashed' for a failure of another kind"
            )
        if (self.status == "ok") != math.isfinite(self.value):
            raise ValueError(
                f"`value` must be finite when `status` is 'ok' and infinite otherwise, got {self.value} with "
                f"{self.status!r}; use Trial.failed(config, status, error) for a failure"
            )

    @classmethod
    def failed(cls, config: Config, status: Status, error: str = "") -> Self:
        """The record of a failure."""
        return cls(config, status, error=error)

    def __str__(self) -> str:
        outcome = f"{self.value:.6g}" if self.status == "ok" else self.status
        return f"{self.config}: {outcome}" + (f", {self.error}" if self.error else "")

    def to_dict(self) -> dict[str, Any]:
        """A dictionary that JSON carries; the value of a failure is None."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        value = self.value if self.status == "ok" else None
        return {**fields, "config": self.config.to_dict(), "value": value, "samples": list(self.samples)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        value = math.inf if record["value"] is None else record["value"]
        return cls(
            **{
                **record,
                "config": Config(record["config"]),
                "value": value,
                "samples": tuple(record["samples"]),
            }
        )

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict(), separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`."""
        return cls.from_dict(json.loads(text))

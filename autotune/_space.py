"""A tuning space: named parameters and the constraints that say which of their combinations are legal.

Candidates are always handled many at a time. A batch of them is either *points*, a dictionary from
parameter name to an array of values, or an *index*, an int64 array of positions in the full grid in
mixed-radix order (the last parameter runs fastest). Constraints see points, progressively: each is asked
only about the points that passed the ones before it.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, TypeAlias, final, overload

import numpy as np

from ._config import Config
from ._constraint import Census, Constraint, EmptySpaceError, Points, Predicate
from ._parameter import AbstractParameter, names
from ._sampling import draw, stratified

Index: TypeAlias = np.ndarray

_CHUNK = 1 << 15  # candidates decoded at once: a few columns of this size stay in a core's L2 cache
_WHOLE = 1 << 26  # the largest grid that `enumerate()` holds in memory at once
_OFF_GRID = "parameters"  # the name that `legal` counts a value under that no parameter allows


@final
@dataclasses.dataclass(frozen=True, init=False)
class Space:
    """Named parameters and named constraints.

    >>> from autotune import PowerOfTwo
    >>> space = Space(tile_m=PowerOfTwo(16, 256), tile_n=PowerOfTwo(16, 256))
    >>> space = space.where("fits", lambda point: point["tile_m"] * point["tile_n"] <= 4096)
    >>> space.size, len(space.enumerate()["tile_m"])
    (25, 15)
    """

    items: tuple[tuple[str, AbstractParameter], ...]
    constraints: tuple[Constraint, ...]

    def __init__(self, **parameters: AbstractParameter):
        for name, parameter in parameters.items():
            if not isinstance(parameter, AbstractParameter):
                raise TypeError(
                    f"`{name}` must be a parameter such as PowerOfTwo(16, 256), got {parameter!r}; "
                    "wrap fixed values in Choice"
                )
        if not parameters:
            raise ValueError("`parameters` must name at least one parameter, got none")
        object.__setattr__(self, "items", tuple(parameters.items()))
        object.__setattr__(self, "constraints", ())
        if self.size >= 1 << 62:
            raise ValueError(f"`parameters` must span fewer than 2^62 points, got {self.size}; split the space")

    def where(self, name: str | Predicate, predicate: Predicate | None = None) -> Self:
        """The same space with one more constraint: `where("name", predicate)` or `where(function)`.

        `predicate` takes points (parameter name to array of values) and returns a boolean array. It is asked
        only about points that pass the constraints added before it.
        """
        if isinstance(name, str):
            label = name
        else:
            label, predicate = getattr(name, "__name__", "<lambda>"), name
        if predicate is None or label == "<lambda>":
            raise TypeError("`name` must say what the constraint means, got none; use `where('fits_l1', predicate)`")
        if label == _OFF_GRID or label in [constraint.name for constraint in self.constraints]:
            raise ValueError(f"`name` must be new, got {label!r} again; name what this constraint protects")
        space = object.__new__(type(self))
        object.__setattr__(space, "items", self.items)
        object.__setattr__(space, "constraints", (*self.constraints, Constraint(label, predicate)))
        return space

    @property
    def parameters(self) -> dict[str, AbstractParameter]:
        """Parameters by name."""
        return dict(self.items)

    @property
    def size(self) -> int:
        """Points in the full grid, before constraints."""
        return math.prod(parameter.cardinality for _, parameter in self.items)

    @property
    def strides(self) -> tuple[int, ...]:
        """The step in the index for one step of each parameter."""
        cards = [parameter.cardinality for _, parameter in self.items]
        return tuple(math.prod(cards[position + 1 :]) for position in range(len(cards)))

    @property
    def default(self) -> Config:
        """The default of every parameter; it need not be legal."""
        return Config({name: parameter.default for name, parameter in self.items})

    def at(self, index: Index) -> Points:
        """The points at positions of the grid."""
        digits = self.digits(index)
        return {name: parameter.values[digit] for (name, parameter), digit in zip(self.items, digits, strict=True)}

    def digits(self, index: Index) -> list[np.ndarray]:
        """For each parameter, the position of its value at each point."""
        digits, rest = [], np.asarray(index, np.int64)
        for stride in self.strides[:-1]:
            digit = rest // stride
            rest = rest - digit * stride
            digits.append(digit)
        return [*digits, rest]

    def point_index(self, points: Mapping[str, Any]) -> Index:
        """The grid position of each point, -1 where a value is not legal for its parameter."""
        self._exactly("points", points)
        columns = [parameter.digits(points[name]) for name, parameter in self.items]
        off_grid = np.any([column < 0 for column in columns], axis=0)
        index = sum(column * stride for column, stride in zip(columns, self.strides, strict=True))
        return np.where(off_grid, -1, index)

    def points(self, configs: Iterable[Mapping[str, Any]]) -> Points:
        """Configurations, such as `Config`, as one batch of points."""
        configs, columns = list(configs), {}
        for config in configs:
            self._exactly("configs", config)
        for name, parameter in self.items:
            values = np.empty(len(configs), object)
            values[:] = [config[name] for config in configs]
            on_grid = bool(np.all(parameter.digits(values) >= 0))
            columns[name] = values.astype(parameter.values.dtype) if on_grid else values
        return columns

    def _exactly(self, argument: str, mapping: Mapping[str, Any]) -> None:
        if mapping.keys() != dict(self.items).keys():
            raise ValueError(
                f"`{argument}` must hold exactly {names(self.items)}, got "
                f"{', '.join(map(repr, mapping)) or 'nothing'}; `space.default` is an example"
            )

    def __contains__(self, config: Mapping[str, Any]) -> bool:
        """Whether a configuration has exactly these parameters, legal values, and passes every constraint."""
        if config.keys() != dict(self.items).keys():
            return False
        return bool(self.legal(self.points([config]))[0][0])

    def configs(self, points: Mapping[str, np.ndarray]) -> list[Config]:
        """A batch of points as configurations."""
        columns = [np.asarray(points[name]).tolist() for name, _ in self.items]
        keys = [name for name, _ in self.items]
        return [Config(dict(zip(keys, row, strict=True))) for row in zip(*columns, strict=True)]

    def legal(self, points: Mapping[str, Any]) -> tuple[np.ndarray, dict[str, int]]:
        """Which points are legal, and how many each constraint rejected.

        A rejected point is counted under the first constraint it fails. The key "parameters" appears when
        some points hold a value that their parameter does not allow.
        """
        index = self.point_index(points)
        legal, counts = self.screen(index[index >= 0])
        mask = index >= 0
        off_grid = int(len(index) - mask.sum())
        mask[mask] = legal
        return mask, {_OFF_GRID: off_grid, **counts} if off_grid else counts

    def screen(self, index: Index) -> tuple[np.ndarray, dict[str, int]]:
        """`legal` for grid positions."""
        kept, _, counts = self._survivors(self.at(index), len(index))
        mask = np.zeros(len(index), bool)
        mask[kept] = True
        return mask, counts

    def _survivors(self, points: Points, count: int) -> tuple[Index | slice, Points, dict[str, int]]:
        """Which of `count` points pass every constraint, their values, rejections by constraint."""
        kept: Index | None = None
        counts = dict.fromkeys((constraint.name for constraint in self.constraints), 0)
        for constraint in self.constraints:
            if not count:
                break
            passed = np.flatnonzero(constraint(points, count))
            if len(passed) < count:
                counts[constraint.name] = count - len(passed)
                points = {name: column[passed] for name, column in points.items()}
                kept, count = passed if kept is None else kept[passed], len(passed)
        return slice(None) if kept is None else kept, points, counts

    def _chunks(self, chunk: int, rejected: dict[str, int]) -> Iterator[Points]:
        """The legal points of each run of `chunk` grid positions; counts are added to `rejected`."""
        for start in range(0, self.size, chunk):
            index = np.arange(start, min(start + chunk, self.size))
            _, points, counts = self._survivors(self.at(index), len(index))
            for name, count in counts.items():
                rejected[name] = rejected.get(name, 0) + count
            if len(next(iter(points.values()))):
                yield points

    @overload
    def enumerate(self) -> Points: ...
    @overload
    def enumerate(self, *, chunk: int) -> Iterator[Points]: ...
    def enumerate(self, *, chunk: int | None = None) -> Points | Iterator[Points]:
        """Every legal point: all at once, or an iterator over the survivors of each `chunk` grid positions.

        Raises `EmptySpaceError` when no point is legal.
        """
        if chunk is not None:
            return self._checked_chunks(chunk)
        if self.size > _WHOLE:
            raise ValueError(
                f"`chunk` must be given above {_WHOLE} points, got a space of {self.size}; "
                "use `enumerate(chunk=65536)` or a search"
            )
        chunks = list(self._checked_chunks(_CHUNK))
        return {name: np.concatenate([part[name] for part in chunks]) for name, _ in self.items}

    def _checked_chunks(self, chunk: int) -> Iterator[Points]:
        rejected, empty = {}, True
        for points in self._chunks(chunk, rejected):
            empty = False
            yield points
        if empty:
            raise EmptySpaceError(self.size, rejected)

    def census(self) -> Census:
        """Count the legal points and what each constraint removed, over the full grid."""
        rejected = dict.fromkeys((constraint.name for constraint in self.constraints), 0)
        legal = sum(len(next(iter(points.values()))) for points in self._chunks(_CHUNK, rejected))
        return Census(self.size, legal, rejected)

    def sample(self, rng: np.random.Generator, n: int, *, spread: bool = False) -> Points:
        """Up to `n` distinct legal points: uniform, or with `spread` stratified over every parameter."""
        return self.at(self.sample_index(rng, n, spread=spread))

    def sample_index(self, rng: np.random.Generator, n: int, *, spread: bool = False) -> Index:
        """`sample` as grid positions."""
        return stratified(self, rng, n) if spread else draw(self, rng, n)

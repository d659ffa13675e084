"""JSON objects with the fields that are expected; what is missing or of another type is named."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ._finding import ArtifactError, damage

REQUIRED: Any = object()
_WORDS = {int: "an integer", str: "a text", list: "a list", dict: "an object", bool: "true or false"}


@dataclass(frozen=True)
class Where:
    """A place in a file."""

    file: str
    key: str = ""
    record: int | None = None

    def under(self, key: str) -> "Where":
        """The place of a field of this one."""
        return replace(self, key=f"{self.key}.{key}" if self.key else key)

    def error(self, code: str, message: str) -> ArtifactError:
        """An error about this place."""
        return damage(code, self.file, self.key, self.record, message)


def load(path: Path) -> dict[str, Any]:
    """The object that a file holds."""
    where = Where(path.name)
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise where.error(
            "json", f"the file must be JSON; it is not: {error}. Was the run cut short? Record it again"
        ) from None
    if not isinstance(content, dict):
        raise where.error("type", f"the file must hold an object; got {_kind(content)}")
    return content


def field(content: Mapping[str, Any], name: str, kind: type, where: Where, default: Any = REQUIRED) -> Any:
    """``content[name]``, which must be of ``kind``; ``default`` where absent."""
    value = content.get(name, default)
    if type(value) is int and kind is int and not -(2**63) <= value < 2**64:
        raise where.under(name).error("type", f"`{name}` must be an integer of 64 bits; got {value}")
    if type(value) is kind or (value is default and value is not REQUIRED):
        return value
    if value is REQUIRED:
        raise where.under(name).error(
            "missing-key",
            f"the key `{name}` is missing; got {', '.join(map(str, content)) or 'no keys'}. A newer or damaged layout? "
            "Record again, or convert it with the tools of the run",
        )
    raise where.under(name).error("type", f"`{name}` must be {_WORDS[kind]}; got {_kind(value)}")


def records(content: Mapping[str, Any], name: str, where: Where, default: Any = REQUIRED) -> list[tuple[Where, dict]]:
    """The objects of the list ``content[name]``, each with its place."""
    found = []
    for number, item in enumerate(field(content, name, list, where, default)):
        place = Where(where.file, f"{where.under(name).key}[]", number)
        if not isinstance(item, dict):
            raise place.error("type", f"a record of `{name}` must be an object; got {_kind(item)}")
        found.append((place, item))
    return found


def number_text(content: Mapping[str, Any], name: str, where: Where) -> int:
    """An unsigned integer of 64 bits that the file holds as a text of decimal digits."""
    text = field(content, name, str, where)
    return digits(text, where.under(name), 2**64)


def digits(text: str, where: Where, limit: int) -> int:
    """The integer below ``limit`` that decimal digits spell."""
    if not (text.isascii() and text.isdigit() and len(text.lstrip("0")) <= 20) or int(text) >= limit:
        bits = limit.bit_length() - 1
        raise where.error("type", f"must be the decimal digits of an integer of {bits} bits; got {text[:40]!r}")
    return int(text)


def integers(content: Mapping[str, Any], name: str, where: Where) -> tuple[int, ...]:
    """A list of integers."""
    values = field(content, name, list, where)
    wrong = [value for value in values if type(value) is not int or not -(2**63) <= value < 2**63]
    if wrong:
        raise where.under(name).error("type", f"`{name}` must hold integers of 64 bits; got {_kind(wrong[0])}")
    return tuple(values)


def texts(content: Mapping[str, Any], name: str, where: Where) -> tuple[str, ...]:
    """A list of texts."""
    values: Sequence[Any] = field(content, name, list, where)
    wrong = [value for value in values if type(value) is not str]
    if wrong:
        raise where.under(name).error("type", f"`{name}` must hold texts; got {_kind(wrong[0])}")
    return tuple(values)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    name = _WORDS.get(type(value), "a number")
    return name if isinstance(value, list | dict) else f"{name}, {str(value)[:40]!r}"

"""
kafka-configs: what stands in --add-config, --add-config-file and --delete-config.

Source: ConfigCommand.parseConfigsToBeAdded and parseConfigsToBeDeleted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from headgate.cli.connecting import load_properties
from headgate.cli.kafka_configs.options import ConfigsOptions, IllegalArgument
from headgate.java_text import JAVA_BLANK, java_hash, properties_order, to_double
from headgate.quota.key import KEYS, QuotaKey

# ConfigCommand splits at commas and equals signs that aren't inside [...].
_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
_COMMA = re.compile("," + _OUTSIDE_BRACKETS)
_EQUALS = re.compile(r"[ \t\n\x0b\f\r]*=[ \t\n\x0b\f\r]*" + _OUTSIDE_BRACKETS)
_BRACKETS = re.compile(r"\[?\]?")
_KEY = re.compile(r"[a-zA-Z0-9._-]*")

_FORMAT_4 = (
    "requirement failed: Invalid entity config: all configs to be added must be in the format "
    '"key=val" or  "key=[val1,val2]" to group values which contain commas.'
)
_FORMAT_3 = (
    "requirement failed: Invalid entity config: all configs to be added must be in the format "
    '"key=val".'
)


def configs_to_add(options: ConfigsOptions, *, kafka3: bool = False) -> dict[str, str]:
    """
    Return the keys and values to be set.

    Args:
        options: the command line.
        kafka3: whether a refusal has 3.9's wording.

    Raises:
        IllegalArgument: not of the form key=val, or a key with a strange character.
        OSError: the file can't be read.
    """
    added: dict[str, str] = {}
    file = options.value("add-config-file")
    if file is not None:
        added.update(load_properties(file))
    text = options.value("add-config")
    if text is not None:
        added.update(parse_pairs(text, kafka3=kafka3))
    for key in added:
        # Differs: keys with a unit, such as producer_byte_rate:bps, are taken besides.
        if not _KEY.fullmatch(key) and QuotaKey.parse(key) not in KEYS:
            raise IllegalArgument(f"Invalid character found for config key: {key}")
    # The tool meets keys in the order of java.util.Properties, and some refusals list them.
    names = properties_order(added)
    return {key: added[key] for key in (names if kafka3 else scala_order(names))}


def scala_order(names: Sequence[str], depth: int = 0) -> list[str]:
    """
    Return names in the order in which Scala's immutable maps list them.

    Source: Map1 to Map4 keep the order they are made in; HashMap is a trie of five bits a level,
        which lists a node's own entries before those of its child nodes (scala-library 2.13).
    """
    if depth == 0 and len(names) <= 4:
        return list(names)
    steps: dict[int, list[str]] = {}
    for name in names:
        steps.setdefault(_improved(java_hash(name)) >> 5 * depth & 31, []).append(name)
    rows = [steps[step] for step in sorted(steps)]
    alone = [row[0] for row in rows if len(row) == 1]
    deeper = (scala_order(row, depth + 1) for row in rows if len(row) > 1)
    return alone + [name for row in deeper for name in row]


def _improved(code: int) -> int:
    """Return a hash as Scala mixes it (scala.collection.Hashing.improve), unsigned."""
    code = code + ~(code << 9) & 0xFFFFFFFF
    code ^= code >> 14
    code = code + (code << 4) & 0xFFFFFFFF
    return code ^ (code >> 10)


def parse_pairs(text: str, *, kafka3: bool = False) -> dict[str, str]:
    """
    Read ``k1=v1,k2=[v2,v3]``; of a repeated key the last counts.

    Raises:
        IllegalArgument: a part isn't one key and one value.
    """
    parts = _COMMA.split(text)
    # Java's split drops empty strings at the end, but keeps the one that was there to begin with.
    while text and parts and not parts[-1]:
        parts.pop()
    pairs = [_EQUALS.split(part) for part in parts]
    if any(len(pair) != 2 for pair in pairs):
        raise IllegalArgument(_FORMAT_3 if kafka3 else _FORMAT_4)
    return {
        key.strip(JAVA_BLANK): _BRACKETS.sub("", value).strip(JAVA_BLANK) for key, value in pairs
    }


def configs_to_delete(options: ConfigsOptions) -> list[str]:
    """Return the keys to be removed, in order."""
    return [key.strip(JAVA_BLANK) for key in options.values("delete-config")]


def quota_value(key: str, text: str) -> float:
    """
    Read a quota's value.

    Raises:
        IllegalArgument: it is no number.
    """
    try:
        return to_double(text)
    except ValueError:
        raise IllegalArgument(f"Cannot parse quota configuration value for {key}: {text}") from None


_LEAST_ITERATIONS: Final = 4096
"""Kafka's own minimum, and what is taken where none are given."""


def scram_credential(mechanism: str, text: str, *, kafka3: bool = False) -> tuple[int, str]:
    """
    Read ``iterations=8192,password=secret``.

    Args:
        mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        text: the value.
        kafka3: whether 3.9's rules hold, where -1 iterations aren't the default's.

    Returns:
        Iterations and password.

    Raises:
        IllegalArgument: not of that form, or too few iterations.
    """
    java_name = mechanism.replace("-", "_")
    number = "[0-9]*" if kafka3 else "-?[0-9]*"
    match = re.fullmatch(rf"(?:iterations=({number}),)?password=(.*)", text)
    if match is None:
        raise IllegalArgument(f"Invalid credential property {java_name}={text}")
    given, password = match.groups()
    iterations = _LEAST_ITERATIONS if given in (None, "-1") else int(given or "0")
    if iterations < _LEAST_ITERATIONS:
        raise IllegalArgument(
            f"Iterations {iterations} is less than the minimum {_LEAST_ITERATIONS} required for "
            f"{java_name if kafka3 else mechanism}"
        )
    return iterations, password

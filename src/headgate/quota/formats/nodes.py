"""
Nodes of YAML, looked up and made, and the rows of a quotas file that another tool's file becomes.

A reader of a format turns the file into a quotas file's nodes, which keep their lines. So one
reader (``quota.file``) checks names, keys, ranges and values of all formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import yaml

from headgate.quota.key import QuotaKey

TEXT: Final = "tag:yaml.org,2002:str"
NULL: Final = "tag:yaml.org,2002:null"
_MAPPING: Final = "tag:yaml.org,2002:map"
_LIST: Final = "tag:yaml.org,2002:seq"
Tell = Callable[[yaml.Node, str], None]
"""Takes a node and a sentence about it."""


class QuotaDocument(NamedTuple):
    """
    A file that is read.

    Args:
        text: all of it.
        documents: YAML's or JSON's documents; none of a text that is neither.
    """

    text: str
    documents: tuple[yaml.Node, ...] = ()

    @property
    def root(self) -> yaml.Node | None:
        """The first document."""
        return self.documents[0] if self.documents else None


class QuotaNode(NamedTuple):
    """One quota of a row: where its key stands, which key it is, the node of its value."""

    at: yaml.Node
    key: str
    value: yaml.Node


class ForeignRows:
    """
    Collects the quotas of another tool's file as rows of a quotas file.

    Args:
        cluster: the Strimzi cluster whose resources are read; None: the file has only one.
        wrong: told each mistake, and all that can't be read exactly.
        say: told what was left out and holds no quotas.
        unread: told what wasn't read and may hold quotas.
    """

    def __init__(self, cluster: str | None, wrong: Tell, say: Tell, unread: Tell) -> None:
        self.cluster = cluster
        self.wrong = wrong
        self.say = say
        self.unread = unread
        self._rows: list[yaml.Node] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self, at: yaml.Node, entity: Mapping[str, yaml.Node | None], values: Iterable[QuotaNode]
    ) -> None:
        """
        Add one entity's quotas.

        Args:
            at: where they stand.
            entity: the node of each name by its type; None is the default entity.
            values: its quotas.
        """
        named = mapping([(scalar(kind, at), name or null(at)) for kind, name in entity.items()], at)
        pairs: list[tuple[yaml.Node, yaml.Node]] = [(scalar("entity", at), named)]
        pairs += [(scalar(key, where), value) for where, key, value in values]
        self._rows.append(mapping(pairs, at))

    def root(self, at: yaml.Node) -> yaml.MappingNode:
        """Return the quotas file."""
        return mapping([(scalar("quotas", at), listed(self._rows, at))], at)

    def known(
        self, node: yaml.Node | None, whose: str, names: Sequence[str], way: str = ""
    ) -> None:
        """Refuse fields that aren't known, those that stand twice, and what has no fields."""
        if node is not None and node.tag != NULL and not isinstance(node, yaml.MappingNode):
            self.wrong(node, f"{whose} isn't a mapping; its fields are {', '.join(names)}")
        seen = set()
        for key, _ in pairs_of(node):
            name = str(key.value)
            if name in seen:
                self.wrong(key, f"{name} of {whose} stands twice")
            elif name not in names:
                more = way if "quota" in name.lower() else ""
                told = f"unknown field {name!r} of {whose}{more}"
                self.wrong(key, f"{told}; its fields are {', '.join(names)}")
            seen.add(name)

    def values(
        self,
        node: yaml.Node | None,
        whose: str,
        names: Mapping[str, QuotaKey],
        besides: Sequence[str] = (),
    ) -> list[QuotaNode]:
        """
        Return the quotas of a mapping; refuse what is neither a quota nor known.

        Args:
            node: the mapping; a value that is null sets nothing.
            whose: it is, for messages.
            names: the keys by the tool's names.
            besides: fields that are no quotas.
        """
        found = []
        if node is not None and node.tag != NULL and not isinstance(node, yaml.MappingNode):
            self.wrong(node, f"{whose} are a mapping of {', '.join(names)} to numbers")
        for key, value in pairs_of(node):
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is not None and name in names:
                if value.tag != NULL:
                    found.append(QuotaNode(key, names[name].name, value))
            elif name not in besides:
                self.wrong(key, f"unknown quota {name!r}; {whose} are {', '.join(names)}")
        return found


def pairs_of(node: yaml.Node | None) -> Sequence[tuple[yaml.Node, yaml.Node]]:
    """Return a mapping's pairs; none of anything else."""
    return node.value if isinstance(node, yaml.MappingNode) else ()


def items_of(node: yaml.Node | None) -> Sequence[yaml.Node]:
    """Return a list's items; none of anything else."""
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def field(node: yaml.Node | None, *names: str) -> yaml.Node | None:
    """Return what is at a path of names in mappings; None where nothing or null is there."""
    for name in names:
        node = next((value for key, value in pairs_of(node) if key.value == name), None)
    return None if node is None or node.tag == NULL else node


def text(node: yaml.Node | None, *names: str) -> str | None:
    """Return the text at a path of names; None where there is none."""
    found = field(node, *names)
    return str(found.value) if isinstance(found, yaml.ScalarNode) else None


def names_of(node: yaml.Node | None) -> set[str]:
    """Return the names in a mapping."""
    return {str(key.value) for key, _ in pairs_of(node) if isinstance(key, yaml.ScalarNode)}


def merges(documents: Iterable[yaml.Node]) -> Iterator[yaml.Node]:
    """Yield YAML's merge keys (``<<``), each node's once however many aliases lead to it."""
    left, seen = list(documents), set()
    while left:
        node = left.pop()
        if id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))
        left += items_of(node)
        for key, value in pairs_of(node):
            if key.tag == "tag:yaml.org,2002:merge":
                yield key
            left.append(value)


def is_template(*nodes: yaml.Node | None) -> bool:
    """Whether a text has a part that a tool fills in: ``{{ ... }}``, ``{% ... %}``."""
    return any(has_template(node.value) for node in nodes if isinstance(node, yaml.ScalarNode))


def has_template(name: str) -> bool:
    """Whether Jinja would fill in a part of a text."""
    return "{{" in name or "{%" in name or "{#" in name


def each(nodes: Iterable[yaml.Node]) -> Iterator[yaml.Node]:
    """Yield what is in lists, and what is no list."""
    for node in nodes:
        if isinstance(node, yaml.SequenceNode):
            yield from node.value
        else:
            yield node


def scalar(written: str, at: yaml.Node) -> yaml.ScalarNode:
    """Return a text that stands where another node does."""
    return yaml.ScalarNode(TEXT, written, at.start_mark, at.end_mark)


def null(at: yaml.Node) -> yaml.ScalarNode:
    """Return a null that stands where another node does."""
    return yaml.ScalarNode(NULL, "", at.start_mark, at.end_mark)


def mapping(pairs: Sequence[tuple[yaml.Node, yaml.Node]], at: yaml.Node) -> yaml.MappingNode:
    """Return a mapping that stands where another node does."""
    return yaml.MappingNode(_MAPPING, list(pairs), at.start_mark, at.end_mark)


def listed(items: Sequence[yaml.Node], at: yaml.Node) -> yaml.SequenceNode:
    """Return a list that stands where another node does."""
    return yaml.SequenceNode(_LIST, list(items), at.start_mark, at.end_mark)


def on_line(number: int, written: str = "") -> yaml.ScalarNode:
    """Return a text on a line, 1-based."""
    mark = yaml.Mark("", 0, number - 1, 0, "", 0)
    return yaml.ScalarNode(TEXT, written, mark, mark)

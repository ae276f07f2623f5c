"""
The language of Terraform's files, as far as values stand in it as they are.

A file becomes nodes of YAML in the shape of Terraform's own JSON: a block is a list of mappings,
its labels are the names on the way to it. What must be computed becomes a node that is marked as
an expression; products of numbers are computed.

Source: HashiCorp's HCL native syntax specification; python-hcl2, with which it was compared.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

import yaml

from headgate.quota.formats.nodes import NULL, TEXT, listed, mapping, on_line

EXPRESSION: Final = "!expression"
_NUMBER_TAG: Final = "tag:yaml.org,2002:float"
_BOOL: Final = "tag:yaml.org,2002:bool"
_MOST_DEPTH: Final = 50
_IDENTIFIER: Final = re.compile(r"[^\W\d][\w-]*")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
_BLANK: Final = re.compile(r"(?:[ \t\r\ufeff]|#[^\n]*|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_PLAIN: Final = re.compile(r'[^"\\$%\n]*')
_HEREDOC: Final = re.compile(r"<<-?([^\W\d][\w-]*)[ \t\r]*\n")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_WRITTEN: Final = {char: f"\\{letter}" for letter, char in _ESCAPES.items()}
_CODE: Final = re.compile(r"u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})")
_CLOSES: Final = {"(": ")", "[": "]", "{": "}"}
_ENDS: Final = frozenset("\n,}]")


class NotHcl(ValueError):
    """
    A text isn't HCL.

    Args:
        line: where, 1-based.
        problem: what is wrong.
    """

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def parse(text: str) -> yaml.MappingNode:
    """
    Return the body of a file: a mapping of attributes and of lists of blocks.

    Raises:
        NotHcl: it isn't HCL, or nested too deep.
    """
    reader = _HclReader(text)
    body = reader.body(0)
    if reader.at < len(text):
        raise reader.wrong("a } that closes nothing")
    return body


def is_expression(node: yaml.Node | None) -> bool:
    """Tell whether a node's value must be computed."""
    return node is not None and node.tag == EXPRESSION


def quoted(text: str) -> str:
    """Return a text as HCL's string; what would begin a template there is escaped."""
    escaped = "".join(map(_escaped, text)).replace("${", "$${").replace("%{", "%%{")
    return f'"{escaped}"'


def is_ambiguous(text: str) -> bool:
    """Tell whether HCL's specification doesn't say how a text is written."""
    return "$${" in text or "%%{" in text


def _escaped(char: str) -> str:
    if char in _WRITTEN:
        return _WRITTEN[char]
    number = ord(char)
    if char.isprintable():
        return char
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


class _HclReader:
    """Reads a text from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._line, self._line_at = 1, 0

    @property
    def line(self) -> int:
        """The number of the line that is read, which only grows but for expressions."""
        if self.at < self._line_at:
            self._line -= self.text.count("\n", self.at, self._line_at)
        else:
            self._line += self.text.count("\n", self._line_at, self.at)
        self._line_at = self.at
        return self._line

    def wrong(self, problem: str) -> NotHcl:
        return NotHcl(self.line, problem)

    def here(self, written: str = "", tag: str = TEXT) -> yaml.ScalarNode:
        node = on_line(self.line, written)
        node.tag = tag
        return node

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def blanks(self, *, lines: bool = False) -> None:
        """Go over blanks and comments, and over line ends too."""
        while True:
            found = _BLANK.match(self.text, self.at)
            self.at = found.end() if found else self.at
            if self.text.startswith("/*", self.at):
                raise self.wrong("a comment isn't closed")
            if not lines or self.peek() != "\n":
                return
            self.at += 1

    def body(self, depth: int) -> yaml.MappingNode:
        """Read attributes and blocks up to the end or a }."""
        if depth > _MOST_DEPTH:
            raise self.wrong(f"nested more than {_MOST_DEPTH} deep")
        at = self.here()
        pairs: list[tuple[yaml.Node, yaml.Node]] = []
        blocks: dict[str, yaml.Node] = {}
        while True:
            self.blanks(lines=True)
            if self.peek() in ("", "}"):
                return mapping(pairs, at)
            name = _IDENTIFIER.match(self.text, self.at)
            if name is None:
                raise self.wrong(f"{self.peek()!r} where a name must stand")
            key = self.here(name[0])
            self.at = name.end()
            self.blanks()
            if self.peek() == "=" and not self.text.startswith("==", self.at):
                self.at += 1
                pairs.append((key, self.value(depth)))
            else:
                block = self.block(key, depth)
                if name[0] in blocks:
                    blocks[name[0]].value.append(block)
                else:
                    blocks[name[0]] = listed([block], key)
                    pairs.append((key, blocks[name[0]]))
            self.blanks()
            if self.peek() not in ("\n", "", "}"):
                raise self.wrong(f"{self.peek()!r} behind the value of {name[0]}")

    def block(self, key: yaml.ScalarNode, depth: int) -> yaml.Node:
        """Read a block's labels and body."""
        labels = []
        while self.peek() != "{":
            name = _IDENTIFIER.match(self.text, self.at)
            if name is not None:
                labels.append(self.here(name[0]))
                self.at = name.end()
            elif self.peek() == '"':
                label = self.string(depth)
                if label.tag == EXPRESSION:
                    raise self.wrong("a label that must be computed")
                labels.append(label)
            else:
                raise self.wrong(f"neither = nor {{ behind {key.value}")
            self.blanks()
        self.at += 1
        node: yaml.Node = self.body(depth + 1)
        if self.peek() != "}":
            raise self.wrong(f"the block {key.value} isn't closed")
        self.at += 1
        for label in reversed(labels):
            node = mapping([(label, node)], key)
        return node

    def value(self, depth: int) -> yaml.Node:
        """Read an expression: a value as it is, or a node that says it isn't one."""
        self.blanks()
        start = self.at
        node = self.literal(depth)
        end = self.at
        self.blanks()
        if node is not None and self.peek() in ("", *_ENDS):
            self.at = end
            return node
        self.at = start
        marked = self.here("", EXPRESSION)
        self.skip(depth)
        if self.at == start:
            raise self.wrong("a value is missing")
        marked.value = " ".join(self.text[start : self.at].split())[:60]
        return marked

    def literal(self, depth: int) -> yaml.Node | None:
        """Read a value as it is; None where none begins here."""
        char = self.peek()
        if depth > _MOST_DEPTH:
            raise self.wrong(f"nested more than {_MOST_DEPTH} deep")
        if char == '"':
            return self.string(depth)
        if char == "[":
            return self.sequence(depth + 1)
        if char == "{":
            return self.object(depth + 1)
        number = _NUMBER.match(self.text, self.at)
        if number is not None:
            return self.product(number)
        word = _IDENTIFIER.match(self.text, self.at)
        if word is None or word[0] not in ("true", "false", "null"):
            return None
        node = self.here(word[0], NULL if word[0] == "null" else _BOOL)
        self.at = word.end()
        return node

    def product(self, number: re.Match[str]) -> yaml.Node:
        """Read a number, or a product of numbers."""
        node = self.here(number[0], _NUMBER_TAG)
        self.at = number.end()
        factors = [number[0]]
        while True:
            end = self.at
            self.blanks()
            if self.peek() != "*":
                self.at = end
                break
            self.at += 1
            self.blanks()
            found = _NUMBER.match(self.text, self.at)
            if found is None:
                self.at = end
                break
            factors.append(found[0])
            self.at = found.end()
        if len(factors) > 1:
            try:
                node.value = str(math.prod(map(Decimal, factors)))
            except ArithmeticError:
                node.tag = EXPRESSION
        return node

    def string(self, depth: int) -> yaml.ScalarNode:
        """Read a quoted text; one with a template in it is an expression."""
        start, node = self.at, self.here()
        parts: list[str] = []
        is_template = False
        self.at += 1
        while True:
            plain = _PLAIN.match(self.text, self.at)
            assert plain is not None  # it matches nothing, too
            parts.append(plain[0])
            self.at = plain.end()
            char, two = self.peek(), self.text[self.at : self.at + 2]
            if char in ("", "\n"):
                raise self.wrong("a text isn't closed")
            if char == '"':
                self.at += 1
                break
            if char == "\\":
                parts.append(self.escape())
            elif self.text[self.at : self.at + 4] in ("$$${", "%%%{"):
                is_template = True  # one of two things, and nobody says which
                self.at += 4
            elif self.text[self.at : self.at + 3] in ("$${", "%%{"):
                parts.append(self.text[self.at + 1 : self.at + 3])
                self.at += 3
            elif two in ("${", "%{"):
                is_template = True
                self.at += 1
                self.bracket(depth)
            else:
                parts.append(char)
                self.at += 1
        node.value = "".join(parts)
        if is_template:
            node.tag, node.value = EXPRESSION, self.text[start : self.at][:60]
        return node

    def escape(self) -> str:
        char = self.text[self.at + 1 : self.at + 2]
        if char in _ESCAPES:
            self.at += 2
            return _ESCAPES[char]
        code = _CODE.match(self.text, self.at + 1)
        number = int(code[1] or code[2], 16) if code else 0x110000
        if code is None or number > 0x10FFFF or 0xD800 <= number < 0xE000:
            raise self.wrong(f"an escape that HCL doesn't have: \\{char}")
        self.at = code.end()
        return chr(number)

    def sequence(self, depth: int) -> yaml.Node | None:
        node = self.here()
        items: list[yaml.Node] = []
        self.at += 1
        while True:
            self.blanks(lines=True)
            if self.peek() == "]":
                self.at += 1
                return listed(items, node)
            items.append(self.value(depth))
            self.blanks(lines=True)
            if self.peek() == ",":
                self.at += 1
            elif self.peek() != "]":
                return None  # as [for ...]

    def object(self, depth: int) -> yaml.Node | None:
        node = self.here()
        pairs: list[tuple[yaml.Node, yaml.Node]] = []
        self.at += 1
        while True:
            self.blanks(lines=True)
            if self.peek() == "}":
                self.at += 1
                return mapping(pairs, node)
            name = _IDENTIFIER.match(self.text, self.at)
            if name is not None:
                key = self.here(name[0])
                self.at = name.end()
            elif self.peek() == '"':
                key = self.string(depth)
            else:
                return None
            self.blanks()
            if key.tag == EXPRESSION or self.peek() not in ("=", ":"):
                return None  # as {for ...}
            self.at += 1
            pairs.append((key, self.value(depth)))
            self.blanks()
            if self.peek() in (",", "\n"):
                self.at += 1
            elif self.peek() != "}":
                return None

    def skip(self, depth: int) -> None:
        """Go over an expression, up to what ends it."""
        while self.peek() and self.peek() not in _ENDS:
            self.step(depth)

    def bracket(self, depth: int) -> None:
        """Go over what stands in a pair of brackets."""
        if depth > _MOST_DEPTH:
            raise self.wrong(f"nested more than {_MOST_DEPTH} deep")
        close = _CLOSES[self.peek()]
        opened = self.line
        self.at += 1
        while self.peek() != close:
            if not self.peek() or self.peek() in ")]}":
                raise NotHcl(opened, "a bracket isn't closed")
            self.step(depth + 1)
        self.at += 1

    def step(self, depth: int) -> None:
        """Go over one text, comment, bracket or character."""
        start = self.at
        self.blanks()
        if self.at > start:
            return
        heredoc = _HEREDOC.match(self.text, self.at)
        if heredoc is not None:
            end = re.compile(rf"^[ \t]*{re.escape(heredoc[1])}[ \t\r]*$", re.MULTILINE)
            found = end.search(self.text, heredoc.end())
            if found is None:
                raise self.wrong(f"the text <<{heredoc[1]} isn't closed")
            self.at = found.end()
        elif self.peek() == '"':
            self.string(depth + 1)
        elif self.peek() in _CLOSES:
            self.bracket(depth + 1)
        else:
            self.at += 1

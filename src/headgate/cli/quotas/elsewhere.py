"""
Quotas out of a store or cluster, and out of other tools: `headgate export` and `headgate import`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.cli.contract import BadUsage, Parser
from headgate.cli.output import complain, printable, say
from headgate.cli.quotas.flags import quotas_parser
from headgate.cli.quotas.quota_output import say_notes
from headgate.cli.quotas.quota_target import open_quota_target
from headgate.cli.results import Exported, Imported
from headgate.errors import InvalidQuota
from headgate.quota.formats.known import BY_NAME, TEXTS, WRITTEN
from headgate.quota.lookalikes import name_notes
from headgate.quota.table import QuotaTable

if TYPE_CHECKING:
    from headgate.quota.formats.values import ExportedTable

_STDIN: Final = Path("-")
_TO: Final = sorted([*WRITTEN, "strimzi"])

# --- export


def export_parser() -> Parser:
    """Return the parser of `headgate export`."""
    made = quotas_parser(
        "export",
        "Write every quota of a store or cluster as a quotas file, which `headgate plan` and "
        "`headgate apply` read back, or as another tool's file.",
        _export,
        "--bootstrap-server kafka-1:9092 --out quotas.yaml",
    )
    made.add_argument("--out", metavar="FILE", type=Path, help="the file; stdout by default")
    made.add_argument("--format", choices=("yaml", "json"), default="yaml")
    made.add_argument(
        "--to",
        metavar="FORMAT",
        choices=_TO,
        help="write another tool's file instead; quotas that it can't hold are named on stderr: "
        + ", ".join(_TO),
    )
    made.add_argument(
        "--strimzi",
        metavar="CLUSTER",
        help="write KafkaUser resources for Strimzi's cluster of this name instead; quotas that "
        "they can't hold are named on stderr",
    )
    made.add_argument(
        "--schema", action="store_true", help="print the quotas file's JSON Schema instead"
    )
    made.alone["--schema"] = schema_text
    return made


def _export(arguments: argparse.Namespace) -> Exported:
    _check(arguments)
    with open_quota_target(arguments, "export") as place:
        table = place.table()
    if arguments.strimzi is not None:
        from headgate.quota.formats.strimzi import kafka_users

        written = kafka_users(table, arguments.strimzi)
    elif arguments.to is not None:
        written = BY_NAME[arguments.to].write(table)
    else:
        written = _own(table, as_document=arguments.json or arguments.format == "json")
    for line in written.left_out:
        complain(printable(f"left out: {line}"))
    _write(_text(written, arguments.format), written.number, arguments.out)
    if arguments.out is None:
        return Exported(written.number, None, written.items)
    return Exported(written.number, str(arguments.out), None)


def _check(arguments: argparse.Namespace) -> None:
    """
    Refuse flags that don't go together.

    Raises:
        BadUsage: which, and why.
    """
    to = arguments.to
    if to == "strimzi" and arguments.strimzi is None:
        raise BadUsage("Strimzi's resources name their cluster: give --strimzi CLUSTER")
    if arguments.strimzi is not None and to not in (None, "strimzi"):
        raise BadUsage(f"--strimzi is for Strimzi's resources, not for --to {to}")
    if to in TEXTS and arguments.format == "json":
        raise BadUsage(f"--to {to} writes a text, which isn't JSON: leave --format out")
    if to in TEXTS and arguments.json and arguments.out is None:
        raise BadUsage(f"--to {to} writes a text, not an object: give --out FILE, too")


def _own(table: QuotaTable, *, as_document: bool) -> ExportedTable:
    """Return a quotas file: a text, or a document with the same content."""
    from headgate.quota.file import dump_quotas
    from headgate.quota.formats.values import ExportedTable

    text = dump_quotas(table)
    if not as_document:
        return ExportedTable(text.rstrip("\n"), len(table), ())
    import yaml

    document = yaml.safe_load(text)
    return ExportedTable(document, len(table), (), document["quotas"] or [])


def _text(written: ExportedTable, form: str) -> str:
    """Return what goes into a file: YAML, JSON, or the format's own text."""
    if isinstance(written.body, str):
        return written.body + "\n"
    if form == "json":
        return json.dumps(written.body, indent=2) + "\n"
    import yaml

    text: str = yaml.safe_dump(written.body, sort_keys=False)
    return text


def _write(text: str, count: int, out: Path | None) -> None:
    """Write a file, or to stdout."""
    if out is None:
        say(text.rstrip("\n"))
        return
    out.write_text(text, encoding="utf-8")
    complain(f"{count} entities written to {printable(str(out))}")


def schema_text() -> str:
    """Return the JSON Schema of a quotas file, for editors."""
    from importlib.resources import files

    return (files("headgate.quota") / "quotas.schema.json").read_text(encoding="utf-8").rstrip()


# --- import


def import_parser() -> Parser:
    """Return the parser of `headgate import`."""
    made = Parser(
        "headgate import",
        "Write the quotas of another tool's file as a quotas file. `headgate plan`, `headgate "
        "apply` and --quotas read such files, too; this shows what they read.",
        _import,
        example="headgate import users.yaml --out quotas.yaml",
    )
    made.add_argument("file", metavar="FILE", type=Path, help="the file; - is stdin")
    made.add_argument(
        "--from",
        dest="of",
        metavar="FORMAT",
        choices=sorted(BY_NAME),
        default="",
        help="refuse a file of another format than this: " + ", ".join(sorted(BY_NAME)),
    )
    made.add_argument(
        "--strimzi",
        metavar="CLUSTER",
        help="of a file of Strimzi's resources read only those of this cluster",
    )
    made.add_argument("--out", metavar="FILE", type=Path, help="the file; stdout by default")
    made.add_argument("--format", choices=("yaml", "json"), default="yaml")
    return made


def _import(arguments: argparse.Namespace) -> Imported:
    from headgate.quota.file import parse_quotas, read_quotas_file

    if arguments.file == _STDIN:
        text = sys.stdin.read()
        file = parse_quotas(text, "stdin", cluster=arguments.strimzi, of=arguments.of)
    else:
        file = read_quotas_file(arguments.file, cluster=arguments.strimzi, of=arguments.of)
    if not file.format:
        raise InvalidQuota(f"{arguments.file}: a quotas file already; `headgate plan` reads it")
    notes = [*file.said, *name_notes(file.table.entities)]
    say_notes("headgate import", notes)
    written = _own(file.table, as_document=arguments.json or arguments.format == "json")
    _write(_text(written, arguments.format), written.number, arguments.out)
    if arguments.out is None:
        return Imported(written.number, None, written.items, of=file.format, notes=notes)
    return Imported(written.number, str(arguments.out), None, of=file.format, notes=notes)

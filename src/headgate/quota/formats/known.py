"""
The table of formats: a row each, with what it is recognised by, what reads it and what writes it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.errors import InvalidQuota

if TYPE_CHECKING:
    from headgate.quota.formats.nodes import ForeignRows, QuotaDocument
    from headgate.quota.formats.values import ExportedTable
    from headgate.quota.table import QuotaTable


class Format(NamedTuple):
    """
    One row.

    Args:
        name: as ``--from`` and ``--to`` take it.
        of: what the file is.
        by: what it is recognised by.
        code: ``module:stem`` of its functions ``is_stem``, ``read_stem`` and ``write_stem``. They
            are imported where they are called, since ``--help`` reads this table without YAML.
        refused: what it may hold that isn't read.
        writes: whether Headgate writes it.
        is_text: what is written is neither YAML nor JSON.
        is_stream: a file may be several YAML documents.
    """

    name: str
    of: str
    by: str
    code: str
    refused: str
    writes: bool = False
    is_text: bool = False
    is_stream: bool = False

    def recognises(self, given: QuotaDocument) -> bool:
        """Tell whether a file is of this format."""
        found: bool = self._function("is")(given)
        return found

    def read(self, given: QuotaDocument, rows: ForeignRows) -> None:
        """Add a file's quotas to the rows of a quotas file."""
        self._function("read")(given, rows)

    def write(self, table: QuotaTable) -> ExportedTable:
        """Return a table in this format."""
        written: ExportedTable = self._function("write")(table)
        return written

    def _function(self, does: str) -> Any:
        module, _, stem = self.code.partition(":")
        return getattr(import_module(f"headgate.quota.formats.{module}"), f"{does}_{stem}")


_NOTHING: Final = "nothing"
_PRINTED: Final = (
    Format(
        "kafka-configs",
        "what `kafka-configs --describe` prints, of Kafka 1.x to 4.x",
        "a line `Quota configs for …` or `Configs for user-principal …`",
        "kafka_text:describe",
        "a name with `'` in it",
        writes=True,
        is_text=True,
    ),
    Format(
        "kafka-quotas",
        "what `kafka-quotas --list` prints",
        "a line `{user=…}` above a line `KEY:UNIT=VALUE`",
        "kafka_text:list",
        "what `kafka-quotas --describe` prints: it is about one client",
        writes=True,
        is_text=True,
    ),
)
_TERRAFORM: Final = Format(
    "terraform",
    "Terraform's files, `terraform show -json`, `terraform state pull`: `kafka_quota` and "
    "`kafka_quota_composite` (Mongey/kafka), `confluent_kafka_client_quota` (Confluent)",
    'a block `resource "…" "…" {`, or a field `terraform_version` or `resource`',
    "terraform:terraform",
    "variables, references, `count` and `for_each` in a file: give the state; `module` in a file "
    "is said; other resources of quotas",
    writes=True,
    is_text=True,
)
_RPK: Final = Format(
    "rpk",
    "what `rpk cluster quotas describe --format yaml` (or `json`) prints",
    "`quotas:` with lists as `entity`",
    "lists:rpk",
    "`client-id-prefix`; rpk's text",
    writes=True,
)
_DOCUMENTS: Final = (
    Format(
        "jikkou",
        "Jikkou's `KafkaClientQuota` and `KafkaClientQuotaList`",
        "`apiVersion: kafka.jikkou.io/…`",
        "resources:jikkou",
        "templates; other resources of quotas, such as Aiven's `KafkaQuota`",
        writes=True,
        is_stream=True,
    ),
    Format(
        "strimzi",
        "Strimzi's `KafkaUser` (`spec.quotas`, `spec.clientQuotas`), `Kafka` (`spec.kafka.quotas`)",
        "`apiVersion: …` of anything but Jikkou",
        "resources:strimzi",
        "fields that Strimzi doesn't know; quotas of `type: strimzi`",
        is_stream=True,
    ),
    _RPK,
    Format(
        "helmsman",
        "kafka-helmsman's quotas",
        "`quotas:`, or a list, with `principal` or `client`",
        "lists:helmsman",
        "`clusters`, `defaults`, `quotasFile`",
        writes=True,
    ),
    Format(
        "ansible",
        "playbooks and tasks with `kafka_quotas` (ansible-kafka-admin)",
        "a task `kafka_quotas`",
        "lists:ansible",
        "templates, `when` and loops; `roles`, `include_…` and `import_…` are said",
        writes=True,
    ),
    Format(
        "julie",
        "topologies of JulieOps (Julie)",
        "`platform: {kafka: {quotas: […]}}` or `kafka: {quotas: […]}`",
        "lists:julie",
        _NOTHING,
        writes=True,
    ),
    Format(
        "kafbat",
        "answers of Kafbat's API, `/clientquotas`",
        "a list with `quotas` and `user`, `clientId` or `ip`",
        "lists:kafbat",
        "a record with only a user or only a client-id: its null may be a default",
    ),
    Format(
        "confluent",
        "client quotas of Confluent Cloud: `confluent kafka quota list -o json`, its API",
        "`principals` beside `ingress`, `egress` or `throughput`",
        "confluent:cloud",
        "a quota of several principals or of `<default>`; several clusters",
    ),
    Format(
        "redpanda",
        "exports of Redpanda's cluster properties",
        "`kafka_client_group_byte_rate_quota` and the like",
        "lists:redpanda",
        "all: they limit groups of clients by prefix",
    ),
    Format(
        "kafka-gitops",
        "state files of KafkaGitOps",
        "`topics`, `services` or `customServiceAcls`, and no `quotas`",
        "lists:gitops",
        "all: they hold no quotas",
    ),
)
FORMATS: Final = (*_PRINTED, _TERRAFORM, *_DOCUMENTS)
"""All formats, in the order in which they are tried."""
BY_NAME: Final = {row.name: row for row in FORMATS}
TEXTS: Final = frozenset(row.name for row in FORMATS if row.is_text)
WRITTEN: Final = frozenset(row.name for row in FORMATS if row.writes)


def recognise(text: str, source: str, of: str) -> tuple[Format | None, QuotaDocument]:
    """
    Return a file's format, and the file as its reader takes it.

    Args:
        text: the file's text.
        source: its name, for messages.
        of: the name of the format that it must have; "": any.

    Returns:
        None for a quotas file, and for what is of no format known.

    Raises:
        InvalidQuota: it is of another format than it must have, or neither text of one nor YAML.
    """
    from headgate.quota.formats.nodes import QuotaDocument

    given = QuotaDocument(text.removeprefix("\ufeff"))
    found = next((row for row in (*_PRINTED, _TERRAFORM, _RPK) if row.recognises(given)), None)
    if found is None:
        given = QuotaDocument(given.text, _documents(given.text, source))
        found = next((row for row in FORMATS if row.recognises(given)), None)
    if of and (found is None or found.name != of):
        asked = BY_NAME[of]
        raise InvalidQuota(f"{source}: this isn't {asked.of}: they are recognised by {asked.by}")
    return found, given


def _documents(text: str, source: str) -> tuple[Any, ...]:
    """
    Return the documents of YAML or JSON.

    Raises:
        InvalidQuota: it is neither.
    """
    import yaml

    from headgate.yaml_reading import compose_all

    try:
        return tuple(compose_all(text))
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(exc, "problem", None) or str(exc).splitlines()[0]
        raise InvalidQuota(f"{source}{line}: not YAML or JSON: {problem}") from exc

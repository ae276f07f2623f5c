"""Names of certificates against real Java, and Kafka's own cases of mapping rules."""

import datetime
import json
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headgate.errors import ConfigError, RemoteProtocolError
from headgate.gateway.identity.identity import (
    AuthenticationContext,
    DefaultPrincipalBuilder,
    Identity,
)
from headgate.gateway.identity.ssl_names import dn_text, subject_of
from headgate.quota.principal_rules import NoMatchingRule, PrincipalMapper

DATA = Path(__file__).parents[2] / "data" / "dn"
RECORDED = json.loads((DATA / "names.json").read_text())["names"]
RULES = [
    case
    for case in json.loads((DATA / "rules.json").read_text())["cases"]
    if "\\p{" not in case["rules"]
]


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["case"].encode("unicode_escape"))
def test_names_are_what_java_prints(case: dict) -> None:
    assert dn_text(bytes.fromhex(case["der"])) == case["java"]


def certificate(*pairs: tuple[x509.ObjectIdentifier, str], version_3: bool = True) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in pairs])
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer, not subject")])
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(2**150)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return built.public_bytes(serialization.Encoding.DER)


def test_the_subject_is_found_in_a_certificate() -> None:
    der = certificate(
        (NameOID.COUNTRY_NAME, "US"),
        (NameOID.ORGANIZATION_NAME, "a, b"),
        (NameOID.COMMON_NAME, "x"),
    )
    assert dn_text(subject_of(der)) == "CN=x,O=a\\, b,C=US"
    assert subject_of(der) == x509.load_der_x509_certificate(der).subject.public_bytes()


def test_a_certificate_without_a_name_has_an_empty_one() -> None:
    assert dn_text(subject_of(certificate())) == ""


def test_a_cut_certificate_is_the_peers_fault() -> None:
    der = certificate((NameOID.COMMON_NAME, "x"))
    for size in range(200):
        with pytest.raises(RemoteProtocolError):
            subject_of(der[:size])


@pytest.mark.parametrize(
    "raw", ["", "30", "3082ffff", "30ff", "3003310100", "30053103300130", "020105"]
)
def test_what_is_not_a_name_is_the_peers_fault(raw: str) -> None:
    with pytest.raises(RemoteProtocolError):
        dn_text(bytes.fromhex(raw)) or subject_of(bytes.fromhex(raw))


# SslPrincipalMapperTest of Apache Kafka.
KAFKAS = ", ".join(
    (
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    )
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_rules_map_as_kafkas_own_test_says(name: str, principal: str) -> None:
    assert PrincipalMapper(KAFKAS).principal(name) == principal
    as_settings = tuple(rule.strip() for rule in KAFKAS.split(", "))
    assert PrincipalMapper(as_settings).principal(name) == principal


@pytest.mark.parametrize("case", RULES, ids=lambda case: f"{case['rules']} {case['name']}"[:60])
def test_rules_make_what_kafka_made(case: dict) -> None:
    try:
        principal = PrincipalMapper(case["rules"]).principal(case["name"])
    except (RemoteProtocolError, ConfigError):
        principal = None
    assert principal == case["kafka"]


@pytest.mark.parametrize("pattern", ["a{" + "9" * 40 + "}", "(" * 999 + ")" * 999])
def test_a_pattern_beyond_what_can_be_compiled_is_refused_at_the_start(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"mapping\.rules"):
        PrincipalMapper(f"RULE:{pattern}/$1/")


def test_java_classes_of_letters_are_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="bad escape"):
        PrincipalMapper("RULE:CN=(\\p{Alpha}+)/$1/")


def test_letters_are_ascii_letters_as_in_java() -> None:
    with pytest.raises(NoMatchingRule):
        PrincipalMapper("RULE:CN=(\\w+)/$1/").principal("CN=Jürgen")


@pytest.mark.parametrize(
    "rule",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:(/$1/",
    ],
)
def test_wrong_rules_are_refused_by_name(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapper(rule)


def test_a_name_no_rule_applies_to_is_refused() -> None:
    with pytest.raises(NoMatchingRule, match="CN=x"):
        PrincipalMapper("RULE:OU=(.*)/$1/").principal("CN=x")
    with pytest.raises(NoMatchingRule):
        PrincipalMapper("").principal("CN=x")


FORGED = [
    ("alice,O=admins", "CN=alice\\,O\\=admins"),
    ("alice\0.example", "CN=alice\\00.example"),
    ("*", "CN=*"),
    ("\u202ealice", "CN=\u202ealice"),
    ("#0403616263", "CN=\\#0403616263"),
    ("alice+OU=x", "CN=alice\\+OU\\=x"),
    ("<default>", "CN=\\<default\\>"),
    ("User:admin", "CN=User:admin"),
]


@pytest.mark.parametrize(("common", "told"), FORGED, ids=lambda text: ascii(text))
def test_a_forged_name_is_nobody_elses(common: str, told: str) -> None:
    """What an authority may be made to sign stays one attribute of one name, to the letter."""
    name = dn_text(subject_of(certificate((NameOID.COMMON_NAME, common))))
    assert name == told
    mapper = PrincipalMapper(("RULE:^CN=([a-z]+)$/$1/", "DEFAULT"))
    assert mapper.principal(name) == told  # the rule for plain names doesn't reach it


def test_a_name_without_end_makes_no_principal() -> None:
    long = certificate(*[(NameOID.ORGANIZATIONAL_UNIT_NAME, "x" * 60)] * 2_000)
    name = dn_text(subject_of(long))
    assert len(name) > 100_000
    context = AuthenticationContext("TLS", "SSL", "10.0.0.1", name)
    with pytest.raises(RemoteProtocolError, match="bytes; at most 8192") as caught:
        Identity(DefaultPrincipalBuilder(), context)
    assert caught.value.reason == "principal"

"""What is said where a port speaks another security protocol than it is spoken to in."""

import ssl

import pytest

from headgate.config.wrong_protocol import Spoken

ALERT = bytes.fromhex("15030300020a")


def spoken(protocol: str) -> Spoken:
    return Spoken("security.protocol", protocol)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_tls_in_answer_to_plaintext_is_known_by_its_first_bytes(protocol: str) -> None:
    told = spoken(protocol).answered(ALERT[:4])
    assert told is not None
    assert "it speaks TLS" in told
    assert told.endswith(f"set security.protocol=SSL or SASL_SSL (it is {protocol})")


def test_an_answer_of_kafkas_is_no_tls() -> None:
    for begin in (b"\x00\x00\x00\x16", b"\x00\x15\x03\x03"):
        assert spoken("PLAINTEXT").answered(begin) is None
    assert spoken("SSL").answered(ALERT) is None


def test_a_handshake_that_is_cut_off_is_a_port_without_tls() -> None:
    for error in (ConnectionResetError(), ssl.SSLEOFError()):
        told = spoken("SASL_SSL").handshake_failed(error)
        assert told is not None
        assert told.endswith("set security.protocol=PLAINTEXT or SASL_PLAINTEXT (it is SASL_SSL)")


def test_what_has_another_reason_is_left_as_it_is() -> None:
    untrusted = ssl.SSLCertVerificationError("self-signed certificate")
    assert spoken("SSL").handshake_failed(untrusted) is None
    assert spoken("SSL").handshake_failed(ConnectionRefusedError()) is None
    assert spoken("PLAINTEXT").handshake_failed(ConnectionResetError()) is None
    assert spoken("SASL_SSL").hung_up(logged_in=False) is None
    assert spoken("SSL").hung_up(logged_in=True) is None


@pytest.mark.parametrize(
    ("protocol", "wanted"), [("PLAINTEXT", "SASL_PLAINTEXT"), ("SSL", "SASL_SSL")]
)
def test_who_hangs_up_on_the_first_question_wants_sasl(protocol: str, wanted: str) -> None:
    told = spoken(protocol).hung_up(logged_in=False)
    assert told is not None
    assert told.endswith(f"set security.protocol={wanted} (it is {protocol})")
    back = spoken(wanted).no_sasl()
    assert back.endswith(f"set security.protocol={protocol} (it is {wanted})")

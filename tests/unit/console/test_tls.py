"""The console's own TLS, by a real server: cookies, Strict-Transport-Security, wrong files."""

from __future__ import annotations

import contextlib
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import trustme

from headgate.console.access.users import Users
from headgate.console.access.viewer import Role
from headgate.console.database import Database
from headgate.store import open_store
from kit.console import Console

PASSWORD = "correct horse battery"
HSTS = "strict-transport-security"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@contextlib.contextmanager
def running(folder: Path, authority: trustme.CA, *, other_key: bool = False) -> Iterator[list[str]]:
    """Run `headgate console` with a certificate; gives the first line that it says."""
    certificate = authority.issue_cert("127.0.0.1")
    key = authority.issue_cert("127.0.0.1") if other_key else certificate
    certificate.cert_chain_pems[0].write_to_path(folder / "console.pem")
    key.private_key_pem.write_to_path(folder / "console.key")
    store = f"sqlite:{folder / 'quotas.db'}"
    open_store(store).close()
    with contextlib.closing(Database(folder / "data")) as database:
        Users(database).add("ada", Role.OPERATOR, "", PASSWORD)
    config = folder / "headgate.properties"
    config.write_text(
        f"headgate.store={store}\n"
        f"headgate.console.ssl.certificate={folder / 'console.pem'}\n"
        f"headgate.console.ssl.key={folder / 'console.key'}\n"
        f"headgate.console.data.dir={folder / 'data'}\n"
    )
    command = [sys.executable, "-m", "headgate.cli.main", "console", "--config", str(config)]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = [process.stderr.readline()]
    try:
        yield said
    finally:
        process.terminate()
        said += [process.communicate(timeout=60)[1], str(process.returncode)]


def test_under_tls_cookies_are_of_this_host_alone_and_browsers_stay(
    tmp_path: Path, authority: trustme.CA
) -> None:
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with running(tmp_path, authority) as said:
        found = re.search(r"https://127\.0\.0\.1:\d+", said[0])
        assert found is not None, said
        url = found[0]
        with httpx2.Client(base_url=url, verify=trusting, trust_env=False, timeout=60) as client:
            form = client.get("/sign-in")
            token = re.search(r'name="csrf" value="(\w+)"', form.text)
            assert token is not None
            fields = {"csrf": token[1], "user": "ada", "password": PASSWORD, "next": "/change"}
            plain = url.replace("https:", "http:")
            led = client.post("/sign-in", data=fields, headers={"origin": plain})
            assert led.status_code == 403, "a page of plain HTTP isn't ours"
            answer = client.post("/sign-in", data=fields, headers={"origin": url})
            assert (answer.status_code, answer.headers["location"]) == (303, "/change")
            set_ = [*form.headers.get_list("set-cookie"), *answer.headers.get_list("set-cookie")]
            assert {cookie.partition("=")[0] for cookie in set_} == {
                "__Host-headgate-visit", "__Host-headgate-session"
            }  # fmt: skip
            for cookie in set_:
                parts = cookie.lower().split("; ")
                assert {"secure", "httponly", "path=/", "samesite=lax"} <= set(parts), cookie
                assert "domain" not in cookie.lower()
            change = client.get("/change")
            assert change.status_code == 200
            for sent in (form, led, answer, change, client.get("/nothing")):
                assert sent.headers.get_list(HSTS) == ["max-age=31536000"]
            # Neither an authority that isn't known nor plain HTTP is accepted.
            with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                httpx2.get(f"{url}/healthz", trust_env=False)
            with pytest.raises(httpx2.TransportError):
                httpx2.get(f"{plain}/healthz", trust_env=False)
            assert client.get("/healthz").text == "ok\n"
    assert said[-1] == "0", said


def test_without_tls_browsers_are_not_asked_for_it(console: Console) -> None:
    for path in ("/healthz", "/sign-in", "/"):
        assert HSTS not in console.client("operator").get(path).headers


def test_a_key_of_another_certificate_is_named(tmp_path: Path, authority: trustme.CA) -> None:
    with running(tmp_path, authority, other_key=True) as said:
        pass
    assert "headgate.console.ssl.*" in said[0]
    assert str(tmp_path / "console.key") in said[0]
    assert "Traceback" not in said[1]

"""Sign-in at a real OpenID Connect provider on loopback, and what a hostile one may try."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from subprocess import PIPE
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from headgate.console.access.oidc import CALLBACK, Oidc
from headgate.console.access.roles import RoleRow, Roles
from headgate.console.access.viewer import Role
from headgate.errors import ConfigError
from kit.console import ORIGIN, Browser, Console

# It runs until its input ends. It still uses a part of Authlib that warns of its end.
PROVIDER = """
import sys
from oidc_provider_mock import run_server_in_thread
with run_server_in_thread(require_nonce=True) as server:
    print(server.server_port, flush=True)
    sys.stdin.read()
"""
CLIENT = "headgate-console"
ROLES = Roles(
    {
        "oidc": [
            RoleRow("ada-4711", "", Role.OPERATOR, ""),
            RoleRow("", "payers", Role.TENANT, "payments"),
        ]
    }
)


def use(console: Console, issuer: str) -> None:
    """Have the console sign people in at an issuer."""
    console.access.oidc = Oidc(
        issuer, CLIENT, "secret", "openid", ORIGIN + CALLBACK, "headgate-oidc"
    )
    console.access.roles = ROLES


def begin(client: Browser, next_: str = "/") -> dict[str, str]:
    """Go to the provider; returns what the console asks it."""
    answer = client.get("/sign-in/oidc", params={"next": next_})
    assert answer.status_code == 302, answer.text
    where = urlsplit(answer.headers["location"])
    asked = {name: values[0] for name, values in parse_qs(where.query).items()}
    asked["url"] = answer.headers["location"]
    return asked


# --- a real provider


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    server = subprocess.Popen([sys.executable, "-c", PROVIDER], stdout=PIPE, stdin=PIPE, text=True)
    assert server.stdout is not None
    yield f"http://localhost:{int(server.stdout.readline())}"
    server.communicate("")


def approve(asked: dict[str, str], subject: str) -> str:
    """Sign in at the provider; returns the path that it sends the browser back to."""
    answer = httpx2.post(asked["url"], data={"sub": subject})
    assert answer.status_code == 302, answer.text
    back = answer.headers["location"]
    assert back.startswith(ORIGIN + CALLBACK)
    return str(back.removeprefix(ORIGIN))


def test_a_subject_with_a_role_is_signed_in(console: Console, issuer: str) -> None:
    use(console, issuer)
    client = console.client()
    asked = begin(client, "/why?user=alice")
    assert asked["code_challenge_method"] == "S256"
    assert len(asked["nonce"]) >= 16
    assert len(asked["state"]) >= 16
    answer = client.get(approve(asked, "ada-4711"))
    assert (answer.status_code, answer.headers["location"]) == (303, "/why?user=alice")
    page = client.get("/change")
    assert page.status_code == 200
    assert "<bdi>oidc:ada-4711</bdi>" in page.text


def test_a_subject_without_a_role_stays_outside(console: Console, issuer: str) -> None:
    use(console, issuer)
    client = console.client()
    # The provider says that this is ada's e-mail address; who it is says the subject.
    answer = client.get(approve(begin(client), "ada-4711@example"))
    assert answer.status_code == 403
    assert "has no role here" in answer.text or "have no role here" in answer.text
    assert client.get("/").status_code == 303


def test_a_state_is_for_one_browser_and_one_use(console: Console, issuer: str) -> None:
    use(console, issuer)
    victim, attacker = console.client(), console.client()
    back = approve(begin(attacker), "ada-4711")
    # Login CSRF: the attacker's link in the victim's browser, with or without a sign-in under way.
    assert victim.get(back).status_code == 403
    begin(victim)
    assert victim.get(back).status_code == 403
    assert attacker.get(back.replace("code=", "code=x")).status_code == 403
    assert attacker.get(back).status_code == 303
    assert attacker.get(back).status_code == 403


def test_a_provider_that_doesnt_answer_is_no_way_in(console: Console) -> None:
    use(console, "http://localhost:9")
    client = console.client()
    assert client.get("/sign-in/oidc").status_code == 502
    assert client.get(f"{CALLBACK}?code=a&state=b").status_code == 403


def test_without_a_provider_there_are_no_such_pages(console: Console) -> None:
    assert console.client().get("/sign-in/oidc").status_code == 404
    assert console.client().get(CALLBACK).status_code == 404


@pytest.mark.parametrize(
    "issuer",
    [
        "http://idp.example", "http://localhost.idp.example", "http://127.0.0.1.idp.example/",
        "http://127.0.0.1@idp.example", "//localhost", "http://[::1", "ftp://localhost",
    ],
)  # fmt: skip
def test_a_provider_is_reached_by_tls(console: Console, issuer: str) -> None:
    with pytest.raises(ConfigError, match="isn't https"):
        use(console, issuer)


# --- a provider that lies


class Liar:
    """A provider on loopback whose tokens a test makes as it likes."""

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, parameters={"kid": "1"})
        self.other = RSAKey.generate_key(2048, parameters={"kid": "1"})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.issuer = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.called = self.issuer
        self.algorithms = ["RS256"]
        self.token: Callable[[dict[str, Any]], str] = lambda claims: self.signed(claims)
        self.nonce = ""
        self.posted: dict[str, list[str]] = {}

    def signed(self, claims: dict[str, Any], key: Any = None, alg: str = "RS256") -> str:
        header = {"alg": alg, "kid": "1"}
        return jwt.encode(header, claims, key or self.key, algorithms=[alg])

    def handler(self) -> type[BaseHTTPRequestHandler]:
        liar = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.endswith("openid-configuration"):
                    self.say(
                        {
                            "issuer": liar.called,
                            "authorization_endpoint": f"{liar.issuer}/authorize",
                            "token_endpoint": f"{liar.issuer}/token",
                            "jwks_uri": f"{liar.issuer}/keys",
                            "id_token_signing_alg_values_supported": liar.algorithms,
                        }
                    )
                else:
                    self.say({"keys": [liar.key.as_dict(private=False)]})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                liar.posted = parse_qs(body)
                claims = {
                    "iss": liar.issuer, "sub": "ada-4711", "aud": CLIENT, "nonce": liar.nonce,
                    "iat": int(time.time()), "exp": int(time.time()) + 60,
                }  # fmt: skip
                self.say(
                    {"access_token": "a", "token_type": "Bearer", "id_token": liar.token(claims)}
                )

            def say(self, told: dict[str, Any]) -> None:
                data = json.dumps(told).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture
def liar() -> Iterator[Liar]:
    made = Liar()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.02,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def come_back(console: Console, liar: Liar) -> tuple[int, Browser]:
    use(console, liar.issuer)
    client = console.client()
    asked = begin(client)
    liar.nonce = asked["nonce"]
    answer = client.get(f"{CALLBACK}?code=c&state={asked['state']}")
    return answer.status_code, client


def test_its_true_token_is_taken_with_the_verifier_of_pkce(console: Console, liar: Liar) -> None:
    status, client = come_back(console, liar)
    assert status == 303
    assert client.get("/change").status_code == 200
    assert re.fullmatch(r"[\w~.-]{43,128}", liar.posted["code_verifier"][0])


def test_a_group_may_have_a_role(console: Console, liar: Liar) -> None:
    liar.token = lambda claims: liar.signed({**claims, "sub": "eve", "groups": ["payers"]})
    status, client = come_back(console, liar)
    assert status == 303
    assert "payments" in client.get("/").text or client.get("/tenant").status_code == 200


def unsigned(claims: dict[str, Any]) -> str:
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    texts = [urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join((*texts, ""))


LIES: dict[str, Callable[[Liar, dict[str, Any]], str]] = {
    "another audience": lambda liar, c: liar.signed({**c, "aud": "another-client"}),
    "another audience that azp excuses": lambda liar, c: liar.signed(
        {**c, "aud": ["another-client"], "azp": CLIENT}
    ),
    "another issuer": lambda liar, c: liar.signed({**c, "iss": "https://elsewhere.example"}),
    "another nonce": lambda liar, c: liar.signed({**c, "nonce": "replayed"}),
    "no nonce": lambda liar, c: liar.signed({k: v for k, v in c.items() if k != "nonce"}),
    "no subject": lambda liar, c: liar.signed({k: v for k, v in c.items() if k != "sub"}),
    "another client that it was made for": lambda liar, c: liar.signed(
        {**c, "aud": [CLIENT, "another-client"], "azp": "another-client"}
    ),
    "no end": lambda liar, c: liar.signed({k: v for k, v in c.items() if k != "exp"}),
    "no signature": lambda _, c: unsigned(c),
    "an old token": lambda liar, c: liar.signed({**c, "iat": 1, "exp": 2}),
    "another key": lambda liar, c: liar.signed(c, liar.other),
    "signed by the client's secret": lambda liar, c: liar.signed(
        c, OctKey.import_key("secret"), "HS256"
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_token_that_isnt_for_us_now_is_refused(console: Console, liar: Liar, lie: str) -> None:
    liar.algorithms = ["RS256", "HS256", "none"]
    liar.token = lambda claims: LIES[lie](liar, claims)
    status, client = come_back(console, liar)
    assert status == 403
    assert client.get("/").status_code == 303


def test_a_provider_of_another_name_or_with_weak_signatures_is_refused(
    console: Console, liar: Liar
) -> None:
    use(console, liar.issuer)
    liar.called = "https://elsewhere.example"
    assert console.client().get("/sign-in/oidc").status_code == 502
    use(console, liar.issuer)
    liar.called, liar.algorithms = liar.issuer, ["none", "HS256"]
    assert console.client().get("/sign-in/oidc").status_code == 502

"""The console beside `headgate serve` before a real Kafka: who is held, why, and its end."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path

import httpx2
import pytest
from confluent_kafka import Producer

from headgate.console.access.users import Users
from headgate.console.access.viewer import Role
from headgate.console.database import Database
from headgate.embedded import EmbeddedKafka
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store import open_store
from kit.console import text_of

from .gateway_kit import properties, topic, wait_for

pytestmark = pytest.mark.kafka4

ALICE = QuotaEntity.of(user="alice")
PASSWORD = "correct horse battery"


class Producing:
    """
    Alice's producer, which sends about 200 kB/s until it is stopped.

    Args:
        bootstrap: the gateway's.
        name: of the topic.
    """

    def __init__(self, bootstrap: str, name: str) -> None:
        self.told_ms: list[int] = []
        self._name = name
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": "alice-secret",
                "client.id": "etl",
                "batch.num.messages": 20,
                "throttle_cb": lambda event: self.told_ms.append(event.throttle_time * 1000),
            }
        )
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(BufferError):
                for _ in range(10):
                    self._producer.produce(self._name, bytes(1_000))
            self._producer.poll(0.05)
        self._producer.purge()
        self._producer.poll(0)

    def close(self) -> None:
        """Send no more, and drop what wasn't sent."""
        self._stop.set()
        self._thread.join()

    @property
    def throttled(self) -> bool:
        """Whether its latest answer told it to wait; librdkafka reports the first that does not."""
        return bool(self.told_ms) and self.told_ms[-1] > 0


class Looking(httpx2.Client):
    """A browser of somebody who signs in by a password."""

    def __init__(self, url: str) -> None:
        super().__init__(base_url=url, timeout=60, trust_env=False)
        self._url = url

    def sign_in(self, user: str) -> None:
        """Begin a session."""
        fields = {"user": user, "password": PASSWORD, "next": "/"}
        answer = self.send_form("/sign-in", "/sign-in", fields)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")

    def text(self, path: str, **query: str) -> str:
        """Return a page's text without its tags."""
        answer = self.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return text_of(answer.text)

    def send_form(self, page: str, action: str, fields: dict[str, str]) -> httpx2.Response:
        """Open a page and send its form, with what the page hides in it."""
        return self.send_on(self.get(page), action, fields)

    def send_on(
        self, page: httpx2.Response, action: str, fields: dict[str, str]
    ) -> httpx2.Response:
        """Send the form of a page that is open."""
        form = re.search(rf'<form[^>]* action="{action}".*?</form>', page.text, re.DOTALL)
        assert form is not None, page.text
        hidden = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', form[0])
        given = {name: unescape(value) for name, value in hidden}
        return self.post(action, data={**given, **fields}, headers={"origin": self._url})


@pytest.fixture
def console(
    tmp_path: Path, kafka4: EmbeddedKafka, free_ports: Callable[..., list[int]]
) -> Iterator[tuple[str, str]]:
    """A gateway with a console beside it: the SASL port's address and the console's URL."""
    first = free_ports(2, consecutive=True)[0]
    sasl = free_ports(2, consecutive=True)[0]
    (web,) = free_ports(1)
    named = properties(
        tmp_path,
        kafka4,
        **{
            "listeners": f"PLAINTEXT://127.0.0.1:{first},SASL://127.0.0.1:{sasl}",
            "headgate.broker.id.max": "2",
            "headgate.console.listener": f"127.0.0.1:{web}",
            "headgate.console.data.dir": str(tmp_path / "console"),
            "headgate.console.tenants.file": str(tmp_path / "tenants.yaml"),
        },
    )
    (tmp_path / "tenants.yaml").write_text(
        "tenants: {payments: {principals: [alice]}, search: {principals: [bob]}}\n"
    )
    config = tmp_path / "headgate.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in named.items()))
    with contextlib.closing(open_store(named["headgate.store"])) as store:
        store.alter([QuotaAlteration(ALICE, (Op(PRODUCER, 30_000),))], who="kit", tool="kit")
    with contextlib.closing(Database(tmp_path / "console")) as database:
        users = Users(database)
        users.add("ada", Role.OPERATOR, "", PASSWORD)
        users.add("sam", Role.TENANT, "search", PASSWORD)
    command = [sys.executable, "-m", "headgate.cli.main", "serve", "--config", str(config)]
    said = tmp_path / "said"
    with said.open("w") as out:
        process = subprocess.Popen(command, stderr=out)
    url = f"http://127.0.0.1:{web}"

    def serves() -> bool:
        assert process.poll() is None, said.read_text()
        with contextlib.suppress(httpx2.TransportError):
            return " ready " in said.read_text() and httpx2.get(f"{url}/healthz").is_success
        return False

    try:
        wait_for(serves, "the gateway and its console", 120)
        yield f"127.0.0.1:{sasl}", url
    finally:
        process.terminate()
        process.wait(120)
    assert process.returncode == 0, said.read_text()


def first_event(ada: Looking) -> str:
    """Return what the Now page's stream says first."""
    with ada.stream("GET", "/", headers={"accept": "text/event-stream"}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            if line.startswith("data:"):
                return line
    raise AssertionError("the stream ended")


def test_the_console_says_who_is_held_and_changes_it_and_takes_it_back(
    console: tuple[str, str], kafka4: EmbeddedKafka, unique: Callable[[str], str]
) -> None:
    bootstrap, url = console
    name = topic(kafka4.bootstrap("PLAINTEXT"), unique("console"), 1)
    with (
        Looking(url) as ada,
        Looking(url) as sam,
        contextlib.closing(Producing(bootstrap, name)) as alice,
    ):
        ada.sign_in("ada")
        sam.sign_in("sam")
        about = {"user": "alice", "client-id": "etl"}
        wait_for(lambda: alice.throttled, "the producer to be told to wait")
        wait_for(
            lambda: re.search(
                r"Throttled now 1 of .* alice .*1 connection, the last for", ada.text("/")
            ),
            "Now to show that alice waits",
        )
        assert "alice" in first_event(ada)
        why = ada.text("/why", **about)
        assert "because users/alice allows 30 kB/s and it produced" in why
        assert re.search("Use against quota .*alice throttled", ada.text("/tenant", user="alice"))
        assert sam.get("/why", params=about).status_code == 404

        change = {"entity": ALICE.path, "key": PRODUCER.name, "value": "50MB/s"}
        shown = ada.send_form("/change", "/change/preview", change)
        assert "30 kB/s" in text_of(shown.text) and "50 MB/s" in text_of(shown.text)
        assert alice.throttled, "a preview changes nothing"
        made = ada.send_on(shown, "/change/apply", {"reason": "the month ends"})
        assert made.status_code == 303, text_of(made.text)
        wait_for(lambda: not alice.throttled, "the producer to be told to wait no longer")
        wait_for(lambda: "Nobody is throttled." in ada.text("/"), "Now to show that nobody waits")
        assert "50 MB/s" in ada.text("/why", **about)
        changes = ada.get(made.headers["location"])
        latest = text_of(changes.text).partition("Latest changes")[2]
        assert re.search(r"ada headgate console .*30 kB/s → 50 MB/s the month ends Undo", latest)

        undo = re.search(r'href="(/change/undo\?[^"]*)"', changes.text)
        assert undo is not None
        taken = ada.send_form(unescape(undo[1]), "/change/undo", {"reason": "too early"})
        assert taken.status_code == 303, text_of(taken.text)
        wait_for(lambda: alice.throttled, "the producer to be told to wait again")
        latest = ada.text("/change").partition("Latest changes")[2]
        assert latest.index("too early") < latest.index("the month ends")

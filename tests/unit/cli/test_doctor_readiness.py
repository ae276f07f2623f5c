"""What the doctor finds at a gateway's /readyz: why it isn't ready, and what it lacks if it is."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from headgate.cli.doctor import setup
from headgate.cli.results import Examined
from headgate.config import HostPort


@pytest.mark.parametrize(
    ("status", "text", "found"),
    [
        (200, "ready\n", []),
        (
            200,
            "ready\nbroker 2 doesn't answer: it hangs\nsplits have expired\n",
            [
                "the gateway is ready, but: broker 2 doesn't answer: it hangs",
                "the gateway is ready, but: splits have expired",
            ],
        ),
        (503, "standing by\n", ["the gateway isn't ready: standing by"]),
    ],
)
def test_each_note_is_a_finding(status: int, text: str, found: list[str]) -> None:
    class Ready(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        report = Examined([], [], [])
        setup._look_at_http(HostPort("127.0.0.1", server.server_port), report)
    assert report.found == found

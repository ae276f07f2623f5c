"""A console whose server takes connections and never answers: it ends all the same."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from urllib.error import URLError


def test_the_console_ends_while_its_server_hangs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hangs, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        free.close()
        command = [sys.executable, "-m", "headgate.cli.main", "console"]
        command += ["--bootstrap-server", f"127.0.0.1:{hangs.getsockname()[1]}"]
        process = subprocess.Popen([*command, "--listen", url.removeprefix("http://")])
        try:
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"{url}/healthz", timeout=5).close()
                    break
                except URLError:
                    time.sleep(0.1)

            def ask() -> None:
                with contextlib.suppress(OSError):  # the console has ended
                    urllib.request.urlopen(f"{url}/why?user=alice", timeout=60).close()

            asking = threading.Thread(target=ask)
            asking.start()
            connection, _ = hangs.accept()  # the page asks
            process.terminate()
            assert process.wait(60) == 0
            asking.join()
            connection.close()
        finally:
            process.kill()
            process.wait()

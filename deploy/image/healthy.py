"""
Ask a gateway or a console whether it is well, for the image's HEALTHCHECK.

HEADGATE_HEALTH_URL says where; by default a gateway's /readyz. A standby isn't ready until it takes
over: for that one give /healthz.
"""

import os
import ssl
import sys
import urllib.error
import urllib.request

READY = "http://127.0.0.1:8080/readyz"


def main() -> int:
    """Print the answer; 1 if it isn't 200."""
    url = os.environ.get("HEADGATE_HEALTH_URL", READY)
    # It asks its own container: no proxy stands between, and no name has to be proved.
    tls = ssl.create_default_context()
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)]
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=4) as answer:
            print(answer.read(500).decode(errors="replace"))
            return 0
    except urllib.error.HTTPError as refused:
        print(refused.read(500).decode(errors="replace"))
    except OSError as problem:
        print(f"{url}: {problem}")
    return 1


if __name__ == "__main__":
    sys.exit(main())

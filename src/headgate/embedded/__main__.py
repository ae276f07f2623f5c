"""
Fetch and verify the jars of every Kafka: ``python -m headgate.embedded``.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor

from headgate.embedded.jars import VERSIONS, ensure_jars, to_stderr
from headgate.embedded.java import find_java, java_home
from headgate.errors import HeadgateError


def main(argv: list[str] | None = None) -> int:
    """
    Fetch and verify.

    Args:
        argv: the command line without the program's name.

    Returns:
        0 done, 1 failed (the reason is on stderr).
    """
    parser = argparse.ArgumentParser(prog="python -m headgate.embedded", description=__doc__)
    parser.add_argument("versions", nargs="*", metavar="VERSION")
    options = parser.parse_args(argv)
    versions = options.versions or VERSIONS
    try:
        java = find_java()
        java_home(java)  # the shim for Spark, where one is needed
        to_stderr(str(java))
        # Ivy mostly waits for answers, so the versions come side by side.
        with ThreadPoolExecutor() as pool:
            for version, path in zip(versions, pool.map(ensure_jars, versions), strict=True):
                to_stderr(f"Kafka {version}: {path}")
    except HeadgateError as error:
        to_stderr(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

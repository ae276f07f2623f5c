"""
Print for people: commands go on if nobody reads their output any more.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

from headgate.words import printable as printable


class _Outlet(io.FileIO):
    """
    A file whose reader may close it, or that is full; what is written after that is dropped.

    Attributes:
        failed: it couldn't be written, for another reason than that its reader has gone.
        dropping: it couldn't be written, for whichever reason.
    """

    failed = False
    dropping = False

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.dropping = True
            if not isinstance(error, BrokenPipeError) and not self.failed:
                self.failed = True
                if self.fileno() == 1:
                    complain(f"headgate: stdout: {error.strerror}; the output isn't complete")
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return super().write(data)


def outlive_reader() -> None:
    """
    Let the process finish its work when its reader has gone, as in ``… | head``.

    Call it when a program begins: it replaces stdout and stderr, unless a test has replaced them.
    """
    for name, stream in (("stdout", sys.__stdout__), ("stderr", sys.__stderr__)):
        if stream is None or stream is not getattr(sys, name):
            continue
        stream.flush()
        outlet = _Outlet(stream.fileno(), "w", closefd=False)
        made = io.TextIOWrapper(
            io.BufferedWriter(outlet),
            encoding=stream.encoding,
            errors=stream.errors,
            # PYTHONUNBUFFERED, as in containers, shows only as write_through.
            line_buffering=stream.line_buffering or stream.write_through,
            write_through=stream.write_through,
        )
        setattr(sys, name, made)


def output_failed() -> bool:
    """Write out what is buffered; return whether stdout couldn't be written."""
    outlet = _written()
    return outlet is not None and outlet.failed


def reader_gone() -> bool:
    """Write out what is buffered; return whether nobody gets what is printed any more."""
    outlet = _written()
    return outlet is not None and outlet.dropping


def _written() -> _Outlet | None:
    sys.stdout.flush()
    outlet = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return outlet if isinstance(outlet, _Outlet) else None


def say(text: str = "", *, file: TextIO | None = None) -> None:
    """Print one line, whatever the terminal's encoding can't show replaced by ``?``."""
    stream = sys.stdout if file is None else file
    try:
        print(text, file=stream)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        print(text.encode(encoding, "replace").decode(encoding), file=stream)


def complain(text: str) -> None:
    """Print one line to stderr."""
    say(text, file=sys.stderr)

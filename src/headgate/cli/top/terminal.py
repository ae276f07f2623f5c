"""
The loop of `headgate top`: a gateway is asked again and again, keys are taken, the screen is drawn.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.cli.top.screen import screen
from headgate.cli.top.view import ESCAPE, TopView, arranged, keys_of
from headgate.errors import HeadgateError
from headgate.live.picture import Picture
from headgate.live.quota_ids import QuotaIdRow, rows
from headgate.words import moment

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

    from headgate.admin.open_target import OpenTarget

_REST_OF_KEY_S: Final = 0.05
"""How long the rest of an arrow's sequence may take; an Escape that stands alone is a key."""
_READ: Final = 1024


@dataclass(slots=True)
class Heard:
    """
    What the gateway told last.

    Attributes:
        picture: of everybody.
        answer: about the row asked about; None: none is, or it isn't told yet.
        problem: since when it doesn't answer, and why; "": it does.
    """

    picture: Picture
    answer: Picture | None = None
    problem: str = ""


class Top:
    """
    The table on a terminal.

    Args:
        place: the gateway.
        told: its first answer.
        view: what is looked at.
        most: quota-ids of each broker that are asked for.
        every_s: how long it isn't asked after each answer.
        clock_ms: the wall clock, epoch ms.
    """

    def __init__(
        self,
        place: OpenTarget,
        told: Picture,
        view: TopView,
        most: int,
        every_s: float,
        clock_ms: Callable[[], int],
    ) -> None:
        self.told = Heard(told)
        self.view = view
        self._place = place
        self._most = most
        self._every_s = every_s
        self._clock_ms = clock_ms
        self._changed = asyncio.Event()
        self._ask_now = asyncio.Event()
        self._rows = rows(told)

    async def run(self, live: Live, keyboard: int | None) -> None:
        """
        Draw and ask until ``q`` is pressed.

        Args:
            live: the screen.
            keyboard: where keys come from; None: nowhere, then it goes on until Ctrl-C.
        """
        loop = asyncio.get_running_loop()
        asking = loop.create_task(self._ask_again())
        asking.add_done_callback(lambda _: self._changed.set())
        with contextlib.ExitStack() as stack:
            loop.add_signal_handler(signal.SIGWINCH, self._changed.set)
            stack.callback(loop.remove_signal_handler, signal.SIGWINCH)
            if keyboard is not None:
                loop.add_reader(keyboard, Keyboard(keyboard, self.press).read)
                stack.callback(loop.remove_reader, keyboard)
            try:
                while not self.view.ended and not asking.done():
                    self._changed.clear()
                    size = live.console.size
                    live.update(self.drawn((size.width, size.height)), refresh=True)
                    await self._changed.wait()
            finally:
                asking.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await asking

    def drawn(self, size: tuple[int, int]) -> Text:
        """Return the screen as it is now, at a size in columns and lines."""
        told = self.told
        return screen(
            self.view, self._rows, self._shown(), told.picture, size, answer=told.answer,
            problem=told.problem,
        )  # fmt: skip

    def press(self, key: str) -> None:
        """Take a key."""
        asked = self.view.asked
        self.view.press(key, self._shown())
        if self.view.asked is not asked:
            self.told.answer = None
            self._ask_now.set()
        self._changed.set()

    def _shown(self) -> list[QuotaIdRow]:
        return arranged(self._rows, self.view.sort, self.view.find)

    async def _ask_again(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._ask_now.wait()
            self._ask_now.clear()
            await self.ask()

    async def ask(self) -> None:
        """Ask the gateway once; one that doesn't answer is named, and what it told last stays."""
        from headgate.wire.messages.live import LiveRequest

        try:
            row = self.view.asked
            if row is not None and row.owner is not None:
                request = LiveRequest(*row.owner, self._most)
                answer = await self._place.live_beside(request)
                if self.view.asked is row:
                    self.told.answer = answer
                    self._changed.set()
            picture = await self._place.live_beside(LiveRequest(None, None, self._most))
        except HeadgateError as error:
            if not self.told.problem:
                why = " ".join(str(error).split())
                since = moment(self._clock_ms())
                self.told.problem = f"No answer since {since}, asking again: {why}"
        else:
            self.told.picture, self.told.problem = picture, ""
            self._rows = rows(picture)
        self._changed.set()


class Keyboard:
    """
    Reads keys.

    Args:
        source: the terminal's file descriptor.
        press: takes each key.
    """

    def __init__(self, source: int, press: Callable[[str], None]) -> None:
        self._source = source
        self._press = press
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._begun = ""
        self._alone: asyncio.TimerHandle | None = None

    def read(self) -> None:
        """Take what is there; a terminal that is gone ends the view."""
        if self._alone is not None:
            self._alone.cancel()
            self._alone = None
        try:
            data = os.read(self._source, _READ)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._source)
            return
        text, self._begun = self._begun + self._decode(data), ""
        if text in (ESCAPE, f"{ESCAPE}[", f"{ESCAPE}O"):
            self._begun = text
            loop = asyncio.get_running_loop()
            self._alone = loop.call_later(_REST_OF_KEY_S, self._take)
            return
        for key in keys_of(text):
            self._press(key)

    def _take(self) -> None:
        text, self._begun = self._begun, ""
        if text:
            self._press(ESCAPE)


@contextlib.contextmanager
def keys_at_once(source: int) -> Iterator[None]:
    """Let a terminal give each key at once and echo none; Ctrl-C stays what it is."""
    import termios
    import tty

    former = termios.tcgetattr(source)
    try:
        tty.setcbreak(source, termios.TCSANOW)
        yield
    finally:
        termios.tcsetattr(source, termios.TCSADRAIN, former)


def look(place: OpenTarget, told: Picture, view: TopView, most: int, every_s: float) -> None:
    """Show the table on the terminal until ``q`` is pressed."""
    from rich.console import Console
    from rich.live import Live

    from headgate.clock import now_ms

    keyboard = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None

    async def run() -> None:
        console = Console(highlight=False)
        with Live(console=console, screen=True, auto_refresh=False) as live:
            await Top(place, told, view, most, every_s, now_ms).run(live, keyboard)

    with keys_at_once(keyboard) if keyboard is not None else contextlib.nullcontext():
        asyncio.run(run())

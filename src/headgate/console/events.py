"""
What goes on now: asked for once for all pages, and sent to them when it changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from headgate import words
from headgate.console.parts import ConsoleParts, parts
from headgate.console.recent import Recent
from headgate.console.recorded import Journals
from headgate.errors import HeadgateError
from headgate.live.picture import Picture
from headgate.quota.table import QuotaTable

PERIOD_S: Final = 1.0
"""The shortest pause between two questions."""
PART: Final = 9
"""The pause is at least this many times what the last answer took, to spare a slow gateway."""
MOST_QUOTAS: Final = 10_000
"""Quota-ids of each broker that are asked for, so that people find them by name."""
IDLE_S: Final = 10.0
"""The pause between two points of the last hour's use, whether a page is open or not."""
MOST_WATCHERS: Final = 100
"""Live pages at once; each is rendered at most once a second."""
MOST_OF_ONE: Final = 10
"""Live pages of one viewer at once, so that nobody uses them all."""
MOST_QUESTIONS: Final = 100
"""Questions about principals whose pictures are kept; each is at most a few hundred kB."""
LIFE_S: Final = 60.0
"""A stream ends after this long. The browser asks again, and its permission is checked again."""
BEAT_S: Final = 5.0
"""Without a new answer, a beat is sent this often, so that browsers notice a lost connection."""
SLOW_S: Final = 10.0
"""A browser that hasn't read what was sent after this long is disconnected."""

Question = tuple[str | None, str | None]
"""Whose picture: principal and client-id; None: everybody's, any."""


@dataclass(frozen=True, slots=True)
class Moment:
    """
    The latest answer to a question.

    Args:
        number: grows with each answer or failure.
        picture: the last one; None: there wasn't one yet.
        problem: why asking failed since then; "": it didn't.
    """

    number: int
    picture: Picture | None
    problem: str = ""


class LiveQuery:
    """
    One question, asked at most once a second; all pages that show it share the answer.

    Args:
        here: answers it.
        question: the principal and client-id that it is about.
    """

    def __init__(self, here: ConsoleParts, question: Question) -> None:
        self._here = here
        self._question = question
        self._moment = Moment(0, None)
        self._next = 0.0
        self._asking: asyncio.Task[Moment] | None = None

    async def now(self) -> Moment:
        """Return the latest answer; if the pause after it is over, ask again."""
        loop = asyncio.get_running_loop()
        if self._asking is None:
            if loop.time() < self._next:
                return self._moment
            self._asking = loop.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def after(self, number: int) -> Moment:
        """Wait for an answer with another number, and return it."""
        while True:
            moment = await self.now()
            if moment.number != number:
                return moment
            await asyncio.sleep(max(0.01, self._next - asyncio.get_running_loop().time()))

    async def _ask(self) -> Moment:
        loop = asyncio.get_running_loop()
        began = loop.time()
        old = self._moment
        try:
            picture = await self._here.picture(*self._question, MOST_QUOTAS)
            self._moment = Moment(old.number + 1, picture)
        except (HeadgateError, OSError) as error:
            self._moment = Moment(old.number + 1, old.picture, str(error) or type(error).__name__)
        finally:
            ended = loop.time()
            self._next = ended + max(PERIOD_S, PART * (ended - began))
            self._asking = None
        return self._moment


class QuotaWatch:
    """
    What quotas there are, asked for at most once a second for all who watch.

    Args:
        here: tells them.
    """

    def __init__(self, here: ConsoleParts) -> None:
        self._here = here
        self._lock = asyncio.Lock()
        self._found = "", QuotaTable()
        self._next = 0.0

    async def after(self, state: str) -> tuple[str, QuotaTable]:
        """Wait for quotas in another state; return it, and them."""
        loop = asyncio.get_running_loop()
        while True:
            async with self._lock:
                if (began := loop.time()) >= self._next:
                    with contextlib.suppress(HeadgateError, OSError):  # then they are as they were
                        self._found = itemgetter(0, 2)(await self._here.state())
                    self._next = loop.time() + max(PERIOD_S, PART * (loop.time() - began))
            if self._found[0] != state:
                return self._found
            await asyncio.sleep(max(0.01, self._next - loop.time()))


class Watches:
    """
    The watches that pages look at, how many pages each viewer has open, and the last hour's use.

    Args:
        here: answers the questions.
        journals: hold the use of earlier hours; None: nothing does.
    """

    def __init__(self, here: ConsoleParts, journals: Journals | None = None) -> None:
        self._here = here
        self.journals = journals
        self._watches: OrderedDict[Question, LiveQuery] = OrderedDict()
        self._watchers: Counter[str] = Counter()
        self._keeping: asyncio.Task[None] | None = None
        self.recent = Recent()
        self.everybody = LiveQuery(here, (None, None))
        self.quotas = QuotaWatch(here)

    def of(self, user: str, client_id: str | None) -> LiveQuery:
        """Return a principal's watch; of too many, the one unused for longest is dropped."""
        question = (user, client_id)
        watch = self._watches.setdefault(question, LiveQuery(self._here, question))
        self._watches.move_to_end(question)
        while len(self._watches) > MOST_QUESTIONS:
            self._watches.popitem(last=False)
        return watch

    def keep(self) -> None:
        """Begin to keep the last hour's use, if that isn't done yet."""
        if self._keeping is None and self._here.live is not None:
            self._keeping = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            moment = await self.everybody.now()
            if moment.picture is not None and not moment.problem:
                self.recent.add(moment.picture)
            await asyncio.sleep(IDLE_S)

    @contextlib.contextmanager
    def place(self, viewer: str) -> Iterator[None]:
        """
        Take one of the bounded number of live pages, for the time of the block.

        Raises:
            HTTPException: all are in use.
        """
        if self._watchers.total() >= MOST_WATCHERS or self._watchers[viewer] >= MOST_OF_ONE:
            raise HTTPException(503, headers={"retry-after": "10"})
        self._watchers[viewer] += 1
        try:
            yield
        finally:
            self._watchers[viewer] -= 1
            if not self._watchers[viewer]:
                del self._watchers[viewer]


def watches(request: Request) -> Watches:
    """Return the console's one ``Watches``, which keeps the last hour's use from then on."""
    state = request.app.state
    if not hasattr(state, "watches"):
        here = parts(request)
        journals = None if here.journal is None else Journals(here.journal, here.clock_ms)
        state.watches = Watches(here, journals)
    found: Watches = state.watches
    found.keep()
    return found


News = TypeVar("News")
EVENTS: Final = "text/event-stream"


def wants_events(request: Request) -> bool:
    """Whether a page's script asks for the page's live part, as a stream from the same address."""
    return request.headers.get("accept", "").startswith(EVENTS)


class EventStream(StreamingResponse):
    """
    Server-sent events, one for each news.

    Args:
        watches: bounds how many streams are open.
        viewer: who looks.
        after: waits for news other than the last; None: there was none yet.
        tell: returns what is told of news, for JSON.
    """

    def __init__(
        self,
        watches: Watches,
        viewer: str,
        after: Callable[[News | None], Awaitable[News]],
        tell: Callable[[News], object],
    ) -> None:
        super().__init__(_events(after, tell), media_type=EVENTS)
        self._watches = watches
        self._viewer = viewer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the browser closes, is too slow, or has to connect again."""

        async def hurried(message: Message) -> None:
            async with asyncio.timeout(SLOW_S):
                await send(message)

        with self._watches.place(self._viewer), contextlib.suppress(TimeoutError):
            try:
                await super().__call__(scope, receive, hurried)
            except asyncio.CancelledError:  # the console ends
                await hurried({"type": "http.response.body", "body": b"", "more_body": False})


def live_part(
    watches: Watches, watch: LiveQuery, viewer: str, draw: Callable[[Moment], str]
) -> EventStream:
    """
    Return a part of a page, rendered whenever there is a new answer.

    Args:
        watches: bounds how many live pages are open.
        watch: the question whose answers are shown.
        viewer: who looks.
        draw: renders the part of the page.
    """

    async def after(last: Moment | None) -> Moment:
        return await watch.after(-1 if last is None else last.number)

    def tell(moment: Moment) -> dict[str, object]:
        told: dict[str, object] = {"html": draw(moment), "problem": bool(moment.problem)}
        if moment.picture is not None:
            told["at"] = words.moment(moment.picture.at_ms)
        return told

    return EventStream(watches, viewer, after, tell)


async def _events(
    after: Callable[[News | None], Awaitable[News]], tell: Callable[[News], object]
) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    ends = loop.time() + LIFE_S
    yield "retry: 1000\n\n"
    last: News | None = None
    while loop.time() < ends:
        try:
            last = await asyncio.wait_for(after(last), BEAT_S)
        except TimeoutError:
            yield "event: beat\ndata:\n\n"
            continue
        yield f"data: {json.dumps(tell(last))}\n\n"

"""A loopback HTTP proxy before a real S3 server that breaks the requests a test chooses."""

import asyncio
import contextlib
import enum
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

HIDDEN_BODY = {"HEAD"}  # methods whose answer has no body, whatever its headers say
ANSWERS = {  # fault -> status, S3 error code
    "throttled": (503, "SlowDown"),
    "error_500": (500, "InternalError"),
    "expired_token": (400, "ExpiredToken"),
    "denied": (403, "AccessDenied"),
    "archived": (403, "InvalidObjectState"),
    "clock_skew": (403, "RequestTimeTooSkewed"),
    "not_s3": (200, ""),
    "error_in_200": (200, "InternalError"),
    "redirect": (301, "PermanentRedirect"),
    "not_allowed": (405, "MethodNotAllowed"),
}


class Fault(enum.StrEnum):
    """What happens to a request."""

    THROTTLED = "throttled"  # 503 SlowDown instead of an answer
    ERROR_500 = "error_500"
    EXPIRED_TOKEN = "expired_token"
    DENIED = "denied"
    ARCHIVED = "archived"
    CLOCK_SKEW = "clock_skew"
    HIDE_MISSING = "hide_missing"  # 403 instead of 404, as S3 answers where ListBucket is bound to a prefix
    NOT_S3 = "not_s3"  # 200 and a web page, as a proxy or a login portal answers
    ERROR_IN_200 = "error_in_200"  # as S3 answers CompleteMultipartUpload when it fails late
    REDIRECT = "redirect"  # as for a bucket of another region, where the client does not know the other endpoint
    NOT_ALLOWED = "not_allowed"
    RESET_EARLY = "reset_early"  # connection reset before any byte of an answer
    LOST_REPLY = "lost_reply"  # the server does what it was asked, then the connection is reset
    RESET = "reset"  # connection reset in the middle of the body
    TRUNCATE = "truncate"  # connection closed in the middle of the body
    STALL = "stall"  # half of the body, then silence
    STALL_EARLY = "stall_early"  # silence before any byte of an answer


BREAKS_BODY = {Fault.RESET, Fault.TRUNCATE, Fault.STALL}


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the proxy saw it; `target` is the raw path with its query."""

    method: str
    target: str
    headers: Mapping[str, str]


Chooser = Callable[[Request], Fault | None]


def random_faults(
    seed: int, shares: Mapping[Fault, float], only: Callable[[Request], bool] = lambda _: True
) -> Chooser:
    """Break a share of the requests, decided by a seeded draw for each in order of arrival."""
    draw = random.Random(seed)

    def choose(request: Request) -> Fault | None:
        if not only(request):
            return None
        left = draw.random()
        for fault, share in shares.items():
            if left < share:
                return fault
            left -= share
        return None

    return choose


def with_early_ends(choose: Chooser) -> Chooser:
    """Break requests whose answers have no body worth breaking before the answer, after the server did its part."""
    early = {Fault.RESET: Fault.LOST_REPLY, Fault.TRUNCATE: Fault.LOST_REPLY, Fault.STALL: Fault.STALL_EARLY}

    def choose_early(request: Request) -> Fault | None:
        fault = choose(request)
        return fault if fault is None or request.method == "GET" else early.get(fault, fault)

    return choose_early


def first_requests(count: int, fault: Fault, only: Callable[[Request], bool] = lambda _: True) -> Chooser:
    """Break the first `count` requests that `only` picks."""
    left = [count]

    def choose(request: Request) -> Fault | None:
        if not only(request) or left[0] <= 0:
            return None
        left[0] -= 1
        return fault

    return choose


class FaultProxy:
    """Runs in a thread of its own inside a `with` block.

    `choose`, and `latency_s` (added to every request, as distance would), may be replaced at any time.
    """

    def __init__(self, upstream_port: int, choose: Chooser = lambda _: None) -> None:
        self.choose = choose
        self.latency_s = 0.0
        self.requests: list[Request] = []
        self.faults: Counter[Fault] = Counter()
        self.most_connections = 0
        self._upstream_port = upstream_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)
        self._started = threading.Event()
        self._port = 0
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> "FaultProxy":
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def count(self, method: str, contains: str = "") -> int:
        """Count the requests seen of a method whose target contains a text."""
        return sum(request.method == method and contains in request.target for request in self.requests)

    def _run(self) -> None:
        server = self._loop.run_until_complete(
            asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=512, limit=1 << 20)
        )
        self._port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(self._drop_connections())
        self._loop.close()

    async def _drop_connections(self) -> None:
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.most_connections = max(self.most_connections, len(self._connections))
        link = _Link(reader, writer, self._upstream_port)
        try:
            while await self._exchange(link):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            link.close()
            self._connections.discard(task)

    async def _exchange(self, link: "_Link") -> bool:
        """Serve one request; False when the connection is over."""
        head, headers = await _read_head(link.reader)
        method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        request = Request(method, target, headers)
        fault = self.choose(request)
        self.requests.append(request)
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        if fault is not None:
            self.faults[fault] += 1
        if fault is Fault.RESET_EARLY:
            return link.reset()
        if headers.get("expect") == "100-continue":
            link.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = head.replace(b"Expect: 100-continue\r\n", b"")
        if fault in ANSWERS:
            async for _ in _read_body(link.reader, headers):
                pass
            return await link.answer(*ANSWERS[fault], hidden=method in HIDDEN_BODY)
        await link.forward(head, headers)
        return await link.reply(fault, hidden=method in HIDDEN_BODY)


class _Link:
    """One client connection with its connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream_port: int) -> None:
        self.reader, self.writer = reader, writer
        self._upstream_port = upstream_port
        self._up: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def close(self) -> None:
        for each in (self.writer, self._up[1] if self._up else None):
            if each is not None:
                each.transport.abort()

    def reset(self) -> bool:
        linger = struct.pack("ii", 1, 0)  # closing sends RST
        with contextlib.suppress(OSError):
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()
        return False

    async def answer(self, status: int, code: str, hidden: bool) -> bool:
        xml = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>injected</Message></Error>'
        body = xml.encode() if code else b"<html><body>Please sign in<br></body></html>"
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n"
        head += "x-amz-bucket-region: eu-west-1\r\n\r\n" if status == 301 else "\r\n"
        self.writer.write(head.encode() + (b"" if hidden else body))
        await self.writer.drain()
        return True

    async def forward(self, head: bytes, headers: Mapping[str, str]) -> None:
        if self._up is None:
            self._up = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        self._up[1].write(head)
        async for chunk in _read_body(self.reader, headers):
            self._up[1].write(chunk)
            await self._up[1].drain()

    async def reply(self, fault: Fault | None, hidden: bool) -> bool:
        assert self._up is not None
        head, headers = await _read_head(self._up[0])
        while b" 100 " in head.split(b"\r\n", 1)[0]:
            head, headers = await _read_head(self._up[0])
        status = head.split(b" ", 2)[1]
        if fault is Fault.HIDE_MISSING and status == b"404":
            if not hidden:
                async for _ in _read_body(self._up[0], headers):
                    pass
            return await self.answer(403, "AccessDenied", hidden)
        no_body = hidden or status in (b"204", b"304")
        if fault is Fault.LOST_REPLY:
            return self.reset()
        if fault is Fault.STALL_EARLY:
            await asyncio.Event().wait()
        self.writer.write(head)
        if no_body:
            await self.writer.drain()
            return headers.get("connection", "").lower() != "close"
        half = int(headers.get("content-length", 0)) // 2
        sent = 0
        async for chunk in _read_body(self._up[0], headers):
            if fault in BREAKS_BODY and sent + len(chunk) > half:
                assert fault is not None
                return await self._break_off(fault, chunk[: half - sent])
            self.writer.write(chunk)
            sent += len(chunk)
            await self.writer.drain()
        return headers.get("connection", "").lower() != "close"

    async def _break_off(self, fault: Fault, rest: bytes) -> bool:
        self.writer.write(rest)
        await self.writer.drain()
        if fault is Fault.RESET:
            return self.reset()
        if fault is Fault.STALL:
            await asyncio.Event().wait()
        self.writer.write_eof()
        return False


async def _read_head(reader: asyncio.StreamReader) -> tuple[bytes, dict[str, str]]:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = [line.decode("latin-1").split(":", 1) for line in head.split(b"\r\n")[1:] if b":" in line]
    return head, {name.strip().lower(): value.strip() for name, value in lines}


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    if headers.get("transfer-encoding") == "chunked":
        while True:
            size = await reader.readline()
            yield size
            count = int(size.split(b";")[0], 16)
            yield await reader.readexactly(count + 2)
            if count == 0:
                return
    left = int(headers.get("content-length", 0))
    while left:
        chunk = await reader.read(min(left, 1 << 16))
        if not chunk:
            raise ConnectionError("the peer closed in the middle of a body")
        left -= len(chunk)
        yield chunk

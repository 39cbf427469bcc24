"""The application in this process, without a network."""

import asyncio
import json
import threading
from contextlib import contextmanager

import nse
from nse.serve.app import App
from nse.serve.observe import Log
from nse.serve.settings import Settings
from nse.serve.worker import Engine


class InProcessServer:
    """Application with its own event loop."""

    def __init__(self, app):
        self.app = app
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def send(self, path, body=None, headers=None, method=None, parts=None):
        """Send a request, its body perhaps in `parts`; return a future of status, headers and content."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        pieces = [data or b""] if parts is None else parts
        path, _, query = path.partition("?")
        lower = {name.lower(): value for name, value in (headers or {}).items()}
        all_headers = {"host": "localhost", "content-type": "application/json", **lower}
        scope = {
            "type": "http",
            "method": method or ("GET" if data is None and parts is None else "POST"),
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in all_headers.items()],
        }
        return asyncio.run_coroutine_threadsafe(self.answer(scope, list(pieces)), self.loop)

    def ask(self, *words, **settings):
        return self.send(*words, **settings).result(60)

    async def answer(self, scope, pieces):
        sent, done = [], asyncio.Event()

        async def receive():
            if not pieces:
                await done.wait()
                return {"type": "http.disconnect"}
            piece = pieces.pop(0)
            if piece is None:  # a client that goes away
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

        async def send(message):
            sent.append(message)

        await self.app(scope, receive, send)
        done.set()
        headers = {name.decode().title(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent)


def start_server(model, hosts=frozenset(), log=None, workers=1, **settings):
    """Serve a model or a model folder in this process, until it ends."""
    loaded = model if isinstance(model, nse.Model) else nse.load(model)
    engines = [Engine(loaded) for _ in range(workers)]
    return InProcessServer(
        App(loaded, Settings(**settings), log or Log(lambda content: None), engines, hosts)
    )


@contextmanager
def serve_inside(model, **settings):
    """Serve a model in this process during the block."""
    server = start_server(model, **settings)
    try:
        yield server
    finally:
        assert server.app.batcher.stop(30)
        server.close()

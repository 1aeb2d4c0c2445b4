"""A cloud's REST interface on the loopback: takes a token, remembers calls, refuses what it is told to."""

import http.server
import json
import threading
import urllib.parse
from typing import Any

Document = dict[str, Any]
Answer = tuple[int, Document | None]
TOKEN = "the-secret-token"


class FakeRest:
    """``calls``: all that were made, ``GET /path``. ``refuse``: answers by the beginning of a call."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.bodies: list[Document] = []
        self.refuse: dict[str, Answer] = {}
        self.token = TOKEN
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def _do(self) -> None:
                url = urllib.parse.urlsplit(self.path)
                query = dict(urllib.parse.parse_qsl(url.query))
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
                status, document = fake.take(
                    self.command, url.path, query, body, self.headers.get("Authorization", "")
                )
                text = b"" if document is None else json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            setattr(Handler, f"do_{method}", Handler._do)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def take(self, method: str, path: str, query: dict[str, str], body: Document, auth: str) -> Answer:
        """Answer one call."""
        call = f"{method} {path}"
        self.calls.append(call)
        if auth != f"Bearer {self.token}":
            return self.unauthorized()
        for beginning, answer in self.refuse.items():
            if call.startswith(beginning):
                return answer
        if method in ("POST", "PUT"):
            self.bodies.append(body)
        return self.answer(method, path, query, body)

    def unauthorized(self) -> Answer:
        """What a wrong token is answered."""
        raise NotImplementedError

    def answer(self, method: str, path: str, query: dict[str, str], body: Document) -> Answer:
        """What the cloud answers."""
        raise NotImplementedError

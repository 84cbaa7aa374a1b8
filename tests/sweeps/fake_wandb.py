"""A W&B server of a hundred lines that remembers what it is sent."""

from __future__ import annotations

import contextlib
import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

RUN = {
    "id": "storage-id",
    "displayName": "",
    "config": "{}",
    "historyLineCount": 0,
    "project": {"id": "p", "name": "cotcost", "entity": {"id": "e", "name": "somebody"}},
}


class FakeWandb:
    """Runs by id: ``upserts`` (what started or changed them), ``history`` by line, ``summary``;
    workspaces and reports as ``views``."""

    def __init__(self) -> None:
        self.upserts: dict[str, dict] = {}
        self.history: dict[str, dict[int, dict]] = {}
        self.summary: dict[str, dict] = {}
        self.views: list[dict] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Be gone: connections are refused from now on."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, query: str, variables: dict) -> dict:
        """Answer a GraphQL request."""
        if "upsertBucket" in query:
            known = self.upserts.setdefault(variables["name"], {})
            known.update({key: value for key, value in variables.items() if value is not None})
            return {"upsertBucket": {"bucket": RUN | {"name": variables["name"]}, "inserted": True}}
        if "createRunFiles" in query:
            files = [{"name": f, "uploadUrl": f"{self.url}/{f}"} for f in variables["files"]]
            return {"createRunFiles": {"runID": "x", "uploadHeaders": [], "files": files}}
        if "upsertView" in query:
            self.views.append(variables)
            view = {"id": "view", "name": "x", "type": "runs", "displayName": "", "description": ""}
            return {"upsertView": {"view": view | {"spec": variables["spec"]}, "inserted": True}}
        if "ProjectInternalId" in query:
            return {"project": {"id": "p", "internalId": "p"}}
        if "GetProjects" in query:
            page = {"endCursor": None, "hasNextPage": False}
            return {"models": {"edges": [], "pageInfo": page}}
        if "upsertModel" in query:
            return {"upsertModel": {"inserted": True, "model": RUN["project"]}}
        if "viewer" in query:
            return {"viewer": {"id": "v", "entity": "somebody", "username": "u", "flags": "{}"}}
        return {"serverInfo": {"features": []}, "model": {"bucket": None}}

    def receive(self, run: str, stream: dict) -> None:
        """Take lines of a run's history and summary, each from its offset on."""
        files = stream.get("files") or {}
        lines = files.get("wandb-history.jsonl")
        if lines:
            for number, line in enumerate(lines["content"], lines["offset"]):
                self.history.setdefault(run, {})[number] = json.loads(line)
        if "wandb-summary.json" in files:
            self.summary[run] = json.loads(files["wandb-summary.json"]["content"][-1])

    def curve(self, run: str, metric: str) -> list[tuple[int, float]]:
        """Return (our step, value) of every line that has both."""
        lines = [line for _, line in sorted(self.history[run].items())]
        return [(line["step"], line[metric]) for line in lines if metric in line]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *arguments):
                pass

            def handle(self):
                with contextlib.suppress(OSError):
                    super().handle()

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path == "/graphql":
                    asked = json.loads(body)
                    self.reply(
                        {"data": server.answer(asked["query"], asked.get("variables") or {})}
                    )
                    return
                if self.path.endswith("/file_stream"):
                    server.receive(self.path.split("/")[-2], json.loads(body))
                self.reply({})

            def do_PUT(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.reply({})

            def reply(self, content):
                data = json.dumps(content).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        return Handler

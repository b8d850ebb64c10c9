"""A receiver of webhooks that behaves as it is told, and checks signatures by the library of Standard Webhooks.

It prints its port. POST /behave with {"status": 500}, {"hang": true}, {"redirect": URL} or {"endless": true}; an empty object
accepts. GET /received returns what was accepted and what was refused.
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

behaviour = {}
received = []
refused = []
lock = threading.Lock()


def verify(headers, body, secrets):
    for secret in secrets:
        try:
            Webhook(secret).verify(body, {name.lower(): text for name, text in headers.items()})
            return True
        except WebhookVerificationError:
            pass
    return False


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, content=b"{}", fields=()):
        self.send_response(status)
        for name, value in fields:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        with lock:
            content = json.dumps({"received": received, "refused": refused}).encode()
        self.answer(200, content)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/behave":
            with lock:
                behaviour.clear()
                behaviour.update(json.loads(body))
            return self.answer(200)
        with lock:
            now = dict(behaviour)
        message = {
            "id": self.headers["webhook-id"],
            "path": self.path,
            "valid": verify(self.headers, body, now.get("secrets", [])),
            "signatures": len(self.headers["webhook-signature"].split(" ")),
            "body": json.loads(body),
        }
        refuses = now.get("hang") or now.get("redirect") or now.get("endless") or now.get("status", 200) >= 300
        with lock:
            (refused if refuses else received).append(message)
        if now.get("hang"):
            time.sleep(3600)
        if now.get("redirect"):
            return self.answer(307, fields=[("Location", now["redirect"])])
        if now.get("endless"):
            self.send_response(200)
            self.end_headers()
            while True:
                self.wfile.write(b"x" * 65536)
        self.answer(now.get("status", 200))


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()

"""Drives all routes of a running server with valid, boundary and broken input, as its /openapi.json describes them.

    python3 openapi_fuzz.py PORT [--seed N] [--requests N] [--minutes N] [--pid SERVER]

A response with a status of 500 or more is a fault, unless the description of the route or HTTP means it (501: a condition on a
route without conditions), and so is a server that is not ready. With --pid the memory of the server is printed each minute.
Requests follow from the seed, apart from what the server makes of the order.
"""

import argparse
import http.client
import json
import random
import sys
import time
from urllib.parse import quote

TEXTS = [
    "", "a", "ada", "checkout", "1", "-1", "0", "null", "\u0000", "a\u0000b", "\u0001", "é", "𝒳" * 8, "a/b", "..", "%00", "%",
    "$set", "<script>", "=1+1", "'; --", "2026-01-01T00:00:00Z", "1e999", " ", "x" * 255, "x" * 256, "x" * 1024, "x" * 1025,
    "x" * 4097, "\ud7ff", "\uffff", "oldest", "now",
]
NUMBERS = [0, 1, -1, 2, 100, 101, 10_000, 2**31, 2**53, 2**63, -(2**63) - 1, 1.5, -0.0, 1e308, 1e-308]
MEANT = {501}


class Fuzzer:
    def __init__(self, port, seed):
        self.random = random.Random(seed)
        self.port = port
        self.connection = None
        self.document = json.loads(self.send("GET", "/openapi.json")[1])
        self.routes = []
        for path, item in sorted(self.document["paths"].items()):
            for method, operation in sorted(item.items()):
                if method not in ("get", "put", "post", "patch", "delete"):
                    continue
                kinds = {
                    kind
                    for response in operation["responses"].values()
                    for kind in self.resolved(response).get("content", {})
                }
                # A stream of events has no end.
                if "text/event-stream" not in kinds:
                    self.routes.append((method.upper(), path, item, operation))
        self.statuses = {}
        self.faults = []

    def send(self, method, target, body=None, fields={}):
        for attempt in range(2):
            try:
                if self.connection is None:
                    self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
                self.connection.request(method, target, body, fields)
                response = self.connection.getresponse()
                return response.status, response.read()
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                # The server closes a connection after some errors.
                self.connection.close()
                self.connection = None
                if attempt == 1:
                    raise

    def resolved(self, value):
        while isinstance(value, dict) and "$ref" in value:
            found = self.document
            for name in value["$ref"].removeprefix("#/").split("/"):
                found = found[name]
            value = found
        return value

    def text(self):
        if self.random.random() < 0.4:
            return self.random.choice(TEXTS)
        return "".join(self.random.choice("abcdef0123_-") for _ in range(self.random.randint(1, 12)))

    def value(self, schema, depth=0):
        """A value of a schema, at times a broken one."""
        schema = self.resolved(schema) if isinstance(schema, dict) else {}
        if depth > 6 or self.random.random() < 0.03:
            return self.random.choice([None, True, [], {}, self.text(), self.random.choice(NUMBERS), [{}], {"a": [None]}])
        for name in ("oneOf", "anyOf"):
            if schema.get(name):
                return self.value(self.random.choice(schema[name]), depth + 1)
        if schema.get("allOf"):
            parts = [self.value(part, depth + 1) for part in schema["allOf"]]
            return {key: part[key] for part in parts if isinstance(part, dict) for key in part}
        if "const" in schema:
            return schema["const"]
        if schema.get("enum") and self.random.random() < 0.9:
            return self.random.choice(schema["enum"])
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = self.random.choice(kind)
        if kind == "object" or "properties" in schema:
            required = schema.get("required", [])
            made = {
                name: self.value(inner, depth + 1)
                for name, inner in schema.get("properties", {}).items()
                if self.random.random() < (0.97 if name in required else 0.4)
            }
            more = schema.get("additionalProperties")
            if isinstance(more, dict):
                for _ in range(self.random.randint(0, 3)):
                    made[self.text()] = self.value(more, depth + 1)
            return made
        if kind == "array":
            return [self.value(schema.get("items", {}), depth + 1) for _ in range(self.random.choice([0, 1, 1, 2, 5]))]
        if kind in ("integer", "number"):
            return self.random.choice(NUMBERS) if self.random.random() < 0.4 else self.random.randint(0, 100)
        if kind == "boolean":
            return self.random.random() < 0.5
        if kind == "null":
            return None
        return self.text()

    def body(self, content):
        kind, medium = self.random.choice(sorted(content.items()))
        chance = self.random.random()
        examples = [self.resolved(example).get("value") for example in medium.get("examples", {}).values()]
        if "example" in medium:
            examples.append(medium["example"])
        value = self.random.choice(examples) if examples and chance < 0.4 else self.value(medium.get("schema", {}))
        text = value if isinstance(value, str) and examples else json.dumps(value)
        bytes_ = text.encode(errors="replace")
        if chance > 0.93:
            at = self.random.randrange(len(bytes_) + 1)
            broken = self.random.choice([b"", b"\x00", b"\xff", b'"', b"{", b"\\u0000", b"[" * 600])
            bytes_ = bytes_[:at] + broken + bytes_[at + self.random.randint(0, 2):]
        return kind, bytes_

    def step(self):
        method, path, item, operation = self.random.choice(self.routes)
        target, query, fields = path, [], {}
        for parameter in map(self.resolved, item.get("parameters", []) + operation.get("parameters", [])):
            example = parameter.get("example", parameter.get("schema", {}).get("example"))
            made = example if example is not None and self.random.random() < 0.5 else self.value(parameter.get("schema", {}))
            text = made if isinstance(made, str) else json.dumps(made)
            text = text[:6000]
            if parameter["in"] == "path":
                target = target.replace("{%s}" % parameter["name"], quote(text, safe="", errors="replace"))
            elif parameter["in"] == "query" and self.random.random() < (0.95 if parameter.get("required") else 0.4):
                # Nobody waits for long.
                query.append((parameter["name"], "1" if parameter["name"] in ("wait", "timeout") else text))
            elif parameter["in"] == "header" and self.random.random() < 0.5 and text.isascii() and text.isprintable():
                fields[parameter["name"]] = text
        if query:
            target += "?" + "&".join(f"{name}={quote(text, safe='', errors='replace')}" for name, text in query)
        body = None
        content = self.resolved(operation.get("requestBody", {})).get("content")
        if content:
            fields["Content-Type"], body = self.body(content)
        status, answer = self.send(method, target, body, fields)
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status >= 500 and status not in MEANT and path not in ("/readyz", "/health"):
            self.fault(f"{status} {method} {target[:300]} {body[:400] if body else ''} -> {answer[:300]}")

    def fault(self, text):
        self.faults.append(text)
        print("FAULT", text, flush=True)


def memory(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=10**9)
    parser.add_argument("--minutes", type=float, default=10**9)
    parser.add_argument("--pid", type=int)
    options = parser.parse_args()
    fuzzer = Fuzzer(options.port, options.seed)
    start = sampled = time.monotonic()
    count = 0
    while count < options.requests and time.monotonic() - start < options.minutes * 60:
        fuzzer.step()
        count += 1
        if count % 500 == 0 and (ready := fuzzer.send("GET", "/readyz"))[0] != 200:
            fuzzer.fault(f"not ready after {count} requests: {ready}")
        if options.pid and time.monotonic() - sampled >= 60:
            sampled = time.monotonic()
            print(f"{(sampled - start) / 60:.0f} min: {count} requests, {memory(options.pid)} kB", flush=True)
    print(f"{count} requests to {len(fuzzer.routes)} routes: {dict(sorted(fuzzer.statuses.items()))}")
    sys.exit(1 if fuzzer.faults else 0)


main()

"""Drives all routes of a running server with valid, boundary and broken input, as its /openapi.json describes them.

    python3 openapi_fuzz.py PORT [--seed N] [--requests N] [--minutes N] [--pipeline N] [--reuse SHARE] [--pid SERVER]
        [--tidy N]

A response with a status of 500 or more is a fault, unless the description of the route or HTTP means it (501: a condition on a
route without conditions), and so is a server that is not ready. With --pid the memory of the server is printed each minute.
With --pipeline so many requests are sent before their responses are read. With --reuse this share of requests is one of the last
20,000 again, half of them with a byte changed: ten times as many requests a second. With --tidy all users, webhooks, segments,
attributes and definitions are removed after each N requests, so that the server holds as much in the second hour as in the first. Requests
follow from the seed.
"""

import argparse
import json
import random
import socket
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


class Connection:
    """A connection with requests that are on their way."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.reader = self.socket.makefile("rb")

    def send(self, method, target, body, fields):
        lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", *(f"{name}: {text}" for name, text in fields.items())]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self.socket.sendall("\r\n".join(lines + ["", ""]).encode("latin-1") + (body or b""))

    def response(self):
        """The next response's status and body, or nothing once the server has closed the connection."""
        line, length, chunked = self.reader.readline(), 0, False
        if not line:
            return None
        while (field := self.reader.readline()) not in (b"\r\n", b""):
            name, _, text = field.partition(b":")
            if name.lower() == b"content-length":
                length = int(text)
            chunked |= name.lower() == b"transfer-encoding"
        status = int(line.split()[1])
        if status in (204, 304):
            return status, b""
        body = b"".join(self.chunks()) if chunked else self.reader.read(length)
        return status, body

    def chunks(self):
        # A stream ends without its last chunk where the server cannot go on with it: the user was erased by another client.
        while size := int(self.reader.readline() or "0", 16):
            yield self.reader.read(size)
            self.reader.readline()
        self.reader.readline()

    def close(self):
        self.reader.close()
        self.socket.close()


class Fuzzer:
    def __init__(self, port, seed, reuse=0):
        self.random = random.Random(seed)
        self.reuse = reuse
        self.made = []
        self.port = port
        self.connection = None
        self.unanswered = None
        self.document = json.loads(self.send([("GET", "/openapi.json", None, {})])[0][1])
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
        self.count = 0
        self.statuses = {}
        self.faults = []

    def send(self, requests):
        """The responses to requests, which are all on their way before the first is read."""
        responses = []
        while len(responses) < len(requests):
            self.connection = self.connection or Connection(self.port)
            before = len(responses)
            try:
                for request in requests[before:]:
                    self.connection.send(*request)
                while len(responses) < len(requests) and (response := self.connection.response()):
                    responses.append(response)
            except (ConnectionResetError, BrokenPipeError):
                pass
            if len(responses) < len(requests):
                # The server closes a connection after some errors; what came after is sent again.
                self.connection.close()
                self.connection = None
                if len(responses) == before and requests[before] == self.unanswered:
                    raise ConnectionError(f"no response to {requests[before]}")
                self.unanswered = requests[before] if len(responses) == before else None
        return responses

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

    def request(self):
        """A path of the description with a request of it."""
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
                # Few wait, and not for long.
                seconds = "1" if self.random.random() < 0.02 else "0"
                query.append((parameter["name"], seconds if parameter["name"] in ("wait", "timeout") else text))
            elif parameter["in"] == "header" and self.random.random() < 0.5 and text.isascii() and text.isprintable():
                fields[parameter["name"]] = text
        if query:
            target += "?" + "&".join(f"{name}={quote(text, safe='', errors='replace')}" for name, text in query)
        body = None
        content = self.resolved(operation.get("requestBody", {})).get("content")
        if content:
            fields["Content-Type"], body = self.body(content)
        return path, (method, target, body, fields)

    def changed(self, method, target, body, fields):
        """The request with another byte in its body, or in its target."""
        if body:
            at = self.random.randrange(len(body))
            return method, target, body[:at] + self.random.randbytes(1) + body[at + 1:], fields
        at = self.random.randrange(1, len(target) + 1)
        return method, target[:at] + self.random.choice("az09/%?&=-_.,") + target[at + 1:], body, fields

    def next(self):
        if self.made and self.random.random() < self.reuse:
            path, request = self.random.choice(self.made)
            return path, self.changed(*request) if self.random.random() < 0.5 else request
        made = self.request()
        if len(self.made) < 20_000:
            self.made.append(made)
        else:
            self.made[self.count % 20_000] = made
        return made

    def step(self, size):
        made = [self.next() for _ in range(size)]
        for (path, request), (status, answer) in zip(made, self.send([request for _, request in made])):
            self.count += 1
            self.statuses[status] = self.statuses.get(status, 0) + 1
            if status >= 500 and status not in MEANT and path not in ("/readyz", "/health"):
                self.fault(f"{status} {request[0]} {request[1][:300]} {(request[2] or b'')[:400]} -> {answer[:300]}")

    def tidy(self):
        """Removes what the requests have stored."""
        self.remove("/v1/profiles?format=json&limit=1000", "profiles", "user_id")
        self.remove("/v1/webhooks", "webhooks", "key")
        empty = {"version": "4", "accountId": "1", "projectId": "1", "revision": "1"}
        empty |= {name: [] for name in ("attributes", "audiences", "events", "groups", "experiments", "featureFlags", "rollouts")}
        for project in self.names("/v1/projects?limit=1000", "projects", "sdk_key"):
            fields = {"X-Optimizely-SDK-Key": project}
            self.send([("PUT", "/v1/datafile", json.dumps(empty).encode(), fields)])
            self.remove("/v1/metrics?limit=1000", "metrics", "key", fields)
        self.remove("/v1/projects?limit=1000", "projects", "sdk_key")
        self.remove("/v1/segments?limit=1000", "segments", "name")
        self.remove("/v1/attributes?limit=1000", "attributes", "name")

    def names(self, target, member, name, fields={}):
        status, body = self.send([("GET", target, None, fields)])[0]
        return [element[name] for element in json.loads(body)[member]] if status == 200 else []

    def remove(self, target, member, name, fields={}):
        """Deletes all elements of a list but those that the server keeps."""
        kept = set()
        while found := [each for each in self.names(target, member, name, fields) if each not in kept]:
            paths = [f"{target.partition('?')[0]}/{quote(each, safe='')}" for each in found]
            self.send([("DELETE", path, None, fields) for path in paths])
            kept.update(found)

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
    parser.add_argument("--pipeline", type=int, default=1)
    parser.add_argument("--reuse", type=float, default=0)
    parser.add_argument("--pid", type=int)
    parser.add_argument("--tidy", type=int, default=10**9)
    options = parser.parse_args()
    fuzzer = Fuzzer(options.port, options.seed, options.reuse)
    start = sampled = time.monotonic()
    asked = tidied = 0
    while fuzzer.count < options.requests and time.monotonic() - start < options.minutes * 60:
        fuzzer.step(options.pipeline)
        if fuzzer.count >= asked + 500:
            asked = fuzzer.count
            if (ready := fuzzer.send([("GET", "/readyz", None, {})])[0])[0] != 200:
                fuzzer.fault(f"not ready after {asked} requests: {ready}")
        if fuzzer.count >= tidied + options.tidy:
            tidied = fuzzer.count
            fuzzer.tidy()
        if options.pid and time.monotonic() - sampled >= 60:
            sampled = time.monotonic()
            print(f"{(sampled - start) / 60:.0f} min: {fuzzer.count} requests, {memory(options.pid)} kB", flush=True)
    print(f"{fuzzer.count} requests to {len(fuzzer.routes)} routes: {dict(sorted(fuzzer.statuses.items()))}")
    sys.exit(1 if fuzzer.faults else 0)


main()

"""Servers, a slow way between them, and clients. For `edge`."""

import asyncio
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import threading
import time
from collections import namedtuple

here = pathlib.Path(__file__).resolve().parent.parent
DATAFILE = ("--datafile", str(here / "datafile.json"))
FIELDS = "Host: localhost\r\nX-Optimizely-SDK-Key: benchmark\r\nContent-Type: application/json\r\n"


running = []


class Server:
    """A process of `holdfast serve`, which logs into the file DATABASE-log."""

    def __init__(self, holdfast, database, *arguments, address="127.0.0.1:0"):
        self.database = database
        path = f"{database}-log"
        log = open(path, "wb")
        self.process = subprocess.Popen(
            [holdfast, "serve", "--listen", address, "--database", database, "--log-format", "json", *arguments],
            env={**os.environ, "HOLDFAST_UPSTREAM_TOKEN": ""}, stdout=subprocess.DEVNULL, stderr=log)
        running.append(self)
        listening = wait_for(
            f"the server; see {path}",
            lambda: re.search(r'"message":"listening","address":"http://([^"]+)"', open(path).read()))
        self.address = listening[1]

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection(self.address, timeout=600)
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        content = response.read()
        connection.close()
        if response.status >= 300:
            raise SystemExit(f"{method} {path}: {response.status} {content[:300]}")
        return content

    def count(self, path):
        """The number of lines of a list."""
        return self.ask("GET", path).count(b"\n")

    def metric(self, name):
        value = re.search(rf"^{name} (.*)$", self.ask("GET", "/metrics").decode(), re.MULTILINE)
        return float(value[1]) if value else None

    def memory(self):
        """Resident MiB: all, anonymous, mapped pages of files."""
        status = open(f"/proc/{self.process.pid}/status").read()
        sizes = [re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)[1] for name in ["VmRSS", "RssAnon", "RssFile"]]
        return [int(size) / 1024 for size in sizes]

    def stop(self):
        self.process.terminate()
        self.process.wait()
        running.remove(self)


class Edge(Server):
    def __init__(self, holdfast, database, upstream, *arguments):
        super().__init__(holdfast, database, "--upstream", f"http://{upstream}", *arguments)

    def wait_until_complete(self, seconds=600):
        wait_for("a complete copy", lambda: self.metric("holdfast_edge_copy_complete"), seconds)

    def wait_until_sent(self, seconds=600):
        wait_for("an empty outbox", lambda: self.metric("holdfast_edge_outbox_events") == 0, seconds)


def stop_all():
    for server in list(running):
        server.stop()


def row(figure, measured, wanted="", reached=None):
    verdict = "" if reached is None else "yes" if reached else "no"
    print(f"| {figure} | {measured} | {wanted} | {verdict} |", flush=True)


def upstream_with(options, directory, users, name="user%d"):
    database = f"{directory}/upstream.db"
    fill(options.holdfast, database, users, name)
    return Server(options.holdfast, database, *DATAFILE)


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def wait_for(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.05)
    raise SystemExit(f"waited for {what} in vain")


def fill(holdfast, database, users, name="user%d"):
    """Imports users with three assignments each."""
    process = subprocess.Popen(
        [holdfast, "import", "--create", "--database", database], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    line = ('{"user_id":"' + name + '","experiment_bucket_map":{"10001":{"variation_id":"%d"},'
            '"10002":{"variation_id":"%d"},"7001":{"variation_id":"7001%d"}}}\n')
    for first in range(0, users, 10_000):
        process.stdin.write("".join(
            line % (i, 20000 + i % 97, 30000 + i % 89, 1 + i % 2) for i in range(first, min(users, first + 10_000))).encode())
    process.stdin.close()
    if process.wait() != 0:
        raise SystemExit("the import failed")


class DelayingProxy(threading.Thread):
    """Passes connections on to a server; what is sent arrives later, in both directions."""

    def __init__(self, target, seconds):
        super().__init__(daemon=True)
        self.target, self.seconds = target.split(":"), seconds
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.start()

    def run(self):
        asyncio.run(self.serve())

    async def serve(self):
        server = await asyncio.start_server(self.accept, sock=self.listener)
        await server.serve_forever()

    async def accept(self, reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.target)
        except OSError:
            return writer.close()
        await asyncio.gather(self.pass_on(reader, far_writer), self.pass_on(far_reader, writer))

    async def pass_on(self, reader, writer):
        later = asyncio.get_running_loop().call_later
        try:
            while piece := await reader.read(1 << 16):
                later(self.seconds, writer.write, piece)
        except OSError:
            pass
        later(self.seconds, writer.close)


def request(method, path, body=None):
    content = b"" if body is None else json.dumps(body).encode()
    return f"{method} {path} HTTP/1.1\r\n{FIELDS}Content-Length: {len(content)}\r\n\r\n".encode() + content


def decide(user, *decide_options):
    body = {"userId": user, "userAttributes": {"country": "us", "age": 32}, "decideOptions": decide_options}
    return request("POST", "/v1/decide?keys=checkout_flag", body)


def ask_all(address, requests, together=50):
    """Sends requests over one connection, some at once, and yields the responses: status and content."""
    yield from _ask(address, (requests[first:first + together] for first in range(0, len(requests), together)))


def ask_each(address, requests):
    """Sends each request once the one before is answered."""
    yield from _ask(address, ([one] for one in requests))


def _ask(address, batches):
    host, port = address.split(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    stream = connection.makefile("rb")
    for batch in batches:
        connection.sendall(b"".join(batch))
        for _ in batch:
            status, length = int(stream.readline().split()[1]), 0
            while (line := stream.readline()) != b"\r\n":
                if line[:15].lower() == b"content-length:":
                    length = int(line[15:])
            yield status, stream.read(length)
    stream.close()
    connection.close()


def variations(address, users, *decide_options):
    """Decides the flag for users: the key of each one's variation, and whether its assignment is stored."""
    decisions = []
    for status, content in ask_all(address, [decide(user, "INCLUDE_REASONS", *decide_options) for user in users]):
        if status != 200:
            raise SystemExit(f"a decision failed: {status} {content[:300]}")
        decision = json.loads(content)
        decisions.append((decision["variationKey"], not any("not stored" in reason for reason in decision["reasons"])))
    return decisions


# Requests per second, latencies in milliseconds.
Load = namedtuple("Load", "rate p50 p99 p999 longest requests failures")


class Wrk:
    """A run of wrk, which goes on until its result is asked for."""

    def __init__(self, address, kind, users, seconds, connections, threads=1, rate=None, padded=False):
        environment = {**os.environ, "RATE": str(rate or "")}
        self.process = subprocess.Popen(
            ["wrk", f"-t{threads}", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(here / "requests.lua"),
             f"http://{address}", "--", kind, str(users), "padded" if padded else ""],
            env=environment, stdout=subprocess.PIPE, text=True)

    def result(self):
        output, _ = self.process.communicate()
        rate, p99, p999, requests, failures = map(float, re.search(r"^RESULT (.*)$", output, re.MULTILINE)[1].split())
        p50, longest = map(float, re.search(r"^LATENCY (.*)$", output, re.MULTILINE)[1].split())
        return Load(rate, p50 / 1000, p99 / 1000, p999 / 1000, longest / 1000, int(requests), int(failures))

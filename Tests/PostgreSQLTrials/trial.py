"""What the trials of this folder share: a PostgreSQL server of their own, servers of Holdfast on it, and a client.

Everything that was started ends with the program.
"""

import atexit
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def free_port():
    """One that the kernel does not give to clients by itself, so that nobody has it after a restart."""
    for port in range(20_000 + os.getpid() % 9_000, 30_000):
        with socket.socket() as free:
            try:
                free.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise SystemExit("no port is free")


def work_directory(parent=None):
    """A directory that the user `postgres` can enter, and that is deleted at the end."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="holdfast-trial-", dir=parent))
    path.chmod(0o755)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def programs():
    """The folder of PostgreSQL's newest programs."""
    return max(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))


class PostgreSQL:
    """A server with durable commits and the settings of `postgresql-server`."""

    def __init__(self, directory, settings=(), workers=0):
        self.port = free_port()
        self.directory = pathlib.Path(directory) / "postgresql"
        self.process = subprocess.Popen(
            [ROOT / "Tests/PostgreSQLTestSupport/postgresql-server", self.directory, str(self.port), str(workers), *settings],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        atexit.register(self.stop)
        if self.process.stdout.readline().strip() != "ready":
            raise SystemExit("PostgreSQL did not start")

    def url(self, database="postgres"):
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def command(self, words):
        """One of the commands of `postgresql-server`."""
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        if self.process.stdout.readline().strip() != "done":
            raise SystemExit(f"PostgreSQL: {words} failed")

    def sql(self, statement, database="postgres"):
        """Rows of texts."""
        done = subprocess.run(
            [programs() / "psql", "-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-c", statement,
             self.url(database)], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{statement}: {done.stderr}")
        return [line.split("\t") for line in done.stdout.splitlines()]

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait()


class Holdfast:
    """A server, which is ready when this returns, unless `waits` is false."""

    def __init__(self, program, database, log, options=(), waits=True):
        self.log = pathlib.Path(log)
        with open(self.log, "ab") as output:
            start = output.tell()
            self.process = subprocess.Popen(
                [program, "serve", "--listen", "127.0.0.1:0", "--log-format", "json", *options],
                env={**os.environ, "HOLDFAST_DATABASE": database}, stdout=output, stderr=output)
        atexit.register(self.end, signal.SIGKILL)
        self.port = None
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            with open(self.log, "rb") as lines:
                lines.seek(start)
                found = re.search(rb'"message":"listening","address":"http://127.0.0.1:(\d+)"', lines.read())
            if found:
                self.port = int(found[1])
                break
            time.sleep(0.02)
        if waits and self.port is None:
            raise SystemExit(f"the server did not start: {self.log.read_text()[-2000:]}")
        while waits and Client(self.port).request("GET", "/readyz")[0] != 200:
            time.sleep(0.02)

    def memory(self):
        """Resident bytes."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def end(self, number=signal.SIGTERM):
        """The exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait()


class Client:
    """One connection, made again when it is lost."""

    def __init__(self, port, timeout=30):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def request(self, method, path, body=None):
        """The status and the parsed body; 0 and the error if there was no response."""
        try:
            self.connection.request(method, path, None if body is None else json.dumps(body))
            response = self.connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            return 0, repr(error)
        try:
            return response.status, json.loads(content) if content else None
        except ValueError:
            return response.status, content.decode()

    def close(self):
        self.connection.close()

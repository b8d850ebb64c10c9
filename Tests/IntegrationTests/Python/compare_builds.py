"""Drives two builds with the same random history of definitions, and compares all that they answer.

    python3 compare_builds.py HOLDFAST OTHER [--steps N] [--seed N] [--kills SHARE]

Steps are edits, uploads, restored versions, groups, holdouts, metrics, ramps, two projects with shared ids, and with --kills
both servers are killed before this share of the steps and started again. After each step the definitions in every form, the
datafiles, the last entries of the audit log and the decisions for some users must be equal. Times are not compared, and of a
refused request only the status.
"""

import argparse
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

# Times and ids of requests.
CHANCE = re.compile(r'(?<=At":)\d{13}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|(?<="request_id":")[^"]+')
PROJECTS = ["default", "stage"]


class Server:
    def __init__(self, program, directory):
        self.program, self.database = program, os.path.join(directory, "holdfast.db")
        self.start()

    def start(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [self.program, "serve", "--listen", f"127.0.0.1:{self.port}", "--database", self.database],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
                if self.ask("GET", "/readyz")[0] == 200:
                    return
            except OSError:
                time.sleep(0.05)
        raise SystemExit(f"{self.program} did not start")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def ask(self, method, path, body=None, project="default"):
        text = body if body is None or isinstance(body, str) else json.dumps(body)
        self.connection.request(method, path, text, {"X-Optimizely-SDK-Key": project})
        response = self.connection.getresponse()
        return response.status, response.read().decode()


def comparable(status, text):
    """What must be equal of a response."""
    if status >= 400:
        return status, None
    try:
        return status, json.loads(CHANCE.sub("0", text)) if text else None
    except ValueError:
        return status, CHANCE.sub("0", text)


def differences(one, other, place=""):
    """Where two answers differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from differences(one.get(key, "(none)"), other.get(key, "(none)"), f"{place}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, pair in enumerate(zip(one, other)):
            yield from differences(*pair, f"{place}/{index}")
    elif one != other:
        yield f"{place}: {json.dumps(one)[:400]} and {json.dumps(other)[:400]}"


class History:
    def __init__(self, seed):
        self.random = random.Random(seed)
        # The contents of former datafiles, by the project.
        self.former = {project: [] for project in PROJECTS}

    def request(self):
        choose, number = self.random.choice, self.random.randint(0, 100)
        project, key = choose(PROJECTS), f"e{self.random.randint(0, 7)}"
        audience = {"type": "custom_attribute", "name": "plan", "value": choose(["gold", "silver"])}
        # Otherwise ids are random, and with them the decisions.
        ids = {name: f"{place}{sum(name.encode()) * 1009 + ord(name[-1])}" for place in [PROJECTS.index(project) + 1]
               for name in [key, f"g{number % 4}", f"s{number % 4}", f"r{number % 2}f{number % 3}"]}
        experiment = {"id": ids[key], "variations": ["a", "b"], "traffic": number, "tags": [f"t{number % 5}"], "status": "running"}
        steps = [
            ("PUT", f"/v1/experiments/{key}", experiment),
            ("PUT", f"/v1/experiments/{key}", {"audience": choose([None, audience]), "description": f"d{number}"}),
            ("PUT", f"/v1/experiments/{key}", {"status": choose(["paused", "running"])}),
            ("PUT", f"/v1/experiments/{key}", {"enrollment": choose(["open", "closed"])}),
            ("PUT", f"/v1/experiments/{key}", {
                "metrics": {"primary": [f"m{number % 3}"]}, "ramp": choose([None, {"steps": [
                    {"traffic": 10, "for": "1d"}, {"traffic": 100}]}])}),
            ("POST", f"/v1/experiments/{key}/conclude", {"winner": choose(["a", "b", None]), "reason": f"r{number}"}),
            ("DELETE", f"/v1/experiments/{key}", None),
            ("PUT", f"/v1/experiments/g{number % 4}", {"id": ids[f"g{number % 4}"], "group": "g", "variations": ["a", "b"], "traffic": number % 25}),
            ("PUT", f"/v1/experiments/x{number % 3}?share=allow", {
                "id": f"70{number % 3}", "variations": [{"key": "a", "id": "7001"}, {"key": "b", "id": "7002"}]}),
            ("PUT", f"/v1/flags/f{number % 3}", {
                "type": "json", "variations": [{"key": "on", "value": {"size": number}}, {"key": "off", "value": {}}],
                "otherwise": "off",
                "rules": [{"key": f"r{number % 2}f{number % 3}", "audience": choose([None, audience]),
                           "experiment": {"id": ids[f"r{number % 2}f{number % 3}"], "weights": {"on": 1, "off": 1}, "traffic": number}},
                          {"key": "rest", "variation": "on", "traffic": number}]}),
            ("PUT", f"/v1/flags/f{number % 3}", {"enabled": choose([True, False])}),
            ("DELETE", f"/v1/flags/f{number % 3}", None),
            ("PUT", f"/v1/metrics/m{number % 3}", {"kind": "total", "goal": f"g{number}"}),
            ("PUT", f"/v1/holdouts/h{number % 3}", {"share": number % 20}),
            ("DELETE", f"/v1/holdouts/h{number % 3}", None),
            ("PUT", "/v1/segments/payers", {"conditions": audience}),
            ("PUT", "/v1/definitions", {"experiments": [
                {"key": name, "id": ids[name], "variations": ["a", "b"], "traffic": number} for name in [key, f"s{number % 4}"]]}),
        ]
        method, path, body = choose(steps)
        if self.former[project] and self.random.random() < 0.1:
            method, path, body = "PUT", "/v1/datafile", choose(self.former[project])
        if method == "PUT":
            path += ("&" if "?" in path else "?") + "moves=allow"
        return method, path, body, project


def views(users):
    """What is asked after each step."""
    for project in PROJECTS:
        for path in ["experiments", "flags", "metrics", "holdouts", "definitions", "segments"]:
            yield "GET", f"/v1/{path}", None, project
        yield "GET", f"/datafiles/{project}.json", None, project
        for user in users:
            attributes = {"plan": "gold"} if user.endswith("7") else {}
            yield "POST", "/v1/evaluations", {"user_id": user, "sdk_key": project, "attributes": attributes}, project
    yield "GET", "/v1/audit?limit=5", None, "default"


def await_step(servers, request):
    """Waits until a ramp has begun, unless it waits for the experiment."""
    _, path, _, project = request
    deadline = time.monotonic() + 3
    for server in servers:
        while time.monotonic() < deadline:
            ramp = json.loads(server.ask("GET", path.partition("?")[0], None, project)[1]).get("ramp")
            if not ramp or ramp["state"]["status"] != "waiting":
                break
            time.sleep(0.05)


def main():
    options = argparse.ArgumentParser(usage=__doc__)
    options.add_argument("builds", nargs=2)
    options.add_argument("--steps", type=int, default=300)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--kills", type=float, default=0)
    options = options.parse_args()
    history, done, compared = History(options.seed), {}, 0
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        servers = [Server(program, place) for program, place in zip(options.builds, (one, other))]

        def both(*request):
            nonlocal compared
            answers = [comparable(*server.ask(*request)) for server in servers]
            compared += 1
            # A ramp makes its step a moment later in one of the two.
            deadline = time.monotonic() + (5 if request[0] != "PUT" else 0)
            while answers[0] != answers[1] and time.monotonic() < deadline:
                time.sleep(0.1)
                answers = [comparable(*server.ask(*request)) for server in servers]
            if answers[0] != answers[1]:
                print(f"step {step}: {request} after {former}")
                sys.exit("\n".join(differences(*map(list, answers))))
            return answers[0]

        try:
            step, former = 0, None
            for project in PROJECTS:
                both("PUT", f"/v1/projects/{project}", {"name": project})
            for step in range(1, options.steps + 1):
                if history.random.random() < options.kills:
                    for server in servers:
                        server.kill()
                        server.start()
                request = history.request()
                status, _ = both(*request)
                former = request
                if isinstance(request[2], dict) and request[2].get("ramp") and status == 200:
                    await_step(servers, request)
                done[status] = done.get(status, 0) + 1
                for view in views([f"user{history.random.randint(0, 500)}" for _ in range(4)]):
                    both(*view)
                project = request[3]
                history.former[project].append(servers[0].ask("GET", f"/datafiles/{project}.json", None, project)[1])
                history.former[project] = history.former[project][-10:]
        finally:
            for server in servers:
                server.kill()
    print(f"{options.steps} steps ({done}), {compared} equal answers")


main()

"""A steady load of clients that own their users, so that each knows what every read must answer."""

import collections
import json
import random
import threading
import time
import urllib.request

from trial import Client

EXPERIMENTS = [str(number) for number in range(900, 906)]
# An expiry is rounded up, and a sweep takes its time.
ROUNDING = 90


class Load:
    """Eight clients, and one that changes definitions, until it is stopped."""

    def __init__(self, servers, rate, lifetime=86_400, seed=1):
        # Requests go to these in turn, as a load balancer sends them. May change while the load runs.
        self.ports = [server.port for server in servers]
        # What is going on, for the outcomes.
        self.phase = "load"
        self.outcomes, self.slowest = collections.Counter(), collections.Counter()
        self.failures, self.wrong = [], []
        self.changes = 0
        self.is_stopped = False
        for path, body in [
            ("/v1/experiments/checkout", {"id": "7001", "variations": ["control", "new"]}),
            ("/v1/attributes/age", {"type": "number"}),
        ]:
            status, answer = Client(self.ports[0]).request("PUT", path, body)
            if status not in (200, 201):
                raise SystemExit(f"{path}: {status} {answer}")
        # A server reads what another one defined when it is first asked.
        for port in self.ports:
            Client(port).request("GET", "/v1/experiments/checkout")
        self.clients = [Users(self, f"w{number}", lifetime, seed) for number in range(8)]
        self.threads = [
            threading.Thread(target=client.work, args=[rate / len(self.clients)], daemon=True) for client in self.clients]
        self.threads.append(threading.Thread(target=self.change_definitions, daemon=True))
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.is_stopped = True
        for thread in self.threads:
            thread.join()

    def failed(self, what, status, body):
        self.outcomes[f"{self.phase}: not served"] += 1
        self.failures.append(what)
        print(f"{time.strftime('%T')} {self.phase}: {what}: {status} {body}", flush=True)

    def change_definitions(self):
        """Weights and flags change through the servers in turn, and another server soon says so."""
        while not self.is_stopped:
            time.sleep(5)
            self.changes += 1
            number, ports = self.changes, list(self.ports)
            flag = f"/v1/flags/flag{number % 5}"
            client, other = Client(ports[number % len(ports)]), Client(ports[(number + 1) % len(ports)])
            status, body = client.request("PUT", "/v1/experiments/checkout", {
                "variations": [{"key": "control", "weight": 1 + number % 3}, {"key": "new", "weight": 1}]})
            if status == 200:
                status, body = client.request("PUT", flag, {
                    "type": "integer", "enabled": number % 2 == 0,
                    "variations": [{"key": "a", "value": number}, {"key": "b", "value": number + 1}], "otherwise": "a"})
            if status not in (200, 201):
                self.failed("change of definitions", status, body)
                continue
            begin = time.monotonic()
            while True:
                status, body = other.request("GET", flag)
                if status == 200 and body["variations"][0]["value"] == number:
                    break
                if time.monotonic() > begin + 10:
                    self.failed(f"change {number} did not reach the other server", status, body)
                    break
                time.sleep(0.01)
            name = f"{self.phase}: definition known elsewhere"
            self.slowest[name] = max(self.slowest[name], time.monotonic() - begin)

    def check(self, servers):
        """Reads everything through each server, and says what differs from what was acknowledged."""
        self.phase = "check"
        for server in servers:
            client = Client(server.port)
            for users in self.clients:
                for number in range(users.count):
                    user, before = f"{users.name}-{number}", time.time()
                    users.compare(user, before, *client.request("GET", f"/v1/profiles/{user}"))
        unknown = sum(len(users.unknown) for users in self.clients)
        exposed = sum(len(users.exposed) for users in self.clients)
        goals = sum(sum(users.goals.values()) for users in self.clients)
        results = Client(servers[0].port).request("GET", "/v1/experiments/checkout/results?goal=purchase")[1]
        counted = sum(arm["users"] + arm["multiple_variations"] + arm["forced"] for arm in results["variations"])
        stored = after = 0
        while lines := exported(servers[-1], after):
            stored += len(lines)
            after = lines[-1]["cursor"]
        print(f"users exposed: {counted} in results, {exposed} acknowledged; goals: {stored} exported, {goals} "
              f"acknowledged; {unknown} users of unknown outcome; {self.changes} changes of definitions")
        # Of a user without a response more may be stored than was acknowledged, and after an erasure less.
        if not unknown and (counted != exposed or stored != goals):
            self.wrong.append("results or events differ from what was acknowledged")
        print(", ".join(f"{name} {count}" for name, count in self.outcomes.items()))
        print("slowest: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in self.slowest.items()))
        for problem in self.wrong[:20]:
            print("WRONG:", problem)


def exported(server, after):
    """The next goal events after a cursor."""
    address = f"http://127.0.0.1:{server.port}/v1/events?after={after}&limit=1000"
    with urllib.request.urlopen(address) as response:
        return [json.loads(line) for line in response]


class Users:
    """One client, its users, and what was acknowledged about them."""

    def __init__(self, load, name, lifetime, seed):
        self.load, self.name, self.lifetime = load, name, lifetime
        self.random = random.Random(f"{name} {seed}")
        self.count = 500
        # By user: the variation and the time of the last save by experiment.
        self.profiles = collections.defaultdict(dict)
        # What was acknowledged since the user was erased.
        self.exposed, self.goals = set(), collections.Counter()
        # A request about these had no response: nothing is known of them.
        self.unknown = set()
        self.connections = {}
        self.sequence = 0

    def work(self, rate):
        """Sends requests at a steady rate."""
        due = time.monotonic()
        while not self.load.is_stopped:
            due += self.random.expovariate(rate)
            if (pause := due - time.monotonic()) > 0:
                time.sleep(pause)
            self.step()

    def request(self, *request):
        """Sends a request to the next server."""
        self.sequence += 1
        ports = self.load.ports
        port = ports[self.sequence % len(ports)]
        begin = time.monotonic()
        if port not in self.connections:
            self.connections[port] = Client(port)
        answer = self.connections[port].request(*request)
        took, slowest = time.monotonic() - begin, self.load.slowest
        slowest[self.load.phase] = max(slowest[self.load.phase], took)
        return answer

    def succeeds(self, user, what, *request):
        """The body of the response, `None` if the request failed: then nothing is known of the user any more."""
        status, body = self.request(*request)
        self.load.outcomes[f"{self.load.phase}: {what}"] += 1
        # Nothing to erase is as good.
        if status in (200, 201, 204) or (status == 404 and request[0] == "DELETE"):
            return body if body is not None else {}
        self.unknown.add(user)
        self.load.failed(f"{what} of {user}", status, body)
        return None

    def step(self):
        # Most requests are about few users.
        user = f"{self.name}-{int(self.count * self.random.random() ** 2)}"
        kind, before = self.random.random(), time.time()
        if kind < 0.45:
            self.load.outcomes[f"{self.load.phase}: reads"] += 1
            self.compare(user, before, *self.request("GET", f"/v1/profiles/{user}"))
        elif kind < 0.70:
            map = {key: str(self.random.randrange(10**6)) for key in self.random.sample(EXPERIMENTS, 2)}
            self.succeeds(user, "saves", "POST", "/ups/save", {
                "user_id": user, "experiment_bucket_map": {key: {"variation_id": value} for key, value in map.items()}})
            self.profiles[user].update({key: (value, before) for key, value in map.items()})
        elif kind < 0.82:
            self.visit(user, before)
        elif kind < 0.94:
            event = {"id": f"{self.name}-{self.sequence}", "user_id": user, "goal": "purchase",
                     "value": self.sequence % 90 + 10}
            # A repeated event counts once.
            sent = [self.succeeds(user, "goals", "POST", "/v1/events", event) for _ in range(1 + (kind > 0.93))]
            self.goals[user] += sent[0] is not None
        elif kind < 0.97:
            self.succeeds(
                user, "attributes", "PATCH", f"/v1/profiles/{user}/attributes", {"age": self.random.randrange(99)})
        elif kind < 0.98:
            if self.succeeds(user, "erasures", "DELETE", f"/v1/profiles/{user}") is not None:
                self.unknown.discard(user)
            self.profiles.pop(user, None)
            self.exposed.discard(user)
            self.goals.pop(user, None)
        else:
            # The population grows.
            self.count += 1

    def visit(self, user, before):
        """Assigns, and tells that the user saw the variation."""
        request = {"user_id": user, "experiment": "checkout"}
        answer = self.succeeds(user, "assigns", "POST", "/v1/assign", request)
        if answer is None:
            return
        variation = answer["variation_id"]
        known = self.expected(user, before)[0].get("7001")
        if user not in self.unknown and known is not None and known != variation:
            self.load.wrong.append(f"{user} had {known} and was moved to {variation}")
        if answer["source"] != "stored":
            self.profiles[user]["7001"] = (variation, before)
        elif known is None:
            # It expires about now. If it does before the exposure arrives, that enrolls the user anew.
            return
        if self.succeeds(user, "exposures", "POST", "/v1/exposures", {**request, "variation_id": variation}) is not None:
            self.exposed.add(user)

    def expected(self, user, now):
        """What must be there, and what may be there in addition."""
        must, may = {}, {}
        for experiment, (variation, saved) in self.profiles[user].items():
            if now < saved + self.lifetime - 5:
                must[experiment] = variation
            elif now < saved + self.lifetime + ROUNDING:
                may[experiment] = variation
        return must, may

    def compare(self, user, before, status, body):
        """Compares a profile that was read at a time or later with what was acknowledged."""
        if status not in (200, 404):
            return self.load.failed(f"read of {user}", status, body)
        found = {} if status == 404 else {
            experiment: value["variation_id"] for experiment, value in body["experiment_bucket_map"].items()}
        must, may = self.expected(user, before)
        is_whole = all(found.get(key) == value for key, value in must.items()) and found.items() <= (must | may).items()
        if user not in self.unknown and not is_whole:
            self.load.wrong.append(f"{user}: {found} was read, {must} was acknowledged, {may} may not have expired")

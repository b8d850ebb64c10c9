"""Runs the manual's examples in Python against a server that is killed: sticky_buckets.py, statsig_storage.py and shop.py, which are in PYTHONPATH.

usage: killed_server.py HOLDFAST DIRECTORY
"""
import contextlib
import io
import json
import logging
import pathlib
import subprocess
import sys
import threading
import time
from urllib.request import Request, urlopen

from growthbook import GrowthBook
from openfeature import api
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
from statsig_python_core import ExperimentEvaluationOptions, Statsig, StatsigOptions, StatsigUser
from statsig_sticky import Configurations
from statsig_storage import HoldfastPersistentStorage
from sticky_buckets import HoldfastStickyBuckets

HOLDFAST, DIRECTORY = sys.argv[1:]
logging.disable(logging.CRITICAL)


def expect(what, condition):
    if not condition:
        sys.exit(f"not so: {what}")


class Server:
    port = 0

    def __init__(self):
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [HOLDFAST, "serve", "--listen", f"127.0.0.1:{self.port}", "--database", f"{DIRECTORY}/h.db", "--log-format", "json"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for line in self.process.stderr:
            if '"listening"' in line:
                self.port = int(json.loads(line)["address"].rsplit(":", 1)[1])
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        sys.exit("the server does not start")

    def kill(self):
        self.process.kill()
        self.process.wait()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def __call__(self, method, path, body=None):
        request = Request(self.url + path, body and json.dumps(body).encode(), method=method)
        with urlopen(request, timeout=60) as response:
            return json.load(response)


def growthbook(server):
    def value(weights, user="ann"):
        rule = {"key": "checkout", "variations": ["old", "new"], "weights": weights, "meta": [{"key": "control"}, {"key": "new"}]}
        shop = GrowthBook(
            attributes={"id": user}, features={"checkout": {"defaultValue": "old", "rules": [rule]}},
            sticky_bucket_service=HoldfastStickyBuckets(server.url))
        return shop.get_feature_value("checkout", "old")

    expect("a bucket is kept", value([0, 1]) == "new" and value([1, 0]) == "new")
    server.kill()
    expect("the SDK decides by itself", value([1, 0]) == "old" and value([0, 1], "bob") == "new")
    server.start()
    expect("nothing stored was overwritten", value([1, 0]) == "new")


def statsig(server):
    storage = HoldfastPersistentStorage(server.url, "none")

    def color(share, user="ann"):
        sdk = Statsig("secret-key", StatsigOptions(
            data_store=Configurations(share), persistent_storage=storage, disable_network=True, disable_all_logging=True))
        sdk.initialize().wait()
        person = StatsigUser(user_id=user)
        options = ExperimentEvaluationOptions(user_persisted_values=storage.get_user_persisted_value(person, "userID"))
        found = sdk.get_experiment(person, "pricing", options).value.get("color")
        sdk.shutdown().wait()
        return found

    expect("a group is kept", color(1000) == color(0) == "red")
    server.kill()
    expect("the SDK decides by itself", color(0) == "blue" and color(1000, "bob") == "red")
    storage.delete("ann:userID", "pricing")
    server.start()
    expect("nothing stored was overwritten", color(0) == "red")


def optimizely(server):
    experiment = {
        "id": "7001", "key": "checkout", "layerId": "1", "status": "Running", "audienceIds": [], "forcedVariations": {},
        "variations": [{"id": "70011", "key": "control"}, {"id": "70012", "key": "new"}],
        "trafficAllocation": [{"entityId": "70011", "endOfRange": 5000}, {"entityId": "70012", "endOfRange": 10000}]}
    server("PUT", "/v1/datafile", {
        "version": "4", "projectId": "1", "accountId": "1", "revision": "1", "sdkKey": "shop", "anonymizeIP": True,
        "botFiltering": False, "experiments": [experiment], "events": [{"id": "601", "key": "purchase", "experimentIds": ["7001"]}],
        "featureFlags": [], "audiences": [], "attributes": [], "groups": [], "rollouts": [], "variables": []})
    text = pathlib.Path(DIRECTORY, "shop.py").read_text().replace("http://localhost:8080", server.url)
    # The app has its datafile and has decided; then the server is killed before anything is sent.
    beginning, end = text.split("client.track(", 1)
    beginning = beginning.replace('for user in ["ann", "bob", "cy"]:', 'for user in ["ann", "bob", "cy"]:\n    kill(user)')
    scope = {"kill": lambda user: server.kill() if user == "bob" else None, "__name__": "shop"}
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(beginning, scope)
    decided = dict(line.split() for line in output.getvalue().splitlines())
    expect(f"everybody gets a variation: {decided}", set(decided) == {"ann", "bob", "cy"} and None not in decided.values())
    # It comes back only while the app is ending.
    closing = threading.Thread(target=lambda: exec("client.track(" + end, scope))
    closing.start()
    time.sleep(1)
    expect("the app waits for the server", closing.is_alive())
    server.start()
    closing.join(timeout=120)
    expect("and then ends", not closing.is_alive())
    for user in decided:
        exposures = server("GET", f"/v1/profiles/{user}/exposures")["exposures"]
        expect(f"the exposure of {user} is kept: {exposures}", [e["variation_id"] for e in exposures] == [{"control": "70011", "new": "70012"}[decided[user]]])
    expect("the goal is kept", [e["goal"] for e in server("GET", "/v1/profiles/ann/events")["events"]] == ["purchase"])


def openfeature(server):
    server("PUT", "/v1/flags/dark", {"type": "boolean", "rules": [{"variation": "on"}]})
    api.set_provider(OFREPProvider(base_url=server.url))
    client, ann = api.get_client(), EvaluationContext("ann")
    expect("a flag", client.get_boolean_value("dark", False, ann) is True)
    server.kill()
    for default in (False, True):
        expect("the default", client.get_boolean_value("dark", default, ann) is default)
    server.start()
    expect("a flag again", client.get_boolean_value("dark", False, ann) is True)


def main():
    server = Server()
    for example in (growthbook, statsig, optimizely, openfeature):
        example(server)
    server.kill()


main()

"""Drives the public libraries of Segment and RudderStack with a server that asks for tokens.

Usage: segment_libraries.py URL URL ADMIN CLIENT READ
"""

import json
import sys
import urllib.request

from rudderstack.analytics.client import Client as RudderClient
from segment.analytics.client import Client as SegmentClient

URL, _, ADMIN, CLIENT, READ = sys.argv[1:]
USERS = [f"user {number}" for number in range(40)]


def call(method, path, body=None, secret=ADMIN):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, {"Authorization": f"Bearer {secret}"}, method=method)
    with urllib.request.urlopen(request) as response:
        return json.loads(response.read())


def expect(what, condition):
    if not condition:
        sys.exit(f"not so: {what}")


call("PUT", "/v1/experiments/checkout", {"variations": ["control", "new"]})
failures = []
options = {"host": f"{URL}/segment/", "on_error": lambda error, batch: failures.append(error)}
clients = [SegmentClient(CLIENT, gzip=True, **options), RudderClient(CLIENT, **options)]
for number, user in enumerate(USERS):
    client = clients[number % 2]
    variation = "new" if number % 4 < 2 else "control"
    client.identify(user, {"plan": "pro"})
    view = {"experiment_id": "checkout", "experiment_name": "Checkout", "variation_id": variation}
    client.track(user, "Experiment Viewed", view)
    if variation == "new":
        client.track(user, "Order Completed", {"revenue": 49.5, "currency": "EUR"})
for client in clients:
    client.flush()
    client.join()
expect(f"no failure: {failures}", not failures)

results = call("GET", "/v1/experiments/checkout/results?goal=Order%20Completed", secret=READ)
found = {one["variation_key"]: (one["users"], one["events"], one["value"]["mean"]) for one in results["variations"]}
expect(f"all views and orders count once: {found}", found == {"control": (20, 0, 0), "new": (20, 20, 49.5)})

failures.clear()
refused = SegmentClient("not the secret of a token", max_retries=0, **options)
refused.track("user", "goal")
refused.flush()
refused.join()
expect(f"another write key is refused: {failures}", [error.status for error in failures] == [401])

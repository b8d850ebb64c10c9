"""Asks the public optimizely-sdk for flags of contextual bandits, with the datafile and the predictions of a running
Holdfast.

Usage: bandit_sdk.py URL
"""

import json
import logging
import sys
import urllib.request

from optimizely import optimizely
from optimizely.helpers.sdk_settings import OptimizelySdkSettings

from sticky_sdk import NoEvents

URL = sys.argv[1]
USERS = [f"user-{number}" for number in range(200)]


def send(method, path, body=None, **fields):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, {"Content-Type": "application/json", **fields}, method=method)
    with urllib.request.urlopen(request, timeout=20) as response:
        return json.load(response)


def define(**members):
    send("PUT", "/v1/experiments/checkout", {
        "id": "7", "variations": ["a", "b", "c"], "metrics": {"primary": ["bought"]}, **members})


def by_sdk(users):
    """Without a profile service: what is sticky is on the server."""
    sdk = optimizely.Optimizely(
        json.dumps(send("GET", "/datafiles/default.json")), event_processor=NoEvents(), skip_json_validation=True,
        settings=OptimizelySdkSettings(odp_disabled=True, cmab_prediction_endpoint=URL + "/predict/{}"))
    assert sdk.is_valid
    return {user: sdk.create_user_context(user).decide("checkout").variation_key for user in users}


def by_holdfast(users):
    field = {"X-Optimizely-SDK-Key": "default"}
    return {user: send("POST", "/v1/decide?keys=checkout", {"userId": user}, **field)["variationKey"] or None
            for user in users}


logging.disable(logging.CRITICAL)
send("PUT", "/v1/metrics/bought", {"kind": "conversion", "goal": "buy"})
define(traffic=60, bandit={"predict": True})
first = by_sdk(USERS[:100])
assert set(first.values()) == {"a", "b", "c", None}, first
assert by_holdfast(USERS[:100]) == first
second = by_holdfast(USERS[100:])
assert set(second.values()) == {"a", "b", "c", None}, second
assert by_sdk(USERS[100:]) == second
# Whoever takes part keeps their variation when the weights change.
define(variations=[{"key": "a", "weight": 98}, {"key": "b", "weight": 1}, {"key": "c", "weight": 1}])
assert by_sdk(USERS) == {**first, **second}
newcomers = by_sdk([f"new-{number}" for number in range(100)])
assert list(newcomers.values()).count("a") > 45, newcomers
define(enrollment="closed")
assert by_holdfast(USERS) == {**first, **second}
# The SDK alone cannot know who takes part once nobody is admitted.
assert set(by_sdk(["late"]).values()) == {None}

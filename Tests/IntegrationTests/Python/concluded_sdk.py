"""Asks the public optimizely-sdk, with the datafile and the profiles of a running Holdfast, before and after a conclusion.

Usage: concluded_sdk.py URL
"""

import json
import logging
import sys
import urllib.request

from optimizely import optimizely

from sticky_sdk import HoldfastProfiles, NoEvents

URL = sys.argv[1]
USERS = [f"user-{number}" for number in range(40)]


def send(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=20) as response:
        return response.read().decode()


def variations(users):
    """What the SDK gives each user who asks for the experiment, activates it, and asks for its flag."""
    sdk = optimizely.Optimizely(
        send("GET", "/datafiles/default.json"), user_profile_service=HoldfastProfiles(URL), event_processor=NoEvents(),
        skip_json_validation=True)
    assert sdk.is_valid
    return {user: {sdk.get_variation("checkout", user), sdk.activate("checkout", user),
                   sdk.create_user_context(user).decide("checkout").variation_key} for user in users}


def stored():
    return {user: json.loads(send("GET", f"/v1/profiles/{user}"))["experiment_bucket_map"]["7"] for user in USERS}


logging.disable(logging.CRITICAL)
send("PUT", "/v1/experiments/checkout", {"id": "7", "variations": ["control", "new"], "group": "page", "traffic": 100})
before, profiles = variations(USERS), stored()
assert set().union(*before.values()) == {"control", "new"}
send("POST", "/v1/experiments/checkout/conclude", {"winner": "new"})
assert all(found == {"new"} for found in variations([*USERS, "newcomer"]).values())
assert stored() == profiles
send("POST", "/v1/experiments/checkout/reopen")
assert variations(USERS) == before
send("POST", "/v1/experiments/checkout/conclude", {"winner": None})
assert all(found == {None} for found in variations(USERS).values())

"""Asks the public optimizely-sdk, with the datafile of a running Holdfast, who is held out, and compares the answers.

Usage: holdout_sdk.py URL
"""

import json
import logging
import sys
import urllib.request

from optimizely import optimizely

from sticky_sdk import NoEvents

URL = sys.argv[1]
USERS = [f"user-{number}" for number in range(300)]


def send(method, path, body=None, **fields):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, {"Content-Type": "application/json", **fields}, method=method)
    with urllib.request.urlopen(request, timeout=20) as response:
        return response.read().decode()


def decisions():
    """The variations that the SDK and Holdfast give each user, by flag."""
    sdk = optimizely.Optimizely(
        send("GET", "/datafiles/default.json"), event_processor=NoEvents(), skip_json_validation=True)
    assert sdk.is_valid
    found = {}
    for user in USERS:
        own = json.loads(send("POST", "/v1/decide", {"userId": user, "decideOptions": ["IGNORE_USER_PROFILE_SERVICE"]},
                              **{"X-Optimizely-SDK-Key": "default"}))
        theirs = sdk.create_user_context(user).decide_all()
        for decision in own:
            key, variation = decision["flagKey"], decision["variationKey"] or None
            assert theirs[key].variation_key == variation, (user, key, theirs[key].variation_key, variation)
            assert theirs[key].enabled == decision["enabled"], (user, key)
            found.setdefault(key, {})[user] = variation
    return found


def held(found, key):
    return {user for user, variation in found[key].items() if variation == "off"}


logging.disable(logging.CRITICAL)
for key in ("first", "second", "third"):
    send("PUT", f"/v1/experiments/{key}", {"variations": ["a", "b"]})
send("PUT", "/v1/holdouts/everything?moves=allow", {"share": 20})
found = decisions()
everything = held(found, "first")
assert 30 < len(everything) < 90, len(everything)
assert held(found, "second") == everything
send("PUT", "/v1/holdouts/some?moves=allow", {"share": 30, "flags": ["first", "third"]})
found = decisions()
assert held(found, "second") == everything
some = held(found, "first")
assert some > everything
send("POST", "/v1/experiments/first/conclude", {"winner": "b"})
found = decisions()
assert held(found, "first") == some
assert set(found["first"].values()) == {"off", "b"}
assert held(found, "third") == some
send("PUT", "/v1/holdouts/everything", {"status": "paused"})
assert held(decisions(), "second") == set()

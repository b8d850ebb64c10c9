"""Drives the public OpenFeature SDK with its OFREP provider against two Holdfast servers on one database.

Usage: openfeature_provider.py URL OTHER_URL ADMIN_SECRET CLIENT_SECRET READ_SECRET
"""

import sys
import time

import requests
from openfeature import api
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import Reason

USERS = [f"user-{number}" for number in range(40)]


def flag(number, key, kind, value):
    variable = {"id": f"v{number}", "key": "value", "type": kind, "defaultValue": value}
    return {"id": f"f{number}", "key": key, "rolloutId": f"r{number}", "experimentIds": [], "variables": [variable]}


def rollout(number, audiences=()):
    rule = {
        "id": f"r{number}x", "key": f"r{number}x", "layerId": f"r{number}", "status": "Running",
        "audienceIds": list(audiences), "forcedVariations": {},
        "variations": [{"id": f"r{number}v", "key": "on", "featureEnabled": True, "variables": []}],
        "trafficAllocation": [{"entityId": f"r{number}v", "endOfRange": 10000}],
    }
    return {"id": f"r{number}", "experiments": [rule]}


FLAGS = [
    ("switch", "boolean", "true"), ("word", "string", "blue"), ("count", "integer", "7"), ("rate", "double", "2"),
    ("shape", "json", '{"a": [1, 2.5]}'),
]


def datafile(revision, split):
    flags = [flag(number, *parts) for number, parts in enumerate(FLAGS)]
    flags.append({"id": "f8", "key": "off", "rolloutId": "", "experimentIds": [], "variables": []})
    flags.append({"id": "f9", "key": "german", "rolloutId": "r9", "experimentIds": [], "variables": []})
    flags.append({"id": "f10", "key": "tested", "rolloutId": "", "experimentIds": ["7"], "variables": []})
    german = {"type": "custom_attribute", "match": "exact", "name": "country", "value": "de"}
    return {
        "version": "4", "accountId": "1", "projectId": "1", "revision": str(revision), "sdkKey": "shop", "events": [],
        "groups": [], "attributes": [{"id": "501", "key": "country"}], "audiences": [],
        "typedAudiences": [{"id": "601", "name": "Germans", "conditions": ["and", german]}],
        "experiments": [{
            "id": "7", "key": "test", "layerId": "8", "status": "Running", "audienceIds": [], "forcedVariations": {},
            "variations": [
                {"id": "71", "key": "a", "featureEnabled": False}, {"id": "72", "key": "b", "featureEnabled": True},
            ],
            "trafficAllocation": [{"entityId": "71", "endOfRange": split}, {"entityId": "72", "endOfRange": 10000}],
        }],
        "featureFlags": flags,
        "rollouts": [rollout(number) for number in range(len(FLAGS))] + [rollout(9, ["601"])],
    }


def client(url, domain, **headers):
    api.set_provider(OFREPProvider(url, headers_factory=lambda: headers, timeout=20), domain)
    return api.get_client(domain)


def main():
    url, other, admin, client_secret, read_secret = sys.argv[1:]
    as_admin = {"Authorization": "Bearer " + admin}

    def put(revision, split=5000):
        answer = requests.put(url + "/v1/datafile", json=datafile(revision, split), headers=as_admin)
        assert answer.status_code in (200, 201), answer.text

    put(1)
    deadline = time.monotonic() + 60
    while requests.get(other + "/datafiles/shop.json", headers=as_admin).status_code != 200:
        assert time.monotonic() < deadline, "the other server has no datafile"
        time.sleep(0.02)
    bearer = client(url, "bearer", Authorization="Bearer " + client_secret)
    key = client(other, "key", **{"X-API-Key": client_secret})
    ann = EvaluationContext("ann")

    # Every type.
    for sdk in [bearer, key]:
        details = sdk.get_boolean_details("switch", False, ann)
        assert details.value is True and details.variant == "on" and details.reason == Reason.STATIC, details
        assert details.error_code is None and details.flag_metadata["holdfastReason"] == "default", details
        assert sdk.get_string_value("word", "", ann) == "blue"
        count = sdk.get_integer_details("count", 0, ann)
        assert count.value == 7 and type(count.value) is int, count
        rate = sdk.get_float_details("rate", 0.0, ann)
        assert rate.value == 2.0 and type(rate.value) is float, rate
        assert sdk.get_object_value("shape", {}, ann) == {"a": [1, 2.5]}

    # Every reason.
    german = bearer.get_boolean_details("german", False, EvaluationContext("ann", {"country": "de"}))
    assert german.value is True and german.reason == Reason.TARGETING_MATCH, german
    off = bearer.get_boolean_details("off", True, ann)
    assert off.value is True and off.reason == Reason.DISABLED and off.variant == "", off
    tested = bearer.get_boolean_details("tested", False, ann)
    assert tested.reason == Reason.SPLIT and tested.flag_metadata["experimentId"] == "7", tested

    # Every error.
    def code(details):
        assert details.error_message, details
        return details.error_code

    assert code(bearer.get_boolean_details("nope", True, ann)) == ErrorCode.FLAG_NOT_FOUND
    assert code(bearer.get_boolean_details("switch", True)) == ErrorCode.TARGETING_KEY_MISSING
    long = EvaluationContext("ann", {"text": "x" * 5000})
    assert bearer.get_boolean_details("switch", True, long).error_code is None
    assert code(bearer.get_boolean_details("word", True, ann)) == ErrorCode.TYPE_MISMATCH
    nobody = client(url, "nobody")
    assert code(nobody.get_boolean_details("switch", True, ann)) == ErrorCode.GENERAL
    reader = client(url, "reader", Authorization="Bearer " + read_secret)
    assert code(reader.get_boolean_details("switch", True, ann)) == ErrorCode.GENERAL
    broken = requests.post(url + "/ofrep/v1/evaluate/flags/switch", data="{", headers={"X-API-Key": client_secret})
    assert broken.status_code == 400 and broken.json()["errorCode"] == "PARSE_ERROR", broken.text

    # Sticky: through both servers, across a change of the weights.
    def variants(sdk):
        return {user: sdk.get_boolean_details("tested", False, EvaluationContext(user)).variant for user in USERS}

    first = variants(bearer)
    assert set(first.values()) == {"a", "b"}, first
    assert variants(key) == first
    put(2, split=10000)
    assert variants(bearer) == first
    assert variants(key) == first
    assert bearer.get_boolean_details("tested", True, EvaluationContext("new-user")).variant == "a"

    # The evaluations were recorded as exposures.
    exposed = set()
    while not set(USERS) <= exposed:
        lines = requests.get(url + "/v1/exposures?format=json&limit=1000", headers=as_admin).json()["exposures"]
        exposed = {line["user_id"] for line in lines}

    # The Agent's and the native API decide alike.
    for user in USERS:
        agent = requests.post(
            url + "/v1/decide?keys=tested", json={"userId": user}, headers=as_admin | {"X-Optimizely-SDK-Key": "shop"}
        ).json()
        native = requests.post(
            other + "/v1/evaluations", json={"user_id": user, "flag_keys": ["tested"]}, headers=as_admin
        ).json()["evaluations"][0]
        assert agent["variationKey"] == native["variation_key"] == first[user], user


if __name__ == "__main__":
    main()

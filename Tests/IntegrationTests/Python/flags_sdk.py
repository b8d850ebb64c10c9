"""Decides flags that were made over the API by the public optimizely-sdk, and compares with a running Holdfast.

Usage: flags_sdk.py URL

Makes flags of all types and experiments, in several states, over `/v1/flags` and `/v1/experiments`. In each state every
user is decided by the SDK, with the downloaded datafile and Holdfast as User Profile Service, and by `/v1/decide` and
`/v1/evaluations`. Prints how many decisions were compared, and each that differs.
"""

import json
import logging
import sys
import urllib.request

from optimizely import optimizely

from sticky_sdk import HoldfastProfiles, NoEvents

SDK_KEY = {"X-Optimizely-SDK-Key": "default"}


def call(method, path, body=None, headers=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        URL + path, data, {"Content-Type": "application/json", **(headers or {})}, method=method
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        content = answer.read()
    return json.loads(content) if content else None


def condition(name, value, match="exact"):
    return {"type": "custom_attribute", "name": name, "match": match, "value": value}


STAFF = condition("staff", True)
GERMANS = ["or", condition("country", "de"), condition("country", "at")]
NOT_OLD = ["not", condition("age", 60, "ge")]

STATES = [
    [
        (
            "flags/greeting",
            {
                "type": "string",
                "variations": [{"key": k, "value": v} for k, v in [("short", "Hi"), ("long", "Good day"), ("none", "")]],
                "rules": [
                    {"audience": STAFF, "variation": "none"},
                    {"key": "greeting_test", "audience": GERMANS, "experiment": {"weights": {"short": 1, "long": 2}}},
                    {"audience": NOT_OLD, "variation": "long", "traffic": 40},
                    {"key": "old_test", "experiment": {"weights": {"short": 1, "none": 1}, "traffic": 30}},
                ],
                "otherwise": "short",
            },
        ),
        (
            "flags/columns",
            {
                "type": "integer",
                "variations": [{"key": "two", "value": 2}, {"key": "three", "value": 3}],
                "rules": [{"experiment": {"traffic": 50}}],
                "otherwise": "two",
            },
        ),
        ("flags/banner", {"type": "boolean", "rules": [{"experiment": {"weights": {"off": 1, "on": 1}}}]}),
        (
            "flags/price",
            {
                "type": "double",
                "variations": [{"key": "low", "value": 0.5}, {"key": "high", "value": 7}],
                "rules": [{"audience": GERMANS, "variation": "high"}],
                "otherwise": "low",
            },
        ),
        (
            "flags/layout",
            {
                "type": "json",
                "variations": [{"key": "a", "value": {"rows": [1, 2]}}, {"key": "b", "value": {"rows": []}}],
                "rules": [{"experiment": {}}],
                "otherwise": "b",
            },
        ),
        ("experiments/checkout", {"variations": ["control", "new"]}),
        ("experiments/one", {"variations": ["a", "b"], "group": "page", "traffic": 45}),
        ("experiments/two", {"variations": ["a", "b"], "group": "page", "traffic": 40}),
    ],
    [
        ("experiments/checkout", {"enrollment": "closed"}),
        ("experiments/one", {"traffic": 30}),
        ("experiments/two", {"traffic": 70}),
        ("experiments/greeting_test", {"enrollment": "closed"}),
        ("flags/columns", {"enabled": False}),
        ("flags/banner", {"otherwise": "on", "rules": [{"audience": STAFF, "variation": "off"}]}),
    ],
    [
        ("flags/greeting", {"enabled": False}),
        ("experiments/checkout", {"variations": ["control", "other"], "enrollment": "open"}),
        ("flags/columns", {"enabled": True, "rules": [{"experiment": {"weights": {"three": 1}}}]}),
        ("experiments/two", {"group": None}),
    ],
    [
        ("flags/greeting", {"enabled": True}),
        ("experiments/checkout", {"variations": ["control", "new"]}),
        ("experiments/one", {"status": "paused"}),
    ],
]

ATTRIBUTES = [
    {},
    {"country": "de"},
    {"country": "fr", "age": 30},
    {"staff": True, "country": "at"},
    {"staff": False, "age": 70},
    {"age": 61, "country": "de"},
    {"staff": None, "age": "old"},
]


def sdk(profiles):
    datafile = json.dumps(call("GET", "/v1/datafile", headers=SDK_KEY))
    instance = optimizely.Optimizely(datafile, user_profile_service=profiles, event_processor=NoEvents())
    if not instance.is_valid:
        sys.exit("the SDK does not take the datafile")
    return instance


def main():
    logging.disable(logging.CRITICAL)
    compared, differences, reasons = 0, [], {}
    profiles = HoldfastProfiles(URL)
    for number, state in enumerate(STATES):
        for path, body in state:
            call("PUT", f"/v1/{path}?moves=allow", body)
        # With stored assignments, and as a server without any would decide.
        for service, options in [(profiles, []), (None, ["IGNORE_USER_PROFILE_SERVICE"])]:
            instance = sdk(service)
            for index in range(210):
                # Some users are there from the beginning, others are new in each state.
                user = f"user{index}" if index % 2 == 0 else f"user{index}-{number}"
                attributes = ATTRIBUTES[index % len(ATTRIBUTES)]
                context = instance.create_user_context(user, attributes)
                expected = {
                    key: (d.variation_key or "", d.enabled, d.variables.get("value"), d.rule_key or "")
                    for key, d in context.decide_all(options).items()
                }
                body = {"userId": user, "userAttributes": attributes, "decideOptions": options}
                found = {
                    d["flagKey"]: (d["variationKey"], d["enabled"], d["variables"]["value"], d["ruleKey"])
                    for d in call("POST", "/v1/decide", body, SDK_KEY)
                }
                compared += len(expected)
                if expected != found:
                    differences.append([number, user, attributes, options, expected, found])
                if options:
                    continue
                evaluated = call("POST", "/v1/evaluations", {"user_id": user, "attributes": attributes})["evaluations"]
                for e in evaluated:
                    reasons[e["reason"]] = reasons.get(e["reason"], 0) + 1
                    variation, enabled, value, rule = expected[e["flag_key"]]
                    same = (e["variation_key"] or "", e["enabled"], e["rule_key"] or "") == (variation, enabled, rule)
                    if not same or (e["value"] is not None and e["value"] != value):
                        differences.append([number, user, attributes, "evaluation", e, value])
    print(json.dumps({"compared": compared, "differences": differences[:3], "count": len(differences), "reasons": reasons}))


URL = sys.argv[1]
main()

"""Calls every Agent-compatible endpoint with plain requests, as a client of Optimizely Agent does.

usage: agent_client.py URL
"""
import json
import sys
import traceback
import uuid

import requests

SDK_KEY = "agent_client"
HEADER = "X-Optimizely-SDK-Key"


def variation(key, enabled=True, **variables):
    return {
        "id": "id" + key, "key": key, "featureEnabled": enabled,
        "variables": [{"id": name, "value": value} for name, value in variables.items()],
    }


def experiment(identifier, key, variations, status="Running", **members):
    return {
        "id": identifier, "key": key, "layerId": "layer" + identifier, "status": status, "audienceIds": [],
        "forcedVariations": {}, "variations": variations,
        "trafficAllocation": [{"entityId": variations[0]["id"], "endOfRange": 10000}], **members,
    }


def flag(identifier, key, experiments=(), rollout="", variables=()):
    return {
        "id": identifier, "key": key, "experimentIds": list(experiments), "rolloutId": rollout,
        "variables": list(variables),
    }


def variable(identifier, kind, default):
    return {"id": identifier, "key": "var_" + identifier, "type": kind, "defaultValue": default}


DATAFILE = {
    "version": "4", "accountId": "1", "projectId": "2", "revision": "42", "sdkKey": "own", "environmentKey": "production",
    "anonymizeIP": False, "botFiltering": False, "sendFlagDecisions": False,
    "attributes": [{"id": "a1", "key": "country"}],
    "audiences": [{
        "id": "aud1", "name": 'US "users"',
        "conditions": '["or",{"type":"custom_attribute","name":"country","match":"exact","value":"US"}]',
    }],
    "typedAudiences": [{
        "id": "aud2", "name": "Typed & <2>",
        "conditions": ["or", {"type": "custom_attribute", "name": "age", "match": "gt", "value": 20}],
    }],
    "groups": [],
    "experiments": [
        experiment("x1", "exp1", [variation("a", i="12", s="<a>&"), variation("b", False)]),
        experiment("x2", "exp2", [variation("c")], audienceConditions=["or", "aud1", ["and", "aud2", ["not", "aud1"]]]),
        experiment("x3", "exp3", [variation("d")], status="Paused"),
    ],
    "rollouts": [{
        "id": "r1",
        "experiments": [experiment("default-9", "default-9", [variation("on")])],
    }],
    "featureFlags": [
        flag("f1", "flag1", ["x1"], variables=[
            variable("i", "integer", "1"), variable("d", "double", "3.0"), variable("s", "string", ""),
            variable("b", "boolean", "true"), variable("j", "json", '{"n":[1.5,null]}'),
        ]),
        flag("f2", "flag2"),
        flag("f3", "flag3", rollout="r1"),
        flag("f4", "flag4", ["x2"]),
    ],
    "events": [{"id": "e1", "key": "purchase", "experimentIds": ["x1"]}],
    "holdouts": [], "localHoldouts": [],
}


class Client:
    def __init__(self, url):
        self.url = url
        self.session = requests.Session()
        answer = self.session.put(url + "/v1/datafile", json=DATAFILE, headers={HEADER: SDK_KEY})
        assert answer.status_code in (200, 201), answer.text

    def post(self, path, body=None, data=None, headers=None, **params):
        headers = {HEADER: SDK_KEY} | (headers or {})
        if data is not None:
            headers.setdefault("Content-Type", "application/json")
        return self.session.post(self.url + path, json=body, data=data, headers=headers, params=params)

    def get(self, path, headers=None):
        return self.session.get(self.url + path, headers={HEADER: SDK_KEY} | (headers or {}))

    def decide(self, body, **params):
        return expect(self.post("/v1/decide", body, **params), 200)

    def user(self):
        return "user-" + uuid.uuid4().hex


def expect(answer, status, json_body=None):
    assert answer.status_code == status, (answer.status_code, answer.text)
    assert answer.headers["X-Request-Id"]
    if not answer.content:
        return None
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8", answer.headers
    assert answer.text.endswith("}\n") or answer.text.endswith("]\n"), answer.text
    if json_body is not None:
        assert answer.json() == json_body, answer.text
    return answer.json()


def error(answer, status, text):
    expect(answer, status, {"error": text})


def names(decisions):
    return [decision["flagKey"] for decision in decisions]


def decides_one_flag_with_its_variables(client):
    user = client.user()
    decision = client.decide({"userId": user, "userAttributes": {"country": "US", "none": None}}, keys="flag1")
    assert decision == {
        "variationKey": "a", "enabled": True, "ruleKey": "exp1", "flagKey": "flag1",
        "userContext": {"userId": user, "attributes": {"country": "US", "none": None}}, "reasons": [],
        "variables": {"var_i": 12, "var_d": 3, "var_s": "<a>&", "var_b": True, "var_j": {"n": [1.5, None]}},
        "isEveryoneElseVariation": False,
    }, decision
    assert list(decision) == [
        "variationKey", "enabled", "ruleKey", "flagKey", "userContext", "reasons", "variables",
        "isEveryoneElseVariation",
    ]


def escapes_markup_as_go_does(client):
    text = client.post("/v1/decide", {"userId": "u"}, keys="flag1").text
    assert '"\\u003ca\\u003e\\u0026"' in text and '"var_d":3,' in text, text


def decides_several_flags_or_all(client):
    body = {"userId": client.user()}
    assert names(client.decide(body)) == ["flag1", "flag2", "flag3", "flag4"]
    assert names(client.decide(body, keys=["flag3", "flag1", "flag3"])) == ["flag3", "flag1"]
    assert names(client.decide(body, keys=["flag2", "flag2"])) == ["flag2"]
    assert names(client.decide(body | {"decideOptions": ["ENABLED_FLAGS_ONLY"]})) == ["flag1", "flag3"]
    assert not client.decide(body | {"decideOptions": ["ENABLED_FLAGS_ONLY"]}, keys="flag2")["enabled"]


def leaves_variables_out_where_there_are_none(client):
    assert "variables" not in client.decide({"userId": "u"}, keys="flag2")
    assert "variables" not in client.decide({"userId": "u", "decideOptions": ["EXCLUDE_VARIABLES"]}, keys="flag1")


def tells_of_an_unknown_flag(client):
    decision = client.decide({"userId": "u"}, keys="nosuch")
    assert decision["reasons"] == ['No flag was found for key "nosuch".'], decision
    assert (decision["variationKey"], decision["ruleKey"], decision["enabled"]) == ("", "", False)
    assert "variables" not in decision
    both = client.decide({"userId": "u"}, keys=["nosuch", "flag1"])
    assert sorted(names(both)) == ["flag1", "nosuch"]
    assert client.decide({"userId": "u"}, keys="")["flagKey"] == ""


def marks_the_rule_for_everyone_else(client):
    decision = client.decide({"userId": "u"}, keys="flag3")
    assert decision["ruleKey"] == "default-9" and decision["isEveryoneElseVariation"]


def obeys_forced_decisions_and_gives_reasons(client):
    user = client.user()
    forced = [{"flagKey": "flag1", "ruleKey": "exp1", "variationKey": "b"}, {}]
    decision = client.decide(
        {"userId": user, "forcedDecisions": forced, "decideOptions": ["INCLUDE_REASONS"]}, keys="flag1")
    assert decision["variationKey"] == "b" and not decision["enabled"]
    assert decision["reasons"] == [
        f"Variation (b) is mapped to flag (flag1), rule (exp1) and user ({user}) in the forced decision map."]
    assert lookup(client, user) == {}


def lookup(client, user):
    answer = expect(client.post("/v1/lookup", {"userId": user}), 200)
    assert answer["userId"] == user
    return answer["experimentBucketMap"]


def stores_what_it_decided(client):
    user = client.user()
    client.decide({"userId": user, "decideOptions": ["IGNORE_USER_PROFILE_SERVICE"]})
    assert lookup(client, user) == {}
    client.decide({"userId": user, "userAttributes": {"country": "US"}})
    assert lookup(client, user) == {"x1": {"variation_id": "ida"}, "x2": {"variation_id": "idc"}}


def keeps_what_is_stored(client):
    user = client.user()
    expect(client.post("/v1/save", {"userId": user, "experimentBucketMap": {"x1": {"variation_id": "idb"}}}), 200)
    assert client.decide({"userId": user}, keys="flag1")["variationKey"] == "b"
    ignoring = {"userId": user, "decideOptions": ["IGNORE_USER_PROFILE_SERVICE"]}
    assert client.decide(ignoring, keys="flag1")["variationKey"] == "a"


def reads_names_without_regard_to_case_and_null_as_absent(client):
    decision = client.decide({"USERID": "u", "userAttributes": None, "decideOptions": None, "more": 1}, keys="flag1")
    assert decision["userContext"] == {"userId": "u", "attributes": {}}


def refuses_bodies_as_the_agent_does(client):
    missing = 'missing "userId" in request payload'
    for path in ["/v1/decide", "/v1/activate", "/v1/lookup", "/v1/save"]:
        error(client.post(path, {}), 400, missing)
        error(client.post(path, {"userId": ""}), 400, missing)
        error(client.post(path), 400, missing)
        error(client.post(path, data="null"), 400, missing)
        for text in ["{", "[]", '"u"', '{"userId":1}', '{"userId":"u"} x', "\xff".encode("latin-1")]:
            error(client.post(path, data=text), 400, "error parsing request body")
    for body in ['{"userAttributes":[]}', '{"decideOptions":"X"}', '{"forcedDecisions":[1]}', '{"fetchSegments":1}']:
        error(client.post("/v1/decide", data=body), 400, "error parsing request body")
    error(client.post("/v1/decide", {"userId": "u", "decideOptions": ["NOPE", "X"]}), 400, "invalid option: NOPE")
    assert client.post("/v1/decide", {"userId": "u", "fetchSegments": True}).status_code == 200


def takes_json_only(client):
    body = '{"userId":"u"}'
    needed = "the body must be sent with 'Content-Type: application/json'; got "
    for content_type in ["text/plain", "application/x-www-form-urlencoded", ""]:
        for path in ["/v1/decide", "/v1/activate", "/v1/track", "/v1/override", "/v1/lookup", "/v1/save"]:
            answer = client.post(path, data=body, headers={"Content-Type": content_type})
            error(answer, 415, f"{needed}'{content_type}'")
    error(client.post("/v1/decide", data=body, headers={"Content-Type": None}), 415, needed + "none")
    expect(client.post("/v1/decide", data=body, headers={"Content-Type": "Application/JSON; charset=x"}), 200)


def needs_an_sdk_key(client):
    missing = "missing required X-Optimizely-SDK-Key header"
    unknown = "unable to fetch fresh datafile (consider rechecking SDK key), status code: 403 Forbidden"
    for path in ["/v1/decide", "/v1/activate", "/v1/track", "/v1/override", "/v1/lookup", "/v1/save"]:
        error(client.session.post(client.url + path), 400, missing)
        error(client.post(path, headers={HEADER: ""}), 400, missing)
        error(client.post(path, headers={HEADER: "a key"}), 400, "sdkKey failed validation")
        error(client.post(path, headers={HEADER: "nosuch"}), 403, unknown)
    for path in ["/v1/config", "/v1/datafile"]:
        error(client.session.get(client.url + path), 400, missing)
        error(client.get(path, headers={HEADER: "nosuch"}), 403, unknown)
    expect(client.get("/v1/config", headers={HEADER: SDK_KEY + ":token"}), 200)


def activates_experiments_and_features(client):
    user = client.user()
    asked = {"experimentKey": ["exp1", "nosuch", "default-9"], "featureKey": ["flag1", "flag3", "none"]}
    entries = expect(client.post("/v1/activate", {"userId": user}, **asked), 200)
    common = {"userId": user, "experimentKey": "", "featureKey": "", "variationKey": "", "type": "", "enabled": False}
    assert entries[0] == common | {"experimentKey": "exp1", "variationKey": "a", "type": "experiment", "enabled": True}
    assert entries[1] == common | {"experimentKey": "nosuch", "error": "experimentKey not found"}
    assert entries[2] == common | {"experimentKey": "default-9", "error": "experimentKey not found"}
    assert entries[3]["variables"]["var_i"] == 12 and entries[3]["type"] == "feature"
    assert (entries[3]["experimentKey"], entries[3]["variationKey"]) == ("exp1", "a")
    assert entries[4] == common | {"featureKey": "flag3", "type": "feature", "enabled": True}
    assert entries[5] == common | {"featureKey": "none", "error": "featureKey not found"}
    assert lookup(client, user) == {"x1": {"variation_id": "ida"}}


def activates_by_type(client):
    body = {"userId": client.user()}
    by_type = expect(client.post("/v1/activate", body, type=["experiment", "feature"]), 200)
    assert [entry["experimentKey"] for entry in by_type[:3]] == ["exp1", "exp2", "exp3"]
    assert [entry["featureKey"] for entry in by_type[3:]] == ["flag1", "flag2", "flag3", "flag4"]
    enabled = expect(client.post("/v1/activate", body, type="feature", enabled="true", disableTracking="true"), 200)
    assert [entry["featureKey"] for entry in enabled] == ["flag1", "flag3"]
    expect(client.post("/v1/activate", body), 200, [])
    error(client.post("/v1/activate", body, type="flag"), 400, 'type "flag" not supported')


def tracks_events(client):
    body = {"userId": "t1", "userAttributes": {"country": "US"}, "eventTags": {"revenue": 4200, "value": 1.5}}
    expect(client.post("/v1/track", body, eventKey="purchase"), 200, {"userId": "t1", "eventKey": "purchase"})
    expect(client.post("/v1/track", eventKey="purchase"), 200, {"userId": "", "eventKey": "purchase"})
    error(client.post("/v1/track", body, eventKey="a\0b"), 400, "a path and its parameters must not contain NUL; got '%00'")
    for key in ["undeclared", "k" * 256]:
        answer = expect(client.post("/v1/track", body, eventKey=key), 200)
        quoted = json.dumps(key)
        assert answer == {"userId": "t1", "eventKey": key, "error": f"event with key {quoted} not found"}, answer
    error(client.post("/v1/track", body), 400, "missing required path parameter: eventKey")
    error(client.post("/v1/track", {"eventTags": 1}, eventKey="purchase"), 400, "error parsing request body")


def overrides_and_takes_it_back(client):
    user = client.user()

    def override(variation_key, previous, messages, experiment_key="exp1"):
        body = {"userId": user, "experimentKey": experiment_key, "variationKey": variation_key}
        expect(
            client.post("/v1/override", body), 200,
            body | {"prevVariationKey": previous, "messages": messages})

    def decided():
        return client.decide({"userId": user, "decideOptions": ["INCLUDE_REASONS"]}, keys="flag1")

    override("", "", ["no pre-existing override"])
    override("b", "", None)
    assert decided()["variationKey"] == "b"
    assert decided()["reasons"] == [f"Override variation b found for user {user}"]
    assert lookup(client, user) == {}
    override("b", "b", ["updating previous override"])
    override("zz", "b", ["variationKey not found in configuration", "updating previous override"])
    assert decided()["variationKey"] == "a"
    override("", "zz", ["removing previous override"])
    override("on", "", ["experimentKey not found in configuration"], experiment_key="default-9")
    error(client.post("/v1/override", {}), 400, "userId cannot be empty")
    error(client.post("/v1/override", {"userId": "u"}), 400, "experimentKey cannot be empty")


def merges_what_is_saved(client):
    user = client.user()

    def save(bucket_map):
        return client.post("/v1/save", {"userId": user, "experimentBucketMap": bucket_map})

    answer = save({"x1": {"variation_id": "ida"}})
    assert answer.status_code == 200 and not answer.content and "Content-Type" not in answer.headers
    expect(save({"x2": {"variation_id": "idc", "more": 1}}), 200)
    assert lookup(client, user) == {"x1": {"variation_id": "ida"}, "x2": {"variation_id": "idc"}}
    error(client.post("/v1/save", {"userId": user}), 400, 'missing "experimentBucketMap" in request payload')
    error(save([]), 400, "error parsing request body")
    for bad in [{"x1": "ida"}, {"x1": {}}, {"x1": {"variation_id": 1}}, {"x 1": {"variation_id": "a"}}]:
        assert "/experimentBucketMap/x" in expect(save(bad), 400)["error"]
    assert len(lookup(client, user)) == 2


def batches(client):
    headers = {"x-optimizely-sdk-key": SDK_KEY, "content-type": "application/json"}
    operations = [
        {"method": "POST", "url": "/v1/decide?keys=flag1", "operationID": "1", "headers": headers,
         "body": {"userId": "b1"}, "params": {"keys": "flag2"}},
        {"method": "POST", "url": "http://agent/v1/track", "operationID": "2", "body": {"userId": "b1"},
         "headers": headers | {"X-Request-Id": "mine"}, "params": {"eventKey": "purchase"}},
        {"url": "/v1/config", "operationID": "3", "headers": headers},
        {"method": "GET", "url": "/v1/track", "operationID": "4", "headers": headers},
        {"method": "POST", "url": "/v1/decide", "operationID": "5", "headers": {HEADER: SDK_KEY}},
        {"method": "POST", "url": "/v1/decide", "operationID": "6", "body": {"userId": "b1"}},
        {"method": "POST", "url": "/v1/batch", "operationID": "7", "headers": headers},
        {"method": "POST", "url": "/v1/save", "operationID": "8", "headers": headers,
         "body": {"userId": "b2", "experimentBucketMap": {}}},
        {"method": "GET", "url": "/v1/config#x", "operationID": "9"},
    ]
    answer = expect(requests.post(client.url + "/v1/batch", data=json.dumps({"operations": operations})), 200)
    assert list(answer) == ["startedAt", "endedAt", "errorCount", "response"]
    entries = answer["response"]
    assert [entry["operationID"] for entry in entries] == list("123456789")
    assert [entry["status"] for entry in entries] == [200, 200, 200, 405, 415, 400, 404, 200, 400], entries
    assert answer["errorCount"] == 5
    assert list(entries[0]) == [
        "status", "requestID", "operationID", "method", "url", "body", "startedAt", "endedAt"]
    assert names(entries[0]["body"]) == ["flag1", "flag2"] and entries[0]["requestID"]
    assert entries[1]["body"] == {"userId": "b1", "eventKey": "purchase"} and entries[1]["requestID"] == "mine"
    assert entries[2]["body"]["revision"] == "42" and entries[2]["method"] == "GET"
    assert entries[3]["body"] is None and entries[3]["requestID"] == "" and entries[3]["url"] == "/v1/track"
    assert entries[4]["body"] == {"error": "the body must be sent with 'Content-Type: application/json'; got none"}
    assert entries[5]["body"] == {"error": "missing required X-Optimizely-SDK-Key header"}


def limits_batches(client):
    def batch(data):
        return requests.post(client.url + "/v1/batch", data=data)

    operation = {"method": "GET", "url": "/v1/config", "operationID": "1"}
    assert expect(batch("{}"), 200)["response"] == []
    assert len(expect(batch(json.dumps({"operations": [operation] * 500})), 200)["response"]) == 500
    error(batch(json.dumps({"operations": [operation] * 501})), 422, "too many operations, exceeding 500 operations")
    for data in ["", "{", '{"operations":{}}', '{"operations":[{"body":[]}]}', '{"operations":[{"params":{"a":1}}]}']:
        error(batch(data), 400, "cannot decode the operation body")


def shows_the_config(client):
    config = expect(client.get("/v1/config"), 200)
    assert list(config) == [
        "environmentKey", "sdkKey", "revision", "experimentsMap", "featuresMap", "attributes", "audiences", "events"]
    assert (config["environmentKey"], config["sdkKey"], config["revision"]) == ("production", "own", "42")
    assert list(config["experimentsMap"]) == ["exp1", "exp2", "exp3"]
    exp1 = config["experimentsMap"]["exp1"]
    assert exp1["variationsMap"]["a"]["variablesMap"]["var_i"] == {
        "id": "i", "key": "var_i", "type": "integer", "value": "12"}
    assert exp1["variationsMap"]["b"]["variablesMap"]["var_i"]["value"] == "1"
    exp2 = config["experimentsMap"]["exp2"]
    assert exp2["audiences"] == '"US \\"users\\"" OR ("Typed & <2>" AND (NOT "US \\"users\\""))', exp2
    flag1 = config["featuresMap"]["flag1"]
    assert list(flag1) == ["id", "key", "experimentRules", "deliveryRules", "variablesMap", "experimentsMap"]
    assert flag1["experimentRules"] == [exp1] and flag1["experimentsMap"] == {"exp1": exp1}
    assert config["featuresMap"]["flag3"]["deliveryRules"][0]["key"] == "default-9"
    assert config["attributes"] == [{"id": "a1", "key": "country"}]
    assert config["events"] == [{"id": "e1", "key": "purchase", "experimentIds": ["x1"]}]
    audiences = {audience["id"]: audience for audience in config["audiences"]}
    assert audiences["aud1"]["conditions"] == DATAFILE["audiences"][0]["conditions"]
    assert json.loads(audiences["aud2"]["conditions"]) == DATAFILE["typedAudiences"][0]["conditions"]


def gives_the_datafile_with_an_entity_tag(client):
    answer = client.get("/v1/datafile")
    assert answer.json() == DATAFILE
    again = client.get("/v1/datafile", headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status_code == 304 and not again.content


def main(url):
    client = Client(url)
    checks = [
        decides_one_flag_with_its_variables, escapes_markup_as_go_does, decides_several_flags_or_all,
        leaves_variables_out_where_there_are_none, tells_of_an_unknown_flag, marks_the_rule_for_everyone_else,
        obeys_forced_decisions_and_gives_reasons, stores_what_it_decided, keeps_what_is_stored,
        reads_names_without_regard_to_case_and_null_as_absent, refuses_bodies_as_the_agent_does, takes_json_only,
        needs_an_sdk_key, activates_experiments_and_features, activates_by_type, tracks_events,
        overrides_and_takes_it_back, merges_what_is_saved, batches, limits_batches, shows_the_config,
        gives_the_datafile_with_an_entity_tag,
    ]
    failures = 0
    for check in checks:
        try:
            check(client)
        except Exception:
            failures += 1
            print(f"failed: {check.__name__}")
            traceback.print_exc(file=sys.stdout)
    print(f"{len(checks)} checks, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""Decides the reference vectors through POST /v1/decide, as an Agent client does.

usage: agent_vectors.py URL VECTORS
"""
import http.client
import json
import pathlib
import sys
import time
import urllib.parse


class Project:
    """One active datafile, over one kept connection."""

    def __init__(self, connection, sdk_key):
        self.connection = connection
        self.headers = {"X-Optimizely-SDK-Key": sdk_key, "Content-Type": "application/json"}
        self.requests = 0

    def send(self, method, path, body=None, accepted=()):
        self.requests += 1
        self.connection.request(method, path, body, self.headers)
        response = self.connection.getresponse()
        content = response.read()
        assert response.status < 300 or response.status in accepted, (response.status, content)
        return content

    def put_datafile(self, path):
        self.send("PUT", f"/v1/projects/{self.headers['X-Optimizely-SDK-Key']}", b"{}")
        # The reference decides without asking who is moved.
        self.send("PUT", "/v1/datafile?moves=allow", path.read_bytes())

    def post(self, path, body):
        return json.loads(self.send("POST", path, json.dumps(body).encode()))

    def decide(self, user_id, attributes, options=()):
        body = {"userId": user_id, "userAttributes": attributes, "decideOptions": list(options)}
        return {entry["flagKey"]: entry for entry in self.post("/v1/decide", body)}

    def stored(self, user_id):
        return self.post("/v1/lookup", {"userId": user_id})["experimentBucketMap"]

    def erase(self, user_id):
        self.send("DELETE", "/v1/profiles/" + urllib.parse.quote(user_id, safe=""), accepted=(404,))


class Comparison:
    def __init__(self):
        self.decisions = self.profiles = 0
        self.differences = []

    def decisions_agree(self, where, expected, decided):
        for flag in expected.keys() | decided.keys():
            self.decisions += 1
            entry = decided.get(flag, {})
            seen = {
                "variationKey": entry.get("variationKey"), "enabled": entry.get("enabled"),
                "ruleKey": entry.get("ruleKey"), "variables": entry.get("variables", {}),
            }
            if not same(expected.get(flag), seen):
                self.differences.append((where, flag, expected.get(flag), seen))

    def profiles_agree(self, where, expected, stored):
        self.profiles += 1
        if (expected or {}).get("experiment_bucket_map", {}) != stored:
            self.differences.append((where, "profile", expected, stored))


def same(left, right):
    """Equality that tells booleans from numbers, which Python's does not."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def compare_decisions(project, vectors, number, comparison):
    path = vectors / f"decisions-{number}.jsonl"
    project.put_datafile(vectors / f"datafile-{number}.json")
    for index, line in enumerate(lines(path)):
        decided = project.decide(line["userId"], line["userAttributes"], ["IGNORE_USER_PROFILE_SERVICE"])
        comparison.decisions_agree(f"{path.name}:{index + 1}", line["decisions"], decided)


def compare_sticky(project, vectors, number, comparison):
    path = vectors / f"sticky-{number}.jsonl"
    users = lines(path)
    stages = [("", "userAttributes", "before", "profileBefore"), ("-changed", "userAttributesAfter", "after", "profileAfter")]
    for line in users:
        project.erase(line["userId"])
    for suffix, attributes, expected, profile in stages:
        project.put_datafile(vectors / f"datafile-{number}{suffix}.json")
        for index, line in enumerate(users):
            where = f"{path.name}:{index + 1} {expected}"
            decided = project.decide(line["userId"], line[attributes])
            comparison.decisions_agree(where, line[expected], decided)
            comparison.profiles_agree(where, line[profile], project.stored(line["userId"]))


def main(url, directory):
    vectors = pathlib.Path(directory)
    comparison = Comparison()
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc)
    started = time.monotonic()
    count = 0
    for path in sorted(vectors.glob("decisions-*.jsonl")):
        number = path.stem.removeprefix("decisions-")
        project = Project(connection, f"vectors{number}")
        compare_decisions(project, vectors, number, comparison)
        compare_sticky(project, vectors, number, comparison)
        count += project.requests
    for difference in comparison.differences[:20]:
        print("differs:", *difference)
    print(
        f"{comparison.decisions} decisions and {comparison.profiles} profiles, {len(comparison.differences)} differ; "
        f"{count} requests in {time.monotonic() - started:.1f} s")
    return 1 if comparison.differences or not comparison.decisions else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))

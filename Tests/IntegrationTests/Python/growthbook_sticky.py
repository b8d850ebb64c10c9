"""Drives the public growthbook package with the manual's adapter, sticky_buckets.py, and two servers on one database.

Usage: growthbook_sticky.py URL URL
"""

import sys
import threading

from growthbook import GrowthBook
from sticky_buckets import HoldfastStickyBuckets

USERS = [f"user/{number} ü" for number in range(40)]


def rule(key, weights, **members):
    return {
        "key": key, "hashAttribute": "id", "variations": ["a", "b"], "weights": weights,
        "meta": [{"key": "control"}, {"key": "new"}], **members,
    }


def client(service, user, rules, **attributes):
    features = {rule["key"]: {"defaultValue": "none", "rules": [rule]} for rule in rules}
    return GrowthBook(attributes={"id": user, **attributes}, features=features, sticky_bucket_service=service)


def value(service, user, rule, **attributes):
    return client(service, user, [rule], **attributes).get_feature_value(rule["key"], "none")


def expect(what, condition):
    if not condition:
        sys.exit(f"not so: {what}")


def together(*works):
    failures = []
    barrier = threading.Barrier(len(works))

    def run(work):
        try:
            work(barrier.wait)
        except Exception as failure:
            failures.append(failure)
            barrier.abort()

    threads = [threading.Thread(target=run, args=[work]) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(f"no failure {failures}", not failures)


def main():
    services = [HoldfastStickyBuckets(url) for url in sys.argv[1:]]
    first, second = services

    kept = {user: value(first, user, rule("checkout", [0.5, 0.5])) for user in USERS}
    expect("both variations occur", set(kept.values()) == {"a", "b"})
    for weights in ([0, 1], [1, 0]):
        again = {user: value(second, user, rule("checkout", weights)) for user in USERS}
        expect("users keep their variation when weights change", again == kept)

    def app_server(service, experiments):
        """Has each document in memory before another server saves, as two requests at once do."""
        def work(wait):
            for user in USERS:
                shop = client(service, user, [rule(key, [0.5, 0.5]) for key in experiments])
                wait()
                for key in experiments:
                    shop.get_feature_value(key, "none")
        return work

    keys = [f"experiment{number}" for number in range(8)]
    together(app_server(first, keys[:4]), app_server(second, keys[4:]), app_server(first, keys[2:6]))
    for user in USERS:
        document = second.get_assignments("id", user)
        names = {"checkout__0"} | {f"{key}__0" for key in keys}
        expect("servers that save at once lose nothing", set(document["assignments"]) == names)

    def contender(service, weights, seen):
        def work(wait):
            for user in USERS:
                shop = client(service, user, [rule("race", weights)])
                wait()
                shop.get_feature_value("race", "none")
                seen[user] = shop.get_feature_value("race", "none")
        return work

    left, right = {}, {}
    together(contender(first, [1, 0], left), contender(second, [0, 1], right))
    expect("of two who decide at once the first wins, and both use its variation", left == right)

    # A new bucket version decides anew and keeps the old one, by which a minimum version excludes users.
    user = USERS[0]
    expect("a new version decides anew", value(first, user, rule("checkout", [0, 1], bucketVersion=1)) == "b")
    assignments = second.get_assignments("id", user)["assignments"]
    expect("old versions are kept", {"checkout__0", "checkout__1"} <= set(assignments))
    blocking = rule("checkout", [0, 1], bucketVersion=2, minBucketVersion=1)
    expect("users of an old version are excluded", value(second, user, blocking) == "none")

    # A user who logs in keeps the variation of the device.
    by_device = rule("login", [1, 0], fallbackAttribute="deviceId")
    expect("the device decides first", value(first, "", by_device, deviceId="d-1") == "a")
    by_user = rule("login", [0, 1], fallbackAttribute="deviceId")
    expect("and the user goes on", value(second, "ann", by_user, deviceId="d-1") == "a")
    expect("nobody has no document", first.get_assignments("id", "nobody") is None)


if __name__ == "__main__":
    main()

"""Drives the public growthbook package with remote evaluation by two Holdfast servers on one database.

Usage: growthbook_remote.py URL OTHER_URL ADMIN_SECRET CLIENT_SECRET READ_SECRET
"""

import asyncio
import sys
import time

import requests
from growthbook import GrowthBook, GrowthBookClient, Options, UserContext
from growthbook.growthbook_client import FeatureRefreshStrategy

USERS = [f"user-{number}" for number in range(40)]


def expect(what, condition):
    if not condition:
        sys.exit(f"not so: {what}")


def main():
    url, other, admin, client, read = sys.argv[1:]
    header = {"Authorization": f"Bearer {admin}"}

    def put(target, body):
        response = requests.put(url + target, json=body, headers=header, timeout=10)
        expect(f"PUT {target}: {response.text}", response.status_code < 300)

    def put_experiment(**weights):
        variations = [{"key": key, "weight": weight} for key, weight in weights.items()]
        put("/v1/experiments/checkout", {"variations": variations})

    put_experiment(control=1, new=1)
    def put_limit(value):
        put("/v1/flags/limit", {"type": "integer", "variations": [{"key": "all", "value": value}], "otherwise": "all"})

    put_limit(7)

    def growthbook(address, user, key=client, **options):
        seen = []
        gb = GrowthBook(
            attributes={"id": user, "country": "de"}, api_host=address, client_key=key, remote_eval=True, cache_ttl=0,
            on_experiment_viewed=lambda experiment, result, **_: seen.append((experiment, result)), **options)
        gb.load_features()
        return gb, seen

    kept = {}
    for user in USERS:
        gb, seen = growthbook(url, user)
        expect("a flag has its value", gb.get_feature_value("limit", 1) == 7)
        expect("a plain flag is no experiment", not seen)
        kept[user] = gb.get_feature_value("checkout", "none")
        (experiment, result), = seen
        expect("the experiment is named", experiment.key == "checkout")
        expect("the result is the user's", (result.value, result.hashValue) == (kept[user], user))
        expect("the variation is named", result.key == kept[user])
        expect("other values are withheld", [v for v in experiment.variations if v != {}] == [kept[user]])
        expect("an unknown flag has the caller's default", gb.get_feature_value("nope", "mine") == "mine")
    expect("both variations occur", set(kept.values()) == {"control", "new"})

    put_experiment(control=1, new=0)
    for user in USERS:
        gb, seen = growthbook(other, user)
        expect("a user keeps the variation", gb.get_feature_value("checkout", "none") == kept[user])
        expect("and it was kept", seen[0][1].stickyBucketUsed)

    gb, _ = growthbook(url, "forced", forced_features={"limit": 9})
    expect("the SDK forces features itself", gb.get_feature_value("limit", 1) == 9)
    for key in (read, "wrong-secret-0123456789"):
        gb, _ = growthbook(url, "ann", key=key)
        expect("without access there are defaults", gb.get_feature_value("limit", 1) == 1)

    async def asynchronously():
        gb = GrowthBookClient(Options(
            api_host=url, client_key=client, remote_eval=True,
            refresh_strategy=FeatureRefreshStrategy.SERVER_SENT_EVENTS))
        await gb.initialize()
        context = UserContext(attributes={"id": USERS[0]})

        async def value(key):
            return await gb.get_feature_value(key, "none", context)

        async def sees_a_change():
            # The stream may not be open yet when the first change is made.
            for number in range(8, 68):
                put_limit(number)
                deadline = time.monotonic() + 1
                while time.monotonic() < deadline:
                    if await value("limit") == number:
                        return True
                    await asyncio.sleep(0.05)
            return False

        expect("the asynchronous client has the same value", await value("checkout") == kept[USERS[0]])
        expect("and that of a plain flag", await value("limit") == 7)
        expect("the stream announces a change", await sees_a_change())
        await gb.close()

    asyncio.run(asynchronously())


if __name__ == "__main__":
    main()

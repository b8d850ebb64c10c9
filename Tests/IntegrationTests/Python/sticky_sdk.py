"""Drives the public optimizely-sdk with a User Profile Service whose lookup and save call a running Holdfast.

Usage: sticky_sdk.py URL DATAFILE STATE first|again

`first` decides for many users, has every decision saved in Holdfast, and writes the variations to STATE.
`again`, with another datafile, decides for the same users and tells how many kept their variation, who did not though
it still exists, how many would not have without Holdfast (else the datafiles prove nothing), and how many got another
because theirs is gone.
"""

import json
import logging
import sys
import urllib.request

from optimizely import optimizely
from optimizely import user_profile

USERS = [f"user-{number}" for number in range(200)]


class HoldfastProfiles(user_profile.UserProfileService):
    """The contract of the SDK, answered by Holdfast over HTTP."""

    def __init__(self, url):
        self.url = url
        self.saves = 0

    def lookup(self, user_id):
        return self._post("/ups/lookup", {"user_id": user_id})

    def save(self, profile):
        self.saves += 1
        self._post("/ups/save", profile)

    def _post(self, path, body):
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)


class NoEvents:
    """Sends nothing anywhere."""

    @staticmethod
    def dispatch_event(event):
        pass

    def process(self, event):
        pass


def client(datafile, profiles=None):
    instance = optimizely.Optimizely(
        datafile, user_profile_service=profiles, event_processor=NoEvents(), skip_json_validation=True
    )
    if not instance.is_valid:
        sys.exit("the SDK does not take the datafile")
    return instance


def variations(instance, experiment_keys, users):
    """The variation of each user in each experiment; None where the user has none."""
    return {
        f"{key} {user}": instance.get_variation(key, user)
        for key in experiment_keys
        for user in users
    }


def main():
    url, path, state, phase = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    with open(path, encoding="utf-8") as file:
        datafile = file.read()
    config = json.loads(datafile)
    experiments = config["experiments"] + [e for group in config["groups"] for e in group["experiments"]]
    existing = {e["key"]: {v["key"] for v in e["variations"]} for e in experiments}
    profiles = HoldfastProfiles(url)
    sticky = variations(client(datafile, profiles), sorted(existing), USERS)

    if phase == "first":
        with open(state, "w", encoding="utf-8") as file:
            json.dump(sticky, file)
        print(json.dumps({"decided": sum(v is not None for v in sticky.values()), "saves": profiles.saves}))
        return

    with open(state, encoding="utf-8") as file:
        former = json.load(file)
    fresh = variations(client(datafile), sorted(existing), USERS)
    decided = [k for k, variation in former.items() if variation is not None and k in sticky]
    bound = [k for k in decided if former[k] in existing[k.split()[0]]]
    print(
        json.dumps(
            {
                "kept": sum(sticky[k] == former[k] for k in bound),
                "moved": [k for k in bound if sticky[k] != former[k]],
                "would_have_moved": sum(fresh[k] != former[k] for k in bound),
                "given_another": len(decided) - len(bound),
                "saves": profiles.saves,
            }
        )
    )


if __name__ == "__main__":
    main()

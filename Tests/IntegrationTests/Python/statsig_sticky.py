"""Drives Statsig's public server core with the manual's class, statsig_storage.py, and two servers on one database.

Usage: statsig_sticky.py URL OTHER_URL ADMIN_SECRET CLIENT_SECRET READ_SECRET
"""

import json
import sys

import requests
from statsig_python_core import ExperimentEvaluationOptions, Statsig, StatsigOptions, StatsigUser
from statsig_python_core.data_store import DataStore, DataStoreResponse
from statsig_storage import HoldfastPersistentStorage

USERS = [f"user/{number} ü" for number in range(30)]


def expect(what, condition):
    if not condition:
        sys.exit(f"not so: {what}")


def experiment(salt):
    groups = [("red", "Control", ["half"]), ("blue", "Test", ["everyone"])]
    return {
        "type": "dynamic_config", "salt": salt, "enabled": True, "isActive": True, "defaultValue": {},
        "idType": "userID", "entity": "experiment", "explicitParameters": [], "hasSharedParams": False, "version": 1,
        "rules": [
            {
                "name": name, "groupName": name, "id": name, "salt": name, "passPercentage": 100, "idType": "userID",
                "conditions": conditions, "returnValue": {"color": color}, "isExperimentGroup": True,
            }
            for color, name, conditions in groups
        ],
    }


class Configurations(DataStore):
    """What Statsig's service would send."""

    def __init__(self, share):
        super().__init__()
        condition = {"operator": None, "field": None, "targetValue": None, "additionalValues": None,
                     "isDeviceBased": False, "idType": "userID"}
        half = {**condition, "type": "user_bucket", "targetValue": share, "operator": "lt",
                "additionalValues": {"salt": "s"}}
        self.text = json.dumps({
            "has_updates": True, "time": 1795353600000, "company_id": "c", "app_id": "a", "response_format": "dcs-v2",
            "feature_gates": {}, "layer_configs": {}, "layers": {}, "experiment_to_layer": {}, "id_lists": {},
            "diagnostics": {}, "sdk_configs": {}, "sdk_flags": {}, "param_stores": {},
            "condition_map": {"half": half, "everyone": {**condition, "type": "public"}},
            "dynamic_configs": {name: experiment(name) for name in ("pricing", "checkout")},
        })

    def get(self, key):
        return DataStoreResponse(result=self.text, time=1795353600000)


def main():
    url, other, admin, _, _ = sys.argv[1:]

    def colors(address, share, name):
        storage = HoldfastPersistentStorage(address, admin)
        statsig = Statsig("secret-key", StatsigOptions(
            data_store=Configurations(share), persistent_storage=storage, disable_network=True,
            disable_all_logging=True))
        statsig.initialize().wait()
        found = {}
        for user in (StatsigUser(user_id=id) for id in USERS):
            values = storage.get_user_persisted_value(user, "userID")
            options = ExperimentEvaluationOptions(user_persisted_values=values)
            found[user.user_id] = statsig.get_experiment(user, name, options).value.get("color")
        statsig.shutdown().wait()
        return found

    kept = colors(url, 500, "pricing")
    expect("both groups occur", set(kept.values()) == {"red", "blue"})
    expect("without storage users would move", set(colors(other, 0, "checkout").values()) == {"blue"})
    expect("users keep their group when the split changes", colors(other, 0, "pricing") == kept)
    expect("on every server", colors(url, 1000, "pricing") == kept)

    storage = HoldfastPersistentStorage(url, admin)
    key = f"{USERS[0]}:userID"
    expect("both experiments are kept", set(storage.load(key)) == {"pricing", "checkout"})
    storage.delete(key, "pricing")
    expect("one can be forgotten", set(storage.load(key)) == {"checkout"})
    target = requests.utils.quote(USERS[0], safe="")
    response = requests.delete(f"{url}/v1/profiles/{target}", headers={"Authorization": f"Bearer {admin}"}, timeout=10)
    expect(f"the user is erased: {response.text}", response.json()["erased"]["sticky_documents"] == 1)
    expect("and so is what was kept", storage.load(key) == {})
    expect("nobody has no values", storage.load("nobody:userID") == {})


if __name__ == "__main__":
    main()

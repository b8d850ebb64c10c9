"""Drives the public optimizely-sdk without its vendor's cloud: its polling config manager fetches the datafile from
Holdfast, and its batch event processor sends events there.

Usage: optimizely_sdk.py URL OTHER_URL ADMIN_SECRET CLIENT_SECRET READ_SECRET

The same events are sent natively to a second server, and the results of both must be equal.
"""

import sys
import time

import requests
from optimizely import optimizely
from optimizely.config_manager import AuthDatafilePollingConfigManager
from optimizely.event.event_processor import BatchEventProcessor

INTERVAL = 0.5
USERS = [f"user-{number}" for number in range(120)]


def experiment(key, number, split):
    return {
        "id": number, "key": key, "layerId": number, "status": "Running", "audienceIds": [], "forcedVariations": {},
        "variations": [
            {"id": number + "1", "key": "control", "featureEnabled": False},
            {"id": number + "2", "key": "new", "featureEnabled": True},
        ],
        "trafficAllocation": [
            {"entityId": number + "1", "endOfRange": split}, {"entityId": number + "2", "endOfRange": 10000},
        ],
    }


def datafile(revision, split=5000):
    return {
        "version": "4", "accountId": "1", "projectId": "77", "revision": str(revision), "sdkKey": "shop",
        "anonymizeIP": True, "botFiltering": False, "sendFlagDecisions": True, "groups": [], "audiences": [],
        "typedAudiences": [], "variables": [],
        "attributes": [{"id": "501", "key": "country"}],
        "events": [{"id": "601", "key": "purchase", "experimentIds": ["7001"]}],
        "experiments": [experiment("checkout", "7001", split), experiment("search_test", "7002", split)],
        "featureFlags": [
            {"id": "1", "key": "search", "experimentIds": ["7002"], "rolloutId": "", "variables": []},
            {"id": "2", "key": "banner", "experimentIds": [], "rolloutId": "", "variables": []},
        ],
        "rollouts": [],
    }


class Dispatcher:
    """Posts what the event processor hands over, and keeps it."""

    def __init__(self, url, secret):
        self.url = url + "/sdk/v1/events"
        self.headers = {"Authorization": "Bearer " + secret}
        self.batches = []

    def dispatch_event(self, event):
        self.batches.append(event.params)
        self.post(event.params)

    def post(self, params):
        answer = requests.post(self.url, json=params, headers=self.headers, timeout=20)
        assert answer.status_code == 204, (answer.status_code, answer.text)
        assert "X-Refused-Events" not in answer.headers, params


def wait(condition, what):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def main():
    url, other, admin, client_secret, _ = sys.argv[1:]
    as_admin = {"Authorization": "Bearer " + admin}

    def put(server, revision, split=5000):
        answer = requests.put(server + "/v1/datafile", json=datafile(revision, split), headers=as_admin)
        assert answer.status_code in (200, 201), answer.text

    def statuses():
        lines = requests.get(url + "/metrics", headers=as_admin).text.splitlines()
        route = 'route="/datafiles/{sdk_key}.json"'
        counts = [line for line in lines if line.startswith("holdfast_http_requests_total") and route in line]
        return {line.split('status="')[1][:3]: int(line.split()[-1]) for line in counts}

    put(url, 1)
    put(other, 1)
    manager = AuthDatafilePollingConfigManager(
        datafile_access_token=client_secret, sdk_key="shop", url_template=url + "/datafiles/{sdk_key}.json",
        update_interval=INTERVAL,
    )
    dispatcher = Dispatcher(url, client_secret)
    processor = BatchEventProcessor(dispatcher, batch_size=10, flush_interval=1, start_on_init=True)
    sdk = optimizely.Optimizely(config_manager=manager, event_processor=processor)
    assert manager.get_config().get_revision() == "1"

    exposures, goals = [], []
    for index, user in enumerate(USERS):
        attributes = {"country": "de" if index % 2 else "fr"}
        variation = sdk.activate("checkout", user, attributes)
        exposures.append({"user_id": user, "experiment": "checkout", "variation_key": variation})
        decision = sdk.create_user_context(user, attributes).decide("search")
        exposures.append({"user_id": user, "experiment": "search_test", "variation_key": decision.variation_key})
        # The flag has no rule: an impression without an experiment.
        sdk.create_user_context(user, attributes).decide("banner")
        if index % 3 == 0:
            sdk.track("purchase", user, attributes, {"revenue": 100 * index, "value": index + 0.5, "sku": "a"})
            goals.append({"user_id": user, "goal": "purchase", "value": index + 0.5})
        if index % 6 == 0:
            sdk.track("purchase", user, attributes, {"revenue": 250})
            goals.append({"user_id": user, "goal": "purchase", "value": 250})
    processor.stop()
    assert len(dispatcher.batches) > 10
    sent = sum(len(batch["visitors"]) for batch in dispatcher.batches)
    assert sent == 3 * len(USERS) + len(goals), sent
    for path, events in [("/v1/exposures", exposures), ("/v1/events", goals)]:
        answer = requests.post(other + path, json=events, headers=as_admin).json()
        assert all(result["status"] == "stored" for result in answer["results"]), answer

    def without_times(value):
        """The servers got the datafile at different times."""
        if isinstance(value, list):
            return [without_times(element) for element in value]
        if not isinstance(value, dict):
            return value
        return {name: without_times(member) for name, member in value.items() if name != "since"}

    def results(server, key):
        path = f"/v1/experiments/{key}/results?goal=purchase"
        return without_times(requests.get(server + path, headers=as_admin).json())

    for key in ["checkout", "search_test"]:
        assert results(url, key)["users"]["counted"] == len(USERS), results(url, key)
        assert results(url, key) == results(other, key), key
    # A dispatcher that is not sure sends again.
    before = {key: results(url, key) for key in ["checkout", "search_test"]}
    for batch in dispatcher.batches:
        dispatcher.post(batch)
    assert before == {key: results(url, key) for key in ["checkout", "search_test"]}
    lines = requests.get(url + "/v1/events?format=json", headers=as_admin).json()["events"]
    assert lines[0]["detail"]["tags"]["sku"] == "a" and lines[0]["detail"]["attributes"]["country"] == "fr", lines[0]
    lines = requests.get(url + "/v1/exposures?format=json&limit=1000", headers=as_admin).json()["exposures"]
    assert {line["experiment_id"] for line in lines} == {"7001", "7002"}

    # Polling: a datafile that is known is not sent again, and each change is seen.
    wait(lambda: statuses().get("304", 0) > 0, "no poll was answered with 304")
    put(url, 2, split=0)
    wait(lambda: manager.get_config().get_revision() == "2", "the SDK did not see the change")
    put(url, 3)
    put(url, 4)
    wait(lambda: manager.get_config().get_revision() == "4", "the SDK missed the second change in a second")
    manager.stop()


if __name__ == "__main__":
    main()

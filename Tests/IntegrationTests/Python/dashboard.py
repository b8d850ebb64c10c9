"""Reads a dashboard with the types that Grafana generates from its schemas, and writes it again.

usage: dashboard.py FILE

Every member must survive: one that the schema of the dashboard, of a panel's type or of a Prometheus query does not have
is lost on the way. Panels must have ids of their own, lie within 24 columns, and cover no other.
"""

import json
import sys

from grafana_foundation_sdk.cog import encoder, plugins
from grafana_foundation_sdk.models import dashboard

plugins.register_default_plugins()
with open(sys.argv[1]) as file:
    text = json.load(file)
faults = []


def compare(written, read, path):
    if isinstance(written, dict) and isinstance(read, dict):
        for name, value in written.items():
            if name in read:
                compare(value, read[name], f"{path}/{name}")
            else:
                faults.append(f"{path}/{name} is not in the schema")
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for index, value in enumerate(written):
            compare(value, read[index], f"{path}/{index}")
    elif written != read:
        faults.append(f"{path} must be {json.dumps(read)}; got {json.dumps(written)}")


model = dashboard.Dashboard.from_json(text)
compare(text, json.loads(json.dumps(model, cls=encoder.JSONEncoder)), "")

ids = [panel["id"] for panel in text["panels"]]
if len(ids) != len(set(ids)):
    faults.append("two panels have the same id")
covered = {}
for panel in text["panels"]:
    place, title = panel["gridPos"], panel["title"]
    if place["x"] + place["w"] > 24:
        faults.append(f"{title} is wider than the dashboard")
    for x in range(place["x"], place["x"] + place["w"]):
        for y in range(place["y"], place["y"] + place["h"]):
            other = covered.setdefault((x, y), title)
            if other != title:
                faults.append(f"{title} covers {other}")
for fault in sorted(set(faults)):
    print(fault, file=sys.stderr)
print(f"{len(ids)} panels")
sys.exit(1 if faults else 0)

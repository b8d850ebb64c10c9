"""Generates a client from the server's /openapi.json by openapi-python-client, and uses it.

usage: generated_client.py URL DIRECTORY
"""
import importlib
import json
import os
import pathlib
import pkgutil
import subprocess
import sys
import urllib.request

URL, DIRECTORY = sys.argv[1:3]
# Their bodies are streams of lines.
STREAMS = {"importProfiles", "importAttributes"}


def expect(what, condition):
    if not condition:
        sys.exit(f"not so: {what}")


def generate():
    """Returns the description."""
    with urllib.request.urlopen(f"{URL}/openapi.json") as response:
        text = response.read()
    pathlib.Path(DIRECTORY, "openapi.json").write_bytes(text)
    programs = os.path.dirname(sys.executable)
    run = subprocess.run(
        [f"{programs}/openapi-python-client", "generate", "--path", "openapi.json", "--output-path", "client"], cwd=DIRECTORY,
        capture_output=True, text=True, env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"})
    expect(f"a client is generated: {run.stdout}{run.stderr}", run.returncode == 0)
    # Everything is in it, but bodies and answers of other types than JSON and text.
    for line in run.stdout.splitlines():
        expect(f"{run.stdout}", not line.startswith("Unable to process schema"))
        if line.startswith(("Cannot parse", "Unsupported")):
            expect(line, "application/x-ndjson" in line or "image/svg+xml" in line)
    return json.loads(text)


def main():
    description = generate()
    sys.path.insert(0, f"{DIRECTORY}/client")
    import holdfast_client

    modules = {}
    for found in pkgutil.walk_packages(holdfast_client.__path__, "holdfast_client."):
        module = importlib.import_module(found.name)
        if ".api." in found.name:
            modules[found.name.rsplit(".", 1)[-1]] = module
    calls = {name.replace("_", "") for name, module in modules.items() if hasattr(module, "sync_detailed")}
    operations = [operation["operationId"] for path in description["paths"].values() for method, operation in path.items() if method != "parameters"]
    missing = {name for name in operations if name.lower() not in calls}
    expect(f"only streams are missing: {missing}", missing == STREAMS)

    from holdfast_client import models

    client = holdfast_client.Client(base_url=URL)

    def call(name, *arguments, **named):
        response = modules[name].sync_detailed(*arguments, client=client, **named)
        expect(f"{name}: {response.status_code} {response.content[:500]}", response.status_code < 300)
        return response.parsed

    def typed(value, kind):
        expect(f"{value} is of {kind}", isinstance(value, kind))
        return value

    # An experiment with a plan, of users who do things.
    call("put_metric", "paid", body=models.MetricDefinition.from_dict({"kind": "conversion", "goal": "purchase"}))
    call("put_metric", "calls", body=models.MetricDefinition.from_dict({"kind": "count", "goal": "call"}))
    definition = {
        "variations": [{"key": "control", "weight": 1}, {"key": "new", "weight": 2}],
        "metrics": {"primary": ["paid"], "guardrails": [{"metric": "calls", "margin": {"absolute": 0.5}}]}}
    created = typed(call("put_experiment", "checkout", body=models.ExperimentDefinition.from_dict(definition)), models.Experiment)
    expect(created, [v.key for v in created.variations] == ["control", "new"] and created.metrics.guardrails[0].margin.absolute == 0.5)
    listed = call("list_experiments")
    expect(listed, [typed(e, models.Experiment).key for e in listed.experiments] == ["checkout"])
    users = [f"user-{index}" for index in range(300)]
    assignments = call("assign", body=[models.AssignRequest.from_dict({"user_id": user, "experiment": "checkout"}) for user in users])
    expect(assignments, len(assignments) == 300 and all(a.variation_key in ("control", "new") for a in assignments))
    call("record_exposures", body=[models.Exposure.from_dict({"user_id": user, "experiment": "checkout"}) for user in users])
    call("record_events", body=[models.GoalEvent.from_dict({"user_id": user, "goal": "purchase", "value": 9.5}) for user in users[::3]])
    results = typed(call("get_results", "checkout", goal="purchase"), models.ExperimentResults)
    expect(results, results.users.counted == 300 and sum(v.converted for v in results.variations) == 100)
    results = typed(call("get_results", "checkout"), models.PlanResults)
    verdict, warnings = results.verdict.decision, results.metrics[1].warnings
    expect(warnings, warnings[0].code == "no_conversions" and results.users.counted == 300)
    expect(results, str(verdict) and [v.variation_key for v in results.metrics[0].variations] == ["control", "new"])
    interval = results.metrics[0].variations[1].lift_interval
    expect(results, interval is None or all(isinstance(bound, float) for bound in interval))
    assignment = typed(call("get_assignment", "user-1", "checkout"), models.Assignment)
    expect(assignment, assignment.variation_key in ("control", "new"))

    # Flags.
    rule = {"key": "everybody", "audience": None, "variation": "on"}
    flag = {"type": "boolean", "variations": [{"key": "off", "value": False}, {"key": "on", "value": True}], "rules": [rule]}
    made = call("put_flag", "new-design", body=models.FlagDefinition.from_dict(flag))
    expect(made, typed(made, models.Flag).rules)
    flags = typed(call("list_flags"), models.Flags)
    expect(flags, {f.key for f in flags.flags} == {"checkout", "new-design"})
    flag = typed(call("get_flag", "new-design"), models.Flag)
    preview = typed(call("preview_flag", "new-design", body=models.FlagDefinition.from_dict({"enabled": False})), models.FlagPreview)
    evaluations = typed(call("evaluate", body=models.EvaluationRequest.from_dict({"user_id": "ann"})), models.Evaluations)
    expect(evaluations, {e.flag_key: e.variation_key for e in evaluations.evaluations}["new-design"] == "on")

    # Definitions, segments and holdouts as a whole.
    call("put_attribute", "country", body=models.AttributeDefinition.from_dict({"type": "country"}))
    conditions = {"type": "custom_attribute", "name": "country", "match": "exact", "value": "de"}
    call("put_segment", "germans", body=models.SegmentDefinition.from_dict({"conditions": conditions}))
    expect("a segment", typed(call("get_segment", "germans"), models.Segment).name == "germans")
    call("put_holdout", "nobody", body=models.HoldoutDefinition.from_dict({"share": 5, "flags": ["new-design"]}))
    expect("a holdout", typed(call("get_holdout", "nobody"), models.Holdout).key == "nobody")
    definitions = typed(call("get_definitions"), models.Definitions)
    expect(definitions, [e.key for e in definitions.experiments] == ["checkout"])
    changes = call("preview_definitions", body=definitions)
    expect(changes, changes.to_dict()["changes"] == [])

    # Other protocols, and an error with its type.
    answer = modules["evaluate_flag"].sync_detailed("new-design", client=client, body=models.OFREPRequest.from_dict({"context": {"targetingKey": "ann"}}))
    expect(answer, answer.status_code == 200 and answer.parsed.variant == "on")
    problem = modules["get_experiment"].sync_detailed("unknown", client=client).parsed
    expect(problem, typed(problem, models.Problem).status == 404 and problem.detail)
    expect("profiles", typed(call("look_up_profiles", body=models.Users.from_dict({"user_ids": ["user-1"]})), models.Profiles).profiles)


main()

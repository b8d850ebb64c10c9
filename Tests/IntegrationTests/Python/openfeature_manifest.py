"""Validates a manifest of flags, a file, by the published schema of the OpenFeature CLI.

The schema is of the file that the CLI makes of a response (open-feature/cli, schema/v0/flag-manifest.json; Copyright OpenFeature
Maintainers, Apache License 2.0, see the folder openfeature).
"""

import json
import pathlib
import sys

import jsonschema

schema = json.loads((pathlib.Path(__file__).parent / "openfeature/flag-manifest.json").read_text())
flags = {}
for flag in json.load(open(sys.argv[1]))["flags"]:
    key = flag.pop("key")
    assert key not in flags, key
    flags[key] = {"flagType": flag.pop("type"), **flag}
jsonschema.Draft7Validator.check_schema(schema)
jsonschema.Draft7Validator(schema).validate({"flags": flags})
# The schema must be able to refuse.
wrong = {"flags": {**flags, "wrong": {"flagType": "integer", "defaultValue": "x"}}}
assert not jsonschema.Draft7Validator(schema).is_valid(wrong)
print(" ".join(sorted(f"{key}:{flag['flagType']}" for key, flag in flags.items())))

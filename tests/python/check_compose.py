"""Checks a Compose file against the schema of the Compose Specification and prints it as JSON, merge keys resolved.

Usage: check_compose.py SCHEMA COMPOSE_FILE. Exits with 1 and one line per violation if there are any.
"""

import json
import sys

import jsonschema
import yaml


def main():
    schema_path, compose_path = sys.argv[1:]
    with open(schema_path, encoding="utf-8") as file:
        schema = json.load(file)
    with open(compose_path, encoding="utf-8") as file:
        compose = yaml.safe_load(file)
    checker = jsonschema.validators.validator_for(schema)
    checker.check_schema(schema)
    violations = list(checker(schema).iter_errors(compose))
    for violation in violations:
        print(f"{violation.json_path}: {violation.message}", file=sys.stderr)
    if violations:
        sys.exit(1)
    json.dump(compose, sys.stdout)


if __name__ == "__main__":
    main()

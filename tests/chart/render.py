"""Renders deploy/chart with Helm's own library, for suite/chart.rs.

    render.py VALUES

VALUES is JSON, as in a file of values. Prints {"objects": [...], "notes": "..."}, or {"refused": "..."} with what Helm
says. Helm asks no cluster, so what the chart looks up there is missing. Exits with 77 if the library is not installed: it
has packages for few machines.
"""

import json
import pathlib
import sys

import yaml

try:
    import helm_python
except ImportError:
    sys.exit(77)

CHART = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "chart"


def main():
    values = json.loads(sys.argv[1])
    try:
        with helm_python.Chart.load(str(CHART)) as chart:
            chart.validate_schema(values)
            files = chart.render(values, name="letterbox", namespace="default")
        report = helm_python.lint(str(CHART), values, strict=True)
        if report["errors"]:
            raise helm_python.HelmError("; ".join(report["errors"]))
    except helm_python.HelmError as error:
        return {"refused": str(error)}
    objects, notes = [], ""
    for name, text in files.items():
        if name.endswith(".txt"):
            notes += text
        else:
            objects += [one for one in yaml.safe_load_all(text) if one]
    return {"objects": objects, "notes": notes}


print(json.dumps(main()))

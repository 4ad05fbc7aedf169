"""Alerts and the dashboard: every expression parses, and names metrics and labels that exist."""

import json
import re

import promql_parser
import yaml
from known import ROOT, metrics

SEVERITIES = {"critical", "warning", "info"}
PROMETHEUS = ROOT / "packaging/prometheus"
# Of Prometheus itself.
OWN = {"up": {"job", "instance"}}
ANYWHERE = {"job", "instance"}


def check(expression):
    """One expression of PromQL."""
    promql_parser.parse(expression)
    known = metrics() | OWN
    named = re.findall(r"\b((?:sandbox|woma)_\w+|up)\b(?:\{([^}]*)\})?", expression)
    assert named, f"no metric in {expression}"
    for name, labels in named:
        assert name in known, f"there is no metric {name}"
        for label in re.findall(r"(\w+)\s*[=!]~?", labels):
            assert label in known[name] | ANYWHERE, f"{name} has no label {label}"
    allowed = set().union(*(known[name] for name, _ in named)) | ANYWHERE
    for labels in re.findall(r"\bby \(([^)]*)\)", expression):
        for label in labels.split(","):
            assert label.strip() in allowed, f"no label {label} in {expression}"


def alerts():
    """The rules, their severities, and where Alertmanager sends them."""
    main = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    job, = main["scrape_configs"]
    assert job["metrics_path"] == "/metrics" and job["job_name"] == "woma"
    assert all((PROMETHEUS / name).exists() for name in main["rule_files"])
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 8
    for rule in rules:
        check(rule["expr"])
        assert rule["labels"]["severity"] in SEVERITIES, rule["alert"]
        assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]
        assert re.fullmatch(r"\d+[mh]", rule.get("for", "0m")), rule["alert"]
        for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            assert label in ANYWHERE or label in rule["expr"] or label == "pool", label
    assert {rule["labels"]["severity"] for rule in rules} == SEVERITIES

    routing = yaml.safe_load((PROMETHEUS / "alertmanager.yml").read_text())
    receivers = {receiver["name"] for receiver in routing["receivers"]}
    routes = {route["matchers"][0]: route["receiver"] for route in routing["route"]["routes"]}
    assert set(routes) == {f'severity="{severity}"' for severity in SEVERITIES}, routes
    assert set(routes.values()) | {routing["route"]["receiver"]} == receivers, "each receiver is used"
    assert len(set(routes.values())) == len(SEVERITIES), "each severity goes elsewhere"


def dashboard():
    """The dashboard: its panels do not overlap, and show what there is."""
    whole = json.loads((ROOT / "packaging/grafana/woma.json").read_text())
    panels = whole["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 15
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
        for target in panel["targets"]:
            check(target["expr"].replace("$__rate_interval", "5m"))
    variables = {variable["name"] for variable in whole["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)\}?", json.dumps(panels))) - {"__rate_interval"}
    assert used == variables, (used, variables)
    shown = {name for panel in panels for target in panel["targets"] for name in re.findall(r"(?:sandbox|woma)_\w+", target["expr"])}
    # Two are always 0 in this version, and processor time of datasets is in the log.
    left_out = {"sandbox_package_installs_total", "woma_egress_requests_total", "woma_dataset_seconds_total"}
    missing = {name for name in metrics() if not re.search(r"_(bucket|sum|count)$", name)} - shown - left_out
    assert missing <= {"sandbox_execution_duration_seconds"}, f"not on the dashboard: {missing}"

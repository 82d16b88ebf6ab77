"""What deploy/ holds parses, pins its images, holds no secret, and names only settings that something reads."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from fabric_health.airflow.sites import VARIABLE
from fabric_health.checks.registry import ENTRIES
from fabric_health.datasets.store import DEFAULT_BUCKET
from fabric_health.jobs.settings import KubernetesSettings
from fabric_health.rooms import STORE_CONNECTION

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
VALUES = yaml.safe_load((DEPLOY / "helm-values.yaml").read_text())
ENV_EXAMPLE = dict(
    line.split("=", 1)
    for line in (DEPLOY / "env.example").read_text().splitlines()
    if line and not line.startswith("#")
)
SECRET_NAME = re.compile(r"SECRET|PASSWORD|FERNET|TOKEN|_KEY$|CONN_|SQL_ALCHEMY")
# Set for a library, read by it.
OF_LIBRARIES = {"GX_ANALYTICS_ENABLED"}
AIRFLOW_COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")


def _compose_environment() -> dict[str, str]:
    out: dict[str, str] = {}
    for service in COMPOSE["services"].values():
        out.update(service.get("environment") or {})
    return out


def _helm_environment() -> dict[str, str]:
    return {e["name"]: e["value"] for e in VALUES["env"]}


def _image_environment() -> dict[str, str]:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.removeprefix("ENV ") for line in text.splitlines() if line.startswith("ENV ")]
    return {m[1]: m[2].strip('"') for line in lines for m in re.finditer(r'(\w+)=("[^"]*"|\S+)', line)}


ENVIRONMENTS = [_compose_environment(), _helm_environment(), _image_environment(), ENV_EXAMPLE]


def _airflow_options() -> set[str]:
    """Return AIRFLOW__SECTION__OPTION of every option of the installed Airflow, without importing it."""
    spec = importlib.util.find_spec("airflow")
    assert spec is not None
    assert spec.submodule_search_locations
    file = Path(next(iter(spec.submodule_search_locations))) / "config_templates" / "config.yml"
    described: dict[str, Any] = yaml.safe_load(file.read_text())
    return {
        f"AIRFLOW__{section.upper()}__{option.upper()}"
        for section, body in described.items()
        for option in body["options"]
    }


def _strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [s for v in value.values() for s in _strings(v)]
    if isinstance(value, list):
        return [s for v in value for s in _strings(v)]
    return [str(value)]


@pytest.mark.parametrize(
    "environment", [_compose_environment(), _helm_environment(), _image_environment(), ENV_EXAMPLE]
)
def test_every_variable_is_read_by_someone(environment: dict[str, str]) -> None:
    code = "\n".join(p.read_text() for p in (ROOT / "include").rglob("*.py"))
    interpolated = set(re.findall(r"\$\{(\w+)", (DEPLOY / "compose.yaml").read_text()))
    options = _airflow_options()
    for name in environment:
        if name.startswith("AIRFLOW__"):
            assert name in options, f"{name} is no option of the installed Airflow"
        elif name.startswith("AIRFLOW_CONN_"):
            assert re.fullmatch(r"AIRFLOW_CONN_[A-Z0-9_]+", name)
        elif name.startswith("FABRIC_HEALTH_"):
            assert f'"{name}"' in code or name in interpolated, f"nothing reads {name}"
        else:
            assert name in OF_LIBRARIES or name in interpolated or name.startswith("POSTGRES_"), f"nothing reads {name}"


def test_sites_and_the_store_are_given_everywhere() -> None:
    assert VARIABLE in _compose_environment()
    assert VARIABLE in _helm_environment()
    store = f"AIRFLOW_CONN_{STORE_CONNECTION.upper()}"
    assert store in ENV_EXAMPLE
    assert store in {s["envName"] for s in VALUES["secret"]}


@pytest.mark.parametrize(
    "environment", [_compose_environment(), _helm_environment(), _image_environment(), ENV_EXAMPLE]
)
def test_no_secret_is_written_down(environment: dict[str, str]) -> None:
    for name, value in environment.items():
        if not SECRET_NAME.search(name) or name.endswith("_FILE"):
            continue
        without_variables = re.sub(r"\$\{[^}]*\}", "", value)
        assert not value or (value != without_variables and not re.search(r":\w[^/@]*@", without_variables)), name


def test_helm_takes_secrets_by_reference_only() -> None:
    for entry in VALUES["secret"]:
        assert set(entry) == {"envName", "secretName", "secretKey"}
    assert not any(SECRET_NAME.search(e["name"]) for e in VALUES["env"])
    assert not {"fernetKey", "jwtSecret", "apiSecretKey", "webserverSecretKey"} & set(VALUES)
    assert all(VALUES[name] for name in ("fernetKeySecretName", "jwtSecretName", "apiSecretKeySecretName"))
    assert set(VALUES["data"]) == {"metadataSecretName"}
    assert VALUES["createUserJob"]["defaultUser"]["enabled"] is False


@pytest.mark.parametrize("document", [COMPOSE, VALUES])
def test_images_are_pinned(document: dict[str, Any]) -> None:
    assert not [s for s in _strings(document) if s.endswith(":latest") or s == "latest"]
    for service in document.get("services", {}).values():
        default = re.fullmatch(r"\$\{\w+:-(.+)\}", service["image"])
        assert default
        assert ":" in default[1] or default[1] == "unset"


def test_every_long_running_service_has_a_health_check() -> None:
    for name, service in COMPOSE["services"].items():
        assert ("healthcheck" in service) != (service["restart"] == "no"), name


def test_all_airflow_components_share_one_environment() -> None:
    common = COMPOSE["x-airflow"]
    for name in AIRFLOW_COMPONENTS:
        service = COMPOSE["services"][name]
        assert service["environment"] == common["environment"]
        assert service["env_file"] == common["env_file"]
    assert "AIRFLOW__API_AUTH__JWT_SECRET" in ENV_EXAMPLE


def test_ports_are_bound_to_loopback_by_default() -> None:
    for service in COMPOSE["services"].values():
        for port in service.get("ports", ()):
            assert re.match(r"\$\{\w+:-127\.0\.0\.1:", port)


def test_helm_mounts_what_it_names() -> None:
    volumes = {v["name"] for v in VALUES["volumes"]}
    mounts = {m["name"]: m["mountPath"] for m in VALUES["volumeMounts"]}
    assert volumes == set(mounts)
    site_file = _helm_environment()[VARIABLE].partition("=")[2].partition("@")[0]
    assert site_file.startswith(mounts["fabric-health-site"] + "/")


def test_folders_are_where_the_image_puts_them() -> None:
    image = _image_environment()
    for name in ("AIRFLOW__CORE__DAGS_FOLDER", "AIRFLOW__CORE__PLUGINS_FOLDER"):
        assert _helm_environment()[name] == image[name]


LIST = {"s3:GetBucketLocation", "s3:ListBucket"}


@pytest.mark.parametrize(
    ("name", "on_objects", "on_evidence"),
    [("pipeline", {"s3:GetObject", "s3:PutObject"}, {"s3:DeleteObject"}), ("analyst", {"s3:GetObject"}, set())],
)
def test_policies_give_exactly_what_is_needed(name: str, on_objects: set[str], on_evidence: set[str]) -> None:
    """Nobody may delete tables: housekeeping needs no more than evidence."""
    policy = json.loads((DEPLOY / "policies" / f"{name}.json").read_text())
    assert policy["Version"] == "2012-10-17"
    given = {s["Resource"][0]: set(s["Action"]) for s in policy["Statement"]}
    bucket = f"arn:aws:s3:::{DEFAULT_BUCKET}"
    evidence = {f"{bucket}/evidence/*": on_evidence} if on_evidence else {}
    assert given == {bucket: LIST, f"{bucket}/*": on_objects, **evidence}
    for statement in policy["Statement"]:
        assert statement["Effect"] == "Allow"
        assert set(statement) == {"Sid", "Effect", "Action", "Resource"}
        assert len(statement["Resource"]) == 1


def test_every_pool_of_a_check_is_there() -> None:
    pools = json.loads((DEPLOY / "pools.json").read_text())
    assert {e.pool for e in ENTRIES} <= set(pools)
    assert all(p["slots"] > 0 for p in pools.values())


def test_the_image_is_pinned_and_does_not_run_as_root() -> None:
    text = (ROOT / "Dockerfile").read_text()
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    base = next(line.removeprefix("ARG AIRFLOW_IMAGE=") for line in lines if line.startswith("ARG AIRFLOW_IMAGE="))
    assert re.fullmatch(r"apache/airflow:\d+\.\d+\.\d+-python3\.\d+", base)
    locked = re.search(r"^apache-airflow==([\d.]+)", (ROOT / "requirements.txt").read_text(), re.M)
    assert locked
    assert base.startswith(f"apache/airflow:{locked[1]}-")
    assert [line for line in lines if line.startswith("FROM ")] == ["FROM ${AIRFLOW_IMAGE}"]
    assert [line for line in lines if line.startswith("USER ")][-1] == "USER airflow"
    assert not re.search(r"\bADD\b|curl .*\|", text)
    for line in lines:
        if "pip install" in line and "-r " in line:
            assert "--require-hashes" in line
    sources = [w for line in lines if line.startswith("COPY ") for w in line.split()[1:-1] if not w.startswith("--")]
    assert all((ROOT / s).exists() for s in sources)


@pytest.mark.parametrize("file", sorted((DEPLOY / "images").glob("*/Dockerfile")), ids=lambda p: p.parent.name)
def test_workload_images_are_pinned_and_take_nothing_unseen(file: Path) -> None:
    lines = [line for line in file.read_text().replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    given = dict(line.removeprefix("ARG ").split("=", 1) for line in lines if re.match(r"ARG \w+=", line))
    for base in bases:
        image = re.sub(r"\$\{(\w+)\}", lambda m: given[m[1]], base)
        assert ":" in image, image
        assert not image.endswith(":latest")
    assert not [line for line in lines if re.search(r"^ADD\b|curl .*\||wget ", line)]
    assert not re.search(r"^USER (root|0)\b", [line for line in lines if line.startswith("USER ")][-1])
    for line in lines:
        if line.startswith("COPY ") and "--from=" not in line:
            assert all((file.parent / w).exists() for w in line.split()[1:-1] if not w.startswith("--"))


@pytest.mark.parametrize("file", sorted((DEPLOY / "images").glob("*/Dockerfile")), ids=lambda p: p.parent.name)
def test_workload_images_have_the_python_that_pods_are_run_by(file: Path) -> None:
    """The wrapper of jobs, what sends rank 0's files back, and the probe of nodes are all given to python3.

    vLLM's image is itself a program in Python.
    """
    text = re.sub(r"(?m)^\s*#.*\n", "", file.read_text()).replace("\\\n", " ")
    last = text[text.rindex("\nFROM ") + 1 :]
    base = re.sub(r"\$\{(\w+)\}", lambda m: re.findall(rf"(?m)^ARG {m[1]}=(\S+)", text)[0], last.split()[1])
    assert re.search(r"(^|/)(python3?|vllm-openai)[:-]", base) or re.search(r"apt-get install [^&]* python3\s", last), (
        base
    )


RBAC = {n: list(yaml.safe_load_all((DEPLOY / n).read_text())) for n in ("rbac.yaml", "probe-rbac.yaml")}


def test_the_account_for_node_probes_may_do_no_more_than_it_uses() -> None:
    rules = {
        (group, resource): set(rule["verbs"])
        for d in RBAC["probe-rbac.yaml"]
        if d["kind"] == "Role"
        for rule in d["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    used = {("", "pods"): {"create", "list", "delete"}, ("", "pods/log"): {"get"}, ("", "events"): {"list"}}
    assert rules == used
    assert not [d for ds in RBAC.values() for d in ds if d["kind"].startswith("Cluster")]


def test_probes_have_a_namespace_of_their_own_and_the_account_of_the_pipeline() -> None:
    (namespace,) = [d for d in RBAC["probe-rbac.yaml"] if d["kind"] == "Namespace"]
    assert namespace["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "privileged"}
    (account,) = [d["metadata"] for d in RBAC["rbac.yaml"] if d["kind"] == "ServiceAccount"]
    assert namespace["metadata"]["name"] != account["namespace"]
    (binding,) = [d for d in RBAC["probe-rbac.yaml"] if d["kind"] == "RoleBinding"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
    places = {d["metadata"].get("namespace", namespace["metadata"]["name"]) for d in RBAC["probe-rbac.yaml"]}
    assert places == {namespace["metadata"]["name"]}


def test_dlrovers_master_has_rights_in_the_jobs_namespace_alone() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "dlrover-rbac.yaml").read_text()))
    (account,) = [d["metadata"] for d in RBAC["rbac.yaml"] if d["kind"] == "ServiceAccount"]
    assert [d["kind"] for d in documents] == ["Role", "RoleBinding"]
    assert {d["metadata"]["namespace"] for d in documents} == {account["namespace"]}
    assert documents[1]["subjects"] == [
        {"kind": "ServiceAccount", "name": "default", "namespace": account["namespace"]}
    ], "the account that the pod of DLRover's master runs as; not ours"
    resources = {r for rule in documents[0]["rules"] for r in rule["resources"]}
    assert resources == {"pods", "services", "elasticjobs", "elasticjobs/finalizers", "scaleplans"}
    for document in documents:
        kubernetes_validate.validate(document, "1.37", strict=True)


def test_the_volume_of_models_is_one_that_the_site_file_may_name_and_all_pods_may_write() -> None:
    claim = yaml.safe_load((DEPLOY / "models-claim.yaml").read_text())
    kubernetes_validate.validate(claim, "1.37", strict=True)
    images = {"vllm": "registry.example.org/vllm:1"}
    namespace, models = claim["metadata"]["namespace"], {"claim": claim["metadata"]["name"]}
    made = KubernetesSettings.model_validate({"namespace": namespace, "images": images, "models": models})
    assert made.models
    assert made.models.mount == "/models"
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]

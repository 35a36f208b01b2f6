"""The files of `deploy/` against published schemas, against each other and against the code that reads them."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import kubernetes_validate
import pytest
import yaml
from dagster_k8s.job import UserDefinedDagsterK8sConfig

from dataset_packaging.orchestration.keys import DATASET_TAG

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = "1.36"


def read_yaml(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text())


def run_tool(*command: str | Path) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def snake_case(value: Any) -> Any:
    """Names of the chart's values as Dagster writes them, at every level."""
    if isinstance(value, dict):
        return {re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", key): snake_case(value[key]) for key in value}
    return [snake_case(item) for item in value] if isinstance(value, list) else value


def test_the_image_is_built_without_anything_that_hadolint_warns_of() -> None:
    run_tool(Path(sys.executable).with_name("hadolint"), DEPLOY / "Dockerfile")


def test_the_image_copies_files_that_exist_and_that_its_context_holds() -> None:
    kept = [line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = []
    for line in re.findall(r"^COPY (?!--from)(.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE):
        copied += [word for word in line.split()[:-1] if not word.startswith("--")]
    assert len(copied) > 5
    assert [name for name in copied if not (ROOT / name).exists() or name not in kept] == []


def test_the_image_installs_extras_that_exist_at_the_pins_that_are_tested() -> None:
    """One set of versions: a worker of another version would write other bytes."""
    (extras,) = re.findall(r"'\.\[(.*)\]'", (DEPLOY / "Dockerfile").read_text())
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= declared.keys()
    tested, shipped = read_pins(ROOT / "constraints.txt"), read_pins(DEPLOY / "constraints.txt")
    assert {"dagster", "dagster-postgres", "ray", "pyarrow", "pillow"} <= shipped.keys() & tested.keys()
    assert {name: pin for name, pin in shipped.items() if tested.get(name, pin) != pin} == {}


def read_pins(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {name.lower(): version for name, version in (line.split("==") for line in lines)}


def test_compose_file_is_valid_under_the_compose_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    run_tool(*command, DEPLOY / "docker-compose.yaml")


def test_compose_services_wait_for_services_and_use_files_and_secrets_that_are_told_of() -> None:
    compose = read_yaml("docker-compose.yaml")
    waited_for = {name for service in compose["services"].values() for name in service.get("depends_on", {})}
    assert waited_for <= compose["services"].keys()
    assert [c["file"] for c in compose["configs"].values() if "file" in c and not (DEPLOY / c["file"]).exists()] == []
    told = set(re.findall(r"^([A-Z_0-9]+)=", (DEPLOY / "env.example").read_text(), re.MULTILINE))
    assert set(re.findall(r"\$\{([A-Z_0-9]+)", (DEPLOY / "docker-compose.yaml").read_text())) == told


@pytest.mark.parametrize("service", ["code", "webserver", "daemon"])
def test_compose_gives_every_part_of_dagster_what_its_settings_read(service: str) -> None:
    read = set(re.findall(r"\{env: (\w+)\}", (DEPLOY / "dagster.yaml").read_text()))
    assert len(read) == 6
    assert read <= read_yaml("docker-compose.yaml")["services"][service]["environment"].keys()


def test_the_webserver_finds_the_code_location_that_compose_starts() -> None:
    (server,) = read_yaml("workspace.yaml")["load_from"]
    assert server["grpc_server"]["host"] in read_yaml("docker-compose.yaml")["services"]
    (command,) = re.findall(r'"dagster", "code-server", .*?\]', (DEPLOY / "Dockerfile").read_text(), re.DOTALL)
    assert f'"--port", "{server["grpc_server"]["port"]}"' in command


def test_no_container_runs_as_root() -> None:
    assert re.findall(r"^USER (\d+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE) == ["10001"]
    for spec in pod_specs():
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in spec["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False


def pod_specs() -> Iterator[dict[str, Any]]:
    """All pods that the two Kubernetes files describe."""
    cluster = read_yaml("raycluster.yaml")["spec"]
    yield cluster["headGroupSpec"]["template"]["spec"]
    yield from (group["template"]["spec"] for group in cluster["workerGroupSpecs"])
    values = read_yaml("helm-values.yaml")
    parts = [values["dagsterWebserver"], values["dagsterDaemon"], *values["dagster-user-deployments"]["deployments"]]
    for part in parts:
        yield {
            "securityContext": part["podSecurityContext"],
            "volumes": part.get("volumes", []),
            "containers": [
                {
                    "name": part.get("name", "dagster"),
                    "image": f"{part['image']['repository']}:{part['image']['tag']}",
                    "imagePullPolicy": part["image"]["pullPolicy"],
                    "env": part["env"] if isinstance(part["env"], list) else [],
                    "resources": part["resources"],
                    "securityContext": part["securityContext"],
                    "volumeMounts": part.get("volumeMounts", []),
                }
            ],
        }
    run = values["runLauncher"]["config"]["k8sRunLauncher"]["runK8sConfig"]
    yield {**run["podSpecConfig"], "containers": [{"name": "run", "image": "run", **run["containerConfig"]}]}


def test_pods_are_valid_under_the_schemas_of_kubernetes() -> None:
    specs = list(pod_specs())
    assert len(specs) == 6
    for spec in specs:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def test_the_ray_cluster_has_only_fields_that_kuberay_knows() -> None:
    """Of `ray.io/v1`; pod templates are tried above."""
    cluster = read_yaml("raycluster.yaml")
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    spec = cluster["spec"]
    assert spec.keys() <= {
        *("rayVersion", "enableInTreeAutoscaling", "autoscalerOptions", "headGroupSpec", "workerGroupSpecs"),
    }
    assert spec["autoscalerOptions"].keys() <= {
        *("version", "upscalingMode", "idleTimeoutSeconds", "env", "resources", "image", "securityContext"),
    }
    assert spec["headGroupSpec"].keys() <= {"serviceType", "rayStartParams", "template"}
    for group in spec["workerGroupSpecs"]:
        assert group.keys() == {
            *("groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"),
        }
    parameters = [spec["headGroupSpec"]["rayStartParams"], *(g["rayStartParams"] for g in spec["workerGroupSpecs"])]
    assert all(isinstance(value, str) for group in parameters for value in group.values())


def test_all_parts_name_the_versions_that_are_pinned() -> None:
    pins = read_pins(DEPLOY / "constraints.txt")
    assert read_yaml("raycluster.yaml")["spec"]["rayVersion"] == pins["ray"]
    assert f"--version {pins['dagster']} " in (DEPLOY / "helm-values.yaml").read_text()


def test_runs_in_pods_find_the_head_of_the_ray_cluster() -> None:
    """A run is no node of the cluster: it needs Ray's client port, at the service that KubeRay makes."""
    (code,) = read_yaml("helm-values.yaml")["dagster-user-deployments"]["deployments"]
    address = next(variable["value"] for variable in code["env"] if variable["name"] == "RAY_ADDRESS")
    cluster = read_yaml("raycluster.yaml")
    (head,) = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    (port,) = [port["containerPort"] for port in head["ports"] if port["name"] == "client"]
    assert address == f"ray://{cluster['metadata']['name']}-head-svc:{port}"


def test_dagster_takes_the_configuration_of_run_pods() -> None:
    launcher = read_yaml("helm-values.yaml")["runLauncher"]["config"]["k8sRunLauncher"]
    config = snake_case(launcher["runK8sConfig"])
    assert UserDefinedDagsterK8sConfig.from_dict(config).to_dict()["container_config"] == config["container_config"]


def test_the_chart_says_the_same_as_the_settings_of_the_instance() -> None:
    values, settings = read_yaml("helm-values.yaml"), read_yaml("dagster.yaml")
    concurrency = snake_case({name: values["concurrency"][name] for name in ("pools", "runs")})
    concurrency["runs"]["tag_concurrency_limits"][0]["value"] = {"applyLimitPerUniqueValue": True}
    assert concurrency == settings["concurrency"]
    daemon = snake_case(values["dagsterDaemon"])
    for name in ("run_monitoring", "run_retries", "schedules", "sensors"):
        assert daemon[name] == settings[name], name
    logs = snake_case(values["computeLogManager"]["config"]["s3ComputeLogManager"])
    assert {**logs, "bucket": {"env": "DAGSTER_LOGS_BUCKET"}} == settings["compute_logs"]["config"]
    retention = snake_case({name: values["retention"][name] for name in ("schedule", "sensor")})
    assert retention == settings["retention"]


def test_the_queue_limits_runs_by_the_tag_that_runs_have() -> None:
    """DAG-06."""
    (limit,) = read_yaml("dagster.yaml")["concurrency"]["runs"]["tag_concurrency_limits"]
    assert limit == {"key": DATASET_TAG, "value": {"applyLimitPerUniqueValue": True}, "limit": 1}


def test_policies_allow_what_the_documents_allow_and_no_more() -> None:
    """Those of docs/s3.md are enforced by real servers in other tests."""
    shown = re.findall(r"<!-- policy: \w+ -->\n```json\n(.*?)```", (ROOT / "docs/s3.md").read_text(), re.DOTALL)
    documented = [statement for policy in shown for statement in json.loads(policy)["Statement"]]
    packaging = json.loads((DEPLOY / "iam/packaging.json").read_text())["Statement"]
    named = [statement for statement in packaging if "ComputeLogs" not in statement["Sid"]]
    assert [{k: v for k, v in statement.items() if k != "Sid"} for statement in named] == documented
    for path in (DEPLOY / "iam").glob("*.json"):
        for statement in json.loads(path.read_text())["Statement"]:
            assert not any("*" in action for action in statement["Action"]), path.name
            assert "*" not in statement.get("Resource", []), path.name


def test_no_file_names_a_package_index() -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            assert not re.search(r"index-url|https?://\S*/simple", path.read_text()), path.name


def test_the_pins_of_dagster_are_those_of_this_environment() -> None:
    assert read_pins(DEPLOY / "constraints.txt")["dagster"] == dg.__version__

"""docs/s3.md: its YAML loads, its AWS commands are what the services know, its lifecycle rule does on a real server."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml
from botocore import xform_name
from botocore.model import OperationModel
from botocore.validate import ParamValidator

from dataset_packaging.config import parse_dataset
from dataset_packaging_tests.servers.s3_server import S3Endpoint

TEXT = (Path(__file__).parents[2] / "docs" / "s3.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", TEXT, re.DOTALL)
PIECES = [body for kind, body in BLOCKS if kind == "yaml"]
POLICIES = [body for kind, body in BLOCKS if kind == "json"]
COMMANDS = [
    command
    for kind, body in BLOCKS
    if not kind
    for command in re.split(r"\n(?=aws )", body.replace("\\\n", " ").strip())
    if command.startswith("aws ")
]


def operation_of(service: str, name: str) -> OperationModel:
    """Finds what a command of the AWS CLI calls: its names are those of the API, spelled with dashes."""
    model = botocore.session.get_session().get_service_model(service)
    names = {xform_name(operation, "-"): operation for operation in model.operation_names}
    assert name in names, f"{service} knows no {name}"
    return model.operation_model(names[name])


def value_of(text: str) -> Any:
    """Reads an argument: JSON, `Name=value,Name=value`, or a text."""
    if text.startswith("{"):
        return json.loads(text)
    if re.fullmatch(r"\w+=[^,]+(,\w+=[^,]+)*", text):
        return dict(part.split("=", 1) for part in text.split(","))
    return text


def parameters_of(command: str) -> tuple[OperationModel, dict[str, Any]]:
    _, service, name, *arguments = shlex.split(command)
    operation = operation_of({"s3api": "s3"}.get(service, service), name)
    assert operation.input_shape is not None
    members = {xform_name(member, "-"): member for member in operation.input_shape.members}
    told = {}
    for option, text in zip(arguments[::2], arguments[1::2], strict=True):
        assert option.removeprefix("--") in members, f"{name} takes no {option}"
        told[members[option.removeprefix("--")]] = value_of(text)
    return operation, told


def test_the_page_has_what_is_tried_here() -> None:
    assert [" ".join(command.split()[1:3]) for command in COMMANDS] == [
        "s3api put-bucket-lifecycle-configuration",
        "s3control create-access-grants-instance",
        "s3control create-access-grants-location",
        "s3control create-access-grant",
    ]
    assert (len(PIECES), len(POLICIES)) == (2, 4)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[2])
def test_a_command_is_what_the_service_takes(command: str) -> None:
    """Names, types and required parameters, by the model of the service that boto3 and the AWS CLI share."""
    operation, told = parameters_of(command)
    report = ParamValidator().validate(told, operation.input_shape)
    assert not report.has_errors(), report.generate_report()
    assert told.get("Permission", "READ") in ("READ", "WRITE", "READWRITE")


def test_commands_that_are_only_named_exist() -> None:
    named = set(re.findall(r"`aws (\w+) ([a-z-]+)`", TEXT))
    assert named
    for service, name in named:
        operation_of({"s3api": "s3"}.get(service, service), name)


MODELS = {"s3": ("s3", "s3control"), "sts": ("sts",)}


def test_actions_of_all_policies_are_operations_or_permissions_of_s3() -> None:
    """What a policy allows is spelled as S3 does, so that no typing error denies a run."""
    permissions = {"s3:ListBucket", "s3:ListBucketMultipartUploads", "sts:SetSourceIdentity"}
    for policy in map(json.loads, POLICIES):
        assert policy["Version"] == "2012-10-17"
        for action in (action for statement in policy["Statement"] for action in statement["Action"]):
            service, _, name = action.partition(":")
            session = botocore.session.get_session()
            models = [session.get_service_model(model) for model in MODELS[service]]
            assert action in permissions or any(name in model.operation_names for model in models), action


@pytest.mark.parametrize("piece", PIECES, ids=["s3", "access_grants"])
def test_a_piece_of_yaml_is_part_of_a_dataset(piece: str, tmp_path: Path) -> None:
    text = (
        "name: pexels\nmanifest: s3://bucket/pexels/entry-*.jsonl\noutput_prefix: s3://bucket/pexels_parquet\n" + piece
    )
    dataset = parse_dataset(text, "pexels.yaml", tmp_path, {})
    for name, values in yaml.safe_load(piece).items():
        block = getattr(dataset, name)
        assert block.model_fields_set == set(values)


@pytest.mark.parametrize("server", ["s3", "rgw"])
def test_the_lifecycle_rule_is_taken_by_a_real_server(server: str, request: pytest.FixtureRequest) -> None:
    endpoint: S3Endpoint = request.getfixturevalue(f"{server}_server")
    bucket: str = request.getfixturevalue(f"{server}_bucket")
    _, told = parameters_of(COMMANDS[0].replace("OUTPUT-BUCKET", bucket))
    client = endpoint.client()
    client.put_bucket_lifecycle_configuration(**told)
    (rule,) = client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert rule["Status"] == "Enabled"
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 2}

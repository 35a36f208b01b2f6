"""Ceph's RADOS Gateway: one monitor, one OSD in memory, one gateway. From Debian: ceph-mon ceph-osd radosgw."""

import json
import secrets
import shutil
import subprocess
import urllib.error
import urllib.request
import uuid
from pathlib import Path

from dataset_packaging_tests.servers.process import ServerProcess, clean_environ, free_ports, wait_until
from dataset_packaging_tests.servers.s3_server import Credentials, S3Endpoint

PROGRAMS = ("ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
ROLE = "location"
SHORTEST_SESSION_S = 2

_CONFIG = """
[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{mon_v2},v1:127.0.0.1:{mon_v1}]
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
run_dir = {folder}/run
admin_socket = {folder}/run/$name.asok
log_file = {folder}/$name.log
pid_file = {folder}/run/$name.pid
crash_dir = {folder}/run
osd_pool_default_size = 1
osd_pool_default_min_size = 1
mon_allow_pool_size_one = true
osd_pool_default_pg_num = 8
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_warn_on_pool_no_redundancy = false
ms_bind_ipv6 = false
public_network = 127.0.0.0/8
cluster_network = 127.0.0.0/8
debug_mon = 0
debug_osd = 0
debug_rgw = 1
debug_ms = 0
debug_paxos = 0
keyring = {folder}/keyring
[mon.a]
mon_data = {folder}/mon
mon_data_avail_warn = 1
mon_data_avail_crit = 1
paxos_propose_interval = 0.05
paxos_min_wait = 0.01
mon_osd_max_creating_pgs = 10000
[osd.0]
osd_data = {folder}/osd
osd_objectstore = memstore
memstore_device_bytes = {memory_bytes}
osd_scrub_begin_hour = 0
osd_op_num_shards = 2
[client.rgw]
rgw_frontends = beast endpoint=127.0.0.1:{port}
rgw_data = {folder}/run
rgw_s3_auth_use_sts = true
rgw_sts_key = {sts_key}
rgw_sts_min_session_duration = {shortest_session_s}
rgw_dns_name = 127.0.0.1
rgw_thread_pool_size = 64
rgw_enable_usage_log = false
"""


def is_installed() -> bool:
    """Tell whether the Debian packages are there."""
    return all(shutil.which(program) for program in PROGRAMS)


class CephRgw:
    """A gateway on free ports; all objects live in memory and end with it."""

    def __init__(self, folder: Path, memory_bytes: int = 2 << 30) -> None:
        self._folder = folder
        mon_v2, mon_v1, port = free_ports(3)
        for name in ("mon", "osd", "run"):
            (folder / name).mkdir(parents=True)
        self._fsid = str(uuid.uuid4())
        (folder / "ceph.conf").write_text(
            _CONFIG.format(
                fsid=self._fsid,
                folder=folder,
                mon_v1=mon_v1,
                mon_v2=mon_v2,
                port=port,
                sts_key=secrets.token_hex(8),
                memory_bytes=memory_bytes,
                shortest_session_s=SHORTEST_SESSION_S,
            )
        )
        self._mon_addresses = f"[v2:127.0.0.1:{mon_v2},v1:127.0.0.1:{mon_v1}]"
        self._processes: list[ServerProcess] = []
        admin = Credentials("test-admin", "test-admin-secret")
        nobody = Credentials("test-nobody", "test-nobody-secret")
        self.endpoint = S3Endpoint("ceph-rgw", f"http://127.0.0.1:{port}", admin, nobody, f"arn:aws:iam:::role/{ROLE}")

    def start(self) -> None:
        """Start the three servers and make the users and the role."""
        folder = self._folder
        everything = ("--cap", "mon", "allow *", "--cap", "osd", "allow *")
        self._run("ceph-authtool", "-C", f"{folder}/keyring", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        for name in ("client.admin", "client.rgw"):
            self._run("ceph-authtool", f"{folder}/keyring", "--gen-key", "-n", name, *everything)
        osd = ("--cap", "mon", "allow profile osd", "--cap", "osd", "allow *")
        self._run("ceph-authtool", f"{folder}/keyring", "--gen-key", "-n", "osd.0", *osd)
        monmap = ("--create", "--fsid", self._fsid, "--addv", "a", self._mon_addresses, f"{folder}/monmap")
        self._run("monmaptool", *monmap)
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", f"{folder}/monmap", "--keyring", f"{folder}/keyring")
        self._spawn("ceph-mon", "-i", "a", "-f")
        osd_id = str(uuid.uuid4())
        self._run("ceph", "osd", "new", osd_id)
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd_id)
        osd_process = self._spawn("ceph-osd", "-i", "0", "-f")
        wait_until(lambda: "1 up" in self._run("ceph", "osd", "stat"), osd_process, 60, "the OSD")
        gateway = self._spawn("radosgw", "-n", "client.rgw", "-f")
        for who in ("admin", "nobody"):
            keys = ("--access-key", f"test-{who}", "--secret", f"test-{who}-secret")
            self._run(
                "radosgw-admin", "-n", "client.rgw", "user", "create", f"--uid={who}", f"--display-name={who}", *keys
            )
        self._make_role()
        wait_until(self._answers, gateway, 60, "the gateway")

    def stop(self) -> None:
        """Kill all servers."""
        for process in reversed(self._processes):
            process.stop()

    def _make_role(self) -> None:
        trust = {"Effect": "Allow", "Principal": {"AWS": ["arn:aws:iam:::user/admin"]}, "Action": ["sts:AssumeRole"]}
        everything = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["arn:aws:s3:::*"]}
        admin = ("radosgw-admin", "-n", "client.rgw")
        name = f"--role-name={ROLE}"
        self._run(*admin, "role", "create", name, f"--assume-role-policy-doc={_policy(trust)}")
        self._run(*admin, "role-policy", "put", name, "--policy-name=data", f"--policy-doc={_policy(everything)}")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self.endpoint.endpoint, timeout=2):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False

    def _run(self, program: str, *arguments: str) -> str:
        command = [program, *self._configured(program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=clean_environ(), check=False, timeout=120)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def _spawn(self, program: str, *arguments: str) -> ServerProcess:
        log = self._folder / f"{program}.out"
        process = ServerProcess([program, *self._configured(program), *arguments], log, clean_environ())
        self._processes.append(process)
        return process

    def _configured(self, program: str) -> tuple[str, ...]:
        return () if program in ("ceph-authtool", "monmaptool") else ("-c", f"{self._folder}/ceph.conf")


def _policy(statement: dict[str, object]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]}, separators=(",", ":"))

"""A throwaway PostgreSQL on loopback, of the Debian packages."""

import contextlib
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path

import psycopg2

from dataset_packaging_tests.servers.process import ServerProcess, free_ports, wait_until

USER = DATABASE = "dagster"


def find_programs() -> Path | None:
    """Returns the folder of the newest installed server's programs; Debian keeps them off the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


class PostgresServer:
    """Holds a database named like its user, behind a password; the server refuses to run as root, and need not."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self.password = secrets.token_hex(8)
        (self.port,) = free_ports(1)
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
        self._process: ServerProcess | None = None

    def start(self) -> None:
        """Makes the cluster and starts it."""
        (self._folder / "password").write_text(self.password)
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            for path in (self._folder, self._folder / "password"):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        data = self._folder / "data"
        self._run(
            "initdb", "-D", str(data), "-U", USER, "--pwfile", str(self._folder / "password"), "-A", "scram-sha-256"
        )
        arguments = ["-D", str(data), "-p", str(self.port), "-k", str(self._folder), "-h", "127.0.0.1", "-F"]
        command = [*_as_owner(), str(self._programs / "postgres"), *arguments]
        self._process = ServerProcess(command, self._folder / "log", os.environ)
        wait_until(self._answers, self._process, 30, "PostgreSQL")
        connection = self.connect("postgres")
        connection.autocommit = True
        connection.cursor().execute(f"CREATE DATABASE {DATABASE}")
        connection.close()

    def stop(self) -> None:
        """Ends it and removes its data."""
        if self._process is not None:
            self._process.stop(gently_s=5)
        shutil.rmtree(self._folder, ignore_errors=True)

    def connect(self, database: str = DATABASE) -> "psycopg2.extensions.connection":
        """Opens a connection."""
        return psycopg2.connect(
            host="127.0.0.1", port=self.port, user=USER, password=self.password, dbname=database, connect_timeout=2
        )

    def environ(self) -> dict[str, str]:
        """Says where it is, in the variables that deploy/dagster.yaml reads."""
        return {
            "DAGSTER_PG_HOST": "127.0.0.1",
            "DAGSTER_PG_PORT": str(self.port),
            "DAGSTER_PG_DB": DATABASE,
            "DAGSTER_PG_USER": USER,
            "DAGSTER_PG_PASSWORD": self.password,
        }

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg2.OperationalError):
            self.connect("postgres").close()
            return True
        return False

    def _run(self, program: str, *arguments: str) -> None:
        command = [*_as_owner(), str(self._programs / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd="/")


def _as_owner() -> list[str]:
    """Returns a command that runs the next one as Debian's own user of the server, where this one is root."""
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []

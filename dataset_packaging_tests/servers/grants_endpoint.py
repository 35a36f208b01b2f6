"""S3 Control's Access Grants, before a real S3 server's STS.

It checks the caller's signature, finds the caller's most specific grant, and hands out credentials that the S3 server
itself made with an inline policy: what the grant does not cover is refused by the server, not by this endpoint.
"""

import hashlib
import hmac
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit
from xml.sax.saxutils import escape

from dataset_packaging_tests.servers.s3_server import Credentials, S3Endpoint

READ_ACTIONS = ["s3:GetObject"]
WRITE_ACTIONS = ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]


@dataclass(frozen=True, slots=True)
class Grant:
    """`scope` is `s3://bucket/prefix*` or one object."""

    access_key: str
    scope: str
    permission: str = "READ"

    def covers(self, target: str) -> bool:
        inner = target.removesuffix("*")
        return inner.startswith(self.scope[:-1]) if self.scope.endswith("*") else target == self.scope

    def gives(self, permission: str) -> bool:
        return self.permission in (permission, "READWRITE")


@dataclass
class GrantsEndpoint:
    """Runs in threads of this process inside a `with` block. Everything may be changed while it runs.

    Attributes:
        account: Of the Access Grants instance; calls that name another one are denied.
        caller_account: What GetCallerIdentity tells.
        session_s: Life of the sessions that the server's STS makes; None takes what the caller asks for.
        fail_next: How many of the next calls are throttled.
        may_list: Whether ListCallerAccessGrants is allowed.
        useless_next: How many of the next sessions open nothing.
    """

    server: S3Endpoint
    account: str = "111122223333"
    caller_account: str = "111122223333"
    callers: dict[str, Credentials] = field(default_factory=dict)
    grants: list[Grant] = field(default_factory=list)
    session_s: int | None = None
    fail_next: int = 0
    may_list: bool = True
    useless_next: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    targets: list[tuple[str, str]] = field(default_factory=list)

    def __enter__(self) -> "GrantsEndpoint":
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"grants": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def allow(self, who: Credentials, scope: str, permission: str = "READ") -> None:
        """Add a caller and a grant."""
        self.callers[who.access_key] = who
        self.grants.append(Grant(who.access_key, scope, permission))

    def take_failure(self) -> bool:
        with self._lock:
            failing = self.fail_next > 0
            self.fail_next -= failing
            return failing

    def get_data_access(self, access_key: str, asked: Mapping[str, str]) -> tuple[int, str]:
        target, permission = asked.get("target", ""), asked.get("permission", "")
        duration_s = int(asked.get("durationSeconds", "3600"))
        minimal = asked.get("privilege") == "Minimal"
        with self._lock:
            self.targets.append((target, permission))
        if permission not in ("READ", "WRITE", "READWRITE") or not 900 <= duration_s <= 43200:
            return 400, _error("InvalidRequest", "bad parameter")
        if not target.endswith("*") and asked.get("targetType") != "Object":
            return 400, _error("InvalidRequest", "a target that is no prefix needs targetType=Object")
        found = [g for g in self.grants if g.access_key == access_key and g.gives(permission) and g.covers(target)]
        if not found:
            return 403, _error("AccessDenied", "You do not have any matching grants for this target and permission")
        grant = max(found, key=lambda each: len(each.scope))
        policy = session_policy(target if minimal else grant.scope, permission)
        if self.useless_next > 0:
            self.useless_next -= 1
            policy = session_policy("s3://elsewhere/*", permission)
        made, expires_at = self.server.assume_role(policy, self.session_s or duration_s)
        return 200, (
            "<GetDataAccessResult><Credentials>"
            f"<AccessKeyId>{made.access_key}</AccessKeyId><SecretAccessKey>{made.secret_key}</SecretAccessKey>"
            f"<SessionToken>{made.token}</SessionToken>"
            f"<Expiration>{expires_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}</Expiration></Credentials>"
            f"<MatchedGrantTarget>{escape(grant.scope)}</MatchedGrantTarget></GetDataAccessResult>"
        )

    def list_grants(self, access_key: str, asked: Mapping[str, str]) -> tuple[int, str]:
        if not self.may_list:
            return 403, _error("AccessDenied", "not allowed to list grants")
        scope = asked.get("grantscope", "")
        found = [g for g in self.grants if g.access_key == access_key and g.scope.startswith(scope)]
        listed = "".join(
            f"<AccessGrant><Permission>{g.permission}</Permission><GrantScope>{escape(g.scope)}</GrantScope></AccessGrant>"
            for g in found
        )
        body = f"<CallerAccessGrantsList>{listed}</CallerAccessGrantsList>"
        return 200, f"<ListCallerAccessGrantsResult>{body}</ListCallerAccessGrantsResult>"

    def find_instance(self) -> tuple[int, str]:
        arn = f"arn:aws:s3:us-east-1:{self.account}:access-grants/default"
        body = f"<AccessGrantsInstanceArn>{arn}</AccessGrantsInstanceArn>"
        result = "GetAccessGrantsInstanceForPrefixResult"
        return 200, f"<{result}>{body}<AccessGrantsInstanceId>default</AccessGrantsInstanceId></{result}>"

    def get_caller(self, access_key: str) -> tuple[int, str]:
        body = f"<Account>{self.caller_account}</Account><UserId>{access_key}</UserId><Arn>arn</Arn>"
        result = f"<GetCallerIdentityResult>{body}</GetCallerIdentityResult>"
        return 200, f"<GetCallerIdentityResponse>{result}</GetCallerIdentityResponse>"


def session_policy(target: str, permission: str) -> str:
    """Write the inline policy of a grant; without spaces, which Ceph would read as plus signs."""
    bucket, _, path = target.removeprefix("s3://").partition("/")
    prefix = path.removesuffix("*")
    actions = (READ_ACTIONS if "READ" in permission else []) + (WRITE_ACTIONS if "WRITE" in permission else [])
    statements: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": actions, "Resource": [f"arn:aws:s3:::{bucket}/{path}"]}
    ]
    if "READ" in permission and target.endswith("*"):
        listing: dict[str, Any] = {
            "Effect": "Allow",
            "Action": ["s3:ListBucket"],
            "Resource": [f"arn:aws:s3:::{bucket}"],
        }
        if prefix:
            listing["Condition"] = {"StringLike": {"s3:prefix": [f"{prefix}*"]}}
        statements.append(listing)
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))


def _error(code: str, message: str) -> str:
    return f"<ErrorResponse><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error></ErrorResponse>"


class _Handler(BaseHTTPRequestHandler):
    """HTTP side of a `GrantsEndpoint`."""

    grants: GrantsEndpoint
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        asked = dict(parse_qsl(urlsplit(self.path).query))
        operation = path.rsplit("/", 1)[-1]
        here = self.grants
        answers: dict[str, Callable[[str], tuple[int, str]]] = {
            "dataaccess": lambda who: here.get_data_access(who, asked),
            "grants": lambda who: here.list_grants(who, asked),
            "prefix": lambda who: here.find_instance(),
        }
        account = self.headers.get("x-amz-account-id")
        self._answer(
            operation, answers.get(operation), b"", wrong_account=operation != "prefix" and account != here.account
        )

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self._answer("caller", self.grants.get_caller, body, wrong_account=False)

    def _answer(
        self, operation: str, answer: Callable[[str], tuple[int, str]] | None, body: bytes, wrong_account: bool
    ) -> None:
        self.grants.calls[operation] += 1
        access_key = self._caller(body)
        if answer is None:
            status, text = 501, _error("NotImplemented", self.path)
        elif self.grants.take_failure():
            status, text = 503, _error("SlowDown", "injected")
        elif access_key is None:
            status, text = 403, _error("SignatureDoesNotMatch", "signature")
        elif wrong_account:
            status, text = 403, _error("AccessDenied", "no Access Grants instance in that account")
        else:
            status, text = answer(access_key)
        data = f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _caller(self, body: bytes) -> str | None:
        """Find out who signed the request (Signature Version 4); None for nobody known."""
        told = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\S+), ?SignedHeaders=(\S+), ?Signature=([0-9a-f]{64})",
            self.headers.get("authorization", ""),
        )
        if told is None or told[1] not in self.grants.callers:
            return None
        access_key, scope, signed, signature = told.groups()
        where = urlsplit(self.path)
        query = "&".join(
            sorted(f"{quote(k, '-_.~')}={quote(v, '-_.~')}" for k, v in parse_qsl(where.query, keep_blank_values=True))
        )
        headers = [f"{name}:{' '.join((self.headers[name] or '').split())}" for name in signed.split(";")]
        body_hash = self.headers.get("x-amz-content-sha256") or hashlib.sha256(body).hexdigest()
        canonical = "\n".join([self.command, where.path, query, *headers, "", signed, body_hash])
        key = ("AWS4" + self.grants.callers[access_key].secret_key).encode()
        for part in scope.split("/"):
            key = hmac.new(key, part.encode(), "sha256").digest()
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = "\n".join(["AWS4-HMAC-SHA256", self.headers["x-amz-date"], scope, digest])
        return (
            access_key if hmac.compare_digest(hmac.new(key, text.encode(), "sha256").hexdigest(), signature) else None
        )

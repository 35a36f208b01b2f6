"""S3 Access Grants: which credentials open which location.

A location is what one answer of GetDataAccess covers: the grant's whole scope (privilege Default) or the asked prefix
(Minimal). Each is asked for once per permission, kept for all threads, and refreshed while it is used. There is no
fallback to the identity's own permissions unless the configuration says so.
"""

import functools
import logging
import threading
import time
from collections.abc import Callable

from dataset_packaging.errors import NoGrant
from dataset_packaging.io.credentials import ExpiringCredentials, S3Credentials
from dataset_packaging.io.s3_control import ControlClient, GrantTarget
from dataset_packaging.io.s3_keys import SCHEME, folder_of
from dataset_packaging.io.s3_session import S3Access, S3Server
from dataset_packaging.io.store import is_below

_log = logging.getLogger(__name__)

DENIAL_TRUST_S = 60.0  # a location without a grant, or a list of grants, is not asked for again within this

MOST_FOLDERS_KEPT = 100_000


class GrantedAccess:
    """Finds the access to every object of a store by its location. Thread-safe.

    Args:
        server: Where S3 is.
        control: Asks S3 Control.
        permission: READ or READWRITE.
        prefixes: URIs that are asked for as a whole; other objects are asked for by their folder.
        fallback: Used where no grant is, and logged; None makes that an error.
    """

    def __init__(
        self,
        server: S3Server,
        control: ControlClient,
        permission: str,
        prefixes: tuple[str, ...],
        fallback: S3Access | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._control = control
        self._permission = permission
        self._prefixes = prefixes
        self._fallback = fallback
        self._clock = clock
        self._lock = threading.Lock()
        self._by_folder: dict[str, S3Access] = {}
        self._by_scope: dict[GrantTarget, S3Access] = {}
        self._denied: dict[GrantTarget, tuple[float, NoGrant]] = {}
        self._listed: dict[str, tuple[float, list[GrantTarget] | None]] = {}

    def access_of(self, bucket: str, key: str) -> S3Access:
        """Find the access to an object, or to the objects below a prefix; asks S3 Control for locations not yet known.

        Raises:
            NoGrant: no grant covers it, and there is no fallback.
            TransientStoreError: S3 Control is throttled or out of reach.
        """
        folder = f"{SCHEME}{bucket}/{folder_of(key)}"
        found = self._by_folder.get(folder)
        if found is not None:
            return found
        uri = f"{SCHEME}{bucket}/{key}"
        with self._lock:
            found = self._known(uri) or self._ask(bucket, uri, self._location(uri, folder))
            if len(self._by_folder) >= MOST_FOLDERS_KEPT:
                self._by_folder.clear()
            if any(scope.covers(folder) for scope, access in self._by_scope.items() if access is found):
                self._by_folder[folder] = found
            return found

    def _location(self, uri: str, folder: str) -> GrantTarget:
        prefix = next((f"{prefix}/" for prefix in self._prefixes if is_below(uri, prefix)), folder)
        return GrantTarget(f"{prefix}*")

    def _known(self, uri: str) -> S3Access | None:
        covering = [scope for scope in self._by_scope if scope.covers(uri)]
        return self._by_scope[max(covering, key=lambda scope: len(scope.uri))] if covering else None

    def _ask(self, bucket: str, uri: str, location: GrantTarget) -> S3Access:
        denied = self._denied.get(location)
        if denied is None or self._clock() - denied[0] >= DENIAL_TRUST_S:
            try:
                return self._open(location)
            except NoGrant as error:
                denied = self._denied[location] = (self._clock(), error)
                _log.warning("no grant for %s (%s)", location.uri, self._permission)
        narrower = [scope for scope in self._scopes_in(bucket) if scope.covers(uri)]
        if narrower:
            return self._open(max(narrower, key=lambda scope: len(scope.uri)))
        if self._fallback is None:
            raise denied[1]
        _log.warning("%s is opened as %s: access_grants.fallback is set", location.uri, self._fallback.who)
        self._by_scope[location] = self._fallback
        return self._fallback

    def _scopes_in(self, bucket: str) -> list[GrantTarget]:
        """List the caller's grants in a bucket, for those that are narrower than a folder."""
        listed = self._listed.get(bucket)
        if listed is None or self._clock() - listed[0] >= DENIAL_TRUST_S:
            listed = self._listed[bucket] = (self._clock(), self._control.list_scopes(bucket, self._permission))
        return listed[1] or []

    def _open(self, target: GrantTarget) -> S3Access:
        answer = self._control.get_data_access(target, self._permission)
        source = ExpiringCredentials(functools.partial(self._refresh, target), first=answer.credentials)
        access = S3Access(self._server, source, f"S3 Access Grant {self._permission} on {answer.granted.uri}")
        self._by_scope[answer.granted] = access
        return access

    def _refresh(self, target: GrantTarget) -> S3Credentials:
        return self._control.get_data_access(target, self._permission).credentials

"""What an S3 client's failure means, told by types, status codes and S3's error codes."""

import enum
import re
from dataclasses import dataclass
from xml.etree.ElementTree import ParseError

import botocore.exceptions
import obstore.exceptions
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ResponseStreamingError,
)
from botocore.parsers import ResponseParserError


class Fate(enum.Enum):
    """What becomes of a request."""

    NOT_FOUND = "not found"
    DENIED = "denied"
    ARCHIVED = "archived"
    PRECONDITION = "precondition failed"
    OUT_OF_RANGE = "out of range"
    TOO_LARGE = "too large"
    THROTTLED = "throttled"
    EXPIRED = "expired credentials"
    TRANSIENT = "transient"
    PERMANENT = "permanent"
    UNCLEAR = "unclear"  # the client does not tell; the other client has to be asked


_OTHER_REGION = ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException")
_REGION_ADVICE = "is the bucket in another region? Set s3.region"
_FATE_OF_CODE = {
    "InvalidObjectState": Fate.ARCHIVED,
    "NoSuchKey": Fate.NOT_FOUND,
    "NoSuchBucket": Fate.NOT_FOUND,
    "NoSuchUpload": Fate.NOT_FOUND,
    "PreconditionFailed": Fate.PRECONDITION,
    "InvalidRange": Fate.OUT_OF_RANGE,
    "SlowDown": Fate.THROTTLED,
    "Throttling": Fate.THROTTLED,
    "ThrottlingException": Fate.THROTTLED,
    "RequestLimitExceeded": Fate.THROTTLED,
    "TooManyRequests": Fate.THROTTLED,
    "BandwidthLimitExceeded": Fate.THROTTLED,
    "ExpiredToken": Fate.EXPIRED,
    "ExpiredTokenException": Fate.EXPIRED,
    "TokenRefreshRequired": Fate.EXPIRED,
    "RequestExpired": Fate.EXPIRED,
    "RequestTimeout": Fate.TRANSIENT,
    "RequestTimeTooSkewed": Fate.TRANSIENT,
    "ConditionalRequestConflict": Fate.TRANSIENT,
    "OperationAborted": Fate.TRANSIENT,
    "IncompleteBody": Fate.TRANSIENT,
    "BadDigest": Fate.TRANSIENT,
    "XAmzContentSHA256Mismatch": Fate.TRANSIENT,
    "InternalError": Fate.TRANSIENT,
    "InvalidToken": Fate.DENIED,
    **dict.fromkeys(_OTHER_REGION, Fate.DENIED),
}
_FATE_OF_STATUS = {
    401: Fate.DENIED,
    403: Fate.DENIED,
    404: Fate.NOT_FOUND,
    408: Fate.TRANSIENT,
    412: Fate.PRECONDITION,
    416: Fate.OUT_OF_RANGE,
    429: Fate.THROTTLED,
    503: Fate.THROTTLED,
}
_OBSTORE_REDIRECT = "redirect without LOCATION"
_OBSTORE_STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})")

BROKEN_BODY = (ResponseStreamingError, ConnectionError, TimeoutError)
BOTO_FAILURES = (ClientError, BotoCoreError, ResponseParserError, ParseError, *BROKEN_BODY)
_NO_ANSWER = (botocore.exceptions.ConnectionError, HTTPClientError, ResponseParserError, ParseError)
_TRANSIENT = (*_NO_ANSWER, *BROKEN_BODY, CredentialRetrievalError)


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed try.

    Attributes:
        fate: What is to be done about it.
        text: Status, code and message, for the user.
        code: S3's error code, where one was told.
    """

    fate: Fate
    text: str
    code: str = ""


class RequestFailed(Exception):  # noqa: N818 - it never leaves the S3 store
    """Carries a `Failure` from a try to the loop around it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


def fate_of(status: int, code: str) -> Fate:
    """Judge an answer of S3: its error code first, then its status. Pure."""
    if code.startswith("KMS."):  # the key of the object, which others share
        return Fate.DENIED
    known = _FATE_OF_CODE.get(code) or _FATE_OF_STATUS.get(status)
    if known is not None:
        return known
    return Fate.TRANSIENT if status >= 500 or status == 0 else Fate.PERMANENT


def failure_of_boto(error: Exception) -> Failure:
    """Judge what boto3 raised. Pure.

    Raises:
        Exception: the error itself, where it is neither S3's nor the network's.
    """
    if isinstance(error, ClientError):
        told = error.response.get("Error", {})
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        code = str(told.get("Code", ""))
        text = " ".join(filter(None, (str(status), code, str(told.get("Message", "")))))
        if code in _OTHER_REGION:
            text = f"{text}; {_REGION_ADVICE}"
        return Failure(fate_of(status, code), text, code)
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return Failure(Fate.DENIED, f"{error}")
    if isinstance(error, _TRANSIENT):
        return Failure(Fate.TRANSIENT, f"{type(error).__name__}: {error}")
    if isinstance(error, BotoCoreError):
        return Failure(Fate.PERMANENT, f"{type(error).__name__}: {error}")
    raise error


def failure_of_obstore(error: Exception) -> Failure:
    """Judge what obstore raised. Pure.

    obstore has types for 404, 412 and refusals; for the rest it tells the status in its text and nowhere else. A
    refusal's reason (archived, expired, denied) and every other 4xx stay `UNCLEAR`: boto3 gives the error code.

    Raises:
        Exception: the error itself, where it is not obstore's.
    """
    text = str(error).partition("\n\nDebug source:")[0]
    if isinstance(error, FileNotFoundError):
        return Failure(Fate.NOT_FOUND, text)
    if isinstance(error, obstore.exceptions.PreconditionError):
        return Failure(Fate.PRECONDITION, text)
    if isinstance(error, obstore.exceptions.GenericError):
        if _OBSTORE_REDIRECT in text:  # a bucket of another region: boto3 knows how to follow
            return Failure(Fate.UNCLEAR, text)
        told = _OBSTORE_STATUS.search(text)
        fate = Fate.TRANSIENT if told is None else fate_of(int(told[1]), "")
        return Failure(Fate.UNCLEAR if fate in (Fate.PERMANENT, Fate.DENIED) else fate, text)
    if isinstance(error, obstore.exceptions.BaseError):
        return Failure(Fate.UNCLEAR, text)
    raise error

"""What AWS and boto3 raise, as sorted faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clusters.backend import sorting
from clusters.faults import CloudFault, FaultKind
from planner.errors import UserError

GONE = frozenset(
    {
        "InvalidAllocationID.NotFound",
        "InvalidAssociationID.NotFound",
        "InvalidGroup.NotFound",
        "InvalidInstanceID.NotFound",
        "InvalidKeyPair.NotFound",
        "InvalidNetworkInterfaceID.NotFound",
        "InvalidPlacementGroup.Unknown",
        "InvalidVolume.NotFound",
        "NoSuchEntity",
    }
)
IN_USE = frozenset(
    {
        "DeleteConflict",
        "DependencyViolation",
        "IncorrectInstanceState",
        "IncorrectState",
        "InvalidIPAddress.InUse",
        "InvalidNetworkInterface.InUse",
        "InvalidParameterValue",  # an interface that is attached
        "InvalidPlacementGroup.InUse",
        "VolumeInUse",
    }
)
_HINTS: dict[FaultKind, str] = {
    "credentials": "aws configure   (or: aws sso login)",
    "permission": "plan cluster PLAN --iam   prints the rights of the machines; yours must allow this call",
    "quota": "ask for more: console of Service Quotas, Amazon EC2",
    "image": "plan launch PLAN --image NAME",
}


def code_of(error: Exception) -> str:
    """Error code of a ``ClientError``, empty for others."""
    response = getattr(error, "response", None)
    return str(response["Error"]["Code"]) if isinstance(response, dict) and "Error" in response else ""


@contextmanager
def sorted_faults(doing: str) -> Iterator[None]:
    """Raise what AWS, boto3 or our own preparation raise inside as a ``CloudFault``.

    ``ResponseParserError`` (half an answer) counts as a broken connection: what was asked may have happened.
    """
    import botocore.exceptions as boto  # type: ignore[import-untyped]
    import botocore.parsers as parsers  # type: ignore[import-untyped]

    try:
        yield
    except boto.ClientError as error:
        code = code_of(error)
        kind = sorting.of_code(code)
        message = " ".join(str(error.response["Error"].get("Message", "")).split())[:300]
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        raise CloudFault(kind, f"{doing}: {code}: {message}", _HINTS.get(kind, ""), status=status) from None
    except (boto.NoCredentialsError, boto.PartialCredentialsError, boto.ProfileNotFound,
            boto.CredentialRetrievalError, boto.TokenRetrievalError, boto.SSOError) as error:  # fmt: skip
        raise CloudFault("credentials", f"{doing}: {error}", _HINTS["credentials"]) from None
    except (boto.ParamValidationError, boto.NoRegionError) as error:
        raise CloudFault("parameter", f"{doing}: {' '.join(str(error).split())[:300]}") from None
    except (boto.BotoCoreError, parsers.ResponseParserError) as error:
        raise CloudFault("connection", f"{doing}: {' '.join(str(error).split())[:300]}") from None
    except UserError as error:
        raise CloudFault("parameter", str(error), error.hint) from None

"""Azure Resource Manager over REST: who asks, in which subscription, all pages of a list, sorted errors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from clusters.clouds import codes, rest
from clusters.clouds.rest import Document
from clusters.config.choices import Choices
from clusters.faults import CloudFault, FaultKind

MANAGEMENT = "https://management.azure.com"
TOOL = rest.Tool(
    variable="AZURE_ACCESS_TOKEN",
    command=("az", "account", "get-access-token", "--query", "accessToken", "--output", "tsv"),
    install="install the Azure CLI, then: az login",
    login="az login",
)
HINTS: dict[FaultKind, str] = {
    "credentials": "az login",
    "permission": "plan cluster PLAN --iam   prints the role that you must be allowed to grant",
    "quota": "ask for more: portal, Quotas, Compute",
    "image": "plan launch PLAN --image publisher:offer:sku:version",
}
# Versions of the interface, each one that a stable reference of the service documents.
RESOURCES, COMPUTE, NETWORK = "2021-04-01", "2024-07-01", "2024-07-01"
SUBSCRIPTIONS, SKUS, AUTHORIZATION = "2022-12-01", "2021-07-01", "2022-04-01"
_OVER_QUOTA = re.compile(r"exceeding (?:approved|quota)|exceeds? .{0,40}quota|quota .{0,40}exceed", re.I)
_BY_STATUS: dict[int, FaultKind] = {
    401: "credentials",
    403: "permission",
    408: "timeout",
    409: "timeout",
    429: "throttling",
}


class Api:
    """One subscription. Every method may raise ``CloudFault``."""

    def __init__(
        self, choices: Choices, host: str = MANAGEMENT, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._rest = rest.Rest(host, rest.Token(TOOL, environment), sorted_fault)
        self._environment = environment
        self._subscription = choices.subscription

    @property
    def subscription(self) -> str:
        """The subscription: as the user said, else of the environment, else of the user's own ``az``."""
        if self._subscription is None:
            named = self._environment.get("AZURE_SUBSCRIPTION_ID")
            self._subscription = named or _subscription_of_tool()
        return self._subscription

    def ask(
        self,
        method: str,
        below: str,
        version: str,
        body: object = None,
        more: Mapping[str, str] | None = None,
    ) -> Document:
        """Make one call below the subscription (``""``: of the subscription itself)."""
        return self._rest.ask(method, self._path(below), {"api-version": version, **(more or {})}, body)

    def found(self, below: str, version: str) -> Document | None:
        """Read one thing, ``None`` where there is none."""
        return self._rest.found(self._path(below), {"api-version": version})

    def listed(self, below: str, version: str, only: str = "") -> Iterator[Document]:
        """Every item of a list."""
        parameters = {"api-version": version, **({"$filter": only} if only else {})}
        page = self._rest.ask("GET", self._path(below), parameters)
        while True:
            yield from page.get("value", [])
            following = page.get("nextLink")
            if not following:
                return
            if not str(following).startswith(f"{self._rest.base}/"):  # the token goes to nobody else
                raise CloudFault("connection", "Azure named a next page on another host")
            page = self._rest.ask("GET", str(following))

    def _path(self, below: str) -> str:
        return f"subscriptions/{self.subscription}{'/' if below else ''}{below}"


def _subscription_of_tool() -> str:
    said = rest.said_by(TOOL, ("az", "account", "show", "--query", "id", "--output", "tsv"))
    if not said:
        raise CloudFault("parameter", "no subscription of Azure was named", "--subscription ID")
    return said


def sorted_fault(doing: str, status: int, body: Document) -> CloudFault:
    """Sort an error by its codes, the innermost first, else by its status."""
    error = body.get("error", {})
    error = error if isinstance(error, dict) else {}
    named = list(_codes(error))
    message = " ".join(str(error.get("message", "")).split())[:300]
    known = codes.table("azure")
    kinds = [known[code].kind for code in named if code in known]
    other: FaultKind = _BY_STATUS.get(status, "connection" if status >= 500 else "parameter")
    kind = kinds[0] if kinds else other
    if kind == "parameter" and _OVER_QUOTA.search(message):  # OperationNotAllowed says it in words alone
        kind = "quota"
    said = f"{doing}: ({status}) {named[0] if named else ''} {message}"
    return CloudFault(kind, " ".join(said.split()), HINTS.get(kind, ""), status=status)


def _codes(error: Document) -> Iterator[str]:
    for inner in error.get("details") or ():
        yield from _codes(inner)
    if "code" in error:
        yield str(error["code"])


def resorted(fault: CloudFault) -> CloudFault:
    """Sort what Ray's launcher reported by what Azure said in it."""
    found = codes.resorted("azure", fault, HINTS)
    if found is fault and _OVER_QUOTA.search(f"{fault.log} {fault}"):
        return CloudFault("quota", str(fault), HINTS["quota"], fault.log, fault.status)
    return found

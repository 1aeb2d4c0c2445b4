"""The wire to AWS (moto) in this process: every call is seen, and answered by a rule where there is one."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import boto3.session
import botocore.client
import botocore.exceptions as boto

GONE = ("terminated",)


def client_error(code: str, operation: str) -> Exception:
    return boto.ClientError({"Error": {"Code": code, "Message": "as told by the test"}}, operation)


def timed_out() -> Exception:
    return boto.ReadTimeoutError(endpoint_url="https://ec2.us-east-1.amazonaws.com/")


def reset() -> Exception:
    return boto.ConnectionClosedError(endpoint_url="https://ec2.us-east-1.amazonaws.com/")


class Killed(BaseException):
    """The process is no more: everything that it touches from now on raises this."""


@dataclass
class Rule:
    """What an operation answers instead, while the launch is in ``state``.

    ``landed``: the call reached AWS and its answer was lost. ``times``: how often.
    """

    operation: str
    error: Callable[[], Exception]
    state: str | None = None
    times: int = 10_000
    landed: bool = False


@dataclass
class Wire:
    """State of the launch as its screen last showed it, rules, and every call that reached AWS."""

    rules: list[Rule] = field(default_factory=list)
    state: str = ""
    calls: list[tuple[str, str, dict]] = field(default_factory=list)
    empty: dict[str, str] = field(default_factory=dict)  # operation: key of its answer that holds nothing
    rewrite: Callable[[str, dict], dict] = lambda operation, params: params
    dead: bool = False
    looking: bool = False  # a test looks: no rule holds, nothing is recorded
    ledger_state: Callable[[], str] = lambda: ""
    states_at_creates: list[str] = field(default_factory=list)

    def landed(self, operation: str) -> list[dict]:
        """Parameters of the calls of an operation that reached AWS; dry runs do not count."""
        return [p for _, name, p in self.calls if name == operation and not p.get("DryRun")]

    def call(self, real: Callable, client: object, operation: str, params: dict) -> object:
        if self.looking:
            return real(client, operation, params)
        if self.dead:
            raise Killed
        params = self.rewrite(operation, params)
        rule = next((r for r in self.rules if self._applies(r, operation, params)), None)
        if rule is not None:
            rule.times -= 1
            if not rule.landed:
                raise rule.error()
        self.calls.append((self.state, operation, params))
        if operation == "RunInstances" and not params.get("DryRun"):
            self.states_at_creates.append(self.ledger_state())
        answer = real(client, operation, params)
        if rule is not None:
            raise rule.error()
        if operation in self.empty:
            return {**answer, self.empty[operation]: []}
        return answer

    def _applies(self, rule: Rule, operation: str, params: dict) -> bool:
        if params.get("DryRun") or rule.times <= 0:
            return False
        return rule.operation in (operation, "*") and rule.state in (None, self.state)


@contextmanager
def on(wire: Wire) -> Iterator[Wire]:
    """Put a wire between boto3 and moto."""
    real = botocore.client.BaseClient._make_api_call

    def call(client: object, operation: str, params: dict) -> object:
        return wire.call(real, client, operation, params)

    botocore.client.BaseClient._make_api_call = call  # type: ignore[method-assign]
    try:
        yield wire
    finally:
        botocore.client.BaseClient._make_api_call = real  # type: ignore[method-assign]


class OneSession:
    """A session that makes each client once: making one takes longer than a cell may."""

    def __init__(self) -> None:
        self._session = boto3.session.Session()
        self._made: dict[tuple[str, str | None], object] = {}

    def client(self, name: str, region_name: str | None = None) -> object:
        key = (name, region_name)
        if key not in self._made:
            self._made[key] = self._session.client(name, region_name=region_name)
        return self._made[key]


def left(ec2: object) -> dict[str, list[str]]:
    """Everything that exists in the account, whatever its tags say."""
    instances = [i for r in ec2.describe_instances()["Reservations"] for i in r["Instances"]]
    found = defaultdict(list)
    found["instance"] = [i["InstanceId"] for i in instances if i["State"]["Name"] not in GONE]
    found["volume"] = [v["VolumeId"] for v in ec2.describe_volumes()["Volumes"]]
    found["address"] = [a["AllocationId"] for a in ec2.describe_addresses()["Addresses"]]
    groups = ec2.describe_security_groups()["SecurityGroups"]
    found["security-group"] = [g["GroupId"] for g in groups if g["GroupName"] != "default"]
    found["key-pair"] = [k["KeyName"] for k in ec2.describe_key_pairs()["KeyPairs"]]
    return {kind: ids for kind, ids in found.items() if ids}

"""Prices of Acme. The contract is inherited; what is particular to this provider is tested below."""

from decimal import Decimal
from typing import ClassVar

from tests.providers.contract import SECRET, HttpAdapterContract


class TestAcme(HttpAdapterContract):
    """``module`` names the adapter's file, ``environment`` what it needs to run."""

    module = "acme"
    environment: ClassVar[dict[str, str]] = {"ACME_API_KEY": SECRET}

    def test_a_price_per_gpu_becomes_the_price_of_the_machine(self) -> None:
        """2.90 x 8 GPUs."""
        assert self.offer("a8", region="north").usd_per_hour == Decimal("23.2")

    def test_a_machine_without_a_spot_price_is_not_offered_as_spot(self) -> None:
        """The price on demand never takes its place."""
        assert {o.market for o in self.parsed().offers if o.instance_type == "l1"} == {"on-demand"}

    def test_a_machine_that_no_region_has_is_not_available(self) -> None:
        """It is kept: its price is known."""
        offer = self.offer("b8")
        assert (offer.region, offer.available) == ("any", False)

    def test_a_card_with_less_memory_than_ours_is_unknown(self) -> None:
        """It is counted under its name, never taken for the other card."""
        assert [u.name for u in self.parsed().unknown_gpus] == ["RTX 4090 (16 GB)", "Zeus 9"]

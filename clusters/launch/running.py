"""One launch on its way: what it is, by which hands it acts, and how it writes down what comes next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from clusters.clouds.base import Cloud, Order, Place
from clusters.launch.nouns import Ceiling, Hands, LaunchRequest, PriceItem, Work
from planner import spend
from planner.errors import UserError
from planner.launched import Event, Launch, LaunchState, Outcome, PricePoint, Resource, Transition

WORK = "work"


@dataclass(frozen=True, slots=True)
class Running:
    """A launch, its cloud and its hands."""

    id: str
    request: LaunchRequest
    cloud: Cloud
    hands: Hands

    def launch(self) -> Launch:
        """Read the launch as the ledger has it."""
        return self.hands.ledger.launch(self.id)

    def enter(self, state: LaunchState, detail: str = "") -> None:
        """Write a state before its act, then show it."""
        self.hands.ledger.enter(self.id, Transition(at=self.hands.now(), state=state, detail=detail))
        self.tell(state, detail)

    def tell(
        self,
        state: LaunchState,
        detail: str,
        outcome: Outcome | None = None,
        left: tuple[Resource, ...] = (),
    ) -> None:
        """Show an event."""
        self.hands.screen.event(
            Event(
                time=self.hands.now(),
                launch_id=self.id,
                state=state,
                detail=detail,
                spent_usd=self.spent_usd(),
                outcome=outcome,
                resources_left=left,
            )
        )

    def spent_usd(self) -> Decimal | None:
        """What the launch has spent so far; ``None`` where its nodes have no price."""
        found = spend.spent(self.launch(), self.hands.now())
        return None if "node" in found.unknown else found.usd

    def left_of_budget(self) -> Decimal | None:
        """What may still be spent."""
        budget, spent = self.request.budget_usd, self.spent_usd()
        return None if budget is None else max(Decimal(0), budget - (spent or Decimal(0)))

    def settle(self, outcome: Outcome, left: tuple[Resource, ...] = ()) -> None:
        """Write how it ended."""
        self.hands.ledger.save(
            self.launch().model_copy(update={"outcome": outcome, "resources_left": tuple(left)})
        )

    def work(self) -> Work:
        """Read what a resumed launch needs."""
        return read_work(self.id, self.hands)

    def write_work(self, work: Work) -> None:
        """Write what a resumed launch needs."""
        self.hands.ledger.write_note(self.id, WORK, work.model_dump_json())

    def order(
        self, place: Place, attempt: int, usd_per_hour: Decimal | None, once_usd: Decimal = Decimal(0)
    ) -> Order:
        """What is to be created at a place, within what is left of the budget beside ``once_usd``."""
        order = order_of(self.request, self.id, place, usd_per_hour)
        return order.model_copy(update={"attempt": attempt, "budget_usd": self._left_by_the_hour(once_usd)})

    def _left_by_the_hour(self, once_usd: Decimal) -> Decimal | None:
        """What is left of the budget once a block is paid: the watchdog counts hours alone."""
        left = self.left_of_budget()
        paid = any(p.usd_once is not None for p in self.launch().prices)
        return left if left is None or paid else max(Decimal(0), left - once_usd)

    def bill(self, items: tuple[PriceItem, ...], on: bool) -> None:
        """Write that these items bill from now on, or no longer do."""
        points = tuple(_point(item, self.hands.now(), on) for item in items)
        launch = self.launch()
        self.hands.ledger.save(launch.model_copy(update={"prices": (*launch.prices, *points)}))

    def unbill(self, since: datetime) -> None:
        """Take back what was to bill from ``since`` on: nothing had been created."""
        launch = self.launch()
        kept = tuple(p for p in launch.prices if p.since < since or p.quantity == 0)
        self.hands.ledger.save(launch.model_copy(update={"prices": kept}))

    def ceiling(self) -> Ceiling | None:
        """What was confirmed."""
        return self.work().ceiling


def order_of(request: LaunchRequest, launch_id: str, place: Place, usd_per_hour: Decimal | None) -> Order:
    """What a launch would create at a place, with its whole budget."""
    choices = request.choices.model_copy(
        update={"launch_id": launch_id, "zone": place.zone or request.choices.zone}
    )
    return Order(
        plan=request.plan,
        choices=choices,
        launch_id=launch_id,
        place=place,
        directory=f"{request.directory}/{launch_id}",
        num_nodes=request.plan.candidate.num_nodes,
        create_timeout_s=request.limits.create_timeout_s,
        budget_usd=request.budget_usd,
        usd_per_hour=usd_per_hour,
    )


def read_work(launch_id: str, hands: Hands) -> Work:
    """Read the note that ``Running.write_work`` wrote.

    Raises:
        UserError: the launch was begun elsewhere and adopted.

    """
    text = hands.ledger.note(launch_id, WORK)
    if text is None:
        raise UserError(
            f"{launch_id} was adopted: its key and its order are where it was begun", f"plan down {launch_id}"
        )
    return Work.model_validate_json(text)


def _point(item: PriceItem, since: datetime, on: bool) -> PricePoint:
    return PricePoint(
        since=since,
        item=item.item,
        quantity=item.quantity if on else 0,
        usd_per_hour=item.usd_per_hour,
        source=item.source,
        usd_once=item.usd_once if on else None,
    )

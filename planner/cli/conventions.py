"""What holds for every command: conventions, exit codes, environment. ``plan help`` prints it."""

from __future__ import annotations

from dataclasses import dataclass

from planner.exits import MEANINGS


@dataclass(frozen=True, slots=True)
class Entry:
    """A word, a code or a variable, and what it means."""

    name: str
    meaning: str


CONVENTIONS = (
    Entry("stdout and stderr", "stdout is the answer, stderr everything else."),
    Entry("--json", "One document, or lines of JSON, with schema_version; plan schema COMMAND has its form."),
    Entry("--quiet", "Ids only."),
    Entry("units", "GiB is 1024³ bytes; GB/s is 10⁹ bytes a second; money is US dollars; h, s, ms are time."),
    Entry("bands", "95 h (84–108): the median, and an 80 % interval: one run in ten lies below, one above."),
    Entry("unknown", "What is not known prints as unknown and is never summed: ≥ $182 + unknown egress."),
    Entry(
        "verdicts",
        "ok, tight (only a high end, headroom or unstated host memory breaks), over; pass, fail of a probe.",
    ),
    Entry("defaults", "Every default that changes the answer is printed, with the flag that changes it."),
    Entry("losers", "Nothing vanishes: what lost is counted by reason, with the nearest miss."),
    Entry("money first", "What can bill shows its price first and asks; the default answer is No."),
    Entry("no terminal", "Without a terminal and without --yes nothing that bills is started: exit 2."),
    Entry("width and color", "At most 100 columns; words carry the verdict, color only repeats it."),
    Entry("plans", "A plan is a row of the last suggest, its id or the beginning of it, or a file of --out."),
    Entry("prices", "A price has a source and an age; a failed refresh never renews an age."),
    Entry("completion", "plan --install-completion: GPUs, providers, regions, models, plans, launches."),
)

ENVIRONMENT = (
    Entry("PLAN_DATA_DIR", "Where plans, the ledger of launches, budgets and calibrations are kept."),
    Entry("PLAN_CACHE_DIR", "Where snapshots of prices are kept."),
    Entry("PLAN_NO_PROGRESS", "Set to anything: no progress line, even on a terminal."),
    Entry("NO_COLOR", "Set to anything: no color."),
    Entry("TERM", "dumb: no color."),
    Entry("COLUMNS", "Width of the screen, 80 to 100."),
    Entry("RAY_ADDRESS", "Cluster that plan probe joins where --address is auto."),
)


def exit_codes() -> tuple[Entry, ...]:
    """Exit codes in order."""
    return tuple(Entry(str(code), meaning) for code, meaning in sorted(MEANINGS.items()))


def credentials() -> tuple[Entry, ...]:
    """What each provider with live prices wants to see in the environment, as its adapter says."""
    from providers.adapters import adapters

    found = []
    for name, adapter in adapters().items():
        missing = adapter.unavailable({})
        found.append(
            Entry(name, "nothing needed" if missing is None else f"{missing.reason}: {missing.hint}")
        )
    return tuple(found)


def markdown(entries: tuple[Entry, ...], first: str, second: str) -> str:
    """Table for the README."""
    rows = [f"| {each.name} | {each.meaning} |" for each in entries]
    return "\n".join([f"| {first} | {second} |", "|---|---|", *rows])

"""The ledger itself: launches, their states in order, and notes that a resumed launch needs.

Every write is one transaction that is on the disk when the call returns (WAL, synchronous FULL).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from pydantic import ValidationError

from clusters.ledger import locks
from clusters.ledger.schema import LedgerError, connect, damaged
from planner.errors import UserError, did_you_mean
from planner.launched import Launch, Transition

Scrub = Callable[[str], str]
_FILE = "launches.sqlite3"
_NOTE = "INSERT INTO notes VALUES (?, ?, ?) ON CONFLICT (launch_id, name) DO UPDATE SET text = excluded.text"


class LiveLaunchError(Exception):
    """The plan has a launch that is not gone yet."""

    def __init__(self, launch_id: str) -> None:
        super().__init__(f"{launch_id} of the same plan is not gone")
        self.launch_id = launch_id


class Ledger:
    """Launches on disk. ``scrub`` takes secrets out of every text before it is written."""

    def __init__(self, directory: Path, scrub: Scrub) -> None:
        self.path = directory / _FILE
        self._locks = directory / "locks"
        self._scrub = scrub

    @contextmanager
    def lock(self, launch_id: str) -> Iterator[None]:
        """Hold the lock of a launch. Raises ``clusters.ledger.locks.HeldError``."""
        with locks.held(self._locks, launch_id):
            yield

    def begin(self, launch: Launch, notes: Mapping[str, str]) -> None:
        """Write a new launch and its notes; the check for a live one of its plan is in the same transaction.

        Raises:
            LiveLaunchError: another launch of the plan is not gone.

        """
        with self._write() as connection:
            rows = connection.execute("SELECT id FROM launches WHERE plan_id = ?", (launch.plan_id,))
            for (other,) in rows.fetchall():
                if _read(connection, other).state != "gone":
                    raise LiveLaunchError(other)
            connection.execute(
                "INSERT INTO launches VALUES (?, ?, ?)", (launch.id, launch.plan_id, self._record(launch))
            )
            for transition in launch.transitions:
                self._append(connection, launch.id, transition)
            for name, text in notes.items():
                connection.execute(_NOTE, (launch.id, name, self._scrub(text)))

    def add(self, launch: Launch) -> None:
        """Write the row of a launch that exists already and was begun elsewhere; it has no notes."""
        with self._write() as connection:
            connection.execute(
                "INSERT INTO launches VALUES (?, ?, ?)", (launch.id, launch.plan_id, self._record(launch))
            )
            for transition in launch.transitions:
                self._append(connection, launch.id, transition)

    def enter(self, launch_id: str, transition: Transition) -> None:
        """Write that a launch enters a state, before what the state stands for is done."""
        with self._write() as connection:
            self._append(connection, launch_id, transition)

    def save(self, launch: Launch) -> None:
        """Write everything of a launch but its transitions, which only ``enter`` adds."""
        with self._write() as connection:
            connection.execute(
                "UPDATE launches SET record = ? WHERE id = ?", (self._record(launch), launch.id)
            )

    def launch(self, launch_id: str) -> Launch:
        """Return one launch.

        Raises:
            UserError: there is none of that id.

        """
        with self._open() as connection:
            known = [row[0] for row in connection.execute("SELECT id FROM launches")]
            if launch_id not in known:
                raise UserError(f"no launch {launch_id!r:.60}{did_you_mean(launch_id, known)}", "plan ls")
            return _read(connection, launch_id)

    def launches(self) -> tuple[Launch, ...]:
        """All launches, oldest first. No file at all means none; none is made."""
        if not self.path.exists():
            return ()
        with self._open() as connection:
            ids = [row[0] for row in connection.execute("SELECT id FROM launches")]
            return tuple(sorted((_read(connection, i) for i in ids), key=lambda x: (x.created, x.id)))

    def note(self, launch_id: str, name: str) -> str | None:
        """Return a note, ``None`` where it was never written."""
        with self._open() as connection:
            row = connection.execute(
                "SELECT text FROM notes WHERE launch_id = ? AND name = ?", (launch_id, name)
            ).fetchone()
            return None if row is None else str(row[0])

    def write_note(self, launch_id: str, name: str, text: str) -> None:
        """Write a note over the one of the same name."""
        with self._write() as connection:
            connection.execute(_NOTE, (launch_id, name, self._scrub(text)))

    def _record(self, launch: Launch) -> str:
        return self._scrub(launch.model_dump_json(exclude={"transitions"}))

    def _append(self, connection: sqlite3.Connection, launch_id: str, transition: Transition) -> None:
        connection.execute(
            "INSERT INTO transitions SELECT ?, coalesce(max(number), 0) + 1, ?, ?, ?"
            " FROM transitions WHERE launch_id = ?",
            (
                launch_id,
                transition.at.isoformat(),
                transition.state,
                self._scrub(transition.detail),
                launch_id,
            ),
        )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(connect(self.path)) as connection:
            try:
                yield connection
            except sqlite3.DatabaseError as error:
                raise damaged(self.path, error) from None
            except ValidationError as error:
                first = error.errors()[0]
                raise LedgerError(
                    f"ledger {self.path}: a launch cannot be read ({first['loc']}: {first['msg']})", "plan ls"
                ) from None

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that no other writer can come between."""
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection  # closing without COMMIT rolls back
            connection.execute("COMMIT")


def _read(connection: sqlite3.Connection, launch_id: str) -> Launch:
    (record,) = connection.execute("SELECT record FROM launches WHERE id = ?", (launch_id,)).fetchone()
    rows = connection.execute(
        "SELECT at, state, detail FROM transitions WHERE launch_id = ? ORDER BY number", (launch_id,)
    )
    steps = tuple(Transition.model_validate({"at": a, "state": s, "detail": d}) for a, s, d in rows)
    return Launch.model_validate_json(record).model_copy(update={"transitions": steps})

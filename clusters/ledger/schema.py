"""The tables of the ledger by version, and how an older file becomes a newer one.

``PRAGMA user_version`` is the version, ``application_id`` says that the file is ours. A file is copied
beside itself before it is migrated; a file of a newer version is refused, never changed.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from planner.errors import UserError

APPLICATION_ID = 0x504C414E  # "PLAN"
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE launches (id TEXT PRIMARY KEY, plan_id TEXT NOT NULL, record TEXT NOT NULL)",
        "CREATE TABLE transitions (launch_id TEXT NOT NULL REFERENCES launches (id), number INTEGER NOT NULL,"
        " at TEXT NOT NULL, state TEXT NOT NULL, detail TEXT NOT NULL, PRIMARY KEY (launch_id, number))",
    ),
    (
        "CREATE TABLE notes (launch_id TEXT NOT NULL REFERENCES launches (id), name TEXT NOT NULL,"
        " text TEXT NOT NULL, PRIMARY KEY (launch_id, name))",
    ),
)
_BUSY_MS = 10_000


class LedgerError(UserError):
    """The ledger cannot be used as it is. Nothing in it was changed."""


def connect(path: Path, migrations: tuple[tuple[str, ...], ...] = MIGRATIONS) -> sqlite3.Connection:
    """Open the file, making or migrating it.

    Raises:
        LedgerError: it is no ledger, is damaged, or was written by a newer version.

    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, isolation_level=None, timeout=_BUSY_MS / 1000)
    except (OSError, sqlite3.OperationalError) as error:
        raise LedgerError(f"ledger {path} cannot be opened: {error}", "check PLAN_DATA_DIR") from None
    try:
        _ready(connection, path, migrations)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise damaged(path, error) from None
    except LedgerError:
        connection.close()
        raise
    return connection


def damaged(path: Path, error: sqlite3.Error) -> LedgerError:
    """Say that SQLite cannot read the file, and what still works without it."""
    return LedgerError(
        f"ledger {path} cannot be read ({error}); nothing in it was changed",
        f"mv {path} {path}.damaged, then plan down --all (asks the clouds, not the ledger)",
    )


def _ready(connection: sqlite3.Connection, path: Path, migrations: tuple[tuple[str, ...], ...]) -> None:
    """Set the connection up, and bring the file to the newest version."""
    version = _number(connection, "user_version")
    if version > len(migrations):
        raise LedgerError(
            f"ledger {path} was written by a newer plan (schema {version}, this one knows {len(migrations)})",
            "pip install --upgrade plan",
        )
    if version == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise LedgerError(f"{path} is a database of something else", "set PLAN_DATA_DIR to another directory")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    if version < len(migrations):
        _migrate(connection, path, migrations)


def _migrate(connection: sqlite3.Connection, path: Path, migrations: tuple[tuple[str, ...], ...]) -> None:
    """Run what is missing, all or nothing; another process may have done it meanwhile."""
    version = _number(connection, "user_version")
    if version:
        _copy(connection, path.with_name(f"{path.name}.v{version}"))
    connection.execute("BEGIN EXCLUSIVE")
    try:
        for statements in migrations[_number(connection, "user_version") :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        connection.execute("ROLLBACK")
        raise


def _copy(connection: sqlite3.Connection, path: Path) -> None:
    """Keep the file as it was before the migration."""
    with closing(sqlite3.connect(path)) as kept:
        connection.backup(kept)


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])

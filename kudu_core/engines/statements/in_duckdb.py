"""Queries over a table at one snapshot, and over what was given beside it, in a DuckDB of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kudu_core.errors import InvalidArgument, KuduError, NotSupported
from kudu_core.sql.sqlglot_trees import shortened

if TYPE_CHECKING:
    from kudu_core.table.table import Table

THIS = "this"
"""The name of the table in its statements, beside that of its folder."""
_OF_READING = ("Python exception", "get_next failed")
"""What DuckDB says where a table could not be read to its end."""


class Queries:
    """A context manager.  DuckDB is opened, and the snapshot taken, when the first query comes."""

    def __init__(self, table: Table, names: tuple[str, ...], parameters: Mapping[str, Any]) -> None:
        self.table = table
        self.names = names
        """The table's, in any case of letters."""
        for name in parameters:
            if name.lower() in [one.lower() for one in names]:
                raise InvalidArgument(f"sql: {name!r} is the table itself; call the parameter otherwise")
        self.data = {name: value for name, value in parameters.items() if is_data(value)}
        """Parameters that are tables."""
        self.values = {name: value for name, value in parameters.items() if name not in self.data}
        """Parameters that are values."""
        self._connection: Any = None

    def rows(self, text: str) -> pa.Table:
        """What a query gives."""
        duckdb, connection = self._opened()
        try:
            found = connection.sql(text, params=self._bound(duckdb, text))
            if found is None:
                raise InvalidArgument(f"SQL {shortened(text)} gives no rows")
            rows: pa.Table = found.to_arrow_table()
        except duckdb.Error as error:
            raise _told(text, error) from error
        return rows

    def columns_of(self, text: str) -> list[str]:
        """The names of what a query would give."""
        duckdb, connection = self._opened()
        try:
            return list(connection.sql(text, params=self._bound(duckdb, text)).columns)
        except duckdb.Error as error:
            raise _told(text, error) from error

    def as_columns(self, text: str, names: list[str]) -> pa.Table:
        """What a query gives, each column by its place as a value of one of the table's, as DuckDB casts
        what it inserts."""
        duckdb, connection = self._opened()
        listed = ", ".join(map(quoted_name, names))
        try:
            made = "CREATE OR REPLACE TEMP TABLE kudu_core_rows AS SELECT"
            connection.execute(f"{made} {listed} FROM {THIS} LIMIT 0")
            connection.execute(f"INSERT INTO kudu_core_rows {text}", self._bound(duckdb, text))
            rows: pa.Table = connection.sql("FROM kudu_core_rows").to_arrow_table()
        except duckdb.Error as error:
            raise _told(text, error) from error
        return rows

    def statements(self, text: str) -> list[str]:
        """The kinds of statement that a text has, as DuckDB calls them."""
        duckdb, connection = self._opened()
        try:
            return [statement.type.name for statement in connection.extract_statements(text)]
        except duckdb.Error as error:
            raise _told(text, error) from error

    def source(self, name: str) -> Any:
        """The parameter of a name that is a table; None: there is none."""
        found = self.data.get(name)
        if found is None:
            [found] = [value for other, value in self.data.items() if other.lower() == name.lower()] or [None]
        return found

    def _bound(self, duckdb: Any, text: str) -> dict[str, Any] | None:
        """The values of the parameters that a text has."""
        statements = duckdb.extract_statements(text)
        names = {name for statement in statements for name in statement.named_parameters}
        for name in sorted(names):
            if name not in self.values:
                known = ", ".join(f"${one}" for one in self.values) or "none"
                raise InvalidArgument(f"SQL: no value is given for ${name}; given are: {known}")
        given = {name: self.values[name] for name in names}
        plain = {n: value.as_py() if isinstance(value, pa.Scalar) else value for n, value in given.items()}
        return plain or None

    def _opened(self) -> tuple[Any, Any]:
        duckdb = duckdb_of()
        if self._connection is None:
            connection = duckdb.connect(config={"python_enable_replacements": "false"})
            self._connection = connection
            connection.execute("SET TimeZone = 'UTC'")
            dataset = self.table.to_dataset()
            for name in self.names:
                connection.register(name, dataset)
            for name, value in self.data.items():
                connection.register(name, _registered(value))
        return duckdb, self._connection

    def __enter__(self) -> Queries:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._connection is not None:
            self._connection.close()


def duckdb_of() -> Any:
    """The package; ``NotSupported`` where it is not installed."""
    try:
        import duckdb
    except ImportError:
        raise NotSupported(
            "SELECT, and queries inside of statements, run in DuckDB, which is not installed: "
            "pip install 'kudu-core[sql]'"
        ) from None
    return duckdb


def is_data(value: Any) -> bool:
    """Whether a parameter is a table: what speaks Arrow, a frame, a dataset, a dict of columns, a list of
    rows as dicts."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(row, dict) for row in value)
    if isinstance(value, dict):
        return all(not isinstance(one, str | bytes) and hasattr(one, "__len__") for one in value.values())
    if isinstance(value, pa.Array | pa.ChunkedArray | pa.Scalar):
        return False
    return any(hasattr(value, name) for name in ("__arrow_c_stream__", "to_batches")) or (
        hasattr(value, "columns") and hasattr(value, "dtypes")
    )


def _registered(value: Any) -> Any:
    """What DuckDB takes of a parameter that is a table."""
    if isinstance(value, dict | list):
        return arrow_of(value)
    return value.to_dataset() if hasattr(value, "to_dataset") else value


def arrow_of(value: dict[str, Any] | list[dict[str, Any]]) -> pa.Table:
    """Python's columns or rows as a table; ``InvalidArgument`` where Arrow makes none of them."""
    try:
        return pa.table(value) if isinstance(value, dict) else pa.Table.from_pylist(value)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"sql: a parameter is no table: {error}") from None


def quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _told(text: str, error: Exception) -> KuduError:
    """DuckDB's error as one of ours."""
    said = str(error)
    kind = KuduError if any(part in said for part in _OF_READING) else InvalidArgument
    return kind(f"SQL {shortened(text)}: DuckDB says: {said}")


__all__ = ["THIS", "Queries", "is_data"]

"""Opening, finding and creating stores, in a directory or in an object store."""

from pathlib import Path

import pyarrow as pa
from pydantic import BaseModel

from pipeline.config.locations import Uri
from pipeline.storage.files import write_arrow
from pipeline.storage.object_store import Remote, resolve
from pipeline.store.arrays import CollectionArrays, GraphArrays
from pipeline.store.graph_store import INGEST, GraphStore
from pipeline.store.manifest import (
    MANIFEST_NAME,
    FileEntry,
    StageEntry,
    StoreError,
    describe_difference,
    describe_graph,
    read_manifest,
)
from pipeline.store.remote_store import RemoteStore
from pipeline.store.stage import new_directory


def open_store(place: Path | Uri | Remote) -> GraphStore:
    """Open a store.

    Raises:
        StoreError: If there is none, or it has a different schema version.
        CorruptFileError: If the manifest was changed.
    """
    where = resolve(place)
    if isinstance(where, Remote):
        return RemoteStore.load(where)
    root = where.absolute()
    return GraphStore(root, read_manifest(root))


def find_store(place: Path | Uri | Remote, parameters: BaseModel) -> GraphStore | None:
    """The store at `place` if it was ingested with `parameters`; None if nothing is there yet.

    Raises:
        StoreError: If something else is there.
    """
    where = resolve(place)
    if not (has_manifest(where) if isinstance(where, Remote) else _is_taken(where)):
        return None
    store = open_store(where)
    old, new = store.manifest.stages[INGEST].parameters, parameters.model_dump(mode="json")
    if old != new:
        raise StoreError(
            f"Expected '{store.place}' to hold the requested graph "
            f"(got another: {describe_difference(old, new)}): choose another store or delete this one"
        )
    return store


def create_store(
    place: Path | Uri | Remote,
    graph: GraphArrays | CollectionArrays,
    parameters: BaseModel,
    summary: BaseModel | None = None,
) -> GraphStore:
    """Write `graph` as a new store; it appears at `place` only when it is complete.

    Args:
        place: Directory or URI of the store. A store with the same parameters there is returned as it is.
        graph: The cleaned graph, or a collection of them.
        parameters: What determined its content: source, seeds, digests of the source's files.
        summary: The cleaning report.

    Raises:
        StoreError: If a store with other parameters, or anything else, is at `place`.
    """
    where = resolve(place)
    found = find_store(where, parameters)
    if found is not None:
        return found
    noted = {} if summary is None else summary.model_dump(mode="json")
    entry = StageEntry(parameters=parameters.model_dump(mode="json"), summary=noted)
    if isinstance(where, Remote):
        return RemoteStore.write(where, graph, entry)
    root = where.absolute()
    try:
        with new_directory(root) as building:
            files = {name: _write(building, name, table) for name, table in graph.tables().items()}
            describe_graph(graph).with_stage(INGEST, entry, files).write(building)
    except FileExistsError:
        found = find_store(where, parameters)  # another process was faster
        if found is None:
            raise
        return found
    return open_store(root)


def has_manifest(place: Path | Remote) -> bool:
    """Whether there is a store."""
    if isinstance(place, Remote):
        return (place / MANIFEST_NAME).size() is not None
    return (place / MANIFEST_NAME).exists()


def _is_taken(path: Path) -> bool:
    return path.exists() and not (path.is_dir() and not any(path.iterdir()))


def _write(root: Path, name: str, table: pa.Table) -> FileEntry:
    digest = write_arrow(root / name, table)
    return FileEntry(stage=INGEST, sha256=digest, bytes=(root / name).stat().st_size, rows=table.num_rows)

"""The nodes' own features as a block, and principal components of wide ones."""

from functools import partial

import numpy as np

from pipeline.features.blocks import (
    BlockParameters,
    Scale,
    open_block,
    row_ranges,
    stage_name,
    write_block,
    write_rows,
)
from pipeline.store.arrays import Floats
from pipeline.store.graph_store import GraphStore
from pipeline.store.stage import Stage

OWN = "own"
PROJECTED = "projected"
#: Wide features with at most this share of non-zero entries are treated as bags of words.
SPARSE_SHARE = 0.2
WIDE_COLUMNS = 512
#: Averages over neighbours use principal components if wide features have more entries than this.
LARGE_ENTRIES = 2**26
COMPONENTS = 256
POWER_ITERATIONS = 2
OVERSAMPLING = 16


def own_scale(store: GraphStore) -> Scale:
    """How features are scaled: sparse ones row by row, others column by column.

    A rare word would become a huge number if its column were standardised.
    """
    return "none" if is_sparse(store) else "columns"


def is_sparse(store: GraphStore) -> bool:
    """Whether the features are mostly zero, like bags of words."""
    features = store.features()
    if not is_wide(store):
        return False
    sample = features[np.linspace(0, len(features) - 1, num=min(len(features), 10_000), dtype=np.int64)]
    return bool((sample != 0).mean() < SPARSE_SHARE)


def is_wide(store: GraphStore) -> bool:
    """Whether the features have many columns."""
    return store.manifest.num_features > WIDE_COLUMNS


def needs_projection(store: GraphStore) -> bool:
    """Whether averages use principal components instead of the features themselves."""
    return is_wide(store) and store.manifest.num_features * store.num_nodes > LARGE_ENTRIES


def write_own(store: GraphStore, *, replace: bool = False) -> bool:
    """Write the block `own`."""
    sparse = is_sparse(store)
    return write_block(
        store,
        BlockParameters(block=OWN),
        partial(_fill_own, store, sparse),
        own_scale(store),
        replace=replace,
    )


def _fill_own(store: GraphStore, sparse: bool, stage: Stage) -> list[str]:
    features = store.features()
    size = _mean_entry(features) if sparse else 1.0
    ranges = row_ranges(store.num_nodes)
    for name, (start, stop) in ranges:
        if not stage.existing(name):
            rows = features[start:stop]
            write_rows(stage, name, unit_rows(rows) / size if sparse else rows)
    return [name for name, _ in ranges]


def unit_rows(rows: Floats) -> Floats:
    """Rows scaled to length 1; rows of zeros are unchanged."""
    length = np.sqrt((rows.astype(np.float64) ** 2).sum(1, keepdims=True))
    return np.asarray(rows / np.maximum(length, 1e-9), dtype=np.float32)


def _mean_entry(features: Floats) -> float:
    """Root mean square of the non-zero entries of rows of length 1."""
    present, entries = 0, 0
    for start in range(0, len(features), 65_536):
        rows = features[start : start + 65_536]
        present += int((rows != 0).any(1).sum())
        entries += int((rows != 0).sum())
    return float(np.sqrt(present / entries)) if entries else 1.0


def write_projection(store: GraphStore, *, replace: bool = False) -> bool:
    """Write the block `projected`: the first principal components of the block `own`."""
    parameters = BlockParameters(block=PROJECTED, columns=COMPONENTS)
    fill = partial(_fill_projection, store)
    return write_block(store, parameters, fill, "whole", requires=(stage_name(OWN),), replace=replace)


def _fill_projection(store: GraphStore, stage: Stage) -> list[str]:
    ranges = row_ranges(store.num_nodes)
    if all(stage.existing(name) for name, _ in ranges):
        return [name for name, _ in ranges]
    own = open_block(store, OWN)
    blocks = [own[start:stop] for _, (start, stop) in ranges]
    basis = _principal_basis(blocks, min(COMPONENTS, *own.shape))
    for (name, _), block in zip(ranges, blocks, strict=True):
        write_rows(stage, name, _product(block, basis))
    return [name for name, _ in ranges]


def _principal_basis(blocks: list[np.ndarray], components: int) -> Floats:
    """Right singular vectors by a randomised search (Halko et al., 2011) in a few passes. [D, C]"""
    columns = blocks[0].shape[1]
    width = min(components + OVERSAMPLING, columns)
    basis = np.random.default_rng(0).standard_normal((columns, width)).astype(np.float32)
    for _ in range(1 + POWER_ITERATIONS):
        basis = np.linalg.qr(basis)[0]
        parts = [_transposed_product(block, _product(block, basis)) for block in blocks]
        basis = np.sum(parts, axis=0)
    basis = np.linalg.qr(basis)[0]
    gram = sum(np.matmul(part.T, part) for part in (_product(block, basis) for block in blocks))
    values, vectors = np.linalg.eigh(gram)
    order = np.argsort(values)[::-1][:components]
    return np.asarray(basis @ vectors[:, order], dtype=np.float32)


def _product(block: np.ndarray, basis: Floats) -> Floats:
    from scipy.sparse import csr_matrix

    return np.asarray(csr_matrix(block.astype(np.float32)) @ basis, dtype=np.float32)


def _transposed_product(block: np.ndarray, rows: Floats) -> Floats:
    from scipy.sparse import csr_matrix

    return np.asarray(csr_matrix(block.astype(np.float32)).T @ rows, dtype=np.float32)

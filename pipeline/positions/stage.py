"""The positions stage: distance profiles, r_A, and the columns that heads order the nodes by.

Implements: eq:approximate-im-pos-implementation

Legend: n nodes, K counted hops, P columns, H heads.
"""

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from pipeline.config.settings import PositionConfig
from pipeline.engine.session import ray_session
from pipeline.positions.closed_form import HOP_LENGTH, DistanceSums, Vector, solve, sum_distances
from pipeline.positions.profiles import Layout, Profiles, compute_profiles, lay_out, weigh_distances
from pipeline.positions.search import MAX_SOURCES, hop_distances
from pipeline.runtime.errors import UserError
from pipeline.storage.files import list_column
from pipeline.store.arrays import CSR
from pipeline.store.graph_store import GraphStore, PositionSummary
from pipeline.store.stage import Stage

STAGE = "positions"
LANDMARKS = 512
# Core-seconds that exact profiles may take before landmarks replace them.
DEFAULT_BUDGET_SECONDS = 1800.0
# Time of a sweep per entry of the adjacency structure and level, on one core of a typical machine.
# A fixed number, so that the same graph gives the same choice everywhere.
NANOSECONDS_PER_VISIT = 12.0
# Below this share of a standard deviation a refinement makes no difference.
_TOLERANCE = 5e-7
# Larger graphs estimate D δ from a sample: their error without any refinement is already below 10⁻⁵.
EXACT_REFINEMENT_NODES = 2**17
REFINEMENT_SAMPLE = 2**14
COLUMN_LANDMARKS = 8
_WEIGHT_BITS = 40
_MAX_REFINEMENTS = 8


class PositionParameters(BaseModel):
    """What determines the files of the stage."""

    model_config = ConfigDict(frozen=True)

    truncate: int = 4
    depth: Literal["truncated", "full"] = "truncated"
    landmarks: int | None = None
    """Number of sources for estimated profiles; None for exact ones."""
    batch_sources: int = MAX_SOURCES
    refinements: int = _MAX_REFINEMENTS
    seed: int = 0


@dataclass(frozen=True)
class Choice:
    """Exact profiles or landmarks, and why."""

    landmarks: int | None
    seconds: float
    """Core-seconds that exact profiles would take."""
    reason: str


@dataclass(frozen=True)
class Positions:
    """r_A and what it was computed from."""

    r_A: Vector
    profiles: Profiles
    refinements: int
    last_change: float
    """The largest change in the last refinement, in standard deviations."""


def choose_sources(
    csr: CSR,
    *,
    truncate: int,
    full_depth: bool,
    landmarks: int | None = None,
    budget_seconds: float = DEFAULT_BUDGET_SECONDS,
) -> Choice:
    """Choose between all sources and landmarks by the work that all sources would take.

    Args:
        csr: The graph, both directions of every edge.
        truncate: K.
        full_depth: Whether the search has no limit.
        landmarks: A requested number of landmarks, which is then used.
        budget_seconds: Core-seconds that exact profiles may take.
    """
    levels = _depth_of(csr) if full_depth else truncate
    batches = -(-csr.num_nodes // MAX_SOURCES)
    seconds = batches * levels * (csr.num_edges + 2 * csr.num_nodes) * NANOSECONDS_PER_VISIT * 1e-9
    if landmarks is not None:
        count = min(landmarks, csr.num_nodes)
        return Choice(count, seconds, f"{count:,} landmarks, as requested")
    work = f"{batches:,} batches of {MAX_SOURCES} sources, about {seconds:,.0f} core-seconds"
    if seconds <= budget_seconds:
        return Choice(None, seconds, f"exact: {work}, within the budget of {budget_seconds:,.0f}")
    reason = (
        f"{LANDMARKS} landmarks: exact profiles would be {work}, over the budget of {budget_seconds:,.0f}"
    )
    return Choice(min(LANDMARKS, csr.num_nodes), seconds, reason)


def resolve_parameters(
    csr: CSR, settings: PositionConfig, *, budget_seconds: float = DEFAULT_BUDGET_SECONDS
) -> tuple[PositionParameters, Choice]:
    """The parameters of the stage for a graph: the settings, with the sources that the budget allows.

    Refinement stops by itself, after one round on graphs of a few thousand nodes; small graphs need a few
    more, so any number except 0 allows all of them.

    Raises:
        UserError: If more sources are to share a sweep than one can hold.
    """
    if settings.batch_sources > MAX_SOURCES:
        raise UserError(
            f"Expected 'positions.batch_sources' to be at most {MAX_SOURCES} (got {settings.batch_sources})"
        )
    choice = choose_sources(
        csr,
        truncate=settings.truncate,
        full_depth=settings.depth == "full",
        landmarks=settings.landmarks,
        budget_seconds=budget_seconds,
    )
    parameters = PositionParameters(
        truncate=settings.truncate,
        depth=settings.depth,
        landmarks=choice.landmarks,
        batch_sources=settings.batch_sources,
        refinements=max(settings.refinements, _MAX_REFINEMENTS) if settings.refinements else 0,
        seed=settings.seed,
    )
    return parameters, choice


def write_positions(
    store: GraphStore,
    parameters: PositionParameters,
    *,
    reason: str = "",
    replace: bool = False,
    parallel: bool = True,
) -> bool:
    """Compute the positions of a store's nodes and add them to it.

    Args:
        store: The graph; a directed one is made symmetric for distances.
        parameters: What to compute.
        reason: Why these sources, for the summary.
        replace: Drop positions with other parameters.
        parallel: Search with Ray tasks.

    Returns:
        Whether there was anything to do.
    """
    with store.begin(STAGE, parameters, replace=replace) as stage:
        if stage.done:
            return False
        csr = store.undirected_csr()
        # One session for all searches: otherwise each would start Ray anew.
        with ray_session() if parallel else nullcontext():
            found = compute_positions(lay_out(csr), parameters, stage=stage, parallel=parallel)
        names, columns = position_columns(csr, found)
        stage.write_table("positions.arrow", pa.table({"r_A": found.r_A}))
        stage.write_table("profile.arrow", pa.table({"profile": list_column(found.profiles.counts)}))
        stage.write_table("columns.arrow", pa.table({"columns": list_column(columns)}))
        stage.measure(
            batches=found.profiles.batches,
            resumed_batches=found.profiles.resumed_batches,
            worker_peak_memory_bytes=found.profiles.peak_memory_bytes,
        )
        stage.commit(_summary(found, names, reason))
    return True


def compute_positions(
    layout: Layout, parameters: PositionParameters, *, stage: Stage | None = None, parallel: bool = True
) -> Positions:
    """Profiles and r_A of every node.

    Args:
        layout: The graph.
        parameters: What to compute.
        stage: Keeps finished batches.
        parallel: Search with Ray tasks.
    """
    size = layout.csr.num_nodes
    sources = None
    if parameters.landmarks is not None:
        sources = np.sort(np.random.default_rng(parameters.seed).permutation(size)[: parameters.landmarks])
    profiles = compute_profiles(
        layout,
        truncate=parameters.truncate,
        full_depth=parameters.depth == "full",
        sources=sources,
        batch_sources=parameters.batch_sources,
        stage=stage,
        parallel=parallel,
    )
    sums = sum_distances(
        profiles.reached,
        profiles.first,
        profiles.second,
        num_sources=profiles.num_sources - profiles.counts[:, 0].astype(np.int64),
        depth=profiles.depth,
        num_nodes=size,
    )
    rounds = 0 if sources is not None else parameters.refinements
    refinement = _Refinement(layout, sums, profiles.depth, parameters, stage, parallel)
    return refinement.run(solve(sums), rounds, profiles)


@dataclass(frozen=True)
class _Refinement:
    """Solves again with D δ of the last solution, until nothing changes."""

    layout: Layout
    sums: DistanceSums
    depth: int
    parameters: PositionParameters
    stage: Stage | None
    parallel: bool

    def run(self, solution: Vector, rounds: int, profiles: Profiles) -> Positions:
        change, done = 1.0, 0
        # The first change is as large as the contraction allows; each later one shrinks by the same factor.
        while done < rounds and solution.std() > 0 and change * self.sums.contraction > _TOLERANCE:
            refined = solve(self.sums, self.deviation(solution - solution.mean(), done))
            change = float(np.abs(refined - solution).max() / solution.std())
            solution, done = refined, done + 1
        return Positions(solution, profiles, done, change if done else 0.0)

    def deviation(self, delta: Vector, number: int) -> Vector:
        """D δ: exact, or for large graphs estimated from a sample of sources."""
        size = len(delta)
        sample = None
        if size > EXACT_REFINEMENT_NODES:
            draw = np.random.default_rng([self.parameters.seed, number])
            sample = np.sort(draw.permutation(size)[:REFINEMENT_SAMPLE])
        weights, unit = to_integers(delta, self.depth)
        chosen = np.zeros_like(weights)
        chosen[slice(None) if sample is None else sample] = weights[slice(None) if sample is None else sample]
        near, hops = weigh_distances(
            self.layout,
            weights,
            depth=None if self.parameters.depth == "full" else self.depth,
            name=f"refinement-{number}",
            sources=sample,
            batch_sources=self.parameters.batch_sources,
            stage=self.stage,
            parallel=self.parallel,
        )
        total = chosen.sum()
        exact = HOP_LENGTH * unit * (hops + (self.depth + 1) * (total - near - chosen))
        if sample is None:
            return np.asarray(exact)
        # Σ_j (d_ij − p_i/n) δ_j has the same value, since Σ_j δ_j = 0, and a much smaller sampling error.
        centred = exact - self.sums.first / size * (unit * total)
        return np.asarray(centred * size / len(sample))


def to_integers(values: Vector, depth: int) -> tuple[NDArray[np.int64], float]:
    """`values` as integers times a unit, fine enough to make no difference and with sums that never
    overflow."""
    room = 62 - math.ceil(math.log2(len(values) + 1)) - math.ceil(math.log2(depth + 2))
    largest = float(np.abs(values).max())
    unit = largest / 2.0 ** min(_WEIGHT_BITS, room) if largest > 0 else 1.0
    return np.round(values / unit).astype(np.int64), unit


def position_columns(csr: CSR, found: Positions) -> tuple[list[str], NDArray[np.float32]]:
    """What implicit heads read of a node: r_A, its profile in logarithms, distances to landmarks. [n, P]

    One number gives heads two orders, ascending and descending; many give each its own. All columns have
    mean 0 and standard deviation 1.
    """
    columns = {"r_A": found.r_A}
    for hop in range(1, found.profiles.counts.shape[1]):
        columns[f"hop_{hop}"] = np.log1p(found.profiles.counts[:, hop])
    for number, landmark in enumerate(spread_landmarks(csr, found.r_A, COLUMN_LANDMARKS)):
        columns[f"landmark_{number}"] = landmark.astype(np.float64)
    values = np.stack([standardize(column) for column in columns.values()], axis=1)
    return list(columns), values.astype(np.float32)


def spread_landmarks(csr: CSR, r_A: Vector, count: int) -> list[NDArray[np.int32]]:
    """Distances to landmarks that are far apart, all in the component of the node of largest degree.

    The next landmark is the node farthest from those before it, with ties going to the smallest r_A. Nodes
    without a path to it count as one hop farther than the farthest.
    """
    start = int(np.lexsort((r_A, -csr.degrees()))[0])
    nearest = hop_distances(csr, start)
    inside = nearest >= 0
    landmarks: list[NDArray[np.int32]] = []
    for _ in range(count):
        farthest = np.flatnonzero(inside & (nearest == nearest[inside].max()))
        hops = hop_distances(csr, int(farthest[np.argmin(r_A[farthest])]))
        landmarks.append(np.where(hops < 0, hops.max() + 1, hops).astype(np.int32))
        nearest = np.where(inside, np.minimum(nearest, hops), -1).astype(np.int32)
    return landmarks


def standardize(values: Vector) -> Vector:
    """Mean 0 and standard deviation 1; a constant becomes 0."""
    centred = values - values.mean()
    scale = centred.std()
    # Rounding of the mean leaves a constant column with a spread of about 10⁻¹⁶ times its value.
    if scale <= 1e-12 * max(1e-300, float(np.abs(values).max())):
        return np.zeros_like(centred)
    return np.asarray(centred / scale)


def _depth_of(csr: CSR) -> int:
    """Estimate the largest distance by two searches, the second from the far end of the first."""
    start = int(csr.degrees().argmax())
    far = int(hop_distances(csr, start).argmax())
    return max(1, int(hop_distances(csr, far).max()))


def _summary(found: Positions, names: list[str], reason: str) -> PositionSummary:
    return PositionSummary(
        columns=tuple(names),
        reason=reason,
        depth=found.profiles.depth,
        num_sources=found.profiles.num_sources,
        refinements=found.refinements,
        last_change=found.last_change,
    )

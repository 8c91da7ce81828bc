"""Origin of a checkpoint: the configuration and the graph it was trained with."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pipeline.config.loading import Config, TrackingConfig
from pipeline.config.locations import Place
from pipeline.models.networks import Inputs
from pipeline.runtime.errors import UserError
from pipeline.storage.object_store import Remote
from pipeline.store.graph_store import GraphStore
from pipeline.training.needs import input_digest


class Origin(BaseModel):
    """What a checkpoint needs to be continued or used."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: Config
    inputs: Inputs
    """Sizes that shape the network."""
    dataset: str
    store: Place
    """Where the store was."""
    digest: str
    """Digest of everything that training read of the store."""

    @classmethod
    def of(cls, config: Config, store: GraphStore) -> "Origin":
        # A tracker's address may contain a password, and does not affect the weights.
        public = config.model_copy(update={"tracking": TrackingConfig()})
        return cls(
            config=public,
            inputs=Inputs.of(store, config),
            dataset=store.manifest.name,
            store=store.place.uri if isinstance(store.place, Remote) else store.place,
            digest=input_digest(store, config),
        )

    def require_sizes(self, store: GraphStore, checkpoint: Path | Remote) -> None:
        """Refuse a store that does not fit the network.

        Raises:
            UserError: if its task or its numbers of features, classes, position columns or, for LINKX,
                nodes differ.
        """
        found = Inputs.of(store, self.config)
        for name in ("task", "num_features", "num_classes", "num_edge_features", *self._further_sizes()):
            trained, theirs = getattr(self.inputs, name), getattr(found, name)
            if trained != theirs:
                raise UserError(
                    f"Expected '{store.place}' to fit '{checkpoint}', trained on {self.dataset} with "
                    f"{name}={trained} (got {name}={theirs})"
                )

    def require_store(self, store: GraphStore, checkpoint: Path | Remote, remedy: str = "") -> None:
        """Refuse a store other than the one trained on.

        Args:
            store: The store.
            checkpoint: The checkpoint, named in the error.
            remedy: What to do about it, appended to the error.

        Raises:
            UserError: if sizes or the digest of what training read differ.
        """
        self.require_sizes(store, checkpoint)
        digest = input_digest(store, self.config)
        if digest != self.digest:
            raise UserError(
                f"Expected '{store.place}' to hold what '{checkpoint}' was trained on, {self.dataset} with "
                f"digest {self.digest[:12]} (got {store.manifest.name} with digest {digest[:12]}){remedy}"
            )

    def _further_sizes(self) -> tuple[str, ...]:
        if self.config.model.name == "linkx":
            return ("num_nodes",)
        return ("num_position_columns",) if self.config.model.positions == "implicit" else ()

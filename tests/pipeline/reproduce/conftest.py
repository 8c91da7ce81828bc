"""Records and a dataset small enough for tests."""

from collections.abc import Mapping

from pipeline.reproduce.records import Source, TrainingRecord

SOURCE = Source(command="cocn reproduce node", revision="0" * 40, dirty=False, device="cpu")


def training(
    dataset: str,
    model: str,
    *,
    split: int = 0,
    variant: str = "",
    value: float = 0.5,
    cut_short: bool = False,
    curve: Mapping[int, float] | None = None,
) -> TrainingRecord:
    return TrainingRecord(
        dataset=dataset,
        model=model,
        variant=variant,
        scale="quick",
        split=split,
        seed=0,
        metric="accuracy",
        value=value,
        validation=value,
        epochs=3,
        best_epoch=2,
        cut_short=cut_short,
        seconds=60.0,
        peak_memory_mb=100.0,
        num_parameters=10,
        curve=curve or {},
        settings={"model.name": model},
        source=SOURCE,
    )

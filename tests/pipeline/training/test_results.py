"""Files of a training: lines that survive a kill, each epoch once."""

from pathlib import Path

from pipeline.training.results import EpochRecord, append_epoch, read_epochs, read_now, read_result


def record(epoch: int, loss: float) -> EpochRecord:
    return EpochRecord(
        epoch=epoch,
        step=epoch,
        train_loss=loss,
        val_loss=None,
        val_metric=None,
        rows_per_second=1.0,
        learning_rate=0.1,
        seconds=1.0,
    )


def test_a_line_that_a_kill_cut_off_spoils_no_other(tmp_path: Path) -> None:
    append_epoch(tmp_path, record(0, 0.5))
    with (tmp_path / "epochs.jsonl").open("a") as lines:
        lines.write('{"epoch": 1, "st')
    append_epoch(tmp_path, record(1, 0.25))
    assert read_epochs(tmp_path) == [record(0, 0.5), record(1, 0.25)]


def test_the_last_word_on_an_epoch_counts(tmp_path: Path) -> None:
    for epoch, loss in ((0, 0.5), (1, 0.4), (1, 0.3)):
        append_epoch(tmp_path, record(epoch, loss))
    assert read_epochs(tmp_path) == [record(0, 0.5), record(1, 0.3)]


def test_a_new_directory_holds_nothing(tmp_path: Path) -> None:
    assert read_epochs(tmp_path) == []
    assert read_now(tmp_path) is None
    assert read_result(tmp_path) is None

"""The command line: exit codes, one-line errors, help with examples, JSON as the last line."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from jobs import cli
from pipeline.runtime.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


def run_cocn(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jobs.cli", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def exit_code(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    return int(caught.value.code or 0)


@pytest.fixture
def failing_command(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Add a command `fail` that raises the given exception."""

    def install(error: BaseException) -> None:
        build = cli.build_app

        def with_failure() -> typer.Typer:
            app = build()

            @app.command("fail")
            def fail() -> None:
                raise error

            return app

        monkeypatch.setattr(cli, "build_app", with_failure)

    return install


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UserError("run.yaml: unknown key 'a'"), 2, "cocn: run.yaml: unknown key 'a'\n"),
        (ValueError("two\nlines"), 1, "cocn: ValueError: two lines (--debug shows where)\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_a_failure_is_one_line_and_an_exit_code(
    failing_command: Callable[[BaseException], None],
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    line: str,
) -> None:
    failing_command(error)
    assert exit_code("fail") == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err in (line, "cocn: interrupted\n")


def test_debug_shows_the_traceback(
    failing_command: Callable[[BaseException], None], capsys: pytest.CaptureFixture[str]
) -> None:
    failing_command(ValueError("deep inside"))
    assert exit_code("fail", "--debug") == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("doctro",), ("doctor", "--jason")])
def test_a_mistyped_word_is_one_line(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*words) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_version_and_help_from_a_fresh_process() -> None:
    assert run_cocn("--version").stdout.startswith("cocn 0.")
    shown = run_cocn("--help")
    assert shown.returncode == 0
    assert all(name in shown.stdout for name in cli.COMMANDS)


def test_every_command_has_a_summary_and_an_example() -> None:
    def commands(group: typer.Typer) -> list[tuple[str, str]]:
        own = [
            (str(c.name), (c.callback.__doc__ or "") if c.callback else "") for c in group.registered_commands
        ]
        return own + [
            pair for g in group.registered_groups if g.typer_instance for pair in commands(g.typer_instance)
        ]

    listed = commands(cli.build_app())
    assert listed
    for name, text in listed:
        assert "Example: " in text, f"'{name}' has no example in its help"


def test_doctor_ends_with_one_json_object() -> None:
    done = run_cocn("doctor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["status"] in ("ok", "warning")
    assert {check["name"] for check in report["checks"]} >= {"python", "ray", "mlflow store", "disk"}


def test_doctor_reads_well_without_a_terminal() -> None:
    done = run_cocn("doctor")
    assert done.returncode == 0
    assert "\x1b[" not in done.stdout
    assert "python" in done.stdout

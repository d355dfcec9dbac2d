"""The command line; one screen of code a command. Rooms are imported by the command that needs them."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from textwrap import fill
from typing import Annotated

import typer
from rich.console import Console

from lagproof import __version__
from lagproof.config import Config, keys
from lagproof.errors import ConfigError, InterruptedRunError, LagproofError, UsageError

app = typer.Typer(
    help="Asynchronous reinforcement learning for language models that stays stable on stale data.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

SetOption = Annotated[list[str] | None, typer.Option("--set", help="override one key, as TOML; may be repeated")]


def main() -> None:
    """Run the command line; exit codes: 0 done, 1 the run failed, 2 wrong use, 130 interrupted."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except InterruptedRunError as error:
        _fail(str(error), 130)
    except UsageError as error:
        _fail(f"error: {error}", 2)
    except LagproofError as error:
        _fail(f"error: {error}", 1)
    except BrokenPipeError:
        sys.stdout = None  # type: ignore[assignment]  # whoever read the output has gone
        sys.exit(1)
    except Exception as error:  # the edge of the process: usage errors of the command-line library
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        sys.exit(getattr(error, "exit_code", 2))


def _fail(message: str, code: int) -> None:
    print(message, file=sys.stderr)
    sys.exit(code)


def _keys_text() -> str:
    lines = [
        f"  {key}{'' if default is None else f' = {default}'}\n"
        + fill(text, 78, initial_indent=" " * 6, subsequent_indent=" " * 6)
        for key, default, text in keys()
    ]
    return "\n\n\b\nKeys with their defaults, for CONFIG.toml and --set:\n" + "\n".join(lines)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


@app.command(
    help="One run. Without CONFIG the embedded default: a tiny model, an arithmetic task, no network, no GPU."
    + _keys_text()
)
def train(
    config: Annotated[Path | None, typer.Argument(help="TOML file", show_default=False)] = None,
    set_: SetOption = None,
    resume: Annotated[
        Path | None, typer.Option(help="go on with this run directory, bit for bit", show_default=False)
    ] = None,
) -> None:
    from lagproof.cli.progress import display
    from lagproof.runtime.run_dir import RunDir
    from lagproof.runtime.train import train as run

    if resume is not None and (config is not None or set_):
        raise ConfigError("--resume takes everything from the run directory: leave CONFIG and --set out")
    settings = RunDir.open(resume)[1] if resume else Config.load(config, set_ or [])
    if resume is not None:
        from dataclasses import replace

        settings = replace(settings, run_dir=str(resume))
    console = Console(stderr=False)
    with display(settings.steps, console) as shown:
        result = run(
            settings, resume=resume is not None, on_step=shown.row, on_tokens=shown.tokens, on_alarm=shown.alarm
        )
    accuracy = result.metrics.get("eval/accuracy")
    console.print(
        f"{result.reason} after {result.steps} steps"
        + (f", accuracy {accuracy:.3f}" if accuracy is not None else "")
        + f": {result.run_dir}",
        soft_wrap=True,
        highlight=False,
    )


@app.command(
    help="Objectives x lags x seeds side by side, in parallel processes: a table and a page. The same command goes on "
    "where it was interrupted. SOURCE is a preset (demo, asympo, sat) or a TOML file."
)
def compare(
    source: Annotated[str, typer.Argument(help="demo | asympo | sat | FILE.toml")] = "demo",
    out: Annotated[Path | None, typer.Option(help="directory; runs/NAME by default", show_default=False)] = None,
    set_: SetOption = None,
    seeds: Annotated[str | None, typer.Option(help="seeds instead of the source's: 0,1,2", show_default=False)] = None,
    jobs: Annotated[int | None, typer.Option(help="processes; one a core by default", show_default=False)] = None,
) -> None:
    from lagproof.experiments.compare import compare as run
    from lagproof.report import write_comparison

    code = run(
        source,
        out,
        overrides=set_ or [],
        seeds=None if seeds is None else _integers("--seeds", seeds),
        jobs=jobs,
        command=shlex.join(["lagproof", *sys.argv[1:]]),
        report=write_comparison,
    )
    raise typer.Exit(code)


@app.command(help="One self-contained page of a run, of a comparison, or of several runs side by side.")
def report(
    sources: Annotated[list[Path], typer.Argument(help="run directories or directories of comparisons")],
    out: Annotated[Path | None, typer.Option(help="the file; report.html by default", show_default=False)] = None,
) -> None:
    from lagproof.report import write

    print(write(sources, out))


def _integers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"{option} {text!r}: must be integers with commas between them, for example 0,1,2") from None


@app.command(help="The table of objectives with their options; with NAME the whole page of one.")
def objectives(
    name: Annotated[str | None, typer.Argument(help="an objective", show_default=False)] = None,
) -> None:
    from rich import box
    from rich.table import Table

    from lagproof import rules

    if name is not None:
        rules.defaults(name)
        print(next(entry.doc for entry in rules.objectives() if entry.name == name))
        return
    table = Table("name", "options", "needs", "what it protects against", box=box.SIMPLE)
    for e in rules.objectives():
        options = " ".join(f"{k}={'-' if v is None else v}" for k, v in e.options.items())
        table.add_row(e.name, options, "sampler" if e.needs_sampler_logp else "policy", e.summary)
    Console().print(table)


@app.command(help="Build the tiny supervised checkpoints that the embedded default starts from.")
def warmstart(
    out: Annotated[Path, typer.Argument(help="folder; each model gets a folder of its own in it")],
    model: Annotated[list[str] | None, typer.Option(help="tiny-dense | tiny-moe; both by default")] = None,
    seed: Annotated[int, typer.Option(help="of the initial weights")] = 0,
) -> None:
    from lagproof.models.tiny import TINY_MODELS
    from lagproof.models.warmstart import warmstart as build
    from lagproof.tasks.arithmetic import ArithmeticTask

    task = ArithmeticTask()
    for kind in model or list(TINY_MODELS):

        def told(step: int, loss: float, share: float | None) -> None:
            if share is not None:
                print(f"{kind} step {step}: loss {loss:.3f} nats a token, {share:.3f} solved", flush=True)  # noqa: B023

        share = build(kind, out / kind, task.worked_example, seed=seed, progress=told)
        print(f"{kind}: {share:.3f} solved when sampled; saved in {out / kind}")

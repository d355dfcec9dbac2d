"""The command line; one screen of code a command. Rooms are imported by the command that needs them."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from textwrap import fill
from typing import Annotated

import typer
from rich.console import Console
from typer.core import TyperCommand

from lagproof import __version__
from lagproof.errors import ConfigError, DiskError, InterruptedRunError, LagproofError, UsageError
from lagproof.evaluation.settings import Settings
from lagproof.grading.extract import Form
from lagproof.grading.pool import Limits

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
        code = app(standalone_mode=False) or 0
        if code == 130:  # what the command-line library makes of Ctrl-C
            raise KeyboardInterrupt
        sys.exit(code)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except InterruptedRunError as error:
        _fail(str(error), 130)
    except UsageError as error:
        _fail(f"error: {error}", 1 if isinstance(error, DiskError) else 2)
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
    from lagproof.config import keys

    lines = [
        f"  {key}{'' if default is None else f' = {default}'}\n"
        + fill(text, 78, initial_indent=" " * 6, subsequent_indent=" " * 6)
        for key, default, text in keys()
    ]
    more = "Options of a task: lagproof tasks NAME\nOptions of an objective: lagproof objectives NAME"
    return f"\n\n\b\n{more}\n\n\b\nKeys with their defaults, for CONFIG.toml and --set:\n" + "\n".join(lines)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


class _WithKeys(TyperCommand):
    """A command whose own help ends with every key of a configuration, which is made only when it is asked for."""

    def get_help(self, ctx: typer.Context) -> str:
        self.help = f"{self.help}{_keys_text()}"
        return super().get_help(ctx)


@app.command(
    cls=_WithKeys,
    help="One run. Without CONFIG the embedded default: a tiny model, an arithmetic task, no network, no GPU.",
)
def train(
    config: Annotated[Path | None, typer.Argument(help="TOML file", show_default=False)] = None,
    set_: SetOption = None,
    resume: Annotated[
        Path | None, typer.Option(help="resume this run directory, bit for bit", show_default=False)
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(help="repeat the recorded schedule of this run in one process, in RUN-replay", show_default=False),
    ] = None,
) -> None:
    from lagproof.cli.training import train as run

    run(config, set_ or [], resume, replay, Console())


@app.command(
    help="Objectives x lags x seeds side by side, in parallel processes: a table and a page. The same command resumes "
    "where it was interrupted. SOURCE is a preset (demo, asympo, sat) or a TOML file."
)
def compare(
    source: Annotated[str, typer.Argument(help="demo | asympo | sat | FILE.toml")] = "demo",
    out: Annotated[Path | None, typer.Option(help="directory; runs/NAME by default", show_default=False)] = None,
    set_: SetOption = None,
    seeds: Annotated[str | None, typer.Option(help="seeds instead of the source's: 0,1,2", show_default=False)] = None,
    jobs: Annotated[int | None, typer.Option(help="processes; one a core by default", show_default=False)] = None,
) -> None:
    from lagproof.cli.comparing import compare as run

    code = run(
        source,
        out,
        overrides=set_ or [],
        seeds=None if seeds is None else _integers("--seeds", seeds),
        jobs=jobs,
        command=shlex.join(["lagproof", *sys.argv[1:]]),
        console=Console(),
    )
    raise typer.Exit(code)


@app.command(
    name="eval",
    help="avg@k with an interval, pass@k, maj@k of one or more models or checkpoints; several are compared with the "
    "first. A TASK is a name (arithmetic), or LABEL=FILE (aime24=aime24.jsonl). The same command resumes where it was "
    "interrupted.",
)
def evaluate(
    models: Annotated[list[str], typer.Argument(help="tiny-dense | tiny-moe | smollm2 | a folder | Hugging Face name")],
    task: Annotated[list[str], typer.Option(help="NAME or LABEL=FILE; may be repeated")],
    out: Annotated[Path, typer.Option(help="folder for samples, tables and result.json")] = Path("runs/eval"),
    k: Annotated[int, typer.Option("--k", "-k", help="samples per problem")] = Settings.k,
    prompts: Annotated[int | None, typer.Option(help="problems at most; all by default", show_default=False)] = None,
    max_tokens: Annotated[int, typer.Option(help="response tokens at most")] = Settings.max_tokens,
    temperature: Annotated[float, typer.Option(help="0 is greedy")] = Settings.temperature,
    top_p: Annotated[float, typer.Option(help="nucleus mass, in (0, 1]")] = Settings.top_p,
    top_k: Annotated[int, typer.Option(help="tokens kept; 0 keeps all")] = Settings.top_k,
    seed: Annotated[int, typer.Option(help="of the random streams")] = Settings.seed,
    batch: Annotated[int, typer.Option(help="problems sampled together")] = Settings.batch,
    stop: Annotated[
        str | None,
        typer.Option(help=r"""strings that end a response, as TOML: '["\n\n"]'; the task's own by default"""),
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="option of the tasks, as TOML: shots=3")] = None,
) -> None:
    from lagproof.cli.evaluating import evaluate as run
    from lagproof.evaluation.run import parse_tasks
    from lagproof.settings.toml import parse_override

    settings = Settings(k, prompts, max_tokens, temperature, top_p, top_k, seed, batch, _strings("--stop", stop))
    run(models, parse_tasks(task, dict(map(parse_override, set_ or []))), settings, out, Console())


@app.command(help="Grade answers against golds: rows with answer and gold in, the same with reward and reason out.")
def grade(
    file: Annotated[Path, typer.Argument(help="JSON Lines or parquet with the columns answer and gold")],
    out: Annotated[Path | None, typer.Option(help="file; standard output by default", show_default=False)] = None,
    form: Annotated[str, typer.Option(help=f"where the answer is: {' | '.join(Form)}")] = str(Form.BOXED),
    limit_s: Annotated[float, typer.Option(help="wall-clock limit of one answer, seconds")] = Limits.time_s,
    memory_mib: Annotated[int, typer.Option(help="memory limit of one answer")] = Limits.memory_mib,
    graders: Annotated[int, typer.Option(help="grading processes at most")] = Limits.workers,
    answer_column: Annotated[str, typer.Option(help="a dotted path")] = "answer",
    gold_column: Annotated[str, typer.Option(help="a dotted path")] = "gold",
) -> None:
    from lagproof.cli.grading import grade as run

    run(file, out, form, Limits(limit_s, memory_mib, graders), (answer_column, gold_column))


MapOption = Annotated[
    list[str] | None, typer.Option("--map", help="our name of a column = its name in the dump; may be repeated")
]
JsonOption = Annotated[bool, typer.Option("--json", help="for machines")]


@app.command(
    help="What is wrong with a run, with the evidence and what to try. PATH is a run directory, or a parquet or JSON "
    "Lines dump of another trainer. Exit code: 0 healthy, 1 unhealthy, 2 unusable, 3 unknown."
)
def doctor(
    path: Annotated[Path, typer.Argument(help="run directory or dump")],
    map_: MapOption = None,
    scale: Annotated[
        str | None,
        typer.Option(
            help="tiny | large: size of the model that thresholds are for; guessed by default", show_default=False
        ),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="a threshold, as TOML: alarm.d_bar=[0.02, 0.05]")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    from lagproof.cli.diagnosing import run_doctor

    code = run_doctor(path, _mapping(map_), as_json=as_json, scale=scale, overrides=set_ or ())
    raise typer.Exit(code)


@app.command(
    help="What other objectives would have done with exactly these tokens. PATH is a run directory, or a parquet or "
    "JSON Lines dump of another trainer."
)
def whatif(
    path: Annotated[Path, typer.Argument(help="run directory or dump")],
    objectives: Annotated[
        str | None, typer.Option(help="names with commas; all by default", show_default=False)
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="the objective to compare with; the run's own by default, for a dump grpo", show_default=False
        ),
    ] = None,
    map_: MapOption = None,
    as_json: JsonOption = False,
    out: Annotated[Path | None, typer.Option(help="also a page of it, to this file", show_default=False)] = None,
) -> None:
    from lagproof.cli.diagnosing import run_whatif

    names = None if objectives is None else objectives.split(",")
    command = shlex.join(["lagproof", *sys.argv[1:]])
    code = run_whatif(path, names, _mapping(map_), baseline=baseline, as_json=as_json, out=out, command=command)
    raise typer.Exit(code)


def _mapping(pairs: list[str] | None) -> dict[str, str] | None:
    from lagproof.dumps.columns import parse_mapping

    return None if pairs is None else parse_mapping(pairs)


@app.command(
    name="plan",
    help="What schedules would do with so many engines and learners, without a model: the scheduler on a simulated "
    "clock. Names the smallest lag that keeps the learner busy. Schedules: k3 (weights every step, 3 batches ahead), 4 "
    "(weights every 4 steps, 4 ahead), s0.5n4 (staleness threshold), a2n1 and a2n1drop (age at most 2).",
)
def plan_schedules(
    schedules: Annotated[str, typer.Option(help="names with commas")] = "k0,k1,k2,4,s0.5n4,a2n1",
    workers: Annotated[int, typer.Option(help="rollout engines")] = 8,
    slots: Annotated[int, typer.Option(help="prompts that an engine samples at once")] = 16,
    engine_tokens_per_s: Annotated[float, typer.Option(help="response tokens of one engine, all slots busy")] = 4000.0,
    learners: Annotated[int, typer.Option(help="replicas of the learner, that much faster together")] = 1,
    learner_tokens_per_s: Annotated[float, typer.Option(help="response tokens of one learner")] = 10000.0,
    step_s: Annotated[float, typer.Option(help="seconds of an optimiser step besides its tokens")] = 1.0,
    publish_s: Annotated[float, typer.Option(help="seconds until published weights have reached the engines")] = 5.0,
    in_flight: Annotated[bool, typer.Option("--in-flight", help="engines take weights while they sample")] = False,
    prompts: Annotated[int, typer.Option(help="prompts per step")] = 64,
    samples: Annotated[int, typer.Option(help="samples per prompt")] = 8,
    lengths: Annotated[
        Path | None, typer.Option(help="run directory or dump whose response lengths are drawn", show_default=False)
    ] = None,
    length: Annotated[float, typer.Option(help="mean of log-normal response lengths, tokens")] = 800.0,
    sigma: Annotated[float, typer.Option(help="standard deviation of their logarithm")] = 0.8,
    max_tokens: Annotated[int, typer.Option(help="response tokens at most")] = 4096,
    steps: Annotated[int, typer.Option(help="steps measured, once the pipeline is full")] = 50,
    seed: Annotated[int, typer.Option(help="of all lengths")] = 0,
    as_json: JsonOption = False,
    out: Annotated[Path | None, typer.Option(help="also a page of it, to this file", show_default=False)] = None,
) -> None:
    from lagproof.cli.planning import measured, run_plan
    from lagproof.runtime.clock.durations import LogNormalLengths
    from lagproof.runtime.clock.planner import Hardware, Workload

    hardware = Hardware(
        workers, slots, engine_tokens_per_s, learners, learner_tokens_per_s, step_s, publish_s, in_flight
    )
    drawn = LogNormalLengths(length, sigma, max_tokens) if lengths is None else measured(lengths)
    work = Workload(prompts, samples, drawn, steps, seed)
    command = shlex.join(["lagproof", *sys.argv[1:]])
    run_plan(schedules.split(","), hardware, work, Console(), as_json=as_json, out=out, command=command)


@app.command(help="One self-contained page of a run, of a comparison, or of several runs side by side.")
def report(
    sources: Annotated[list[Path], typer.Argument(help="run directories or directories of comparisons")],
    out: Annotated[Path | None, typer.Option(help="the file; report.html by default", show_default=False)] = None,
) -> None:
    from lagproof.report import write

    print(write(sources, out))


def _strings(option: str, text: str | None) -> tuple[str, ...] | None:
    from lagproof.settings.toml import parse_override

    value = [] if text is None else parse_override(f"{option}={text}")[1]
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ConfigError(f"""{option} {text}: must be a list of strings, as '["\\n\\n"]'; for none '[]'""")
    return None if text is None else tuple(value)


def _integers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"{option} {text!r}: must be integers with commas between them, for example 0,1,2") from None


@app.command(help="The table of objectives with their options; with NAME the whole page of one.")
def objectives(
    name: Annotated[str | None, typer.Argument(help="an objective", show_default=False)] = None,
) -> None:
    from lagproof.cli.listing import show_objective, show_objectives

    show_objectives(Console()) if name is None else show_objective(name, Console())


@app.command(help="The table of tasks; with NAME the options of one, which are the other keys of [task].")
def tasks(name: Annotated[str | None, typer.Argument(help="a task", show_default=False)] = None) -> None:
    from lagproof.cli.listing import show_options, show_tasks

    show_tasks(Console()) if name is None else show_options(name, Console())


@app.command(
    help="The JSON schema of a configuration, for editors: lagproof schema > lagproof.schema.json, and "
    "'#:schema ./lagproof.schema.json' as the first line of the TOML file."
)
def schema() -> None:
    from lagproof.config.schema import schema as made

    print(json.dumps(made(), indent=1, allow_nan=False))


@app.command(help="Build the tiny supervised checkpoints that the embedded default starts from.")
def warmstart(
    out: Annotated[Path, typer.Argument(help="folder; each model gets a folder of its own in it")],
    model: Annotated[list[str] | None, typer.Option(help="tiny-dense | tiny-moe; both by default")] = None,
    seed: Annotated[int, typer.Option(help="of the initial weights")] = 0,
) -> None:
    from lagproof.learner.warmstart import warmstart as build
    from lagproof.models.tiny import TINY_MODELS
    from lagproof.tasks.arithmetic import ArithmeticTask

    task = ArithmeticTask()
    for kind in model or list(TINY_MODELS):

        def reached(step: int, loss: float, share: float | None) -> None:
            if share is not None:
                print(f"{kind} step {step}: loss {loss:.3f} nats a token, {share:.3f} solved", flush=True)  # noqa: B023

        share = build(kind, out / kind, task.worked_example, seed=seed, progress=reached)
        print(f"{kind}: {share:.3f} solved when sampled; saved in {out / kind}")

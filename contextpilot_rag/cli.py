"""The command line: ``contextpilot-rag demo | replay | plan | evaluate | serve | proxy | keys | engine``."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from . import engine_command, evaluate_command, keys_command, plan_command, proxy_command, replay_command, serve_command
from ._version import __version__
from .errors import ContextPilotError, MissingPackage
from .settings import Order


class CommandParser(argparse.ArgumentParser):
    """Says what is wrong with a command's options where the command is known, and what may have been meant."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401  argparse's own
        """Nothing is passed on as unknown: the parser above would show its own usage for it."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            known = list(self._option_string_actions)
            close = difflib.get_close_matches(unknown[0].partition("=")[0], known, n=1)
            if not close and "://" in unknown[0]:
                taking = [option for option in ("--upstream", "--engine", "--endpoint") if option in known]
                close = [f"{option} {unknown[0]}" for option in taking]
            hint = f"; did you mean {close[0]}?" if close else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return options, unknown


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 1 for an error of ours, 130 for an interruption."""
    options = command_parser().parse_args(arguments)
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status  # noqa: TRY300  what is left in the buffer belongs to the command
    except ContextPilotError as error:
        print(f"contextpilot-rag: {error}", file=sys.stderr)  # noqa: T201
        return 1
    except OSError as error:  # the output cannot be written: a full disk, a closed pipe
        print(f"contextpilot-rag: {error}", file=sys.stderr)  # noqa: T201
        _give_up_output()
        return 1
    except KeyboardInterrupt:
        print("contextpilot-rag: interrupted", file=sys.stderr)  # noqa: T201
        return 130


def _give_up_output() -> None:
    """Where nothing can be written, Python would try once more at its end, and exit with a status of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def command_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = CommandParser(
        prog="contextpilot-rag",
        description="Puts retrieved blocks into an order that an LLM engine's prefix cache can reuse, and loses none.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_demo(commands.add_parser("demo", help="see cached tokens rise and time to first token fall, on a real engine"))
    trace = commands.add_parser("replay", help="what would a recorded trace have saved?")
    replay_command.add_arguments(trace)
    trace.set_defaults(run=_replay)
    batch = commands.add_parser("plan", help="orders for a whole batch, and the order of sending")
    plan_command.add_arguments(batch)
    batch.set_defaults(run=_plan)
    evaluation = commands.add_parser("evaluate", help="do your answers stay as good, and which setting is safe?")
    evaluate_command.add_arguments(evaluation)
    evaluation.set_defaults(run=_evaluate)
    service = commands.add_parser(
        "serve", help="the context index as a service, for all processes that share an engine"
    )
    serve_command.add_arguments(service)
    service.set_defaults(run=_serve)
    proxy = commands.add_parser(
        "proxy", help="an OpenAI-compatible proxy in front of an engine or a cloud, for clients that take a base URL"
    )
    proxy_command.add_arguments(proxy)
    proxy.set_defaults(run=_proxy)
    keys = commands.add_parser("keys", help="API keys of the shared index service and of the proxy")
    keys_command.add_arguments(keys)
    keys.set_defaults(run=_keys)
    engine = commands.add_parser("engine", help="can an engine's cache be followed, and what is missing?")
    engine_command.add_arguments(engine)
    engine.set_defaults(run=_engine)
    return parser


def _add_demo(demo: argparse.ArgumentParser) -> None:
    demo.description = (
        "Asks real questions about real documents twice, as retrieved and through ContextPilot, each from an empty "
        "cache, and shows what the engine itself reports."
    )
    demo.add_argument(
        "--docs",
        type=Path,
        metavar="FOLDER",
        help="files ending in .md, .markdown, .rst or .txt (default: Python's own documentation)",
    )
    demo.add_argument(
        "--questions", type=Path, metavar="FILE", help="one question a line (default: about 120 on Python)"
    )
    demo.add_argument(
        "--block-tokens", type=int, default=120, metavar="N", help="length of a block (default: %(default)s)"
    )
    demo.add_argument(
        "--top-k", type=int, default=10, metavar="N", help="blocks for each question (default: %(default)s)"
    )
    demo.add_argument("--retriever", choices=("hybrid", "bm25", "faiss"), default="hybrid", help="default: %(default)s")
    demo.add_argument(
        "--endpoint", metavar="URL", help="an OpenAI-compatible vLLM, SGLang or llama.cpp (default: starts its own)"
    )
    demo.add_argument("--model", metavar="NAME", help="the endpoint's model (default: the first it lists)")
    demo.add_argument(
        "--engine", choices=("auto", "llama", "fake"), default="auto", help="without --endpoint: which to start"
    )
    demo.add_argument(
        "--order", choices=get_args(Order), default="balanced", help="order preset (default: %(default)s)"
    )
    demo.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help="ask the first N questions (default: all; of its own engine 40, or as many as fit in minutes)",
    )
    demo.add_argument(
        "--max-tokens", type=int, default=16, metavar="N", help="length of an answer (default: %(default)s)"
    )
    demo.add_argument(
        "--out", type=Path, default=Path("demo-report"), metavar="PATH", help="report files (default: %(default)s)"
    )
    demo.set_defaults(run=_demo)


def _replay(options: argparse.Namespace) -> int:
    print(replay_command.run(options))  # noqa: T201
    return 0


def _plan(options: argparse.Namespace) -> int:
    print(plan_command.run(options))  # noqa: T201
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    return evaluate_command.run(
        options,
        lambda text: print(text, flush=True),  # noqa: T201
        lambda line: print(line, file=sys.stderr, flush=True),  # noqa: T201
    )


def _keys(options: argparse.Namespace) -> int:
    return keys_command.run(options, lambda line: print(line, flush=True))  # noqa: T201


def _engine(options: argparse.Namespace) -> int:
    return engine_command.run(options, lambda line: print(line, flush=True))  # noqa: T201


def _serve(options: argparse.Namespace) -> int:
    return serve_command.run(options, lambda line: print(line, flush=True))  # noqa: T201


def _proxy(options: argparse.Namespace) -> int:
    return proxy_command.run(options, lambda line: print(line, flush=True))  # noqa: T201


def _demo(options: argparse.Namespace) -> int:
    try:
        from rich.console import Console

        from .demo.main import DemoOptions, run_demo
    except ModuleNotFoundError as error:
        raise MissingPackage.of(error, "the demo needs", "contextpilot-rag[demo]") from error
    given = {name: value for name, value in vars(options).items() if name != "run"}
    run_demo(DemoOptions(**given), Console())
    return 0

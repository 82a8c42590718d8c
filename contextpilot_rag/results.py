"""What running a plan returns, and the file that keeps it: one JSON line for each request, written as it is answered.

A run that was cut off is taken up from the file. So that no answer of another batch is taken for one of this, each line
has a fingerprint of what was asked; the order of the blocks is no part of it, since the next plan may order anew.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

import msgspec

from .errors import ResultsError, SettingsError
from .identity import block_key
from .prompt.prompt import AlignedPrompt
from .types import Usage, short

Key = str | int
_KEY_START, _AFTER_KEY = b'{"key": ', b', "fingerprint": "'
_LINE_START = re.compile(rb'\{"key": (?:"(?:[^"\\]|\\.)*"|-?\d+(?!\d))', re.DOTALL)


@dataclass(frozen=True, slots=True)
class RunResult:
    """What became of one request of a plan.

    Args:
        key: your name for the request.
        text: the answer; None if the request failed.
        usage: what the engine reported, or None.
        ttft: seconds from sending to the first token, of the attempt that was answered; None if none was.
        seconds: seconds from sending to the last token, likewise.
        attempts: how often it was sent.
        error: why it failed, or None.
        resumed: whether it was answered in an earlier run and only read from the results file.
    """

    key: Hashable
    text: str | None = None
    usage: Usage | None = None
    ttft: float | None = None
    seconds: float | None = None
    attempts: int = 1
    error: str | None = None
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class RunReport:
    """What became of a plan. Iterates over the results.

    Counts and times are of all answers, also of those from an earlier run. None is "not reported", never zero.

    Args:
        results: one for each request, in the plan's order of sending.
    """

    results: tuple[RunResult, ...]

    def __iter__(self) -> Iterator[RunResult]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __repr__(self) -> str:
        failed = f", {len(self.failed):,} failed" if self.failed else ""
        return f"<RunReport: {len(self):,} requests{failed}, {self._cached}>"

    @property
    def failed(self) -> tuple[RunResult, ...]:
        """The requests that got no answer."""
        return tuple(result for result in self if result.error is not None)

    @property
    def resumed(self) -> int:
        """How many were answered in an earlier run."""
        return sum(result.resumed for result in self)

    @property
    def prompt_tokens(self) -> int | None:
        """Tokens of all prompts, as reported."""
        return _sum([result.usage.prompt_tokens for result in self if result.usage])

    @property
    def cached_tokens(self) -> int | None:
        """Of these, those that the engine found in its cache, as reported."""
        return _sum([result.usage.cached_tokens for result in self if result.usage])

    @property
    def hit_ratio(self) -> float | None:
        """Cached tokens over tokens, of those requests for which both were reported."""
        usages = [result.usage for result in self if result.usage]
        both = [(use.cached_tokens, use.prompt_tokens) for use in usages if use.cached_tokens is not None]
        prompt = sum(tokens or 0 for _, tokens in both)
        return sum(cached for cached, tokens in both if tokens) / prompt if prompt else None

    @property
    def mean_ttft(self) -> float | None:
        """Seconds to the first token, on average."""
        times = [result.ttft for result in self if result.ttft is not None]
        return sum(times) / len(times) if times else None

    def explain(self) -> str:
        """What happened, in a few lines.

        >>> print(RunReport((RunResult("q1", "Yes.", Usage(200, 50), 0.1, 0.2),)).explain())
        1 requests: 1 answered, 0 failed
        25.0% of 200 prompt tokens cached
        first token after 0.100 s on average
        """
        resumed = f" ({self.resumed:,} of them in an earlier run)" if self.resumed else ""
        answered = len(self) - len(self.failed)
        lines = [f"{len(self):,} requests: {answered:,} answered{resumed}, {len(self.failed):,} failed", self._cached]
        if self.mean_ttft is not None:
            lines.append(f"first token after {self.mean_ttft:.3f} s on average")
        reasons = Counter(result.error for result in self.failed)
        return "\n".join([*lines, *(f"{count:,} failed with: {error}" for error, count in reasons.most_common(3))])

    @property
    def _cached(self) -> str:
        if self.hit_ratio is None or self.prompt_tokens is None:
            return "cached tokens not reported"
        return f"{self.hit_ratio:.1%} of {self.prompt_tokens:,} prompt tokens cached"


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def fingerprints(prompts: Sequence[AlignedPrompt], system: str | None, options: Mapping[str, object]) -> dict[Key, str]:
    """For each request's key, a hash of what it asks: question, blocks in any order, system prompt, options.

    Args:
        prompts: the plan's.
        system: the system prompt.
        options: those that change answers, as JSON values.

    Raises:
        SettingsError: a key that is neither str nor int, or stands for two requests.
    """
    found: dict[Key, str] = {}
    for prompt in prompts:
        key = _json_key(prompt.request.key)
        if key in found:
            raise SettingsError(f"results: two requests of the plan have the key {short(key)}")
        blocks = sorted(block_key(block.text).hex() for block in prompt.retrieved)
        asked = json.dumps([prompt.question, system, blocks, options], sort_keys=True)
        found[key] = blake2b(asked.encode(), digest_size=16).hexdigest()
    return found


def _json_key(key: Hashable) -> Key:
    try:
        if isinstance(key, str | int) and not isinstance(key, bool):
            json.dumps(key)
            return key
    except ValueError:  # an int of too many digits
        pass
    raise SettingsError(f"results: the plan's keys must be str or int to be kept in a file, not {short(key)}")


class _Line(msgspec.Struct, kw_only=True):
    """A line of the file."""

    key: Key
    fingerprint: str
    model: str
    text: str | None
    usage: Usage | None
    ttft: float | None
    seconds: float | None
    attempts: int
    error: str | None

    def __post_init__(self) -> None:
        if (self.text is None) is (self.error is None):
            raise ValueError("either text or error must be null")

    def result(self) -> RunResult:
        return RunResult(
            self.key, self.text, self.usage, self.ttft, self.seconds, self.attempts, self.error, resumed=True
        )


class ResultsFile:
    """A plan's file of results, opened and read. To be used with ``with``: until its end no other run can write to it.

    Lines with keys that are not the plan's are left alone.

    Args:
        path: where it is; a new one is made.
        prints: the plan's `fingerprints`.

    Raises:
        ResultsError: it cannot be opened, another run writes to it, a line in it is no result, or one of the plan's
            keys was asked something else. A last line that was cut short is none of these: `begin` drops it.
    """

    def __init__(self, path: str | Path, prints: Mapping[Key, str]) -> None:
        self.path = path
        self._prints = prints
        self._model = ""
        try:
            self._file = io.FileIO(path, "a+")
        except (OSError, ValueError) as error:
            raise ResultsError(f"the results file {path} cannot be opened: {error}") from error
        try:
            _claim(self._file, path)
            self._file.seek(0)
            self._lines, self._cut_at, self._unfinished = self._read(self._file.readall())
            self._check_prints()
        except OSError as error:
            self._file.close()
            raise ResultsError(f"the results file {path} cannot be read: {error}") from error
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def answers(self) -> dict[Hashable, RunResult]:
        """What was answered in earlier runs, by key."""
        return {line.key: line.result() for _, line in self._lines if line.error is None}

    def check_model(self, model: str) -> None:
        """Make sure that no other model was asked for the plan's keys.

        Raises:
            ResultsError: one was.
        """
        for number, line in self._lines:
            if line.model != model:
                raise ResultsError(
                    f"{self.path}, line {number}: the result for {short(line.key)} is of the model {line.model!r}, and "
                    f"this run asks {model!r}; give each batch a file of its own"
                )

    def begin(self, model: str) -> None:
        """Make sure that the next line begins a line, and belongs to the ones before.

        Raises:
            ResultsError: the file cannot be written, or has results of another model.
        """
        self.check_model(model)
        self._model = model
        try:
            if self._cut_at is not None:
                self._file.truncate(self._cut_at)
        except OSError as error:
            raise ResultsError(f"the results file {self.path} cannot be written: {error}") from error
        if self._unfinished:
            self._write(b"\n")

    def append(self, result: RunResult) -> None:
        """Write a result's line.

        Raises:
            ResultsError: the file cannot be written.
        """
        key = _json_key(result.key)
        line = {"key": key, "fingerprint": self._prints[key], "model": self._model, **asdict(result)}
        del line["resumed"]
        try:
            data = json.dumps(line, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # half a character, as engines stream them now and then
            data = json.dumps(line).encode()
        self._write(data + b"\n")

    def _check_prints(self) -> None:
        self._lines = [(number, line) for number, line in self._lines if line.key in self._prints]
        for number, line in self._lines:
            if line.fingerprint != self._prints[line.key]:
                raise ResultsError(
                    f"{self.path}, line {number}: the result for {short(line.key)} is to another question, system "
                    "prompt, options or blocks than this plan's; give each batch a file of its own"
                )

    def _write(self, data: bytes) -> None:
        try:
            if self._file.write(data) != len(data):
                raise OSError("no room for all of it")  # noqa: TRY301
        except OSError as error:
            raise ResultsError(f"the results file {self.path} cannot be written: {error}") from error

    def _read(self, data: bytes) -> tuple[list[tuple[int, _Line]], int | None, bool]:
        """The numbered lines, where to cut off what follows them, and whether the last of them has no end."""
        *whole, last = data.split(b"\n")
        lines = [(number, self._parsed(line, number)) for number, line in enumerate(whole, 1) if line.strip()]
        if not last.strip():
            return lines, None, bool(last)
        try:
            return [*lines, (len(whole) + 1, self._parsed(last, len(whole) + 1))], None, True
        except ResultsError:
            if not (
                _cut_short(last) and (lines or len(last) > 1)
            ):  # the file is no file of results, and not ours to cut
                raise
        return lines, len(data) - len(last), False

    def _parsed(self, line: bytes, number: int) -> _Line:
        try:
            return msgspec.convert(json.loads(line.decode()), _Line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ResultsError(f"{self.path}, line {number} is no line of results: {error}") from None


def _cut_short(line: bytes) -> bool:
    """Whether this can be the beginning of a line of ours, perhaps with the zeros of a crashed disk."""
    line = line.rstrip(b"\0")
    whole = _LINE_START.match(line)
    if whole is None:  # it ends within the key, or is none of ours
        return line.startswith(_KEY_START) or _KEY_START.startswith(line)
    rest = line[whole.end() :]
    return rest.startswith(_AFTER_KEY) or _AFTER_KEY.startswith(rest)


def _claim(file: io.FileIO, path: str | Path) -> None:
    """Keep other runs out, where the system can do so; the lock ends with the process."""
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        raise ResultsError(f"the results file {path} cannot be opened: it is no regular file")
    if os.name != "posix":
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ResultsError(f"the results file {path} is being written by another run") from None
    except OSError:  # a file system that knows no locks
        pass

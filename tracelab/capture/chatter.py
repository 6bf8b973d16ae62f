"""Separates what nsys prints from what the profiled program prints; both come through the same two descriptors."""

import re
from collections.abc import Callable
from pathlib import Path

# Lines of nsys as seen in 2022.4 to 2025.3. A line missed here only reaches the user's terminal beside the program's.
_PROGRESS = re.compile(rb"^(\[\d+/\d+\]|Processing( events)?:?) \[[=\d% ]*\] ?(\S*?\.(nsys-rep|qdrep|sqlite))?")
_GENERATING = re.compile(rb"^Generating '(?P<path>.+)'\s*$")
_PRODUCED = re.compile(rb"^\s+(?P<path>/.*\.(nsys-rep|qdrep|qdstrm|sqlite))\s*$")
_NSYS_LINES = re.compile(
    rb"^(Generated:\s*$|\s*No reports were generated|Importer error status|Importation "
    rb"|Unable to retrieve the importer|Exportation error"
    rb"|Failed to \w+ '.*\.(nsys-rep|qdstrm)'|Capture range (started|ended)|Collecting data|Processing events"
    rb"|Saved report file|Wrong event order|The target application |No such file or directory: |option is ambiguous"
    rb"|unrecogni[sz]ed option|usage: nsys "
    rb"|Try '?\"?nsys |Use the `--wait` option|WARNING: (CPU|CUDA|Device-side|Kernel|Not all|The|cuda) )"
)
# What nsys appends to a line that the program left unfinished.
_JOINED = re.compile(
    rb"^(?P<before>[^\r\n]+?)(?P<nsys>(Generating '.+\.qdstrm'|Generated:|\[1/1\] \[[=\d% ]*\].*)\s*)$"
)
_REFUSED_OPTION = re.compile(
    r"^(option is ambiguous|unrecogni[sz]ed option|the (required )?argument|usage: nsys )", re.M
)


class Chatter:
    """Feeds on the merged output. nsys's lines go to `log`, everything else to `show`, in order and promptly.

    `produced` holds the paths that nsys says it wrote, `streams` the intermediate ones; `text` all lines of nsys.
    """

    def __init__(self, log: Callable[[bytes], object], show: Callable[[bytes], object]) -> None:
        self._log = log
        self._show = show
        self._rest = b""
        self._after_progress = False
        self.lines: list[str] = []
        self.produced: list[Path] = []
        self.streams: list[Path] = []
        self.generated = False

    @property
    def text(self) -> str:
        """All that nsys itself printed."""
        return "\n".join(self.lines)

    @property
    def refused_option(self) -> str | None:
        """The line in which nsys refuses an option, if it did."""
        match = _REFUSED_OPTION.search(self.text)
        return self.text[match.start() :].splitlines()[0][:200] if match else None

    def feed(self, data: bytes) -> None:
        """Take the next piece of output."""
        *lines, self._rest = re.split(rb"(?<=[\r\n])", self._rest + data)
        for line in lines:
            self._take(line)

    def flush(self) -> None:
        """Show an unfinished line, so that a prompt or a progress bar without line end is not held back."""
        rest, self._rest = self._rest, b""
        if rest:
            self._take(rest)

    def _take(self, line: bytes) -> None:
        if joined := _JOINED.match(line):
            self._show(joined["before"])
            line = joined["nsys"]
        if self._after_progress and not line.strip():
            return  # the line end of a progress bar
        progress = _PROGRESS.match(line)
        self._after_progress = progress is not None
        if progress:
            self._log(progress[0] + b"\n")
            line = line[progress.end() :]  # the program may have printed on the same line
            if not line.strip():
                return
        if self._is_nsys(line):
            self._log(line)
            self.lines.append(line.decode("utf-8", "replace").rstrip())
        else:
            self._show(line)

    def _is_nsys(self, line: bytes) -> bool:
        if match := _PRODUCED.match(line):
            self.produced.append(Path(match["path"].decode("utf-8", "surrogateescape")))
            return True
        if match := _GENERATING.match(line):
            self.streams.append(Path(match["path"].decode("utf-8", "surrogateescape")))
            return True
        self.generated = self.generated or line.startswith(b"Generated:")
        return _NSYS_LINES.match(line) is not None

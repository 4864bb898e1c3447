"""How figures look: colours, marks, letters; the same on every machine."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.font_manager import fontManager

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
"""Okabe and Ito's palette, told apart with any colour vision; its yellow is too pale for lines."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
Dashes = Literal["-", "--", "-.", ":"] | tuple[float, tuple[float, ...]]
DASHES: tuple[Dashes, ...] = ("-", "--", "-.", ":", (0, (7, 1.5, 1, 1.5, 1, 1.5)))
"""As many as do not divide the number of colours, so that a colour comes again with other dashes."""

WIDTH_IN = 10.0
CHARACTER_IN = 0.085
"""Width of a character of a printed value, rounded up."""

# `Any` because matplotlib knows settings by literal names, not as a mapping.
STYLE: Any = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "figure.titlesize": 13,
    "font.size": 10,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.hashsalt": "simserve",
    # A dollar sign in a title is a dollar sign.
    "text.parse_math": False,
}

LATIN_FONT = "DejaVu Sans"
"""Comes with matplotlib."""

CJK_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Noto Sans JP", "Noto Sans KR", "Source Han Sans SC"),
    *("WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback", "PingFang SC", "Hiragino Sans"),
    *("Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "SimHei", "Arial Unicode MS"),
)
"""Fonts for what the first lacks, where one of them is installed."""

UNDRAWABLE = r"Glyph \d+ .*missing from|Matplotlib currently does not support"
"""What matplotlib warns of when no font has a character: the figure shows a box, the page and the tables the text."""


@dataclass(frozen=True, slots=True)
class Look:
    """What tells one series from the others."""

    colour: str
    marker: str
    dashes: Dashes


@contextmanager
def style() -> Iterator[None]:
    """Draw the same on every machine, whatever its matplotlibrc says."""
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", UNDRAWABLE)
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        mpl.rcParams["font.family"] = _fonts()
        yield


def _fonts() -> list[str]:
    """Return the fonts to look for a character in; matplotlib complains of those that are not there."""
    installed = {font.name for font in fontManager.ttflist}
    return [LATIN_FONT, *(name for name in CJK_FONTS if name in installed)]

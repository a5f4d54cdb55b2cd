# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Small late-interaction folders, every number drawn, and their vectors and scores.

A Python with PyLate 1.6.0, and one with sentence-transformers 6.2.0, computed those with
which `colbert_folder_test` compares:

  PYTHON -m tests.retrieval.nn.colbert_folders LIBRARY > tests/data/colbert_LIBRARY.json
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import safetensors.numpy
import tokenizers

from tests.retrieval.nn import modern_berts, sentence_folders

QUERIES = 'the Old mill', 'mill ' * 30
PASSAGES = 'river: the mill', ' zebra mill past, a' * 9
_LAYER = 'torch.nn.modules.'
_IDENTITY = f'{_LAYER}linear.Identity'
# Layers: activation, whether there are a bias and a residual, width
_LAYERS = (
  (f'{_LAYER}activation.GELU', True, True, 6),
  (f'{_LAYER}activation.SiLU', False, True, 6),
  (_IDENTITY, True, False, 4),
)
_TOKENS = {'module_input_name': 'token_embeddings'}
_ST = 'sentence_transformers'
_TYPES = {
  'pylate': {
    'Transformer': 'sentence_transformers.models',
    'Dense': 'pylate.models.Dense',
  },
  _ST: {
    'Transformer': 'sentence_transformers.base.modules.transformer',
    'Dense': 'sentence_transformers.base.modules.dense',
    'Normalize': 'sentence_transformers.base.modules.normalize',
    'MultiVectorMask': 'sentence_transformers.multi_vector_encoder.modules',
  },
}
_PROMPTS = {'query': '[Q] ', 'document': '[D] '}
_EXPANSION = {'strategy': 'fixed', 'attend': False, 'token': None, 'length': 10}

# Library -> kind -> statements that differ
KINDS = {
  'pylate': {
    'plain': {},
    'not expanded': {
      'do_query_expansion': False,
      'skiplist_words': ['river', ':'],
    },
    'layers': {'query_prefix': '', 'document_prefix': '', 'layers': _LAYERS},
    'defaults': dict.fromkeys(
      ('model_type', 'do_query_expansion', 'query_prefix', 'skiplist_words')
    ),
    'mpnet': {'encoder': 'mpnet'},
    'modern': {'encoder': 'old'},
    'modern, attended': {
      'encoder': 'new',
      'attend_to_expansion_tokens': True,
      'skiplist_words': None,
    },
  },
  _ST: {
    'plain': {},
    'attended': {
      'query_expansion': _EXPANSION | {'attend': True, 'token': '</s>'}
    },
    'at least': {
      'query_expansion': _EXPANSION | {'strategy': 'min'},
      'prompts': {'query': 'ask: ', 'document': '[D] the ', 'passage': 'a'},
    },
    'at least, cut': {
      'query_expansion': _EXPANSION | {'strategy': 'min'},
      'query_length': 15,
    },
    'not expanded': {'query_expansion': None, 'query_length': 9},
    'layers': {'layers': (_LAYERS[0], 'Normalize', *_LAYERS[1:])},
    'limits': {
      'encoder': 'xlm-roberta',
      'document_length': None,
      'max_seq_length': 20,
    },
    'modern': {'encoder': 'old'},
  },
}


def save(path, library, kind):
  """Writes the folder of a kind, and returns it."""
  said = dict(KINDS[library][kind])
  is_pylate, layers = library == 'pylate', said.pop('layers', None)
  marks = {'special': not is_pylate, 'normalized': is_pylate}
  tokens = [tokenizers.AddedToken(x, **marks) for x in _PROMPTS.values()]
  tokens.append(tokenizers.AddedToken('<mask>', special=True))
  encoder, width = said.pop('encoder', 'mean'), sentence_folders.D
  words = '<s>', '</s>', '<unk>', '<pad>', '<mask>'
  if encoder in modern_berts.KINDS:
    width = modern_berts.D
    words = '[CLS]', '[SEP]', '[UNK]', '[PAD]', '[MASK]'
    path = modern_berts.save(path, encoder, tokens=tokens[:2])
  else:
    path = sentence_folders.save(path, encoder, tokens)
  config = {'model_type': 'ColBERT', 'prompts': {}, 'similarity_fn_name': None}
  transformer = {'max_seq_length': sentence_folders.LENGTH}
  if is_pylate:
    config |= {
      'query_prefix': '[Q] ',
      'document_prefix': '[D] ',
      'query_length': 10,
      'document_length': 14,
      'attend_to_expansion_tokens': False,
      'skiplist_words': list(':,!'),
      'do_query_expansion': True,
    }
    config |= said
  else:
    config |= {'model_type': 'MultiVectorEncoder'}
    config['prompts'] = said.pop('prompts', _PROMPTS)
    transformer |= {'document_length': 14, 'query_expansion': _EXPANSION}
    transformer |= said
  names = 'cls_token', 'sep_token', 'unk_token', 'pad_token', 'mask_token'
  files = {
    'config_sentence_transformers.json': config,
    'sentence_bert_config.json': transformer,
    'tokenizer_config.json': dict(zip(names, words, strict=True))
    | {'tokenizer_class': 'PreTrainedTokenizerFast'},
  }
  _add_module(files, library, 'Transformer')
  layers = layers or ((_IDENTITY, False, False, 4),)
  _add_layers(path, files, library, layers, width)
  if not is_pylate:
    mask = {'skiplist_words': list(':,!'), 'skiplist_tasks': ['document']}
    _add_module(files, library, 'MultiVectorMask', mask)
    _add_module(files, library, 'Normalize', _TOKENS)
  for name, content in files.items():
    if isinstance(content, dict):  # None is left out, but for an expansion.
      files[name] = {
        name: x
        for name, x in content.items()
        if x is not None or name in ('query_expansion', 'similarity_fn_name')
      }
  return sentence_folders.write(path, files)


def _add_module(files, library, name, config=None):
  """Adds a module, and its config.json, and returns its folder."""
  modules = files.setdefault('modules.json', [])
  number = len(modules)
  place = f'{number}_{name}' if number else ''
  kind = f'{_TYPES[library][name]}.{name}'
  fields = {'idx': number, 'name': str(number), 'path': place, 'type': kind}
  modules.append(fields)
  if config:
    files[f'{place}/config.json'] = config
  return place


def _add_layers(path, files, library, layers, width):
  """Writes the weights of Dense, and adds its modules and configs to `files`."""
  rng = np.random.default_rng(1)
  for layer in layers:
    if layer == 'Normalize':
      _add_module(files, library, layer, _TOKENS)
      continue
    activation, bias, residual, out = layer
    weights = {'linear.weight': rng.standard_normal((out, width), np.float32)}
    if bias:
      weights['linear.bias'] = rng.standard_normal(out, np.float32)
    if residual and out != width:
      shape = out, width
      weights['residual.weight'] = rng.standard_normal(shape, np.float32)
    fields = {
      'in_features': width,
      'out_features': out,
      'bias': bias,
      'activation_function': activation,
      'use_residual': residual,
    }
    fields |= _TOKENS if library == _ST else {}
    place = _add_module(files, library, 'Dense', fields)
    (path / place).mkdir()
    safetensors.numpy.save_file(weights, path / place / 'model.safetensors')
    width = out


def _computed(root, library, kind):
  """Vectors of queries and passages, and their scores, by a library."""
  folder = save(pathlib.Path(root) / kind, library, kind)
  if library == 'pylate':
    from pylate import models, scores

    model = models.ColBERT(str(folder), device='cpu')
    queries, passages = (
      model.encode(list(texts), is_query=is_query)
      for texts, is_query in ((QUERIES, True), (PASSAGES, False))
    )
    values = [
      [float(scores.colbert_scores([q], [p])[0, 0]) for p in passages]
      for q in queries
    ]
  else:
    import sentence_transformers

    model = sentence_transformers.MultiVectorEncoder(str(folder), device='cpu')
    queries = model.encode_query(list(QUERIES), convert_to_numpy=True)
    passages = model.encode_document(list(PASSAGES), convert_to_numpy=True)
    values = model.similarity(queries, passages).tolist()
  queries, passages = (
    [np.round(x.astype(float), 7).tolist() for x in each]
    for each in (queries, passages)
  )
  return {'queries': queries, 'passages': passages, 'scores': values}


if __name__ == '__main__':
  library = sys.argv[1]
  with tempfile.TemporaryDirectory() as root:
    kinds = KINDS[library]
    json.dump(
      {kind: _computed(root, library, kind) for kind in kinds}, sys.stdout
    )
    print()

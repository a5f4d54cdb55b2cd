# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Small folders of ModernBERT, every number drawn, and what transformers makes of them.

A Python with sentence-transformers 6.2.0, transformers 5.24.0 and torch 2.13.0, which
needs nothing else of ours, computed the values with which `modern_bert_test` compares:

  PYTHON -m tests.retrieval.nn.modern_berts > tests/data/modern_bert.json
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import safetensors.numpy
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

D, F, H, LAYERS = 16, 12, 2, 5
LENGTHS = 1024, 300, 70, 3  # of rows
STRIDE = 31  # of the positions whose hidden states are compared
SPECIALS = '[UNK]', '[CLS]', '[SEP]', '[PAD]', '[MASK]'
TEXTS = (
  'The old mill ran past a river.',
  '',
  ' ',
  '  two  blanks,   three,\ttabs\n\nand lines \r\n',
  'caf\u00e9 cafe\u0301 na\u00efve \u00c5ngstr\u00f6m \ufb01 \u2460',
  'def f(x):\n    return {"a": [x**2, -1.5e-3]}  # 100%',
  '\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f600\ufe0f ok \U0001f1e9\U0001f1ea',
  '\u6771\u4eac\u90fd \u0645\u0631\u062d\u0628\u0627 \u041f\u0440\u0438\u0432\u0435\u0442 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35',
  "don't we'll I'M 'tis",
  'a [MASK] b[MASK] [CLS] c [SEP][SEP] [PAD]d [UNK]',
  '|||IP_ADDRESS||| and x|||IP_ADDRESS|||y',
  '\x00\x07 \x7f \ufeff bom \u00a0nbsp \u3000wide',
  'mill ' * 30,
)
# Tokens, each merged from left to right; the blank before a word is its letter
_WORDS = 'Ġthe Ġmill Ġriver Ġran old The ĠĠ Ġ[ Ã© ing'.split()
PAIRS = (
  ('where ran the mill?', 'The old mill ran past a river.'),
  ('', 'river'),
  ('the old river', ' mill' * 40),
)
PROMPTS = {'query': 'ask: ', 'document': 'the old river '}
# Name -> statements of config.json
KINDS = {
  'old': {
    'global_attn_every_n_layers': 3,
    'global_rope_theta': 160000.0,
    'local_rope_theta': 10000.0,
    'local_attention': 128,
    'position_embedding_type': 'absolute',
  },
  'new': {
    'rope_parameters': {
      'full_attention': {'rope_type': 'default', 'rope_theta': 5000.0},
      'sliding_attention': {'rope_type': 'default', 'rope_theta': 300.0},
    },
    'layer_types': [
      f'{x}_attention' for x in ('sliding', 'full', 'full', *2 * ['sliding'])
    ],
    'local_attention': 11,
    'hidden_activation': 'gelu_pytorch_tanh',
    'classifier_pooling': 'mean',
    'norm_eps': 0.01,
    'norm_bias': False,
  },
}


def tokenizer(prefix_space):
  """Byte pairs with added tokens as ModernBERT's."""
  merges, pieces = [], sorted(pre_tokenizers.ByteLevel.alphabet())
  for word in _WORDS:
    for end in range(2, len(word) + 1):
      if word[:end] not in pieces:
        pieces.append(word[:end])
        merges.append((word[: end - 1], word[end - 1]))
  vocabulary = {piece: i for i, piece in enumerate(pieces)}
  made = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
  made.normalizer = normalizers.NFC()
  made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
  made.decoder = decoders.ByteLevel()
  plain = tokenizers.AddedToken
  made.add_tokens([plain('|||IP_ADDRESS|||'), plain('  ', normalized=True)])
  made.add_special_tokens(
    [plain(x, lstrip=x == '[MASK]', special=True) for x in SPECIALS]
  )
  made.post_processor = processors.TemplateProcessing(
    single='[CLS] $A [SEP]',
    pair='[CLS] $A [SEP] $B [SEP]',
    special_tokens=[(x, made.token_to_id(x)) for x in ('[CLS]', '[SEP]')],
  )
  return made


def tensors(vocabulary, labels):
  """All tensors of a classifier, or without labels of a language model."""
  rng = np.random.default_rng(0)
  shapes = {'model.embeddings.tok_embeddings.weight': (vocabulary, D)}
  norms = ['model.embeddings.norm', 'model.final_norm', 'head.norm']
  dense = {'head.dense': (D, D)}
  for i in range(LAYERS):
    layer = f'model.layers.{i}'
    dense |= {f'{layer}.attn.Wqkv': (3 * D, D), f'{layer}.attn.Wo': (D, D)}
    dense |= {f'{layer}.mlp.Wi': (2 * F, D), f'{layer}.mlp.Wo': (D, F)}
    norms += [f'{layer}.attn_norm'] * (i > 0) + [f'{layer}.mlp_norm']
  for name, shape in (dense | dict.fromkeys(norms, (D,))).items():
    shapes[f'{name}.weight'] = shape
  if labels:
    shapes |= {'classifier.weight': (labels, D), 'classifier.bias': (labels,)}
  else:
    shapes['decoder.bias'] = (vocabulary,)
  return {
    name: 0.2 * rng.standard_normal(shape, np.float32)
    + name.endswith('norm.weight')
    for name, shape in shapes.items()
  }


def save(path, kind, labels=0, tokens=()):
  """Writes the folder of a classifier, or without labels of an embedder."""
  path, made = pathlib.Path(path), tokenizer(prefix_space=kind == 'new')
  made.add_tokens(list(tokens))
  path.mkdir(parents=True)
  made.save(str(path / 'tokenizer.json'))
  ids = {x: made.token_to_id(f'[{x.upper()}]') for x in ('pad', 'cls', 'sep')}
  files = {
    'tokenizer_config.json': {
      'tokenizer_class': 'PreTrainedTokenizerFast',
      'model_max_length': 10**30,
      **{f'{x[1:-1].lower()}_token': x for x in SPECIALS},
    },
    'config.json': {
      'model_type': 'modernbert',
      'vocab_size': made.get_vocab_size(),
      'hidden_size': D,
      'intermediate_size': F,
      'num_attention_heads': H,
      'num_hidden_layers': LAYERS,
      'max_position_embeddings': max(LENGTHS),
      **{f'{name}_token_id': i for name, i in ids.items()},
      'bos_token_id': ids['cls'],
      'eos_token_id': ids['sep'],
      'architectures': ['ModernBertForSequenceClassification'],
      'id2label': {str(i): f'LABEL_{i}' for i in range(labels)},
    }
    | KINDS[kind],
  }
  if not labels:
    modules = ('Transformer', ''), ('Pooling', '1_Pooling'), ('Normalize', '2')
    files |= {
      'modules.json': [
        {'idx': i, 'name': str(i), 'path': place}
        | {'type': f'sentence_transformers.models.{kind}'}
        for i, (kind, place) in enumerate(modules)
      ],
      '1_Pooling/config.json': {
        'word_embedding_dimension': D,
        'pooling_mode_cls_token': True,
        'pooling_mode_mean_tokens': False,
      },
      'config_sentence_transformers.json': {
        'prompts': PROMPTS,
        'similarity_fn_name': 'cosine',
      },
      'sentence_bert_config.json': {'max_seq_length': 64},
    }
  for name, content in files.items():
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_text(json.dumps(content))
  drawn = tensors(made.get_vocab_size(), labels)
  safetensors.numpy.save_file(drawn, path / 'model.safetensors')
  return path


def rows():
  """Ids [rows, L] and mask of a padded batch."""
  rng = np.random.default_rng(1)
  ids = rng.integers(0, 256, (len(LENGTHS), max(LENGTHS)), np.int32)
  return ids, np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]


def _rounded(x):
  return np.round(np.asarray(x, float), 7).tolist()


def _computed(root, kind):
  """Values of transformers and sentence-transformers."""
  import sentence_transformers
  import torch
  import transformers

  classifier = str(save(root / f'{kind}_score', kind, labels=1))
  model = transformers.AutoModelForSequenceClassification.from_pretrained(
    classifier, attn_implementation='eager'
  )
  ids, mask = (torch.tensor(x) for x in rows())
  with torch.no_grad():
    hidden = model.model(ids, mask).last_hidden_state.numpy()
  tokenizer = transformers.AutoTokenizer.from_pretrained(
    classifier, split_special_tokens=True
  )
  embedder = sentence_transformers.SentenceTransformer(
    str(save(root / kind, kind)), device='cpu'
  )
  scorer = sentence_transformers.CrossEncoder(
    classifier, device='cpu', activation_fn=torch.nn.Identity()
  )
  texts = [x for x in TEXTS if '[MASK]' not in x]
  return {
    'hidden': [
      _rounded(x[:n:STRIDE]) for x, n in zip(hidden, LENGTHS, strict=True)
    ],
    'ids': tokenizer(list(TEXTS))['input_ids'],
    'passages': _rounded(embedder.encode_document(texts)),
    'queries': _rounded(embedder.encode_query(texts)),
    'scores': _rounded(scorer.predict(list(PAIRS))),
  }


if __name__ == '__main__':
  with tempfile.TemporaryDirectory() as root:
    json.dump({x: _computed(pathlib.Path(root), x) for x in KINDS}, sys.stdout)
    print()

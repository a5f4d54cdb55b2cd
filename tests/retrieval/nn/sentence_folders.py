# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Small folders of sentence-transformers, every number drawn, and their vectors.

A Python with sentence-transformers 6.2.0, which needs nothing else of ours, computed
the vectors with which `sentence_folder_test` compares:

  PYTHON -m tests.retrieval.nn.sentence_folders > tests/data/sentence_vectors.json
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import safetensors.numpy
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

D, F, H, LAYERS, LENGTH = 8, 12, 2, 2, 24
TEXTS = ('the Old mill ran past a river', 'river', 'mill ' * 30)
_PROMPTS = {'query': 'ask: ', 'passage': 'the old river '}
_WORDS = ('the', 'old', 'mill', 'ran', 'past', 'a', 'river', 'ask', ':', 'Old')
_LINEAR = 'torch.nn.modules.linear.Identity'
_TANH = 'torch.nn.modules.activation.Tanh'


def _mode(*names, **more):
  """An older file of Pooling, in which modes are on or off."""
  off = {'pooling_mode_mean_tokens': False}
  return off | {f'pooling_mode_{name}': True for name in names} | more


# Name -> statements that differ from BERT, the mean of all tokens and dot products
KINDS = {
  'mean': {},
  'cosine': {'similarity': None},
  'normalize': {'modules': ['Normalize']},
  'cls': {'pooling': _mode('cls_token')},
  'max': {'pooling': _mode('max_tokens')},
  'sqrt': {'pooling': _mode('mean_sqrt_len_tokens')},
  'weighted': {'pooling': _mode('weightedmean_tokens')},
  'last': {'pooling': {'pooling_mode': 'lasttoken'}},
  'joined': {'pooling': {'pooling_mode': ['mean', 'cls']}},
  'joined, old': {'pooling': _mode('mean_tokens', 'cls_token')},
  'dense': {'modules': [(_TANH, True), 'Normalize']},
  'denses': {'modules': [(_TANH, False), (_LINEAR, True)]},
  'prompts': {'prompts': _PROMPTS},
  'default prompt': {'prompts': {'a': 'ask: '}, 'default': 'a'},
  'not pooled': {
    'prompts': _PROMPTS,
    'pooling': {
      'pooling_mode': ['cls', 'mean', 'max', 'weightedmean'],
      'include_prompt': False,
    },
  },
  'not pooled, one': {
    'prompts': {'passage': 'the old river ', 'query': ''},
    'pooling': {'pooling_mode': 'mean', 'include_prompt': False},
  },
  'lower': {'lengths': {'do_lower_case': True, 'max_seq_length': 12}},
  'relu': {'config': {'hidden_act': 'relu', 'layer_norm_eps': 0.1}},
  'gelu_new': {'config': {'hidden_act': 'gelu_new'}},
  'roberta': {'model': 'roberta'},
  'xlm-roberta': {'model': 'xlm-roberta'},
  'camembert': {'model': 'camembert', 'config': {'pad_token_id': 2}},
  'mpnet': {'model': 'mpnet'},
}


def _tokenizer(model, specials):
  """WordPiece, byte pairs without merges, or a unigram model."""
  if model == 'roberta':
    words = sorted(pre_tokenizers.ByteLevel.alphabet())
  elif model in ('xlm-roberta', 'camembert'):
    words = [f'\N{LOWER ONE EIGHTH BLOCK}{word}' for word in _WORDS]
  else:
    words = _WORDS
  pieces = {piece: i for i, piece in enumerate((*specials, *words))}
  if model == 'roberta':
    made = tokenizers.Tokenizer(models.BPE(pieces, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  elif words is _WORDS:
    made = tokenizers.Tokenizer(models.WordPiece(pieces, unk_token='<unk>'))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
  else:
    scores = [(piece, -float(i)) for i, piece in enumerate(pieces)]
    made = tokenizers.Tokenizer(models.Unigram(scores, specials.index('<unk>')))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.normalizer = normalizers.NFKC()
  made.add_special_tokens(list(specials))
  made.post_processor = processors.TemplateProcessing(
    single='<s> $A </s>',
    special_tokens=[(x, pieces[x]) for x in ('<s>', '</s>')],
  )
  return made


def _tensors(rng, model, vocabulary, positions):
  shapes = {
    'embeddings.word_embeddings.weight': (vocabulary, D),
    'embeddings.position_embeddings.weight': (positions, D),
  }
  norms, dense = ['embeddings.LayerNorm'], {}
  names = 'attention.self.query', 'attention.self.key', 'attention.self.value'
  names += 'attention.output.dense', 'attention.output.LayerNorm'
  if model == 'mpnet':
    names = *(f'attention.attn.{x}' for x in 'qkvo'), 'attention.LayerNorm'
    shapes['encoder.relative_attention_bias.weight'] = (32, H)
  else:
    rows = 2 if model == 'bert' else 1
    shapes['embeddings.token_type_embeddings.weight'] = (rows, D)
  for i in range(LAYERS):
    layer = f'encoder.layer.{i}'
    dense |= {f'{layer}.{name}': (D, D) for name in names[:4]}
    dense[f'{layer}.intermediate.dense'] = (F, D)
    dense[f'{layer}.output.dense'] = (D, F)
    norms += [f'{layer}.{names[4]}', f'{layer}.output.LayerNorm']
  for name, shape in dense.items():
    shapes |= {f'{name}.weight': shape, f'{name}.bias': shape[:1]}
  for name in norms:
    shapes |= {f'{name}.weight': (D,), f'{name}.bias': (D,)}
  return {
    name: 0.4 * rng.standard_normal(shape, np.float32)
    + name.endswith('LayerNorm.weight')
    for name, shape in shapes.items()
  }


def save(path, kind, tokens=()):
  """Writes the folder of a kind, with more tokens, and returns it."""
  said, path = KINDS[kind], pathlib.Path(path)
  rng = np.random.default_rng(0)
  model = said.get('model', 'bert')
  padding = said.get('config', {}).get('pad_token_id', 1)
  specials = ['<s>', '</s>', '<unk>']
  specials.insert(padding, '<pad>')
  first = 0 if model == 'bert' else padding + 1
  tokenizer = _tokenizer(model, specials)
  tokenizer.add_tokens(list(tokens))
  config = {
    'model_type': model,
    'vocab_size': tokenizer.get_vocab_size(),
    'hidden_size': D,
    'intermediate_size': F,
    'num_attention_heads': H,
    'num_hidden_layers': LAYERS,
    'max_position_embeddings': LENGTH + first,
    'type_vocab_size': 2 if model == 'bert' else 1,
    'pad_token_id': padding,
    'layer_norm_eps': 1e-5,
  }
  path.mkdir()
  tokenizer.save(str(path / 'tokenizer.json'))
  tensors = _tensors(rng, model, config['vocab_size'], LENGTH + first)
  safetensors.numpy.save_file(tensors, path / 'model.safetensors')
  modules = [('Transformer', ''), ('Pooling', '1_Pooling')]
  pooling = {'word_embedding_dimension': D}
  files = {
    'config.json': config | said.get('config', {}),
    'tokenizer_config.json': {
      'tokenizer_class': 'PreTrainedTokenizerFast',
      'pad_token': '<pad>',
      'cls_token': '<s>',
      'sep_token': '</s>',
    },
    'sentence_bert_config.json': {'max_seq_length': LENGTH}
    | said.get('lengths', {}),
    'config_sentence_transformers.json': {
      'similarity_fn_name': said.get('similarity', 'dot'),
      'prompts': said.get('prompts', {}),
      'default_prompt_name': said.get('default'),
    },
    '1_Pooling/config.json': pooling | said.get('pooling', {}),
  }
  width = D
  for number, module in enumerate(said.get('modules', ())):
    place = f'{number + 2}_Dense'
    if module == 'Normalize':
      modules.append((module, f'{number + 2}_Normalize'))
      continue
    files[f'{place}/config.json'] = {
      'in_features': width,
      'out_features': 6,
      'bias': module[1],
      'activation_function': module[0],
    }
    weights = {'linear.weight': rng.standard_normal((6, width), np.float32)}
    if module[1]:
      weights['linear.bias'] = rng.standard_normal(6, np.float32)
    width = 6
    modules.append(('Dense', place))
    (path / place).mkdir()
    safetensors.numpy.save_file(weights, path / place / 'model.safetensors')
  files['modules.json'] = [
    {'path': place, 'type': f'sentence_transformers.models.{kind}'}
    | {'idx': i, 'name': str(i)}
    for i, (kind, place) in enumerate(modules)
  ]
  return write(path, files)


def write(path, files):
  """Writes JSON files into a folder, and returns it."""
  for name, content in files.items():
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_text(json.dumps(content))
  return path


def edit(path, **fields):
  """Writes a JSON file anew with other fields; None removes one."""
  stated = json.loads(path.read_text()) | fields
  stated = {k: v for k, v in stated.items() if v is not None}
  path.write_text(json.dumps(stated))


def _vectors(root, kind):
  """Vectors [passages and queries, n, d] by sentence-transformers."""
  import sentence_transformers

  folder = str(save(pathlib.Path(root) / kind, kind))
  model = sentence_transformers.SentenceTransformer(folder, device='cpu')
  said = KINDS[kind]
  cosine = {'normalize_embeddings': 'similarity' in said}
  found = []
  for name in ('passage', 'query'):
    name = name if name in said.get('prompts', ()) else None
    vectors = model.encode(list(TEXTS), prompt_name=name, **cosine)
    found.append(np.round(vectors.astype(float), 7).tolist())
  return found


if __name__ == '__main__':
  with tempfile.TemporaryDirectory() as root:
    json.dump({kind: _vectors(root, kind) for kind in KINDS}, sys.stdout)
    print()

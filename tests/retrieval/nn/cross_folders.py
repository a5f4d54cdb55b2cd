# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Small folders of cross-encoders, every number drawn, and their scores.

A Python with sentence-transformers 6.2.0, which needs nothing else of ours, computed
the scores with which `cross_encoder_test` compares:

  PYTHON -m tests.retrieval.nn.cross_folders > tests/data/cross_scores.json
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import safetensors.numpy
import tokenizers
from tokenizers import processors

from tests.retrieval.nn import sentence_folders

MODELS = 'mean', 'roberta', 'mpnet'  # kinds of `sentence_folders`
PAIRS = (
  ('the Old mill', 'ran past a river'),
  ('mill', 'river ' * 30),
  ('the mill ' * 20, 'ran past a river ' * 9),
  ('', 'river'),
  ('ask : mill', ''),
)


def save(path, model):
  """Writes the folder of a model, and returns it."""
  folder = sentence_folders.save(path, model)
  bert = model == 'mean'
  tokenizer = tokenizers.Tokenizer.from_file(str(folder / 'tokenizer.json'))
  tokenizer.post_processor = processors.TemplateProcessing(
    single='<s> $A </s>',
    pair='<s> $A </s> $B:1 </s>:1' if bert else '<s> $A </s> </s> $B </s>',
    special_tokens=[(x, tokenizer.token_to_id(x)) for x in ('<s>', '</s>')],
  )
  tokenizer.save(str(folder / 'tokenizer.json'))
  file = folder / 'model.safetensors'
  base = 'bert' if bert else 'mpnet' if model == 'mpnet' else 'roberta'
  tensors = {
    f'{base}.{name}': x for name, x in safetensors.numpy.load_file(file).items()
  }
  d, rng = sentence_folders.D, np.random.default_rng(1)
  heads = 'classifier.dense', 'classifier.out_proj'
  heads = ('bert.pooler.dense', 'classifier') if bert else heads
  for name, rows in zip(heads, (d, 1), strict=True):
    tensors[f'{name}.weight'] = rng.standard_normal((rows, d), np.float32)
    tensors[f'{name}.bias'] = rng.standard_normal(rows, np.float32)
  safetensors.numpy.save_file(tensors, file, {'format': 'pt'})
  config = json.loads((folder / 'config.json').read_text())
  kind = {'bert': 'Bert', 'mpnet': 'MPNet', 'roberta': 'Roberta'}[base]
  config['architectures'] = [f'{kind}ForSequenceClassification']
  config['id2label'] = {'0': 'LABEL_0'}
  transformer = 'sentence_transformers.base.modules.transformer.Transformer'
  files = {
    'config.json': config,
    'modules.json': [{'idx': 0, 'name': '0', 'path': '', 'type': transformer}],
    'config_sentence_transformers.json': {
      'activation_fn': 'torch.nn.modules.activation.Sigmoid',
      'default_prompt_name': None,
      'model_type': 'CrossEncoder',
      'prompts': {},
    },
    'sentence_bert_config.json': {
      'transformer_task': 'sequence-classification',
      'modality_config': {
        'text': {'method': 'forward', 'method_output_name': 'logits'}
      },
      'module_output_name': 'scores',
    },
    'tokenizer_config.json': {
      'tokenizer_class': 'PreTrainedTokenizerFast',
      'model_input_names': ['input_ids', 'attention_mask']
      + ['token_type_ids'] * bert,
      'pad_token': '<pad>',
      'cls_token': '<s>',
      'sep_token': '</s>',
      'model_max_length': sentence_folders.LENGTH - 4,
    },
  }
  return sentence_folders.write(folder, files)


def _scores(root, model):
  """Logits [n] by sentence-transformers."""
  import sentence_transformers
  import torch

  folder = str(save(pathlib.Path(root) / model, model))
  encoder = sentence_transformers.CrossEncoder(folder, device='cpu')
  logits = encoder.predict(list(PAIRS), activation_fn=torch.nn.Identity())
  return np.round(logits.astype(float), 6).tolist()


if __name__ == '__main__':
  with tempfile.TemporaryDirectory() as root:
    json.dump({model: _scores(root, model) for model in MODELS}, sys.stdout)
    print()

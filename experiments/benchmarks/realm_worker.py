# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The transformers 4.40.2 side of the benchmarks `realm` and `qa`.

The peer's interpreter runs this module, which imports nothing of this project.
"""

import itertools
import json
import pathlib


def make_config(sizes: dict, **fields):
  """Set up torch; return a transformers.RealmConfig of the sizes."""
  import torch
  from transformers.models import realm

  torch.manual_seed(0)
  torch.set_num_threads(sizes['num_threads'])
  return realm.RealmConfig(
    vocab_size=sizes['vocab_size'],
    hidden_size=sizes['d_model'],
    num_hidden_layers=sizes['num_layers'],
    num_attention_heads=sizes['num_heads'],
    intermediate_size=sizes['d_ff'],
    **fields,
  )


def build(side: str, sizes: dict):
  """Return the steps of `qa`, whose sizes have a root, or of `realm`."""
  del side
  if 'root' in sizes:
    return _qa(sizes)
  import torch
  from transformers.models import realm

  batch, count = sizes['batch'], sizes['num_candidates']
  query, block = sizes['query_length'], sizes['block_length']
  config = make_config(sizes, num_candidates=count)
  scorer = realm.RealmScorer(config).train()
  encoder = realm.RealmKnowledgeAugEncoder(config).train()
  params = [*scorer.parameters(), *encoder.parameters()]

  def ids(*shape):
    return torch.randint(1000, sizes['vocab_size'], shape)

  queries, blocks = ids(batch, query), ids(batch, count, block)
  joint, labels = ids(batch, count, query + block), ids(batch, query + block)
  masked = torch.zeros(batch, query + block)
  masked[:, 5 : 5 + sizes['max_targets']] = 1

  def train():
    for param in params:
      param.grad = None
    scores = scorer(
      queries,
      torch.ones_like(queries),
      torch.zeros_like(queries),
      candidate_input_ids=blocks,
      candidate_attention_mask=torch.ones_like(blocks),
      candidate_token_type_ids=torch.ones_like(blocks),
    ).relevance_score
    encoder(
      joint,
      torch.ones_like(joint),
      torch.ones_like(joint),
      relevance_score=scores,
      labels=labels,
      mlm_mask=masked,
    ).loss.backward()

  def embed():
    scorer.eval()
    with torch.no_grad():
      scorer.embedder(blocks.reshape(-1, block))
    scorer.train()
    return {'items': batch * count}

  return {'train': train, 'embed': embed}


def _qa(sizes: dict):
  """Return 'answer', 'train' and 'train_nothing'; `root` has the texts."""
  import numpy as np
  import torch
  from transformers.models import realm

  config = make_config(
    sizes,
    retriever_proj_size=sizes['vector_size'],
    num_block_records=sizes['num_blocks'],
    searcher_beam_size=sizes['retriever_beam'],
    reader_beam_size=sizes['reader_beam'],
    reader_seq_len=sizes['row_length'],
    max_span_width=sizes['max_span_width'],
    pad_token_id=0,
  )
  root = pathlib.Path(sizes['root'])
  with open(root / 'texts.jsonl') as f:
    texts = [json.loads(line)['text'].encode() for line in f]
  tokenizer = realm.RealmTokenizerFast(str(root / 'vocab.txt'))
  retriever = realm.RealmRetriever(np.array(texts, object), tokenizer)
  model = realm.RealmForOpenQA(config, retriever)
  model.block_emb.normal_()
  optimizer = torch.optim.AdamW(model.parameters(), 1e-5)
  rows = [tokenizer([q], return_tensors='pt') for q in sizes['questions']]
  questions = itertools.cycle(rows)

  def answer():
    model.eval()
    with torch.no_grad():
      _, ids = model(**next(questions), return_dict=False)
    return tokenizer.decode(ids)

  def train(answers):
    ids = tokenizer(answers, add_special_tokens=False).input_ids
    model.train()
    optimizer.zero_grad()
    found, _ = model(**next(questions), answer_ids=ids, return_dict=False)
    found.loss.backward()
    optimizer.step()
    return {'has_answer': float(found.reader_correct.any())}

  return {
    'answer': answer,
    'train': lambda: train(sizes['answers']),
    'train_nothing': lambda: train(sizes['no_answers']),
  }

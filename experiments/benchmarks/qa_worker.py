# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The other side of benchmark_qa: RealmForOpenQA of transformers 4.40.2.

Run by the baseline's interpreter; depends on nothing of this project but its
neighbor benchmark_turns.
"""

import itertools
import json
import pathlib
import sys


def build(sizes: dict):
  """The other side's steps.

  Args:
    sizes: as benchmark_qa.SIZES, with num_threads, root (the folder of
      benchmark_qa_data), questions and answers.

  Returns:
    'answer', 'train' and 'train_nothing', functions without arguments.
  """
  import numpy as np
  import torch
  from transformers.models import realm

  torch.manual_seed(0)
  torch.set_num_threads(sizes['num_threads'])
  config = realm.RealmConfig(
    vocab_size=sizes['vocab_size'],
    hidden_size=sizes['d_model'],
    num_hidden_layers=sizes['num_layers'],
    num_attention_heads=sizes['num_heads'],
    intermediate_size=sizes['d_ff'],
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


if __name__ == '__main__':
  import benchmark_turns  # beside this script

  benchmark_turns.serve(build(json.loads(sys.argv[1])))

# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Protocol buffer messages declared in Python; no compiled .proto files."""

from collections.abc import Mapping

from google.protobuf import (
  descriptor_pb2,
  descriptor_pool,
  message,
  message_factory,
)

_Field = descriptor_pb2.FieldDescriptorProto


def describe(
  name: str, fields: Mapping[str, str]
) -> descriptor_pb2.DescriptorProto:
  """Describe one message.

  Args:
    fields: name -> 'TYPE NUMBER', such as 'int64 2', or 'repeated TYPE NUMBER';
      a TYPE that begins with a dot is the full name of a message.
  """
  described = descriptor_pb2.DescriptorProto(name=name)
  for field, text in fields.items():
    *repeated, kind, number = text.split()
    is_message = kind.startswith('.')
    described.field.add(
      name=field,
      number=int(number),
      label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL,
      type=_Field.Type.Value('TYPE_MESSAGE')
      if is_message
      else _Field.Type.Value(f'TYPE_{kind.upper()}'),
      type_name=kind if is_message else None,
    )
  return described


def make_classes(
  package: str, *messages: descriptor_pb2.DescriptorProto
) -> dict[str, type[message.Message]]:
  """Make the class of each message, by its full name."""
  file = descriptor_pb2.FileDescriptorProto(
    name=package, package=package, syntax='proto3', message_type=messages
  )
  pool = descriptor_pool.DescriptorPool()
  pool.AddSerializedFile(file.SerializeToString())
  return message_factory.GetMessageClassesForFiles([package], pool)

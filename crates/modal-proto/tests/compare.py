"""Compares a descriptor set (the one argument) with the descriptors in the installed package `modal`.

Every message, field, enum value and call of ours must be there with the same number, type and shape. Prints what
differs and ends with 1 if anything does.
"""

import sys

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FieldDescriptor

from modal_proto import api_pb2, task_command_router_pb2

THEIRS = {"modal.client": api_pb2.DESCRIPTOR, "modal.task_command_router": task_command_router_pb2.DESCRIPTOR}
differences = []
compared = 0


def same(where, ours, theirs):
    global compared
    compared += 1
    if ours != theirs:
        differences.append(f"{where}: ours is {ours}, Modal's is {theirs}")


def repeated(field):
    if hasattr(field, "is_repeated"):
        return field.is_repeated
    return field.label == FieldDescriptor.LABEL_REPEATED


def shape(field):
    kind = field.message_type or field.enum_type
    alone = field.containing_oneof is not None and len(field.containing_oneof.fields) == 1
    choice = field.containing_oneof.name.lstrip("_") if field.containing_oneof is not None else None
    return (field.number, field.type, kind and kind.full_name, repeated(field), choice if not alone else "optional")


def compare_enum(ours, theirs):
    for value in ours.values:
        other = theirs.values_by_name.get(value.name)
        same(f"{ours.full_name}.{value.name}", value.number, other and other.number)


def compare_message(ours, theirs):
    if theirs is None:
        differences.append(f"{ours.full_name}: Modal has no such message")
        return
    for field in ours.fields:
        other = theirs.fields_by_name.get(field.name)
        same(f"{ours.full_name}.{field.name}", shape(field), other and shape(other))
    for inner in ours.nested_types:
        compare_message(inner, theirs.nested_types_by_name.get(inner.name))
    for inner in ours.enum_types:
        compare_enum(inner, theirs.enum_types_by_name[inner.name])


def compare_service(ours, theirs):
    for call in ours.methods:
        other = theirs.methods_by_name.get(call.name)
        if other is None:
            differences.append(f"{ours.full_name}.{call.name}: Modal has no such call")
            continue

        def ends(method):
            return (method.input_type.full_name, method.client_streaming, method.output_type.full_name, method.server_streaming)

        same(f"{ours.full_name}.{call.name}", ends(call), ends(other))


def main():
    files = descriptor_pb2.FileDescriptorSet()
    with open(sys.argv[1], "rb") as source:
        files.ParseFromString(source.read())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    for file in files.file:
        theirs = THEIRS.get(file.package)
        if theirs is None:
            continue
        ours = pool.FindFileByName(file.name)
        for name, message in ours.message_types_by_name.items():
            compare_message(message, theirs.message_types_by_name.get(name))
        for name, enum in ours.enum_types_by_name.items():
            compare_enum(enum, theirs.enum_types_by_name[name])
        for name, service in ours.services_by_name.items():
            compare_service(service, theirs.services_by_name[name])
    for difference in differences:
        print(difference)
    print(f"{compared} compared, {len(differences)} differ")
    # Nothing compared means that the packages were not found.
    return 1 if differences or compared == 0 else 0


sys.exit(main())

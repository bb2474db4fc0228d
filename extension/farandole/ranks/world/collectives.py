"""Broadcasts and gathers bytes and tensors over the world's backend.

All ranks must call these collectives together, from their main threads. A collective in another thread could run
between two collectives of the training loop, in an order that differs from rank to rank.
"""

from __future__ import annotations

from typing import Any

from farandole.ranks import context


def broadcast_bytes(data: bytes, root: int) -> bytes:
    """Return rank ``root``'s ``data`` on every rank of the world."""
    if _alone():
        return data
    import torch

    length = int(broadcast(torch.tensor([len(data)]), root).item())
    if length == 0:
        return b""
    buffer = _to_tensor(data) if context.rank() == root else torch.empty(length, dtype=torch.uint8)
    return _to_bytes(broadcast(buffer, root))


def broadcast(tensor: Any, root: int) -> Any:
    """Return rank ``root``'s ``tensor`` on every rank's CPU. Other ranks pass a tensor of the same shape and dtype."""
    if _alone():
        return tensor
    if context.backend() == "horovod":
        import horovod.torch as hvd

        return hvd.broadcast(tensor, root, name=f"farandole.broadcast.{tensor.dtype}")
    import torch.distributed as dist

    sent = tensor.to(_device())
    dist.broadcast(sent, root)
    return sent.cpu()


def gather_bytes(data: bytes) -> list[bytes]:
    """Return the ``data`` of all ranks, ordered by rank, on every rank. Intended for data of a few kilobytes."""
    if _alone():
        return [data]
    import torch

    lengths = [int(length) for length in _gather(torch.tensor([len(data)]))]
    padded = _to_tensor(data.ljust(max(*lengths, 1), b"\0"))
    rows = _gather(padded).reshape(len(lengths), -1)
    return [_to_bytes(row[:length]) for row, length in zip(rows, lengths, strict=True)]


def _gather(tensor: Any) -> Any:
    """Concatenate the tensors of all ranks along the first dimension. All tensors must have the same shape."""
    if context.backend() == "horovod":
        import horovod.torch as hvd

        return hvd.allgather(tensor, name=f"farandole.gather.{tensor.dtype}")
    import torch
    import torch.distributed as dist

    sent = tensor.to(_device())
    parts = [torch.empty_like(sent) for _ in range(context.size())]
    dist.all_gather(parts, sent)
    return torch.cat(parts).cpu()


def _alone() -> bool:
    return context.size() == 1 or context.backend() == "none" or context.outside()


def _device() -> Any:
    import torch
    import torch.distributed as dist

    # NCCL can transfer only tensors in GPU memory.
    return context.device() if dist.get_backend() == "nccl" else torch.device("cpu")


def _to_tensor(data: bytes) -> Any:
    import torch

    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _to_bytes(tensor: Any) -> bytes:
    return bytes(tensor.numpy())

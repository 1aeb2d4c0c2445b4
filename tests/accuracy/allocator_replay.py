"""How much torch's native allocator holds beyond what is needed, where every micro-batch has another length.

A replay of the large pool of the caching allocator (c10/cuda/CUDACachingAllocator.cpp: the smallest free
block that fits, split where more than 1 MiB is left, merged with its neighbors when it is freed, segments of
10 MiB and more in steps of 2 MiB) with what a recomputed fine-tuning step allocates beside the states.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

MIB = 2**20
SPLIT_OVER, SMALL_SEGMENT, LARGE_FROM, STEP = MIB, 20 * MIB, 10 * MIB, 2 * MIB
BLOCK = 512


@dataclass(eq=False)
class Block:
    """A part of a segment. ``used``: bytes that a tensor has, 0 while it is free."""

    segment: int
    start: int
    size: int
    used: int = 0


@dataclass
class Pool:
    """Free blocks, and bytes that are reserved, in use, and were in use at most."""

    free: list[Block] = field(default_factory=list)
    segments: int = 0
    reserved: int = 0
    in_use: int = 0
    peak: int = 0

    def allocate(self, num_bytes: int) -> Block:
        wanted = -(-num_bytes // BLOCK) * BLOCK
        fitting = [block for block in self.free if block.size >= wanted]
        block = min(fitting, key=lambda each: each.size) if fitting else self.segment(wanted)
        if fitting:
            self.free.remove(block)
        if block.size - wanted > SPLIT_OVER:
            self.free.append(Block(block.segment, block.start + wanted, block.size - wanted))
            block.size = wanted
        block.used = wanted
        self.in_use += wanted
        self.peak = max(self.peak, self.in_use)
        return block

    def segment(self, wanted: int) -> Block:
        size = SMALL_SEGMENT if wanted < LARGE_FROM else -(-wanted // STEP) * STEP
        self.segments += 1
        self.reserved += size
        return Block(self.segments, 0, size)

    def release(self, block: Block) -> None:
        self.in_use -= block.used
        start, size = block.start, block.size
        for other in [each for each in self.free if each.segment == block.segment]:
            if other.start + other.size == start or start + size == other.start:
                self.free.remove(other)
                start, size = min(start, other.start), size + other.size
        self.free.append(Block(block.segment, start, size))


def step(pool: Pool, tokens: int, layers: int, hidden: int, ffn: int, vocab: int) -> None:
    """Forward and backward of one micro-batch: block inputs, a block at a time, fp32 copies of the logits."""
    block = [2 * hidden, 6 * hidden, 2 * hidden, 2 * ffn, 2 * ffn, 2 * ffn]
    inputs = []
    for _ in range(layers):
        inputs.append(pool.allocate(2 * hidden * tokens))
        live(pool, [each * tokens for each in block])
    chain = [2, 4, 4, 4, 4, 4, 2]  # logits, fp32, shifted, log-softmax, and three gradients
    made = [pool.allocate(each * tokens * vocab) for each in chain[:2]]
    pool.release(made[0])
    made += [pool.allocate(each * tokens * vocab) for each in chain[2:5]]
    for gone in (3, 2):
        pool.release(made[gone])
    made.append(pool.allocate(chain[5] * tokens * vocab))
    for gone in (4, 1):
        pool.release(made[gone])
    made.append(pool.allocate(chain[6] * tokens * vocab))
    for gone in (5, 6):
        pool.release(made[gone])
    for saved in reversed(inputs):
        live(pool, [each * tokens for each in (4 * hidden, *block, 2 * ffn, 2 * ffn)])
        pool.release(saved)


def live(pool: Pool, sizes: list[int]) -> None:
    """Tensors that are there together, then gone."""
    for block in [pool.allocate(size) for size in sizes]:
        pool.release(block)


def slack(lengths: list[int], layers: int, hidden: int, ffn: int, vocab: int) -> float:
    """Bytes reserved and never used at once, over the bytes that were used at once."""
    pool = Pool()
    for tokens in lengths:
        step(pool, tokens, layers, hidden, ffn, vocab)
    return pool.reserved / pool.peak - 1


def uniform(limit: int, count: int, seed: int) -> list[int]:
    return [random.Random(seed * 10_000 + i).randint(91, limit) for i in range(count)]


def skewed(limit: int, count: int, seed: int) -> list[int]:
    """Most samples short, some long, as instruction data is: log-normal around 545 tokens."""
    return [
        min(limit, max(91, int(random.Random(seed * 10_000 + i).lognormvariate(6.3, 0.6))))
        for i in range(count)
    ]

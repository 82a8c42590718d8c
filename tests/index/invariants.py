"""What must hold for every prefix tree at any time."""

from __future__ import annotations

from contextpilot_rag.index.tree import PrefixTree


def check(tree: PrefixTree) -> None:
    nodes = set()
    stack = [tree._root]
    while stack:
        parent = stack.pop()
        for first, child in parent.children.items():
            assert child.parent is parent
            assert child.blocks, "no node is empty"
            assert child.blocks[0] == first
            assert len(child.weights) == len(child.blocks)
            assert child.tokens == sum(child.weights)
            assert parent is tree._root or child.used_at <= parent.used_at
            nodes.add(child)
            stack.append(child)
    assert nodes == set(tree._by_use)
    assert tree.tokens == sum(node.tokens for node in nodes)
    assert tree.blocks == sum(len(node.blocks) for node in nodes)
    place = {node: number for number, node in enumerate(tree._by_use)}
    for node in nodes:
        assert node.parent is tree._root or place[node] < place[node.parent], "a node is evicted before its parent"
    for path in tree.paths():
        assert len(path) == len(set(path))

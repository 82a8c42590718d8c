"""Retrievers: raw results to contexts, and small retrievers for those who have none."""

from __future__ import annotations

from .bm25 import BM25Retriever, from_bm25, from_bm25s
from .elasticsearch import from_elasticsearch
from .faiss import FaissRetriever, from_faiss
from .fusion import fuse
from .lsa import LsaEmbedding
from .mem0 import from_mem0

__all__ = [
    "BM25Retriever",
    "FaissRetriever",
    "LsaEmbedding",
    "from_bm25",
    "from_bm25s",
    "from_elasticsearch",
    "from_faiss",
    "from_mem0",
    "fuse",
]

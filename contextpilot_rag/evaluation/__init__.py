"""Do answers stay as good when blocks are aligned? Questions with answers, through several arms, on a real engine.

`run` asks, `verdict` says with intervals what came out, and `session`, behind ``contextpilot-rag evaluate``, does both.
"""

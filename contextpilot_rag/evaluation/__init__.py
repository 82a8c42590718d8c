"""Do answers stay as good when blocks are aligned? Questions with answers, through several arms, on a real engine.

`run.evaluate` asks; `verdict.judged` says what came out, with intervals. ``contextpilot-rag evaluate`` is both.
"""

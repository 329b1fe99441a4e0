"""Events: the claims they count, the rewards they earn, and what became of them.

`events` reads what a decision needs and inserts decided events in one statement; `history` reads
one event with its reward, transaction and mint. Begin with `events.py`.
"""

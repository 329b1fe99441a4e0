"""Purchase constraints: conditions that a brand sets on claims from its collections.

Begin with `evaluation`, which checks a claim and caches what outside services answer;
`chat_members` asks the chat platform about a user's accounts.
"""

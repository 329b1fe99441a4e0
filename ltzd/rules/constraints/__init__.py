"""Purchase constraints: the conditions for a claim from a collection.

`constraints` has the kinds of constraints and decides whether one is satisfied. `json_paths` finds
the value in an external API's answer, and `chat_queries` keeps a question to the chat platform for
later.
"""

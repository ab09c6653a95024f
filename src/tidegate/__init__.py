"""tidegate: a KV-cache and scheduling runtime for LLM serving."""

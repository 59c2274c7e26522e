"""A server of the OpenAI protocol that answers questions about videos."""

"""Pictures of the memory, drawn from traces without torch."""

"""The engine: streams, sessions and their roles. Nothing here is part of the public interface."""

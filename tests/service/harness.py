"""A service in a thread of this process, or as a process of its own; on 127.0.0.1 with a free port."""

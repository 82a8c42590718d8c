"""The index as a service, seen from its clients: what goes over the wire, and `RemoteIndex`."""

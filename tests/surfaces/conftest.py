"""The shared event surface, and one of a test's own."""

from tests.support.surfaces.event_surface import event_surface, own_event_surface

__all__ = ["event_surface", "own_event_surface"]

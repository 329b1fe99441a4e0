"""The event surface, whole, for each test that asks."""

from tests.support.surfaces.event_surface import event_surface, own_event_surface

__all__ = ["event_surface", "own_event_surface"]

"""Redis: what may be lost at any time and costs time, never money."""

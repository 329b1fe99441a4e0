"""Numbered revisions of plain SQL that only move forward."""

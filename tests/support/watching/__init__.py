"""Alert rules, dashboards and the page of metrics: how they are written, and cases for each alert."""

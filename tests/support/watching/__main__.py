"""`make watching`: writes the generated pages and dashboards."""

from tests.support.watching.dashboards import FOLDER, dashboards, rendered
from tests.support.watching.log_lines import LOGS_PAGE, logs_page
from tests.support.watching.pages import ALERTS_PAGE, METRICS_PAGE, alerts_page, metrics_page

METRICS_PAGE.write_text(metrics_page())
ALERTS_PAGE.write_text(alerts_page())
LOGS_PAGE.write_text(logs_page())
for name, dashboard in dashboards().items():
    (FOLDER / f"{name}.json").write_text(rendered(dashboard))

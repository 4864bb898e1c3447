"""What a run leaves behind: CSV tables, a manifest, figures and one page. Nothing else in the project writes files.

Figures and page read the CSVs of the result folder, so that they can show nothing that is not in them.
"""

from simserve.report.figures import draw
from simserve.report.folder import OutputError, check_writable, result_folder
from simserve.report.manifest import write_manifest
from simserve.report.page import write_page
from simserve.report.tables import read_csv, write_csv

__all__ = [
    "OutputError",
    "check_writable",
    "draw",
    "read_csv",
    "result_folder",
    "write_csv",
    "write_manifest",
    "write_page",
]
